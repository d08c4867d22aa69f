//! What a live edge adds: targets, stability, patience, and verdicts on what egresses forward.

use sidestep_net::Time;

use super::{Controller, Reason};
use crate::{
    Health, Patience, Stability,
    patience::Flights,
    targets::{TargetReport, Targets},
};

impl Controller {
    /// The same with several targets, to which the probes of an egress go in turn.
    pub fn with_targets(mut self, targets: Targets) -> Self {
        self.targets = Some(targets);
        self
    }

    /// The same with a rule for the return, and a penalty for egresses that flap. An egress whose carrier is back is used only
    /// after it was measured.
    pub fn with_stability(mut self, stability: Stability) -> Self {
        self.stability = Some(stability);
        self
    }

    /// The same with timeouts that follow each egress's own round trips, `loss_timeout` being the least, and with answers that
    /// count although they are late.
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = Some(patience);
        self.egresses.iter_mut().for_each(|egress| egress.flights = Some(Flights::new(patience)));
        self
    }

    /// The same for an aggregate that takes this egress already.
    pub fn starting_at(mut self, egress: usize) -> Self {
        if egress < self.egresses.len() {
            self.active = egress;
            self.leave_unusable(Time::ZERO);
        }
        self
    }

    /// What the last measurement of an egress shows of each of its targets; nothing where there is one only.
    pub fn target_reports(&self, egress: usize) -> &[TargetReport] {
        self.egresses.get(egress).map_or(&[], |of| &of.targets)
    }

    /// The penalty that the flaps of an egress have earned it, and whether it is suppressed.
    pub fn penalty(&self, now: Time, egress: usize) -> (f64, bool) {
        let damping = self.stability.as_ref().and_then(|stability| stability.damping.as_ref());
        let of = damping.zip(self.egresses.get(egress));
        of.map_or((0.0, false), |(damping, of)| {
            (of.penalty.value(now, damping), of.penalty.is_suppressed(now, damping))
        })
    }

    /// What passes an egress does not get through although probes do, or does again. One that forwards nothing is left at once, and not
    /// used until it does.
    pub fn handle_verdict(&mut self, now: Time, egress: usize, forwards: bool) {
        let Some(of) = self.egresses.get_mut(egress) else { return };
        let is_news = std::mem::replace(&mut of.forwards, forwards) != forwards;
        // It has been fine since now at the earliest.
        of.fine_since = of.fine_since.map(|_| now);
        if !is_news || forwards {
            return;
        }
        let damping = self.stability.as_ref().and_then(|stability| stability.damping.as_ref());
        if let Some(damping) = damping.filter(|_| of.health == Health::Fine) {
            of.penalty.flap(now, damping);
        }
        if egress == self.active {
            let to = self.fallback_egress(now);
            self.go(now, to.unwrap_or(egress), if to.is_some() { Reason::ForwardsNothing } else { Reason::AllDead });
        }
        self.leave_unusable(now);
    }
}
