//! BRITE's files (Medina and others 2001): a section of nodes and a section of edges, each with its count.
//!
//! ```text
//! Topology: ( N Nodes, M Edges )
//! Model (1 - RTWaxman): ...
//! Nodes: ( N )
//! ID XPOS YPOS INDEGREE OUTDEGREE AS TYPE
//! Edges: ( M )
//! ID FROM TO LENGTH DELAY BANDWIDTH AS_FROM AS_TO TYPE U|D
//! ```
//!
//! Delays are in ms and bandwidths in Mbit/s, as ns-3 and FNSS have it; -1 is none. Positions and lengths are of a plane that is
//! not the earth, and are read only where the user says as what.

use super::{
    Fault, MAX_EDGES, MAX_NODES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Fixed, Key, Raw, RawEdge, RawNode},
    shown,
    words::{Piece, lines},
};

/// The first word of such a file.
pub(super) const MAGIC: &str = "Topology:";

const COLUMNS: [Fixed; 5] = [
    ("xpos", true, Role::Ignore, None),
    ("ypos", true, Role::Ignore, None),
    ("length", false, Role::Ignore, None),
    ("delay", false, Role::Delay, Some("ms")),
    ("bandwidth", false, Role::Rate, Some("Mbit/s")),
];

/// Reads a BRITE file.
pub(super) fn read(text: &str, mapping: &Mapping) -> Result<Raw, Fault> {
    let (mut raw, mut ids) = (Raw::default(), Ids::new());
    for (name, of_nodes, ..) in COLUMNS {
        let mut key = Key::new(name, (of_nodes, !of_nodes), mapping, &COLUMNS);
        key.is_used = true;
        raw.keys.push(key);
    }
    let mut lines = lines(text);
    let expected = |at: usize, what: &str| Fault::new(at, format!("expected {what}"));
    match lines.next() {
        Some(line) if line.text.trim_start().starts_with(MAGIC) => {}
        other => return Err(expected(other.map_or(0, |line| line.at), "`Topology: ( N Nodes, M Edges )`")),
    }
    let head = lines.find(|line| line.text.trim_start().starts_with("Nodes:"));
    let nodes = count(head.ok_or_else(|| expected(text.len(), "`Nodes: ( N )`"))?, MAX_NODES)?;
    for index in 0..nodes {
        let line = lines.next().ok_or_else(|| expected(text.len(), &format!("node {index} of {nodes}")))?;
        let [id, x, y] = first(line, "a node: id, two coordinates, and more")?;
        let number = number(id, "the id of a node")?;
        check_count(id.at, "nodes", index, MAX_NODES)?;
        ids.declare(id.at, number, index)?;
        raw.nodes.push(RawNode { id: number.to_string(), cells: vec![(0, x.into()), (1, y.into())] });
    }
    let head = lines.next().ok_or_else(|| expected(text.len(), "`Edges: ( M )`"))?;
    if !head.text.trim_start().starts_with("Edges:") {
        return Err(head.fault(format!("expected `Edges: ( M )` behind the {nodes} nodes that `Nodes:` announced")));
    }
    let edges = count(head, MAX_EDGES)?;
    for index in 0..edges {
        let line = lines.next().ok_or_else(|| expected(text.len(), &format!("edge {index} of {edges}")))?;
        let [_, from, to, length, delay, bandwidth] =
            first(line, "an edge: id, both ends, length, delay, bandwidth, and more")?;
        let mut end = |field: Piece<'_>| ids.mention(field.at, number(field, "the id of a node")?);
        let (from, to) = (end(from)?, end(to)?);
        let is_known = |(_, field): &(u32, Piece<'_>)| field.text.parse() != Ok(-1.0);
        let cells = [(2, length), (3, delay), (4, bandwidth)].into_iter().filter(is_known);
        let cells = cells.map(|(key, field)| (key, field.into())).collect();
        let directed = line.words().nth(9).is_some_and(|word| word.text == "D");
        raw.edges.push(RawEdge { from, to, directed, cells });
    }
    if let Some(line) = lines.next() {
        return Err(line.fault(format!("there are more lines than the {edges} edges that `Edges:` announced")));
    }
    ids.settle(&mut raw)?;
    Ok(raw)
}

/// The count in the head of a section.
fn count(head: Piece<'_>, limit: usize) -> Result<usize, Fault> {
    let digits = head.text.trim().trim_end_matches(')').rsplit(['(', ' ', '\t', ':']).find(|part| !part.is_empty());
    let count = digits.and_then(|digits| digits.parse().ok()).filter(|count| *count <= limit);
    count.ok_or_else(|| head.fault(format!("expected a count in parentheses, of at most {limit}")))
}

/// The first fields of a line.
fn first<'t, const N: usize>(line: Piece<'t>, expected: &str) -> Result<[Piece<'t>; N], Fault> {
    let mut fields = [line; N];
    let mut words = line.words();
    for (number, field) in fields.iter_mut().enumerate() {
        let end = line.at + line.text.trim_end().len();
        *field = words.next().ok_or_else(|| Fault::new(end, format!("only {number} fields; expected {expected}")))?;
    }
    Ok(fields)
}

fn number(field: Piece<'_>, what: &str) -> Result<u64, Fault> {
    field.text.parse().map_err(|_| field.fault(format!("`{}` is not {what}", shown(field.text))))
}
