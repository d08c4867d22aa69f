//! Paths, from the controller or the file, and what they become: routes in the kernel, entries of the path changer's map.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use sidestep_api::PathUpdate;
use sidestep_control::initial_weight;
use sidestep_linux::{
    bpf::host::SlotPath,
    netlink::{NextHop, Route, Target},
};
use sidestep_net::{InitialName, Rate, Span, srv6};
use sidestep_policy::{PathchangerSettings, PolicyName, raw};

use super::{exceptions::surroundings, local::is_on_the_wire, slots::Slots};

/// How packets are put on a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRoute {
    /// By an SRv6 segment list of our own, first segment first. Packets of IPv4 go inside an IPv6 header: the last segment
    /// decapsulates them.
    Segments(Vec<Ipv6Addr>),
    /// By an SRv6 segment list inside an outer header, first segment first; the last segment decapsulates.
    Encaps(Vec<Ipv6Addr>),
    /// By a Path ID: the binding SID of an access router.
    PathId(Ipv6Addr),
    /// By the access router that has this SID, without any segments: its own routes lead along the path.
    AccessRouter(Ipv6Addr),
    /// By the host's other routing tables, as if there were no agent.
    Default,
    /// By a next hop, for hosts with several providers; with the interface's index.
    Via(IpAddr, u32),
    /// By an interface that needs no next hop, such as a tunnel's; its index.
    OnLink(u32),
}

/// One path of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// Its Path ID, which names it in events; unique among the paths of a destination.
    pub id: u32,
    /// The mark slot that leads along it; zero as long as it has none.
    pub slot: u32,
    /// Name for people.
    pub name: String,
    /// How packets are put on it.
    pub route: PathRoute,
    /// Bandwidth of its narrowest link; zero if unknown.
    pub capacity: Rate,
    /// How much of the capacity is in use; zero if unknown.
    pub usage: Rate,
    /// Round-trip propagation time.
    pub rtt: Span,
    /// Largest packet in bytes, where less than the interface's.
    pub mtu: Option<u32>,
    /// Prefixes of the source addresses that it takes, as the file names them.
    pub sources: Vec<IpNet>,
}

/// The paths to one destination prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationPaths {
    /// The prefix.
    pub destination: IpNet,
    /// The paths.
    pub paths: Vec<HostPath>,
}

impl DestinationPaths {
    /// The sets of a controller's update.
    pub fn from_update(update: &PathUpdate) -> Vec<DestinationPaths> {
        let path = |path: &sidestep_api::Path| HostPath {
            id: path.id.get(),
            slot: 0,
            name: path.name.clone(),
            route: match path.plain_mtu {
                Some(_) => PathRoute::AccessRouter(path.binding_sid),
                None => PathRoute::PathId(path.binding_sid),
            },
            capacity: path.capacity,
            usage: path.usage,
            rtt: path.rtt,
            mtu: path.plain_mtu.or(Some(path.route_mtu)),
            sources: Vec::new(),
        };
        let set = |set: &sidestep_api::PathSet| DestinationPaths {
            destination: set.destination.into(),
            paths: set.paths.iter().map(path).collect(),
        };
        update.sets.iter().map(set).collect()
    }

    /// The largest packet that all paths with segments carry in addition to their list; `None` if nothing is known of any.
    ///
    /// A connection that moves to them from a path without segments has packets of its former size queued. Those would be
    /// lost, so paths without segments carry no larger ones.
    fn narrowest(&self) -> Option<u32> {
        let with_segments = self.paths.iter().filter(|path| path.srh() > 0);
        with_segments.filter_map(|path| Some(path.mtu?.saturating_sub(path.srh()))).min()
    }

    /// The paths that have a slot in `slots`, with it.
    pub fn placed(&self, slots: &Slots) -> DestinationPaths {
        let own = slots.get(&self.destination);
        let slot = |path: &HostPath| own.and_then(|own| own.get(&path.id)).copied();
        let paths = self.paths.iter().filter_map(|path| Some(HostPath { slot: slot(path)?, ..path.clone() }));
        DestinationPaths { destination: self.destination, paths: paths.collect() }
    }

    /// The slot of each path, by its id.
    pub fn slots(&self) -> BTreeMap<u32, u32> {
        self.paths.iter().map(|path| (path.id, path.slot)).collect()
    }

