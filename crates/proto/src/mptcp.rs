//! MPTCP without I/O: a connection over several TCP subflows (RFC 8684).
//!
//! A [`Connection`] opens subflows, gives data segments to them, couples their congestion windows and moves what a dead
//! subflow holds to others; a [`Reassembly`] puts the data in order again. [`HostPorts`] gives subflows their source ports.
//! As in `proto::tcp`, segments are counted, not bytes.
//!
//! Data counts as received when its segment arrives, even if the subflow still misses an earlier segment. Linux waits
//! for the earlier segment.

mod connection;
mod coupled;
mod mainline;
mod opening;
mod ports;
mod reassembly;
mod receive_window;
mod scheduler;
mod settings;

pub use connection::{Assigned, Connection};
pub use opening::{ConnectionTimeout, Joins};
pub use ports::HostPorts;
pub use reassembly::Reassembly;
pub use receive_window::ReceiveWindow;
pub use settings::{Coupling, MptcpSettings, PathManager, Scheduler, SourcePorts};

/// The settings of a connection, shared by many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How the subflows' windows are coupled.
    pub coupling: Coupling,
    /// Which subflow gets the next segment.
    pub scheduler: Scheduler,
    /// Segments that the receiver has room for, on the connection's level.
    pub receive_buffer: u32,
    /// How subflows after the first are opened; `None`: all at once with the first, which no path manager does.
    pub joins: Option<Joins>,
    /// Retransmission timeouts in a row after which a subflow is stale: it gets no data until an ACK arrives, and what it
    /// holds is sent over others. Until then others send only what the receiver waits for. Under [`Scheduler::Linux`] the
    /// connection has mainline's own timer and count instead.
    pub stale_after: u8,
    /// Segments that [`Scheduler::Linux`] gives to a subflow before it looks at the others.
    pub burst: u32,
    /// Whether the segment that blocks the receiver's window is sent over the fastest subflow with room, too.
    pub opportunistic_retransmission: bool,
    /// Whether the window of a slow subflow that holds that segment is halved, at most once in its round trip.
    pub penalisation: bool,
}

impl Config {
    /// These two, with a receive buffer of `receive_buffer` segments; all subflows open at once, and a timeout makes one stale.
    pub fn new(coupling: Coupling, scheduler: Scheduler, receive_buffer: u32) -> Self {
        Config {
            coupling,
            scheduler,
            receive_buffer,
            joins: None,
            stale_after: 1,
            // Linux's `MPTCP_SEND_BURST_SIZE` of 65,428 bytes.
            burst: 46,
            opportunistic_retransmission: false,
            penalisation: false,
        }
    }
}

#[cfg(test)]
mod tests;
