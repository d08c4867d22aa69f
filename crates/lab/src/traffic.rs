//! The built-in traffic generator: an ordinary process with ordinary sockets, on both ends of a scenario's flows.
//!
//! [`sink`] runs where flows end and [`send`] where they start, each in a namespace that its caller prepared. Times
//! are those of `CLOCK_MONOTONIC`, which all namespaces share, so that all processes of a lab agree on them.

mod bytes;
mod cbr;
mod connection;
mod request;
mod send;
mod sink;
mod socket;
#[cfg(test)]
mod tests;
mod users;

use std::{io, net::SocketAddrV6, ops::Range};

use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};
use sidestep_net::{Bytes, Span};
use thiserror::Error;

pub use cbr::{CbrOptions, HEADERS as CBR_HEADERS, cbr};
pub use send::{send, transfer};
pub use sink::{sink, sink_until};
pub use socket::SocketOptions;
pub use users::Users;

/// Connections that one [`send`] may open at once.
pub const MAX_CONNECTIONS: u32 = 10_000;
/// Connections of a [schedule](SendOptions::schedule): as many as a flow of a scenario may have.
pub const MAX_TRANSFERS: usize = 2_000_000;

/// An instant of `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(u64);

/// What [`sink`] is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkOptions {
    /// What its sockets are.
    pub socket: SocketOptions,
    /// Where it listens.
    pub listen: SocketAddrV6,
    /// Whether connections bring requests that must be answered.
    pub answer: bool,
}

/// What a sink took in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkOut {
    /// Connections accepted.
    pub connections: u64,
    /// Payload bytes received and discarded.
    pub bytes: u64,
    /// When each request arrived, in nanoseconds of `CLOCK_MONOTONIC`, and how many later its answer began, as far as that is
    /// known.
    pub late_wakeups_ns: Vec<(u64, u64)>,
}

/// What [`send`] is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct SendOptions {
    /// What its sockets are.
    pub socket: SocketOptions,
    /// The sink.
    pub to: SocketAddrV6,
    /// How many connections to open, at most [`MAX_CONNECTIONS`].
    pub connections: u32,
    /// Payload of each connection; `None`: as much as passes until the stop.
    pub size: Option<Bytes>,
    /// Length of a request to send first, for an answer of the connection's size; `None`: the size is what is sent.
    pub request: Option<Bytes>,
    /// Connections with a start of their own, and those but of bulk flows with a size, in the order of their start; where there
    /// are any, `connections` and `start_at` do not matter.
    pub schedule: Vec<Transfer>,
    /// Who begins transfers one after the other; where there are any, `connections`, `size`, `request` and `schedule` do
    /// not matter.
    pub users: Option<Users>,
    /// When the lab's run starts.
    pub epoch: Monotonic,
    /// When to connect, counted from `epoch`.
    pub start_at: Span,
    /// When to give up what is not complete, counted from `epoch`.
    pub stop_at: Span,
    /// The part of the run that [`FlowOut::bytes_in_window`] counts.
    pub window: Range<Monotonic>,
    /// [`FlowOut::connection`] of the first connection.
    pub first_index: u32,
}

/// A connection of a [schedule](SendOptions::schedule).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// When to connect, counted from the epoch.
    pub at: Span,
    /// Payload; `None`: that of all, or as much as passes until the stop.
    pub size: Option<Bytes>,
}

impl Transfer {
    /// Reads a schedule: a line for each transfer, with its start in nanoseconds and its size in bytes, or `-`.
    pub fn parse(text: &str) -> Result<Vec<Transfer>, TrafficError> {
        let bad = |line: &str| TrafficError::Options(format!("`{line}` is not a start and a size"));
        let transfer = |line: &str| {
            let (at, size) = line.split_once(' ')?;
            let size = if size == "-" { None } else { Some(Bytes::new(size.parse().ok()?)) };
            Some(Transfer { at: Span::from_nanos(at.parse().ok()?), size })
        };
        text.lines().map(|line| transfer(line).ok_or_else(|| bad(line))).collect()
    }
}

