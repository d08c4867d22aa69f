//! The slow, obvious reference that the property tests compare with, and the small networks that they run on.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sidestep_net::{
    ArcId, Channel, Link, LinkId, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology,
};

use crate::{Segment, SegmentRules};

/// A link: its ends, and its weight there and back.
pub(crate) type LinkSpec = (u32, u32, u64, u64);

/// A network of this many routers, whose links have no rate limit.
pub(crate) fn network(routers: u32, links: &[LinkSpec]) -> Topology {
    let links: Vec<_> = links.iter().map(|link| (*link, [0, 0])).collect();
    build(&vec![NodeKind::Router; routers as usize], &links)
}

/// Networks of up to 6 nodes, mostly routers, with up to 9 links, many of them parallel or of equal weight.
pub(crate) fn arb_network() -> impl Strategy<Value = Topology> {
    arb_network_with(1)
}

/// Networks like those of [`arb_network`], in which the given number of ten nodes are hosts. Hosts may have several
/// links, links to other hosts, or no link. Some links between routers have one direction.
pub(crate) fn arb_network_with(hosts: u32) -> impl Strategy<Value = Topology> {
    let kind = prop_oneof![10 - hosts => Just(NodeKind::Router), hosts => Just(NodeKind::Host)];
    prop::collection::vec(kind, 2..=6).prop_flat_map(|kinds| {
        let count = kinds.len() as u32;
        let weight = || prop_oneof![3 => Just(1u64), 1 => Just(2), 1 => Just(3)];
        // The second end is a step from the first one, so that no link is a loop.
        let ends = (0..count, 1..count).prop_map(move |(a, step)| (a, (a + step) % count));
        let link = (ends, weight(), weight(), 1..4u64, 1..4u64);
        let link = link.prop_map(|((a, b), there, back, ab, ba)| ((a, b, there, back), [ab, ba]));
        let links = prop::collection::vec((link, prop::bool::weighted(0.15)), 1..=9);
        links.prop_map(move |links| {
            let (links, one_way): (Vec<_>, Vec<bool>) = links.into_iter().unzip();
            let mut topo = build(&kinds, &links);
            for (link, _) in topo.link_ids().zip(one_way).filter(|(_, one_way)| *one_way) {
                // Hosts' links always have both.
                let _ = topo.set_one_way(link);
            }
            topo
        })
    })
}

/// A network with an arbitrary segment list, valid or not.
pub(crate) fn arb_segments(topo: Topology) -> impl Strategy<Value = (Topology, Vec<Segment>)> {
    let nodes = (0..topo.nodes().len() as u32).prop_map(|node| Segment::Node(NodeId(node)));
    let arcs = (0..topo.arc_count() as u32).prop_map(|arc| Segment::Adjacency(ArcId(arc)));
    (Just(topo), prop::collection::vec(prop_oneof![nodes, arcs], 0..4))
}

/// All paths from one node to another that visit no node twice and pass no host.
pub(crate) fn simple_paths(topo: &Topology, failed: &BTreeSet<LinkId>, from: NodeId, to: NodeId) -> Vec<Vec<ArcId>> {
    fn go(
        topo: &Topology,
        failed: &BTreeSet<LinkId>,
        visited: &mut Vec<NodeId>,
        to: NodeId,
        all: &mut Vec<Vec<ArcId>>,
        path: &mut Vec<ArcId>,
    ) {
        let Some(&at) = visited.last() else { return };
        if at == to {
            all.push(path.clone());
            return;
        }
        if !topo.is_router(at) && visited.len() > 1 {
            return;
        }
        for &arc in topo.outgoing(at) {
            if !failed.contains(&arc.link()) && !visited.contains(&topo.head(arc)) {
                visited.push(topo.head(arc));
                path.push(arc);
                go(topo, failed, visited, to, all, path);
                path.pop();
                visited.pop();
            }
        }
    }
    let mut all = Vec::new();
    go(topo, failed, &mut vec![from], to, &mut all, &mut Vec::new());
    all
}

/// All cheapest paths from one node to another.
pub(crate) fn shortest_paths(topo: &Topology, failed: &BTreeSet<LinkId>, from: NodeId, to: NodeId) -> Vec<Vec<ArcId>> {
    let cost = |path: &Vec<ArcId>| path.iter().map(|arc| topo.channel(*arc).weight).sum::<u64>();
    let mut paths = simple_paths(topo, failed, from, to);
    let least = paths.iter().map(cost).min();
    paths.retain(|path| Some(cost(path)) == least);
    paths
}

