//! The Rate Control Protocol (RCP): each router offers all flows through a link the same rate.
//!
//! Dukkipati, "Rate Control Protocol (RCP)", Stanford 2008, chapter 3. A packet carries the lowest rate of the links
//! that it crossed, the [`Receiver`] echoes it, and the [`Sender`] paces its packets at it. The handshake,
//! retransmissions and timeouts are TCP's.

mod receiver;
mod router;
mod sender;
mod settings;
#[cfg(feature = "sim")]
pub mod sim;

use sidestep_net::Span;

pub use receiver::Receiver;
pub use router::Router;
pub use sender::{Sender, SenderTimeout};
pub use settings::RcpSettings;

/// RCP, as scenarios name it.
#[cfg(feature = "scenario")]
pub const RCP: sidestep_scenario::SystemInfo = sidestep_scenario::SystemInfo::with_settings::<RcpSettings>(
    "rcp",
    "the Rate Control Protocol in every router",
    "rcp",
);

/// RCP's settings, shared by all routers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The share of the spare capacity that a control interval hands out (α).
    pub alpha: f64,
    /// The share of the queue that a control interval drains (β).
    pub beta: f64,
    /// The target utilisation of the capacity (γ).
    pub gamma: f64,
    /// The longest control interval, the time between two changes of the rate; the mean round-trip time is used if that
    /// is shorter.
    pub slot: Span,
    /// The rate at the beginning, as a share of the capacity.
    pub initial_rate: f64,
}
