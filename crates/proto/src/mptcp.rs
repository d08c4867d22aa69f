//! MPTCP without I/O: a connection over several TCP subflows (RFC 8684).
//!
//! A [`Connection`] gives data segments to subflows, couples their congestion windows and moves what a dead subflow
//! holds to others; a [`Reassembly`] puts the data in order again. As in `proto::tcp`, segments are counted, not bytes.
//!
//! Data counts as received when its segment arrives, even if the subflow still misses an earlier segment. Linux waits
//! for the earlier segment.

mod connection;
mod coupled;
mod olia;
mod reassembly;

pub use connection::{Assigned, Connection};
pub use coupled::{Path, increase, shrink};
pub use olia::Olia;
pub use reassembly::Reassembly;
pub use sidestep_model::scenario::{Coupling, Scheduler};

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

#[cfg(test)]
mod tests;
