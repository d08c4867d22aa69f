//! Intelligent route control without I/O: which egress the aggregate of a multihomed site takes.
//!
//! A [`Controller`] knows the egresses towards one destination in the order of preference: the first is the primary, the
//! others are backups, all alike, used only while the primary is seen impaired. Time is divided into routing periods. At the end of
//! each lies a measurement period, in which every egress is probed. Once the probes of a measurement period are answered, or
//! their timeout has passed, the controller decides. [`RouteControlSettings`] has its settings.
//!
//! - `handle_…` takes an input: an answered probe, what the aggregate did, carrier, an impairment, or a timeout that is due.
//! - `poll_transmit` returns the next probe to send, `poll_timeout` when to call `handle_timeout`, and `poll_decision` what
//!   was decided, with the reason.
//! - Before each decision, that is when [`Controller::next_timeout`] is for [`Timeout::Decision`], the driver passes in a [`Sample`] of the
//!   aggregate, or the [`Passage`] of each egress where these can be distinguished. Without that the controller goes by probes
//!   alone.
//!
//! With a `load` threshold the driver passes in what each egress has sent, too ([`Controller::handle_sent`]), and sends each flow by the
//! egress of its bucket ([`Controller::egress_of`]); `poll_shift` returns which flows have moved.
//!
//! A live edge adds several [`Targets`], of which a quorum counts, and [`Stability`]: when the aggregate returns, and to which
//! egresses it does not move for now.
//!
//! [`predict`] has the throughput that TCP gets, [`analysis`] the paper's arithmetic.
//!
//! ```
//! use sidestep_net::{Rate, Time};
//! use sidestep_route_control::{Controller, Reason, RouteControlSettings};
//!
//! let settings = RouteControlSettings { guards: false, ..RouteControlSettings::default() };
//! let mut controller = Controller::new(&settings, &[Rate::ZERO, Rate::ZERO], Time::ZERO)?;
//! // No host answers the probes of the primary; the backup's are answered at once.
//! while let Some(now) = controller.poll_timeout().filter(|due| due.as_secs_f64() < 2.0) {
//!     controller.handle_timeout(now, 0);
//!     while let Some(probe) = controller.poll_transmit(now) {
//!         if probe.egress == 1 {
//!             controller.handle_answer(now, probe, None);
//!         }
//!     }
//! }
//! let decision = controller.poll_decision().expect("a decision at the end of the first period");
//! assert_eq!((decision.from, decision.to, decision.reason), (0, 1, Reason::Dead));
//! # Ok::<(), sidestep_net::SettingError>(())
//! ```

pub mod analysis;
#[cfg(feature = "command")]
#[expect(clippy::disallowed_methods, reason = "a command that looks again and again has a clock")]
pub mod command;
mod controller;
#[cfg(feature = "daemon")]
#[expect(clippy::disallowed_methods, reason = "a daemon has a clock")]
pub mod daemon;
mod egress;
#[cfg(feature = "lab")]
#[expect(clippy::disallowed_methods, reason = "the lab has a clock")]
pub mod lab;
mod load;
mod measure;
mod patience;
pub mod predict;
#[cfg(feature = "daemon")]
pub mod reflector;
mod settings;
#[cfg(feature = "sim")]
pub mod sim;
mod stability;
mod targets;
#[cfg(test)]
mod tests;

use std::fmt;

pub use settings::{RouteControlMode, RouteControlPrediction, RouteControlRto, RouteControlSettings};
use sidestep_net::{Bytes, Rate, Span, Time};
#[cfg(feature = "scenario")]
use sidestep_scenario::{Standing, SystemInfo};

pub use controller::Controller;
pub use load::BUCKETS;
pub use patience::Patience;
pub use stability::{Damping, FailBack, PENALTY, Stability};
pub use targets::{TargetReport, Targets};

/// Route control, as scenarios name it.
#[cfg(feature = "scenario")]
pub const ROUTE_CONTROL: SystemInfo = SystemInfo::with_settings::<RouteControlSettings>(
    "route-control",
    "Intelligent Route Control at a multihomed edge",
    "route-control",
)
.with_standing(Standing::recommended(2))
.with_standing_when(&[
    ("mode", "none", Standing::baseline(2, "no control").never_advised()),
    ("mode", "ideal", Standing::REFERENCE),
]);

/// A probe of an egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The egress that it leaves by.
    pub egress: u32,
    /// The measurement period that it belongs to.
    pub period: u32,
    /// Its number in that period.
    pub number: u32,
}

/// What the aggregate has done since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes that were acknowledged.
    pub acked: Bytes,
    /// Connections of which data was seen.
    pub connections: u32,
    /// When an acknowledgement last advanced.
    pub last_advance: Option<Time>,
}

/// What has passed an egress since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Bytes of connections that left by it and were acknowledged, or came in by it.
    pub acked: Bytes,
    /// Connections of which data was seen.
    pub connections: u32,
    /// Segments with data that left.
    pub segments: u32,
    /// Of these, those that were sent again.
    pub retransmitted: u32,
    /// The round trip to the far ends and back.
    pub rtt: Option<Span>,
    /// When data that left by it was last acknowledged.
    pub last_advance: Option<Time>,
}