/// What became of one connection; one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowOut {
    /// Its number; for a user's transfer, its number among the user's transfers.
    pub connection: u32,
    /// Number of the user who began it, if one did.
    #[serde(default)]
    pub user: Option<u32>,
    /// Its port at the sender; zero if it never had one.
    pub local_port: u16,
    /// When it was due to begin, in nanoseconds of `CLOCK_MONOTONIC`; `None`: that was not set beforehand.
    #[serde(default)]
    pub due_ns: Option<u64>,
    /// When it began to connect, in nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it completed, failed or was stopped, in nanoseconds of `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// Whether all bytes of a sized flow were acknowledged, or all of an answer received; never true without a size.
    pub completed: bool,
    /// Payload bytes acknowledged by the receiver's TCP; for an answer, payload bytes received.
    pub bytes_acked: u64,
    /// The part of `bytes_acked` that was acknowledged, or received, in the window.
    pub bytes_in_window: u64,
    /// Segments that were retransmitted by this end.
    pub retransmits: u32,
    /// Retransmission timeouts of this end, the SYN's included, if the kernel reports them.
    #[serde(default)]
    pub timeouts: u16,
    /// Its first [`MAX_OUTAGES`] outages, if it was watched.
    #[serde(default)]
    pub outages: Vec<OutageOut>,
    /// Seconds from the start to the completion of a flow that completed.
    pub fct_s: Option<f64>,
    /// Seconds that the handshake took; `None` if it never finished.
    pub connect_s: Option<f64>,
    /// When its program could have gone on, in nanoseconds of `CLOCK_MONOTONIC`, and how many later it did: once the connection
    /// was established, a handshake's round trip after its start, and with the last data of an answer, once that had arrived.
    /// What is not known is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_wakeups_ns: Vec<(u64, u64)>,
    /// What went wrong with this connection.
    pub error: Option<String>,
}

/// A time without acknowledgements, which began with a retransmission timeout. Instants are in nanoseconds of
/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutageOut {
    /// When the first timeout was noticed.
    pub at_ns: u64,
    /// The retransmission timeout then, before back-off.
    pub rto_ns: u64,
    /// When the next acknowledgement was seen; `None`: none was seen before the end.
    pub until_ns: Option<u64>,
    /// Timeouts, the first included.
    pub timeouts: u32,
}

/// The most outages of a connection that are recorded.
pub const MAX_OUTAGES: usize = 1_000;

/// Why the generator cannot run; the failure of a single connection is in [`FlowOut::error`].
#[derive(Debug, Error)]
pub enum TrafficError {
    /// Options that make no sense.
    #[error("{0}")]
    Options(String),
    /// The sink's address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddrV6,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The kernel does not have this congestion control, or does not allow it.
    #[error("congestion control `{name}` cannot be used; see net.ipv4.tcp_available_congestion_control")]
    CongestionControl {
        /// Its name.
        name: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// A system call that all connections depend on failed.
    #[error("{what} failed")]
    System {
        /// The call.
        what: &'static str,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The results cannot be written.
    #[error("cannot write the results")]
    Output(#[source] io::Error),
}

impl Monotonic {
    /// The instant at which the clock shows `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Monotonic(nanos)
    }

    /// What the clock shows, in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The present instant.
    pub fn now() -> Result<Self, TrafficError> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(system("clock_gettime"))?;
        // The clock counts from boot: neither part is ever negative.
        Ok(Monotonic(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64))
    }

    /// The instant so long before; none is before the clock began.
    pub fn before(self, span: Span) -> Monotonic {
        Monotonic(self.0.saturating_sub(span.as_nanos()))
    }

    /// The span since `earlier`, zero if that is later.
    pub fn since(self, earlier: Monotonic) -> Span {
        Span::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Span> for Monotonic {
    type Output = Monotonic;
    fn add(self, span: Span) -> Monotonic {
        Monotonic(self.0.saturating_add(span.as_nanos()))
    }
}

/// Turns the error of the system call `what` into ours.
fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> TrafficError {
    move |source| TrafficError::System { what, source: source.into() }
}

/// Raises the limit on open files to `wanted`, or as far as is allowed. If that is too low, opening a socket fails
/// later.
fn allow_descriptors(wanted: u64) -> Result<(), TrafficError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(system("getrlimit"))?;
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).map_err(system("setrlimit"))?;
    }
    Ok(())
}
