//! Files of each dialect have what networkx reads from them; `corpus/make.py` writes them and `corpus/expected.json`.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use sidestep_formats::{self as formats, Mapping};
use sidestep_net::{Graph, GraphEdge};

/// What a file has: rates in Gbit/s, delays in ms, summed over all edges; `None` if it has none.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Expected {
    nodes: usize,
    edges: usize,
    links: usize,
    rates: Option<f64>,
    delays: Option<f64>,
    weights: Option<f64>,
    /// networkx, or the hand that did the arithmetic.
    by: String,
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus"))
}

fn read(name: &str) -> (Graph, formats::Reading) {
    let text = |name: &str| fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let other = formats::companion(name).filter(|name| folder().join(name).exists());
    let other = other.map(|name| (text(&name), name));
    let other = other.as_ref().map(|(text, name)| (text.as_str(), name.as_str()));
    formats::read_with(&text(name), name, other, &Mapping::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn found(graph: &Graph, by: &str) -> Expected {
    let total = |value: &dyn Fn(&GraphEdge) -> Option<f64>| {
        let values: Vec<f64> = graph.edges.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| (values.iter().sum::<f64>() * 1e9).round() / 1e9)
    };
    Expected {
        nodes: graph.nodes.len(),
        edges: graph.edges.len(),
        links: graph.links().len(),
        rates: total(&|edge| Some(edge.rate?.bits_per_sec() as f64 / 1e9)),
        delays: total(&|edge| Some(edge.delay?.as_nanos() as f64 / 1e6)),
        weights: total(&|edge| edge.weight),
        by: by.into(),
    }
}

#[test]
fn files_of_each_dialect_have_what_networkx_reads_from_them() {
    let expected = fs::read_to_string(folder().join("expected.json")).unwrap();
    let expected: BTreeMap<String, Expected> = serde_json::from_str(&expected).unwrap();
    assert!(expected.len() >= 29, "{} files", expected.len());
    for (name, expected) in &expected {
        let (graph, reading) = read(name);
        assert_eq!(found(&graph, &expected.by), *expected, "{name}: {:#?}", reading.lines());
    }
}

#[test]
fn every_file_of_the_corpus_has_expected_values() {
    let expected = fs::read_to_string(folder().join("expected.json")).unwrap();
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_tool = ["make.py", "expected.json"].contains(&name.as_str());
        assert!(is_tool || expected.contains(&format!("\"{name}")), "{name} has no expected values");
    }
}

#[test]
fn names_and_places_are_those_that_were_written() {
    for name in ["networkx.graphml", "networkx.gml", "igraph.graphml", "igraph.gml", "node_link_new.json"] {
        let (graph, _) = read(name);
        let names: Vec<&str> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["Bern", "Genf", "Chur", "Basel", "São"], "{name}");
        assert_eq!(graph.nodes[4].position, Some((-46.63, -23.55)), "{name}");
    }
    for name in ["sndlib.xml", "sndlib.txt"] {
        assert_eq!(read(name).0.nodes[1].position, Some((-87.62, 41.83)), "{name}");
    }
    let (lab, _) = read("lab.clab.yml");
    assert_eq!((lab.name.as_str(), lab.nodes[0].position), ("lab", Some((7.45, 46.95))));
    assert_eq!(read("isp/weights.intra").0.name, "isp");
    assert_eq!(read("header.txt").0.nodes[1].name, "New York");
    assert_eq!(read("directions.csv").0.nodes[3].name, "d;1");
}

#[test]
fn each_account_names_what_was_read_assumed_and_left() {
    let lines = |name: &str| read(name).1.lines().join("\n");
    insta::assert_snapshot!(lines("networkx.csv"), @r"
    positions: none in the file
    rates: key `capacity`, 5 of 5, Gbit/s assumed
    delays: key `delay`, 5 of 5, ms assumed
    weights: key `weight`, 5 of 5
    directions: none in the file; a line is both directions of a link
    ignored: `fid`
    ");
    insta::assert_snapshot!(lines("networkx.edgelist"), @r"
    positions: none in the file
    rates: key `capacity`, 5 of 5, Gbit/s assumed
    delays: key `delay`, 5 of 5, ms assumed
    weights: key `weight`, 5 of 5
    directions: none in the file; a line is both directions of a link
    ignored: `fid`
    ");
    insta::assert_snapshot!(lines("directions.csv"), @r"
    positions: none in the file
    rates: key `capacity`, 5 of 5, Gbit/s assumed
    delays: key `delay`, 5 of 5, ms assumed
    weights: none in the file; 1 each
    directions: none in the file; a line is one direction, as some links have a line for each; 1 of 3 links have one direction only
    ");
    insta::assert_snapshot!(lines("gephi.csv"), @r"
    positions: none in the file
    rates: none in the file
    delays: none in the file
    weights: key `Weight`, 3 of 3
    directions: key `Type`, 3 of 3
    ignored: `Id`, `Label`, `timeset`
    ");
    insta::assert_snapshot!(lines("waxman.brite"), @r"
    positions: none in the file
    rates: key `bandwidth`, 4 of 5, Mbit/s
    delays: key `delay`, 5 of 5, ms
    weights: none in the file; 1 each
    directions: none in the file; 1 of 5 links have one direction only
    ignored: `xpos`, `ypos`, `length`
    ");
    insta::assert_snapshot!(lines("sndlib.txt"), @r"
    positions: key `x` and `y`, 3 of 3
    rates: key `capacity`, 3 of 3, Mbit/s assumed
    delays: none in the file; from positions, 3 of 3
    weights: none in the file; 1 each
    ignored: `routing_cost`
    ");
    insta::assert_snapshot!(lines("isp/weights.intra"), @r"
    positions: none in the file
    rates: none in the file
    delays: key `latency`, 4 of 4, ms
    weights: key `weight`, 4 of 4
    ");
    insta::assert_snapshot!(lines("lab.clab.yml"), @r"
    positions: key `graph-geoCoordinateLng` and `graph-geoCoordinateLat`, 1 of 4
    rates: key `capacity`, 2 of 4
    delays: key `delay`, 2 of 4, ms assumed
    weights: none in the file; 1 each
    ignored: `<<`, `kind`, `type`, `mtu`
    warning: links to what is no node of the lab are left out: 1
    ");
}
