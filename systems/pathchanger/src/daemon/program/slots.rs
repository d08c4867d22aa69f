//! The mark slots of paths (map `sidestep_dests`), and the sockets whose marks have one.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags};
use sidestep_linux::{
    Result,
    bpf::{failed, map},
};
use sidestep_policy::raw::{self, MAX_PATHS};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{HostPrefix, HostProgram, hash::fnv1a, sources::RawSources};

/// A path of a destination, and the mark slot that leads along it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotPath {
    /// The slot, in 1..=[`MAX_SLOTS`](sidestep_linux::bpf::MAX_SLOTS).
    pub slot: u8,
    /// The path.
    pub path: raw::Path,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct HostPaths {
    pub(super) n: u32,
    generation: u32,
    pub(super) key: HostPrefix,
    pub(super) slot: [u8; MAX_PATHS],
    changed_ns: u64,
    pub(super) restricted: u64,
    pub(super) sources: [u64; MAX_PATHS],
    pub(super) address: [[u8; 16]; MAX_PATHS],
    pub(super) path: [raw::Path; MAX_PATHS],
}

const _: () = assert!(size_of::<HostPaths>() == 48 + MAX_PATHS + (24 + size_of::<raw::Path>()) * MAX_PATHS);

/// Bytes of `struct host_marked`.
const MARKED_LEN: usize = 20;

impl HostProgram {
    /// Sets the paths to `destination`.
    ///
    /// At most [`MAX_PATHS`] are taken. Paths that were there before keep what connections have learnt of them.
    pub fn set_paths(&mut self, destination: IpNet, paths: &[SlotPath]) -> Result<()> {
        let paths = paths.get(..MAX_PATHS).unwrap_or(paths);
        let generation = generation(paths, self.sources.number(destination));
        // Before the paths: until these follow, and without a table, connections learn for themselves.
        if paths.is_empty() {
            self.forget_weights(destination)?;
        } else if let Err(error) = self.keep_weights(destination, generation, paths) {
            tracing::warn!(%error, "each connection learns for itself");
        }
        let mut value = HostPaths::new(destination, generation, paths);
        value.name_sources(|id| self.sources.of(destination, id));
        let changed = self.changed.entry(destination).or_default();
        if changed.0 != generation {
            *changed = (generation, sidestep_linux::monotonic_now().as_nanos());
        }
        value.changed_ns = changed.1;
        let written =
            map(&self.object, "sidestep_dests")?.update(value.key.as_bytes(), value.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(format!("setting the paths to {destination}"), &error))
    }

    /// The slots of the paths to each destination, by Path ID.
    pub fn slots(&self) -> Result<BTreeMap<IpNet, BTreeMap<u32, u32>>> {
        let of = |destination| Ok(self.paths_to(destination)?.map(|value| (destination, value.slots())));
        self.destinations()?.into_iter().filter_map(|destination| of(destination).transpose()).collect()
    }

    /// The paths to a destination, in the order in which the program knows them.
    pub(super) fn paths_of(&self, destination: IpNet) -> Result<Vec<raw::Path>> {
        let value = self.paths_to(destination)?;
        Ok(value.map(|value| value.path.into_iter().take(value.n as usize).collect()).unwrap_or_default())
    }

    /// The Path ID of each path to a destination, and the source prefixes that it takes, as bits; zero: all.
    pub(super) fn takes(&self, destination: IpNet) -> Result<Vec<(u32, u64)>> {
        let value = self.paths_to(destination)?;
        let of = |value: HostPaths| {
            let paths = value.path.iter().map(|path| path.id).zip(value.sources);
            paths.take(value.n as usize).collect()
        };
        Ok(value.map(of).unwrap_or_default())
    }

    fn paths_to(&self, destination: IpNet) -> Result<Option<HostPaths>> {
        let key = HostPrefix::from(destination);
        let read = map(&self.object, "sidestep_dests")?.lookup(key.as_bytes(), MapFlags::ANY);
        let value = read.map_err(|error| failed("reading the paths of a destination", &error))?;
        Ok(value.and_then(|value| HostPaths::read_from_bytes(&value).ok()))
    }

    /// Whether a path takes packets from this address, as the program decides; `false` for one that is not there.
    pub fn takes_from(&self, destination: IpNet, id: u32, source: IpAddr) -> Result<bool> {
        let ways = self.ways_of(destination, Some(source))?;
        Ok(ways.is_some_and(|ways| ways.paths.iter().any(|way| way.id == id && way.takes)))
    }

    /// The other end of each socket of the calling thread's network namespace whose mark has a slot, and the slot.
    pub fn marked_sockets(&self) -> Result<Vec<(IpAddr, u32)>> {
        let bytes = self.iterate("sidestep_marks")?;
        Ok(bytes.chunks_exact(MARKED_LEN).filter_map(read_marked).collect())
    }
}

impl HostPaths {
    fn new(destination: IpNet, generation: u32, paths: &[SlotPath]) -> Self {
        let mut value = HostPaths {
            n: paths.len().min(MAX_PATHS) as u32,
            generation,
            key: HostPrefix::from(destination),
            slot: [0; MAX_PATHS],
            changed_ns: 0,
            restricted: 0,
            sources: [0; MAX_PATHS],
            address: [[0; 16]; MAX_PATHS],
            path: [raw::Path::default(); MAX_PATHS],
        };
        for ((slot, path), from) in value.slot.iter_mut().zip(&mut value.path).zip(paths) {
            (*slot, *path) = (from.slot, from.path);
        }
        value
    }

