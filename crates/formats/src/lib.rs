//! Published topologies, read into a [`Graph`] and printed from one, and demands and transfers between their nodes.
//!
//! There are three kinds of functions, and neither opens a file:
//!
//! - [`read`] and [`read_as`] parse a file's text; the extension of the file's name selects the format.
//! - `print_…` returns a graph as text: [`print_graphml`], [`print_repetita`]. [`topology_file::print`] prints our own
//!   format.
//! - [`read_demands`] parses a traffic matrix for a graph; a [`Generator`] draws one. [`read_transfers`] parses a list of flows.
//!
//! ```
//! use sidestep_formats::{print_graphml, read};
//!
//! let text = "NODES 2\nlabel x y\nBern 7.4 46.9\nGenf 6.1 46.2\n\nEDGES 0\nlabel src dest weight bw delay\n";
//! let graph = read(text, "swiss.graph")?;
//! assert_eq!((graph.name.as_str(), graph.nodes.len()), ("swiss", 2));
//! assert_eq!(read(&print_graphml(&graph), "swiss.graphml")?.nodes, graph.nodes);
//! # Ok::<(), sidestep_net::ParseError>(())
//! ```
//!
//! | extension | format | published by |
//! |---|---|---|
//! | `.graphml`, `.xml` | GraphML | Internet Topology Zoo, networkx, igraph, Gephi, yEd |
//! | `.xml` | SNDlib's XML | SNDlib |
//! | `.gml` | GML | Internet Topology Zoo, networkx, igraph, Gephi |
//! | `.json` | node-link JSON | networkx, TEAL, NCFlow |
//! | `.graph` | REPETITA | REPETITA, with IGP weights, capacities and delays |
//! | `.toml` | our own topology files | `topo convert`, or their users |
//! | `.cch` | Rocketfuel | University of Washington, router-level maps of ISPs |
//! | `.intra` | Rocketfuel's weights and latencies | University of Washington, `weights.intra` and `latencies.intra` |
//! | `.txt` | SNDlib's native format | SNDlib |
//! | `.brite`, `.txt` | BRITE | BRITE, ns-3, CloudSim |
//! | `.csv`, `.tsv`, `.txt`, `.edges`, `.edgelist`, `.ncol` | edge lists and tables | networkx, igraph, Gephi, spreadsheets |
//! | `.clab.yml` | containerlab's labs | containerlab |
//!
//! Loops, parallel edges and nodes without edges are kept; the analysis decides what they mean. The text is not
//! trusted: its length and the limits here bound the memory, never the numbers that it claims.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod brite;
mod clab;
mod demands;
mod gml;
mod graphml;
mod ids;
mod intra;
mod json;
mod mapping;
mod places;
mod plausible;
mod print;
mod quantity;
mod raw;
mod reading;
mod repetita;
mod rocketfuel;
mod sndlib_native;
mod table;
#[cfg(test)]
mod tests;
mod transfers;
mod words;

use std::{ffi::OsStr, path::Path};

use sidestep_net::{Graph, ParseError, document::printable, topology_file};

pub use demands::{DemandReading, DemandUnit, GenerateError, Generator, read_demands};
pub use mapping::{MapError, Mapping, Role};
pub use print::{print_graphml, print_repetita};
pub use reading::{Reading, Taken};
pub use transfers::{TransferReading, read_transfers};

/// Text longer than this is refused, in bytes.
pub const MAX_TEXT: usize = 64 << 20;

/// More nodes than this are refused.
pub const MAX_NODES: usize = 1_000_000;

/// More edges than this are refused.
pub const MAX_EDGES: usize = 4_000_000;

/// An error, and the offset in the text where it shows.
#[derive(Debug)]
struct Fault {
    at: usize,
    message: String,
}

/// Reads a topology file in the format that the extension of `file_name` names.
///
/// An error names the line and the column. It fails on text that the format does not allow, on ids that no node has, on
/// weights, rates or delays that are negative or not finite, and beyond [`MAX_TEXT`], [`MAX_NODES`] or [`MAX_EDGES`].
pub fn read(text: &str, file_name: &str) -> Result<Graph, ParseError> {
    read_as(text, file_name, &Mapping::default()).map(|(graph, _)| graph)
}

/// Reads a topology file as [`read`] does, with keys as the user maps them, and gives account of it.
///
/// It fails, too, if the file has no key that is mapped.
pub fn read_as(text: &str, file_name: &str, mapping: &Mapping) -> Result<(Graph, Reading), ParseError> {
    read_with(text, file_name, None, mapping)
}

