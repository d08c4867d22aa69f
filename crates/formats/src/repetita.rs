//! REPETITA's `.graph` files: a section of nodes and a section of edges, each with its count and a line of titles.
//!
//! Nodes are numbered from 0. Each direction of a link is an edge of its own, with weight, bandwidth in kbit/s and delay
//! in microseconds.

use super::{
    Fault, Graph, GraphEdge, GraphNode, MAX_EDGES, MAX_NODES, add_edge, add_node, quantity, shown,
    words::{Piece, lines},
};

const NODE: [&str; 3] = ["label", "x", "y"];
const EDGE: [&str; 6] = ["label", "src", "dest", "weight", "bw", "delay"];

/// Reads a `.graph` file.
pub(super) fn read(text: &str) -> Result<Graph, Fault> {
    let mut file = Lines { lines: lines(text), end: text.len() };
    let mut graph = Graph::default();
    let count = file.section("NODES", NODE, MAX_NODES)?;
    for index in 0..count {
        let line = file.next(|| format!("node {index} of {count}"))?;
        let [label, x, y] = line.fields(format_args!("node {index} of {count}: label, longitude and latitude"))?;
        let coordinate =
            |what, field: Piece<'_>| quantity::number(what, field.text).map_err(|error| field.fault(error));
        let position = Some((coordinate("longitude", x)?, coordinate("latitude", y)?));
        add_node(&mut graph, label.at, GraphNode { name: label.text.into(), position })?;
    }
    let count = file.section("EDGES", EDGE, MAX_EDGES)?;
    for index in 0..count {
        let line = file.next(|| format!("edge {index} of {count}"))?;
        let edge = edge(line, graph.nodes.len())?;
        add_edge(&mut graph, line.at, edge)?;
    }
    match file.lines.next() {
        Some(line) => Err(line.fault(format!("there are more lines than the {count} edges that `EDGES` announced"))),
        None => Ok(graph),
    }
}

fn edge(line: Piece<'_>, nodes: usize) -> Result<GraphEdge, Fault> {
    let [_, from, to, weight, rate, delay] = line.fields("an edge: label, ends, weight, bandwidth and delay")?;
    let end = |field: Piece<'_>| match field.text.parse() {
        Ok(index) if index < nodes => Ok(index),
        _ => Err(field.fault(format!("there is no node `{}`; nodes are numbers below {nodes}", shown(field.text)))),
    };
    Ok(GraphEdge {
        from: end(from)?,
        to: end(to)?,
        directed: true,
        weight: Some(quantity::amount("weight", weight.text).map_err(|error| weight.fault(error))?),
        rate: Some(quantity::rate("bandwidth", rate.text, 1_000).map_err(|error| rate.fault(error))?),
        delay: Some(quantity::delay("delay", delay.text, 1_000).map_err(|error| delay.fault(error))?),
    })
}

struct Lines<I> {
    lines: I,
    end: usize,
}

impl<'t, I: Iterator<Item = Piece<'t>>> Lines<I> {
    /// The next line that is not blank; `expected` describes what should stand there.
    fn next(&mut self, expected: impl FnOnce() -> String) -> Result<Piece<'t>, Fault> {
        self.lines.next().ok_or_else(|| Fault::new(self.end, format!("the file ends before {}", expected())))
    }

    /// The head of a section: its name with the count of its lines, then the titles.
    fn section<const N: usize>(&mut self, name: &str, titles: [&str; N], limit: usize) -> Result<usize, Fault> {
        let line = self.next(|| format!("`{name}` and how many there are"))?;
        let [word, count] = line.fields(format_args!("`{name}` and how many there are"))?;
        if word.text != name {
            return Err(word.fault(format!("`{}` stands where `{name}` should", shown(word.text))));
        }
        let bad = |problem| count.fault(format!("`{}` is {problem}", shown(count.text)));
        let number: u64 = count.text.parse().map_err(|_| bad("not a count".into()))?;
        let number = usize::try_from(number).ok().filter(|number| *number <= limit);
        let number = number.ok_or_else(|| bad(format!("more than the {limit} that may be")))?;
        let line = self.next(|| format!("the titles `{}`", titles.join(" ")))?;
        if !line.words().map(|word| word.text).eq(titles) {
            return Err(line.fault(format!("the titles must be `{}`", titles.join(" "))));
        }
        Ok(number)
    }
}
