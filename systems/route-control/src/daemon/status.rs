//! What the route controller reports of itself: the egresses, their targets, and the last decisions with what they went by.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_hostd::{AgentError, effect::Overridden, firewall::RestoredMarks, status::read_status};
use sidestep_net::Rate;

use super::{Moves, ProbeKind, WayStatus};

/// The name of the socket at which the status is given.
pub(super) const SOCKET: &str = "sidestep-route-control/status";

/// The state of a route controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteControlStatus {
    /// Version of this format.
    pub schema: u32,
    /// Whether it decides only, and changes nothing.
    pub dry_run: bool,
    /// How it decides: `practical` or `predictive`.
    pub mode: String,
    /// What a move moves.
    pub moves: Moves,
    /// Whether traffic that passes the egresses is measured.
    pub passive: bool,
    /// The prefixes whose packets take the egress in use.
    pub destinations: Vec<IpNet>,
    /// The egress in use; where families differ, that of each: `isp0 (IPv4), isp1 (IPv6)`.
    pub active: String,
    /// Since when, in seconds since 1970: the last move of any family.
    pub active_since: f64,
    /// Each family of the destinations, and of the targets.
    #[serde(default)]
    pub families: Vec<FamilyStatus>,
    /// The egresses in the order of preference.
    pub egresses: Vec<EgressStatus>,
    /// The last decisions of all families, the newest last: each that moved, and each whose reason was another than before.
    pub decisions: Vec<DecisionRecord>,
    /// Moves of all families by their reason.
    pub moved: BTreeMap<String, u64>,
    /// Decisions, those to stay included.
    pub decided: u64,
    /// Probes that the kernel refused to send.
    pub refused_probes: u64,
    /// Rules and routes that others removed, and that were put back.
    pub mended: u64,
    /// Packets that do not leave as decided, as a rule or a route of others comes first.
    #[serde(default)]
    pub overridden: Vec<Overridden>,
    /// Rules of others that restore marks of probes, and of flows if these are kept on their egress.
    #[serde(default)]
    pub restored: Vec<RestoredMarks>,
    /// How far predictions were off, where decisions go by them and what passes is measured.
    #[serde(default)]
    pub prediction_errors: Option<PredictionErrors>,
}

/// What is decided for one address family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyStatus {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// Its prefixes whose packets take the egress in use.
    pub destinations: Vec<IpNet>,
    /// The egress in use.
    pub active: String,
    /// Since when, in seconds since 1970.
    pub active_since: f64,
    /// Whether it has targets. Without any it goes by the decisions of the other family.
    pub probed: bool,
    /// Moves by their reason.
    pub moved: BTreeMap<String, u64>,
    /// Decisions, those to stay included.
    pub decided: u64,
    /// The egresses that carry it, in the order of preference.
    pub egresses: Vec<FamilyEgress>,
}

/// An egress as one family sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyEgress {
    /// Its name.
    pub name: String,
    /// How it is, as the probes of this family show it.
    #[serde(flatten)]
    pub seen: EgressInput,
    /// Why no packet of this family can leave by it, as far as the router knows.
    pub unusable: Option<String>,
    /// What its flaps have earned it; each adds 1000.
    pub penalty: f64,
    /// Whether packets do not move there for that.
    pub suppressed: bool,
}

/// How far predictions of throughput were off from what TCP then got, after moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictionErrors {
    /// The mean error of the formula, as a share of what TCP got.
    pub formula: f64,
    /// After this number of moves.
    pub formula_moves: u32,
    /// The mean error of the history, likewise.
    pub history: f64,
    /// After this number of moves.
    pub history_moves: u32,
}

/// An egress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EgressStatus {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub dev: String,
    /// The mark of its probes.
    #[serde(default)]
    pub mark: Option<u32>,
    /// Whether what it carries costs money.
    pub metered: bool,
    /// Its rate, where it is known.
    pub capacity: Option<Rate>,
    /// How it is for all families that are probed. Where they differ, the health of each, and the worst of the numbers.
    #[serde(flatten)]
    pub seen: EgressInput,
    /// Why nothing can leave by it, as far as the router knows.
    pub unusable: Option<String>,
    /// How packets of each family leave.
    #[serde(default)]
    pub ways: Vec<WayStatus>,
    /// The prefixes whose packets leave by it or not at all.
    #[serde(default)]
    pub sources: Vec<IpNet>,
    /// What its flaps have earned it; each adds 1000. The largest of any family.
    pub penalty: f64,
    /// Whether packets of some family do not move there for that.
    pub suppressed: bool,
    /// Its targets.
    pub targets: Vec<TargetStatus>,
}

/// What a decision goes by, of one egress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EgressInput {
    /// `unknown`, `fine`, `impaired`, `dead`, or `unprobed` where no probe can be sent, so that nothing is known; `not probed` of a family
    /// without targets.
    pub health: String,
    /// Share of the probes of the last measurement that were lost, of those to targets that count.
    pub lost: f64,
    /// The averaged share.
    pub loss: f64,
    /// Answers that came after their timeout, in the time of the last measurement: they are no losses.
    #[serde(default)]
    pub late: u32,
    /// The mean round trip of the last measurement in milliseconds.
    pub rtt_ms: Option<f64>,
    /// The throughput that TCP is predicted to get, in Mbit/s.
    pub predicted_mbps: Option<f64>,
    /// What passed it since the decision before, where that is measured.
    pub passed: Option<PassedInput>,
    /// What its interface sent in the last periods, as a share of its capacity, where load decides.
    #[serde(default)]
    pub utilisation: Option<f64>,
    /// Its share of the flows, where load decides; the largest of any family.
    #[serde(default)]
    pub share: Option<f64>,
}

/// What has passed an egress between two decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassedInput {
    /// What TCP got by it in Mbit/s: what was acknowledged of what left, and of what came in.
    pub goodput_mbps: f64,
    /// Connections of TCP of which data was seen.
    pub connections: u32,
    /// Segments with data that left.
    pub segments: u32,
    /// Of these, those that were sent again.
    pub retransmitted: u32,
    /// The mean round trip to the far ends and back in milliseconds.
    pub rtt_ms: Option<f64>,
}

/// A target as the last measurement of an egress shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Its address.
    pub address: std::net::IpAddr,
    /// How it is asked.
    pub kind: ProbeKind,
    /// Probes that were sent.
    pub sent: u32,
    /// Probes that were lost.
    pub lost: u32,
    /// Probes that did not reach a STAMP reflector since it is asked.
    #[serde(default)]
    pub lost_forward: Option<u64>,
    /// Probes that it answered, and whose answers did not come back.
    #[serde(default)]
    pub lost_backward: Option<u64>,
    /// The mean round trip of the others in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Whether it counts: it is up, and among the best or not much worse than these.
    pub counts: bool,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Whose packets it is about: `IPv4` or `IPv6`.
    #[serde(default)]
    pub family: String,
    /// The egress until then.
    pub from: String,
    /// The egress from then on.
    pub to: String,
    /// Why.
    pub reason: String,
    /// The share of the flows that moved, if only some did.
    #[serde(default)]
    pub share: Option<f64>,
    /// How often in a row it was decided so.
    pub times: u64,
    /// What it went by, by egress.
    pub inputs: BTreeMap<String, EgressInput>,
}

/// What a route controller of the calling thread's network namespace reports of itself; `None` if there is none.
pub fn route_control_status() -> Result<Option<RouteControlStatus>, AgentError> {
    read_status(SOCKET)
}
