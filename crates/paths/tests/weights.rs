//! Weights of published files, which have fractions, against sums of floats.

use sidestep_net::{Graph, GraphEdge, GraphNode, NodeId};
use sidestep_paths::{
    Igp,
    analysis::{Net, NetOptions},
};

fn graph(nodes: usize, links: impl IntoIterator<Item = (usize, usize, f64)>) -> Graph {
    let node = |index| GraphNode { name: format!("n{index}"), position: None };
    let edge =
        |(from, to, weight)| GraphEdge { from, to, directed: false, weight: Some(weight), rate: None, delay: None };
    let edges = links.into_iter().map(edge).collect();
    Graph { name: "g".into(), nodes: (0..nodes).map(node).collect(), edges, ..Graph::default() }
}

#[test]
fn small_weights_are_not_all_alike() {
    // A–B–D weighs 0.0003, A–C–D 0.0006 and A–D 0.0004; as thousandths all links would weigh the same.
    let graph = graph(4, [(0, 1, 0.0001), (1, 3, 0.0002), (0, 2, 0.0003), (2, 3, 0.0003), (0, 3, 0.0004)]);
    let topology = graph.to_topology().unwrap();
    let path = Igp::new(&topology).unique_path(NodeId(0), NodeId(3)).unwrap();
    let nodes: Vec<&str> = path.iter().map(|arc| topology.node(topology.head(*arc)).name.as_str()).collect();
    assert_eq!(nodes, ["n1", "n3"]);
    let net = Net::new(&graph, NetOptions::default()).unwrap();
    assert_eq!(net.link_weights().filter_map(|[there, _]| there).collect::<Vec<_>>(), [1, 3, 4, 2, 3]);
}

#[test]
fn the_first_path_of_each_pair_is_the_cheapest_where_weights_are_one_over_capacities() {
    let nodes = 16;
    for seed in 0..20u64 {
        let mut state = seed;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut ends: Vec<(usize, usize)> = (0..nodes).map(|node| (node, (node + 1) % nodes)).collect();
        ends.extend((0..14).map(|_| (below(16) as usize, below(16) as usize)).filter(|(a, b)| a != b));
        let links: Vec<_> = ends.iter().map(|(a, b)| (*a, *b, 1.0 / (50 + below(251)) as f64)).collect();
        let topology = graph(nodes, links.clone()).to_topology().unwrap();
        // Floyd and Warshall, in floats.
        let mut least = vec![vec![f64::INFINITY; nodes]; nodes];
        (0..nodes).for_each(|node| least[node][node] = 0.0);
        for (a, b, weight) in &links {
            least[*a][*b] = weight.min(least[*a][*b]);
            least[*b][*a] = least[*a][*b];
        }
        for over in 0..nodes {
            for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
                least[from][to] = least[from][to].min(least[from][over] + least[over][to]);
            }
        }
        let igp = Igp::new(&topology);
        let weights = graph(nodes, links.clone()).links();
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            let path = igp.first_path(NodeId(from as u32), NodeId(to as u32)).unwrap();
            let cost: f64 = path.iter().map(|arc| links[weights[arc.link().index()].edges[0].unwrap()].2).sum();
            assert!(
                (cost - least[from][to]).abs() < 1e-12,
                "seed {seed}, {from} to {to}: {cost}, not {}",
                least[from][to]
            );
        }
    }
}
