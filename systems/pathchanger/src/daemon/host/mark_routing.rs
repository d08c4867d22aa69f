//! The rules and routes that lead marked packets along their paths.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    paths::{self, DestinationPaths, Exceptions, HostPath, Underlay},
    routing::{Drift, KernelRouting, Refusal, Routes},
};
use sidestep_linux::netlink::{Family, Netlink, NextHop, RoutingChange};

use super::{cleanup::domain, ownership::RoutingSpace};
use crate::daemon::program::HostProgram;

/// The daemon's rules and routes, and what they depend on in the kernel. A dry run installs none.
pub(super) struct MarkRouting {
    pub(super) ground: RoutingSpace,
    dry_run: bool,
    kernel: KernelRouting,
    /// What paths depend on in the kernel's other tables.
    underlay: Underlay,
    /// Whether connections may have looked their route up while rules or routes were missing, and keep it.
    reroutes: bool,
}

/// Paths whose routes the kernel refused, by destination and Path ID.
pub(super) type Refused = BTreeSet<(IpNet, u32)>;

impl MarkRouting {
    /// Nothing is installed yet.
    pub(super) fn new(ground: RoutingSpace, dry_run: bool) -> Self {
        let kernel = KernelRouting::new(domain(ground.table_base, ground.priority));
        MarkRouting { ground, dry_run, kernel, underlay: Underlay::default(), reroutes: false }
    }

    /// Takes over the rules and routes of an earlier daemon; returns whether there are any.
    pub(super) async fn inherit(&mut self, netlink: &Netlink) -> Result<bool, AgentError> {
        let rules: Vec<_> = Family::ALL.iter().flat_map(|family| self.ground.rules_of(*family)).collect();
        self.kernel.inherit(netlink, rules).await?;
        Ok(self.kernel.has_inherited())
    }

    /// Whether a change in the kernel is one after which rules or routes may not be as they should.
    pub(super) fn concerns(&self, change: &RoutingChange) -> bool {
        self.kernel.concerns(change) || self.underlay.concerns(&self.kernel, change)
    }

    /// Forgets the rules and routes that the kernel no longer has; returns what has to be put back.
    pub(super) async fn compare(&mut self, netlink: &Netlink) -> Result<Drift, AgentError> {
        let drift = if self.dry_run { Drift::default() } else { self.kernel.compare(netlink).await? };
        drift.log();
        self.reroutes |= drift.is_any();
        Ok(drift)
    }

    /// Whether a path begins with another hop than before, or other routes win over paths.
    pub(super) async fn is_elsewhere(&self, netlink: &Netlink) -> Result<bool, AgentError> {
        self.underlay.has_changed(netlink).await
    }

    /// Notes that the kernel may have none of the routes, as when it has removed them with an interface.
    pub(super) fn forget_routes(&mut self) {
        self.kernel.forget_routes();
        self.reroutes = true;
    }

    /// Makes connections look their routes up again that may have done so while some were missing.
    pub(super) fn reroute(&mut self, program: &HostProgram) -> Result<(), AgentError> {
        if self.reroutes {
            program.reroute_connections()?;
            self.reroutes = false;
        }
        Ok(())
    }

    /// Finds the routes of others that win over paths. Takes the paths of destinations that are nothing but this host's own,
    /// or on a link only. Returns the sets without paths, whose connections are left alone.
    pub(super) async fn find_exceptions(
        &mut self,
        netlink: &Netlink,
        sets: &mut [DestinationPaths],
    ) -> Result<Vec<DestinationPaths>, AgentError> {
        self.underlay.exceptions = Exceptions::find_on_host(netlink, sets).await?;
        let exceptions = &self.underlay.exceptions;
        for set in sets.iter_mut().filter(|set| !set.paths.is_empty() && exceptions.is_local(set.destination)) {
            tracing::warn!(
                destination = %set.destination,
                "no path leads there: it is this host's own, or on a link only; its connections are left alone"
            );
            set.paths.clear();
        }
        Ok(exceptions.sets(sets))
    }

    /// The next hop towards the first segment of each path, where the kernel has a route to it.
    ///
    /// Both are noted: when a route to a first segment changes or appears, the path's own route follows.
    pub(super) async fn first_hops(
        &mut self,
        netlink: &Netlink,
        sets: &[DestinationPaths],
    ) -> Result<BTreeMap<Ipv6Addr, NextHop>, AgentError> {
        let firsts: BTreeSet<_> = sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::first_hop).collect();
        let hops = paths::first_hops(netlink, &firsts).await?;
        let without: Vec<_> = firsts.iter().filter(|first| !hops.contains_key(first)).collect();
        if !without.is_empty() && (hops != self.underlay.hops || firsts != self.underlay.firsts) {
            tracing::warn!(first_segments = ?without, "no route leads there: their paths are left out until one does");
        }
        (self.underlay.firsts, self.underlay.hops) = (firsts, hops.clone());
        Ok(hops)
    }

    /// Installs a rule for each slot that any path uses; slots that already have theirs keep it.
    pub(super) async fn install_rules(
        &mut self,
        netlink: &Netlink,
        sets: &[DestinationPaths],
    ) -> Result<(), AgentError> {
        if self.dry_run {
            return Ok(());
        }
        let wanted = paths::used_slots(sets).into_iter().map(|(family, slot)| self.ground.rule(family, slot));
        Ok(self.kernel.install_rules(netlink, wanted).await?)
    }

    /// Installs the routes of all paths, and returns them. A path whose route the kernel refuses, for instance because its
    /// interface is down, leaves its set, and is also returned.
    pub(super) async fn install_routes(
        &mut self,
        netlink: &Netlink,
        sets: &mut [DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<(Routes, Refused), AgentError> {
        let table_base = self.ground.table_base;
        let mut refused = Refused::new();
        if self.dry_run {
            return Ok((Routes::new(), refused));
        }
        loop {
            let wanted = paths::routes(sets, table_base, hops);
            let Err(refusal) = self.kernel.install_routes(netlink, &wanted).await else { return Ok((wanted, refused)) };
            let Some(path) = paths::take_refused(sets, table_base, &refusal) else { return Err(refusal.error.into()) };
            let Refusal { key: (_, destination), error } = refusal;
            tracing::warn!(%error, path = path.name, "a path is left out");
            refused.insert((destination, path.id));
        }
    }

    /// Removes the routes that are not among these, and inherited ones to destinations that are decided on.
    pub(super) async fn prune(
        &mut self,
        netlink: &Netlink,
        wanted: &Routes,
        is_decided: impl Fn(IpNet) -> bool,
    ) -> Result<(), AgentError> {
        self.kernel.disinherit(|(_, net)| is_decided(*net));
        // A rule to a table without routes changes nothing, and its slot may be used again.
        Ok(self.kernel.prune(netlink, |_| true, |key| wanted.contains_key(key)).await?)
    }
}
