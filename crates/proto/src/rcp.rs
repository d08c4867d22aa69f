//! The Rate Control Protocol: each router tells every sender the one rate that all flows through a link may have.
//!
//! Dukkipati, "Rate Control Protocol (RCP)", Stanford 2008, chapter 3. A packet carries the lowest rate of the links that
//! it crossed, the [`Receiver`] echoes it, and the [`Sender`] paces its packets at it. The handshake, retransmissions and
//! timeouts are TCP's.

mod receiver;
mod router;
mod sender;

use sidestep_model::Span;

pub use receiver::Receiver;
pub use router::Router;
pub use sender::Sender;

/// RCP's settings, shared by all routers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How much of the spare capacity a slot hands out (α).
    pub alpha: f64,
    /// How much of the queue it takes back (β).
    pub beta: f64,
    /// The share of the capacity that is to be used (γ).
    pub gamma: f64,
    /// Time between two changes of the rate at most; it is the mean round-trip time if that is shorter.
    pub slot: Span,
    /// The rate at the beginning, as a share of the capacity.
    pub initial_rate: f64,
}
