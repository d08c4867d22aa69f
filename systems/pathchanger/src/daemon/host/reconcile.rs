//! Makes the kernel's rules, routes and map say what the controller and the host's own configuration say.

use sidestep_hostd::{
    AgentError, paths, paths::DestinationPaths, paths::Exceptions, paths::HostPath, paths::Placement, paths::Room,
    routing::Refusal, routing::Routes,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use ipnet::IpNet;
use sidestep_linux::netlink::{Family, NextHop};
use sidestep_policy::raw::MAX_PATHS;

use super::{Host, events::SetRecord, quality::Sockets};

/// The note on a destination that the file and the controller have paths to.
const FILE_WINS: &str = "the controller has paths to it, too: those of the file are used";

/// The interfaces of paths by next hops.
fn next_hop_interfaces(sets: &[DestinationPaths]) -> BTreeSet<u32> {
    sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::next_hop_interface).collect()
}

impl Host {
    /// Makes rules, routes and map say what the controller and our own configuration say.
    ///
    /// Rules and routes of paths that come are in place before the map and the marks name them; those of paths that go
    /// are removed after the last connection has left. Only if marks have no room for both at once, paths that come wait
    /// until others have gone. Until the controller has answered, what an earlier daemon left for destinations that are not
    /// our own stays as it is.
    pub(super) async fn apply_paths(&mut self) -> Result<(), AgentError> {
        let mut sets = self.merged_sets();
        let received: usize = sets.iter().map(|set| set.paths.len()).sum();
        let hops = self.first_hops(&sets).await?;
        for set in &mut sets {
            // No connection may draw a path that leads nowhere, or one that its mark has no room for.
            set.paths.retain(|path| path.is_reachable(&hops));
            set.paths.truncate(MAX_PATHS);
        }
        self.underlay.exceptions = Exceptions::find_on_host(&self.netlink, &sets).await?;
        self.leave_local_alone(&mut sets);
        let left_alone = self.underlay.exceptions.sets(&sets);
        let excepted: BTreeSet<_> = left_alone.iter().map(|set| set.destination).collect();
        sets.extend(left_alone);
        let mut placed = Vec::new();
        for room in [Room::Free, Room::Free, Room::Any] {
            let placement = self.place(&sets, room)?;
            placed = sets.iter().map(|set| set.placed(&placement.slots)).collect();
            self.apply(&mut sets, &mut placed, &hops).await?;
            if !placement.waits {
                break;
            }
        }
        self.left_out = received - placed.iter().map(|set| set.paths.len()).sum::<usize>();
        placed.retain(|set| !excepted.contains(&set.destination));
        let records = |sets: &[DestinationPaths]| sets.iter().map(SetRecord::from).collect::<Vec<_>>();
        let changed = records(&self.sets) != records(&placed);
        self.withdrawn.note(&self.sets, &placed);
        let left: BTreeSet<_> =
            next_hop_interfaces(&self.sets).difference(&next_hop_interfaces(&placed)).copied().collect();
        self.sets = placed;
        for interface in left {
            // What connections sent there before they moved would hold them up.
            if let Err(error) = self.netlink.forget_unresolved_neighbours(interface).await {
                tracing::debug!(%error, "packets may wait on an interface that is not used any more");
            }
        }
        self.recorder.name(&self.sets);
        self.note_names()?;
        self.note_reach().await?;
        if changed || !self.at_work {
            self.recorder.paths(self.paths_at, &self.sets);
        }
        Ok(())
    }

    /// Takes the paths of destinations that are nothing but this host's own, or on a link only.
    fn leave_local_alone(&self, sets: &mut [DestinationPaths]) {
        for set in
            sets.iter_mut().filter(|set| !set.paths.is_empty() && self.underlay.exceptions.is_local(set.destination))
        {
            tracing::warn!(
                destination = %set.destination,
                "no path leads there: it is this host's own, or on a link only; its connections are left alone"
            );
            set.paths.clear();
        }
    }

    /// Gives each path a slot.
    fn place(&self, sets: &[DestinationPaths], room: Room) -> Result<Placement, AgentError> {
        let most = self.mark.slots();
        let marked = if self.options.dry_run { Vec::new() } else { self.program.marked_sockets()? };
        let placement = paths::place(&self.slots, sets, most, &marked, room);
        for destination in placement.unsafe_for.iter().filter(|_| !self.options.dry_run) {
            tracing::warn!(
                %destination,
                slots = most,
                "mark_mask has no room for old and new paths at once: for a moment connections may take another path"
            );
        }
        Ok(placement)
    }

