//! htsim's connection matrices: `Nodes` and `Connections` with their counts, then `FROM->TO` with keys and values a line.
//!
//! Starts are picoseconds, sizes bytes. A connection that waits for a trigger has no start, and is refused.

use super::{Fault, List, MAX_TRANSFERS, PICOSECONDS, shown};
use crate::words::{Piece, lines};

/// Keys with a value that says nothing about size and start.
const OTHER: [&str; 4] = ["id", "prio", "send_done_trigger", "recv_done_trigger"];

/// Reads a connection matrix.
pub(super) fn read(text: &str, list: &mut List<'_>) -> Result<(), Fault> {
    list.start = PICOSECONDS;
    let mut announced = None;
    let (mut found, mut last) = (0, 0);
    for line in lines(text).filter(|line| !line.text.trim_start().starts_with('#')) {
        last = line.at;
        let mut words = line.words();
        let Some(first) = words.next() else { continue };
        match first.text {
            "Nodes" => {
                let nodes = count(line, words.next())?;
                let has = list.places.graph.nodes.len();
                if nodes > has {
                    return Err(line.fault(format!("the list is for {nodes} nodes, and the network has {has}")));
                }
            }
            "Connections" => announced = Some(count(line, words.next())?),
            "Triggers" | "Failures" if count(line, words.next())? == 0 => {}
            "Triggers" | "trigger" => {
                return Err(line.fault("connections that wait for triggers have no start, and are not read"));
            }
            "Failures" | "failure" => {
                return Err(line.fault("failures are not read from a list; say them as `[[event]]` of the scenario"));
            }
            _ => {
                connection(line, first, words, list)?;
                found += 1;
            }
        }
    }
    match announced {
        Some(count) if count != found => {
            Err(Fault::new(last, format!("`Connections` announced {count}, and there are {found}")))
        }
        _ => Ok(()),
    }
}

fn connection<'t>(
    line: Piece<'t>,
    ends: Piece<'t>,
    mut words: impl Iterator<Item = Piece<'t>>,
    list: &mut List<'_>,
) -> Result<(), Fault> {
    let Some((from, to)) = ends.text.split_once("->") else {
        return Err(ends.fault(format!("`{}` is no connection; one begins with FROM->TO", shown(ends.text))));
    };
    let (at, to) = (ends.at + from.len() + 2, to);
    let from = Piece { at: ends.at, text: from };
    let (from_node, to) = (list.places.number(from)?, list.places.number(Piece { at, text: to })?);
    let (mut size, mut start) = (None, None);
    while let Some(key) = words.next() {
        let mut value = || words.next().ok_or_else(|| key.fault(format!("`{}` has no value", shown(key.text))));
        match key.text {
            "size" => size = Some(value()?),
            "start" => start = Some(value()?),
            "trigger" => return Err(key.fault("a connection that waits for a trigger has no start, and is not read")),
            other if OTHER.contains(&other) => drop(value()?),
            other => return Err(key.fault(format!("`{}` is no key of a connection", shown(other)))),
        }
    }
    let Some(size) = size else { return Err(line.fault("the connection has no `size`; without one it never ends")) };
    let Some(start) = start else { return Err(line.fault("the connection has no `start`")) };
    list.add((from, from_node), to, size, start)
}

fn count(line: Piece<'_>, word: Option<Piece<'_>>) -> Result<usize, Fault> {
    match word.and_then(|word| word.text.parse().ok()) {
        Some(count) if count <= MAX_TRANSFERS => Ok(count),
        _ => Err(line.fault(format!("a count must be here, of at most {MAX_TRANSFERS}"))),
    }
}
