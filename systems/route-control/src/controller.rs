//! The controller: when it measures, and what it decides.

mod forecast;
mod live;
mod pause;
mod spread;

use std::collections::VecDeque;

use sidestep_net::{Rate, SettingError, SettingsTable as _, Span, Time};

use super::{
    Decision, Health, Passage, PredictionError, Probe, Reason, Report, RouteControlMode, RouteControlSettings, Sample,
    Shift, Timeout,
    analysis::{Rates, Times, overtaken, rto, static_wins, time_to_backup, time_to_primary},
    egress::Egress,
    load::Load,
    measure::{Measurement, Summary},
    patience::{Flights, Patience},
    stability::{FailBack, Stability},
    targets::Targets,
};

/// Chooses the egress of an aggregate.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: RouteControlSettings,
    egresses: Vec<Egress>,
    active: usize,
    /// The routing period that is being measured, or will be.
    period: u32,
    /// When it ends.
    period_ends: Time,
    /// When the next probes are due; [`Time::MAX`]: never.
    next_probe: Time,
    /// Probes of each egress that this period still gets.
    probes_left: u32,
    /// The next egress to send a probe by; beyond the last one nothing must be sent.
    sending: usize,
    /// Periods that wait for answers.
    pending: VecDeque<Pending>,
    last_move: Option<Time>,
    /// The throughput is not judged before.
    settled: Time,
    last_sample: Time,
    /// Bits per second of the aggregate, and its connections, by the last sample.
    rate: Option<f64>,
    /// Whether that rate is of the egress in use alone, and not yet in its history.
    fresh: bool,
    connections: f64,
    last_advance: Option<Time>,
    /// What was predicted of the last move, by formula and by history.
    expected: Option<(Option<f64>, Option<f64>)>,
    errors: PredictionError,
    decision: Option<Decision>,
    targets: Option<Targets>,
    /// What a live edge adds; `None` in the simulator.
    stability: Option<Stability>,
    patience: Option<Patience>,
    /// Which egress each flow takes, where load decides that.
    load: Option<Load>,
    shift: Option<Shift>,
}

/// A period whose probes are all sent.
#[derive(Clone, Copy, Debug)]
struct Pending {
    period: u32,
    ends: Time,
    /// When everything about its probes is known: all are answered, or the last one's timeout has passed.
    due: Time,
}

/// For at most this number of routing periods after a move throughput is not judged, and a move that lets packets overtake waits.
/// Our choice: without a bound a queue that stands on a backup would hold the aggregate there for good.
const LONGEST_WAIT: u64 = 10;
/// From this number of impairments on, their mean length counts as known. Our choice: one or two may be odd ones.
const KNOWN_IMPAIRMENTS: u32 = 3;

impl Controller {
    /// A controller over egresses of these rates, the primary first; a rate of zero is not known.
    pub fn new(settings: &RouteControlSettings, capacities: &[Rate], now: Time) -> Result<Self, SettingError> {
        settings.check()?;
        let settings = settings.effective();
        let probes = probes(&settings) as usize;
        let mut controller = Controller {
            egresses: capacities.iter().map(|capacity| Egress::new(*capacity, probes)).collect(),
            active: 0,
            period: 0,
            period_ends: now,
            next_probe: Time::MAX,
            probes_left: 0,
            sending: usize::MAX,
            pending: VecDeque::with_capacity(2),
            last_move: None,
            settled: now,
            last_sample: now,
            rate: None,
            fresh: false,
            connections: 1.0,
            last_advance: None,
            expected: None,
            errors: PredictionError::default(),
            decision: None,
            targets: None,
            stability: None,
            patience: None,
            load: Load::new(&settings, capacities, now),
            shift: None,
            settings,
        };
        if matches!(controller.settings.mode, RouteControlMode::Practical | RouteControlMode::Predictive) {
            // The first decision is not shortened at random.
            controller.plan(0);
        }
        Ok(controller)
    }

    /// The number of the target to which a probe goes; zero where there is one only.
    pub fn target(&self, probe: Probe) -> Option<u32> {
        match &self.targets {
            Some(targets) => targets.target(probe.egress as usize, probe.number),
            None => Some(0),
        }
    }

