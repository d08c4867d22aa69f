//! One measurement period of one egress: which probes were sent, and which were answered in time.

use sidestep_net::{Span, Time};

use super::patience::Flight;

/// The probes of a measurement period; their number is bounded, so nothing is allocated after the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Measurement {
    period: u32,
    /// By number: when it was sent.
    sent: Vec<Time>,
    /// By number: whether it was answered in time.
    answered: Vec<bool>,
    answers: u32,
    /// By number: whether it shows nothing, as the host could not send it or did not wait for its answer.
    void: Vec<bool>,
    voids: u32,
    /// Probes that were due and not sent, as the host came too late.
    missed: u32,
    /// By place: the numbers of the probes, where they are not their places.
    numbers: Vec<u32>,
    /// Whether probes that were sent before its end are still waited for.
    partial: bool,
    /// By number: the round trip and the delay to the far end, in nanoseconds; zeros where there is no answer.
    delays: Vec<(u64, u64)>,
}

/// What became of some of the probes of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) sent: u32,
    pub(super) lost: u32,
    /// How many were lost before the first one that was answered.
    pub(super) lost_at_start: u32,
    /// How many were lost one after the other, up to the last one.
    pub(super) lost_at_end: u32,
    /// When the first of the probes lost at the end was sent.
    pub(super) dead_since: Option<Time>,
    /// When the last probe was sent, and the last one that was answered.
    pub(super) last_sent: Option<Time>,
    pub(super) last_answered: Option<Time>,
    /// Whether some of its probes are still waited for, so that it may show few.
    pub(super) partial: bool,
    /// The mean round trip and the mean delay to the far end.
    pub(super) delays: Option<(Span, Span)>,
}

impl Measurement {
    /// A place for `probes` probes.
    pub(super) fn with_room(probes: usize) -> Self {
        Measurement {
            sent: Vec::with_capacity(probes),
            answered: Vec::with_capacity(probes),
            void: Vec::with_capacity(probes),
            delays: Vec::with_capacity(probes),
            ..Measurement::default()
        }
    }

    /// Begins again.
    pub(super) fn begin(&mut self, period: u32) {
        self.period = period;
        self.sent.clear();
        self.answered.clear();
        self.delays.clear();
        self.void.clear();
        self.numbers.clear();
        self.partial = false;
        (self.answers, self.voids, self.missed) = (0, 0, 0);
    }

    /// A probe is sent now; returns its number.
    pub(super) fn send(&mut self, now: Time) -> u32 {
        self.sent.push(now);
        self.answered.push(false);
        self.delays.push((0, 0));
        self.void.push(false);
        self.sent.len() as u32 - 1
    }

    /// A probe was answered; `delay` is how long it took to the far end, half of its round trip if that is not known.
    pub(super) fn answer(&mut self, now: Time, period: u32, number: u32, timeout: Span, delay: Option<Span>) {
        let Some((sent, answered)) = self.sent.get(number as usize).zip(self.answered.get_mut(number as usize)) else {
            return;
        };
        let rtt = now.since(*sent);
        let is_void = self.void.get(number as usize) == Some(&true);
        if period != self.period || *answered || is_void || rtt > timeout {
            return;
        }
        *answered = true;
        self.answers += 1;
        if let Some(delays) = self.delays.get_mut(number as usize) {
            *delays = (rtt.as_nanos(), delay.map_or(rtt.as_nanos() / 2, Span::as_nanos));
        }
    }

    /// A probe without an answer shows nothing.
    pub(super) fn void(&mut self, period: u32, number: u32) {
        let place = number as usize;
        let waits = period == self.period && self.answered.get(place) == Some(&false);
        if let Some(void) = self.void.get_mut(place).filter(|void| waits && !**void) {
            *void = true;
            self.voids += 1;
        }
    }

    /// `probes` probes were due and are not sent.
    pub(super) fn miss(&mut self, probes: u32) {
        self.missed = self.missed.saturating_add(probes);
    }

    /// Whether most of its probes show nothing, so that the others are too few to judge by.
    pub(super) fn is_thin(&self) -> bool {
        self.voids + self.missed > self.sent.len() as u32 - self.voids
    }

    /// Is of these probes instead, whose fate is known; with `partial` others of them still wait.
    pub(super) fn take(&mut self, known: &[Flight], partial: bool) {
        let (period, unknown) = (self.period, self.voids + self.missed);
        self.begin(period);
        self.missed = unknown;
        for flight in known {
            self.send(flight.sent);
            self.numbers.push(flight.number);
            let place = self.sent.len() - 1;
            let Some((rtt, delay)) = flight.answer else { continue };
            self.answers += 1;
            if let Some((answered, delays)) = self.answered.get_mut(place).zip(self.delays.get_mut(place)) {
                (*answered, *delays) = (true, (rtt.as_nanos(), delay.as_nanos()));
            }
        }
        self.partial = partial;
    }