    /// The entries of the program's map.
    ///
    /// They come in the order of their slots, so that nothing changes when the file's order does; but in the order of the
    /// file for policies to which that means something.
    pub fn entries(&self, settings: &PathchangerSettings) -> Vec<SlotPath> {
        let initial = settings.initial_weights();
        let entry = |path: &HostPath| {
            // A slot is at most MAX_SLOTS.
            let slot = u8::try_from(path.slot).unwrap_or_default();
            SlotPath { slot, path: path.entry(initial) }
        };
        let mut entries: Vec<_> = self.paths.iter().map(entry).collect();
        if !matches!(settings.policy, PolicyName::Static | PolicyName::Next) {
            entries.sort_by_key(|entry| entry.slot);
        }
        entries
    }
}

impl HostPath {
    /// The entry of the program's map.
    fn entry(&self, initial: InitialName) -> raw::Path {
        let weight = initial_weight(initial, self.capacity, self.usage);
        sidestep_policy::Path { id: self.id, weight, bdp: self.capacity.bytes_in(self.rtt), rtt: self.rtt }.to_raw()
    }

    /// The interface of its next hop, if the file names that.
    pub fn next_hop_interface(&self) -> Option<u32> {
        match self.route {
            PathRoute::Via(_, interface) | PathRoute::OnLink(interface) => Some(interface),
            _ => None,
        }
    }

    /// Bytes of the list that the host adds to each packet; IPv4 is put inside IPv6, and has no list of this kind.
    fn srh(&self) -> u32 {
        // The list also has the destination.
        let len = |segments: usize| srv6::srh_len(segments + 1);
        match &self.route {
            PathRoute::Segments(segments) => len(segments.len()),
            PathRoute::PathId(_) => len(1),
            // The kernel takes the room for an outer header from the route's MTU itself.
            PathRoute::Encaps(_)
            | PathRoute::AccessRouter(_)
            | PathRoute::Default
            | PathRoute::Via(..)
            | PathRoute::OnLink(_) => 0,
        }
    }

    /// Whether there is a route to its first segment.
    pub fn is_reachable(&self, hops: &BTreeMap<Ipv6Addr, NextHop>) -> bool {
        self.first_hop().is_none_or(|first| hops.contains_key(&first))
    }

    /// The SID whose route decides through which interface packets leave the host; `None` where no SID does.
    pub fn first_hop(&self) -> Option<Ipv6Addr> {
        match &self.route {
            PathRoute::Segments(segments) | PathRoute::Encaps(segments) => segments.first().copied(),
            PathRoute::PathId(sid) | PathRoute::AccessRouter(sid) => Some(*sid),
            PathRoute::Via(..) | PathRoute::OnLink(_) | PathRoute::Default => None,
        }
    }
}

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

    fn set(paths: Vec<HostPath>) -> DestinationPaths {
        DestinationPaths { destination: "fd02:0:9::/64".parse().unwrap(), paths }
    }

    #[test]
    fn a_path_weighs_what_is_left_of_its_bandwidth() {
        let expected =
            raw::Path { id: 1, weight: 100_000, bdp_bytes: 100_000, rtt_ns: 8_000_000, transfer_ns: 1_280_000 };
        assert_eq!(path(1, 0).entry(InitialName::Available), expected);
        assert_eq!(path(1, 40).entry(InitialName::Available).weight, 60_000);
        assert_eq!(path(1, 100).entry(InitialName::Available).weight, 5_000);
        assert_eq!(path(1, 100).entry(InitialName::Capacity).weight, 100_000);
    }

    #[test]
    fn the_order_of_the_file_matters_only_to_policies_that_follow_it() {
        let slots = Slots::from([("fd02:0:9::/64".parse().unwrap(), BTreeMap::from([(7, 2), (8, 1)]))]);
        let placed = set(vec![path(7, 0), path(8, 0), path(9, 0)]).placed(&slots);
        let ids = |policy| {
            let entries = placed.entries(&PathchangerSettings { policy, ..PathchangerSettings::default() });
            entries.iter().map(|entry| (entry.path.id, entry.slot)).collect::<Vec<_>>()
        };
        assert_eq!(ids(PolicyName::DelayWeighted), [(8, 1), (7, 2)]);
        assert_eq!(ids(PolicyName::Static), [(7, 2), (8, 1)]);
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
