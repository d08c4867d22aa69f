//! What other programs write, and how it was read.

use sidestep_net::{Rate, Span};

use super::super::*;

/// As networkx writes it: `capacity` and `length` of edges, `lat` and `lon` of nodes, and keys of no use.
const NETWORKX: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d5" for="edge" attr.name="fid" attr.type="long"/>
  <key id="d4" for="edge" attr.name="length" attr.type="double"/>
  <key id="d3" for="edge" attr.name="capacity" attr.type="long"/>
  <key id="d2" for="node" attr.name="color" attr.type="string"/>
  <key id="d1" for="node" attr.name="lon" attr.type="double"/>
  <key id="d0" for="node" attr.name="lat" attr.type="double"/>
  <graph edgedefault="undirected">
    <node id="Bern"><data key="d0">46.9</data><data key="d1">7.4</data><data key="d2">red</data></node>
    <node id="Genf"><data key="d0">46.2</data><data key="d1">6.1</data></node>
    <node id="Chur"/>
    <edge source="Bern" target="Genf"><data key="d3">100</data><data key="d4">160</data><data key="d5">7</data></edge>
    <edge source="Bern" target="Chur"><data key="d3">40</data><data key="d4">240.5</data></edge>
    <edge source="Genf" target="Chur"><data key="d3">300</data></edge>
  </graph>
</graphml>
"#;

fn read_with(text: &str, file: &str, map: &[&str]) -> (Graph, Reading) {
    let mut mapping = Mapping::default();
    mapping.extend(map.iter().map(|one| one.parse::<Mapping>().unwrap()));
    read_as(text, file, &mapping).unwrap()
}

fn rates(graph: &Graph) -> Vec<Option<f64>> {
    graph.edges.iter().map(|edge| edge.rate.map(Rate::as_mbits)).collect()
}

#[test]
fn keys_of_networkx_are_understood_and_all_others_named() {
    let (graph, reading) = read_with(NETWORKX, "a.graphml", &[]);
    assert_eq!(graph.nodes[0].position, Some((7.4, 46.9)));
    assert_eq!(rates(&graph), [Some(100_000.0), Some(40_000.0), Some(300_000.0)]);
    let delays: Vec<_> = graph.edges.iter().map(|edge| edge.delay).collect();
    assert_eq!(delays, [Some(Span::from_micros(800)), Some(Span::from_nanos(1_202_500)), None]);
    assert_eq!(
        reading.lines(),
        [
            "positions: key `lon` and `lat`, 2 of 3",
            "rates: key `capacity`, 3 of 3, Gbit/s assumed",
            "delays: key `length`, 2 of 3, km assumed",
            "weights: none in the file; 1 each",
            "ignored: `fid`, `color`",
        ]
    );
}

#[test]
fn the_user_says_what_a_key_means() {
    let (graph, reading) = read_with(NETWORKX, "a.graphml", &["capacity=rate:Mbit/s", "length=delay:ms", "fid=weight"]);
    assert_eq!(rates(&graph), [Some(100.0), Some(40.0), Some(300.0)]);
    assert_eq!(graph.edges[0].delay, Some(Span::from_millis(160)));
    assert_eq!(graph.edges.iter().map(|edge| edge.weight).collect::<Vec<_>>(), [Some(7.0), None, None]);
    assert!(reading.lines().contains(&"rates: key `capacity`, 3 of 3, Mbit/s".into()), "{reading:?}");
    let (graph, reading) = read_with(NETWORKX, "a.graphml", &["capacity=ignore"]);
    assert_eq!(rates(&graph), [None; 3]);
    assert_eq!(reading.ignored, ["fid", "capacity", "color"]);
    let mapping: Mapping = "bandwidth=rate".parse().unwrap();
    let missing = read_as(NETWORKX, "a.graphml", &mapping).unwrap_err().to_string();
    assert!(missing.contains("there is no key `bandwidth` to map; there are `fid`, `length`, `capacity`"), "{missing}");
    let wrong: Mapping = "color=name".parse().unwrap();
    assert_eq!(read_as(NETWORKX, "a.graphml", &wrong).unwrap().0.nodes[0].name, "red");
}

