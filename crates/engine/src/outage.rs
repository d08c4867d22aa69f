//! When nothing of a connection gets through.

use sidestep_net::{Span, Time};

/// A period in which none of a connection's data was acknowledged, from its first retransmission timeout on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When the first timeout was.
    pub at: Time,
    /// The retransmission timeout then, before back-off.
    pub rto: Span,
    /// When data was next acknowledged; `None`: not before the connection, or the run, ended.
    pub until: Option<Time>,
    /// How many timeouts there were, the first included.
    pub timeouts: u32,
}

impl Outage {
    /// Its length in retransmission timeouts, up to `end` if it did not end.
    pub fn rtos(&self, end: Time) -> f64 {
        self.until.unwrap_or(end).since(self.at).as_secs_f64() / self.rto.as_secs_f64().max(1e-9)
    }
}
