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
fn a_weight_of_zero_changes_no_order_of_paths() {
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    let edge =
        |from, to, weight| GraphEdge { from, to, directed: false, weight: Some(weight), rate: None, delay: None };
    // a–b–c–d weighs 0, a–d 1: if 0 became 1, the direct link would be the shorter path.
    let edges = vec![edge(0, 1, 0.0), edge(1, 2, 0.0), edge(2, 3, 0.0), edge(0, 3, 1.0), edge(0, 2, 0.5)];
    let graph = Graph { nodes: ["a", "b", "c", "d"].map(node).into(), edges, ..Graph::default() };
    let topology = graph.to_topology().unwrap();
    let weight = |link: &str| topology.link(topology.find_link(link).unwrap()).ab.weight;
    assert_eq!(["a-b", "b-c", "c-d", "a-d", "a-c"].map(weight), [1, 1, 1, 8, 4]);
}

#[test]
fn the_largest_part_is_a_network_of_its_own() {
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    let edge = |from, to, directed| GraphEdge { from, to, directed, weight: None, rate: None, delay: None };
    let graph = Graph {
        name: "net".into(),
        nodes: ["a", "b", "c", "d", "e", "f"].map(node).into(),
        edges: vec![edge(0, 1, false), edge(5, 2, true), edge(4, 5, false)],
        risk_groups: [(0, [1].into()), (2, [7].into())].into(),
        is_part: false,
    };
    assert_eq!(graph.parts(), [0, 0, 1, 2, 1, 1]);
    let part = graph.largest_part();
    assert!(part.is_part);
    assert_eq!(part.nodes, ["c", "e", "f"].map(node));
    assert_eq!(part.edges, [edge(2, 0, true), edge(1, 2, false)]);
    assert_eq!(part.risk_groups, [(1, [7].into())].into());
    assert_eq!(part.largest_part(), part);
}

#[test]
fn a_directed_edge_alone_is_a_link_of_one_direction() {
    let node = |name: &str| GraphNode { name: name.into(), position: None };
    let edge = |from, to, weight| GraphEdge {
        from,
        to,
        directed: true,
        weight: Some(weight),
        rate: Some(Rate::from_mbits(10)),
        delay: Some(Span::from_millis(1)),
    };
    let edges = vec![edge(1, 0, 3.0), edge(1, 2, 4.0), edge(2, 1, 5.0)];
    let graph = Graph { nodes: ["a", "b", "c"].map(node).into(), edges, ..Graph::default() };
    assert_eq!(graph.links().iter().map(|link| link.edges).collect::<Vec<_>>(), [[None, Some(0)], [Some(1), Some(2)]]);
    let topology = graph.to_topology().unwrap();
    let [a, b] = ["a", "b"].map(|name| topology.find(name).unwrap());
    let link = topology.find_link("b-a").unwrap();
    assert_eq!(topology.one_way_links().collect::<Vec<_>>(), [link]);
    assert_eq!((topology.link(link).a, topology.link(link).b, topology.link(link).ab.weight), (b, a, 3));
    assert_eq!((topology.outgoing(a), topology.outgoing(b).len(), topology.around(a).len()), (&[][..], 2, 1));
    assert!(topology.has_arc(topology.outgoing(b)[0]) && !topology.has_arc(topology.outgoing(b)[0].reversed()));
    let printed = crate::topology_file::print(&topology);
    assert!(printed.contains("one_way = true"), "{printed}");
    assert_eq!(crate::topology_file::parse(&printed).as_ref(), Ok(&topology));
    assert_eq!(Graph::of(&topology, "g").edges.len(), 3);
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
