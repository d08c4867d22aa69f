//! Channels that change while packets wait, against a fluid that is served by hand.

use super::*;

/// A link and the packets that it has accepted and not delivered.
struct Driver {
    link: LinkModel,
    carried: Vec<(usize, Time)>,
    arrived: Vec<(usize, Time)>,
    sent: usize,
}

impl Driver {
    fn new(channel: &Channel) -> Self {
        Driver { link: LinkModel::new(channel, 1, 0), carried: vec![], arrived: vec![], sent: 0 }
    }

    fn sends(&mut self, now: Time, packets: usize, len: u32) {
        for number in self.sent..self.sent + packets {
            if let Verdict::Deliver { at, .. } = self.link.enqueue(now, len, false) {
                self.carried.push((number, at));
            }
        }
        self.sent += packets;
    }

    fn changes(&mut self, now: Time, channel: &Channel) {
        self.run_until(now);
        let mut arrivals: Vec<_> = self.carried.iter().map(|(_, at)| Some(*at)).collect();
        self.link.set_channel(now, channel, &mut arrivals);
        let revised = self.carried.drain(..).zip(arrivals);
        self.carried = revised.filter_map(|((number, _), at)| Some((number, at?))).collect();
    }

    fn run_until(&mut self, now: Time) {
        let due = self.carried.iter().take_while(|(_, at)| *at <= now).count();
        self.arrived.extend(self.carried.drain(..due));
    }

    /// All arrivals, in microseconds.
    fn ends(mut self) -> Vec<u64> {
        self.run_until(Time::MAX);
        self.arrived.iter().map(|(_, at)| at.as_nanos() / 1_000).collect()
    }
}

fn rated(rate: Rate) -> Channel {
    Channel { rate, ..channel(80, Span::ZERO, QueueLimit::Packets(100), None) }
}

#[test]
fn a_hundred_packets_that_waited_for_a_slow_link_leave_within_24_ms_of_its_recovery() {
    let mut driver = Driver::new(&rated(Rate::from_bits_per_sec(200_000)));
    // 1500 bytes take 60 ms: at 10 s a third of one is left, and 100 wait.
    driver.sends(at(9_960_000), 101, 1_500);
    assert_eq!(driver.link.occupancy(at(10_000_000)).0, 100);
    driver.changes(at(10_000_000), &rated(Rate::from_mbits(50)));
    assert_eq!(driver.link.free_at(), at(10_000_000 + 80 + 100 * 240));
    let ends = driver.ends();
    assert_eq!((ends[0], ends[1], ends[100]), (10_000_080, 10_000_320, 10_024_080));
}

#[test]
fn a_link_that_slows_down_keeps_what_waits_and_its_queue_is_full_for_longer() {
    let mut driver = Driver::new(&rated(Rate::from_mbits(50)));
    driver.sends(at(0), 101, 1_500);
    driver.changes(at(120), &rated(Rate::from_mbits(5)));
    assert_eq!(driver.link.occupancy(at(1_319)).0, 100);
    assert_eq!(driver.link.enqueue(at(1_319), 1_500, false), Verdict::Drop(DropReason::QueueFull));
    assert_eq!(driver.link.occupancy(at(1_320)).0, 99);
    let ends = driver.ends();
    assert_eq!((ends[0], ends[1], ends[100]), (1_320, 3_720, 1_320 + 100 * 2_400));
}

#[test]
fn a_delay_holds_for_what_leaves_later_and_lets_nothing_overtake_what_propagates() {
    let [far, near] = [5_000, 10].map(|micros| channel(80, Span::from_micros(micros), QueueLimit::Packets(9), None));
    let mut driver = Driver::new(&far);
    driver.sends(at(0), 3, 1_500);
    driver.changes(at(130), &near);
    // The first propagates; the others leave at 240 and 360.
    driver.sends(at(10_000), 1, 1_500);
    assert_eq!(driver.ends(), [5_120, 5_120, 5_120, 10_130]);
    let mut driver = Driver::new(&near);
    driver.sends(at(0), 3, 1_500);
    driver.changes(at(130), &far);
    assert_eq!(driver.ends(), [130, 5_240, 5_360]);
    // Nothing waits, and nothing propagates any more.
    let mut driver = Driver::new(&far);
    driver.sends(at(0), 1, 1_500);
    driver.changes(at(5_200), &near);
    driver.sends(at(5_200), 1, 1_500);
    assert_eq!(driver.ends(), [5_120, 5_330]);
}

