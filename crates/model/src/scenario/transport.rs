//! Settings of TCP, of MPTCP, and of what Linux does about paths by itself.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::knobs::{KnobError, ensure};
use crate::{Bytes, Ratio, Span};

/// TCP's settings on every host; the lab's kernels take the first two, and have the rest as they have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpKnobs {
    /// Congestion control by the kernel's name for it; the simulator has `reno`, `cubic` and `dctcp`.
    pub congestion_control: String,
    /// Whether connections negotiate ECN (RFC 3168).
    pub ecn: bool,
    /// Payload of a segment in bytes; `None`: what fits the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Initial congestion window in segments.
    pub initial_window: u32,
    /// What an RTO is above the smoothed round-trip time, at least.
    pub min_rto: Span,
    /// RTO before the first sample, and of the SYN.
    pub initial_rto: Span,
    /// How long an ACK may be delayed.
    pub delayed_ack: Span,
    /// Segments that make an ACK, 1 to 255.
    pub ack_every: u8,
    /// ACKs at the beginning of a connection that are not delayed.
    pub quick_acks: u8,
    /// Whether SACK is used; else NewReno.
    pub sack: bool,
    /// Whether the first two duplicate ACKs let out a segment each (RFC 3042).
    pub limited_transmit: bool,
    /// Whether an idle time of an RTO resets the window to the initial one (RFC 5681, section 4.1).
    pub idle_restart: bool,
    /// What the receiver has room for.
    pub receive_window: Bytes,
    /// Random delay of each packet that a host sends, at most.
    pub send_jitter: Span,
}

/// MPTCP's settings on every host; a system's own parameters override them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MptcpKnobs {
    /// Which subflows a connection has.
    pub path_manager: PathManager,
    /// How many subflows `ndiffports` opens, 1 to 64.
    pub subflows: u32,
    /// Which subflow gets the next segment.
    pub scheduler: Scheduler,
    /// How the subflows' windows are coupled.
    pub congestion_control: Coupling,
    /// What the receiver has room for, on the connection's level.
    pub receive_buffer: Bytes,
}

/// Which subflows an MPTCP connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathManager {
    /// Several between one pair of addresses, on different ports.
    Ndiffports,
    /// One between each pair of interfaces.
    Fullmesh,
}

/// Which MPTCP subflow gets the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The one with the shortest round-trip time.
    MinRtt,
    /// One after the other.
    RoundRobin,
    /// All: each segment goes over every subflow.
    Redundant,
}

/// How the windows of MPTCP subflows are coupled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// RFC 6356.
    Lia,
    /// draft-khalili-mptcp-congestion-control.
    Olia,
    /// draft-walid-mptcp-congestion-control.
    Balia,
    /// Not at all: each subflow is NewReno by itself.
    Reno,
}

/// Protective Load Balancing as Linux has it; names and defaults of its `net.ipv4.tcp_plb_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlbKnobs {
    /// Share of CE marks from which a round counts as congested.
    pub cong_thresh: Ratio,
    /// Congested rounds in a row after which an idle connection gets a new flow label; 0: never.
    pub idle_rehash_rounds: u32,
    /// The same of a connection with packets in flight.
    pub rehash_rounds: u32,
    /// After a timeout there is no new label for so long, and a random time of at most as long.
    pub suspend_rto: Span,
}

/// The Rate Control Protocol's settings on every router, with the names of its equation; a system's own parameters
/// override them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RcpKnobs {
    /// How much of the spare capacity a slot hands out, 0 to 1.
    pub alpha: f64,
    /// How much of the queue it takes back, 0 to 10.
    pub beta: f64,
    /// The share of the capacity that is to be used, above 0 and at most 1.
    pub gamma: f64,
    /// Time between two changes of a rate; the mean round-trip time if that is shorter.
    pub slot: Span,
    /// A link's rate at the beginning, as a share of its capacity.
    pub initial_rate: Ratio,
}

/// What routers do by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingKnobs {
    /// How long after a link went down or up the IGP routes around it, or over it.
    pub convergence: Span,
}

impl Default for TcpKnobs {
    fn default() -> Self {
        TcpKnobs {
            congestion_control: "cubic".into(),
            ecn: true,
            mss: None,
            initial_window: 10,
            min_rto: Span::from_millis(200),
            initial_rto: Span::from_secs(1),
            delayed_ack: Span::from_millis(40),
            ack_every: 2,
            quick_acks: 16,
            sack: true,
            limited_transmit: true,
            idle_restart: true,
            receive_window: Bytes::new(6_000_000),
            send_jitter: Span::from_micros(1),
        }
    }
}

