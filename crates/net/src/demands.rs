//! What the nodes of a network send each other: traffic matrices, and lists of transfers.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{Bytes, Rate, Span};

/// What each pair of nodes of a [`Graph`](crate::Graph) wants to send: a traffic matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficMatrix {
    /// Its name: that of its file, without the extension, or how it was generated.
    pub name: String,
    /// The demands above zero between different nodes, ordered by their ends, each pair once.
    pub demands: Vec<Demand>,
}

/// What a node wants to send to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand {
    /// Index of the node that sends.
    pub from: usize,
    /// Index of the node that receives.
    pub to: usize,
    /// How much, above zero.
    pub rate: Rate,
}

/// A transfer that a list of flows has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedTransfer {
    /// Index of the node that sends, of a [`Graph`](crate::Graph).
    pub from: usize,
    /// Index of the node that receives, another one.
    pub to: usize,
    /// How much, at least a byte.
    pub size: Bytes,
    /// When it begins, since the start of the run.
    pub start: Span,
}

impl TrafficMatrix {
    /// Whether this is not the name of a file, but of demands that are drawn: `gravity:TOTAL` or `uniform:TOTAL`.
    pub fn is_drawn(name: &str) -> bool {
        name.starts_with("gravity:") || name.starts_with("uniform:")
    }

    /// All rates together, in bit/s.
    pub fn total(&self) -> f64 {
        // Not `sum`, which returns -0.0 for no terms.
        self.demands.iter().fold(0.0, |sum, demand| sum + demand.rate.bits_per_sec() as f64)
    }
}
