//! The flows that take another egress than the one in use, as that one is full.

use sidestep_net::{Bytes, Time};

use super::{Controller, Reason};
use crate::{Health, Shift, egress::Egress, load::Load};

/// The egress in use loses by its load if it loses less than this share. Our choice: TCP that fills a path has less loss.
const BY_LOAD: f64 = 0.1;

impl Controller {
    /// Makes a controller whose load moves no flows to these egresses, such as those that cost money.
    pub fn without_load(mut self, egresses: impl IntoIterator<Item = usize>) -> Self {
        if let Some(load) = &mut self.load {
            egresses.into_iter().for_each(|egress| load.exclude(egress));
        }
        self
    }

    /// Makes a controller for an edge where each flow stays on its egress: load moves only flows that begin.
    pub fn with_kept_flows(mut self) -> Self {
        if let Some(load) = &mut self.load {
            load.move_new_only();
        }
        self
    }

    /// What was sent by each egress since the last time, for `load`.
    pub fn handle_sent(&mut self, now: Time, sent: &[Bytes]) {
        if let Some(load) = &mut self.load {
            load.note_sent(now, sent);
        }
    }

    /// The egress that flows of this bucket take; buckets beyond [`crate::BUCKETS`] begin again.
    pub fn egress_of(&self, bucket: usize) -> usize {
        self.load.as_ref().map_or(self.active, |load| load.owner(bucket))
    }

    /// Whether some flows take another egress than the one in use.
    pub fn is_spread(&self) -> bool {
        self.load.as_ref().is_some_and(Load::is_spread)
    }

    /// Which flows have moved since this was called last, while the others stayed; of several shifts the last.
    pub fn poll_shift(&mut self) -> Option<Shift> {
        self.shift.take()
    }

    /// Takes flows from egresses that must have none.
    pub(super) fn leave_unusable(&mut self, now: Time) {
        let keeps = self.takers(now, |_| true);
        let Some(load) = &mut self.load else { return };
        let Some((from, share)) = load.follow(now, self.active, |egress| keeps.get(egress) == Some(&true)) else {
            return;
        };
        let of = self.egresses.get(from);
        let reason = of.filter(|of| !of.is_alive()).map_or(Reason::Loss, Egress::why_left);
        self.shift = Some(Shift { at: now, from, to: self.active, share, reason });
    }

    /// Moves flows between egresses if one is too full, or none needs another one any more.
    pub(super) fn spread(&mut self, now: Time, random: u32) {
        // Nothing new goes where nothing is known.
        let takes = self.takers(now, |of| of.health != Health::Unknown);
        let Some(load) = &mut self.load else { return };
        let shift = load.decide(now, |egress| takes.get(egress) == Some(&true), random);
        self.shift = shift.or(self.shift.take());
    }

    /// Which egresses may have flows for load: those that work, and lose no more than the others beyond chance but by their load.
    fn takers(&self, now: Time, may: impl Fn(&Egress) -> bool) -> Vec<bool> {
        let others = || self.egresses.iter().filter(|other| other.is_alive());
        let loses = |number: usize, of: &Egress| {
            // What carries much gets through: TCP that lost more would send less.
            let loaded = self.load.as_ref().is_some_and(|load| load.is_loaded(now, number));
            let impaired = of.health == Health::Impaired && !loaded;
            impaired && others().any(|other| self.is_surely_better(of, other))
        };
        let takes = |(number, of): (usize, &Egress)| {
            may(of) && of.is_alive() && !self.is_suppressed(now, of) && !loses(number, of)
        };
        self.egresses.iter().enumerate().map(takes).collect()
    }

    /// Whether the egress in use loses packets because of its load.
    pub(super) fn loses_by_load(&self, now: Time, egress: usize, of: &Egress) -> bool {
        self.load.as_ref().is_some_and(|load| load.is_loaded(now, egress)) && of.losses.share() < BY_LOAD
    }
}
