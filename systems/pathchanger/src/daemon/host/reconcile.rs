//! Makes the kernel's rules, routes and map follow the controller and the host's own configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use sidestep_hostd::{
    AgentError,
    paths::{DestinationPaths, Room},
};
use sidestep_linux::netlink::NextHop;
use sidestep_policy::raw::MAX_PATHS;

use super::{Host, replies::Odds};

impl Host {
    /// Makes rules, routes and map follow the controller and our own configuration.
    ///
    /// Rules and routes of paths that come are in place before the map and the marks name them; those of paths that go
    /// are removed after the last connection has left. Only if marks have no room for both at once, paths that come wait
    /// until others have gone. Until the controller has answered, what an earlier daemon left for destinations that are not
    /// our own stays as it is.
    pub(super) async fn apply_paths(&mut self) -> Result<(), AgentError> {
        let mut sets = self.given.merged();
        let received: usize = sets.iter().map(|set| set.paths.len()).sum();
        let hops = self.routing.first_hops(&self.netlink, &sets).await?;
        for set in &mut sets {
            // No connection may draw a path that leads nowhere, or one that its mark has no room for.
            set.paths.retain(|path| path.is_reachable(&hops));
            set.paths.truncate(MAX_PATHS);
        }
        let left_alone = self.routing.find_exceptions(&self.netlink, &mut sets).await?;
        let excepted: BTreeSet<_> = left_alone.iter().map(|set| set.destination).collect();
        sets.extend(left_alone);
        let (most, dry_run) = (self.routing.ground.mark.slots(), self.options.dry_run);
        let mut placed = Vec::new();
        for room in [Room::Free, Room::Free, Room::Any] {
            let placement = self.map.place(&self.program, &sets, most, room, dry_run)?;
            placed = sets.iter().map(|set| set.placed(&placement.slots)).collect();
            self.apply(&mut sets, &mut placed, &hops).await?;
            if !placement.waits {
                break;
            }
        }
        let left_out = received - placed.iter().map(|set| set.paths.len()).sum::<usize>();
        placed.retain(|set| !excepted.contains(&set.destination));
        let replaced = self.paths.replace(placed, left_out);
        for interface in replaced.left {
            // What connections sent there before they moved would hold them up.
            if let Err(error) = self.netlink.forget_unresolved_neighbours(interface).await {
                tracing::debug!(%error, "packets may wait on an interface that is not used any more");
            }
        }
        self.records.recorder.name(&self.paths.sets);
        self.note_names()?;
        self.paths.note_reach(&self.netlink, &self.program).await?;
        if replaced.changed || !self.attachment.is_at_work() {
            self.records.recorder.paths(self.given.at(), &self.paths.sets);
        }
        Ok(())
    }

    /// Puts these sets in place. Paths that the kernel refuses leave `sets` and `placed`.
    async fn apply(
        &mut self,
        sets: &mut [DestinationPaths],
        placed: &mut [DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<(), AgentError> {
        self.routing.install_rules(&self.netlink, placed).await?;
        let (wanted, refused) = self.routing.install_routes(&self.netlink, placed, hops).await?;
        for set in sets {
            set.paths.retain(|path| !refused.contains(&(set.destination, path.id)));
        }
        self.paths.name_sources(&self.netlink, &mut self.program, placed, hops).await?;
        let (settings, awaits) = (&self.options.config.agent, self.given.awaits_controller());
        self.map.write(&mut self.program, placed, settings, awaits)?;
        if self.options.dry_run {
            return Ok(());
        }
        let odds = Odds { ground: &self.routing.ground, settings, sources: &self.paths.sources };
        let masqueraded = self.others.neighbours.masqueraded();
        self.replies.draw(&self.program, placed, &odds, masqueraded, awaits);
        let is_decided = |net| !awaits || placed.iter().any(|set| set.destination == net);
        self.routing.prune(&self.netlink, &wanted, is_decided).await
    }

    /// Notes what paths are called, and which destinations of the controller are not used, for readers of our state.
    pub(super) fn note_names(&mut self) -> Result<(), AgentError> {
        let names = self.paths.names_with_withdrawn().into_iter().chain(self.given.notes());
        Ok(self.program.set_names(&names.collect())?)
    }
}