    /// The egress that the aggregate takes.
    pub fn active(&self) -> usize {
        self.active
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never.
    pub fn next_timeout(&self) -> Option<(Time, Timeout)> {
        let decision = self.pending.front().map(|pending| pending.due);
        match decision {
            Some(due) if due <= self.next_probe => Some((due, Timeout::Decision)),
            _ if self.next_probe < Time::MAX => Some((self.next_probe, Timeout::Probe)),
            _ => None,
        }
    }

    /// Handles the timeout that is due; before its time nothing happens. `random` shortens the next period, and lengthens
    /// waits.
    pub fn handle_timeout(&mut self, now: Time, random: u32) {
        let Some((_, timeout)) = self.next_timeout().filter(|(due, _)| *due <= now) else { return };
        match timeout {
            Timeout::Decision => {
                if let Some(pending) = self.pending.pop_front() {
                    self.decide(now, pending.period, random);
                }
            }
            Timeout::Probe => self.begin_probes(now, random),
        }
    }

    /// The next probe to send now; the driver sends each at once.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Probe> {
        let period = self.period_of_probes();
        while let Some(egress) = self.egresses.get_mut(self.sending) {
            let number = self.sending as u32;
            self.sending += 1;
            if egress.carrier && self.targets.as_ref().is_none_or(|targets| targets.has(number as usize)) {
                let sent = egress.measurement(period).send(now);
                if let Some(flights) = &mut egress.flights {
                    flights.send(now, period, sent);
                }
                return Some(Probe { egress: number, period, number: sent });
            }
        }
        None
    }