#[test]
fn values_with_units_lower_case_positions_and_metrics_are_read() {
    let text = r#"<graphml><key id="x" for="node" attr.name="longitude"/><key id="y" for="node" attr.name="latitude"/>
<key id="c" for="edge" attr.name="bandwidth"/><key id="d" for="edge" attr.name="delay"/><key id="w" for="edge" attr.name="metric"/>
<key id="n" for="node" attr.name="name"/><graph edgedefault="undirected">
<node id="n0"><data key="x">7.4</data><data key="y">46.9</data><data key="n">Bern</data></node><node id="n1"/>
<edge source="n0" target="n1"><data key="c">10G</data><data key="d">3.5</data><data key="w">40</data></edge>
<edge source="n0" target="n1"><data key="c">2.5 Gbit/s</data><data key="d">700us</data></edge></graph></graphml>"#;
    let (graph, reading) = read_with(text, "a.graphml", &[]);
    assert_eq!((graph.nodes[0].name.as_str(), graph.nodes[1].name.as_str()), ("Bern", "n1"));
    assert_eq!(graph.nodes[0].position, Some((7.4, 46.9)));
    assert_eq!(rates(&graph), [Some(10_000.0), Some(2_500.0)]);
    assert_eq!(graph.edges[0].delay, Some(Span::from_micros(3_500)));
    assert_eq!((graph.edges[1].delay, graph.edges[0].weight), (Some(Span::from_micros(700)), Some(40.0)));
    assert!(reading.lines().contains(&"delays: key `delay`, 2 of 2, ms assumed".into()), "{reading:?}");
    // A guess that fails is no error, and is said.
    let (graph, reading) = read_with(&text.replace(">3.5<", ">low<"), "a.graphml", &[]);
    assert_eq!(graph.edges[1].delay, None);
    assert_eq!(reading.warnings, ["the key `delay` is not read: the delay `low` is not a finite number"]);
    assert_eq!(reading.ignored, ["delay"]);
}

#[test]
fn labels_of_yed_and_prefixes_of_namespaces_are_read() {
    let text = r#"<graphml xmlns:y="http://www.yworks.com/xml/graphml"><key id="d0" for="node" yfiles.type="nodegraphics"/>
<graph edgedefault="undirected"><node id="n0"><data key="d0"><y:ShapeNode><y:Geometry x="1"/><y:NodeLabel>Bern<y:LabelModel/></y:NodeLabel></y:ShapeNode></data></node>
<node id="n1"><data key="d0"><y:ShapeNode/></data></node><edge source="n0" target="n1"/></graph></graphml>"#;
    let (graph, _) = read_with(text, "a.graphml", &[]);
    assert_eq!((graph.nodes[0].name.as_str(), graph.nodes[1].name.as_str(), graph.edges.len()), ("Bern", "n1", 1));
    let text = "<g:graphml xmlns:g=\"x\"><g:graph edgedefault=\"directed\"><g:node id=\"a\"/><g:node id=\"b\"/>\
                <g:edge source=\"a\" target=\"b\"/></g:graph></g:graphml>";
    let (graph, reading) = read_with(text, "a.graphml", &[]);
    assert_eq!((graph.nodes.len(), graph.edges.len()), (2, 1));
    assert!(reading.lines().contains(&"directions: none in the file; 1 of 1 links have one direction only".into()));
}

