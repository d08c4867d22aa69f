//! The two implementations of disjoint paths, compared with each other: [`PathFinder`], which serves the controller,
//! and [`Survey`], which counts for the figures.
//!
//! They mean the same if the analysis uses only unique shortest paths as segments (`unique`) and removes links in both
//! directions, if both networks have the same links with weights of at least 1, and if all nodes are routers. Both
//! break ties between equally heavy paths by the same numbers of the links. Then
//!
//! - with node segments only, the numbers of paths are the same for every pair and limit;
//! - with adjacency segments, `PathFinder` counts the egress router's SID after an adjacency, while the analysis lets
//!   the adjacency decapsulate. So `PathFinder` may need one segment more: a pair for which it has a path within k has
//!   one in the analysis within k, and a pair for which the analysis has one within k has one in `PathFinder` within k
//!   + 1. (The numbers of paths can differ in either direction, because another first path takes other links.)
//! - with adjacency segments and no limit, both are iterated Dijkstra.

use proptest::{prelude::*, test_runner::RngSeed};
use sidestep_formats as formats;
use sidestep_net::{
    Channel, Graph, GraphEdge, GraphNode, Link, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology,
};
use sidestep_paths::{
    Igp, PathFinder, SegmentRules,
    analysis::{Net, NetOptions, Remove, SegmentOptions, Survey},
};

/// The net's links, in its order, between as many routers.
fn topology(net: &Net) -> Topology {
    let mut topology = Topology::new();
    for index in 0..net.node_count() {
        let node = Node { name: format!("r{index}"), kind: NodeKind::Router, prefix: None, locator: None };
        topology.add_node(node).expect("names are unique");
    }
    for (index, ([a, b], weights)) in net.links().iter().zip(net.link_weights()).enumerate() {
        // The first end of a link of one direction is where it begins.
        let is_turned = weights[0].is_none();
        let is_one_way = weights.contains(&None);
        let ([a, b], [there, back]) = if is_turned { ([b, a], [weights[1], weights[0]]) } else { ([a, b], weights) };
        let weights = [there.expect("a link has a direction"), back.or(there).expect("a link has a direction")];
        let [ab, ba] = weights.map(|weight| Channel {
            rate: Rate::default(),
            delay: Span::ZERO,
            queue: Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None },
            loss: Ratio::ZERO,
            burst_loss: None,
            weight,
        });
        let link = Link { name: format!("l{index}"), a: NodeId(*a), b: NodeId(*b), ab, ba, mtu: 1500 };
        let link = topology.add_link(link).expect("links are sound");
        if is_one_way {
            topology.set_one_way(link).expect("all nodes are routers");
        }
    }
    topology
}

/// Compares all limits up to this one between each two of these nodes.
fn compare(net: &Net, nodes: &[u32], most: usize) -> Result<(), TestCaseError> {
    let topology = topology(net);
    let igp = Igp::new(&topology);
    let survey = Survey::new(net).expect("the net is small");
    let unlimited = 2 * net.node_count();
    let finder = |max_segments, adjacency| PathFinder::new(&igp, SegmentRules { max_segments, adjacency });
    let mut limited: Vec<[PathFinder<&Igp>; 2]> =
        (1..=most).map(|most| [finder(most, false), finder(most, true)]).collect();
    let mut any = finder(unlimited, true);
    for (index, from) in nodes.iter().enumerate() {
        for to in &nodes[index + 1..] {
            let pair = [*from, *to];
            let [node_segments, adjacencies] = [false, true].map(|adjacency| {
                survey.segmented(&pair, most, SegmentOptions { remove: Remove::Both, unique: true, adjacency })
            });
            let mut without_path = u64::MAX;
            for (limit, finders) in limited.iter_mut().enumerate() {
                let [nodes, adjacent] = finders.each_mut().map(|finder| found(finder, net, pair));
                prop_assert_eq!(&nodes, &node_segments[limit].pairs, "{:?}, {} segments", pair, limit + 1);
                let counted = adjacencies[limit].pairs[0];
                prop_assert!(adjacent[0] >= counted, "{:?}, {} segments", pair, limit + 1);
                prop_assert!(adjacent[0] <= without_path, "{:?}, {} segments", pair, limit + 1);
                without_path = counted;
            }
            prop_assert_eq!(found(&mut any, net, pair), survey.greedy(&pair, Remove::Both).pairs, "{:?}", pair);
        }
    }
    Ok(())
}

/// By number of paths, how many of the pair's directions have that number; as in [`Survey`], only one is looked at
/// where weights are symmetric.
fn found(finder: &mut PathFinder<&Igp>, net: &Net, [from, to]: [u32; 2]) -> Vec<u64> {
    let mut counts = Vec::new();
    for (from, to) in [(from, to), (to, from)].into_iter().take(if net.is_symmetric() { 1 } else { 2 }) {
        let paths = finder.disjoint_paths(NodeId(from), NodeId(to), usize::MAX).len();
        counts.resize(counts.len().max(paths + 1), 0);
        counts[paths] += 1;
    }
    counts
}

/// Networks of up to 9 routers and 16 links, many of equal weight, some parallel, some that weigh more in one
/// direction or have one only.
fn arb_net() -> impl Strategy<Value = Net> {
    (2..=9usize, any::<bool>()).prop_flat_map(|(nodes, symmetric)| {
        let weight = || prop_oneof![4 => Just(1u32), 2 => Just(2), 1 => 3..6u32];
        let link = (0..nodes, 1..nodes, weight(), weight(), prop::bool::weighted(0.15));
        prop::collection::vec(link, 1..=16).prop_map(move |links| {
            let edges = links.into_iter().flat_map(|(from, step, there, back, one_way)| {
                let back = if symmetric { there } else { back };
                let both = [(from, (from + step) % nodes, there), ((from + step) % nodes, from, back)];
                both.into_iter().take(if one_way { 1 } else { 2 })
            });
            let edge = |(from, to, weight)| {
                let weight = Some(f64::from(weight));
                GraphEdge { from, to, directed: true, weight, rate: None, delay: None }
            };
            let node = |index| GraphNode { name: format!("n{index}"), position: None };
            let nodes = (0..nodes).map(node).collect();
            let graph = Graph { name: "g".into(), nodes, edges: edges.map(edge).collect(), ..Graph::default() };
            Net::new(&graph, NetOptions::default()).expect("weights are small")
        })
    })
}

proptest! {
    // Always the same cases: sums of the links' numbers, which the analysis cuts to some 28 bits, may now and then be
    // equal.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn both_find_as_many_paths_in_random_networks(net in arb_net()) {
        let nodes: Vec<u32> = (0..net.node_count() as u32).collect();
        compare(&net, &nodes, 5)?;
    }
}

#[test]
fn both_find_as_many_paths_in_published_networks() {
    // Every `step`-th of their access routers.
    for (name, step) in [("Abilene", 1), ("Geant2012", 1), ("Interoute", 4), ("Cogentco", 12)] {
        let text = sidestep_zoo::find(name).expect("it is part of the Zoo");
        let graph = formats::read(text, &format!("{name}.graphml")).expect("it is sound");
        let net = Net::new(&graph, NetOptions::default()).expect("it is small").pruned();
        let nodes: Vec<u32> = net.access().into_iter().step_by(step).collect();
        compare(&net, &nodes, 6).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
