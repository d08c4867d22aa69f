//! Reads the state for requests: by family, and over all families together.

use std::{collections::BTreeMap, time::SystemTime};

use sidestep_linux::{monotonic_now, netlink::Family};
use sidestep_net::Rate;

use super::{
    DecisionRecord, EgressInput, EgressStatus, FamilyEgress, FamilyStatus, PassedInput, PredictionErrors, RouteControl,
    RouteControlStatus, TargetStatus,
    families::{Side, agreed},
};
use crate::{Health, PredictionError, Reason, RouteControlMode};

/// How many decisions of a family are kept.
const KEPT: usize = 32;
/// The health of an egress for a family without targets.
const NOT_PROBED: &str = "not probed";
/// The health of an egress of which no probe can be sent.
const UNPROBED: &str = "unprobed";

fn named(health: Health) -> &'static str {
    match health {
        Health::Unknown => "unknown",
        Health::Fine => "fine",
        Health::Impaired => "impaired",
        Health::Dead => "dead",
        Health::ForwardsNothing => "forwards-nothing",
    }
}

impl RouteControl {
    /// How an egress is for a family.
    pub(super) fn health(&self, family: Family, egress: usize) -> Option<Health> {
        let side = self.side(family)?;
        let side = side.follows.and_then(|of| self.side(of)).unwrap_or(side);
        side.controller.report(egress).map(|report| report.health)
    }

    /// What a decision of a family goes by, of one egress.
    pub(super) fn input(&self, family: Family, egress: usize) -> EgressInput {
        let Some(side) = self.side(family) else { return EgressInput::default() };
        let report = side.controller.report(egress).unwrap_or_default();
        EgressInput {
            health: match side.follows {
                Some(_) => NOT_PROBED.into(),
                None if self.is_unprobed(family, egress) => UNPROBED.into(),
                None => named(report.health).into(),
            },
            lost: report.lost,
            loss: report.loss,
            late: report.late,
            rtt_ms: report.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            predicted_mbps: report.predicted.map(Rate::as_mbits),
            passed: report.passage.map(|(passage, rate)| PassedInput {
                goodput_mbps: rate.as_mbits(),
                connections: passage.connections,
                segments: passage.segments,
                retransmitted: passage.retransmitted,
                rtt_ms: passage.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            }),
            utilisation: report.utilisation,
            share: report.share,
        }
    }

    fn family_egress(&self, side: &Side, egress: usize) -> Option<FamilyEgress> {
        let of = self.options.config.egresses.get(egress).filter(|of| of.carries(side.family))?;
        let (penalty, suppressed) = side.controller.penalty(monotonic_now(), egress);
        Some(FamilyEgress {
            name: of.name.clone(),
            seen: self.input(side.family, egress),
            unusable: self.why_unusable(egress, side.family),
            penalty,
            suppressed,
        })
    }

    fn family_status(&self, side: &Side) -> FamilyStatus {
        let destinations = self.options.config.route_control.destinations.iter();
        let followed = side.follows.and_then(|of| self.side(of)).unwrap_or(side);
        FamilyStatus {
            family: side.family.to_string(),
            destinations: destinations.filter(|one| Family::of(**one) == side.family).copied().collect(),
            active: self.name(self.active(side.family)).into(),
            active_since: followed.active_since,
            probed: side.follows.is_none(),
            moved: side.moved.iter().map(|(reason, count)| ((*reason).to_string(), *count)).collect(),
            decided: side.decided,
            egresses: (0..self.egresses.len()).filter_map(|egress| self.family_egress(side, egress)).collect(),
        }
    }

    fn egress_status(&self, egress: usize, families: &[FamilyStatus]) -> Option<EgressStatus> {
        let of = self.options.config.egresses.get(egress)?;
        let sides = || {
            families.iter().filter_map(|one| {
                Some((one.family.clone(), one.probed, one.egresses.iter().find(|seen| seen.name == of.name)?))
            })
        };
        let probed = sides().filter(|(_, probed, _)| *probed).map(|(family, _, one)| (family, &one.seen));
        Some(EgressStatus {
            name: of.name.clone(),
            dev: of.dev.clone(),
            mark: Some(self.numbers().mark(egress)),
            metered: of.metered,
            capacity: Some(of.capacity).filter(|rate| *rate > Rate::ZERO),
            seen: together(&probed.collect::<Vec<_>>()),
            unusable: self.egresses.unusable(&self.options.config, egress),
            ways: self.way_statuses(egress),
            sources: self.egresses.ways.get(egress).map(|ways| ways.sources.clone()).unwrap_or_default(),
            penalty: sides().map(|(.., one)| one.penalty).fold(0.0, f64::max),
            suppressed: sides().any(|(.., one)| one.suppressed),
            targets: self.target_statuses(egress),
        })
    }

    fn target_statuses(&self, egress: usize) -> Vec<TargetStatus> {
        let reports = self.sides.iter().flat_map(|side| side.controller.target_reports(egress));
        let mut targets: Vec<_> = reports
            .filter_map(|report| {
                let target = self.options.config.targets.get(report.target as usize)?;
                let prober = self.probers.of(egress, report.target);
                let directions = prober.and_then(|one| one.lost);
                let status = TargetStatus {
                    address: target.address,
                    kind: target.kind,
                    sent: report.sent,
                    lost: report.lost,
                    lost_forward: directions.map(|lost| lost.forward),
                    lost_backward: directions.map(|lost| lost.backward),
                    rtt_ms: report.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                    counts: report.counts,
                };
                Some((report.target, status))
            })
            .collect();
        targets.sort_by_key(|(number, _)| *number);
        targets.into_iter().map(|(_, status)| status).collect()
    }