#[test]
fn sndlib_is_read_with_coordinates_and_capacities() {
    let text = r#"<?xml version="1.0"?><network xmlns="http://sndlib.zib.de/network" version="1.0">
<meta><granularity>5min</granularity></meta><networkStructure><nodes coordinatesType="geographical">
<node id="ATLA"><coordinates><x>-84.38</x><y>33.75</y></coordinates></node>
<node id="CHIN"><coordinates><x>-87.62</x><y>41.85</y></coordinates></node></nodes>
<links><link id="L1"><source>ATLA</source><target>CHIN</target>
<preInstalledModule><capacity>9920.0</capacity><cost>0.0</cost></preInstalledModule>
<additionalModules><addModule><capacity>40000.0</capacity><cost>133.0</cost></addModule></additionalModules></link></links>
</networkStructure><demands><demand id="D1"><source>ATLA</source><target>CHIN</target></demand></demands></network>"#;
    let (graph, reading) = read_with(text, "abilene.xml", &[]);
    assert_eq!((graph.nodes[0].name.as_str(), graph.nodes[1].position), ("ATLA", Some((-87.62, 41.85))));
    assert_eq!((graph.edges.len(), rates(&graph)), (1, vec![Some(9_920.0)]));
    assert!(!graph.edges[0].directed);
    assert!(reading.lines().contains(&"rates: key `capacity`, 1 of 1, Mbit/s assumed".into()), "{reading:?}");
    let broken = read(&text.replace("<target>CHIN</target>\n<pre", "<pre"), "abilene.xml").unwrap_err().to_string();
    assert!(broken.starts_with("abilene.xml:5:8: a link needs a `<source>` and a `<target>`"), "{broken}");
}

/// A ring of four with delays of some milliseconds; three nodes are placed.
fn repetita(delays: [f64; 4]) -> String {
    let places = ["Bern 7.4 46.9", "Genf 6.1 46.2", "Rom 12.5 41.9", "Wien 16.4 48.2"];
    let edge = |(index, delay): (usize, &f64)| format!("e{index} {index} {} 1 1000000 {delay}\n", (index + 1) % 4);
    let edges: String = delays.iter().enumerate().map(edge).collect();
    format!("NODES 4\nlabel x y\n{}\n\nEDGES 4\nlabel src dest weight bw delay\n{edges}", places.join("\n"))
}

#[test]
fn delays_in_the_wrong_unit_are_warned_of_and_mended_by_a_mapping() {
    let (graph, reading) = read_with(&repetita([1.0, 4.0, 5.0, 5.0]), "a.graph", &[]);
    assert_eq!(graph.edges[1].delay, Some(Span::from_micros(4)));
    let warning = reading.warnings.iter().find(|warning| warning.starts_with("delays, key `delay`")).unwrap();
    assert!(warning.contains("4 of 4 are less than light takes") && warning.contains("--map"), "{warning}");
    let (graph, reading) = read_with(&repetita([1.0, 4.0, 5.0, 5.0]), "a.graph", &["delay=delay:ms"]);
    assert_eq!(graph.edges[1].delay, Some(Span::from_millis(4)));
    assert!(!reading.warnings.iter().any(|warning| warning.starts_with("delays")), "{reading:?}");
    // Without positions the median alone shows it.
    let nowhere = repetita([1.0, 4.0, 5.0, 5.0])
        .replace("7.4 46.9", "0 0")
        .replace("6.1 46.2", "0 0")
        .replace("12.5 41.9", "0 0");
    let (graph, reading) = read_with(&nowhere, "a.graph", &[]);
    assert_eq!(graph.nodes.iter().filter(|node| node.position.is_some()).count(), 1, "0, 0 is no place");
    let expected = "delays, key `delay`: the median is 5 µs, 1 km of fibre; --map names another unit";
    assert!(reading.warnings.iter().any(|warning| warning == expected), "{reading:?}");
    let expected = "rates, key `bw`: all 4 are the same";
    assert!(reading.warnings.iter().any(|warning| warning == expected), "{reading:?}");
}

#[test]
fn a_network_in_parts_is_offered_its_largest() {
    let text = "<graphml><graph><node id=\"a\"/><node id=\"b\"/><node id=\"c\"/><edge source=\"a\" target=\"b\"/></graph></graphml>";
    let (_, reading) = read_with(text, "a.graphml", &[]);
    let warning = reading.warnings.first().unwrap();
    assert!(warning.starts_with("the network is in 2 parts") && warning.contains("--part largest"), "{warning}");
    assert!(warning.ends_with("takes that of 2 of 3 nodes"), "{warning}");
}

