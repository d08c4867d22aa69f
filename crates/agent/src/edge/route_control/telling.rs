//! What the log says of moves, of what holds them back, and of the health of egresses: a line each, with the numbers that decided.

use sidestep_proto::irc::{Decision, Reason};

use super::RouteControl;

impl RouteControl {
    /// Says that packets move, or why they do not although the egress in use is not fine or not the primary. The same reason is said
    /// once.
    pub(super) fn tell_decision(&mut self, decision: Decision) {
        let Decision { from, to, reason, .. } = decision;
        let before = self.told_reason.replace(reason);
        if from == to && (before == Some(reason) || reason == Reason::Fine) {
            return;
        }
        let seen: Vec<_> = (0..self.links.len()).map(|egress| self.numbers_of(egress)).collect();
        let (seen, threshold) = (seen.join("; "), self.threshold());
        let (from, to, reason, dry_run) = (self.name(from), self.name(to), reason.as_str(), self.options.dry_run);
        if from == to {
            tracing::info!(reason, "packets stay on {to}: {reason} [{seen}; threshold {threshold}]");
        } else {
            tracing::info!(
                from,
                to,
                reason,
                dry_run,
                "packets move from {from} to {to}: {reason} [{seen}; threshold {threshold}]"
            );
        }
    }

    /// Says of each egress whose health is another than before what it is now.
    pub(super) fn tell_health(&mut self) {
        self.told_health.resize(self.links.len(), "unknown".to_string());
        for egress in 0..self.links.len() {
            let now = self.input(egress).health;
            let Some(told) = self.told_health.get_mut(egress) else { continue };
            if *told == now {
                continue;
            }
            let was = std::mem::replace(told, now.clone());
            let (name, seen) = (self.name(egress), self.numbers_of(egress));
            tracing::info!(
                egress = name,
                was,
                health = now,
                "{name} was {was}: now {seen}; threshold {}",
                self.threshold()
            );
        }
    }

    /// What is known of an egress, in numbers.
    fn numbers_of(&self, egress: usize) -> String {
        let input = self.input(egress);
        let rtt = input.rtt_ms.map_or_else(|| "no round trip".to_string(), |rtt| format!("rtt {rtt:.1} ms"));
        let predicted = input.predicted_mbps.map(|rate| format!(", predicted {rate:.2} Mbit/s")).unwrap_or_default();
        let passed = input
            .passed
            .filter(|passed| passed.segments > 0)
            .map(|passed| format!(", traffic sent again {} of {}", passed.retransmitted, passed.segments));
        format!(
            "{} {}, lost {:.1} %, averaged {:.1} %, {rtt}{predicted}{}",
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
