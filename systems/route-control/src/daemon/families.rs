//! The decisions of each address family: IPv6 may be dead behind an egress by which IPv4 goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sidestep_hostd::AgentError;
use sidestep_linux::{monotonic_now, netlink::Family};
use sidestep_net::{Rate, SettingError, Span, Time};

use super::{DecisionRecord, Moves, RouteControl, RouteControlConfig, unix_now};
use crate::{Controller, Patience, Reason, RouteControlSettings, Targets, Timeout};

/// The decisions of one family.
pub(super) struct Side {
    pub(super) family: Family,
    /// By whose decisions it goes, without targets of its own.
    pub(super) follows: Option<Family>,
    pub(super) controller: Controller,
    /// By egress: what was passed to the controller of its carrier.
    pub(super) usable: Vec<bool>,
    /// How much later than due the next probes leave.
    pub(super) jitter: Span,
    pub(super) decisions: VecDeque<DecisionRecord>,
    pub(super) moved: BTreeMap<&'static str, u64>,
    pub(super) decided: u64,
    pub(super) active_since: f64,
    /// What was logged last: why packets stay or move, and the health of each egress.
    pub(super) logged_reason: Option<Reason>,
    pub(super) told_health: Vec<String>,
    /// By egress: bytes that its interface had sent at the last decision.
    pub(super) sent: Vec<Option<u64>>,
}

impl RouteControlConfig {
    /// The families of which something is decided: those of destinations and of targets.
    pub(super) fn sides(&self) -> BTreeSet<Family> {
        self.families().into_iter().chain(self.targets.iter().map(|target| target.family())).collect()
    }

    /// What is probed of a family, by egress, and how many of that must be reachable.
    pub fn targets_in(&self, family: Family) -> Targets {
        let is_of = |number: &u32| self.targets.get(*number as usize).is_some_and(|one| one.family() == family);
        let mut of = self.targets().of;
        of.iter_mut().for_each(|list| list.retain(is_of));
        let fewest = fewest(&of);
        Targets { quorum: self.route_control.quorum.map_or(fewest / 2 + 1, |quorum| quorum.min(fewest.max(1))), of }
    }

    /// How a family is decided: each of its targets is probed as often as if those of all families had turns.
    pub fn control_in(&self, family: Family) -> RouteControlSettings {
        let (all, ours) = (fewest(&self.targets().of).max(1), fewest(&self.targets_in(family).of).max(1));
        let each = self.control.probe_interval.as_nanos() * u64::from(all) / u64::from(ours);
        let interval = Span::from_nanos(each).min(self.control.measurement_period);
        RouteControlSettings { probe_interval: interval.max(self.control.probe_interval), ..self.control.clone() }
    }

    /// By whose decisions a family goes that has no targets.
    fn follows(&self, family: Family) -> Option<Family> {
        let is_probed = |of: Family| self.targets_in(of).of.iter().any(|list| !list.is_empty());
        if is_probed(family) { None } else { Family::ALL.into_iter().find(|of| is_probed(*of)) }
    }
}

/// Targets of the egress that has fewest of those that have any.
fn fewest(of: &[Vec<u32>]) -> u32 {
    of.iter().map(Vec::len).filter(|count| *count > 0).min().unwrap_or(0) as u32
}

impl Side {
    /// The decisions of each family of a file, beginning with these egresses.
    pub(super) fn all(
        config: &RouteControlConfig,
        starts_at: impl Fn(Family) -> Option<usize>,
    ) -> Result<Vec<Side>, AgentError> {
        config.sides().into_iter().map(|family| Side::new(config, family, starts_at(family).unwrap_or(0))).collect()
    }

    fn new(config: &RouteControlConfig, family: Family, starts_at: usize) -> Result<Self, AgentError> {
        let capacities: Vec<Rate> = config.egresses.iter().map(|egress| egress.capacity).collect();
        // What the file's check lets through can be made.
        let made = Controller::new(&config.control_in(family), &capacities, monotonic_now());
        let made = made.map_err(|error: SettingError| AgentError::Reserved(error.to_string()))?;
        let metered = config.egresses.iter().enumerate().filter(|(_, egress)| egress.metered);
        let made = made.without_load(metered.map(|(number, _)| number));
        let mut made = made.with_targets(config.targets_in(family)).with_stability(config.stability());
        if config.route_control.moves == Moves::NewConnections {
            made = made.with_kept_flows();
        }
        if config.control.guards {
            made = made.with_patience(Patience::from_least(config.control.loss_timeout));
        }
        Ok(Side {
            family,
            follows: config.follows(family),
            controller: made.starting_at(starts_at),
            usable: vec![true; config.egresses.len()],
            jitter: Span::ZERO,
            decisions: VecDeque::new(),
            moved: BTreeMap::new(),
            decided: 0,
            active_since: unix_now(),
            logged_reason: None,
            told_health: Vec::new(),
            sent: Vec::new(),
        })
    }

