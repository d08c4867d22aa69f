//! The planner: sets computed one by one and all at once, failures, and several egress routers.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;
use sidestep_control::{HOST_SRH, HostPath, Locators, Planner};
use sidestep_net::{
    Channel, Link, LinkId, NamedPath, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology, srv6,
};
use sidestep_paths::PathSettings;
use sidestep_paths::{Igp, access_arcs};

const KNOBS: PathSettings = PathSettings { max_segments: 4, max_paths: 8, adjacency: true };

/// A network of these links, with their weight and their delay in ms; nodes in lower case are hosts.
fn network(links: &[(&str, &str, u64, u64)]) -> Topology {
    let mut topology = Topology::new();
    for (a, b, weight, delay) in links {
        let queue = Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None };
        let (rate, delay) = (Rate::from_mbits(100), Span::from_millis(*delay));
        let channel = Channel { rate, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: *weight };
        let [a, b] = [a, b].map(|name| node(&mut topology, name));
        let name = format!("l{}", topology.links().len());
        topology.add_link(Link { name, a, b, ab: channel, ba: channel, mtu: 1700 }).unwrap();
    }
    srv6::assign_addresses(&mut topology);
    topology
}

fn node(topology: &mut Topology, name: &str) -> NodeId {
    let is_host = name.starts_with(|c: char| c.is_ascii_lowercase());
    let kind = if is_host { NodeKind::Host } else { NodeKind::Router };
    let known = topology.find(name);
    known.unwrap_or_else(|_| topology.add_node(Node { name: name.into(), kind, prefix: None, locator: None }).unwrap())
}

/// A provider's server behind P, and a user whom two transits reach; the second is the dearer one.
fn two_exits() -> Topology {
    network(&[
        ("s", "P", 1, 1),
        ("P", "T1", 10, 4),
        ("P", "T2", 11, 5),
        ("u", "T1", 10, 6),
        ("u", "T2", 11, 7),
        ("t", "T2", 1, 1),
    ])
}

fn planner(topology: &Topology) -> Planner {
    Planner::new(Arc::new(topology.clone()), KNOBS).unwrap()
}

fn between(planner: &mut Planner, from: &str, to: &str) -> Vec<HostPath> {
    let topology = planner.topology().clone();
    planner.paths(topology.find(from).unwrap(), topology.find(to).unwrap())
}

fn is_plain(path: &HostPath) -> bool {
    path.plain_mtu.is_some()
}

#[test]
fn paths_to_all_exits_are_one_set() {
    let topology = two_exits();
    let mut planner = planner(&topology);
    let there = between(&mut planner, "s", "u");
    let shown = |path: &HostPath| {
        let arcs: Vec<_> = path.arcs().map(|(arc, bytes)| (topology.link(arc.link()).name.clone(), bytes)).collect();
        let names = [path.path.ingress, path.path.egress].map(|node| topology.node(node).name.clone());
        (names.join(">"), arcs)
    };
    let core = HOST_SRH + 40 + 8 + 16;
    let arcs = |links: [(&str, u16); 3]| links.map(|(link, bytes)| (link.to_owned(), bytes)).to_vec();
    assert_eq!(
        there.iter().map(shown).collect::<Vec<_>>(),
        [
            // P sends packets for u over T1 anyway. T2 it uses only for t.
            ("P>T1".into(), arcs([("l0", 0), ("l1", 0), ("l3", 0)])),
            ("P>T2".into(), arcs([("l0", 40), ("l2", core), ("l4", 40)])),
        ]
    );
    // The return path is the IGP's, over T1, whatever the forward path.
    assert_eq!(there.iter().map(|path| path.delay).collect::<Vec<_>>(), [11, 13].map(Span::from_millis));
    assert_eq!(there.iter().map(|path| path.rtt).collect::<Vec<_>>(), [22, 24].map(Span::from_millis));
    assert_eq!(there.iter().map(|path| path.mtu).collect::<Vec<_>>(), [1700 - 64; 2]);
    assert_eq!(there.iter().map(HostPath::room).collect::<Vec<_>>(), [1700, 1700 - 64 - 40]);

    // The user has two access routers: each has the binding SID of the path that begins there.
    let locators = Locators::new(&topology).unwrap();
    let back = between(&mut planner, "u", "s");
    let binding = |path: &HostPath| {
        let locator = topology.node(path.path.ingress).locator.unwrap();
        locators.binding_sid(&path.path) == Some(srv6::binding_sid(locator, path.path.id.get()))
    };
    assert!(back.iter().all(binding));
    assert_eq!(back.iter().map(|path| &*shown(path).0 == "T1>P").collect::<Vec<_>>(), [true, false]);

    // From each of its access routers the IGP has only one shortest path.
    assert_eq!(back.iter().map(is_plain).collect::<Vec<_>>(), [true, true]);

    // A host with one of the egress routers has the same path, with the same id. For that host it is plain.
    let only = between(&mut planner, "s", "t");
    assert_eq!(only.iter().map(|path| path.path.id).collect::<Vec<_>>(), [there[1].path.id]);
    assert_eq!([is_plain(&there[1]), is_plain(&only[0])], [false, true]);
}

