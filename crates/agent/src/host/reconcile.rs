//! Makes the kernel's rules, routes and map say what the controller and the host's own configuration say.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use ipnet::IpNet;
use sidestep_linux::netlink::{Family, MarkRule, NextHop, Route};

use super::{
    Host, MarkBits,
    paths::{self, DestinationPaths, HostPath, slot_of},
};
use crate::AgentError;

impl Host {
    /// Makes rules, routes and map say what the controller and our own configuration say.
    ///
    /// Routes come before the map that sends connections to them, and go after it. Until the controller has answered, what
    /// an earlier daemon left for destinations that are not our own stays as it is.
    pub(super) async fn apply_paths(&mut self) -> Result<(), AgentError> {
        let mut sets = self.merged_sets();
        let received: usize = sets.iter().map(|set| set.paths.len()).sum();
        let hops = self.first_hops(&sets).await?;
        for set in &mut sets {
            // No connection may draw a path that leads nowhere, or one that its mark has no room for.
            set.paths.retain(|path| path.is_reachable(&hops));
            set.paths.truncate(self.mark.slots());
        }
        self.install_rules(&sets).await?;
        let wanted = self.install_routes(&mut sets, &hops).await?;
        let destinations = self.write_paths(&sets)?;
        let awaits = self.awaits_controller();
        let stays = |(_, destination): &(u32, IpNet)| awaits && sets.iter().all(|set| set.destination != *destination);
        let inherited = self.inherited_routes.iter().filter(|key| !stays(key));
        let known = self.routes.keys().chain(&self.leftover_routes).chain(inherited);
        for (table, destination) in known.filter(|key| !wanted.contains_key(key)) {
            self.netlink.delete_route(*table, *destination).await?;
        }
        self.leftover_routes.clear();
        self.inherited_routes.retain(stays);
        self.left_out = received - sets.iter().map(|set| set.paths.len()).sum::<usize>();
        self.sets = sets;
        self.routes = wanted;
        if self.destinations != destinations {
            self.destinations = destinations;
            self.recorder.paths(self.paths_at, &self.sets);
        }
        Ok(())
    }

    /// The paths of the file, and the controller's to destinations that the file does not have.
    fn merged_sets(&mut self) -> Vec<DestinationPaths> {
        let given = self.update.as_deref().map(DestinationPaths::from_update).unwrap_or_default();
        let own: BTreeSet<IpNet> = self.own.iter().map(|set| set.destination.trunc()).collect();
        let (shadowed, added): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|set| own.contains(&set.destination.trunc()));
        let shadowed: BTreeSet<IpNet> = shadowed.into_iter().map(|set| set.destination).collect();
        for destination in shadowed.difference(&self.shadowed) {
            tracing::warn!(%destination, "the controller has paths to it, too: those of the file are used");
        }
        self.shadowed = shadowed;
        self.own.iter().cloned().chain(added).collect()
    }

    /// Writes the sets into the program's map, and returns the destinations that are there now, with their generations.
    fn write_paths(&mut self, sets: &[DestinationPaths]) -> Result<BTreeMap<IpNet, u32>, AgentError> {
        let awaits = self.awaits_controller();
        // Zero is the generation of what an earlier daemon left.
        let stays = |of: &(&IpNet, &u32)| awaits && *of.1 == 0;
        let mut written: BTreeMap<_, _> =
            self.destinations.iter().filter(stays).map(|(net, zero)| (*net, *zero)).collect();
        let initial = self.options.config.agent.initial_weights();
        for set in sets {
            if let Err(error) = self.program.set_paths(set.destination, set.generation(), &set.entries(initial)) {
                // The map has room for 4,096 destinations.
                tracing::warn!(%error, "connections to this destination are left alone");
                continue;
            }
            written.insert(set.destination, set.generation());
        }
        for gone in self.destinations.keys().filter(|destination| !written.contains_key(destination)) {
            self.program.remove_paths(*gone)?;
        }
        if self.destinations != written {
            // Before their routes go, and not only with their next signal: an idle connection has none.
            self.program.adopt_paths()?;
        }
        Ok(written)
    }

    /// Installs the routes of all paths. A path whose route the kernel refuses, for instance because its interface is
    /// down, leaves its set.
    async fn install_routes(
        &self,
        sets: &mut [DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<BTreeMap<(u32, IpNet), Route>, AgentError> {
        let table_base = self.options.table_base;
        if self.options.dry_run {
            return Ok(BTreeMap::new());
        }
        loop {
            let wanted = paths::routes(sets, table_base, hops);
            let mut refused = None;
            for (key, route) in wanted.iter().filter(|(key, route)| self.routes.get(key) != Some(*route)) {
                if let Err(error) = self.netlink.add_route(route).await {
                    refused = Some((*key, error));
                    break;
                }
            }
            let Some(((table, destination), error)) = refused else { return Ok(wanted) };
            let set = sets.iter_mut().find(|set| set.destination == destination);
            let index = (table - slot_of(0) - table_base) as usize;
            match set {
                // A privilege that lacks for one lacks for all.
                Some(set) if index < set.paths.len() && !error.is_environment() => {
                    let path = set.paths.remove(index);
                    tracing::warn!(%error, path = path.name, "a path is left out");
                }
                _ => return Err(error.into()),
            }
        }
    }

    /// The next hop towards the first segment of each path, where the kernel has a route to it.
    async fn first_hops(&self, sets: &[DestinationPaths]) -> Result<BTreeMap<Ipv6Addr, NextHop>, AgentError> {
        let firsts: BTreeSet<_> = sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::first_hop).collect();
        let mut hops = BTreeMap::new();
        for first in firsts {
            match self.netlink.route_to(first).await {
                Ok(hop) => {
                    hops.insert(first, hop);
                }
                Err(error) => tracing::warn!(%error, "there is no route to a path's first hop: the path is left out"),
            }
        }
        Ok(hops)
    }

    /// Installs a rule for each slot that any path uses; slots that already have theirs keep it.
    async fn install_rules(&mut self, sets: &[DestinationPaths]) -> Result<(), AgentError> {
        if self.options.dry_run {
            return Ok(());
        }
        let MarkBits { mask, shift } = self.mark;
        for set in sets {
            let family = Family::of(set.destination);
            let present = self.rules.entry(family).or_default();
            while (*present as usize) < set.paths.len() {
                let slot = slot_of(*present as usize);
                let table = self.options.table_base + slot;
                let rule = MarkRule { family, mark: slot << shift, mask, table, priority: self.options.priority };
                self.netlink.add_rule(rule).await?;
                *present += 1;
            }
        }
        Ok(())
    }
}
