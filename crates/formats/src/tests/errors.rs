//! The error messages that a user sees.

use insta::assert_snapshot;

use super::{super::*, GRAPHML, REPETITA, ROCKETFUEL};

/// The error of `text` with the first `old` replaced by `new`.
fn changed(text: &str, file_name: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old} is not in the text");
    complaint(&text.replacen(old, new, 1), file_name)
}

fn complaint(text: &str, file_name: &str) -> String {
    read(text, file_name).expect_err("it is refused").to_string()
}

/// The first line of the error.
fn brief(text: &str, file_name: &str) -> String {
    complaint(text, file_name).lines().next().unwrap_or_default().into()
}

fn graphml(old: &str, new: &str) -> String {
    changed(GRAPHML, "a.graphml", old, new).lines().next().unwrap_or_default().into()
}

fn repetita(old: &str, new: &str) -> String {
    changed(REPETITA, "a.graph", old, new).lines().next().unwrap_or_default().into()
}

fn rocketfuel(old: &str, new: &str) -> String {
    changed(ROCKETFUEL, "a.cch", old, new).lines().next().unwrap_or_default().into()
}

#[test]
fn an_error_shows_the_line_and_the_place_in_it() {
    assert_snapshot!(changed(REPETITA, "maps/a.graph", "2 0 10", "2 3 10"), @r"
    maps/a.graph:10:10: there is no node `3`; nodes are numbers below 3
       |
    10 | edge_1 2 3 10 9953280 1913
       |          ^
    ");
    assert_snapshot!(changed(ROCKETFUEL, "a.cch", "<40>", "<60>"), @r"
    a.cch:4:37: there is no node `60`
      |
    4 | 30 @Perth,+Australia +  (2) -> <10> <60> =c r0
      |                                     ^
    ");
    assert_snapshot!(changed(GRAPHML, "a.graphml", "2.5</data></node>", "-inf</data></node>"), @r#"
    a.graphml:14:33: the longitude `-inf` is not a finite number
       |
    14 |     <node id="b"><data key="d1">-inf</data></node>
       |                                 ^
    "#);
}

#[test]
fn other_formats_are_refused_with_those_that_are_read() {
    assert_snapshot!(complaint("", "a.gml"), @"a.gml:1:1: there is no `graph [` in the file");
    assert_snapshot!(complaint("", "a.svg"), @"a.svg:1:1: `.svg` is not a topology format; read are GraphML (.graphml, .xml), SNDlib (.xml, .txt), GML (.gml), node-link (.json), REPETITA (.graph), Rocketfuel (.cch, .intra), BRITE (.brite), edge lists and tables (.csv, .tsv, .txt, .edges, .edgelist, .ncol), containerlab (.clab.yml) and our own (.toml)");
    assert_snapshot!(complaint("", "cch"), @"cch:1:1: the file's extension must name its format; known are GraphML (.graphml, .xml), SNDlib (.xml, .txt), GML (.gml), node-link (.json), REPETITA (.graph), Rocketfuel (.cch, .intra), BRITE (.brite), edge lists and tables (.csv, .tsv, .txt, .edges, .edgelist, .ncol), containerlab (.clab.yml) and our own (.toml)");
}

#[test]
fn weights_rates_and_delays_must_be_finite_and_not_negative() {
    let bad = ["NaN", "inf", "1e999", "-1", "x"];
    let weights = bad.map(|bad| repetita("10 9953280 1913", &format!("{bad} 9953280 1913")));
    assert_snapshot!(weights.join("\n"), @r"
    a.graph:9:12: the weight `NaN` is not a finite number
    a.graph:9:12: the weight `inf` is not a finite number
    a.graph:9:12: the weight `1e999` is not a finite number
    a.graph:9:12: the weight `-1` is negative
    a.graph:9:12: the weight `x` is not a finite number
    ");
    let bad = ["NaN", "inf", "1e999", "-1", "x", "1e18"];
    assert_snapshot!(bad.map(|bad| repetita("9953280", bad)).join("\n"), @r"
    a.graph:9:15: the rate `NaN` is not a finite number
    a.graph:9:15: the rate `inf` is not a finite number
    a.graph:9:15: the rate `1e999` is not a finite number
    a.graph:9:15: the rate `-1` is negative
    a.graph:9:15: the rate `x` is not a finite number
    a.graph:9:15: the rate is too large for its unit
    ");
    assert_snapshot!(bad.map(|bad| repetita("1913", bad)).join("\n"), @r"
    a.graph:9:23: the delay `NaN` is not a finite number
    a.graph:9:23: the delay `inf` is not a finite number
    a.graph:9:23: the delay `1e999` is not a finite number
    a.graph:9:23: the delay `-1` is negative
    a.graph:9:23: the delay `x` is not a finite number
    a.graph:9:23: the delay is too large for its unit
    ");
    assert_snapshot!(["0", "-1", "nan", "1e20"].map(|bad| graphml("45000000.0", bad)).join("\n"), @r"
    a.graphml:12:48: the rate `0` is less than 1 bit/s
    a.graphml:12:48: the rate `-1` is negative
    a.graphml:12:48: the rate `nan` is not a finite number
    a.graphml:12:48: the rate is too large for its unit
    ");
    assert_snapshot!(["-1", "nan"].map(|bad| graphml("<default>10", &format!("<default>{bad}"))).join("\n"), @r"
    a.graphml:7:74: the weight `-1` is negative
    a.graphml:7:74: the weight `nan` is not a finite number
    ");
    assert_snapshot!(repetita("40.71427", "north"), @"a.graph:3:22: the latitude `north` is not a finite number");
}

#[test]
fn a_file_that_ends_early_is_an_error_that_names_what_is_missing() {
    for (text, name) in [(REPETITA, "a.graph"), (ROCKETFUEL, "a.cch"), (GRAPHML, "a.graphml")] {
        assert!(brief("", name).contains(":1:1: "), "{name}");
        assert!(read(&text[..text.len() / 2], name).is_err(), "{name}");
    }
    assert_snapshot!(brief("", "a.graph"), @"a.graph:1:1: the file ends before `NODES` and how many there are");
    assert_snapshot!(brief("", "a.cch"), @"a.cch:1:1: there is not one node in the file");
    assert_snapshot!(brief("", "a.graphml"), @"a.graphml:1:1: expected `<graphml>`, or `<network>` of SNDlib");
    assert_snapshot!(brief(&REPETITA[..60], "a.graph"), @"a.graph:4:13: the file ends before node 2 of 3");
    assert_snapshot!(brief(&REPETITA[..44], "a.graph"), @"a.graph:3:27: the file ends before node 1 of 3");
    assert_snapshot!(brief(&GRAPHML[..GRAPHML.len() - 20], "a.graphml"), @"a.graphml:18:3: the text ends within `graph`");
    assert_snapshot!(brief("1 @T (1) -> <1>", "a.cch"), @"a.cch:1:16: expected a neighbour `<UID>`, an address `{-UID}`, or the name `=NAME` that ends them");
}

#[test]
fn repetita_sections_have_as_many_lines_as_they_say() {
    assert_snapshot!(repetita("NODES 3", "NODES 1000000000"), @"a.graph:1:7: `1000000000` is more than the 1000000 that may be");
    assert_snapshot!(repetita("NODES 3", "NODES 99999999999999999999"), @"a.graph:1:7: `99999999999999999999` is not a count");
    assert_snapshot!(repetita("NODES 3", "NODES 4"), @"a.graph:7:8: only 2 fields; expected node 3 of 4: label, longitude and latitude");
    assert_snapshot!(repetita("NODES 3", "NODES 2"), @"a.graph:5:21: more than 2 fields; expected `EDGES` and how many there are");
    assert_snapshot!(repetita("EDGES 3", "EDGES 900000"), @"a.graph:12:1: the file ends before edge 3 of 900000");
    assert_snapshot!(repetita("EDGES 3", "EDGES 2"), @"a.graph:11:1: there are more lines than the 2 edges that `EDGES` announced");
    assert_snapshot!(repetita("weight bw", "bw weight"), @"a.graph:8:1: the titles must be `label src dest weight bw delay`");
    assert_snapshot!(repetita("edge_1 2 0", "edge_1 -2 0"), @"a.graph:10:8: there is no node `-2`; nodes are numbers below 3");
    assert_snapshot!(repetita("1.5 0.064 0", "1.5 0.064 0 7"), @"a.graph:11:24: more than 6 fields; expected an edge: label, ends, weight, bandwidth and delay");
}

#[test]
fn a_rocketfuel_line_has_its_parts_in_order() {
    assert_snapshot!(rocketfuel("20 @T", "10 @T"), @"a.cch:3:1: node `10` exists twice; give each an id of its own");
    assert_snapshot!(rocketfuel("20 @T", "20 T"), @"a.cch:3:4: expected the router's location, `@` and a name");
    assert_snapshot!(rocketfuel("20 @T", "x @T"), @"a.cch:3:1: `x` is not the uid of a router");
    assert_snapshot!(rocketfuel("+ bb", "+ cc"), @"a.cch:2:24: `cc` stands where `+`, `bb`, `(COUNT)`, `&COUNT` or `->` should");
    assert_snapshot!(rocketfuel("(4) &1 ->", "(4) &1"), @"a.cch:2:34: `<30>` stands where `+`, `bb`, `(COUNT)`, `&COUNT` or `->` should");
    assert_snapshot!(rocketfuel("<20> <30>", "<20> <3O>"), @"a.cch:2:52: `<3O>` is not the uid of a neighbour");
    assert_snapshot!(rocketfuel("{-5}", "{5}"), @"a.cch:2:57: expected a neighbour `<UID>`, an address `{-UID}`, or the name `=NAME` that ends them");
    assert_snapshot!(rocketfuel("= r1", "= x"), @"a.cch:3:24: expected the distance, `r` and a number");
    assert_snapshot!(rocketfuel("=d r0", "=d r0 r1"), @"a.cch:5:36: the line should end before here");
    assert_snapshot!(rocketfuel("-5 =195", "-five =195"), @"a.cch:7:1: `-five` is not the uid of an address outside");
}

#[test]
fn graphml_that_is_malformed_is_pointed_at() {
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id=\"c\">"), @"a.graphml:18:3: not well-formed XML: expected `</node>`, but `</graph>` was found");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id=c/>"), @"a.graphml:15:14: an attribute's value stands in quotes");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id='c' id='d'/>"), @"a.graphml:15:18: the element has two attributes of this name");
    assert_snapshot!(graphml("<node id=\"c\"/>", "< node id='c'/>"), @"a.graphml:15:5: a name must follow `<`");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id='c'/>stray"), @"a.graphml:15:19: there should be no text within `graph`, but `stray`");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node/>"), @"a.graphml:15:5: `node` needs the attribute `id`");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id=\"b\"/>"), @"a.graphml:15:5: node `b` exists twice; give each an id of its own");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id=\"c\"><data key=\"d9\"/></node>"), @"a.graphml:15:18: no `<key>` before here has the id `d9`");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<node id=\"c\"><graph/></node>"), @"a.graphml:15:18: graphs within nodes are not read");
    assert_snapshot!(graphml("<node id=\"c\"/>", "<hyperedge/>"), @"a.graphml:15:5: hyperedges are not read; write a node and edges to it");
    assert_snapshot!(graphml("</graph>", "</graph><graph/>"), @"a.graphml:18:11: only one graph in a file is read, and this is the second");
    assert_snapshot!(graphml("</graphml>", "</graphml><graphml/>"), @"a.graphml:19:11: the file should end after `</graphml>`");
    assert_snapshot!(graphml("target=\"b\"/>", "target=\"z\"/>"), @"a.graphml:16:5: there is no node `z`");
    assert_snapshot!(graphml("directed=\"true\"", "directed=\"yes\""), @"a.graphml:17:5: `directed` must be `true` or `false`");
    assert_snapshot!(graphml("\"undirected\"", "\"mixed\""), @"a.graphml:10:3: `edgedefault` must be `directed` or `undirected`");
    assert_snapshot!(graphml("id=\"d6\"", "id=\"d5\""), @"a.graphml:9:3: key `d5` exists twice; give each an id of its own");
    assert_snapshot!(brief("<gml/>", "a.graphml"), @"a.graphml:1:1: expected `<graphml>`, or `<network>` of SNDlib");
    assert_snapshot!(brief("<graphml/>", "a.graphml"), @"a.graphml:1:11: there is no `<graph>` in the file");
    assert_snapshot!(brief("<graphml><graph/></graphml>", "a.graphml"), @"a.graphml:1:28: there is not one node in the file");
}