#[test]
fn a_host_with_two_access_routers_has_no_paths_to_itself() {
    let mut planner = planner(&two_exits());
    assert_eq!(between(&mut planner, "u", "u"), []);
    assert_ne!(between(&mut planner, "u", "t"), []);
    // Another user of the same two routers has.
    let topology = network(&[("u", "A", 1, 1), ("u", "B", 1, 1), ("v", "A", 1, 1), ("v", "B", 1, 1), ("A", "B", 1, 1)]);
    let mut planner = Planner::new(Arc::new(topology), KNOBS).unwrap();
    assert_ne!(between(&mut planner, "u", "v"), []);
}

#[test]
fn a_path_is_plain_while_it_is_the_only_shortest_one() {
    // Two paths from A to B over M, and over N and O; the second is the dearer one by this much.
    let network = |more: u64| {
        network(&[
            ("c", "A", 1, 1),
            ("A", "M", 1, 1),
            ("M", "B", 1, 1),
            ("A", "N", 1 + more, 1),
            ("N", "B", 1, 1),
            ("B", "s", 1, 1),
        ])
    };
    let plain = |planner: &mut Planner| {
        let paths = between(planner, "c", "s").into_iter();
        paths.map(|path| (path.path.number, is_plain(&path), path.arcs().map(|(_, bytes)| bytes).max())).collect()
    };
    let encapsulated = |segments: u16| Some(HOST_SRH + 40 + 8 + 16 * segments);
    let mut unequal = planner(&network(1));
    let whole: Vec<_> = plain(&mut unequal);
    assert_eq!(whole, [(1, true, Some(0)), (2, false, encapsulated(2))]);
    unequal.set_down(&BTreeSet::from([LinkId(1)]));
    let left: Vec<_> = plain(&mut unequal);
    assert_eq!(left, [(2, true, Some(0))], "the IGP follows the other path now");
    unequal.set_down(&BTreeSet::new());
    assert_eq!(plain(&mut unequal), whole);

    let mut equal = planner(&network(0));
    let both: Vec<_> = plain(&mut equal);
    assert_eq!(
        both.iter().map(|(_, plain, bytes)| (*plain, *bytes)).collect::<Vec<_>>(),
        [(false, encapsulated(2)); 2]
    );
    equal.set_down(&BTreeSet::from([LinkId(1)]));
    assert_eq!(
        plain(&mut equal).iter().map(|(_, plain, bytes)| (*plain, *bytes)).collect::<Vec<_>>(),
        [(true, Some(0))]
    );
}

#[test]
fn an_exit_is_cheaper_by_the_whole_way_to_the_host() {
    let topology = network(&[("s", "P", 1, 1), ("P", "A", 1, 1), ("P", "B", 2, 1), ("u", "A", 5, 1), ("u", "B", 1, 1)]);
    let egresses = |path: &HostPath| topology.node(path.path.egress).name.clone();
    let paths = between(&mut planner(&topology), "s", "u");
    assert_eq!(paths.iter().map(egresses).collect::<Vec<_>>(), ["B", "A"]);
}

#[test]
fn a_path_keeps_its_id_name_and_number_while_others_fail() {
    let mut topology = network(&[
        ("c", "A", 1, 1),
        ("A", "M", 1, 1),
        ("M", "B", 1, 1),
        ("A", "N", 2, 1),
        ("N", "B", 2, 1),
        ("B", "s", 1, 1),
    ]);
    topology.add_path(NamedPath { name: "upper".into(), links: vec![LinkId(2)] }).unwrap();
    let mut planner = planner(&topology);
    let before = between(&mut planner, "c", "s");
    let names: Vec<_> = before.iter().map(|path| path.path.name(&topology)).collect();
    assert_eq!(names, ["upper".to_owned(), format!("A>B#{}", before[1].path.id)]);
    assert_eq!(before.iter().map(|path| path.path.number).collect::<Vec<_>>(), [1, 2]);

    let recomputed = planner.set_down(&BTreeSet::from([LinkId(1)]));
    let set = planner.set_of(topology.find("c").unwrap(), topology.find("s").unwrap()).unwrap();
    assert_eq!(recomputed.changed, [set]);
    let left = between(&mut planner, "c", "s");
    assert_eq!(left.len(), 1);
    let known = |path: &HostPath| (path.path.id, path.path.name(&topology), path.path.number);
    assert_eq!(known(&left[0]), known(&before[1]));
    planner.set_down(&BTreeSet::new());
    assert_eq!(between(&mut planner, "c", "s"), before);
}