    /// The same by another file, which begins with what is in use.
    pub(super) fn renewed(self, before: Side) -> Side {
        let Side { decisions, moved, decided, active_since, .. } = before;
        Side { decisions, moved, decided, active_since, ..self }
    }

    /// When the controller wants to be woken.
    pub(super) fn due(&self) -> Option<Time> {
        let (due, timeout) = self.controller.next_timeout().filter(|_| self.follows.is_none())?;
        Some(if timeout == Timeout::Probe { due + self.jitter } else { due })
    }
}

impl RouteControl {
    pub(super) fn side(&self, family: Family) -> Option<&Side> {
        self.sides.iter().find(|side| side.family == family)
    }

    pub(super) fn side_mut(&mut self, family: Family) -> Option<&mut Side> {
        self.sides.iter_mut().find(|side| side.family == family)
    }

    /// The egress that packets of a family take. Without targets of its own a family goes by the decisions of the other, as far as
    /// the egress carries it.
    pub(super) fn active(&self, family: Family) -> usize {
        let Some(side) = self.side(family) else { return 0 };
        let Some(followed) = side.follows.and_then(|of| self.side(of)) else { return side.controller.active() };
        let active = followed.controller.active();
        let can = |egress: usize| self.why_unusable(egress, family).is_none();
        if can(active) { active } else { (0..self.egresses.len()).find(|egress| can(*egress)).unwrap_or(active) }
    }

    /// The egress in use of each family of destinations.
    pub(super) fn all_active(&self) -> BTreeMap<Family, usize> {
        self.options.config.families().into_iter().map(|family| (family, self.active(family))).collect()
    }

    /// The name of the egress in use, or those of each family where they differ: `isp0 (IPv4), isp1 (IPv6)`.
    pub(super) fn active_name(&self) -> String {
        let all = self.all_active();
        agreed(all.into_iter().map(|(family, egress)| (family.to_string(), self.name(egress).to_string())))
    }

    /// Handles what is due in a family: probes leave, or a decision is made.
    pub(super) fn handle_due_in(&mut self, family: Family, now: Time) -> Result<(), AgentError> {
        let most = self.options.config.control.probe_interval.as_nanos() / super::JITTER;
        while self.side(family).and_then(Side::due).is_some_and(|due| due <= now) {
            let (random, later) = (self.probers.draw(), self.probers.draw());
            let Some(side) = self.side(family) else { return Ok(()) };
            if side.controller.next_timeout().is_some_and(|(_, timeout)| timeout == Timeout::Decision) {
                self.report_passages(family, now)?;
                self.report_sent(family, now)?;
            }
            let Some(side) = self.side_mut(family) else { return Ok(()) };
            side.controller.handle_timeout(now, random);
            side.jitter = Span::from_nanos(u64::from(later) * most / u64::from(u32::MAX));
            while let Some(probe) = self.side_mut(family).and_then(|side| side.controller.poll_transmit(now)) {
                self.send(family, probe);
            }
            self.take_decision(family);
        }
        Ok(())
    }

    /// Notes what was decided since the last time.
    pub(super) fn take_decision(&mut self, family: Family) {
        self.take_move(family);
        let Some(shift) = self.side_mut(family).and_then(|side| side.controller.poll_shift()) else { return };
        self.note(family, (shift.from, shift.to), shift.reason, Some(shift.share));
        self.log_shift(family, shift);
        if let Some(side) = self.side_mut(family) {
            *side.moved.entry(shift.reason.as_str()).or_default() += 1;
        }
    }

    fn take_move(&mut self, family: Family) {
        let Some(decision) = self.side_mut(family).and_then(|side| side.controller.poll_decision()) else { return };
        self.note(family, (decision.from, decision.to), decision.reason, None);
        self.log_health(family);
        self.log_decision(family, decision);
        if decision.from == decision.to {
            return;
        }
        if let Some(side) = self.side_mut(family) {
            *side.moved.entry(decision.reason.as_str()).or_default() += 1;
            side.active_since = unix_now();
        }
        for of in self.moving_with(family) {
            self.drain(of, decision.from, decision.to);
        }
    }

    /// The families whose packets go by the decisions of one.
    pub(super) fn moving_with(&self, family: Family) -> Vec<Family> {
        let goes = |side: &&Side| side.family == family || side.follows == Some(family);
        self.sides.iter().filter(goes).map(|side| side.family).collect()
    }
}

/// What holds for all families, or for each where they differ.
pub(super) fn agreed(all: impl Iterator<Item = (String, String)>) -> String {
    let all: Vec<(String, String)> = all.collect();
    let first = all.first().map(|(_, said)| said.clone()).unwrap_or_default();
    if all.iter().all(|(_, said)| *said == first) {
        return first;
    }
    all.into_iter().map(|(family, said)| format!("{said} ({family})")).collect::<Vec<_>>().join(", ")
}
