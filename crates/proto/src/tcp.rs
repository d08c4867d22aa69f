//! TCP without I/O: a [`Sender`] and a [`Receiver`] are the two halves of a connection that carries data in one
//! direction; a [`Socket`] is an end of one that carries data both ways.
//!
//! Segments are counted, not bytes: all but the last carry the same payload. A connection carries at most 2³² − 1.
//! NewReno (RFC 6582) or SACK (RFC 6675) recovery, RTO (RFC 6298), limited transmit (RFC 3042), ECN (RFC 3168), and the
//! congestion controls of [`Algorithm`]. Nagle's algorithm is off.
//!
//! A [`Sender`] is one of two machines over a shared part:
//!
//! | part | has |
//! |---|---|
//! | `transfer` | what is supplied, sent and acknowledged, the receiver's window, how far the connection is, counts, and what ECN and FIN mark in segments |
//! | `rfc` | the machine of [`Profile::Rfc`]: windows with fractions, the RFC's congestion controls, a scoreboard of bits, the estimator of RFC 6298, one timer |
//! | `linux` | the machine of [`Profile::Linux`]: windows in whole segments, the kernel's congestion controls, a time for each segment, RACK, undo, the kernel's estimator and timers |
//! | `sender` | the public face, the handshake, and which machine does what |
//!
//! Each machine alone has its windows, round-trip time, timer and state of recovery; the other knows nothing of them.

mod clock;
mod counters;
mod linux;
mod receiver;
mod rfc;
pub mod rtt;
mod sender;
mod signals;
mod socket;
#[cfg(test)]
mod tests;
mod timeout;
mod transfer;

use serde::{Deserialize, Serialize};
use sidestep_net::Span;

pub use counters::Counters;
pub use receiver::Receiver;
pub(crate) use receiver::window;
pub use sender::Sender;
pub use signals::{Acked, Signals};
pub use socket::{Socket, SocketEvents};
pub use timeout::{ReceiverTimeout, SenderTimeout};
pub use transfer::{State, Transmit};

/// Whose TCP a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// That of Linux 6.x.
    #[default]
    Linux,
    /// That of the RFCs, as the other settings have it.
    Rfc,
}

/// The settings of TCP, shared by many connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Whose TCP it is: that of the documents, or Linux's.
    pub profile: Profile,
    /// Ticks of the kernel's clock in a second, which timers of [`Profile::Linux`] wait for; 0: they are exact.
    pub hz: u16,
    /// What that clock shows at the beginning: its ticks are at multiples of their length. Below 4.2 s.
    pub jiffies: Span,
    /// How the congestion window grows and shrinks.
    pub algorithm: Algorithm,
    /// Initial congestion window in segments (RFC 6928: 10).
    pub initial_window: u32,
    /// The least difference between the RTO and the smoothed round-trip time: Linux's `tcp_rto_min`.
    pub min_rto: Span,
    /// The longest RTO.
    pub max_rto: Span,
    /// RTO before the first sample, and of the SYN.
    pub initial_rto: Span,
    /// How often a SYN is sent again before the connection is given up.
    pub syn_retries: u8,
    /// How long an ACK may be delayed.
    pub delayed_ack: Span,
    /// In-order segments that make an ACK: 2 with delayed ACKs (RFC 5681, section 4.2), 1 without.
    pub ack_every: u8,
    /// ACKs at the beginning of a connection that are not delayed; Linux sends 16 or so.
    pub quick_acks: u8,
    /// Whether ECN is negotiated.
    pub ecn: bool,
    /// Whether SACK is used.
    pub sack: bool,
    /// SACKed segments above one that make it lost: 3 (RFC 6675). With 1, losses are found as early as by RACK (RFC 8985),
    /// whose wait of a quarter of a round trip for reordered segments it leaves out.
    pub dup_threshold: u32,
    /// Whether the first two duplicate ACKs let out a segment each.
    pub limited_transmit: bool,
    /// Whether an idle time of an RTO resets the window to the initial one (RFC 5681, section 4.1).
    pub idle_restart: bool,
    /// Whether the window grows with each ACK as if that acknowledged one segment; else with each acknowledged segment.
    pub count_acks: bool,
    /// Segments that the receiver has room for.
    pub receive_window: u32,
}

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Reno (RFC 5681): grows by one segment a round trip, and halves on loss.
    #[default]
    Reno,
    /// CUBIC (RFC 9438), with HyStart++ (RFC 9406): the window is a cubic function of the time since the last loss.
    Cubic,
    /// DCTCP (RFC 8257): shrinks by the share of marked segments.
    Dctcp,
    /// Reno whose growth in congestion avoidance is left to the MPTCP connection.
    Coupled,
    /// The window begins at the receiver's window, and loss does not reduce it, because something else limits the
    /// rate. After a lost SYN or a timeout it begins at one segment, and grows from there. Reordered segments are waited for a
    /// round trip.
    Unreduced,
}

impl Config {
    /// Whether connections are those of [`Profile::Linux`]: with SACK.
    pub(crate) fn is_linux(&self) -> bool {
        self.profile == Profile::Linux && self.sack
    }

    /// Whether each packet is ECN-capable, be it a SYN, without data or sent again (`tcp_ca_needs_ecn`; RFC 8257, section 3.5):
    /// queues that mark early drop what they cannot mark.
    pub(crate) fn needs_ecn(&self) -> bool {
        self.ecn && self.algorithm == Algorithm::Dctcp
    }
}

impl Config {
    /// TCP as the RFCs have it: Reno without ECN, and no limit to the receiver's window.
    pub fn rfc() -> Config {
        Config {
            profile: Profile::Rfc,
            hz: 250,
            jiffies: Span::ZERO,
            algorithm: Algorithm::Reno,
            initial_window: 10,
            min_rto: Span::from_millis(200),
            max_rto: Span::from_secs(120),
            initial_rto: Span::from_secs(1),
            syn_retries: 6,
            delayed_ack: Span::from_millis(40),
            ack_every: 2,
            quick_acks: 0,
            ecn: false,
            sack: true,
            dup_threshold: rfc::DUP_THRESH,
            limited_transmit: true,
            idle_restart: true,
            count_acks: false,
            receive_window: 1 << 30,
        }
    }

    /// TCP as Linux 6.x has it by default, with ECN: the same as of hosts in a scenario.
    pub fn linux() -> Config {
        Config {
            profile: Profile::Linux,
            algorithm: Algorithm::Cubic,
            quick_acks: 16,
            ecn: true,
            // 6 MB (net.ipv4.tcp_rmem) in segments of 1,400 bytes.
            receive_window: 4_285,
            ..Config::rfc()
        }
    }
}

/// [`Config::linux`].
impl Default for Config {
    fn default() -> Self {
        Config::linux()
    }
}