#[test]
fn graphml_expands_no_entities() {
    let laughs = "<!DOCTYPE lolz [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;\">]>\n<graphml>&b;</graphml>";
    assert_snapshot!(complaint(laughs, "a.graphml"), @r#"
    a.graphml:1:1: document type declarations are not read; remove it
      |
    1 | <!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>
      | ^
    "#);
    assert_snapshot!(graphml("S&#227;o &amp;", "&b;"), @"a.graphml:13:33: `&b;` stands for no character");
    assert_snapshot!(graphml("S&#227;o &amp;", "&#0;"), @"a.graphml:13:33: `&#0;` stands for no character");
    assert_snapshot!(graphml("source=\"a\"", "source=\"&b;\""), @"a.graphml:12:5: not well-formed XML: at 1..2: unrecognized entity `b`");
}

#[test]
fn deep_or_wide_elements_are_refused_without_recursion() {
    let deep = |open: &str| brief(&format!("<graphml>{}", open.repeat(5_000_000)), "a.graphml");
    assert_snapshot!(deep("<a>"), @"a.graphml:1:199: elements are nested deeper than 64 levels");
    assert_snapshot!(deep("<graph>"), @"a.graphml:1:451: elements are nested deeper than 64 levels");
    let attributes: String = (0..100_000).map(|number| format!(" a{number}=''")).collect();
    assert_snapshot!(brief(&format!("<graphml><graph{attributes}/></graphml>"), "a.graphml"), @"a.graphml:1:10: the element has more than 64 attributes");
    let named = format!("<graphml><{}>", "n".repeat(1_000_000));
    assert!(complaint(&named, "a.graphml").len() < 500);
}

#[test]
fn a_message_is_one_short_line_whatever_it_quotes() {
    let long = "é\u{1b}[2J".repeat(100_000);
    for text in [format!("NODES {long}"), format!("NODES 1\nlabel x y\n{long} {long} {long}\n")] {
        let message = read(&text, "a.graph").expect_err("it is refused").message;
        assert!(message.chars().count() < 200 && !message.contains(char::is_control), "{message}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let text = " ".repeat(MAX_TEXT + 1);
    assert_snapshot!(brief(&text, "a.graph"), @"a.graph:1:1: the file is larger than 64 MiB; is it the right one?");
    let mut routers: String = (0..=MAX_NODES).map(|uid| format!("{uid} @T -> = r0\n")).collect();
    assert_snapshot!(brief(&routers, "a.cch"), @"a.cch:1000001:1: there are more than 1000000 nodes");
    routers.truncate(routers.trim_end().rfind('\n').expect("there are more lines"));
    assert_eq!(read(&routers, "a.cch").map(|graph| graph.nodes.len()), Ok(MAX_NODES));
    let loops = |count| format!("1 @T -> {} = r0", "<1> ".repeat(count));
    assert_eq!(read(&loops(MAX_EDGES), "a.cch").map(|graph| graph.edges.len()), Ok(MAX_EDGES));
    assert_snapshot!(complaint(&loops(MAX_EDGES + 1), "a.cch"), @"
    a.cch:1:16000018: there are more than 4000000 edges
      |
    1 | 1> <1> <1> <1> <1> <1> <1> <1> <1>  = r0
      |                                         ^
    ");
    assert_snapshot!(complaint(&loops(2 * MAX_EDGES + 1), "a.cch"), @"
    a.cch:1:32000009: there are more than 4000000 edges
      |
    1 | <1> <1> <1> <1> <1> <1> <1> <1> <1> <1> <1>  = r0
      |                                         ^
    ");
    let unknown: String = (0..=MAX_NODES).map(|uid| format!("<{uid}> ")).collect();
    assert_snapshot!(complaint(&format!("1 @T -> {unknown} = r0"), "a.cch"), @"
    a.cch:1:8888899: there are more than 1000000 nodes
      |
    1 | 95> <999996> <999997> <999998> <999999> <1000000>  = r0
      |                                         ^
    ");
}
