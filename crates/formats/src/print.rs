//! Graphs written as GraphML and as REPETITA, as the loaders read them.

use std::fmt::Write;

use sidestep_net::{Graph, GraphEdge, Rate};

/// The graph as GraphML with the Topology Zoo's keys, and `weight`.
///
/// Delays, risk groups and rates of 0 ("not limited") have no key in it and are left out. Names lose the characters that XML cannot hold and the
/// white space around them. Nodes without a name are named by their ids, `n0` and so on.
pub fn print_graphml(graph: &Graph) -> String {
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n",
    );
    for (id, name, kind, of) in [
        ("label", "label", "string", "node"),
        ("lon", "Longitude", "double", "node"),
        ("lat", "Latitude", "double", "node"),
        ("rate", "LinkSpeedRaw", "double", "edge"),
        ("weight", "weight", "double", "edge"),
    ] {
        let _ = writeln!(out, "  <key id=\"{id}\" attr.name=\"{name}\" attr.type=\"{kind}\" for=\"{of}\"/>");
    }
    out.push_str("  <graph edgedefault=\"undirected\">\n");
    let data = |key: &str, value: String| format!("<data key=\"{key}\">{value}</data>");
    for (index, node) in graph.nodes.iter().enumerate() {
        let _ = write!(out, "    <node id=\"n{index}\">");
        out.push_str(&data("label", xml(&node.name)));
        if let Some((longitude, latitude)) = node.position {
            out.push_str(&data("lon", longitude.to_string()));
            out.push_str(&data("lat", latitude.to_string()));
        }
        out.push_str("</node>\n");
    }
    for edge in &graph.edges {
        let GraphEdge { from, to, directed, weight, rate, .. } = edge;
        let directed = if *directed { " directed=\"true\"" } else { "" };
        let _ = write!(out, "    <edge source=\"n{from}\" target=\"n{to}\"{directed}>");
        let rate =
            rate.filter(|rate| *rate != Rate::default()).map(|rate| data("rate", rate.bits_per_sec().to_string()));
        let weight = weight.map(|weight| data("weight", weight.to_string()));
        rate.into_iter().chain(weight).for_each(|data| out.push_str(&data));
        out.push_str("</edge>\n");
    }
    out.push_str("  </graph>\n</graphml>\n");
    out
}

/// The graph as REPETITA's `.graph`; an undirected edge becomes two, one in each direction.
///
/// An edge without a weight gets 1, without a rate or with one of 0 ("not limited") 1 Gbit/s, and without a delay zero; [`Graph::complete`] fills in
/// better values. White space and control characters in names are replaced. Nodes without a position are at 0, 0, as in
/// REPETITA's own files.
pub fn print_repetita(graph: &Graph) -> String {
    let mut out = format!("NODES {}\nlabel x y\n", graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        let (longitude, latitude) = node.position.unwrap_or_default();
        let mut name = node.name.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        if name.is_empty() {
            name = format!("n{index}");
        }
        let _ = writeln!(out, "{name} {longitude} {latitude}");
    }
    let both = |edge: &GraphEdge| if edge.directed { 1 } else { 2 };
    let _ = write!(out, "\nEDGES {}\nlabel src dest weight bw delay\n", graph.edges.iter().map(both).sum::<usize>());
    let mut index = 0;
    for edge in &graph.edges {
        let weight = edge.weight.unwrap_or(1.0);
        let kilobits =
            edge.rate.filter(|rate| *rate != Rate::default()).map_or(1e6, |rate| rate.bits_per_sec() as f64 / 1e3);
        let micros = edge.delay.map_or(0.0, |delay| delay.as_nanos() as f64 / 1e3);
        for (from, to) in [(edge.from, edge.to), (edge.to, edge.from)].into_iter().take(both(edge)) {
            let _ = writeln!(out, "edge_{index} {from} {to} {weight} {kilobits} {micros}");
            index += 1;
        }
    }
    out
}

/// The text as XML content, without what XML 1.0 cannot hold.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
