//! What the route controller says of itself: the egresses, their targets, and the last decisions with what they went by.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_model::{Rate, scenario::IrcMode};
use sidestep_proto::irc::{Health, PredictionError, Reason};

use super::{Moves, ProbeKind, RouteControl, WayStatus};
use crate::{AgentError, edge::status::ask, effect::Overridden, firewall::RestoredMarks};

/// The name of the socket at which the status is told.
pub(super) const SOCKET: &str = "sidestep-route-control/status";
/// How many decisions are kept.
pub(super) const KEPT: usize = 32;

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
    /// The egress in use.
    pub active: String,
    /// Since when, in seconds since 1970.
    pub active_since: f64,
    /// The egresses in the order of preference.
    pub egresses: Vec<EgressStatus>,
    /// The last decisions, the newest last: each that moved, and each whose reason was another than before.
    pub decisions: Vec<DecisionRecord>,
    /// Moves by their reason.
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

/// How far predictions of throughput were off from what TCP then got, after moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictionErrors {
    /// The mean error of the formula, as a share of what TCP got.
    pub formula: f64,
    /// After so many moves.
    pub formula_moves: u32,
    /// The mean error of the history, likewise.
    pub history: f64,
    /// After so many moves.
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
    /// How it is, as its probes show it.
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
    /// What its flaps have earned it; each adds 1000.
    pub penalty: f64,
    /// Whether packets do not move there for that.
    pub suppressed: bool,
    /// Its targets.
    pub targets: Vec<TargetStatus>,
}

/// What a decision goes by, of one egress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EgressInput {
    /// `unknown`, `fine`, `impaired`, `dead`, or `unprobed` where no probe can be sent, so that nothing is known.
    pub health: String,
    /// Share of the probes of the last measurement that were lost, of those to targets that count.
    pub lost: f64,
    /// The averaged share.
    pub loss: f64,
    /// The mean round trip of the last measurement in milliseconds.
    pub rtt_ms: Option<f64>,
    /// The throughput that TCP is predicted to get, in Mbit/s.
    pub predicted_mbps: Option<f64>,
    /// What passed it since the decision before, where that is measured.
    pub passed: Option<PassedInput>,
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
    /// The egress until then.
    pub from: String,
    /// The egress from then on.
    pub to: String,
    /// Why.
    pub reason: String,
    /// How often in a row it was decided so.
    pub times: u64,
    /// What it went by, by egress.
    pub inputs: BTreeMap<String, EgressInput>,
}

/// What a route controller of the calling thread's network namespace says of itself; `None` if there is none.
pub fn route_control_status() -> Result<Option<RouteControlStatus>, AgentError> {
    ask(SOCKET)
}

/// The state of an egress of which no probe can be sent.
pub(super) const UNPROBED: &str = "unprobed";

pub(super) fn health(health: Health) -> &'static str {
    match health {
        Health::Unknown => "unknown",
        Health::Fine => "fine",
        Health::Impaired => "impaired",
        Health::Dead => "dead",
    }
}

impl RouteControl {
    /// What a decision goes by, of one egress.
    pub(super) fn input(&self, egress: usize) -> EgressInput {
        let report = self.controller.report(egress).unwrap_or_default();
        EgressInput {
            health: if self.is_unprobed(egress) { UNPROBED } else { health(report.health) }.into(),
            lost: report.lost,
            loss: report.loss,
            rtt_ms: report.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            predicted_mbps: report.predicted.map(Rate::as_mbits),
            passed: report.passage.map(|(passage, rate)| PassedInput {
                goodput_mbps: rate.as_mbits(),
                connections: passage.connections,
                segments: passage.segments,
                retransmitted: passage.retransmitted,
                rtt_ms: passage.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            }),
        }
    }

    fn prediction_errors(&self) -> PredictionErrors {
        let PredictionError { formula, formula_moves, history, history_moves } = self.controller.prediction_error();
        PredictionErrors { formula, formula_moves, history, history_moves }
    }

    fn egress_status(&self, egress: usize) -> Option<EgressStatus> {
        let of = self.options.config.egresses.get(egress)?;
        let (penalty, suppressed) = self.controller.penalty(sidestep_linux::monotonic_now(), egress);
        let targets = self.controller.target_reports(egress).iter().filter_map(|report| {
            let target = self.options.config.targets.get(report.target as usize)?;
            let prober = self.probers.iter().find(|one| (one.egress, one.target) == (egress, report.target));
            let directions = prober.and_then(|one| one.lost);
            Some(TargetStatus {
                address: target.address,
                kind: target.kind,
                sent: report.sent,
                lost: report.lost,
                lost_forward: directions.map(|lost| lost.forward),
                lost_backward: directions.map(|lost| lost.backward),
                rtt_ms: report.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                counts: report.counts,
            })
        });
        Some(EgressStatus {
            name: of.name.clone(),
            dev: of.dev.clone(),
            mark: Some(self.numbers().mark(egress)),
            metered: of.metered,
            capacity: Some(of.capacity).filter(|rate| *rate > Rate::ZERO),
            seen: self.input(egress),
            unusable: self.why_unusable(egress),
            ways: self.way_statuses(egress),
            sources: self.ways.get(egress).map(|ways| ways.sources.clone()).unwrap_or_default(),
            penalty,
            suppressed,
            targets: targets.collect(),
        })
    }

    /// The state now.
    pub(super) fn read_status(&self) -> RouteControlStatus {
        let config = &self.options.config;
        RouteControlStatus {
            schema: 1,
            dry_run: self.options.dry_run,
            mode: self.mode().into(),
            moves: config.route_control.moves,
            passive: self.passive.is_some(),
            destinations: config.route_control.destinations.clone(),
            active: self.name(self.controller.active()).into(),
            active_since: self.active_since,
            egresses: (0..config.egresses.len()).filter_map(|egress| self.egress_status(egress)).collect(),
            decisions: self.decisions.iter().cloned().collect(),
            moved: self.moved.iter().map(|(reason, count)| ((*reason).to_string(), *count)).collect(),
            decided: self.decided,
            refused_probes: self.refused_probes,
            mended: self.mended,
            overridden: self.effects.found().cloned().collect(),
            restored: self.firewall.found().to_vec(),
            prediction_errors: (config.control.mode == IrcMode::Predictive).then(|| self.prediction_errors()),
        }
    }

    /// Notes a decision; one like the last is counted there.
    pub(super) fn note(&mut self, from: usize, to: usize, reason: Reason) {
        self.decided += 1;
        let inputs = (0..self.links.len()).map(|egress| (self.name(egress).to_string(), self.input(egress))).collect();
        let (from_name, to_name) = (self.name(from).to_string(), self.name(to).to_string());
        let record = DecisionRecord {
            at: super::unix_now(),
            from: from_name,
            to: to_name,
            reason: reason.as_str().into(),
            times: 1,
            inputs,
        };
        let is_like = |last: &&mut DecisionRecord| {
            from == to && (&last.from, &last.to, &last.reason) == (&record.from, &record.to, &record.reason)
        };
        match self.decisions.back_mut().filter(is_like) {
            Some(last) => *last = DecisionRecord { times: last.times + 1, ..record },
            None => self.decisions.push_back(record),
        }
        while self.decisions.len() > KEPT {
            self.decisions.pop_front();
        }
    }
}
