//! REPETITA's `.graph` files: a section of nodes and a section of edges, each with its count and a line of titles.
//!
//! Nodes are numbered from 0. Each direction of a link is an edge of its own, with weight, bandwidth in kbit/s and delay
//! in microseconds, unless the user maps these columns otherwise.

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, Role,
    raw::{Fixed, Key, Raw, RawEdge, RawNode, Text},
    shown,
    words::{Piece, lines},
};

const NODE: [&str; 3] = ["label", "x", "y"];
const EDGE: [&str; 6] = ["label", "src", "dest", "weight", "bw", "delay"];

/// The columns that are read.
const COLUMNS: [Fixed; 5] = [
    ("x", true, Role::Longitude, None),
    ("y", true, Role::Latitude, None),
    ("weight", false, Role::Weight, None),
    ("bw", false, Role::Rate, Some("kbit/s")),
    ("delay", false, Role::Delay, Some("µs")),
];

/// Reads a `.graph` file.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let mut file = Lines { lines: lines(text), end: text.len() };
    let mut raw = Raw::default();
    for (name, of_nodes, ..) in COLUMNS {
        let mut key = Key::new(name, (of_nodes, !of_nodes), mapping, &COLUMNS);
        key.is_used = true;
        raw.keys.push(key);
    }
    let cell = |key: u32, field: Piece<'_>| (key, Text { at: field.at, text: field.text.into() });
    let count = file.section("NODES", NODE, MAX_NODES)?;
    for index in 0..count {
        let line = file.next(|| format!("node {index} of {count}"))?;
        let [label, x, y] = line.fields(format_args!("node {index} of {count}: label, longitude and latitude"))?;
        raw.nodes.push(RawNode { id: label.text.into(), cells: vec![cell(0, x), cell(1, y)] });
    }
    let count = file.section("EDGES", EDGE, MAX_EDGES)?;
    for index in 0..count {
        let line = file.next(|| format!("edge {index} of {count}"))?;
        let [_, from, to, weight, rate, delay] = line.fields("an edge: label, ends, weight, bandwidth and delay")?;
        let nodes = raw.nodes.len();
        let end = |field: Piece<'_>| match field.text.parse() {
            Ok(index) if index < nodes => Ok(index),
            _ => Err(field.fault(format!("there is no node `{}`; nodes are numbers below {nodes}", shown(field.text)))),
        };
        let (from, to) = (end(from)?, end(to)?);
        let cells = vec![cell(2, weight), cell(3, rate), cell(4, delay)];
        raw.edges.push(RawEdge { from, to, directed: true, cells });
    }
    match file.lines.next() {
        Some(line) => Err(line.fault(format!("there are more lines than the {count} edges that `EDGES` announced"))),
        None => Ok(raw),
    }
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
