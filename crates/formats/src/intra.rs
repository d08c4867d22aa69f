//! Rocketfuel's `weights.intra` and `latencies.intra` (Mahajan and others 2002): a line for each direction of a link, with its
//! ends and its IGP weight or its latency in ms.

use std::collections::BTreeMap;

use super::{
    Fault, MAX_EDGES, Mapping, Role, check_count,
    ids::Ids,
    raw::{Fixed, Key, Raw, RawEdge, Text},
    words::lines,
};

const KEYS: [Fixed; 2] = [("weight", false, Role::Weight, None), ("latency", false, Role::Delay, Some("ms"))];

/// The name of the file that belongs to this one: latencies to weights, and weights to latencies.
pub(super) fn companion(file_name: &str) -> Option<String> {
    let (start, end) =
        ["weights.intra", "latencies.intra"].iter().find_map(|end| Some((file_name.strip_suffix(end)?, end)))?;
    Some(format!("{start}{}", if *end == "weights.intra" { "latencies.intra" } else { "weights.intra" }))
}

/// Reads a file of this name, and the one that belongs to it; places in the second begin behind the first's end.
pub(super) fn read(text: &str, file_name: &str, other: Option<&str>, mapping: &Mapping) -> Result<Raw, Fault> {
    let is_weights = match (file_name.contains("weight"), file_name.contains("latenc")) {
        (true, false) => true,
        (false, true) => false,
        _ => return Err(Fault::new(0, "name the file `weights.intra` or `latencies.intra`, by what its lines have")),
    };
    let mut raw = Raw::default();
    let present = [is_weights || other.is_some(), !is_weights || other.is_some()];
    raw.keys = KEYS.iter().map(|(name, ..)| Key::new(name, (false, true), mapping, &KEYS)).collect();
    raw.keys.iter_mut().zip(present).for_each(|(key, is_present)| key.is_used = is_present);
    let mut loader = Loader { raw, ids: Ids::new() };
    loader.file(text, 0, usize::from(!is_weights))?;
    if let Some(other) = other {
        loader.file(other, text.len() + 1, usize::from(is_weights))?;
    }
    Ok(loader.raw)
}

struct Loader {
    raw: Raw,
    ids: Ids<String>,
}

impl Loader {
    /// Adds the values of a file to the edges that lack them; `key` says which they are.
    fn file(&mut self, text: &str, begin: usize, key: usize) -> Result<(), Fault> {
        // By ends: the edges that have no value of this key yet, the last first.
        let mut open: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (index, edge) in self.raw.edges.iter().enumerate().rev() {
            open.entry((edge.from, edge.to)).or_default().push(index);
        }
        for line in lines(text).filter(|line| !line.text.trim_start().starts_with('#')) {
            let shift = |fault: Fault| Fault { at: fault.at + begin, ..fault };
            let [from, to, value] = line.fields("a link: its two ends, and its weight or latency").map_err(shift)?;
            let mut end = |id: super::words::Piece<'_>| self.ids.node(&mut self.raw, begin + id.at, id.text);
            let (from, to) = (end(from)?, end(to)?);
            let cell = (key as u32, Text { at: begin + value.at, text: value.text.into() });
            let known = open.get_mut(&(from, to)).and_then(Vec::pop);
            match known.and_then(|index| self.raw.edges.get_mut(index)) {
                Some(edge) => edge.cells.push(cell),
                None => {
                    check_count(begin + line.at, "edges", self.raw.edges.len(), MAX_EDGES)?;
                    self.raw.edges.push(RawEdge { from, to, directed: true, cells: vec![cell] });
                }
            }
        }
        Ok(())
    }
}