    /// A probe was answered. `delay` is how long it took to the far end, if that is known.
    pub fn handle_answer(&mut self, now: Time, probe: Probe, delay: Option<Span>) {
        let timeout = self.settings.loss_timeout;
        let Some(egress) = self.egresses.get_mut(probe.egress as usize) else { return };
        match egress.flights.as_mut().map(|flights| flights.answer(now, probe, delay)) {
            Some(true) => egress.forgive(),
            Some(false) => {}
            None => egress.measurement(probe.period).answer(now, probe.period, probe.number, timeout, delay),
        }
        let guards = self.settings.guards;
        let complete = |egress: &mut Egress| {
            if let Some(flights) = &egress.flights {
                return flights.is_known(now, probe.period);
            }
            let measurement = egress.measurement(probe.period);
            if guards { measurement.is_known(now, timeout) } else { measurement.is_complete() }
        };
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.period == probe.period)
            && self.egresses.iter_mut().all(complete)
        {
            pending.due = pending.due.min(now.max(pending.ends));
        }
    }

    /// What the aggregate has done until now, since the last sample.
    pub fn handle_sample(&mut self, now: Time, sample: Sample) {
        let begin = std::mem::replace(&mut self.last_sample, now);
        let seconds = now.since(begin).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let rate = sample.acked.get() as f64 * 8.0 / seconds;
        self.rate = Some(rate);
        self.connections = f64::from(sample.connections).max(1.0);
        self.last_advance = self.last_advance.max(sample.last_advance);
        // A sample that a move or its transient fell into shows nothing about the egress.
        // Nor does one that several egresses carried.
        self.fresh = self.settled <= begin && self.last_move.is_none_or(|moved| moved <= begin) && !self.is_spread();
        if self.fresh
            && let Some((formula, history)) = self.expected.take()
        {
            self.errors.note(formula, history, rate);
        }
    }

    /// What has passed each egress until now, since the last time. Callers that can distinguish egresses call this instead of
    /// [`handle_sample`](Self::handle_sample).
    pub fn handle_passages(&mut self, now: Time, passages: &[Passage]) {
        let seconds = now.since(self.last_sample).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        for (egress, passage) in self.egresses.iter_mut().zip(passages) {
            egress.passage = Some((*passage, passage.acked.get() as f64 * 8.0 / seconds));
        }
        let of = passages.get(self.active).copied().unwrap_or_default();
        let Passage { acked, connections, last_advance, .. } = of;
        self.handle_sample(now, Sample { acked, connections, last_advance });
    }

    /// The carrier of an egress is lost, or there again. An active one without carrier is left at once.
    pub fn handle_carrier(&mut self, now: Time, egress: usize, carrier: bool) {
        let Some(of) = self.egresses.get_mut(egress) else { return };
        let is_lost = std::mem::replace(&mut of.carrier, carrier) && !carrier;
        if let Some(stability) = self.stability.as_ref().filter(|_| is_lost) {
            if let Some(damping) = stability.damping.as_ref().filter(|_| of.health == Health::Fine) {
                of.penalty.flap(now, damping);
            }
            of.lose_carrier(now);
        }
        match self.settings.mode {
            RouteControlMode::None => {}
            RouteControlMode::Ideal => self.follow(now),
            RouteControlMode::Practical | RouteControlMode::Predictive => {
                if egress == self.active && !carrier {
                    let to = self.fallback_egress(now);
                    self.go(now, to.unwrap_or(egress), if to.is_some() { Reason::Carrier } else { Reason::AllDead });
                }
                self.leave_unusable(now);
            }
        }
    }

    /// An impairment of an egress has begun or ended, for [`RouteControlMode::Ideal`]; others do not listen.
    pub fn handle_impairment(&mut self, now: Time, egress: usize, impaired: bool) {
        let Some(of) = self.egresses.get_mut(egress) else { return };
        of.told_impaired = impaired;
        if self.settings.mode == RouteControlMode::Ideal {
            self.follow(now);
        }
    }

    /// What was decided since this was called last; of several decisions the last.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.decision.take()
    }

    /// What is known of an egress.
    pub fn report(&self, egress: usize) -> Option<Report> {
        let of = self.egresses.get(egress)?;
        let predicted = self.predict(of).map(|rate| Rate::from_bits_per_sec(rate as u64));
        let passage = of.passage.map(|(passage, rate)| (passage, Rate::from_bits_per_sec(rate as u64)));
        let health = if of.unmeasured { Health::Unknown } else { of.health };
        let health = if of.forwards || health == Health::Dead { health } else { Health::ForwardsNothing };
        let late = of.flights.as_ref().map_or(0, Flights::late);
        let utilisation = self.load.as_ref().and_then(|load| load.utilisation(egress));
        let share = self.load.as_ref().map(|load| load.share(egress));
        let (lost, loss, rtt) = (of.lost, of.losses.share(), of.rtt);
        Some(Report { health, lost, loss, late, rtt, predicted, passage, utilisation, share })
    }

    /// How far predictions were off.
    pub fn prediction_error(&self) -> PredictionError {
        self.errors
    }

    /// The period whose probes are being sent: the next one is planned as soon as the last ones are due.
    fn period_of_probes(&self) -> u32 {
        if self.probes_left == probes(&self.settings) { self.period.wrapping_sub(1) } else { self.period }
    }

    /// Plans the period that begins when the last one ends.
    fn plan(&mut self, random: u32) {
        // Where each egress is judged by its own round trips, a slow one does not keep a dead one in use: it holds back moves instead.
        let longest =
            self.settings.routing_period.max(if self.patience.is_some() { Span::ZERO } else { self.rounds() });
        let share = self.settings.decision_jitter.as_f64() * f64::from(random) / f64::from(u32::MAX);
        let length = Span::from_nanos((longest.as_nanos() as f64 * (1.0 - share)) as u64);
        self.period_ends += length.max(self.settings.measurement_period);
        let opens = self.period_ends.since(Time::ZERO) - self.settings.measurement_period;
        self.next_probe = Time::ZERO + opens;
        self.probes_left = probes(&self.settings);
    }

    /// The round trips of the slowest egress that TCP takes to adapt. The paper's section 2: a controller that is as
    /// fast as TCP moves for losses that TCP would have ended.
    fn rounds(&self) -> Span {
        let slowest = self.egresses.iter().filter_map(|egress| egress.rtt).max().unwrap_or(Span::ZERO);
        Span::from_nanos((slowest.as_nanos() as f64 * self.settings.timescale) as u64)
    }

    /// The next probes are due, one of each egress. Those that were missed, as the driver came late, are left out.
    fn begin_probes(&mut self, now: Time, random: u32) {
        self.sending = 0;
        if self.probes_left == probes(&self.settings) {
            let period = self.period;
            self.egresses.iter_mut().for_each(|egress| egress.measurement(period).begin(period));
        }
        self.probes_left -= 1;
        let interval = self.settings.probe_interval;
        let late = now.since(self.next_probe).as_nanos() / interval.as_nanos().max(1);
        let missed = late.min(self.probes_left.into());
        self.probes_left -= missed as u32;
        let period = self.period;
        self.egresses.iter_mut().for_each(|egress| egress.measurement(period).miss(missed as u32));
        let sent = self.next_probe + interval * missed;
        self.next_probe = sent + interval;
        if self.probes_left == 0 {
            let ends = self.period_ends;
            let due = ends.max(sent + self.settings.loss_timeout);
            self.pending.push_back(Pending { period, ends, due });
            self.period = period.wrapping_add(1);
            // A driver that comes late by whole periods does not make up for them.
            self.period_ends = ends.max(now);
            self.plan(random);
        }
    }

    /// All that can be known of a period's probes is known.
    fn decide(&mut self, now: Time, period: u32, random: u32) {
        let (settings, active) = (&self.settings, self.active);
        // What was acknowledged before a move took another egress.
        let advance = self.last_advance.filter(|advance| self.last_move.is_none_or(|moved| *advance > moved));
        // While flows are spread, it may have been acknowledged over any egress.
        let advance = advance.filter(|_| !self.is_spread());
        for egress in &mut self.egresses {
            egress.measure(now, period);
        }
        let summaries = summaries(&mut self.egresses, self.targets.as_ref(), period);
        let damping = self.stability.as_ref().and_then(|stability| stability.damping.as_ref());
        for (number, (egress, summary)) in self.egresses.iter_mut().zip(summaries).enumerate() {
            let before = egress.health;
            // What passes an egress may be that of flows which stay there.
            let own = egress.passage.and_then(|(passage, _)| passage.last_advance);
            egress.judge(now, summary, settings, own.or(advance.filter(|_| number == active)));
            if let Some(damping) = damping {
                egress.penalty.decay(now, damping);
                if before == Health::Fine && matches!(egress.health, Health::Dead | Health::Impaired) {
                    egress.penalty.flap(now, damping);
                }
            }
        }
        let fresh = self.rate.filter(|_| std::mem::take(&mut self.fresh));
        let fresh = fresh.filter(|rate| self.egresses.get(active).is_some_and(|of| !self.is_idle(of, *rate)));
        for (number, egress) in self.egresses.iter_mut().enumerate() {
            egress.gets = fresh.filter(|_| number == active);
        }
        let steady = self.egresses.get_mut(active).filter(|egress| egress.steady && egress.is_alive());
        if let (Some(egress), Some(rate)) = (steady, fresh) {
            egress.got(rate);
        }
        let (to, reason) = self.choose(now);
        self.go(now, to, reason);
        self.leave_unusable(now);
        self.spread(now, random);
    }

    fn choose(&self, now: Time) -> (usize, Reason) {
        let Some(of) = self.egresses.get(self.active) else { return (self.active, Reason::Fine) };
        if !of.is_alive() {
            let left = self.fallback_egress(now).map(|to| (to, of.why_left()));
            return left.unwrap_or((self.active, Reason::AllDead));
        }
        let (to, reason) = self.wish(now, of);
        match self.objection(now, of, to, reason) {
            Some(objection) if to != self.active => (self.active, objection),
            _ => (to, reason),
        }
    }

    /// Where to flee to: the most preferred egress that is fine, or else the one that loses least. Suppressed ones come last.
    fn fallback_egress(&self, now: Time) -> Option<usize> {
        let of = self.egresses.get(self.active)?;
        let outlives = |egress: &Egress| self.stability.is_none() || egress.has_outlived(of);
        self.refuge_among(|egress| outlives(egress) && !self.is_suppressed(now, egress))
            .or_else(|| self.refuge_among(outlives))
    }

    fn refuge_among(&self, may: impl Fn(&Egress) -> bool) -> Option<usize> {
        let is_other = |(number, egress): &(usize, &Egress)| *number != self.active && may(egress);
        let others = || self.egresses.iter().enumerate().filter(is_other);
        let is_fine = |egress: &Egress| matches!(egress.health, Health::Fine | Health::Unknown);
        let fine = others().find(|(_, egress)| egress.carrier && egress.forwards && is_fine(egress));
        let least = || {
            let alive = others().filter(|(_, egress)| egress.is_alive());
            alive.min_by(|(_, one), (_, other)| one.losses.share().total_cmp(&other.losses.share()))
        };
        fine.or_else(least).map(|(number, _)| number)
    }

    fn is_suppressed(&self, now: Time, egress: &Egress) -> bool {
        let damping = self.stability.as_ref().and_then(|stability| stability.damping.as_ref());
        damping.is_some_and(|damping| egress.penalty.is_suppressed(now, damping))
    }

    /// What prevents a return to a primary that is fine.
    fn against_return(&self, now: Time, primary: &Egress) -> Option<Reason> {
        let Stability { fail_back, fail_back_after, .. } = self.stability.as_ref()?;
        if self.is_suppressed(now, primary) {
            Some(Reason::Suppressed)
        } else if *fail_back == FailBack::Never {
            Some(Reason::NoFailBack)
        } else if primary.fine_since.is_none_or(|since| now < since + *fail_back_after) {
            Some(Reason::Recovering)
        } else {
            None
        }
    }

    /// Where the aggregate should go, guards apart; the egress in use is alive.
    fn wish(&self, now: Time, of: &Egress) -> (usize, Reason) {
        let mut stays = Reason::Fine;
        let predictive = self.settings.mode == RouteControlMode::Predictive;
        // Among backups none is preferred: two sites that share them would chase each other.
        if let Some(primary) = self.egresses.first().filter(|primary| self.active > 0 && primary.is_alive()) {
            let against = self.against_return(now, primary);
            if primary.health == Health::Fine {
                match against {
                    None => return (0, Reason::Recovered),
                    Some(reason) => stays = reason,
                }
            }
            // It may give more although it is impaired.
            let may = predictive && primary.health != Health::Fine && !matches!(against, Some(Reason::Suppressed));
            let both = self.predict(of).zip(self.predict(primary)).filter(|_| may);
            if both.is_some_and(|(present, rate)| self.is_gain(present, rate)) {
                return (0, Reason::Predicted);
            }
        }
        if of.health != Health::Impaired {
            return (self.active, stays);
        }
        if self.loses_by_load(now, self.active, of) {
            return (self.active, Reason::Load);
        }
        let others = || {
            let alive =
                self.egresses.iter().enumerate().filter(|(number, egress)| *number != self.active && egress.is_alive());
            let allowed = alive.filter(|(_, egress)| !self.is_suppressed(now, egress));
            allowed.filter(|(_, egress)| self.is_surely_better(of, egress))
        };
        match self.predict(of).filter(|_| predictive) {
            None => {
                let best = others().min_by(|(_, one), (_, other)| one.losses.share().total_cmp(&other.losses.share()));
                best.map_or((self.active, Reason::NotBetter), |(to, _)| (to, Reason::Loss))
            }
            Some(present) => {
                let rate = |egress: &Egress| self.predict(egress).unwrap_or(f64::INFINITY);
                let best = others().max_by(|(_, one), (_, other)| rate(one).total_cmp(&rate(other)));
                let gain = best.filter(|(_, egress)| self.is_gain(present, rate(egress)));
                gain.map_or((self.active, Reason::NotBetter), |(to, _)| (to, Reason::Predicted))
            }
        }
    }

    fn is_gain(&self, present: f64, other: f64) -> bool {
        other > present * (1.0 + self.settings.margin.as_f64())
    }

    /// Whether the egress in use loses more than another, and not by chance.
    fn is_surely_better(&self, of: &Egress, other: &Egress) -> bool {
        other.losses.share() < of.losses.share() && of.losses.differs(&other.losses) >= self.settings.confidence
    }

    /// What prevents a move that is not an escape from a dead egress.
    fn objection(&self, now: Time, of: &Egress, to: usize, reason: Reason) -> Option<Reason> {
        let settings = &self.settings;
        let other = self.egresses.get(to)?;
        let hold_down = settings.hold_down.max(if self.patience.is_some() { self.rounds() } else { Span::ZERO });
        if self.last_move.is_some_and(|moved| now < moved + hold_down) {
            return Some(Reason::HoldDown);
        }
        if settings.mode == RouteControlMode::Predictive && now < self.settled {
            return Some(Reason::Settling);
        }
        // A queue on a slow backup must not keep the aggregate there for ever.
        let waited = other.fine_since.is_some_and(|since| now >= since + settings.routing_period * LONGEST_WAIT);
        if settings.reordering > 0.0
            && !waited
            && let (Some(from), Some(to), Some(rate)) = (of.delay, other.delay, self.rate)
        {
            // The paper's section 3: N_o = K·(OWD_b − OWD_p) of each connection.
            let each = rate / (self.packet_bits() * self.connections);
            if overtaken(each, from, to) >= settings.reordering {
                return Some(Reason::Reordering);
            }
        }
        if let (Some(from), Some(to)) = (of.rtt, other.rtt) {
            let rise = to - from;
            // The paper's section 3: no ACK comes for the rise, and a timer that fires sets a window to one segment.
            let long = settings.rtt_rise > Span::ZERO && rise >= settings.rtt_rise;
            if long || rto(settings.rto, from, settings.min_rto).is_some_and(|rto| rise > rto) {
                return Some(Reason::RttRise);
            }
        }
        let leaves = matches!(reason, Reason::Loss | Reason::Predicted) && self.active == 0;
        (settings.sit_out && leaves && self.is_too_short(now, of, other)).then_some(Reason::TooShort)
    }

    /// Condition (5), with what is known of the rates and of the length of the primary's impairments.
    fn is_too_short(&self, now: Time, of: &Egress, other: &Egress) -> bool {
        let (mean, count) = of.impairments;
        let rates = (of.history(false), self.predict(of), self.predict(other));
        let (Some(primary_good), Some(primary_bad), Some(backup)) = rates else { return false };
        if count < KNOWN_IMPAIRMENTS {
            return false;
        }
        let lasted = of.impaired_since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let seconds = Span::as_secs_f64;
        let (period, timeout) = (seconds(self.settings.routing_period), seconds(self.settings.loss_timeout));
        let loss = of.losses.share();
        let times = Times {
            good: 0.0,
            bad: mean.max(lasted),
            to_primary: time_to_primary(period, seconds(self.settings.measurement_period), timeout),
            to_backup: time_to_backup(period, timeout, loss, f64::from(probes(&self.settings))),
        };
        static_wins(&Rates { primary_good, primary_bad, backup }, &times)
    }

    /// Ideal control: the most preferred egress that is not impaired, as far as there is one.
    fn follow(&mut self, now: Time) {
        let good = |egress: &Egress| egress.carrier && !egress.told_impaired;
        let to = self.egresses.iter().position(good);
        let reason = if to.is_some() { Reason::Told } else { Reason::AllDead };
        self.go(now, to.unwrap_or(self.active), reason);
    }

    /// Moves the aggregate, or notes why it stays.
    fn go(&mut self, now: Time, to: usize, reason: Reason) {
        let from = std::mem::replace(&mut self.active, to);
        // A move that has not been read yet is worth more than a later reason to stay.
        if from != to || self.decision.is_none_or(|last| last.from == last.to) {
            self.decision = Some(Decision { at: now, from, to, reason });
        }
        let Some(egress) = self.egresses.get(to).filter(|_| from != to) else { return };
        self.expected = Some((self.formula(egress), egress.present_history()));
        self.last_move = Some(now);
        self.settled = now + self.settling(egress);
    }
}

