//! What is read in any format is written in any other, as `sidestep topo convert` does, and then read as the same links.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_formats as formats;
use sidestep_net::{Graph, GraphEdge, Missing, Rate, Span, topology_file};

const FORMATS: [&str; 11] = [
    "fuzz.graphml",
    "fuzz.gml",
    "fuzz.json",
    "fuzz.graph",
    "fuzz.cch",
    "fuzz.toml",
    "fuzz.txt",
    "fuzz.csv",
    "fuzz.brite",
    "fuzz.clab.yml",
    "weights.intra",
];

fuzz_target!(|text: &str| {
    for format in FORMATS {
        if let Ok(graph) = formats::read(text, format) {
            to_graphml(&graph);
            let mut whole = graph.clone();
            whole.complete(&Missing { rate: Rate::from_mbits(10), delay: Span::from_millis(1) });
            to_repetita(&whole);
            to_ours(&whole);
        }
    }
});

/// GraphML keeps all but delays, rates of 0 ("not limited") and the position 0, 0.
fn to_graphml(graph: &Graph) {
    let again = formats::read(&formats::print_graphml(graph), "fuzz.graphml").expect("what is written is read");
    let kept = |edge: &GraphEdge| GraphEdge {
        delay: None,
        rate: edge.rate.filter(|rate| *rate != Rate::default()),
        ..edge.clone()
    };
    assert_eq!(again.edges, graph.edges.iter().map(kept).collect::<Vec<_>>());
    let positions = |graph: &Graph| {
        graph.nodes.iter().map(|node| node.position.filter(|place| *place != (0.0, 0.0))).collect::<Vec<_>>()
    };
    assert_eq!(positions(&again), positions(graph));
}

/// REPETITA keeps the links, with everything they have, and is then the same again and again.
fn to_repetita(graph: &Graph) {
    let first = formats::print_repetita(graph);
    let again = formats::read(&first, "fuzz.graph").expect("what is written is read");
    assert_eq!(again.links().len(), graph.links().len());
    assert_eq!(formats::print_repetita(&again), first);
}

/// Ours has its own rules for what is a topology; what keeps them is the same again and again.
fn to_ours(graph: &Graph) {
    let Ok(topology) = graph.to_topology() else { return };
    let text = topology_file::print(&topology);
    assert_eq!(topology_file::parse(&text).as_ref(), Ok(&topology), "{text}");
    let again = formats::read(&text, "fuzz.toml").expect("what is written is read");
    assert_eq!(again, Graph { name: "fuzz".into(), ..Graph::of(&topology, "fuzz") });
    let links = |graph: &Graph| graph.links().iter().filter(|link| link.ends[0] != link.ends[1]).count();
    assert_eq!((again.nodes.len(), links(&again)), (graph.nodes.len(), links(graph)));
    assert_eq!(again.to_topology().as_ref(), Ok(&topology), "{text}");
}
