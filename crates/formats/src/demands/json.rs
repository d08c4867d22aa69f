//! Matrices in JSON: lists of lists in the order of the network's nodes, as `numpy`'s `tolist` gives those of TEAL and
//! NCFlow, or an object of `"SOURCE,DESTINATION": RATE`.

use super::{Fault, Reader, shown};
use crate::{json::Json, words::Piece};

/// Reads a matrix.
pub(super) fn read(text: &str, reader: &mut Reader<'_>) -> Result<(), Fault> {
    let mut json = Json { text, at: 0 };
    if json.rest().starts_with('[') {
        rows(&mut json, reader)?;
    } else {
        json.members(|json, at, key| {
            // The quote stands before the key.
            let (from, to) = pair(at + 1, key)?;
            let (from, to) = (reader.places.node(from)?, reader.places.node(to)?);
            let rate = rate(json, reader)?;
            reader.add(at, from, to, rate)
        })?;
    }
    json.end()
}

fn rows(json: &mut Json<'_>, reader: &mut Reader<'_>) -> Result<(), Fault> {
    let nodes = reader.places.graph.nodes.len();
    let mut from = 0;
    json.elements(|json| {
        let (at, mut to) = (json.at, 0);
        if from == nodes {
            return Err(Fault::new(at, format!("there are more rows than the network's {nodes} nodes")));
        }
        json.elements(|json| {
            let at = json.at;
            if to == nodes {
                return Err(Fault::new(at, format!("the row is longer than the network's {nodes} nodes")));
            }
            let rate = rate(json, reader)?;
            reader.add(at, from, to, rate)?;
            to += 1;
            Ok(())
        })?;
        if to < nodes {
            return Err(Fault::new(at, format!("row {from} has {to} demands; the network has {nodes} nodes")));
        }
        from += 1;
        Ok(())
    })?;
    if from < nodes {
        return Err(Fault::new(json.at, format!("there are {from} rows; the network has {nodes} nodes")));
    }
    Ok(())
}

fn rate(json: &mut Json<'_>, reader: &Reader<'_>) -> Result<f64, Fault> {
    if json.is_nested() {
        return Err(json.expected("a demand"));
    }
    match json.scalar()? {
        Some(value) => reader.rate(Piece { at: value.at, text: &value.text }),
        None => Ok(0.0),
    }
}

/// The ends in a key such as `"a,b"`, `"a->b"` or `"(0, 1)"`.
fn pair(at: usize, key: &str) -> Result<(Piece<'_>, Piece<'_>), Fault> {
    let inner = key.trim().trim_start_matches('(').trim_end_matches(')');
    let halves = inner.split_once("->").or_else(|| inner.split_once(','));
    let Some((from, to)) = halves else {
        return Err(Fault::new(at, format!("`{}` is no pair of nodes; write \"SOURCE,DESTINATION\"", shown(key))));
    };
    Ok((Piece { at, text: trimmed(from) }, Piece { at, text: trimmed(to) }))
}

fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\'', '"'])
}