    /// Puts these sets in place. Paths that the kernel refuses leave `sets` and `placed`.
    async fn apply(
        &mut self,
        sets: &mut [DestinationPaths],
        placed: &mut [DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<(), AgentError> {
        self.install_rules(placed).await?;
        let (wanted, refused) = self.install_routes(placed, hops).await?;
        for set in sets {
            set.paths.retain(|path| !refused.contains(&(set.destination, path.id)));
        }
        self.name_sources(placed, hops).await?;
        self.write_paths(placed)?;
        self.draw_replies(placed);
        if self.options.dry_run {
            return Ok(());
        }
        let awaits = self.awaits_controller();
        self.routing.disinherit(|(_, net)| !awaits || placed.iter().any(|set| set.destination == *net));
        // A rule to a table without routes changes nothing, and its slot may be used again.
        self.routing.prune(&self.netlink, |_| true, |key| wanted.contains_key(key)).await?;
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
            tracing::warn!(%destination, "{FILE_WINS}");
        }
        self.shadowed = shadowed;
        self.own.iter().cloned().chain(added).collect()
    }

    /// Notes what paths are called, and which destinations of the controller are not used, for whoever looks at our state.
    pub(super) fn note_names(&mut self) -> Result<(), AgentError> {
        let paths = self.sets.iter().flat_map(|set| set.paths.iter().map(|path| (set.destination, path)));
        let names = paths.map(|(destination, path)| ((destination, path.id), path.name.clone()));
        let shadowed = self.shadowed.iter().map(|destination| ((*destination, 0), FILE_WINS.to_string()));
        // A path with a name and without a slot is one that was withdrawn.
        Ok(self.program.set_names(&self.withdrawn.names().chain(names).chain(shadowed).collect())?)
    }

    /// Measures paths whose rate or round-trip time is not given, and has the program know.
    pub(super) fn measure(&mut self) -> Result<(), AgentError> {
        if !self.measured.is_due(&self.sets) {
            return Ok(());
        }
        let destinations = self.sets.iter().map(|set| set.destination).collect();
        let now = Sockets::read()?.by_path(&self.program.connections()?, &destinations);
        self.measured.take(&now);
        for set in std::mem::take(&mut self.sets) {
            self.write_set(&set);
            self.sets.push(set);
        }
        self.adopt()
    }

    /// Writes the sets into the program's map, and has connections take note of them.
    fn write_paths(&mut self, sets: &[DestinationPaths]) -> Result<(), AgentError> {
        if !self.awaits_controller() {
            self.inherited_destinations.clear();
        }
        let mut written = self.inherited_destinations.clone();
        for set in sets.iter().filter(|set| self.write_set(set)) {
            written.insert(set.destination);
        }
        let gone: Vec<_> = self.slots.keys().filter(|net| !written.contains(net)).copied().collect();
        for destination in gone {
            self.adopted = false;
            self.program.remove_paths(destination)?;
            self.slots.remove(&destination);
        }
        self.adopt()
    }

    /// Writes one set into the program's map; returns whether there was room for it.
    fn write_set(&mut self, set: &DestinationPaths) -> bool {
        self.adopted &= self.slots.get(&set.destination) == Some(&set.slots());
        let entries = self.measured.complete(set).entries(&self.options.config.agent);
        if let Err(error) = self.program.set_paths(set.destination, &entries) {
            // The map has room for 4,096 destinations.
            tracing::warn!(%error, "connections to this destination are left alone");
            return false;
        }
        self.inherited_destinations.remove(&set.destination);
        self.slots.insert(set.destination, set.slots());
        true
    }

    /// Has connections take note of what has changed in the map.
    fn adopt(&mut self) -> Result<(), AgentError> {
        if !self.adopted {
            // Before their routes go, and not only with their next signal: an idle connection has none.
            self.program.adopt_paths()?;
            self.adopted = true;
        }
        Ok(())
    }

    /// Installs the routes of all paths, and returns them. A path whose route the kernel refuses, for instance because its
    /// interface is down, leaves its set, and is returned besides.
    async fn install_routes(
        &mut self,
        sets: &mut [DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<(Routes, BTreeSet<(IpNet, u32)>), AgentError> {
        let table_base = self.options.table_base;
        let mut refused = BTreeSet::new();
        if self.options.dry_run {
            return Ok((Routes::new(), refused));
        }
        loop {
            let wanted = paths::routes(sets, table_base, hops);
            let Err(Refusal { key: (table, destination), error }) =
                self.routing.install_routes(&self.netlink, &wanted).await
            else {
                return Ok((wanted, refused));
            };
            let set = sets.iter_mut().find(|set| set.destination == destination);
            let leaves = |path: &HostPath| table_base + path.slot == table;
            let path = set.and_then(|set| Some(set.paths.remove(set.paths.iter().position(leaves)?)));
            match path {
                // A privilege that lacks for one lacks for all.
                Some(path) if error.is_answer() && !error.is_environment() => {
                    tracing::warn!(%error, path = path.name, "a path is left out");
                    refused.insert((destination, path.id));
                }
                _ => return Err(error.into()),
            }
        }
    }

    /// The next hop towards the first segment of each path, where the kernel has a route to it.
    ///
    /// Both are noted: when a route to a first segment changes or appears, the path's own route follows.
    async fn first_hops(&mut self, sets: &[DestinationPaths]) -> Result<BTreeMap<Ipv6Addr, NextHop>, AgentError> {
        let firsts: BTreeSet<_> = sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::first_hop).collect();
        let hops = paths::first_hops(&self.netlink, &firsts).await?;
        let without: Vec<_> = firsts.iter().filter(|first| !hops.contains_key(first)).collect();
        if !without.is_empty() && (hops != self.underlay.hops || firsts != self.underlay.firsts) {
            tracing::warn!(first_segments = ?without, "no route leads there: their paths are left out until one does");
        }
        (self.underlay.firsts, self.underlay.hops) = (firsts, hops.clone());
        Ok(hops)
    }

    /// Installs a rule for each slot that any path uses; slots that already have theirs keep it.
    async fn install_rules(&mut self, sets: &[DestinationPaths]) -> Result<(), AgentError> {
        if self.options.dry_run {
            return Ok(());
        }
        let slots = sets.iter().flat_map(|set| set.paths.iter().map(|path| (Family::of(set.destination), path.slot)));
        let wanted: BTreeSet<_> = slots.map(|(family, slot)| self.rule(family, slot)).collect();
        Ok(self.routing.install_rules(&self.netlink, wanted).await?)
    }
}
