//! What the controller expects of an egress: the throughput there, and how long that takes to settle.

use sidestep_net::{Rate, Span};

use super::{
    super::{
        Health, PredictionError, RouteControlPrediction, RouteControlRto,
        analysis::{fill_time, rto},
        egress::Egress,
        predict::{Conditions, pftk},
    },
    Controller, LONGEST_WAIT,
};

/// Throughput is not judged after a move for at least this number of round trips. Our choice: as `timescale`, a loss and its
/// repair.
const SETTLING_ROUNDS: f64 = 3.0;
/// Below this share of what the formula predicts an aggregate is idle. Our choice: the formula is seldom off by so
/// much.
const IDLE: f64 = 0.01;
/// Segments that make an acknowledgement (RFC 5681, section 4.2).
const ACK_EVERY: f64 = 2.0;

impl Controller {
    /// Bits per second that the aggregate would get at an egress; `None` if nothing bounds it.
    pub(super) fn predict(&self, of: &Egress) -> Option<f64> {
        let (formula, history) = (self.formula(of), of.present_history());
        let predicted = match self.settings.prediction {
            RouteControlPrediction::Formula => formula.into_iter().chain(history).reduce(f64::min),
            RouteControlPrediction::History => history.or(formula),
        };
        // What it gets there now needs no prediction: the formula is that of a single loss at a time, and of no buffer.
        predicted.map(|rate| rate.max(of.gets.filter(|_| of.is_alive()).unwrap_or(0.0)))
    }

    /// The formula's prediction, capped by the egress's capacity and by the most that the aggregate has got.
    pub(super) fn formula(&self, of: &Egress) -> Option<f64> {
        if !of.is_alive() {
            return Some(0.0);
        }
        let rtt = of.rtt.unwrap_or(Span::ZERO) + self.beyond();
        let impaired = of.health == Health::Impaired;
        let conditions = Conditions {
            loss: if impaired { of.losses.share() } else { 0.0 },
            rtt,
            rto: rto(RouteControlRto::Linux, rtt, self.settings.min_rto).unwrap_or(Span::ZERO),
            ack_every: ACK_EVERY,
        };
        let formula = pftk(&conditions) * self.connections * self.packet_bits();
        let capacity = Some(of.capacity.bits_per_sec() as f64).filter(|capacity| *capacity > 0.0);
        let got = |egress: &Egress| {
            [false, true].into_iter().filter_map(|impaired| egress.history(impaired)).reduce(f64::max)
        };
        let demand = self.egresses.iter().filter_map(got).reduce(f64::max);
        let least = capacity.into_iter().chain(demand).fold(formula, f64::min);
        Some(least).filter(|rate| rate.is_finite())
    }

    /// Whether a rate is so low that it shows what the site wanted, and not what the egress gives.
    pub(super) fn is_idle(&self, of: &Egress, rate: f64) -> bool {
        rate <= self.formula(of).unwrap_or(0.0) * IDLE
    }

    /// By how much the far ends of the aggregate's connections are farther than the targets of the probes.
    pub(super) fn beyond(&self) -> Span {
        let of = self.egresses.get(self.active);
        let both = of.and_then(|of| of.passage.and_then(|(passage, _)| passage.rtt).zip(of.rtt));
        both.map_or(Span::ZERO, |(far, near)| far - near)
    }

    pub(super) fn packet_bits(&self) -> f64 {
        self.settings.packet.get() as f64 * 8.0
    }

    /// How long the throughput is not judged after a move to an egress: until TCP has filled it (the paper's section
    /// 4).
    pub(super) fn settling(&self, egress: &Egress) -> Span {
        let longest = self.settings.routing_period * LONGEST_WAIT;
        let rtt = egress.rtt.unwrap_or(Span::ZERO);
        let known = (egress.capacity > Rate::ZERO).then_some(egress.capacity);
        let fill = match (known, self.rate) {
            (Some(capacity), Some(rate)) => {
                let rate = Rate::from_bits_per_sec(rate as u64);
                fill_time(rtt, capacity, rate, self.packet_bits(), self.connections)
            }
            _ => self.settings.routing_period,
        };
        let seconds = fill.as_secs_f64().max(SETTLING_ROUNDS * rtt.as_secs_f64()) * self.settings.fill;
        Span::from_nanos((seconds * 1e9) as u64).min(longest)
    }
}

impl PredictionError {
    /// After a move the aggregate got `got` bits per second.
    pub(super) fn note(&mut self, formula: Option<f64>, history: Option<f64>, got: f64) {
        if got <= 0.0 {
            return;
        }
        let note = |mean: &mut f64, count: &mut u32, predicted: Option<f64>| {
            let Some(predicted) = predicted else { return };
            *count += 1;
            *mean += ((predicted - got).abs() / got - *mean) / f64::from(*count);
        };
        note(&mut self.formula, &mut self.formula_moves, formula);
        note(&mut self.history, &mut self.history_moves, history);
    }
}
