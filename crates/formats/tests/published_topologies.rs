//! Published topologies are read: those of the Topology Zoo that are part of sidestep in every format, always, and
//! every published file where they are at hand.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use sidestep_formats as formats;
use sidestep_net::{Graph, Missing, Rate, Span};

/// The files of one set that end in `suffix`, by name; `None`, with a message, where the data are not at hand.
fn graphs(set: &str, suffix: &str) -> Option<BTreeMap<String, Graph>> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = env::var_os("SIDESTEP_DATA").map_or_else(beside, PathBuf::from).join(set);
    if !folder.is_dir() {
        println!("skipped: {} is not there; set SIDESTEP_DATA to the published topologies", folder.display());
        return None;
    }
    let mut graphs = BTreeMap::new();
    for entry in fs::read_dir(&folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if name.ends_with(suffix) {
            let text = fs::read_to_string(&path).expect("the file can be read");
            let graph = formats::read(&text, &name).unwrap_or_else(|error| panic!("{error}"));
            graphs.insert(name, graph);
        }
    }
    Some(graphs)
}

/// The total numbers of files, nodes, edges and loops.
fn totals(graphs: &BTreeMap<String, Graph>) -> (usize, usize, usize, usize) {
    let nodes = graphs.values().map(|graph| graph.nodes.len()).sum();
    let edges = graphs.values().map(|graph| graph.edges.len()).sum();
    let loops = graphs.values().flat_map(|graph| &graph.edges).filter(|edge| edge.from == edge.to).count();
    (graphs.len(), nodes, edges, loops)
}

/// The networks of the Topology Zoo that sidestep carries.
fn carried() -> Vec<Graph> {
    let read = |(name, text): &(&str, &str)| formats::read(text, &format!("{name}.graphml"));
    let graphs: Result<_, _> = sidestep_zoo::TOPOLOGIES.iter().map(read).collect();
    graphs.unwrap_or_else(|error| panic!("{error}"))
}

/// A Rocketfuel map of the graph, in which each router's line has all its neighbours.
fn rocketfuel(graph: &Graph) -> String {
    let mut text = String::new();
    for node in 0..graph.nodes.len() {
        let _ = write!(text, "{node} @place ({}) ->", graph.edges.len());
        for edge in graph.edges.iter().filter(|edge| [edge.from, edge.to].contains(&node)) {
            let _ = write!(text, " <{}>", edge.from + edge.to - node);
        }
        let _ = writeln!(text, " =router r0");
    }
    text
}

#[test]
fn the_networks_that_sidestep_carries_are_the_same_in_every_format() {
    let graphs = carried();
    assert!(graphs.len() >= 250, "{}", graphs.len());
    for mut graph in graphs {
        let name = graph.name.clone();
        let graphml = formats::read(&formats::print_graphml(&graph), &format!("{name}.graphml")).unwrap();
        assert_eq!(graphml.edges, graph.edges, "{name}");

        let map = formats::read(&rocketfuel(&graph), &format!("{name}.cch")).unwrap();
        let ends = |graph: &Graph| {
            let mut ends: Vec<_> =
                graph.edges.iter().map(|edge| (edge.from.min(edge.to), edge.from.max(edge.to))).collect();
            ends.sort_unstable();
            ends
        };
        assert_eq!((map.nodes.len(), ends(&map)), (graph.nodes.len(), ends(&graph)), "{name}");

        graph.complete(&Missing { rate: Rate::from_mbits(10), delay: Span::from_millis(1) });
        let repetita = formats::read(&formats::print_repetita(&graph), &format!("{name}.graph")).unwrap();
        let links = |graph: &Graph| graph.links().iter().map(|link| link.ends).collect::<Vec<_>>();
        assert_eq!((repetita.nodes.len(), links(&repetita)), (graph.nodes.len(), links(&graph)), "{name}");
        assert!(repetita.edges.iter().all(|edge| edge.rate.is_some() && edge.delay.is_some()), "{name}");
    }
}

#[test]
fn the_topology_zoo_is_read() {
    let Some(zoo) = graphs("zoo", ".graphml") else { return };
    assert_eq!(totals(&zoo), (276, 10_952, 13_976, 2));
    let speeds = zoo.values().flat_map(|graph| &graph.edges).filter(|edge| edge.rate.is_some()).count();
    let placed = zoo.values().flat_map(|graph| &graph.nodes).filter(|node| node.position.is_some()).count();
    assert_eq!((speeds, placed), (3_928, 10_952 - 2_137));
    let abilene = &zoo["Abilene.graphml"];
    assert_eq!((abilene.name.as_str(), abilene.nodes.len(), abilene.edges.len()), ("Abilene", 11, 14));
    assert_eq!((abilene.nodes[0].name.as_str(), abilene.nodes[0].position), ("New York", Some((-74.00597, 40.71427))));
}

#[test]
fn the_repetita_networks_are_read() {
    let Some(repetita) = graphs("repetita", ".graph") else { return };
    // Interoute has two loops, in both directions.
    assert_eq!(totals(&repetita), (260, 9_459, 24_550, 4));
    assert!(repetita.values().flat_map(|graph| &graph.edges).all(|edge| edge.directed && edge.delay.is_some()));
    let abilene = &repetita["Abilene.graph"];
    assert_eq!((abilene.nodes.len(), abilene.edges.len()), (11, 28));
    assert_eq!(abilene.edges[0].rate.map(|rate| rate.as_mbits()), Some(9_953.28));
}

#[test]
fn the_rocketfuel_maps_are_read() {
    let Some(maps) = graphs("rocketfuel", ".r0.cch") else { return };
    // Neighbours in the lines: 29 019, of which 27 are loops.
    assert_eq!(totals(&maps), (9, 4_019, (29_019 - 27) / 2 + 27, 27));
    assert_eq!((maps["1221.r0.cch"].nodes.len(), maps["1221.r0.cch"].edges.len()), (378, 784));
    let Some(pops) = graphs("rocketfuel", ".pop.cch") else { return };
    assert_eq!(totals(&pops), (1, 506, 750, 0));
}
