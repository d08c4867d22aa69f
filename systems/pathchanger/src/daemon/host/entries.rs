//! What paths are in the program's map.

use sidestep_control::{initial_weight, room};
use sidestep_hostd::paths::{DestinationPaths, HostPath};
use sidestep_net::InitialName;
use sidestep_policy::{Path, PolicyName, PolicySettings, raw};

use crate::daemon::program::SlotPath;

/// The entries of the program's map.
///
/// They come in the order of their slots, so that nothing changes when the file's order does; but in the order of the
/// file for policies to which that means something.
pub(super) fn entries(set: &DestinationPaths, settings: &PolicySettings) -> Vec<SlotPath> {
    let initial = settings.initial_weights();
    let entry = |path: &HostPath| {
        // A slot is at most MAX_SLOTS.
        let slot = u8::try_from(path.slot).unwrap_or_default();
        SlotPath { slot, path: entry(path, initial) }
    };
    let mut entries: Vec<_> = set.paths.iter().map(entry).collect();
    if !matches!(settings.policy, PolicyName::Static | PolicyName::Next) {
        entries.sort_by_key(|entry| entry.slot);
    }
    entries
}

fn entry(path: &HostPath, initial: InitialName) -> raw::Path {
    let weight = initial_weight(initial, path.capacity, path.usage);
    let room = room(path.capacity, path.usage);
    Path { id: path.id, weight, bdp: path.capacity.bytes_in(path.rtt), rtt: path.rtt, room: Some(room) }.to_raw()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sidestep_hostd::paths::{PathRoute, Slots};
    use sidestep_net::{Rate, Span};

    use super::*;

    fn path(id: u32, usage: u64) -> HostPath {
        HostPath {
            id,
            slot: id,
            name: format!("path-{id}"),
            route: PathRoute::PathId("fd01:0:1:b:0:1::".parse().unwrap()),
            capacity: Rate::from_mbits(100),
            usage: Rate::from_mbits(usage),
            rtt: Span::from_millis(8),
            mtu: Some(1500),
            sources: Vec::new(),
        }
    }

    #[test]
    fn a_path_weighs_what_is_left_of_its_bandwidth() {
        let expected = raw::Path {
            id: 1,
            weight: 100_000,
            bdp_bytes: 100_000,
            rtt_ns: 8_000_000,
            transfer_ns: 1_280_000,
            room: 12_500_000,
        };
        assert_eq!(entry(&path(1, 0), InitialName::Available), expected);
        assert_eq!(entry(&path(1, 40), InitialName::Available).weight, 60_000);
        assert_eq!(entry(&path(1, 100), InitialName::Available).weight, 5_000);
        assert_eq!(entry(&path(1, 100), InitialName::Capacity).weight, 100_000);
    }

    #[test]
    fn the_order_of_the_file_matters_only_to_policies_that_follow_it() {
        let slots = Slots::from([("fd02:0:9::/64".parse().unwrap(), BTreeMap::from([(7, 2), (8, 1)]))]);
        let set = DestinationPaths {
            destination: "fd02:0:9::/64".parse().unwrap(),
            paths: vec![path(7, 0), path(8, 0), path(9, 0)],
        };
        let placed = set.placed(&slots);
        let ids = |policy| {
            let entries = entries(&placed, &PolicySettings { policy, ..PolicySettings::default() });
            entries.iter().map(|entry| (entry.path.id, entry.slot)).collect::<Vec<_>>()
        };
        assert_eq!(ids(PolicyName::DelayWeighted), [(8, 1), (7, 2)]);
        assert_eq!(ids(PolicyName::Static), [(7, 2), (8, 1)]);
    }
}
