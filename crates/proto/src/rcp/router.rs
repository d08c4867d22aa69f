//! The router's half: the one rate that all flows through a link may have.

use sidestep_model::{Bytes, Rate, Span, Time};

use super::Config;

/// What a router keeps of one direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct Router {
    /// In bits per second; zero: the link is not limited, and neither are its flows.
    capacity: f64,
    rate: f64,
    /// Mean round-trip time of what passes, in seconds.
    rtt: f64,
    began: Time,
    ends: Time,
    /// Bytes that came in this slot, and the round-trip times in microseconds of the packets that knew theirs.
    input: u64,
    rtts: u64,
    samples: u32,
}

/// The mean round-trip time before any packet has told its own, in seconds.
const INITIAL_RTT: f64 = 0.1;
/// The lowest rate is this part of a packet of 1500 bytes in a round trip, so that many flows can share a link.
const LEAST_PACKETS: f64 = 0.01;
const PACKET_BITS: f64 = 12_000.0;
/// As many slots without any packet as bring every rate back to the capacity.
const MAX_IDLE_SLOTS: u32 = 1_000;

impl Router {
    /// A link of this capacity, before the first packet.
    pub fn new(config: &Config, capacity: Rate) -> Self {
        let capacity = capacity.bits_per_sec() as f64;
        Router {
            capacity,
            rate: capacity * config.initial_rate,
            rtt: INITIAL_RTT,
            began: Time::ZERO,
            ends: Time::ZERO + config.slot,
            input: 0,
            rtts: 0,
            samples: 0,
        }
    }

    /// The link has another capacity from now on.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.capacity = capacity.bits_per_sec() as f64;
        self.rate = self.rate.min(self.capacity);
    }

    /// A packet of `len` bytes comes to the link, whose queue holds `queue` bytes; `rtt` is what its sender says in
    /// microseconds, zero if it does not know. Returns the rate that the link offers each flow, in kbit/s.
    ///
    /// A slot that has ended is looked at when the next packet comes, with the queue that this one finds.
    #[inline]
    pub fn handle_packet(&mut self, config: &Config, now: Time, len: u32, rtt: u32, queue: Bytes) -> u32 {
        if self.capacity == 0.0 {
            return u32::MAX;
        }
        if now >= self.ends {
            self.end_slots(config, now, queue);
        }
        self.input += u64::from(len);
        self.rtts += u64::from(rtt);
        self.samples += u32::from(rtt > 0);
        ((self.rate / 1e3) as u32).max(1)
    }

    fn end_slots(&mut self, config: &Config, now: Time, queue: Bytes) {
        for _ in 0..MAX_IDLE_SLOTS {
            if now < self.ends {
                return;
            }
            // What waits now did not wait while nothing came.
            let idle = self.input == 0;
            self.end_slot(config, if idle { Bytes::default() } else { queue });
        }
        self.rate = self.capacity;
        self.began = now;
        self.ends = now + self.slot(config);
    }

    /// R ← R·[1 + (T/d)·(α(γC − y) − βQ/d)/(γC)] (equation 3.2).
    fn end_slot(&mut self, config: &Config, queue: Bytes) {
        let lasted = self.ends.since(self.began).as_secs_f64().max(1e-9);
        if self.samples > 0 {
            let mean = self.rtts as f64 * 1e-6 / f64::from(self.samples);
            self.rtt += (lasted / self.rtt).min(1.0) * (mean - self.rtt);
        }
        let target = config.gamma * self.capacity;
        let input = self.input as f64 * 8.0 / lasted;
        let drain = queue.get() as f64 * 8.0 / self.rtt;
        let change = (lasted / self.rtt) * (config.alpha * (target - input) - config.beta * drain) / target;
        let least = LEAST_PACKETS * PACKET_BITS / self.rtt;
        self.rate = (self.rate * (1.0 + change)).min(self.capacity).max(least.min(self.capacity));
        (self.input, self.rtts, self.samples) = (0, 0, 0);
        self.began = self.ends;
        self.ends = self.began + self.slot(config);
    }

    /// T = min(d, slot).
    fn slot(&self, config: &Config) -> Span {
        config.slot.min(Span::from_nanos((self.rtt * 1e9) as u64)).max(Span::from_nanos(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config =
        Config { alpha: 0.1, beta: 1.0, gamma: 0.95, slot: Span::from_millis(10), initial_rate: 0.05 };

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// 100 Mbit/s after a first slot in which 10 packets said 50 ms, and so much came; then `queue` bytes wait.
    fn after_slot(bytes: u32, queue: u64) -> f64 {
        let mut router = Router::new(&CONFIG, Rate::from_mbits(100));
        for _ in 0..10 {
            assert_eq!(router.handle_packet(&CONFIG, at(1), bytes / 10, 50_000, Bytes::default()), 5_000);
        }
        f64::from(router.handle_packet(&CONFIG, at(10), 1, 0, Bytes::new(queue))) / 1e3
    }

    #[test]
    fn a_slot_changes_the_rate_by_the_equation() {
        // d: 100 ms, and a tenth of the way to 50 ms. T/d = 10/95.
        let share = |y: f64, q: f64| 5.0 * (1.0 + 10.0 / 95.0 * (0.1 * (95.0 - y) - q / 0.095) / 95.0);
        let close = |ours: f64, theirs: f64| assert!((ours - theirs).abs() < 0.002, "{ours} is not {theirs}");
        close(after_slot(10_000, 0), share(8.0, 0.0));
        close(after_slot(118_750, 0), 5.0);
        close(after_slot(200_000, 0), share(160.0, 0.0));
        close(after_slot(118_750, 12_500), share(95.0, 0.1));
        // A queue as long as it gets takes everything but the least: 120 bits in 95 ms.
        close(after_slot(118_750, 100_000_000), 0.001);
    }

    #[test]
    fn silence_gives_the_capacity_back() {
        let mut router = Router::new(&CONFIG, Rate::from_mbits(100));
        assert_eq!(router.handle_packet(&CONFIG, at(1), 1500, 50_000, Bytes::default()), 5_000);
        assert_eq!(router.handle_packet(&CONFIG, at(3_600_000), 1500, 0, Bytes::new(5)), 100_000);
        let mut unlimited = Router::new(&CONFIG, Rate::default());
        assert_eq!(unlimited.handle_packet(&CONFIG, at(1), 1500, 0, Bytes::default()), u32::MAX);
    }
}
