//! The throughput that TCP gets: by formula, and by what it got before.

use sidestep_net::Span;

/// How a TCP connection loses and waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The share of packets that is lost.
    pub loss: f64,
    /// The round trip.
    pub rtt: Span,
    /// The retransmission timeout.
    pub rto: Span,
    /// Segments that make an ACK: 2 with delayed ACKs.
    pub ack_every: f64,
}

/// Packets per second of a TCP connection: the approximation with timeouts of Padhye, Firoiu, Towsley and Kurose (PFTK,
/// SIGCOMM 1998). RFC 5348, section 3.1, has it without the minimum.
///
/// It grows without bound as the loss goes to zero, where it is infinite: the caller caps it.
pub fn pftk(of: &Conditions) -> f64 {
    let (p, b) = (of.loss, of.ack_every);
    if p <= 0.0 || of.rtt == Span::ZERO {
        return f64::INFINITY;
    }
    let recovery = of.rtt.as_secs_f64() * (2.0 * b * p / 3.0).sqrt();
    let timeouts = of.rto.as_secs_f64() * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (recovery + timeouts)
}

/// An exponentially weighted average that begins again when the level of its samples has shifted, after the predictors
/// by history of He, Dovrolis and Ammar, "On the Predictability of Large Transfer TCP Throughput", SIGCOMM 2005 (the
/// paper's reference 6). The numbers below are our choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct History {
    mean: f64,
    samples: u32,
    /// Samples in a row that lay beyond [`SHIFT`] on one side, and their sum.
    beyond: i32,
    beyond_sum: f64,
}

/// The weight of a new sample: the last five or so count.
const GAIN: f64 = 0.2;
/// A sample that differs from the average by a larger share of it lies beyond: Reno's own swing is a third of its mean.
const SHIFT: f64 = 0.4;
/// This number of samples beyond in a row is a level shift: one or two may be outliers.
const SHIFTED: i32 = 3;

impl History {
    /// Takes a sample.
    pub fn add(&mut self, sample: f64) {
        self.samples = self.samples.saturating_add(1);
        if self.samples == 1 {
            self.mean = sample;
            return;
        }
        let side = if sample > self.mean * (1.0 + SHIFT) {
            1
        } else if sample < self.mean * (1.0 - SHIFT) {
            -1
        } else {
            0
        };
        if side == 0 || side * self.beyond < 0 {
            (self.beyond, self.beyond_sum) = (0, 0.0);
        }
        if side != 0 {
            self.beyond += side;
            self.beyond_sum += sample;
        }
        if self.beyond.abs() >= SHIFTED {
            self.mean = self.beyond_sum / f64::from(SHIFTED);
            (self.beyond, self.beyond_sum) = (0, 0.0);
            return;
        }
        // The first samples weigh alike.
        let gain = (1.0 / f64::from(self.samples)).max(GAIN);
        self.mean += gain * (sample - self.mean);
    }

    /// The average; `None` before the first sample.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(loss: f64) -> Conditions {
        Conditions { loss, rtt: Span::from_millis(100), rto: Span::from_millis(300), ack_every: 2.0 }
    }

    #[test]
    fn the_formula_has_the_square_root_law_for_small_losses_and_no_bound_at_none() {
        // 1 / (RTT √(2bp/3)) with p = 10⁻⁶: the timeouts' share is below a thousandth.
        let small = pftk(&conditions(1e-6));
        assert!((small / (1.0 / (0.1 * (4e-6_f64 / 3.0).sqrt())) - 1.0).abs() < 0.01, "{small}");
        assert_eq!(pftk(&conditions(0.0)), f64::INFINITY);
        // p = 2 %, by hand: 0.1 · 0.16330 + 0.3 · min(1, 0.36742) · 0.02 · 1.0128 = 0.018563.
        assert!((pftk(&conditions(0.02)) - 1.0 / 0.018_563).abs() < 0.05);
    }

    #[test]
    fn a_history_follows_a_level_shift_at_its_third_sample_and_ignores_one_outlier() {
        let mut history = History::default();
        assert_eq!(history.mean(), None);
        (0..20).for_each(|_| history.add(8.0));
        history.add(1.0);
        history.add(8.0);
        assert!(history.mean().is_some_and(|mean| mean > 6.5));
        for sample in [2.0, 2.0, 2.0] {
            history.add(sample);
        }
        assert_eq!(history.mean(), Some(2.0));
    }
}
