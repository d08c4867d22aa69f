//! A converted graph is read back, as far as the other format can express it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, option, prelude::*, sample::Index};

use sidestep_net::{GraphEdge, GraphLink, GraphNode, Missing, Rate, Span};
use sidestep_scenario::builder::replace_once;

use super::{super::*, REPETITA};

fn nodes() -> impl Strategy<Value = GraphNode> {
    let position = option::of((-180.0..180.0f64, -90.0..90.0f64));
    ("\\PC{0,12}|[A-Za-z .&<>\"']{0,40}", position).prop_map(|(name, position)| GraphNode { name, position })
}

fn edges(nodes: usize) -> impl Strategy<Value = GraphEdge> {
    let ends = (any::<Index>(), any::<Index>()).prop_map(move |(from, to)| (from.index(nodes), to.index(nodes)));
    let weight = option::of(prop_oneof![(1u32..100_000).prop_map(f64::from), 0.0..1e5f64]);
    let rate = option::of((1u64..10_000_000_000_000).prop_map(Rate::from_bits_per_sec));
    let delay = option::of((0u64..10_000_000_000).prop_map(Span::from_nanos));
    (ends, any::<bool>(), weight, rate, delay).prop_map(|((from, to), directed, weight, rate, delay)| GraphEdge {
        from,
        to,
        directed,
        weight,
        rate,
        delay,
    })
}

fn graphs() -> impl Strategy<Value = Graph> {
    vec(nodes(), 1..8).prop_flat_map(|nodes| {
        let edges = vec(edges(nodes.len()), 0..16);
        (Just(nodes), edges).prop_map(|(nodes, edges)| Graph { name: "a".into(), nodes, edges, ..Graph::default() })
    })
}

/// Both directions of each undirected edge, as REPETITA has them.
fn directed(edges: &[GraphEdge]) -> Vec<GraphEdge> {
    let both = |edge: &GraphEdge| {
        let there = GraphEdge { directed: true, ..edge.clone() };
        let back = GraphEdge { from: edge.to, to: edge.from, ..there.clone() };
        if edge.directed { vec![there] } else { vec![there, back] }
    };
    edges.iter().flat_map(both).collect()
}

const MISSING: Missing = Missing { rate: Rate::from_mbits(10), delay: Span::from_millis(1) };

proptest! {
    #[test]
    fn graphml_gives_all_back_but_delays(graph in graphs()) {
        let read = read(&print_graphml(&graph), "a.graphml").unwrap();
        prop_assert_eq!(read.nodes.len(), graph.nodes.len());
        for (index, (read, node)) in read.nodes.iter().zip(&graph.nodes).enumerate() {
            // White space around a name is no part of it, and a node without a name has its id.
            let kept: String = node.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let expected = match kept.trim() { "" => format!("n{index}"), name => name.to_owned() };
            prop_assert_eq!(&read.name, &expected);
            prop_assert_eq!(read.position, node.position);
        }
        let without_delay: Vec<_> =
            graph.edges.iter().map(|edge| GraphEdge { delay: None, ..edge.clone() }).collect();
        prop_assert_eq!(read.edges, without_delay);
    }

    #[test]
    fn repetita_gives_both_directions_of_every_edge_back(mut graph in graphs()) {
        graph.complete(&MISSING);
        let read = read(&print_repetita(&graph), "a.graph").unwrap();
        let places: Vec<_> = graph.nodes.iter().map(|node| node.position).collect();
        prop_assert_eq!(read.nodes.iter().map(|node| node.position).collect::<Vec<_>>(), places);
        let weighted = |edge: GraphEdge| GraphEdge { weight: edge.weight.or(Some(1.0)), ..edge };
        prop_assert_eq!(read.edges, directed(&graph.edges).into_iter().map(weighted).collect::<Vec<_>>());
    }

    #[test]
    fn our_own_format_gives_every_link_back_and_then_itself(mut graph in graphs()) {
        graph.complete(&MISSING);
        let topology = graph.to_topology().unwrap();
        let text = topology_file::print(&topology);
        prop_assert_eq!(&topology_file::parse(&text).unwrap(), &topology);
        let read = read(&text, "a.toml").unwrap();
        prop_assert_eq!(&Graph { name: "a".into(), ..Graph::of(&topology, "a") }, &read);
        prop_assert_eq!(read.nodes.len(), graph.nodes.len());
        let whole = graph.whole_weights().unwrap().by_edge;
        let factor = if whole.contains(&0) { graph.nodes.len() as u64 } else { 1 };
        let weight = |edge: usize| Some((whole[edge] * factor).max(1) as f64);
        let loops = |link: &GraphLink| link.ends[0] == link.ends[1];
        let links: Vec<GraphLink> = graph.links().into_iter().filter(|link| !loops(link)).collect();
        let again = read.links();
        prop_assert_eq!(again.len(), links.len());
        let properties = |link: &GraphLink, of: &Graph, weight: &dyn Fn(usize) -> Option<f64>| {
            let edge = |edge: usize| (weight(edge), of.edges[edge].rate, of.edges[edge].delay);
            format!("{:?}", (link.ends, link.edges.map(|index| index.map(edge))))
        };
        // Links between the same two nodes may have changed places.
        let mut before: Vec<String> = links.iter().map(|link| properties(link, &graph, &weight)).collect();
        let mut after: Vec<String> =
            again.iter().map(|link| properties(link, &read, &|edge| read.edges[edge].weight)).collect();
        before.sort();
        after.sort();
        prop_assert_eq!(before, after);
    }
}

#[test]
fn positions_and_shared_risks_are_kept_in_our_own_files() {
    let text = r#"[topology]
node = [{ name = "a", position = [-74, 40.5] }, { name = "b" }, { name = "h", kind = "host" }]
link = [
  { ends = ["h", "a"], rate = "1 Mbit/s", delay = "1 ms", srlg = [9] },
  { ends = ["a", "b"], rate = "1 Mbit/s", delay = "1 ms", srlg = [7, 3], reverse = { rate = "2 Mbit/s" } },
]
"#;
    let graph = read(text, "a.toml").unwrap();
    assert_eq!(graph.nodes[0].position, Some((-74.0, 40.5)));
    assert_eq!((graph.nodes.len(), graph.edges.len()), (2, 2), "hosts are no part of it");
    let groups = BTreeSet::from([3, 7]);
    assert_eq!(graph.risk_groups, BTreeMap::from([(0, groups.clone()), (1, groups)]));
    let printed = topology_file::print(&graph.to_topology().unwrap());
    assert!(printed.contains("position = [-74.0, 40.5]") && printed.contains("srlg = [3, 7]"), "{printed}");
    assert_eq!(read(&printed, "a.toml").unwrap(), graph);
    let far = replace_once(text, "-74, 40.5", "-74, 91");
    let error = read(&far, "far.toml").unwrap_err();
    assert_eq!((error.line, error.column), (2, 34), "{error}");
}

#[test]
fn positions_off_the_earth_are_not_taken_along() {
    // Extreme values, which a synthetic network or a misprint may have.
    let text = replace_once(REPETITA, "-74.00597", "-74005.97");
    let graph = read(&text, "a.graph").unwrap();
    assert_eq!(graph.nodes[0].position, Some((-74005.97, 40.71427)));
    let topology = graph.to_topology().unwrap();
    assert_eq!(
        topology.node_ids().map(|node| topology.position(node).is_some()).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!(topology_file::parse(&topology_file::print(&topology)).as_ref(), Ok(&topology));
}