/// The name of the file that [`read_with`] takes together with this one: Rocketfuel's latencies and weights belong together.
pub fn companion(file_name: &str) -> Option<String> {
    intra::companion(file_name)
}

/// Reads a topology file as [`read_as`] does, and with it the text and the name of its [`companion`].
pub fn read_with(
    text: &str,
    file_name: &str,
    companion: Option<(&str, &str)>,
    mapping: &Mapping,
) -> Result<(Graph, Reading), ParseError> {
    let extension = Path::new(file_name).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    for (text, name) in [Some((text, file_name)), companion].into_iter().flatten() {
        if text.len() > MAX_TEXT {
            return Err(ParseError::new("", 0, "the file is larger than 64 MiB; is it the right one?").in_file(name));
        }
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let raw = match extension.as_str() {
        "graphml" | "xml" => graphml::read(text, mapping),
        "graph" => repetita::read(text, mapping),
        "gml" => gml::read(text, mapping),
        "json" => json::read(text, mapping),
        "cch" => rocketfuel::read(text),
        "intra" => intra::read(text, file_name, companion.map(|(text, _)| text), mapping),
        "yml" | "yaml" => clab::read(text, mapping),
        "brite" => brite::read(text, mapping),
        "txt" if text.starts_with(sndlib_native::MAGIC) => sndlib_native::read(text, mapping),
        "txt" if text.starts_with(brite::MAGIC) => brite::read(text, mapping),
        "csv" | "tsv" | "txt" | "edges" | "edgelist" | "ncol" => table::read(text, &extension, mapping),
        "toml" => {
            let topology = topology_file::parse(text).map_err(|error| error.in_file(file_name))?;
            return Ok((Graph::of(&topology, &graph_name(file_name)), Reading::default()));
        }
        other => return Err(unsupported(other).in_file(file_name)),
    };
    let read = raw.and_then(|raw| match raw.nodes.is_empty() {
        true => Err(Fault::new(text.len(), "there is not one node in the file")),
        false => raw.resolve(mapping),
    });
    let (graph, reading) = read.map_err(|Fault { at, message }| match companion {
        // Places in the second text begin behind the first's end.
        Some((second, name)) if at > text.len() => ParseError::new(second, at - text.len() - 1, &message).in_file(name),
        _ => ParseError::new(text, at, &message).in_file(file_name),
    })?;
    Ok((Graph { name: graph_name(file_name), ..graph }, reading))
}

/// The name of the network in a file: the file's without its extension, or the folder's where all files have the same.
fn graph_name(file_name: &str) -> String {
    let path = Path::new(file_name);
    let lossy = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = lossy(path.file_stem());
    let stem = stem.strip_suffix(".clab").unwrap_or(&stem);
    match stem.strip_suffix("weights").or_else(|| stem.strip_suffix("latencies")) {
        Some(start) if intra::companion(file_name).is_some() => {
            let folder = lossy(path.parent().and_then(Path::file_name));
            let start = start.trim_end_matches(['.', '_', '-']);
            if start.is_empty() && !folder.is_empty() {
                folder
            } else if start.is_empty() {
                stem.into()
            } else {
                start.into()
            }
        }
        _ => stem.into(),
    }
}

fn unsupported(extension: &str) -> ParseError {
    let known = "GraphML (.graphml, .xml), SNDlib (.xml, .txt), GML (.gml), node-link (.json), REPETITA (.graph), Rocketfuel (.cch, \
                 .intra), BRITE (.brite), edge lists and tables (.csv, .tsv, .txt, .edges, .edgelist, .ncol), containerlab (.clab.yml) \
                 and our own (.toml)";
    let message = match extension {
        "" => format!("the file's extension must name its format; known are {known}"),
        _ => format!("`.{}` is not a topology format; read are {known}", shown(extension)),
    };
    ParseError::new("", 0, &message)
}

/// Refuses one more item than `count` if that exceeds the limit.
fn check_count(at: usize, what: &str, count: usize, limit: usize) -> Result<(), Fault> {
    if count < limit { Ok(()) } else { Err(Fault::new(at, format!("there are more than {limit} {what}"))) }
}

impl Fault {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Fault { at, message: message.into() }
    }
}

/// A part of the text, short enough to be quoted.
fn shown(text: &str) -> String {
    printable(text, 60)
}
