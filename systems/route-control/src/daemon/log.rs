//! What the log shows of moves, of what holds them back, and of the health of egresses: a line each, with the numbers that
//! decided.

use sidestep_linux::netlink::Family;

use super::RouteControl;
use crate::{Decision, Reason, Shift};

impl RouteControl {
    /// Logs that packets of a family move, or why they do not although the egress in use is not fine or not the primary. The
    /// same reason is logged once.
    pub(super) fn log_decision(&mut self, family: Family, decision: Decision) {
        let Decision { from, to, reason, .. } = decision;
        let Some(side) = self.side_mut(family) else { return };
        let before = side.logged_reason.replace(reason);
        if from == to && (before == Some(reason) || reason == Reason::Fine) {
            return;
        }
        let seen: Vec<_> = (0..self.egresses.len()).map(|egress| self.numbers_of(family, egress)).collect();
        let (seen, threshold) = (seen.join("; "), self.threshold());
        let (from, to, reason, dry_run) = (self.name(from), self.name(to), reason.as_str(), self.options.dry_run);
        let families: Vec<String> = self.moving_with(family).iter().map(Family::to_string).collect();
        let (packets, family) = (self.packets(family), families.join(", "));
        if from == to {
            tracing::info!(family, reason, "{packets} stay on {to}: {reason} [{seen}; threshold {threshold}]");
        } else {
            tracing::info!(
                family,
                from,
                to,
                reason,
                dry_run,
                "{packets} move from {from} to {to}: {reason} [{seen}; threshold {threshold}]"
            );
        }
    }

    /// Logs that some flows move.
    pub(super) fn log_shift(&self, family: Family, shift: Shift) {
        let Shift { from, to, share, reason, .. } = shift;
        let seen: Vec<_> = (0..self.egresses.len()).map(|egress| self.numbers_of(family, egress)).collect();
        let (from, to, reason, dry_run) = (self.name(from), self.name(to), reason.as_str(), self.options.dry_run);
        let (percent, seen, packets) = (share * 100.0, seen.join("; "), self.packets(family));
        tracing::info!(
            from,
            to,
            reason,
            dry_run,
            "{percent:.0} % of the flows' {packets} move from {from} to {to}: {reason} [{seen}]"
        );
    }

    /// Whose packets go by the decisions of a family: `packets` are all.
    fn packets(&self, family: Family) -> String {
        let families = self.moving_with(family);
        if families.len() == self.sides.len() {
            return "packets".into();
        }
        let names: Vec<String> = families.iter().map(Family::to_string).collect();
        format!("packets of {}", names.join(" and "))
    }

    /// Logs the new health of each egress whose health for a family has changed.
    pub(super) fn log_health(&mut self, family: Family) {
        for egress in 0..self.egresses.len() {
            let now = self.input(family, egress).health;
            let count = self.egresses.len();
            let Some(side) = self.side_mut(family) else { return };
            side.told_health.resize(count, "unknown".to_string());
            let Some(told) = side.told_health.get_mut(egress) else { continue };
            if *told == now {
                continue;
            }
            let was = std::mem::replace(told, now.clone());
            let (name, seen, of) = (self.name(egress), self.numbers_of(family, egress), family.to_string());
            tracing::info!(
                egress = name,
                family = of,
                was,
                health = now,
                "{name} was {was} for {family}: now {seen}; threshold {}",
                self.threshold()
            );
        }
    }

    /// What is known of an egress for a family, in numbers.
    fn numbers_of(&self, family: Family, egress: usize) -> String {
        let input = self.input(family, egress);
        let rtt = input.rtt_ms.map_or_else(|| "no round trip".to_string(), |rtt| format!("rtt {rtt:.1} ms"));
        let predicted = input.predicted_mbps.map(|rate| format!(", predicted {rate:.2} Mbit/s")).unwrap_or_default();
        let passed = input
            .passed
            .filter(|passed| passed.segments > 0)
            .map(|passed| format!(", traffic sent again {} of {}", passed.retransmitted, passed.segments));
        let percent = |share: f64| share * 100.0;
        let load = input.utilisation.map(|of| format!(", utilisation {:.0} %", percent(of))).unwrap_or_default();
        let share = input.share.map(|of| format!(", {:.0} % of the flows", percent(of))).unwrap_or_default();
        format!(
            "{} {}, lost {:.1} %, averaged {:.1} %, {rtt}{predicted}{}{load}{share}",
            self.name(egress),
            input.health,
            input.lost * 100.0,
            input.loss * 100.0,
            passed.unwrap_or_default()
        )
    }

    /// From which share of lost probes on an egress is impaired.
    fn threshold(&self) -> String {
        format!("{:.1} %", self.options.config.control.loss_threshold.as_f64() * 100.0)
    }
}
