//! What the controller knows of one egress.

use sidestep_model::{Rate, Span, Time};

use super::{
    Health, IrcKnobs,
    analysis::misses,
    measure::{Losses, Measurement, Summary},
    predict::History,
    stability::Penalty,
    targets::TargetReport,
};

/// An egress towards the destination.
#[derive(Clone, Debug)]
pub(super) struct Egress {
    /// Its rate; zero if it is not known.
    pub(super) capacity: Rate,
    pub(super) carrier: bool,
    /// Whether the driver knows that it is impaired.
    pub(super) told_impaired: bool,
    pub(super) health: Health,
    /// Whether the last two measurements found the same health.
    pub(super) steady: bool,
    /// Two periods at most are open at once: one is being probed while the answers of the one before are waited for.
    measurements: [Measurement; 2],
    /// The share lost in the last measurement.
    pub(super) lost: f64,
    pub(super) losses: Losses,
    /// The losses of the present impairment, or of the last.
    impairment: Losses,
    /// Good probes since the last measurement that found an impairment.
    good_run: f64,
    pub(super) impaired_since: Option<Time>,
    pub(super) fine_since: Option<Time>,
    /// How long its impairments lasted, in seconds, and how many there were.
    pub(super) impairments: (f64, u32),
    pub(super) rtt: Option<Span>,
    /// The delay to the far end.
    pub(super) delay: Option<Span>,
    /// Bits per second that the aggregate got here, while it was fine and while it was impaired.
    history: [History; 2],
    /// When the last probe was sent that was answered in the last measurement.
    last_answered: Option<Time>,
    /// The middle of the silence with which the last measurement ended.
    silent_at: Option<Time>,
    /// What its flaps have earned it.
    pub(super) penalty: Penalty,
    /// What its last measurement says of each target, where there are several.
    pub(super) targets: Vec<TargetReport>,
}

/// The weight of an impairment in their mean length.
const GAIN: f64 = 0.25;

impl Egress {
    pub(super) fn new(capacity: Rate, probes: usize) -> Self {
        Egress {
            capacity,
            carrier: true,
            told_impaired: false,
            health: Health::Unknown,
            steady: false,
            measurements: [Measurement::with_room(probes), Measurement::with_room(probes)],
            lost: 0.0,
            losses: Losses::default(),
            impairment: Losses::default(),
            good_run: 0.0,
            impaired_since: None,
            fine_since: None,
            impairments: (0.0, 0),
            rtt: None,
            delay: None,
            history: [History::default(); 2],
            last_answered: None,
            silent_at: None,
            penalty: Penalty::default(),
            targets: Vec::new(),
        }
    }

    /// Its carrier is lost: it has to prove anew that it works, and one good measurement does.
    pub(super) fn lose_carrier(&mut self, now: Time) {
        self.health = Health::Dead;
        self.fine_since = None;
        if self.impaired_since.is_none() {
            self.impaired_since = Some(now);
            (self.impairment, self.good_run) = (Losses::default(), 0.0);
        }
        self.impairment.add(1, 1, 1);
    }

    pub(super) fn measurement(&mut self, period: u32) -> &mut Measurement {
        let [even, odd] = &mut self.measurements;
        if period.is_multiple_of(2) { even } else { odd }
    }

    /// Whether packets get through at all.
    pub(super) fn is_alive(&self) -> bool {
        self.carrier && self.health != Health::Dead
    }

    /// Whether it has answered since another one fell silent. If both fell silent at once, the targets may have died.
    pub(super) fn has_outlived(&self, other: &Egress) -> bool {
        let unknown = self.health == Health::Unknown || !other.carrier;
        unknown || other.silent_at.is_none_or(|silent| self.last_answered.is_some_and(|answered| answered >= silent))
    }

    pub(super) fn history(&self, impaired: bool) -> Option<f64> {
        self.history[usize::from(impaired)].mean()
    }

    /// The history of its present condition.
    pub(super) fn present_history(&self) -> Option<f64> {
        self.history(self.health == Health::Impaired)
    }

    /// The aggregate got so many bits per second in the present condition.
    pub(super) fn got(&mut self, bits_per_second: f64) {
        self.history[usize::from(self.health == Health::Impaired)].add(bits_per_second);
    }

    /// Judges the measurement of a period; acknowledgements of data that took this egress came last at `last_advance`.
    pub(super) fn judge(&mut self, now: Time, summary: Summary, knobs: &IrcKnobs, last_advance: Option<Time>) {
        let Summary { sent, lost, lost_at_end, dead_since, delays, .. } = summary;
        if sent == 0 {
            return;
        }
        if let Some((rtt, delay)) = delays {
            (self.rtt, self.delay) = (Some(rtt), Some(delay));
        }
        self.lost = f64::from(lost) / f64::from(sent);
        self.last_answered = summary.last_answered;
        // The middle of the silence at the end.
        let silence = dead_since.zip(summary.last_sent);
        self.silent_at = silence.map(|(since, last)| since + Span::from_nanos(last.since(since).as_nanos() / 2));
        self.losses.add(sent, lost, knobs.memory);
        let silent = lost_at_end >= knobs.dead_probes.min(sent);
        let veto = knobs.ack_veto
            && dead_since.zip(last_advance).is_some_and(|(since, advance)| advance > since + knobs.loss_timeout);
        let before = self.health;
        self.health = if silent && veto {
            // The aggregate gets through: the probes, or their answers, are lost elsewhere.
            Health::Fine
        } else if silent {
            Health::Dead
        } else if self.lost > knobs.loss_threshold.as_f64() {
            Health::Impaired
        } else {
            self.after_good_measurement(sent, knobs)
        };
        self.steady = before == self.health;
        self.fine_since = (self.health == Health::Fine).then(|| self.fine_since.unwrap_or(now));
        match self.health {
            Health::Dead | Health::Impaired if self.impaired_since.is_none() => {
                self.impaired_since = Some(now);
                (self.impairment, self.good_run) = (Losses::default(), 0.0);
                self.impairment.add(sent, lost, knobs.memory);
            }
            Health::Dead | Health::Impaired if lost > 0 => {
                self.good_run = 0.0;
                self.impairment.add(sent, lost, knobs.memory);
            }
            Health::Fine => self.end_impairment(now),
            _ => {}
        }
    }

    /// How it is after a measurement below the threshold: an impairment may only have been missed.
    fn after_good_measurement(&mut self, sent: u32, knobs: &IrcKnobs) -> Health {
        if self.impaired_since.is_none() {
            return Health::Fine;
        }
        self.good_run += f64::from(sent);
        let chance = misses(self.impairment.share(), self.good_run);
        if chance <= knobs.recovery_miss.as_f64() { Health::Fine } else { Health::Impaired }
    }

    fn end_impairment(&mut self, now: Time) {
        let Some(since) = self.impaired_since.take() else { return };
        let (mean, count) = &mut self.impairments;
        *count = count.saturating_add(1);
        let gain = (1.0 / f64::from(*count)).max(GAIN);
        *mean += gain * (now.since(since).as_secs_f64() - *mean);
    }
}