#[test]
fn a_rate_without_a_limit_sends_all_that_waits_at_once() {
    let mut driver = Driver::new(&rated(Rate::from_mbits(1)));
    driver.sends(at(0), 50, 1_500);
    driver.changes(at(100), &rated(Rate::default()));
    driver.changes(at(200), &rated(Rate::from_mbits(1)));
    driver.sends(at(200), 1, 125);
    let ends = driver.ends();
    assert_eq!((&ends[..50], ends[50]), ([100; 50].as_slice(), 1_200));
}

#[test]
fn what_waits_stays_beyond_a_new_limit_and_a_new_threshold() {
    let mut driver = Driver::new(&rated(Rate::from_mbits(10)));
    driver.sends(at(0), 11, 1_500);
    let few = channel(800, Span::ZERO, QueueLimit::Packets(2), Some(QueueLimit::Packets(1)));
    driver.changes(at(0), &few);
    assert_eq!(driver.link.occupancy(at(0)).0, 10);
    assert_eq!(driver.link.enqueue(at(0), 1_500, true), Verdict::Drop(DropReason::QueueFull));
    // Two transmissions before its end, only one packet waits.
    assert!(matches!(driver.link.enqueue(at(9 * 1_200), 1_500, true), Verdict::Deliver { mark_ce: true, .. }));
    assert_eq!((driver.link.counters().ce_marked, driver.link.counters().drops.total()), (1, 1));
}

#[test]
fn what_waits_meets_the_new_losses_once() {
    let lossy = |percent: u32, byte_ns| Channel {
        loss: Ratio::from_ppb(percent * 10_000_000),
        ..channel(byte_ns, Span::ZERO, QueueLimit::Packets(100_000), None)
    };
    for (before, after, share) in [(0, 25, 0.25), (20, 60, 0.6), (20, 100, 1.0), (60, 20, 0.6)] {
        let mut driver = Driver::new(&lossy(before, 80));
        driver.sends(at(0), 20_000, 1_000);
        driver.changes(at(1), &lossy(after, 8));
        let Counters { packets, bytes, drops, .. } = *driver.link.counters();
        assert_eq!((packets + drops.random_loss, bytes.get()), (20_000, packets * 1_000));
        let lost = 1.0 - driver.ends().len() as f64 / 20_000.0;
        assert!((lost - share).abs() < 0.015, "{lost} are lost and not {share}");
    }
}

#[test]
fn what_waits_meets_new_bursts_and_bursts_outlast_a_new_delay() {
    let [never, half, always] = [0, 500_000_000, 1_000_000_000].map(Ratio::from_ppb);
    let bursts = |to_bad, micros| Channel {
        burst_loss: Some(sidestep_net::BurstLoss { to_bad, to_good: never, in_good: never, in_bad: always }),
        ..channel(80, Span::from_micros(micros), QueueLimit::Packets(1_000), None)
    };
    let mut driver = Driver::new(&slow());
    driver.sends(at(0), 3, 1_500);
    driver.changes(at(0), &bursts(always, 5_000));
    // The first is being sent.
    assert_eq!(driver.ends(), [5_120]);
    for seed in 0..20 {
        let mut link = LinkModel::new(&bursts(half, 1), seed, 0);
        while let Verdict::Deliver { .. } = link.enqueue(at(0), 100, false) {}
        link.set_channel(at(1_000), &bursts(half, 2), &mut []);
        assert_eq!(link.enqueue(at(1_000), 100, false), Verdict::Drop(DropReason::RandomLoss));
    }
}

