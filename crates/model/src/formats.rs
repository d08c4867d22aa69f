//! Topologies as others publish them, read into a neutral [`Graph`].
//!
//! | extension | format | published by |
//! |---|---|---|
//! | `.graphml`, `.xml` | GraphML | Internet Topology Zoo |
//! | `.graph` | REPETITA | REPETITA, with IGP weights, capacities and delays |
//! | `.toml` | our own topology files | `topo convert`, or their users |
//! | `.cch` | Rocketfuel | University of Washington, router-level maps of ISPs |
//!
//! Loops, parallel edges and nodes without edges stay: what they mean is for the analysis to decide. The text is not
//! trusted. Memory is bounded by its length and the limits here, never by the numbers that it claims.

mod graphml;
mod ids;
mod links;
mod own;
mod print;
mod quantity;
mod repetita;
mod rocketfuel;
#[cfg(test)]
mod tests;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::Path,
};

use crate::{
    Rate, Span,
    scenario::{ParseError, document::printable},
    topology_file,
};

pub use links::GraphLink;
pub use own::Missing;
pub use print::{print_graphml, print_repetita};

/// Text longer than this is refused, in bytes.
pub const MAX_TEXT: usize = 64 << 20;

/// More nodes than this are refused.
pub const MAX_NODES: usize = 1_000_000;

/// More edges than this are refused.
pub const MAX_EDGES: usize = 4_000_000;

/// A network as its file has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The file's name without its extension.
    pub name: String,
    /// The nodes, in the order of the file.
    pub nodes: Vec<GraphNode>,
    /// The edges: of GraphML and REPETITA in the order of the file, of Rocketfuel by their nodes.
    pub edges: Vec<GraphEdge>,
    /// By index of an edge, its shared-risk groups if it has any; only our own files have some.
    pub risk_groups: BTreeMap<usize, BTreeSet<u32>>,
}

/// A node of a [`Graph`].
#[derive(Clone, Debug, PartialEq)]
pub struct GraphNode {
    /// GraphML: the label, or the id where that is empty; REPETITA: the label; Rocketfuel: the uid. Labels may repeat.
    pub name: String,
    /// Longitude and latitude in degrees; `None` where the file has not both.
    pub position: Option<(f64, f64)>,
}

/// An edge of a [`Graph`]; its ends are indices of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphEdge {
    /// One end, or the tail if it is directed.
    pub from: usize,
    /// The other end, or the head if it is directed; may be the same node.
    pub to: usize,
    /// Whether it goes one way only.
    pub directed: bool,
    /// IGP weight, finite and not negative.
    pub weight: Option<f64>,
    /// Transmission rate, above zero.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Option<Span>,
}

/// What is wrong, and the offset in the text where it shows.
#[derive(Debug)]
struct Fault {
    at: usize,
    message: String,
}

/// Reads a topology file in the format that the extension of `file_name` says.
///
/// Fails, with the line and the column, on what the format does not allow, on ids that no node has, on weights, rates or
/// delays that are negative or no finite number, and beyond [`MAX_TEXT`], [`MAX_NODES`] or [`MAX_EDGES`].
pub fn read(text: &str, file_name: &str) -> Result<Graph, ParseError> {
    let path = Path::new(file_name);
    let lossy = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    if text.len() > MAX_TEXT {
        return Err(ParseError::new("", 0, "the file is larger than 64 MiB; is it the right one?").in_file(file_name));
    }
    let loader = match lossy(path.extension()).to_ascii_lowercase().as_str() {
        "graphml" | "xml" => graphml::read,
        "graph" => repetita::read,
        "cch" => rocketfuel::read,
        "toml" => {
            let topology = topology_file::parse(text).map_err(|error| error.in_file(file_name))?;
            return Ok(Graph::of(&topology, &lossy(path.file_stem())));
        }
        other => return Err(unsupported(other).in_file(file_name)),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = loader(text).and_then(|graph| match graph.nodes.is_empty() {
        true => Err(Fault::new(text.len(), "there is not one node in the file")),
        false => Ok(graph),
    });
    let graph = read.map_err(|fault| ParseError::new(text, fault.at, &fault.message).in_file(file_name))?;
    Ok(Graph { name: lossy(path.file_stem()), ..graph })
}

fn unsupported(extension: &str) -> ParseError {
    let known = "GraphML (.graphml, .xml), REPETITA (.graph), Rocketfuel (.cch) and our own (.toml)";
    let message = match extension {
        "" => format!("the file's extension must tell its format; read are {known}"),
        "gml" => format!("GML is not read; the Topology Zoo has its networks as .graphml too. Read are {known}"),
        _ => format!("`.{}` is not a topology format; read are {known}", shown(extension)),
    };
    ParseError::new("", 0, &message)
}

impl Graph {
    /// Adds a node and returns its index; `at` is where the file has it.
    fn add_node(&mut self, at: usize, node: GraphNode) -> Result<usize, Fault> {
        let index = self.nodes.len();
        check_count(at, "nodes", index, MAX_NODES)?;
        self.nodes.push(node);
        Ok(index)
    }

    /// Adds an edge; `at` is where the file has it.
    fn add_edge(&mut self, at: usize, edge: GraphEdge) -> Result<(), Fault> {
        check_count(at, "edges", self.edges.len(), MAX_EDGES)?;
        self.edges.push(edge);
        Ok(())
    }
}

/// Refuses one more than `count` where that is too many.
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
