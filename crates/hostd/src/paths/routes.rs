//! What paths become: routes in the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use ipnet::IpNet;
use sidestep_linux::netlink::{Family, NextHop, Route, Target};

use super::{
    destination::{DestinationPaths, HostPath, PathRoute},
    exceptions::surroundings,
    local::is_on_the_wire,
};
use crate::routing::Refusal;

/// The routes for `sets`, by table and destination; `hops` holds the next hop to each path's first segment.
///
/// Paths whose first segment has no next hop are left out.
pub fn routes(
    sets: &[DestinationPaths],
    table_base: u32,
    hops: &BTreeMap<Ipv6Addr, NextHop>,
) -> BTreeMap<(u32, IpNet), Route> {
    let mut routes = BTreeMap::new();
    for set in sets {
        let narrowest = set.narrowest();
        for path in &set.paths {
            let Some(target) = target(set.destination, path, hops) else { continue };
            let table = table_base + path.slot;
            // The destination prefix, never `default`: with that, the SID's own lookup falls into this table again.
            let mtu = if path.srh() == 0 { path.mtu.into_iter().chain(narrowest).min() } else { path.mtu };
            let route = Route { table, destination: set.destination, target, mtu };
            routes.insert((table, set.destination), route);
        }
    }
    throw_exceptions(sets, &mut routes);
    routes
}

/// Takes the path out of its set whose route the kernel refused, and returns it; `None` if the error is not about that route.
pub fn take_refused(sets: &mut [DestinationPaths], table_base: u32, refusal: &Refusal) -> Option<HostPath> {
    let Refusal { key: (table, destination), error } = refusal;
    // A privilege that lacks for one lacks for all.
    if !error.is_answer() || error.is_environment() {
        return None;
    }
    let set = sets.iter_mut().find(|set| set.destination == *destination)?;
    let index = set.paths.iter().position(|path| table_base + path.slot == *table)?;
    Some(set.paths.remove(index))
}

/// The slots that paths use, each of which needs a rule.
pub fn used_slots(sets: &[DestinationPaths]) -> BTreeSet<(Family, u32)> {
    sets.iter().flat_map(|set| set.paths.iter().map(|path| (Family::of(set.destination), path.slot))).collect()
}

/// Leaves destinations without paths to the host's other tables, in each table that leads to what is around them.
fn throw_exceptions(sets: &[DestinationPaths], routes: &mut BTreeMap<(u32, IpNet), Route>) {
    let mut tables: BTreeMap<IpNet, Vec<u32>> = BTreeMap::new();
    for (table, destination) in routes.keys() {
        tables.entry(*destination).or_default().push(*table);
    }
    let left_alone = sets.iter().filter(|set| set.paths.is_empty()).map(|set| set.destination);
    for destination in left_alone.filter(|net| is_on_the_wire(*net)) {
        let around = surroundings(sets, destination).and_then(|set| tables.get(&set.destination));
        for table in around.into_iter().flatten().copied() {
            routes.insert((table, destination), Route { table, destination, target: Target::Throw, mtu: None });
        }
    }
}

