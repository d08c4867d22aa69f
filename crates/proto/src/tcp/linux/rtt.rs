//! The round-trip time and the retransmission timeout as Linux has them (`tcp_rtt_estimator`).

use sidestep_net::Span;

use crate::tcp::Config;

/// What is known of the round-trip time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimator {
    /// Eight times the smoothed time, and four times its mean deviation.
    srtt: u64,
    deviation: u64,
    /// The largest deviation of this round, and what the timeout has above the smoothed time.
    largest: u64,
    variation: u64,
    /// The least time; zero before the first sample.
    pub(super) least: u64,
    /// The timeout before back-off.
    pub(super) rto: u64,
}

impl Estimator {
    /// An estimate without samples.
    pub(super) fn new(config: &Config) -> Self {
        Estimator { rto: config.initial_rto.as_nanos(), ..Estimator::default() }
    }

    /// The smoothed time; zero before the first sample.
    #[inline]
    pub(super) fn srtt(&self) -> u64 {
        self.srtt >> 3
    }

    /// The smoothed time, a nanosecond at least; `None` before the first sample.
    #[inline]
    pub(super) fn smoothed(&self) -> Option<Span> {
        (self.srtt > 0).then(|| Span::from_nanos(self.srtt().max(1)))
    }

    /// Takes the time of the last segment of an ACK. Linux forgets the least time after five minutes; here it stays.
    #[inline]
    pub(super) fn sample_least(&mut self, rtt: u64) {
        if self.least == 0 || rtt < self.least {
            self.least = rtt.max(1);
        }
    }

    /// Takes a sample; `round_ended`: it is the first of a round. Within a round the timeout only grows.
    ///
    /// RFC 6298 §2, with the variation fourfold (K = 4): a first sample R gives 2·R, later ones move the time by an
    /// eighth and its deviation by a quarter. The RFC rounds the sum up to a second; Linux gives the variation
    /// `tcp_rto_min` at least, so that a delayed ACK is no timeout on a long path either.
    #[inline]
    pub(super) fn sample(&mut self, config: &Config, rtt: u64, round_ended: bool) {
        self.estimate(config.min_rto.as_nanos(), rtt, round_ended);
        self.rto = (self.srtt() + self.variation).min(config.max_rto.as_nanos());
    }

    #[inline]
    fn estimate(&mut self, floor: u64, rtt: u64, round_ended: bool) {
        if self.srtt == 0 {
            self.srtt = (rtt << 3).max(1);
            self.deviation = rtt << 1;
            self.variation = self.deviation.max(floor);
            self.largest = self.variation;
            return;
        }
        let mut error = rtt as i64 - (self.srtt >> 3) as i64;
        self.srtt = (self.srtt as i64 + error).max(1) as u64;
        let deviation = (self.deviation >> 2) as i64;
        if error < 0 {
            error = -error - deviation;
            // A shorter time widens the deviation by an eighth of what a longer one does: a queue that drains is no
            // reason to wait for longer (`tcp_rtt_estimator`, after Eifel).
            if error > 0 {
                error >>= 3;
            }
        } else {
            error -= deviation;
        }
        self.deviation = (self.deviation as i64 + error).max(0) as u64;
        if self.deviation > self.largest {
            self.largest = self.deviation;
            self.variation = self.variation.max(self.largest);
        }
        if round_ended {
            if self.largest < self.variation {
                // By a quarter in a round and not with each sample: many samples of a window show the same.
                self.variation -= (self.variation - self.largest) >> 2;
            }
            self.largest = floor;
        }
    }
}
