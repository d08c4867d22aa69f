//! Makes the kernel's rules, routes and the program's map follow the configuration and what is there.

use sidestep_hostd::{AgentError, paths::tables, routing::Domain};
use sidestep_linux::netlink::Netlink;

use super::{Edge, Health, destinations::Found, peer::Peer};
use crate::daemon::balancer;

/// Where an edge with these numbers has its rules and routes.
pub(super) fn domain(table_base: u32, priority: u32) -> Domain {
    Domain::tables(tables(table_base), priority..=priority)
}

/// Removes filters, rules and routes of an edge, also those that other programs made; returns whether there were any.
pub(super) async fn remove_all(netlink: &Netlink, table_base: u32, priority: u32) -> Result<bool, AgentError> {
    let mut found = false;
    for interface in netlink.interfaces().await? {
        found |= balancer::remove(netlink, interface.index).await?;
    }
    found |= domain(table_base, priority).clear(netlink).await? > 0;
    Ok(found)
}

impl Edge {
    /// Rules and routes of paths are in place before the program names their slots; those of paths that are gone are removed
    /// after it no longer does.
    pub(super) async fn apply(&mut self) -> Result<(), AgentError> {
        let config = &self.options.config;
        let (mut sets, running) = self.routing.present_sets(&self.netlink, config).await?;
        let (wanted, refused) = self.routing.place_all(&self.netlink, config, &mut sets).await?;
        let found = Found { running: &running, refused: &refused, hops: &self.routing.underlay.hops };
        self.destinations.know(config, &sets, &found);
        self.refresh_probes()?;
        self.write_sites()?;
        self.send_to_peer();
        self.program.attach_all(&self.netlink, &self.options.config, self.tenure.is_at_work()).await?;
        self.routing.prune(&self.netlink, &wanted).await
    }

    /// Writes the destinations into the program's map where they have changed. A path that is dead at the other edge is dead
    /// here, so that both choose alike.
    pub(super) fn write_sites(&mut self) -> Result<(), AgentError> {
        let theirs = self.peer.as_ref().map(Peer::dead).filter(|_| self.settings().health != Health::Off);
        let theirs = theirs.unwrap_or_default();
        self.destinations.write(&mut self.program.balancer, self.probes.as_ref(), &theirs)
    }

    /// Compares the kernel with what it should have; returns whether anything has to be put back or removed, or a path begins
    /// with another hop than before.
    pub(super) async fn differs(&mut self) -> Result<bool, AgentError> {
        let drift = self.routing.compare(&self.netlink).await?;
        self.others.count(drift.lost());
        Ok(drift.is_any() || self.routing.underlay.has_changed(&self.netlink).await?)
    }
}