/// All walks that a packet with this segment list may take; empty if some segment cannot be followed.
pub(crate) fn walks(topo: &Topology, from: NodeId, segments: &[Segment]) -> Vec<Vec<ArcId>> {
    let shortest = |from, to| shortest_paths(topo, &BTreeSet::new(), from, to);
    let mut walks = vec![Vec::new()];
    let mut at = from;
    for segment in segments {
        let (paths, end) = one_segment(topo, &shortest, at, *segment);
        walks = walks.iter().flat_map(|walk| paths.iter().map(move |path| [walk.as_slice(), path].concat())).collect();
        at = end;
    }
    walks
}

/// Every walk that some list within the rules forces, ending with the egress router, and the length of the shortest
/// such list.
pub(crate) fn expressible(topo: &Topology, from: NodeId, rules: &SegmentRules) -> BTreeMap<Vec<ArcId>, usize> {
    let mut shortest = BTreeMap::new();
    for a in topo.node_ids() {
        shortest.extend(topo.node_ids().map(|b| ((a, b), shortest_paths(topo, &BTreeSet::new(), a, b))));
    }
    let shortest = |from, to| shortest[&(from, to)].clone();
    let nodes = topo.node_ids().map(Segment::Node);
    let arcs = (0..topo.arc_count() as u32).map(ArcId).filter(|arc| rules.adjacency && topo.has_arc(*arc));
    let arcs = arcs.map(Segment::Adjacency);
    let alphabet: Vec<Segment> = nodes.chain(arcs).collect();
    let mut found = BTreeMap::new();
    // All lists of one length, as the walks that they force.
    let mut forced: BTreeSet<(Vec<ArcId>, NodeId)> = [(Vec::new(), from)].into();
    for length in 1..=rules.max_segments {
        let mut longer = BTreeSet::new();
        for (walk, at) in &forced {
            for segment in &alphabet {
                let (paths, end) = one_segment(topo, &shortest, *at, *segment);
                if let [path] = paths.as_slice() {
                    let walk = [walk.as_slice(), path].concat();
                    if matches!(segment, Segment::Node(_)) {
                        found.entry(walk.clone()).or_insert(length);
                    }
                    longer.insert((walk, end));
                }
            }
        }
        forced = longer;
    }
    found
}

/// The walks that one segment may take, and where it ends.
fn one_segment(
    topo: &Topology,
    shortest: &impl Fn(NodeId, NodeId) -> Vec<Vec<ArcId>>,
    at: NodeId,
    segment: Segment,
) -> (Vec<Vec<ArcId>>, NodeId) {
    match segment {
        Segment::Node(node) if topo.is_router(node) => (shortest(at, node), node),
        Segment::Node(node) => (Vec::new(), node),
        Segment::Adjacency(arc) => {
            let mut paths = shortest(at, topo.tail(arc));
            paths.iter_mut().for_each(|path| path.push(arc));
            paths.retain(|_| topo.has_arc(arc) && topo.is_router(topo.tail(arc)) && topo.is_router(topo.head(arc)));
            (paths, topo.head(arc))
        }
    }
}

/// A network of these nodes; a rate of zero does not limit.
pub(crate) fn build(kinds: &[NodeKind], links: &[(LinkSpec, [u64; 2])]) -> Topology {
    let mut topo = Topology::new();
    for (index, kind) in kinds.iter().enumerate() {
        let node = Node { name: format!("n{index}"), kind: *kind, prefix: None, locator: None };
        topo.add_node(node).expect("names are unique");
    }
    for (index, ((a, b, there, back), rates)) in links.iter().enumerate() {
        let channel = |weight: u64, rate: u64| Channel {
            rate: Rate::from_bits_per_sec(rate),
            delay: Span::from_millis(weight),
            queue: Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None },
            loss: Ratio::ZERO,
            burst_loss: None,
            weight,
        };
        let (ab, ba) = (channel(*there, rates[0]), channel(*back, rates[1]));
        let link = Link { name: format!("l{index}"), a: NodeId(*a), b: NodeId(*b), ab, ba, mtu: 1500 };
        topo.add_link(link).expect("links are sound");
    }
    topo
}
