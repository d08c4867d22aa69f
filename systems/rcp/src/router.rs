//! The router's half: the one rate that all flows through a link may have.

use sidestep_net::{Bytes, Rate, Span, Time};

use super::Config;

/// The state that a router keeps of one direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct Router {
    /// Capacity in bits per second; zero: neither the link nor its flows are limited.
    capacity: f64,
    rate: f64,
    /// Mean round-trip time of the packets that pass, in seconds.
    rtt: f64,
    began: Time,
    ends: Time,
    /// Bytes that arrived in this control interval, and the sum of the round-trip times, in microseconds, that packets
    /// carried.
    input: u64,
    rtts: u64,
    samples: u32,
}

/// The mean round-trip time before any packet has carried one, in seconds. Our choice, that of a long path: too short a
/// guess would change the rate too fast. The authors' ns-2 code has 0.2 (`RTT` in `rcp.cc`).
const INITIAL_RTT: f64 = 0.1;
/// The lowest rate, in packets of 1500 bytes a round trip; below one, so that many flows can share a link, and above
/// zero, from where no factor leads away. As `min_pprtt_` of the authors' ns-2 code, whose packets there have 1000
/// bytes.
const MIN_PACKETS: f64 = 0.01;
const PACKET_BITS: f64 = 12_000.0;
/// This number of control intervals without a packet brings every rate back to the capacity: our choice, so that an hour of
/// silence costs no more work than a second.
const MAX_IDLE_INTERVALS: u32 = 1_000;

impl Router {
    /// The state of a link of this capacity, before the first packet.
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

    /// Changes the capacity of the link from now on.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.capacity = capacity.bits_per_sec() as f64;
        self.rate = self.rate.min(self.capacity);
    }

    /// Handles a packet of `len` bytes that arrives at the link, whose queue holds `queue` bytes. `rtt` is the
    /// round-trip time that the packet carries, in microseconds; zero if its sender does not know it. Returns the rate
    /// that the link offers each flow, in kbit/s.
    ///
    /// A control interval that has ended is evaluated when the next packet arrives, with the queue that this packet
    /// finds.
    #[inline]
    pub fn handle_packet(&mut self, config: &Config, now: Time, len: u32, rtt: u32, queue: Bytes) -> u32 {
        if self.capacity == 0.0 {
            return u32::MAX;
        }
        if now >= self.ends {
            self.end_intervals(config, now, queue);
        }
        self.input += u64::from(len);
        self.rtts += u64::from(rtt);
        self.samples += u32::from(rtt > 0);
        ((self.rate / 1e3) as u32).max(1)
    }

    fn end_intervals(&mut self, config: &Config, now: Time, queue: Bytes) {
        for _ in 0..MAX_IDLE_INTERVALS {
            if now < self.ends {
                return;
            }
            // The queue of now was not there in the idle intervals.
            let idle = self.input == 0;
            self.end_interval(config, if idle { Bytes::default() } else { queue });
        }
        self.rate = self.capacity;
        self.began = now;
        self.ends = now + self.interval(config);
    }

    /// Updates the rate: R ← R·[1 + (T/d)·(α(γC − y) − βQ/d)/(γC)] (equation 3.2). What is spare is handed out, and the
    /// queue should drain within a round trip; C/R stands for the flows, which no router counts. T/d makes the change
    /// over a round trip the same however long an interval is, as senders answer no sooner.
    fn end_interval(&mut self, config: &Config, queue: Bytes) {
        let lasted = self.ends.since(self.began).as_secs_f64().max(1e-9);
        if self.samples > 0 {
            let mean = self.rtts as f64 * 1e-6 / f64::from(self.samples);
            // Over a round trip (`rcp.cc`: `Tq_/avg_rtt_`), so that one interval's few packets do not set it.
            self.rtt += (lasted / self.rtt).min(1.0) * (mean - self.rtt);
        }
        let target = config.gamma * self.capacity;
        let input = self.input as f64 * 8.0 / lasted;
        let drain = queue.get() as f64 * 8.0 / self.rtt;
        let change = (lasted / self.rtt) * (config.alpha * (target - input) - config.beta * drain) / target;
        let least = MIN_PACKETS * PACKET_BITS / self.rtt;
        self.rate = (self.rate * (1.0 + change)).min(self.capacity).max(least.min(self.capacity));
        (self.input, self.rtts, self.samples) = (0, 0, 0);
        self.began = self.ends;
        self.ends = self.began + self.interval(config);
    }

    /// The control interval: T = min(d, slot), as in `rcp.cc` (`upd_timeslot_`): a new flow should meet a rate that is
    /// younger than a round trip. A microsecond at least, our choice, so that each packet ends few.
    fn interval(&self, config: &Config) -> Span {
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

    /// The rate of a link of 100 Mbit/s after a first interval in which 10 packets carried 50 ms and `bytes` bytes
    /// arrived; then `queue` bytes wait.
    fn after_interval(bytes: u32, queue: u64) -> f64 {
        let mut router = Router::new(&CONFIG, Rate::from_mbits(100));
        for _ in 0..10 {
            assert_eq!(router.handle_packet(&CONFIG, at(1), bytes / 10, 50_000, Bytes::default()), 5_000);
        }
        f64::from(router.handle_packet(&CONFIG, at(10), 1, 0, Bytes::new(queue))) / 1e3
    }

    #[test]
    fn a_control_interval_changes_the_rate_by_the_equation() {
        // d moves from 100 ms by a tenth of the difference towards 50 ms. T/d = 10/95.
        let share = |y: f64, q: f64| 5.0 * (1.0 + 10.0 / 95.0 * (0.1 * (95.0 - y) - q / 0.095) / 95.0);
        let close = |ours: f64, theirs: f64| assert!((ours - theirs).abs() < 0.002, "{ours} is not {theirs}");
        close(after_interval(10_000, 0), share(8.0, 0.0));
        close(after_interval(118_750, 0), 5.0);
        close(after_interval(200_000, 0), share(160.0, 0.0));
        close(after_interval(118_750, 12_500), share(95.0, 0.1));
        // A queue as long as it gets takes everything but the least: 120 bits in 95 ms.
        close(after_interval(118_750, 100_000_000), 0.001);
    }

    #[test]
    fn an_idle_link_offers_its_capacity_again() {
        let mut router = Router::new(&CONFIG, Rate::from_mbits(100));
        assert_eq!(router.handle_packet(&CONFIG, at(1), 1500, 50_000, Bytes::default()), 5_000);
        assert_eq!(router.handle_packet(&CONFIG, at(3_600_000), 1500, 0, Bytes::new(5)), 100_000);
        let mut unlimited = Router::new(&CONFIG, Rate::default());
        assert_eq!(unlimited.handle_packet(&CONFIG, at(1), 1500, 0, Bytes::default()), u32::MAX);
    }
}