    /// Whether no answer is missing.
    pub(super) fn is_complete(&self) -> bool {
        (self.answers + self.voids) as usize == self.sent.len()
    }

    /// Whether everything about the probes is known: each is answered, or too late for that.
    pub(super) fn is_known(&self, now: Time, timeout: Span) -> bool {
        self.is_complete()
            || self
                .sent
                .iter()
                .zip(&self.answered)
                .zip(&self.void)
                .all(|((sent, answered), void)| *answered || *void || *sent + timeout <= now)
    }

    /// What became of the probes whose numbers `counts`.
    pub(super) fn summary(&self, counts: impl Fn(u32) -> bool) -> Summary {
        let mut summary = Summary { partial: self.partial, ..Summary::default() };
        let (mut rtts, mut delays) = (0, 0);
        let probes = self.sent.iter().zip(&self.answered).zip(&self.delays).zip(0_u32..);
        let is_valid = |number: u32| self.void.get(number as usize) == Some(&false);
        let number = |place: u32| self.numbers.get(place as usize).copied().unwrap_or(place);
        for (((sent, answered), (rtt, delay)), _) in
            probes.filter(|(_, place)| is_valid(*place) && counts(number(*place)))
        {
            summary.sent += 1;
            summary.last_sent = Some(*sent);
            if *answered {
                (summary.lost_at_end, summary.dead_since) = (0, None);
                summary.last_answered = Some(*sent);
                rtts += rtt;
                delays += delay;
            } else {
                summary.lost_at_start += u32::from(summary.lost == summary.sent - 1);
                summary.lost += 1;
                summary.lost_at_end += 1;
                summary.dead_since = summary.dead_since.or(Some(*sent));
            }
        }
        let count = u64::from(summary.sent - summary.lost);
        let mean = |sum: u64| sum.checked_div(count).map(Span::from_nanos);
        summary.delays = mean(rtts).zip(mean(delays));
        summary
    }
}

/// Losses averaged over measurements, with old ones weighing less, begun again after a jump.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    sent: f64,
    lost: f64,
}

/// A measurement differs from the average for certain beyond this number of standard errors. Our choice, more than
/// `confidence`: to forget what was known costs more than to be slow.
const JUMP: f64 = 6.0;

impl Losses {
    /// Takes back a loss that was none: its answer came late.
    pub(super) fn forgive(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
    }

    /// Takes a measurement, with the average over about `memory` of them.
    pub(super) fn add(&mut self, sent: u32, lost: u32, memory: u32) {
        let one = Losses { sent: f64::from(sent), lost: f64::from(lost) };
        if sent == 0 {
            return;
        }
        let keep = if one.differs(self).abs() > JUMP { 0.0 } else { 1.0 - 1.0 / f64::from(memory.max(1)) };
        *self = Losses { sent: self.sent * keep + one.sent, lost: self.lost * keep + one.lost };
    }

    /// Takes the packets of another average, too.
    pub(super) fn join(&mut self, other: &Losses) {
        *self = Losses { sent: self.sent + other.sent, lost: self.lost + other.lost };
    }

    /// Takes back probes of the last measurement that were lost.
    pub(super) fn take_back(&mut self, lost: u32) {
        *self = Losses { sent: (self.sent - f64::from(lost)).max(0.0), lost: (self.lost - f64::from(lost)).max(0.0) };
    }

    /// Whether nothing was lost.
    pub(super) fn is_none(&self) -> bool {
        self.lost < 0.5
    }

    /// The share that is lost.
    pub(super) fn share(&self) -> f64 {
        if self.sent > 0.0 { self.lost / self.sent } else { 0.0 }
    }

    /// By how many standard errors this loses more than `other`: the z-test of two proportions with a pooled variance.
    pub(super) fn differs(&self, other: &Losses) -> f64 {
        if self.sent == 0.0 || other.sent == 0.0 {
            return 0.0;
        }
        let pooled = (self.lost + other.lost) / (self.sent + other.sent);
        let variance = pooled * (1.0 - pooled) * (1.0 / self.sent + 1.0 / other.sent);
        if variance > 0.0 { (self.share() - other.share()) / variance.sqrt() } else { 0.0 }
    }
}
