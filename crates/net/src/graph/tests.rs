//! Graphs become topologies, and are completed.

use super::*;

#[test]
fn names_are_made_fit_and_kept_apart() {
    let names =
        ["New York", "New.York", "New-York", "New York", "", ".x", "São Paulo", &"x".repeat(50), &"x".repeat(40)];
    let node = |name: &&str| GraphNode { name: (*name).to_owned(), position: None };
    let graph = Graph { nodes: names.iter().map(node).collect(), ..Graph::default() };
    let topology = graph.to_topology().unwrap();
    let made: Vec<&str> = topology.nodes().iter().map(|node| node.name.as_str()).collect();
    let x32 = "x".repeat(32);
    let x30 = format!("{}.2", "x".repeat(30));
    assert_eq!(made, ["New_York", "New.York", "New-York", "New_York.2", "n", "n.x", "S_o_Paulo", &x32, &x30]);
}

#[test]
fn many_nodes_and_links_of_one_name_take_no_longer() {
    let node = || GraphNode { name: "x".into(), position: None };
    let edge =
        |index| GraphEdge { from: 0, to: 1, directed: false, weight: Some(f64::from(index)), rate: None, delay: None };
    let edges = (0..20_000).map(edge).collect();
    let graph = Graph { nodes: (0..20_000).map(|_| node()).collect(), edges, ..Graph::default() };
    let topology = graph.to_topology().unwrap();
    assert_eq!(topology.nodes()[19_999].name, "x.20000");
    assert_eq!(topology.links()[19_999].name, "x-x.2.20000");
}

#[test]
fn a_delay_that_is_missing_is_that_of_light_in_fibre() {
    let node = |position| GraphNode { name: "n".into(), position };
    let edge = |from, to| GraphEdge { from, to, directed: false, weight: None, rate: None, delay: None };
    // A quarter of the equator: 10 007 km.
    let nodes = vec![node(Some((0.0, 0.0))), node(Some((90.0, 0.0))), node(None)];
    let mut graph = Graph { nodes, edges: vec![edge(0, 1), edge(1, 2)], ..Graph::default() };
    let missing = Missing { rate: Rate::from_mbits(10), delay: Span::from_millis(1) };
    assert_eq!(graph.complete(&missing), (2, 2));
    assert_eq!(graph.edges[0].delay, Some(Span::from_micros(50_038)));
    assert_eq!((graph.edges[1].delay, graph.edges[1].rate), (Some(missing.delay), Some(missing.rate)));
}

#[test]
fn parallel_links_of_both_kinds_keep_their_order_and_so_their_names() {
    let edge = |from, to, directed, weight| GraphEdge {
        from,
        to,
        directed,
        weight: Some(weight),
        rate: Some(Rate::from_mbits(10)),
        delay: Some(Span::from_millis(1)),
    };
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    let edges = vec![edge(0, 1, true, 1.0), edge(1, 0, true, 2.0), edge(0, 1, false, 3.0)];
    let graph = Graph { nodes: vec![node("a"), node("b")], edges, ..Graph::default() };
    let topology = graph.to_topology().unwrap();
    assert_eq!([0, 1].map(|link| topology.links()[link].ab.weight), [1, 3]);
    assert_eq!(Graph::of(&topology, "a").to_topology().as_ref(), Ok(&topology));
}