/// What networkx 3 writes for the network of [`NETWORKX`], without its keys of no use.
pub(super) const GML: &str = r#"graph [
  directed 1
  node [
    id 0
    label "Bern"
    lat 46.9
    lon 7.4
  ]
  node [
    id 1
    label "S&#227;o &quot;X&quot;"
    graphics [ x 1 y [ z 2 ] ]
  ]
  edge [
    source 0
    target 1
    capacity 100
    length 160.0
  ]
  edge [
    source 1
    target 0
    capacity 40
    color "red"
  ]
]
"#;

#[test]
fn gml_of_networkx_is_read() {
    let (graph, reading) = read_with(GML, "a.gml", &["capacity=rate:Mbit/s"]);
    assert_eq!((graph.nodes[1].name.as_str(), graph.nodes[0].position), ("São \"X\"", Some((7.4, 46.9))));
    assert_eq!(rates(&graph), [Some(100.0), Some(40.0)]);
    assert_eq!((graph.edges[0].delay, graph.edges[0].directed), (Some(Span::from_micros(800)), true));
    assert_eq!((graph.links().len(), &reading.ignored), (1, &vec!["color".to_owned()]));
    let error = |old: &str, new: &str| read(&GML.replacen(old, new, 1), "a.gml").unwrap_err().to_string();
    assert!(
        error("target 1", "target 7").starts_with("a.gml:16:12: there is no node `7`"),
        "{}",
        error("target 1", "target 7")
    );
    assert!(error("    source 0\n", "").starts_with("a.gml:14:3: an edge needs a `source` and a `target`"));
    assert!(read(&GML[..GML.len() - 3], "a.gml").unwrap_err().to_string().contains("the text ends within a list"));
    let deep = format!("graph [ a {} ]", "[ a ".repeat(1_000_000));
    assert!(read(&deep, "a.gml").unwrap_err().to_string().contains("nested deeper than 64 levels"));
}

pub(super) const NODE_LINK: &str = r#"{"directed": true, "multigraph": false, "graph": {"name": ["x", {"y": 1}]},
 "nodes": [{"id": 0, "name": "Bern \u00e9", "lat": 46.9, "lon": 7.4}, {"id": 1, "tags": {"a": [1, "]"]}}],
 "links": [{"source": 0, "target": 1, "capacity": 1000.0, "fid": null}, {"capacity": 500, "source": 1, "target": 0}]}"#;

#[test]
fn node_link_json_of_networkx_is_read() {
    let text = NODE_LINK;
    let (graph, reading) = read_with(text, "a.json", &[]);
    assert_eq!((graph.nodes[0].name.as_str(), graph.nodes[1].name.as_str()), ("Bern é", "1"));
    assert_eq!((rates(&graph), graph.links().len()), (vec![Some(1_000.0), Some(500.0)], 1));
    assert_eq!(reading.ignored, ["tags", "fid"]);
    assert!(reading.lines().contains(&"rates: key `capacity`, 2 of 2, Mbit/s assumed".into()), "{reading:?}");
    let error = |old: &str, new: &str| read(&text.replacen(old, new, 1), "a.json").unwrap_err().to_string();
    assert!(
        error("\"target\": 1", "\"target\": 5").starts_with("a.json:3:36: there is no node `5`"),
        "{}",
        error("\"target\": 1", "\"target\": 5")
    );
    assert!(error("\"nodes\"", "\"knots\"").contains("there is no array `nodes`"));
    assert!(error("46.9,", "46.9").contains("stands where `,` or `}` should"), "{}", error("46.9,", "46.9"));
    let deep = format!("{{\"x\": {}", "[".repeat(1_000_000));
    assert!(read(&deep, "a.json").unwrap_err().to_string().contains("nested deeper than 64 levels"));
}
