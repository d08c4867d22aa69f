//! What the controller knows of one egress.

use sidestep_net::{Rate, Span, Time};

use super::{
    Health, Passage, Reason, RouteControlSettings,
    analysis::misses,
    measure::{Losses, Measurement, Summary},
    patience::Flights,
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
    /// Whether what passes it gets through, as far as is known.
    pub(super) forwards: bool,
    /// Whether the driver knows that it is impaired.
    pub(super) told_impaired: bool,
    pub(super) health: Health,
    /// Whether it was not measured since its carrier was lost, so that it is not used although nothing is known of it.
    pub(super) unmeasured: bool,
    /// Whether the last two measurements found the same health.
    pub(super) steady: bool,
    /// Two periods at most are open at once: one is being probed while the answers of the one before are waited for.
    measurements: [Measurement; 2],
    /// Its probes, where timeouts follow its round trips.
    pub(super) flights: Option<Flights>,
    /// The share lost in the last measurement.
    pub(super) lost: f64,
    pub(super) losses: Losses,
    /// The losses of the present impairment, or of the last, while it was not dead.
    impairment: Losses,
    /// Good probes since the last one that was lost to the impairment.
    good_run: f64,
    /// Probes lost at the end of the last measurement: they may be an outage's first.
    trailing: u32,
    pub(super) impaired_since: Option<Time>,
    pub(super) fine_since: Option<Time>,
    /// How long its impairments lasted, in seconds, and how many there were.
    pub(super) impairments: (f64, u32),
    pub(super) rtt: Option<Span>,
    /// The delay to the far end.
    pub(super) delay: Option<Span>,
    /// Bits per second that the aggregate got here, while it was fine and while it was impaired.
    history: [History; 2],
    /// Bits per second that the aggregate gets here now, if it is here and its rate has settled.
    pub(super) gets: Option<f64>,
    /// When the last probe was sent that was answered in the last measurement.
    last_answered: Option<Time>,
    /// The middle of the silence with which the last measurement ended.
    silent_at: Option<Time>,
    /// What its flaps have earned it.
    pub(super) penalty: Penalty,
    /// What its last measurement shows of each target, where there are several.
    pub(super) targets: Vec<TargetReport>,
    /// What passed it last, and how fast, where that is measured.
    pub(super) passage: Option<(Passage, f64)>,
}

/// From this number of segments on, data that passed can contradict probes. Our choice: fewer show no loss of a few in a
/// hundred.
const ENOUGH: u32 = 100;
/// By this number of standard errors at least: our choice, as `confidence` is, but it holds where that is switched off.
const SURE: f64 = 4.0;
/// The weight of an impairment in their mean length. Our choice: the last four or so count, as paths change.
const GAIN: f64 = 0.25;

impl Egress {
    pub(super) fn new(capacity: Rate, probes: usize) -> Self {
        Egress {
            capacity,
            carrier: true,
            forwards: true,
            told_impaired: false,
            health: Health::Unknown,
            unmeasured: false,
            steady: false,
            measurements: [Measurement::with_room(probes), Measurement::with_room(probes)],
            flights: None,
            lost: 0.0,
            losses: Losses::default(),
            impairment: Losses::default(),
            good_run: 0.0,
            trailing: 0,
            impaired_since: None,
            fine_since: None,
            impairments: (0.0, 0),
            rtt: None,
            delay: None,
            history: [History::default(); 2],
            gets: None,
            last_answered: None,
            silent_at: None,
            penalty: Penalty::default(),
            targets: Vec::new(),
            passage: None,
        }
    }

    /// Its carrier is lost: it has to prove again that it works, and one good measurement does.
    pub(super) fn lose_carrier(&mut self, now: Time) {
        self.health = Health::Dead;
        self.unmeasured = true;
        self.fine_since = None;
        self.begin_impairment(now);
        self.good_run = 0.0;
    }

    pub(super) fn measurement(&mut self, period: u32) -> &mut Measurement {
        let [even, odd] = &mut self.measurements;
        if period.is_multiple_of(2) { even } else { odd }
    }