impl Default for MptcpKnobs {
    fn default() -> Self {
        MptcpKnobs {
            path_manager: PathManager::Ndiffports,
            subflows: 8,
            scheduler: Scheduler::MinRtt,
            congestion_control: Coupling::Lia,
            receive_buffer: Bytes::new(16_000_000),
        }
    }
}

/// Those of the authors' ns-2 code.
impl Default for RcpKnobs {
    fn default() -> Self {
        RcpKnobs {
            alpha: 0.4,
            beta: 0.4,
            gamma: 0.95,
            slot: Span::from_millis(10),
            initial_rate: Ratio::from_ppb(50_000_000),
        }
    }
}

impl Default for PlbKnobs {
    fn default() -> Self {
        PlbKnobs {
            cong_thresh: Ratio::from_ppb(500_000_000),
            idle_rehash_rounds: 3,
            rehash_rounds: 12,
            suspend_rto: Span::from_secs(60),
        }
    }
}

impl Default for RoutingKnobs {
    fn default() -> Self {
        RoutingKnobs { convergence: Span::from_millis(200) }
    }
}

impl TcpKnobs {
    /// Checks every setting's range; that a segment fits the packets of a route is checked where the route is known.
    pub fn check(&self) -> Result<(), KnobError> {
        let name = &self.congestion_control;
        // TCP_CA_NAME_MAX is 16 with the final zero.
        let fine = (1..16).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure(fine, "congestion_control", "must be 1 to 15 letters, digits, `-` or `_`")?;
        ensure(self.mss.is_none_or(|mss| (64..=60_000).contains(&mss)), "mss", "must be between 64 and 60000")?;
        ensure((1..=10_000).contains(&self.initial_window), "initial_window", "must be between 1 and 10000")?;
        ensure(self.initial_rto > Span::ZERO, "initial_rto", "must be above zero")?;
        ensure(self.ack_every >= 1, "ack_every", "must be at least 1")?;
        let window = Bytes::new(2 * 60_000)..=Bytes::new(100_000_000_000);
        ensure(window.contains(&self.receive_window), "receive_window", "must be between 120 kB and 100 GB")
    }
}

impl MptcpKnobs {
    /// Checks every setting's range.
    pub fn check(&self) -> Result<(), KnobError> {
        ensure((1..=64).contains(&self.subflows), "subflows", "must be between 1 and 64")?;
        let buffer = Bytes::new(2 * 60_000)..=Bytes::new(100_000_000_000);
        ensure(buffer.contains(&self.receive_buffer), "receive_buffer", "must be between 120 kB and 100 GB")
    }
}

impl RcpKnobs {
    /// Checks every setting's range.
    pub fn check(&self) -> Result<(), KnobError> {
        ensure((0.0..=1.0).contains(&self.alpha), "alpha", "must be between 0 and 1")?;
        ensure((0.0..=10.0).contains(&self.beta), "beta", "must be between 0 and 10")?;
        ensure(self.gamma > 0.0 && self.gamma <= 1.0, "gamma", "must be above 0 and at most 1")?;
        ensure(self.slot >= Span::from_micros(1), "slot", "must be at least 1 us")?;
        let rate = self.initial_rate.ppb();
        ensure((1..=1_000_000_000).contains(&rate), "initial_rate", "must be above 0 % and at most 100 %")
    }
}

/// Names of an enum's values, as files have them.
macro_rules! names {
    ($type:ident, $knob:literal, $problem:literal, $($value:ident = $name:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$value => $name),+ })
            }
        }
        impl FromStr for $type {
            type Err = KnobError;
            fn from_str(text: &str) -> Result<Self, KnobError> {
                match text {
                    $($name => Ok($type::$value),)+
                    _ => Err(KnobError { knob: $knob, problem: $problem }),
                }
            }
        }
    };
}

names!(PathManager, "path_manager", "must be ndiffports or fullmesh", Ndiffports = "ndiffports", Fullmesh = "fullmesh");
names!(
    Scheduler,
    "scheduler",
    "must be min-rtt, round-robin or redundant",
    MinRtt = "min-rtt",
    RoundRobin = "round-robin",
    Redundant = "redundant"
);
names!(
    Coupling,
    "congestion_control",
    "must be lia, olia, balia or reno",
    Lia = "lia",
    Olia = "olia",
    Balia = "balia",
    Reno = "reno"
);
