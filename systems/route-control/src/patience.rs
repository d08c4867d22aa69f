//! Timeouts that follow the round trips of each egress, and answers that come after them.
//!
//! A probe is lost when its egress's timeout has passed without an answer. The timeout is that of RFC 6298 (the smoothed round trip and
//! four times its variation), at least twice the longest recent round trip, so that a queue may double between two answers, and
//! within the bounds of [`Patience`]. An answer that comes later shows that the egress is alive, takes back the loss that was counted,
//! and makes the timeout longer.
//!
//! A decision takes what is known then: probes that wait within their timeout are judged by a later one. So one slow egress delays no
//! decision about the others.

use std::collections::VecDeque;

use sidestep_net::{Span, Time};

use super::{Probe, measure::Measurement};

/// How long answers to probes are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// No timeout is shorter.
    pub least: Span,
    /// The timeout of an egress of which no round trip is known.
    pub first: Span,
    /// No timeout is longer.
    pub most: Span,
}

/// The first timeout, in shortest ones: with 500 ms it is 4 s, beyond a satellite and a queue on its path. Our choice.
const FIRST: u64 = 8;
/// The longest timeout: a queue of five seconds on the path, doubled as above. Our choice; RFC 6298, section 2, rule 2.5
/// has a minute at least, in which an outage would not be seen.
const MAX: Span = Span::from_secs(10);
/// Probes of an egress that are remembered while they wait, and as many that were counted as lost. Our choice: ten
/// seconds of one each 10 ms.
const REMEMBERED: usize = 1_024;

impl Patience {
    /// Timeouts from this one on.
    pub fn from_least(least: Span) -> Self {
        let most = MAX.max(least);
        Patience { least, first: (least * FIRST).min(most), most }
    }
}

/// The round trips of an egress, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RoundTrips {
    smoothed: Option<f64>,
    variation: f64,
    /// The longest recent one.
    peak: f64,
}

impl RoundTrips {
    /// Takes a round trip (RFC 6298, section 2).
    fn note(&mut self, rtt: Span) {
        let rtt = rtt.as_secs_f64();
        let smoothed = match self.smoothed {
            None => {
                self.variation = rtt / 2.0;
                rtt
            }
            Some(smoothed) => {
                self.variation = 0.75 * self.variation + 0.25 * (smoothed - rtt).abs();
                0.875 * smoothed + 0.125 * rtt
            }
        };
        self.smoothed = Some(smoothed);
        self.peak = self.peak.max(rtt);
    }

    /// A measurement is over: its longest round trip is forgotten by half.
    fn age(&mut self) {
        if let Some(smoothed) = self.smoothed {
            self.peak = smoothed.max((self.peak + smoothed) / 2.0);
        }
    }

    fn timeout(&self, patience: &Patience) -> Span {
        let Some(smoothed) = self.smoothed else { return patience.first };
        let seconds = (smoothed + 4.0 * self.variation).max(2.0 * self.peak);
        Span::from_nanos((seconds * 1e9) as u64).max(patience.least).min(patience.most)
    }
}

/// A probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flight {
    period: u32,
    pub(super) number: u32,
    pub(super) sent: Time,
    /// The round trip, and the delay to the far end.
    pub(super) answer: Option<(Span, Span)>,
}

/// The probes of an egress that may still be answered.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    patience: Patience,
    trips: RoundTrips,
    /// In the order in which they were sent.
    waiting: VecDeque<Flight>,
    /// Those that were counted as lost.
    lapsed: VecDeque<Flight>,
    last_arrival: Option<Time>,
    /// Answers that came late since the last measurement, and in the time of that.
    late: (u32, u32),
}

impl Flights {
    pub(super) fn new(patience: Patience) -> Self {
        Flights {
            patience,
            trips: RoundTrips::default(),
            waiting: VecDeque::new(),
            lapsed: VecDeque::new(),
            last_arrival: None,
            late: (0, 0),
        }
    }

    /// How long answers are waited for now.
    pub(super) fn timeout(&self) -> Span {
        self.trips.timeout(&self.patience)
    }

    /// Answers that came late, in the time of the last measurement.
    pub(super) fn late(&self) -> u32 {
        self.late.1
    }

    /// When an answer came last.
    pub(super) fn last_arrival(&self) -> Option<Time> {
        self.last_arrival
    }

    pub(super) fn send(&mut self, now: Time, period: u32, number: u32) {
        self.waiting.push_back(Flight { period, number, sent: now, answer: None });
        if self.waiting.len() > REMEMBERED
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.lapse(oldest);
        }
    }

    /// Takes an answer; returns whether its probe was counted as lost.
    pub(super) fn answer(&mut self, now: Time, probe: Probe, delay: Option<Span>) -> bool {
        let is_it = |flight: &Flight| (flight.period, flight.number) == (probe.period, probe.number);
        let timeout = self.timeout();
        if let Some(flight) = self.waiting.iter_mut().find(|flight| is_it(flight)) {
            if flight.answer.is_some() {
                return false;
            }
            let rtt = now.since(flight.sent);
            flight.answer = Some((rtt, delay.unwrap_or(Span::from_nanos(rtt.as_nanos() / 2))));
            self.arrived(now, rtt, rtt > timeout);
            return false;
        }
        let Some(place) = self.lapsed.iter().position(is_it) else { return false };
        if let Some(flight) = self.lapsed.remove(place) {
            self.arrived(now, now.since(flight.sent), true);
        }
        true
    }

    /// A probe shows nothing, and is no loss.
    pub(super) fn void(&mut self, probe: Probe) {
        let is_it = |flight: &Flight| (flight.period, flight.number) == (probe.period, probe.number);
        self.waiting.retain(|flight| flight.answer.is_some() || !is_it(flight));
    }

    /// Nothing that is in flight shows anything.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.lapsed.clear();
    }

    fn arrived(&mut self, now: Time, rtt: Span, late: bool) {
        self.trips.note(rtt);
        self.late.0 += u32::from(late);
        self.last_arrival = self.last_arrival.max(Some(now));
    }

    /// Whether everything about the probes of a period is known.
    pub(super) fn is_known(&self, now: Time, period: u32) -> bool {
        let timeout = self.timeout();
        let mut waiting = self.waiting.iter().filter(|flight| flight.period == period);
        waiting.all(|flight| flight.answer.is_some() || flight.sent + timeout <= now)
    }

    /// Makes a measurement of all that is known now and was not before.
    pub(super) fn measure(&mut self, now: Time, measurement: &mut Measurement) {
        let timeout = self.timeout();
        let (mut known, mut waiting) = (Vec::new(), VecDeque::with_capacity(self.waiting.len()));
        for flight in self.waiting.drain(..) {
            if flight.answer.is_some() || flight.sent + timeout <= now {
                known.push(flight);
            } else {
                waiting.push_back(flight);
            }
        }
        self.waiting = waiting;
        measurement.take(&known, !self.waiting.is_empty());
        known.into_iter().filter(|flight| flight.answer.is_none()).for_each(|flight| self.lapse(flight));
        self.trips.age();
        self.late = (0, self.late.0);
    }

    fn lapse(&mut self, flight: Flight) {
        self.lapsed.push_back(flight);
        if self.lapsed.len() > REMEMBERED {
            self.lapsed.pop_front();
        }
    }
}