#[test]
fn an_average_of_red_outlasts_a_new_rate() {
    let red = sidestep_net::Red {
        min: Bytes::new(1_000),
        max: Bytes::new(2_000),
        probability: Ratio::from_ppb(1_000_000_000),
        weight: Ratio::from_ppb(1_000_000),
        gentle: false,
    };
    let with_red = |byte_ns| {
        let mut channel = channel(byte_ns, Span::ZERO, QueueLimit::Packets(10_000), None);
        channel.queue.red = Some(red);
        channel
    };
    let mut driver = Driver::new(&with_red(80_000));
    // The average is a thousandth of a packet higher with each that waits: beyond the greater threshold after a hundred.
    driver.sends(at(0), 200, 1_500);
    let accepted = driver.carried.len();
    assert!((30..150).contains(&accepted), "{accepted}");
    driver.changes(at(1), &with_red(8_000));
    driver.sends(at(1), 20, 1_500);
    assert!(driver.carried.len() <= accepted + 1, "{} and {accepted}", driver.carried.len());
}

/// Nanoseconds since the step before, and a packet's length or a change of nanoseconds for a byte and of delay.
type Step = (u64, Result<u32, (u64, u64)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![Just(0), 0u64..2_000, 0u64..200_000];
    let byte_ns = prop_oneof![Just(0u64), Just(1), Just(8), Just(80), Just(320)];
    let change = (byte_ns, 0u64..1_000_000).prop_map(Err);
    let step = prop_oneof![4 => (40u32..1_501).prop_map(Ok), 1 => change];
    prop::collection::vec((gap, step), 1..200)
}

/// A fluid in the packets' order, of which a byte takes this long.
struct Fluid {
    channel: (u64, u64),
    now: f64,
    /// Number of the packet, and bytes that are left of it.
    waiting: std::collections::VecDeque<(usize, f64)>,
    delivered: Vec<(usize, f64)>,
}

impl Fluid {
    fn run_until(&mut self, now: f64, is_lost: impl Fn(usize) -> bool) {
        let (byte_ns, delay) = (self.channel.0 as f64, self.channel.1 as f64);
        while let Some((number, bytes)) = self.waiting.front_mut() {
            let ends = self.now + *bytes * byte_ns;
            if ends > now {
                *bytes -= (now - self.now) / byte_ns;
                break;
            }
            self.now = ends;
            if !is_lost(*number) {
                let last = self.delivered.last().map_or(0.0, |(_, at)| *at);
                self.delivered.push((*number, (ends + delay).max(last)));
            }
            self.waiting.pop_front();
        }
        self.now = self.now.max(now);
    }
}

proptest! {
    #[test]
    fn a_changing_link_delivers_as_a_fluid_that_is_served_at_the_rate_of_the_moment(
        steps in steps(),
        loss in prop_oneof![Just(0u32), Just(300_000_000)],
    ) {
        let of = |(byte_ns, delay): (u64, u64)| Channel {
            loss: Ratio::from_ppb(loss),
            ..channel(byte_ns, Span::from_nanos(delay), QueueLimit::Packets(1_000), None)
        };
        let first = (80, 5_000);
        let mut driver = Driver::new(&of(first));
        let mut lost = vec![];
        let mut fluid = Fluid { channel: first, now: 0.0, waiting: Default::default(), delivered: vec![] };
        let (mut now, mut tolerance) = (Time::ZERO, 2.0);
        for (gap, step) in &steps {
            now += Span::from_nanos(*gap);
            fluid.run_until(now.as_nanos() as f64, |number| lost[number]);
            match step {
                Ok(len) => {
                    fluid.waiting.push_back((driver.sent, f64::from(*len)));
                    let before = driver.carried.len();
                    driver.sends(now, 1, *len);
                    lost.push(driver.carried.len() == before);
                }
                Err(change) => {
                    // The rest of the packet in transmission is known to a nanosecond at the rate until then.
                    tolerance += 1.0 + 320.0 / fluid.channel.0.max(1) as f64;
                    fluid.channel = *change;
                    driver.changes(now, &of(*change));
                }
            }
        }
        fluid.run_until(1e18, |number| lost[number]);
        driver.run_until(Time::MAX);
        prop_assert_eq!(driver.arrived.len(), fluid.delivered.len());
        for ((number, at), (expected, fluid_at)) in driver.arrived.iter().zip(&fluid.delivered) {
            prop_assert_eq!(number, expected);
            prop_assert!((at.as_nanos() as f64 - fluid_at).abs() <= tolerance, "{}: {:?} and {}", number, at, fluid_at);
        }
    }
}
