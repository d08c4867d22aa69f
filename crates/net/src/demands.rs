//! Demands between the nodes of a network: traffic matrices.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::Rate;

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

impl TrafficMatrix {
    /// All rates together, in bit/s.
    pub fn total(&self) -> f64 {
        // Not `sum`, which returns -0.0 for no terms.
        self.demands.iter().fold(0.0, |sum, demand| sum + demand.rate.bits_per_sec() as f64)
    }
}