    /// The state now.
    pub(super) fn current_status(&self) -> RouteControlStatus {
        let config = &self.options.config;
        let families: Vec<FamilyStatus> = self.sides.iter().map(|side| self.family_status(side)).collect();
        let mut decisions: Vec<DecisionRecord> =
            self.sides.iter().flat_map(|side| side.decisions.iter().cloned()).collect();
        decisions.sort_by(|one, other| one.at.total_cmp(&other.at));
        let mut moved: BTreeMap<String, u64> = BTreeMap::new();
        for (reason, count) in self.sides.iter().flat_map(|side| &side.moved) {
            *moved.entry((*reason).to_string()).or_default() += count;
        }
        RouteControlStatus {
            schema: 1,
            dry_run: self.options.dry_run,
            mode: self.mode().into(),
            moves: config.route_control.moves,
            passive: self.passing.passive.is_some(),
            destinations: config.route_control.destinations.clone(),
            active: self.active_name(),
            active_since: families.iter().map(|one| one.active_since).fold(0.0, f64::max),
            egresses: (0..config.egresses.len()).filter_map(|egress| self.egress_status(egress, &families)).collect(),
            families,
            decisions,
            moved,
            decided: self.sides.iter().map(|side| side.decided).sum(),
            refused_probes: self.probers.refused(),
            mended: self.others.mended(),
            overridden: self.others.effects.found().cloned().collect(),
            restored: self.others.firewall.found().to_vec(),
            prediction_errors: (config.control.mode == RouteControlMode::Predictive).then(|| self.prediction_errors()),
        }
    }

    /// The errors of all families, weighed by their moves.
    fn prediction_errors(&self) -> PredictionErrors {
        let all: Vec<PredictionError> = self.sides.iter().map(|side| side.controller.prediction_error()).collect();
        let mean = |of: fn(&PredictionError) -> (f64, u32)| {
            let moves: u32 = all.iter().map(|one| of(one).1).sum();
            let sum: f64 = all.iter().map(|one| of(one).0 * f64::from(of(one).1)).sum();
            (if moves > 0 { sum / f64::from(moves) } else { 0.0 }, moves)
        };
        let (formula, formula_moves) = mean(|one| (one.formula, one.formula_moves));
        let (history, history_moves) = mean(|one| (one.history, one.history_moves));
        PredictionErrors { formula, formula_moves, history, history_moves }
    }

    /// Notes a decision of a family; one like the last is counted there. `share` is that of the flows, where not all move.
    pub(super) fn note(&mut self, family: Family, (from, to): (usize, usize), reason: Reason, share: Option<f64>) {
        let inputs = (0..self.egresses.len())
            .map(|egress| (self.name(egress).to_string(), self.input(family, egress)))
            .collect();
        let record = DecisionRecord {
            at: unix_now(),
            family: family.to_string(),
            from: self.name(from).to_string(),
            to: self.name(to).to_string(),
            reason: reason.as_str().into(),
            share,
            times: 1,
            inputs,
        };
        let Some(side) = self.side_mut(family) else { return };
        side.decided += 1;
        let is_like = |last: &&mut DecisionRecord| {
            from == to && (&last.from, &last.to, &last.reason) == (&record.from, &record.to, &record.reason)
        };
        match side.decisions.back_mut().filter(is_like) {
            Some(last) => *last = DecisionRecord { times: last.times + 1, ..record },
            None => side.decisions.push_back(record),
        }
        while side.decisions.len() > KEPT {
            side.decisions.pop_front();
        }
    }
}

/// What several families show of an egress: the health of each where they differ, and the worst of the numbers.
fn together(of: &[(String, &EgressInput)]) -> EgressInput {
    let inputs = || of.iter().map(|(_, input)| *input);
    let worst = |number: fn(&EgressInput) -> Option<f64>| inputs().filter_map(number).reduce(f64::max);
    let least = |number: fn(&EgressInput) -> Option<f64>| inputs().filter_map(number).reduce(f64::min);
    let health = agreed(of.iter().map(|(family, input)| (family.clone(), input.health.clone())));
    EgressInput {
        health: if health.is_empty() { NOT_PROBED.into() } else { health },
        lost: worst(|one| Some(one.lost)).unwrap_or(0.0),
        loss: worst(|one| Some(one.loss)).unwrap_or(0.0),
        late: inputs().map(|one| one.late).sum(),
        rtt_ms: worst(|one| one.rtt_ms),
        predicted_mbps: least(|one| one.predicted_mbps),
        passed: inputs().filter_map(|one| one.passed.clone()).reduce(|one, other| PassedInput {
            goodput_mbps: one.goodput_mbps + other.goodput_mbps,
            connections: one.connections + other.connections,
            segments: one.segments.saturating_add(other.segments),
            retransmitted: one.retransmitted.saturating_add(other.retransmitted),
            rtt_ms: one.rtt_ms.into_iter().chain(other.rtt_ms).reduce(f64::max),
        }),
        utilisation: worst(|one| one.utilisation),
        share: worst(|one| one.share),
    }
}

/// Seconds since 1970.
pub(super) fn unix_now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
