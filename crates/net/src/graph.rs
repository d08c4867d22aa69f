//! A network as published files have it: named nodes, edges with or without weight, rate and delay.
//!
//! Loops, parallel edges and nodes without edges are kept; the analysis decides what they mean.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod links;
#[cfg(test)]
mod tests;
mod topology;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use crate::{Rate, Span};

pub use links::GraphLink;
pub use topology::{Missing, great_circle_delay, usual_rate};
pub use whole::{WeightError, WholeWeights};

/// A network as its file has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The file's name without its extension.
    pub name: String,
    /// The nodes, in the order of the file.
    pub nodes: Vec<GraphNode>,
    /// The edges: of GraphML and REPETITA in the order of the file, of Rocketfuel by their nodes.
    pub edges: Vec<GraphEdge>,
    /// The shared-risk groups of edges, by index of the edge; only our own files have some.
    pub risk_groups: BTreeMap<usize, BTreeSet<u32>>,
    /// Whether nodes of the file were left out, so that a node's place here is not that in the file.
    pub is_part: bool,
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
    /// Whether it has one direction only.
    pub directed: bool,
    /// IGP weight, finite and not negative.
    pub weight: Option<f64>,
    /// Transmission rate; zero means "not limited".
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Option<Span>,
}