    /// Fills in the sources of each path.
    fn name_sources(&mut self, of: impl Fn(u32) -> RawSources) {
        let into = self.sources.iter_mut().zip(&mut self.address).zip(&self.path);
        for ((takes, address), path) in into.take(self.n as usize) {
            let sources = of(path.id);
            (*takes, *address) = (sources.takes, sources.address);
            self.restricted |= sources.takes;
        }
    }

    fn slots(&self) -> BTreeMap<u32, u32> {
        let ids = self.path.iter().map(|path| path.id);
        ids.zip(self.slot.map(u32::from)).take(self.n as usize).collect()
    }
}

/// A number that changes whenever ids, their order, slots or the number of their sources do, never zero.
fn generation(paths: &[SlotPath], sources: u32) -> u32 {
    let of_paths = paths.iter().flat_map(|one| one.path.id.to_be_bytes().into_iter().chain([one.slot]));
    fnv1a(of_paths.chain(sources.to_be_bytes())).max(1)
}

pub(super) fn read_marked(bytes: &[u8]) -> Option<(IpAddr, u32)> {
    let (address, slot) = bytes.split_at_checked(16)?;
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).to_canonical();
    Some((address, u32::from_ne_bytes(slot.try_into().ok()?)))
}

/// What fuzzing reads.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing {
    use super::*;

    /// Reads the beginning of `bytes` as the paths to a destination.
    pub(in super::super) fn read(bytes: &[u8]) {
        if let Ok((paths, _)) = HostPaths::read_from_prefix(bytes) {
            assert!(paths.slots().len() <= MAX_PATHS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::program::PathSources;
    use sidestep_linux::testing::root_or_skip;

    fn paths(of: &[(u32, u8)]) -> Vec<SlotPath> {
        of.iter()
            .map(|(id, slot)| SlotPath { slot: *slot, path: raw::Path { id: *id, ..raw::Path::default() } })
            .collect()
    }

    #[test]
    fn the_generation_follows_ids_order_slots_and_sources_and_not_the_weights() {
        let mut some = paths(&[(1, 1), (2, 2)]);
        let before = generation(&some, 7);
        some[0].path.weight = 7;
        assert_eq!(generation(&some, 7), before);
        assert_ne!(generation(&some, 8), before);
        for other in [&[(2, 2), (1, 1)][..], &[(1, 2), (2, 1)], &[(1, 1)], &[(1, 1), (2, 3)]] {
            assert_ne!(generation(&paths(other), 7), before, "{other:?}");
        }
    }

    #[test]
    fn a_path_takes_what_it_names_and_one_that_is_set_so_what_no_other_names() {
        if !root_or_skip("sources in a map") {
            return;
        }
        let mut program = HostProgram::load(None).unwrap();
        let (to, net) = ("10.2.0.0/16".parse().unwrap(), |text: &str| text.parse().unwrap());
        let of = |takes: &str, takes_unnamed| PathSources { takes: vec![net(takes)], takes_unnamed, address: None };
        let named = [
            ((to, 7), of("10.9.0.0/24", false)),
            ((to, 9), of("10.9.1.0/24", true)),
            ((to, 0), of("10.77.0.1/32", false)),
        ];
        program.name_sources(named.into()).unwrap();
        program.set_paths(to, &paths(&[(7, 3), (9, 1)])).unwrap();
        let takes = |id, source: &str| program.takes_from(to, id, source.parse().unwrap()).unwrap();
        let by = |source| [takes(7, source), takes(9, source), takes(8, source)];
        assert_eq!(by("10.9.0.5"), [true, false, false]);
        assert_eq!(by("10.9.1.5"), [false, true, false]);
        assert_eq!(by("192.0.2.1"), [false, true, false], "no path names it");
        assert_eq!(by("10.77.0.1"), [false, false, false], "it has a name of its own");
    }

    #[test]
    fn slots_are_read_as_they_lie_in_the_map() {
        let value = HostPaths::new("10.9.0.0/16".parse().unwrap(), 5, &paths(&[(7, 3), (9, 1)]));
        let read = HostPaths::read_from_bytes(value.as_bytes()).unwrap();
        assert_eq!(read.slots(), BTreeMap::from([(7, 3), (9, 1)]));
        let many = vec![SlotPath::default(); MAX_PATHS + 1];
        assert_eq!(HostPaths::new("::/0".parse().unwrap(), 5, &many).n, MAX_PATHS as u32);
        // A map that another program wrote.
        assert_eq!(HostPaths { n: u32::MAX, ..read }.slots().len(), 3, "two ids, and the zeros");
    }

    #[test]
    fn marked_sockets_are_read_as_the_kernel_writes_them() {
        let mut bytes = std::net::Ipv4Addr::new(10, 9, 8, 7).to_ipv6_mapped().octets().to_vec();
        bytes.extend(5_u32.to_ne_bytes());
        assert_eq!(read_marked(&bytes), Some(("10.9.8.7".parse().unwrap(), 5)));
        assert_eq!(read_marked(&bytes[1..]), None);
        assert_eq!(read_marked(&bytes[..3]), None);
    }
}
