//! Rocketfuel's `.cch` files: a line for each router, with its neighbours.
//!
//! ```text
//! uid @loc [+] [bb] (num_neigh) [&ext] -> <nuid-1> <nuid-2> ... {-euid} ... =name[!] rn
//! ```
//!
//! Links to addresses outside of the ISP (`{-euid}`), the lines about these (`-euid =address rn`) and comments (`#`)
//! are left out. The map is symmetric: a link stands in the lines of both its routers and becomes one edge. `num_neigh`
//! is ignored, because the published `r0` maps keep its value from before they were trimmed.

use super::{
    Fault, MAX_EDGES, MAX_NODES, check_count,
    ids::Ids,
    raw::{Raw, RawEdge, RawNode},
    shown,
    words::{Piece, lines},
};

/// Reads a `.cch` file.
pub(super) fn read(text: &str) -> Result<Raw, Fault> {
    let mut map = Map { raw: Raw::default(), ids: Ids::new(), neighbours: Vec::new() };
    for line in lines(text) {
        let mut words = line.words();
        let Some(first) = words.next() else { continue };
        if first.text.starts_with('#') {
            continue;
        }
        match first.text.strip_prefix('-') {
            Some(uid) => outside(line, first, uid, words)?,
            None => map.router(line, first, words)?,
        }
    }
    map.finish(text.len())
}

struct Map {
    raw: Raw,
    ids: Ids<u64>,
    /// Numbers of the ids of a router and of a neighbour in its line.
    neighbours: Vec<(u32, u32)>,
}

impl Map {
    fn router<'t>(
        &mut self,
        line: Piece<'t>,
        uid: Piece<'t>,
        mut words: impl Iterator<Item = Piece<'t>>,
    ) -> Result<(), Fault> {
        let id = number(uid, uid.text, "the uid of a router")?;
        let node = self.raw.nodes.len();
        check_count(uid.at, "nodes", node, MAX_NODES)?;
        self.raw.nodes.push(RawNode { id: id.to_string(), cells: Vec::new() });
        let router = self.ids.declare(uid.at, id, node)?;
        let mut words = words.by_ref();
        head(line, &mut words)?;
        for word in &mut words {
            if let Some(neighbour) = enclosed(word.text, "<", ">") {
                // Each edge stands in at most two lines.
                check_count(word.at, "edges", self.neighbours.len() / 2, MAX_EDGES)?;
                let neighbour = self.ids.mention(word.at, number(word, neighbour, "the uid of a neighbour")?)?;
                self.neighbours.push((router as u32, neighbour as u32));
            } else if let Some(address) = enclosed(word.text, "{-", "}") {
                number(word, address, "the uid of an address outside")?;
            } else {
                return tail(line, Some(word), words);
            }
        }
        tail(line, None, words)
    }

    /// The nodes, with an edge for each link, in the order of its routers; `end` is where the text ends.
    fn finish(self, end: usize) -> Result<Raw, Fault> {
        let Map { mut raw, ids, neighbours } = self;
        let nodes = ids.nodes()?;
        let node = |id: u32| nodes.get(id as usize).map_or(0, |node| *node as u32);
        let ends = neighbours.into_iter().map(|(router, neighbour)| (node(router), node(neighbour)));
        let mut ends: Vec<_> = ends.map(|(from, to)| (from.min(to), from.max(to), from > to)).collect();
        ends.sort_unstable();
        for link in ends.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let &[(from, to, _), ..] = link else { continue };
            // Both lines should list the link equally often. If they differ, the larger number counts.
            let backward = link.iter().filter(|(_, _, backward)| *backward).count();
            for _ in 0..backward.max(link.len() - backward) {
                let (from, to) = (from as usize, to as usize);
                check_count(end, "edges", raw.edges.len(), MAX_EDGES)?;
                raw.edges.push(RawEdge { from, to, directed: false, cells: Vec::new() });
            }
        }
        Ok(raw)
    }
}

/// What stands between uid and neighbours: location, marks, and the counts of neighbours.
fn head<'t>(line: Piece<'t>, words: &mut impl Iterator<Item = Piece<'t>>) -> Result<(), Fault> {
    match words.next() {
        Some(word) if word.text.starts_with('@') => {}
        other => return Err(other.unwrap_or(end(line)).fault("expected the router's location, `@` and a name")),
    }
    for word in words {
        match word.text {
            "+" | "bb" => {}
            "->" => return Ok(()),
            text => match enclosed(text, "(", ")").or_else(|| text.strip_prefix('&')) {
                Some(count) => drop(number(word, count, "a count of neighbours")?),
                None => {
                    return Err(word.fault(format!(
                        "`{}` stands where `+`, `bb`, `(COUNT)`, `&COUNT` or `->` should",
                        shown(text)
                    )));
                }
            },
        }
    }
    Err(end(line).fault("the line ends before `->` and the neighbours"))
}

/// What follows the neighbours: the router's name and its distance. `first` is the first of these words.
fn tail<'t>(
    line: Piece<'t>,
    first: Option<Piece<'t>>,
    mut words: impl Iterator<Item = Piece<'t>>,
) -> Result<(), Fault> {
    match first {
        Some(word) if word.text.starts_with('=') => {}
        other => {
            let message = "expected a neighbour `<UID>`, an address `{-UID}`, or the name `=NAME` that ends them";
            return Err(other.unwrap_or(end(line)).fault(message));
        }
    }
    let last = words.next().unwrap_or(end(line));
    let Some(distance) = last.text.strip_prefix('r') else {
        return Err(last.fault("expected the distance, `r` and a number"));
    };
    number(last, distance, "a distance")?;
    match words.next() {
        Some(word) => Err(word.fault("the line should end before here")),
        None => Ok(()),
    }
}

/// The line of an address outside of the ISP.
fn outside<'t>(
    line: Piece<'t>,
    first: Piece<'t>,
    uid: &str,
    mut words: impl Iterator<Item = Piece<'t>>,
) -> Result<(), Fault> {
    number(first, uid, "the uid of an address outside")?;
    tail(line, words.next(), words)
}

/// The number in `text`, which is a part of `word`.
fn number(word: Piece<'_>, text: &str, what: &str) -> Result<u64, Fault> {
    text.parse().map_err(|_| word.fault(format!("`{}` is not {what}", shown(word.text))))
}

fn enclosed<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    text.strip_prefix(before)?.strip_suffix(after)
}

/// Where the line ends.
fn end(line: Piece<'_>) -> Piece<'_> {
    Piece { at: line.at + line.text.trim_end().len(), text: "" }
}