fn target(destination: IpNet, path: &HostPath, hops: &BTreeMap<Ipv6Addr, NextHop>) -> Option<Target> {
    let towards = || path.first_hop().and_then(|first| hops.get(&first)).copied();
    let through = |segments| match destination {
        IpNet::V4(_) => Some(Target::Encaps(segments, towards()?)),
        IpNet::V6(_) => Some(Target::Segments(segments, towards()?)),
    };
    Some(match &path.route {
        PathRoute::Segments(segments) => through(segments.clone())?,
        PathRoute::Encaps(segments) => Target::Encaps(segments.clone(), towards()?),
        PathRoute::PathId(sid) => through(vec![*sid])?,
        PathRoute::AccessRouter(sid) => {
            let NextHop { via, interface } = towards()?;
            // Where the SID is a neighbour, so is the router that has it.
            Target::Via(vec![NextHop { via: via.or(Some((*sid).into())), interface }])
        }
        PathRoute::Default => Target::Throw,
        PathRoute::Via(via, interface) => Target::Via(vec![NextHop { via: Some(*via), interface: *interface }]),
        PathRoute::OnLink(interface) => Target::Via(vec![NextHop { via: None, interface: *interface }]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use sidestep_api::PathUpdate;
    use sidestep_linux::LinuxError;
    use sidestep_net::{Rate, Span};

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

    fn refusal(table: u32, destination: &str, number: Errno) -> Refusal {
        let error = LinuxError::new("add a route", number.into(), "");
        Refusal { key: (table, destination.parse().unwrap()), error }
    }

    fn set(paths: Vec<HostPath>) -> DestinationPaths {
        DestinationPaths { destination: "fd02:0:9::/64".parse().unwrap(), paths }
    }

    #[test]
    fn each_path_has_a_table_and_names_the_destination() {
        let hop = NextHop { via: Some("fe80::2".parse().unwrap()), interface: 3 };
        let hops = BTreeMap::from([("fd01:0:1:b:0:1::".parse().unwrap(), hop)]);
        let set = set(vec![path(1, 0), path(2, 0)]);
        let routes = routes(std::slice::from_ref(&set), 8300, &hops);
        assert_eq!(routes.keys().copied().collect::<Vec<_>>(), [(8301, set.destination), (8302, set.destination)]);
        assert_eq!(
            routes[&(8301, set.destination)].target,
            Target::Segments(vec!["fd01:0:1:b:0:1::".parse().unwrap()], hop)
        );
        assert_eq!(super::routes(&[set], 8300, &BTreeMap::new()).len(), 0);
    }

    #[test]
    fn a_path_that_needs_no_segments_has_a_route_without_any() {
        let sid: Ipv6Addr = "fd01:0:1:b:0:1::".parse().unwrap();
        let wire = |plain_mtu| sidestep_api::Path {
            id: sidestep_api::PathId::new(7).unwrap(),
            name: "path-1".into(),
            binding_sid: sid,
            capacity: Rate::from_mbits(100),
            usage: Rate::default(),
            delay: Span::from_millis(4),
            rtt: Span::from_millis(8),
            route_mtu: 1436,
            plain_mtu,
        };
        let route = |plain_mtu, via: Option<&str>| {
            let destination = "fd02:0:9::/64".parse().unwrap();
            let set = sidestep_api::PathSet { destination, paths: vec![wire(plain_mtu)] };
            let mut sets = DestinationPaths::from_update(&PathUpdate { generation: 1, sets: vec![set] });
            sets[0].paths[0].slot = 1;
            let hop = NextHop { via: via.map(|via| via.parse().unwrap()), interface: 3 };
            let routes = routes(&sets, 8300, &BTreeMap::from([(sid, hop)]));
            routes.into_values().map(|route| (route.target, route.mtu)).collect::<Vec<_>>()
        };
        let hop = |via: &str| NextHop { via: Some(via.parse().unwrap()), interface: 3 };
        assert_eq!(route(Some(1500), Some("fe80::2")), [(Target::Via(vec![hop("fe80::2")]), Some(1500))]);
        assert_eq!(route(Some(1500), None), [(Target::Via(vec![hop("fd01:0:1:b:0:1::")]), Some(1500))]);
        assert_eq!(route(None, Some("fe80::2")), [(Target::Segments(vec![sid], hop("fe80::2")), Some(1436))]);

        // Beside a path with segments, whose packets have room for 1420 bytes less a list of 40, it takes no larger packets.
        let plain = HostPath { route: PathRoute::AccessRouter(sid), ..path(1, 0) };
        let both = set(vec![plain, HostPath { mtu: Some(1420), ..path(2, 0) }]);
        let mtus: Vec<_> = super::routes(&[both], 8300, &BTreeMap::from([(sid, hop("fe80::2"))]))
            .into_values()
            .map(|route| route.mtu)
            .collect();
        assert_eq!(mtus, [Some(1380), Some(1420)]);

        let own = set(vec![HostPath { route: PathRoute::Default, mtu: None, ..path(1, 0) }]);
        assert!(own.paths[0].is_reachable(&BTreeMap::new()), "the host's own tables know");
        assert_eq!(
            super::routes(std::slice::from_ref(&own), 8300, &BTreeMap::new())[&(8301, own.destination)].target,
            Target::Throw
        );
    }

    #[test]
    fn only_the_path_whose_route_the_kernel_refused_leaves_its_set() {
        let mut sets = [set(vec![path(1, 0), path(2, 0)])];
        let own = "fd02:0:9::/64";
        for (other, why) in [
            (refusal(8303, own, Errno::ENETDOWN), "no path has this table"),
            (refusal(8302, "fd02:0:8::/64", Errno::ENETDOWN), "no path leads there"),
            (refusal(8302, own, Errno::EPERM), "a privilege lacks for all"),
            (refusal(8302, own, Errno::ENOMEM), "it may succeed later"),
        ] {
            assert!(take_refused(&mut sets, 8300, &other).is_none(), "{why}");
        }
        assert_eq!(used_slots(&sets), BTreeSet::from([(Family::V6, 1), (Family::V6, 2)]));
        let taken = take_refused(&mut sets, 8300, &refusal(8302, own, Errno::ENETDOWN)).unwrap();
        assert_eq!((taken.id, used_slots(&sets)), (2, BTreeSet::from([(Family::V6, 1)])));
    }

    #[test]
    fn packets_of_ipv4_are_encapsulated() {
        let hop = NextHop { via: Some("fe80::2".parse().unwrap()), interface: 3 };
        let first: Ipv6Addr = "fd01:0:1:e::".parse().unwrap();
        let list = vec![first, "fd01:0:2:d4::".parse().unwrap()];
        let destination = "10.9.0.0/16".parse().unwrap();
        let path = HostPath { route: PathRoute::Segments(list.clone()), ..path(1, 0) };
        let set = DestinationPaths { destination, paths: vec![path] };
        let routes = routes(&[set], 8300, &BTreeMap::from([(first, hop)]));
        assert_eq!(routes[&(8301, destination)].target, Target::Encaps(list, hop));
    }
}
