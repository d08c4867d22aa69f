//! The paths that are in place: what they are called, and which source addresses they take.

use std::{collections::BTreeSet, net::IpAddr, time::Instant};

use ipnet::IpNet;
use sidestep_hostd::paths::{DestinationPaths, HostPath};

use super::{events::SetRecord, quality::Prefixes, reach::Reach, withdrawn::Withdrawn};
use crate::daemon::program::{Names, SourcesByPath};

/// Paths as they were applied last.
#[derive(Default)]
pub(super) struct PathsInPlace {
    pub(super) sets: Vec<DestinationPaths>,
    /// How many of the paths received are not among them.
    left_out: usize,
    /// The sources of each path, as the program received them.
    pub(super) sources: SourcesByPath,
    /// How many paths connections from each address may use.
    pub(super) reach: Vec<Reach>,
    /// The paths that have just gone.
    withdrawn: Withdrawn,
}

/// What is different since other paths are in place.
pub(super) struct Replaced {
    /// Whether a record of the paths would differ.
    pub(super) changed: bool,
    /// The interfaces by which no path leaves any more.
    pub(super) left: BTreeSet<u32>,
}

impl PathsInPlace {
    /// Takes note that these sets are in place, and that `left_out` paths were left out.
    pub(super) fn replace(&mut self, placed: Vec<DestinationPaths>, left_out: usize) -> Replaced {
        let records = |sets: &[DestinationPaths]| sets.iter().map(SetRecord::from).collect::<Vec<_>>();
        let changed = records(&self.sets) != records(&placed);
        self.left_out = left_out;
        self.withdrawn.note(&self.sets, &placed);
        let left = next_hop_interfaces(&self.sets).difference(&next_hop_interfaces(&placed)).copied().collect();
        self.sets = placed;
        Replaced { changed, left }
    }

    /// How many of the paths received are not in place.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// The destinations that have paths.
    pub(super) fn destinations(&self) -> Prefixes {
        self.sets.iter().map(|set| set.destination).collect()
    }

    /// A path to a destination.
    pub(super) fn path(&self, destination: IpNet, id: u32) -> Option<&HostPath> {
        let set = self.sets.iter().find(|set| set.destination == destination)?;
        set.paths.iter().find(|path| path.id == id)
    }

    /// What paths are called.
    pub(super) fn names(&self) -> Names {
        let paths = self.sets.iter().flat_map(|set| set.paths.iter().map(|path| (set.destination, path)));
        paths.map(|(destination, path)| ((destination, path.id), path.name.clone())).collect()
    }

    /// What paths are and were called. One with a name and without a slot is one that was withdrawn.
    pub(super) fn names_with_withdrawn(&self) -> Names {
        self.withdrawn.names().chain(self.names()).collect()
    }

    /// Forgets paths that went long ago; returns whether there were any.
    pub(super) fn forget_withdrawn(&mut self) -> bool {
        self.withdrawn.forget(Instant::now())
    }

    /// An address of this host that this path takes, and no other path to the destination.
    pub(super) fn only_source_of(&self, (destination, id): (IpNet, u32)) -> Option<IpAddr> {
        let confined = self.reach.iter().filter(|one| one.destination == destination && one.paths.len() == 1);
        let takes = &self.sources.get(&(destination, id))?.takes;
        confined.map(|one| one.address).find(|address| takes.iter().any(|net| net.contains(address)))
    }

    /// How many paths there are to how many destinations, for the status in one line.
    pub(super) fn status(&self) -> String {
        let paths: usize = self.sets.iter().map(|set| set.paths.len()).sum();
        let left_out = if self.left_out > 0 { format!(", {} left out", self.left_out) } else { String::new() };
        format!("{paths} paths to {} destinations{left_out}", self.sets.len())
    }
}

/// The interfaces of paths by next hops.
fn next_hop_interfaces(sets: &[DestinationPaths]) -> BTreeSet<u32> {
    sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::next_hop_interface).collect()
}