/// What the measurements of a period show of each egress, by the targets that count. One of which most probes could not be
/// sent, or were missed, shows nothing.
fn summaries(egresses: &mut [Egress], targets: Option<&Targets>, period: u32) -> Vec<Summary> {
    let measurements: Vec<&Measurement> = egresses.iter_mut().map(|egress| &*egress.measurement(period)).collect();
    let Some(targets) = targets else {
        return measurements.iter().map(|measurement| measurement.summary(|_| !measurement.is_thin())).collect();
    };
    let reports = targets.judge(&measurements);
    let all = measurements.iter().zip(&reports).enumerate();
    let summaries = all
        .map(|(egress, (measurement, reports))| {
            let is_counted = |target: u32| reports.iter().any(|one| one.target == target && one.counts);
            let counts = |number| targets.target(egress, number).is_some_and(is_counted);
            measurement.summary(|number| !measurement.is_thin() && counts(number))
        })
        .collect();
    for (egress, reports) in egresses.iter_mut().zip(reports) {
        egress.targets = reports;
    }
    summaries
}

/// Probes of each egress in a measurement period.
fn probes(settings: &RouteControlSettings) -> u32 {
    // The settings' check bounds it.
    (settings.measurement_period.as_nanos() / settings.probe_interval.as_nanos().max(1)).max(1) as u32
}
