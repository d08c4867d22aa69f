//! No text makes the loaders panic, and every printed graph is read back.

use std::fmt::Write as _;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    super::*,
    GRAPHML, REPETITA, ROCKETFUEL,
    dialects::{GML, NODE_LINK},
    tables::{BRITE, CLAB, CSV, DICT, LIST, NATIVE, WEIGHTS},
    undirected,
};

/// A good file of each format.
const GOOD: [(&str, &str); 12] = [
    (GRAPHML, "good.graphml"),
    (REPETITA, "good.graph"),
    (ROCKETFUEL, "good.cch"),
    (GML, "good.gml"),
    (NODE_LINK, "good.json"),
    (NATIVE, "good.txt"),
    (BRITE, "good.brite"),
    (CSV, "good.csv"),
    (LIST, "good.edges"),
    (DICT, "good.edgelist"),
    (WEIGHTS, "weights.intra"),
    (CLAB, "good.clab.yml"),
];

/// One or more nodes, and pairs of them; pairs may repeat, and a pair may be a loop.
fn graphs() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (1usize..9, vec((any::<Index>(), any::<Index>()), 0..20))
        .prop_map(|(nodes, pairs)| (nodes, pairs.iter().map(|(a, b)| (a.index(nodes), b.index(nodes))).collect()))
}

fn ends(graph: &Graph) -> Vec<(usize, usize)> {
    graph.edges.iter().map(|edge| (edge.from, edge.to)).collect()
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*|[<>/!?&;=\"'a-z\\-\\[\\] \n]{0,80}") {
        for (_, name) in GOOD {
            let _ = read(&text, name);
        }
    }

    #[test]
    fn any_file_name_is_taken(name in "\\PC*|[./a-z]{0,12}") {
        let _ = read("", &name);
    }

    #[test]
    fn a_damaged_file_is_read_or_refused_at_a_line_that_it_has(
        cuts in vec((any::<Index>(), 0usize..20, "\\PC{0,6}|[0-9<>(){}&\"=@\\-. ]{1,3}|1e30|-1|NaN"), 1..4),
    ) {
        for (text, name) in GOOD {
            let mut text = text.to_owned();
            for (at, length, instead) in &cuts {
                let chars: Vec<char> = text.chars().collect();
                let from = at.index(chars.len().max(1)).min(chars.len());
                let to = (from + length).min(chars.len());
                text = chars[..from].iter().copied().chain(instead.chars()).chain(chars[to..].iter().copied()).collect();
            }
            match read(&text, name) {
                Ok(graph) => prop_assert!(graph.edges.iter().all(|edge| edge.from.max(edge.to) < graph.nodes.len())),
                Err(error) => prop_assert!((1..=text.lines().count() + 1).contains(&error.line), "{}", error),
            }
        }
    }

    #[test]
    fn a_graph_printed_as_graphml_is_read_back((nodes, pairs) in graphs(), edges_first in any::<bool>()) {
        let nodes_text: String = (0..nodes).map(|node| format!("<node id='n{node}'/>")).collect();
        let edges_text: String = pairs.iter().map(|(a, b)| format!("<edge source='n{a}' target='n{b}'/>")).collect();
        let (first, second) = if edges_first { (edges_text, nodes_text) } else { (nodes_text, edges_text) };
        let graph = read(&format!("<graphml><graph>{first}{second}</graph></graphml>"), "a.graphml").unwrap();
        let names: Vec<_> = graph.nodes.iter().map(|node| node.name.clone()).collect();
        prop_assert_eq!(names, (0..nodes).map(|node| format!("n{node}")).collect::<Vec<_>>());
        prop_assert_eq!(ends(&graph), pairs);
    }

    #[test]
    fn a_graph_printed_as_repetita_is_read_back((nodes, pairs) in graphs()) {
        let mut text = format!("NODES {nodes}\nlabel x y\n");
        (0..nodes).for_each(|node| writeln!(text, "n{node} 1 2").unwrap());
        write!(text, "EDGES {}\nlabel src dest weight bw delay\n", pairs.len()).unwrap();
        pairs.iter().for_each(|(a, b)| writeln!(text, "e {a} {b} 1 1 1").unwrap());
        let graph = read(&text, "a.graph").unwrap();
        prop_assert_eq!((graph.nodes.len(), ends(&graph)), (nodes, pairs));
    }

    #[test]
    fn a_graph_printed_as_rocketfuel_is_read_back((nodes, mut pairs) in graphs()) {
        let mut text = String::new();
        for node in 0..nodes {
            let other = |&(a, b): &(usize, usize)| if a == node { Some(b) } else { (b == node).then_some(a) };
            let neighbours: String = pairs.iter().filter_map(other).map(|other| format!(" <{}>", other + 7)).collect();
            writeln!(text, "{} @T (1) ->{neighbours} = r0", node + 7).unwrap();
        }
        let graph = read(&text, "a.cch").unwrap();
        pairs.iter_mut().for_each(|(a, b)| (*a, *b) = (*a.min(b), *a.max(b)));
        pairs.sort();
        prop_assert_eq!(graph.nodes.len(), nodes);
        prop_assert_eq!(graph.edges, pairs.into_iter().map(|(a, b)| undirected(a, b)).collect::<Vec<_>>());
    }
}