/// Why the controller wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Probes are due.
    Probe,
    /// A decision is due; a [`Sample`] before it is welcome.
    Decision,
}

/// What was decided: `to` is `from` where the aggregate stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// The egress until now.
    pub from: usize,
    /// The egress from now on.
    pub to: usize,
    /// Why.
    pub reason: Reason,
}

/// Some flows of the aggregate were moved, while the others stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// When.
    pub at: Time,
    /// The egress that they took.
    pub from: usize,
    /// The egress that they take from now on.
    pub to: usize,
    /// The share of all buckets that they have.
    pub share: f64,
    /// Why.
    pub reason: Reason,
}

/// Why the aggregate moves or stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Moves: the egress in use has no carrier.
    Carrier,
    /// Moves: the driver knows that the egress in use is impaired, or that the primary is not any more.
    Told,
    /// Moves: every probe of the egress in use is lost.
    Dead,
    /// Moves: nothing that takes the egress in use gets through, although its probes do.
    ForwardsNothing,
    /// Moves: the egress in use loses more than the other.
    Loss,
    /// Moves: TCP is predicted to get more.
    Predicted,
    /// Moves: the primary has recovered.
    Recovered,
    /// Some flows move: the egress is full, and another one is not. Or all stay: the egress in use loses packets, for it is full.
    Load,
    /// The flows that moved for load return: the full egress is as full, and all egresses together carry no more.
    LoadUndone,
    /// The flows that another egress had for load return: the egress in use has room for all.
    LoadOver,
    /// Stays: the egress in use is fine, and the primary is not, or is the one in use.
    Fine,
    /// Stays: no other egress is alive.
    AllDead,
    /// Stays: no other egress is better, or not by enough to be sure.
    NotBetter,
    /// Stays: the last move is too recent.
    HoldDown,
    /// Stays: the throughput after the last move has not settled.
    Settling,
    /// Stays: the move would let too many packets overtake others.
    Reordering,
    /// Stays: the move would raise the round trip so far that timers fire.
    RttRise,
    /// Stays: such impairments are over before a move pays.
    TooShort,
    /// Stays: the primary is fine, but has flapped too often of late.
    Suppressed,
    /// Stays: the primary is fine, but not for long enough yet.
    Recovering,
    /// Stays: the primary is fine, but the aggregate does not return by itself.
    NoFailBack,
}

/// How an egress is, as its probes and what passes it show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It has not been measured yet.
    #[default]
    Unknown,
    /// It loses no more than the threshold.
    Fine,
    /// It loses more than the threshold, or has not recovered from that for certain.
    Impaired,
    /// It loses everything.
    Dead,
    /// Its probes are answered, and nothing else gets through.
    ForwardsNothing,
}

/// What the controller knows of an egress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// How it is.
    pub health: Health,
    /// Share of the probes of the last measurement that were lost.
    pub lost: f64,
    /// The averaged share.
    pub loss: f64,
    /// Answers that came after their timeout, in the time of the last measurement.
    pub late: u32,
    /// Mean round trip of the probes that were answered last.
    pub rtt: Option<Span>,
    /// The throughput that the aggregate is predicted to get there; `None` if it is not known.
    pub predicted: Option<Rate>,
    /// What passed it, and how fast, where that is measured.
    pub passage: Option<(Passage, Rate)>,
    /// What was sent by it in the last periods, as a share of its capacity, where load decides.
    pub utilisation: Option<f64>,
    /// Its share of the flows, where load decides.
    pub share: Option<f64>,
}

/// How far predictions were off: the mean of |predicted − got| / got over the moves to an egress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PredictionError {
    /// Moves after which the throughput could be compared with the formula's.
    pub formula_moves: u32,
    /// The formula's mean relative error.
    pub formula: f64,
    /// Moves to an egress with a history.
    pub history_moves: u32,
    /// The history's mean relative error.
    pub history: f64,
}

impl Reason {
    /// The name for results, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Carrier => "carrier",
            Reason::Told => "told",
            Reason::Dead => "dead",
            Reason::ForwardsNothing => "forwards-nothing",
            Reason::Loss => "loss",
            Reason::Predicted => "predicted",
            Reason::Recovered => "recovered",
            Reason::Load => "load",
            Reason::LoadUndone => "load-undone",
            Reason::LoadOver => "load-over",
            Reason::Fine => "fine",
            Reason::AllDead => "all-dead",
            Reason::NotBetter => "not-better",
            Reason::HoldDown => "hold-down",
            Reason::Settling => "settling",
            Reason::Reordering => "reordering",
            Reason::RttRise => "rtt-rise",
            Reason::TooShort => "too-short",
            Reason::Suppressed => "suppressed",
            Reason::Recovering => "recovering",
            Reason::NoFailBack => "no-fail-back",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Timeout {
    /// The name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Timeout::Probe => "probe",
            Timeout::Decision => "decision",
        }
    }
}
