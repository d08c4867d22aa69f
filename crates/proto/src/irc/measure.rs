//! One measurement period of one egress: which probes were sent, and which were answered in time.

use sidestep_model::{Span, Time};

/// The probes of a measurement period; their number is bounded, so nothing is allocated after the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Measurement {
    period: u32,
    /// By number: when it was sent.
    sent: Vec<Time>,
    /// By number: whether it was answered in time.
    answered: Vec<bool>,
    answers: u32,
    rtt_sum: u64,
    delay_sum: u64,
}

impl Measurement {
    /// A place for so many probes.
    pub(super) fn with_room(probes: usize) -> Self {
        Measurement { sent: Vec::with_capacity(probes), answered: Vec::with_capacity(probes), ..Measurement::default() }
    }

    /// Begins anew.
    pub(super) fn begin(&mut self, period: u32) {
        self.period = period;
        self.sent.clear();
        self.answered.clear();
        (self.answers, self.rtt_sum, self.delay_sum) = (0, 0, 0);
    }

    /// A probe is sent now; returns its number.
    pub(super) fn send(&mut self, now: Time) -> u32 {
        self.sent.push(now);
        self.answered.push(false);
        self.sent.len() as u32 - 1
    }

    /// A probe was answered; `delay` is how long it took to the far end, half of its round trip if that is not known.
    pub(super) fn answer(&mut self, now: Time, period: u32, number: u32, timeout: Span, delay: Option<Span>) {
        let Some((sent, answered)) = self.sent.get(number as usize).zip(self.answered.get_mut(number as usize)) else {
            return;
        };
        let rtt = now.since(*sent);
        if period != self.period || *answered || rtt > timeout {
            return;
        }
        *answered = true;
        self.answers += 1;
        self.rtt_sum += rtt.as_nanos();
        self.delay_sum += delay.map_or(rtt.as_nanos() / 2, Span::as_nanos);
    }

    /// Whether no answer is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.answers as usize == self.sent.len()
    }

    pub(super) fn sent(&self) -> u32 {
        self.sent.len() as u32
    }

    pub(super) fn lost(&self) -> u32 {
        self.sent() - self.answers
    }

    /// How many were lost one after the other, up to the last one.
    pub(super) fn lost_at_end(&self) -> u32 {
        self.answered.iter().rev().take_while(|answered| !**answered).count() as u32
    }

    /// When the first of the probes lost at the end was sent.
    pub(super) fn dead_since(&self) -> Option<Time> {
        self.sent.get(self.sent.len().checked_sub(self.lost_at_end() as usize)?).copied()
    }

    /// The mean round trip and the mean delay to the far end.
    pub(super) fn delays(&self) -> Option<(Span, Span)> {
        let count = u64::from(self.answers);
        let mean = |sum: u64| sum.checked_div(count).map(Span::from_nanos);
        mean(self.rtt_sum).zip(mean(self.delay_sum))
    }
}

/// Losses averaged over measurements, with old ones weighing less, begun anew after a jump.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    sent: f64,
    lost: f64,
}

/// A measurement differs from the average for certain beyond so many standard errors.
const JUMP: f64 = 6.0;

impl Losses {
    /// Takes a measurement, with the average over about `memory` of them.
    pub(super) fn add(&mut self, sent: u32, lost: u32, memory: u32) {
        let one = Losses { sent: f64::from(sent), lost: f64::from(lost) };
        if sent == 0 {
            return;
        }
        let keep = if one.differs(self).abs() > JUMP { 0.0 } else { 1.0 - 1.0 / f64::from(memory.max(1)) };
        *self = Losses { sent: self.sent * keep + one.sent, lost: self.lost * keep + one.lost };
    }

    /// The share that is lost.
    pub(super) fn share(&self) -> f64 {
        if self.sent > 0.0 { self.lost / self.sent } else { 0.0 }
    }

    /// By how many standard errors this loses more than `other`: the test of two proportions.
    pub(super) fn differs(&self, other: &Losses) -> f64 {
        if self.sent == 0.0 || other.sent == 0.0 {
            return 0.0;
        }
        let pooled = (self.lost + other.lost) / (self.sent + other.sent);
        let variance = pooled * (1.0 - pooled) * (1.0 / self.sent + 1.0 / other.sent);
        if variance > 0.0 { (self.share() - other.share()) / variance.sqrt() } else { 0.0 }
    }
}