#[test]
fn hosts_behind_one_router_have_no_paths_between_them() {
    let topology = network(&[("c", "A", 1, 1), ("s", "A", 1, 1), ("A", "B", 1, 1), ("x", "y", 1, 1)]);
    let mut planner = planner(&topology);
    assert_eq!(between(&mut planner, "c", "s"), []);
    assert_eq!(between(&mut planner, "c", "c"), []);
    assert_eq!(between(&mut planner, "c", "x"), [], "x has no access router");
}

/// Up to five routers and four hosts, each with one or more links to routers.
fn arb_network() -> impl Strategy<Value = Topology> {
    let core = prop::collection::vec((0..5usize, 1..5usize, 1..4u64), 4..12);
    let access = prop::collection::vec((0..4usize, 0..5usize, 1..3u64), 4..9);
    (core, access).prop_map(|(core, access)| {
        let (routers, hosts) = (["A", "B", "C", "D", "E"], ["h", "i", "j", "k"]);
        let core = core.iter().map(|(from, step, weight)| (routers[*from], routers[(from + step) % 5], *weight, 1));
        let access = access.iter().map(|(host, router, weight)| (hosts[*host], routers[*router], *weight, 2));
        network(&core.chain(access).collect::<Vec<_>>())
    })
}

/// All paths between all hosts, without their numbers, which depend on earlier failures.
fn all(planner: &mut Planner) -> Vec<HostPath> {
    let topology = planner.topology().clone();
    let hosts: Vec<_> = topology.node_ids().filter(|node| !topology.is_router(*node)).collect();
    let mut all = Vec::new();
    for from in &hosts {
        for to in &hosts {
            let paths = planner.paths(*from, *to);
            all.extend(paths.into_iter().map(|path| HostPath {
                path: Arc::new(sidestep_control::RouterPath { number: 0, ..(*path.path).clone() }),
                ..path
            }));
        }
    }
    all
}

/// Whether a path is the IGP's only shortest one from its access router to its destination. Of several links from a
/// router to the destination the planner knows the first only.
fn is_only_shortest(topology: &Topology, down: &BTreeSet<LinkId>, path: &HostPath) -> bool {
    let host = topology.head(path.down);
    let known: Vec<_> = access_arcs(topology, host).iter().map(|arc| arc.link()).collect();
    let unknown = topology.outgoing(host).iter().map(|arc| arc.link()).filter(|link| !known.contains(link));
    // Nor does a failure of a host's own link change the host's access routers.
    let down = down.iter().copied().filter(|link| !known.contains(link)).chain(unknown).collect();
    let arcs: Vec<_> = path.arcs().map(|(arc, _)| arc).skip(1).collect();
    Igp::without(topology, &down).unique_path(path.path.ingress, host) == Some(arcs)
}

proptest! {
    #[test]
    fn sets_asked_for_little_by_little_are_those_computed_at_once_and_those_computed_again(
        topology in arb_network(),
        steps in prop::collection::vec(prop::collection::btree_set(0..12u32, 0..4), 1..4),
    ) {
        let (mut at_once, mut lazy) = (planner(&topology), planner(&topology));
        at_once.compute_all();
        for step in steps {
            let down: BTreeSet<LinkId> = step.into_iter().map(LinkId).collect();
            at_once.set_down(&down);
            lazy.set_down(&down);
            let paths = all(&mut at_once);
            prop_assert_eq!(&paths, &all(&mut lazy));
            let mut again = planner(&topology);
            again.set_down(&down);
            prop_assert_eq!(&paths, &all(&mut again));
            for path in &paths {
                let arcs: Vec<_> = path.arcs().map(|(arc, _)| arc).collect();
                prop_assert!(arcs.windows(2).all(|pair| topology.head(pair[0]) == topology.tail(pair[1])));
                prop_assert!(path.path.segments.len() <= KNOBS.max_segments);
                prop_assert_eq!(is_plain(path), is_only_shortest(&topology, &down, path), "{:?}", path);
            }
        }
    }
}
