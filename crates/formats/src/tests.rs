mod conversion;
mod dialects;
mod errors;
mod properties;
mod tables;

use sidestep_net::{GraphEdge, GraphNode, Rate, Span};

use super::*;

/// Two nodes with labels and positions, one without, and a link of each kind.
const GRAPHML: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d0" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d1" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d2" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d3" />
  <key attr.name="weight" attr.type="double" for="edge" id="d4"><default>10</default></key>
  <key attr.name="label" attr.type="string" for="graph" id="d5" />
  <key attr.name="label" attr.type="string" for="edge" id="d6" />
  <graph edgedefault="undirected">
    <data key="d5">Skipped</data>
    <edge source="a" target="b"><data key="d3">45000000.0</data><data key="d6">DS3</data></edge>
    <node id="a"><data key="d0">S&#227;o &amp; <![CDATA[<Co>]]></data><data key="d1">-46.6</data><data key="d2">-23.5</data></node>
    <node id="b"><data key="d1">2.5</data></node>
    <node id="c"/>
    <edge source="a" target="b"/>
    <edge source="b" target="b" directed="true"><data key="d4">2.5</data></edge>
  </graph>
</graphml>
"#;

const REPETITA: &str = "NODES 3
label x y
0_New_York -74.00597 40.71427
1_None 0.0 0.0
2_Chicago -87.65005 41.85003

EDGES 3
label src dest weight bw delay
edge_0 0 2 10 9953280 1913
edge_1 2 0 10 9953280 1913
edge_2 0 0 1.5 0.064 0
";

const ROCKETFUEL: &str = "#in 1, saw 2 links
10 @Perth,+Australia + bb\t(4) &1 -> <30> <10> <20> <30> {-5} {-7}  =a.telstra.net! r0
20 @T  \t(1) -> <10> \t= r1
30 @Perth,+Australia + \t(2) -> <10> <40> =c r0
40 @Perth,+Australia \t(2) -> =d r0
50 @Perth,+Australia \t(0) ->   =139.130.73.113 r0
-5 =195.114.231.33 r1
";

fn node(name: &str, position: Option<(f64, f64)>) -> GraphNode {
    GraphNode { name: name.into(), position }
}

fn undirected(from: usize, to: usize) -> GraphEdge {
    GraphEdge { from, to, directed: false, weight: None, rate: None, delay: None }
}

#[test]
fn graphml_is_read_with_labels_positions_speeds_and_default_weights() {
    let graph = read(GRAPHML, "maps/Small.graphml").unwrap();
    assert_eq!(graph.name, "Small");
    assert_eq!(graph.nodes, [node("São & <Co>", Some((-46.6, -23.5))), node("b", None), node("c", None)]);
    let ten = GraphEdge { weight: Some(10.0), ..undirected(0, 1) };
    let fast = GraphEdge { rate: Some(Rate::from_mbits(45)), ..ten.clone() };
    let own = GraphEdge { directed: true, weight: Some(2.5), ..undirected(1, 1) };
    assert_eq!(graph.edges, [fast, ten, own]);
    assert_eq!(read(&format!("\u{feff}{GRAPHML}"), "Small.XML"), Ok(graph));
}

#[test]
fn repetita_is_read_with_an_edge_for_each_direction() {
    let graph = read(REPETITA, "Small.graph").unwrap();
    assert_eq!(graph.nodes[1..], [node("1_None", None), node("2_Chicago", Some((-87.65005, 41.85003)))]);
    let there = GraphEdge {
        directed: true,
        weight: Some(10.0),
        rate: Some(Rate::from_bits_per_sec(9_953_280_000)),
        delay: Some(Span::from_micros(1_913)),
        ..undirected(0, 2)
    };
    let back = GraphEdge { from: 2, to: 0, ..there.clone() };
    let own = GraphEdge {
        to: 0,
        weight: Some(1.5),
        rate: Some(Rate::from_bits_per_sec(64)),
        delay: Some(Span::ZERO),
        ..there.clone()
    };
    assert_eq!(graph.edges, [there, back, own]);
}

#[test]
fn rocketfuel_is_read_with_one_edge_for_each_link() {
    let graph = read(ROCKETFUEL, "1.r0.cch").unwrap();
    assert_eq!(graph.name, "1.r0");
    assert_eq!(graph.nodes, ["10", "20", "30", "40", "50"].map(|uid| node(uid, None)));
    // Line 10 lists neighbour 30 twice, line 30 lists 10 once; line 40 does not list its neighbour 30.
    assert_eq!(graph.edges, [(0, 0), (0, 1), (0, 2), (0, 2), (2, 3)].map(|(from, to)| undirected(from, to)));
}