    /// Makes the measurement of a period of what is known now, where timeouts follow its round trips.
    pub(super) fn measure(&mut self, now: Time, period: u32) {
        if let Some(mut flights) = self.flights.take() {
            flights.measure(now, self.measurement(period));
            self.flights = Some(flights);
        }
    }

    /// Whether packets get through at all.
    pub(super) fn is_alive(&self) -> bool {
        self.carrier && self.forwards && self.health != Health::Dead
    }

    /// Why it is left, if packets do not get through.
    pub(super) fn why_left(&self) -> Reason {
        match (self.carrier, self.health) {
            (false, _) => Reason::Carrier,
            (true, Health::Dead) => Reason::Dead,
            (true, _) => Reason::ForwardsNothing,
        }
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

    /// The aggregate got `bits_per_second` in the present condition.
    pub(super) fn got(&mut self, bits_per_second: f64) {
        self.history[usize::from(self.health == Health::Impaired)].add(bits_per_second);
    }

    /// Judges the measurement of a period; acknowledgements of data that took this egress came last at `last_advance`.
    pub(super) fn judge(
        &mut self,
        now: Time,
        summary: Summary,
        settings: &RouteControlSettings,
        last_advance: Option<Time>,
    ) {
        let Summary { sent, lost, lost_at_end, dead_since, delays, .. } = summary;
        if sent == 0 {
            return;
        }
        self.unmeasured = false;
        if let Some((rtt, delay)) = delays {
            (self.rtt, self.delay) = (Some(rtt), Some(delay));
        }
        self.lost = f64::from(lost) / f64::from(sent);
        self.last_answered = summary.last_answered;
        // The middle of the silence at the end.
        let silence = dead_since.zip(summary.last_sent);
        self.silent_at = silence.map(|(since, last)| since + Span::from_nanos(last.since(since).as_nanos() / 2));
        let silent = self.is_silent(&summary, settings);
        let timeout = self.flights.as_ref().map_or(settings.loss_timeout, Flights::timeout);
        let came = |at: Option<Time>| dead_since.zip(at).is_some_and(|(since, at)| at > since + timeout);
        let late = self.flights.as_ref().and_then(Flights::last_arrival);
        let veto = settings.ack_veto && came(last_advance) || came(late);
        let still = if silent { 0 } else { self.swallowed(&summary, settings) };
        let probes = (sent - still, lost - still);
        let (of, gone) = self.credible(probes.0, probes.1, settings);
        self.losses.add(of, gone, settings.memory);
        let before = self.health;
        self.health = if silent && veto {
            // The aggregate gets through: the probes, or their answers, are lost elsewhere.
            Health::Fine
        } else if silent {
            Health::Dead
        } else if f64::from(gone) > settings.loss_threshold.as_f64() * f64::from(of) {
            Health::Impaired
        } else {
            self.after_good_measurement(sent, sent - still, settings)
        };
        self.steady = before == self.health;
        self.fine_since = (self.health == Health::Fine).then(|| self.fine_since.unwrap_or(now));
        match self.health {
            Health::Dead if is_guarded(settings) => self.note_outage(now, &summary),
            Health::Dead | Health::Impaired if self.impaired_since.is_none() || gone > 0 => {
                self.begin_impairment(now);
                self.good_run = 0.0;
                self.impairment.add(of, gone, settings.memory);
            }
            Health::Fine => self.end_impairment(now),
            _ => {}
        }
        let before = if lost == sent { self.trailing } else { 0 };
        let carried = if summary.partial || self.flights.is_some() { before } else { 0 };
        self.trailing = if (of, gone) == probes { lost_at_end.saturating_add(carried) } else { 0 };
    }

    /// Whether it has fallen silent. Few probes are enough if there are no more; where others are still waited for, those of the
    /// measurements before count, too.
    fn is_silent(&self, summary: &Summary, settings: &RouteControlSettings) -> bool {
        let Summary { sent, lost, lost_at_end, partial, .. } = *summary;
        if !partial {
            return lost_at_end >= settings.dead_probes.min(sent);
        }
        let before = if lost == sent { self.trailing } else { 0 };
        lost_at_end.saturating_add(before) >= settings.dead_probes
    }

    /// A probe that was counted as lost is answered after all.
    pub(super) fn forgive(&mut self) {
        self.losses.forgive();
        self.impairment.forgive();
        self.trailing = self.trailing.saturating_sub(1);
    }

    /// How many probes at the start of a measurement were lost in an outage that is over: they do not show how the egress is now.
    fn swallowed(&mut self, summary: &Summary, settings: &RouteControlSettings) -> u32 {
        if !is_guarded(settings) {
            return 0;
        }
        // It may have begun in the last measurement, too late to be seen as one.
        let spans = self.trailing.min(summary.lost_at_start) > 0
            && self.trailing + summary.lost_at_start >= settings.dead_probes;
        if self.health != Health::Dead && !spans {
            return 0;
        }
        if self.health != Health::Dead {
            self.impairment.take_back(self.trailing);
        }
        // An outage does not show how much it loses: else a single lost probe after it would be taken for certain loss.
        self.losses = Losses::default();
        summary.lost_at_start
    }

    /// How many of how many packets were lost: the probes, or the data that passed where it contradicts them. Data that is sent again
    /// was not always lost, so that its share is an upper bound.
    fn credible(&self, sent: u32, lost: u32, settings: &RouteControlSettings) -> (u32, u32) {
        let Some((Passage { segments, retransmitted, .. }, _)) = self.passage.filter(|_| settings.ack_veto) else {
            return (sent, lost);
        };
        let (mut probes, mut data) = (Losses::default(), Losses::default());
        probes.add(sent, lost, 1);
        data.add(segments, retransmitted.min(segments), 1);
        let contradicts = segments >= ENOUGH && data.share() < probes.share() / 2.0;
        if contradicts && probes.differs(&data) >= settings.confidence.max(SURE) {
            (segments, retransmitted.min(segments))
        } else {
            (sent, lost)
        }
    }

    /// How it is after a measurement below the threshold: an impairment may only have been missed. Of `sent` probes `good` were sent
    /// after an outage.
    fn after_good_measurement(&mut self, sent: u32, good: u32, settings: &RouteControlSettings) -> Health {
        if self.impaired_since.is_none() {
            return Health::Fine;
        }
        self.good_run += f64::from(good);
        let enough = settings.dead_probes.min(sent).max(sent.div_ceil(2));
        let is_over = if !is_guarded(settings) {
            true
        } else if self.impairment.is_none() {
            // It was an outage and no loss at random: as soon as packets get through, it is over.
            self.good_run >= f64::from(enough)
        } else {
            misses(self.impairment.share(), self.good_run) <= settings.recovery_miss.as_f64()
        };
        if is_over { Health::Fine } else { Health::Impaired }
    }

    fn begin_impairment(&mut self, now: Time) {
        if self.impaired_since.is_none() {
            self.impaired_since = Some(now);
            self.impairment = Losses::default();
        }
    }

    /// It loses everything. Neither that nor the first probes that the outage swallowed show how much it loses otherwise.
    fn note_outage(&mut self, now: Time, summary: &Summary) {
        self.begin_impairment(now);
        self.good_run = 0.0;
        if summary.lost == summary.sent {
            self.impairment.take_back(self.trailing);
        }
    }

    fn end_impairment(&mut self, now: Time) {
        let Some(since) = self.impaired_since.take() else { return };
        let (mean, count) = &mut self.impairments;
        *count = count.saturating_add(1);
        let gain = (1.0 / f64::from(*count)).max(GAIN);
        *mean += gain * (now.since(since).as_secs_f64() - *mean);
    }
}

/// Whether more than one measurement may be needed to be sure that an impairment is over; not so in the paper's controller.
fn is_guarded(settings: &RouteControlSettings) -> bool {
    settings.recovery_miss.as_f64() < 1.0
}
