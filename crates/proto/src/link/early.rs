//! Random early detection, and burst losses. Most links have neither.

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_net::{BurstLoss, Bytes, Ratio, Red, Time};

/// RED's state (Floyd and Jacobson 1993, with the names of its section 4).
#[derive(Clone, Debug)]
pub(super) struct RedState {
    red: Red,
    /// Average queue in bytes.
    avg: f64,
    /// Packets since the last one hit; below zero: the average is below `min`.
    count: i64,
    /// When the queue was last found empty.
    idle_since: Option<Time>,
}

/// The state of Gilbert and Elliott's model of burst losses.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    loss: BurstLoss,
    bad: bool,
}

/// The size of a typical packet in bytes: RED counts how many an idle link could have sent.
const TYPICAL: f64 = 1_000.0;

impl RedState {
    pub(super) fn new(red: Red) -> Self {
        RedState { red, avg: 0.0, count: -1, idle_since: Some(Time::ZERO) }
    }

    /// Whether these are its settings.
    pub(super) fn has(&self, red: &Red) -> bool {
        self.red == *red
    }

    /// Whether a packet that finds `queued` bytes is hit; `byte_time` is in nanoseconds.
    pub(super) fn hits(&mut self, now: Time, queued: Bytes, byte_time: f64, random: &mut Pcg32) -> bool {
        let weight = self.red.weight.as_f64();
        if let Some(since) = self.idle_since.take() {
            // The average falls as if packets had found an empty queue meanwhile.
            let packets = now.since(since).as_nanos() as f64 / (TYPICAL * byte_time).max(1.0);
            self.avg *= (1.0 - weight).powf(packets.min(1e6));
        }
        self.avg += weight * (queued.get() as f64 - self.avg);
        if queued == Bytes::default() {
            self.idle_since = Some(now);
        }
        let probability = self.probability();
        if probability <= 0.0 {
            self.count = -1;
            return false;
        }
        self.count += 1;
        // Spreads hits evenly: each spared packet makes the next hit more likely (section 4).
        let spread = probability / (1.0 - self.count as f64 * probability).max(probability);
        if f64::from(random.next_u32()) < spread * 4_294_967_296.0 {
            self.count = 0;
            return true;
        }
        false
    }

    fn probability(&self) -> f64 {
        let [min, max] = [self.red.min, self.red.max].map(|bytes| bytes.get() as f64);
        let most = self.red.probability.as_f64();
        if self.avg < min {
            0.0
        } else if self.avg < max {
            most * (self.avg - min) / (max - min)
        } else if self.red.gentle && self.avg < 2.0 * max {
            most + (1.0 - most) * (self.avg - max) / max
        } else {
            1.0
        }
    }
}

impl Burst {
    pub(super) fn new(loss: BurstLoss) -> Self {
        Burst { loss, bad: false }
    }

    /// Its probabilities.
    pub(super) fn loss(&self) -> BurstLoss {
        self.loss
    }

    /// Whether these are its probabilities.
    pub(super) fn has(&self, loss: &BurstLoss) -> bool {
        self.loss == *loss
    }

    /// Whether the next packet is lost.
    pub(super) fn loses(&mut self, random: &mut Pcg32) -> bool {
        let mut happens = |ratio: Ratio| f64::from(random.next_u32()) < ratio.as_f64() * 4_294_967_296.0;
        if happens(if self.bad { self.loss.to_good } else { self.loss.to_bad }) {
            self.bad = !self.bad;
        }
        happens(if self.bad { self.loss.in_bad } else { self.loss.in_good })
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    fn percent(percent: u32) -> Ratio {
        Ratio::from_ppb(percent * 10_000_000)
    }

    #[test]
    fn bursts_have_the_share_and_the_length_that_their_probabilities_give() {
        let loss = BurstLoss { to_bad: percent(1), to_good: percent(20), in_good: Ratio::ZERO, in_bad: percent(100) };
        let (mut burst, mut random) = (Burst::new(loss), Pcg32::seed_from_u64(1));
        let lost: Vec<bool> = (0..1_000_000).map(|_| burst.loses(&mut random)).collect();
        // In the bad state for to_bad / (to_bad + to_good) of the time, 1 / to_good packets at a time.
        let share = lost.iter().filter(|lost| **lost).count() as f64 / 1e6;
        let bursts = lost.windows(2).filter(|two| !two[0] && two[1]).count() as f64;
        assert!((share - 0.01 / 0.21).abs() < 0.002, "{share}");
        assert!((share * 1e6 / bursts - 5.0).abs() < 0.2, "{}", share * 1e6 / bursts);
    }

    #[test]
    fn red_hits_with_the_probability_of_its_average() {
        let red = Red {
            min: Bytes::new(10_000),
            max: Bytes::new(30_000),
            probability: percent(10),
            weight: percent(1),
            gentle: true,
        };
        let share = |queued: u64| {
            let (mut state, mut random) = (RedState::new(red), Pcg32::seed_from_u64(2));
            let mut hits = (0..210_000).map(|_| state.hits(Time::ZERO, Bytes::new(queued), 80.0, &mut random));
            // The average has reached the queue by then.
            hits.by_ref().take(10_000).for_each(drop);
            hits.filter(|hit| *hit).count() as f64 / 200_000.0
        };
        assert_eq!(share(9_000), 0.0);
        // Spreading makes gaps uniform from 1 to 1/p - 1: a packet in 1 / 2p is hit.
        for (queued, p) in [(15_000, 0.025), (20_000, 0.05), (29_999, 0.1)] {
            let expected = 2.0 * p;
            assert!((share(queued) / expected - 1.0).abs() < 0.05, "{queued}: {} and not {expected}", share(queued));
        }
        assert_eq!(share(60_000), 1.0);
    }

    #[test]
    fn the_average_of_red_falls_while_the_link_is_idle() {
        let red =
            Red { min: Bytes::new(1), max: Bytes::new(2), probability: percent(1), weight: percent(10), gentle: true };
        let (mut state, mut random) = (RedState::new(red), Pcg32::seed_from_u64(3));
        for _ in 0..100 {
            state.hits(Time::ZERO, Bytes::new(50_000), 80.0, &mut random);
        }
        state.hits(Time::ZERO, Bytes::default(), 80.0, &mut random);
        let before = state.avg;
        state.hits(Time::from_nanos(1_000_000_000), Bytes::default(), 80.0, &mut random);
        assert!(before > 40_000.0 && state.avg < 1.0, "{before} {}", state.avg);
    }
}
