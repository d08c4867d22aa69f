//! MPTCP without I/O: a connection over several TCP subflows (RFC 8684).
//!
//! A [`Connection`] gives data segments to subflows, couples their congestion windows and moves what a dead subflow
//! holds to others; a [`Reassembly`] puts the data in order again. As in `proto::tcp`, segments are counted, not bytes.
//!
//! Data counts as received when its segment arrives, also where the subflow still misses an earlier one: Linux waits
//! for that.

mod connection;
mod coupled;
mod reassembly;

pub use connection::{Assigned, Connection};
pub use coupled::{Coupling, Path, increase, shrink};
pub use reassembly::Reassembly;

/// The settings of a connection, shared by many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How the subflows' windows are coupled.
    pub coupling: Coupling,
    /// Which subflow gets the next segment.
    pub scheduler: Scheduler,
    /// Segments that the receiver has room for, on the connection's level.
    pub receive_buffer: u32,
}

/// Which subflow gets the next data segment, of those whose window has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// The one with the shortest round-trip time: Linux's default.
    #[default]
    MinRtt,
    /// One after the other.
    RoundRobin,
    /// All of them: each segment goes over every subflow.
    Redundant,
}

/// Which subflows a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathManager {
    /// One between each pair of interfaces.
    Fullmesh,
    /// So many between one pair of addresses, on different ports.
    Ndiffports(u32),
}

impl PathManager {
    /// The subflows of a connection between hosts with so many interfaces, as pairs of their indices.
    pub fn subflows(self, local: usize, remote: usize) -> Vec<(usize, usize)> {
        match self {
            PathManager::Fullmesh => (0..local).flat_map(|l| (0..remote).map(move |r| (l, r))).collect(),
            PathManager::Ndiffports(count) => vec![(0, 0); count as usize],
        }
    }
}

#[cfg(test)]
mod tests;
