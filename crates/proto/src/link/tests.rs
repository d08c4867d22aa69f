use proptest::prelude::*;
use sidestep_net::{Queue, Ratio};

use super::*;

mod change;

/// A channel on which a byte takes `byte_ns` nanoseconds.
fn channel(byte_ns: u64, delay: Span, limit: QueueLimit, ecn_threshold: Option<QueueLimit>) -> Channel {
    let rate = Rate::from_bits_per_sec(8_000_000_000u64.checked_div(byte_ns).unwrap_or(0));
    Channel {
        rate,
        delay,
        queue: Queue { limit, ecn_threshold, red: None },
        loss: Ratio::ZERO,
        burst_loss: None,
        weight: 1,
    }
}

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

fn delivered(verdict: Verdict) -> Time {
    match verdict {
        Verdict::Deliver { at, .. } => at,
        Verdict::Drop(reason) => panic!("dropped: {reason:?}"),
    }
}

/// 100 Mbit/s, 5 ms, room for two packets: a packet of 1500 bytes takes 120 µs.
fn slow() -> Channel {
    channel(80, Span::from_millis(5), QueueLimit::Packets(2), None)
}

#[test]
fn a_packet_arrives_after_its_transmission_and_the_delay() {
    let mut link = LinkModel::new(&slow(), 1, 0);
    assert_eq!(delivered(link.enqueue(at(10), 1_500, false)), at(10 + 120 + 5_000));
    assert_eq!(delivered(link.enqueue(at(10), 1_500, false)), at(10 + 240 + 5_000));
    assert_eq!(delivered(link.enqueue(at(1_000), 1_500, false)), at(1_000 + 120 + 5_000));
}

#[test]
fn the_packet_being_transmitted_takes_no_room_in_the_queue() {
    let mut link = LinkModel::new(&slow(), 1, 0);
    for _ in 0..3 {
        delivered(link.enqueue(at(0), 1_500, false));
    }
    assert_eq!(link.occupancy(at(0)), (2, Bytes::new(3_000)));
    assert_eq!(link.enqueue(at(119), 100, false), Verdict::Drop(DropReason::QueueFull));
    delivered(link.enqueue(at(120), 100, false));
    assert_eq!(link.occupancy(at(240)), (1, Bytes::new(100)));
    assert_eq!(link.occupancy(at(360)), (0, Bytes::new(0)));
    let Counters { packets, drops, max_queue_packets, max_queue_bytes, .. } = *link.counters();
    assert_eq!((packets, drops.queue_full, drops.total()), (4, 1, 1));
    assert_eq!((max_queue_packets, max_queue_bytes), (2, Bytes::new(3_000)));
}

#[test]
fn a_packet_that_arrives_when_the_transmitter_is_free_again_does_not_wait() {
    let mut link = LinkModel::new(&slow(), 1, 0);
    for micros in [0, 120, 240] {
        assert_eq!(delivered(link.enqueue(at(micros), 1_500, false)), at(micros + 120 + 5_000));
    }
    assert_eq!(link.counters().max_queue_packets, 0);
}

#[test]
fn a_busy_link_loses_no_capacity_to_whole_nanoseconds() {
    let rate = Rate::from_mbits(300_000);
    let fast = Channel { rate, ..channel(0, Span::ZERO, QueueLimit::Packets(3_000), None) };
    let mut link = LinkModel::new(&fast, 1, 0);
    // 100 bytes take 2.67 ns.
    let last = (0..3_000).map(|_| delivered(link.enqueue(Time::ZERO, 100, false))).last();
    assert_eq!(last, Some(at(8)));
}

#[test]
fn only_ecn_capable_packets_that_find_the_threshold_reached_are_marked() {
    let threshold = Some(QueueLimit::Packets(1));
    let mut link = LinkModel::new(&channel(80, Span::ZERO, QueueLimit::Packets(10), threshold), 1, 0);
    let mut marked = |ecn| matches!(link.enqueue(at(0), 1_500, ecn), Verdict::Deliver { mark_ce: true, .. });
    assert_eq!([marked(true), marked(true), marked(true), marked(false)], [false, false, true, false]);
    assert_eq!(link.counters().ce_marked, 1);
    let threshold = Some(QueueLimit::Bytes(Bytes::new(1_500)));
    let mut link = LinkModel::new(&channel(80, Span::ZERO, QueueLimit::Packets(10), threshold), 1, 0);
    let mut marked = |ecn| matches!(link.enqueue(at(0), 1_500, ecn), Verdict::Deliver { mark_ce: true, .. });
    assert_eq!([marked(true), marked(true), marked(true)], [false, false, true]);
}

#[test]
fn a_cut_link_loses_what_it_held_and_starts_afresh() {
    let mut link = LinkModel::new(&slow(), 1, 0);
    delivered(link.enqueue(at(0), 1_500, false));
    delivered(link.enqueue(at(0), 1_000, false));
    link.set_state(at(100), LinkState::Down);
    link.discarded(1_500);
    link.discarded(1_000);
    assert_eq!(link.enqueue(at(100), 1_500, false), Verdict::Drop(DropReason::Down));
    assert_eq!(link.occupancy(at(100)), (0, Bytes::new(0)));
    assert_eq!(link.epoch(), 1);
    link.set_state(at(150), LinkState::Up);
    assert_eq!(delivered(link.enqueue(at(150), 1_500, false)), at(150 + 120 + 5_000));
    let counters = *link.counters();
    assert_eq!((counters.packets, counters.bytes, counters.drops.down), (1, Bytes::new(1_500), 3));
}

#[test]
fn a_blackhole_swallows_what_arrives_and_keeps_what_it_had() {
    let mut link = LinkModel::new(&slow(), 1, 0);
    delivered(link.enqueue(at(0), 1_500, false));
    link.set_state(at(1), LinkState::Blackhole);
    assert_eq!(link.enqueue(at(1), 1_500, false), Verdict::Drop(DropReason::Blackhole));
    assert_eq!((link.epoch(), link.counters().packets, link.counters().drops.blackhole), (0, 1, 1));
}

#[test]
fn random_losses_have_the_given_share_and_follow_from_the_seed() {
    let lossy = Channel { rate: Rate::default(), loss: Ratio::from_ppb(200_000_000), ..slow() };
    let losses = |seed, stream| {
        let mut link = LinkModel::new(&lossy, seed, stream);
        let lost = |i| link.enqueue(at(i), 100, false) == Verdict::Drop(DropReason::RandomLoss);
        (0..10_000).map(lost).collect::<Vec<_>>()
    };
    let count = losses(1, 0).iter().filter(|lost| **lost).count();
    assert!((1_850..2_150).contains(&count), "{count} of 10,000 lost at 20 %");
    assert_eq!(losses(1, 0), losses(1, 0));
    assert_ne!(losses(1, 0), losses(1, 1));
    assert_ne!(losses(1, 0), losses(2, 0));
}

#[test]
fn a_certain_loss_loses_everything_and_still_takes_the_transmitters_time() {
    let mut link = LinkModel::new(&Channel { loss: Ratio::from_ppb(1_000_000_000), ..slow() }, 1, 0);
    for _ in 0..3 {
        assert_eq!(link.enqueue(at(0), 1_500, false), Verdict::Drop(DropReason::RandomLoss));
    }
    assert_eq!(link.enqueue(at(0), 1_500, false), Verdict::Drop(DropReason::QueueFull));
}

/// A link simulated event by event, the reference for the model.
struct Reference {
    channel: Channel,
    /// Waiting packets: number and length.
    waiting: Vec<(usize, u32)>,
    /// The packet being transmitted and when that ends.
    sending: Option<(usize, Time)>,
    delivered: Vec<(usize, Time)>,
}

impl Reference {
    fn begin(&mut self, number: usize, len: u32, now: Time) {
        self.sending = Some((number, now + self.channel.rate.time_for(Bytes::new(u64::from(len)))));
    }

    fn run_until(&mut self, now: Time) {
        while let Some((number, end)) = self.sending
            && end <= now
        {
            self.delivered.push((number, end + self.channel.delay));
            self.sending = None;
            if !self.waiting.is_empty() {
                let (next, len) = self.waiting.remove(0);
                self.begin(next, len, end);
            }
        }
    }

    fn occupancy(&self) -> (u32, Bytes) {
        let bytes = self.waiting.iter().map(|(_, len)| u64::from(*len)).sum();
        (self.waiting.len() as u32, Bytes::new(bytes))
    }

    /// Whether packet `number` was taken, and whether it was marked.
    fn arrive(&mut self, now: Time, number: usize, len: u32, ecn_capable: bool) -> (bool, bool) {
        self.run_until(now);
        let (packets, bytes) = self.occupancy();
        let full = match self.channel.queue.limit {
            QueueLimit::Packets(limit) => packets + 1 > limit,
            QueueLimit::Bytes(limit) => bytes + Bytes::new(u64::from(len)) > limit,
        };
        let congested = match self.channel.queue.ecn_threshold {
            None => false,
            Some(QueueLimit::Packets(threshold)) => packets >= threshold,
            Some(QueueLimit::Bytes(threshold)) => bytes >= threshold,
        };
        if self.sending.is_none() {
            self.begin(number, len, now);
        } else if full {
            return (false, false);
        } else {
            self.waiting.push((number, len));
        }
        (true, ecn_capable && congested)
    }
}

/// Packets: nanoseconds since the one before, length, ECN-capable.
fn packets() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
    let gap = prop_oneof![Just(0), 0u64..2_000, 0u64..200_000];
    prop::collection::vec((gap, 40u32..1_501, any::<bool>()), 1..200)
}

fn queue_limit() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (1u32..20).prop_map(QueueLimit::Packets),
        (1_500u64..20_000).prop_map(|bytes| QueueLimit::Bytes(Bytes::new(bytes)))
    ]
}

fn any_channel() -> impl Strategy<Value = Channel> {
    let delay = (0u64..1_000_000).prop_map(Span::from_nanos);
    let byte_ns = prop_oneof![Just(1u64), Just(8), Just(80), Just(320)];
    (byte_ns, delay, queue_limit(), prop::option::of(queue_limit()))
        .prop_map(|(byte_ns, delay, limit, threshold)| channel(byte_ns, delay, limit, threshold))
}

proptest! {
    #[test]
    fn the_model_decides_as_a_queue_walked_through_event_by_event(channel in any_channel(), packets in packets()) {
        let mut link = LinkModel::new(&channel, 1, 0);
        let mut reference = Reference { channel, waiting: vec![], sending: None, delivered: vec![] };
        let (mut now, mut model_delivered) = (Time::ZERO, vec![]);
        for (number, (gap, len, ecn)) in packets.into_iter().enumerate() {
            now += Span::from_nanos(gap);
            let expected = reference.arrive(now, number, len, ecn);
            let got = match link.enqueue(now, len, ecn) {
                Verdict::Deliver { at, mark_ce } => {
                    model_delivered.push((number, at));
                    (true, mark_ce)
                }
                Verdict::Drop(reason) => {
                    prop_assert_eq!(reason, DropReason::QueueFull);
                    (false, false)
                }
            };
            prop_assert_eq!(got, expected);
            prop_assert_eq!(link.occupancy(now), reference.occupancy());
        }
        reference.run_until(Time::MAX);
        prop_assert_eq!(model_delivered, reference.delivered);
    }

    #[test]
    fn every_packet_is_delivered_or_dropped_in_order_and_within_the_rate(
        bits in 1_000_000u64..400_000_000_000,
        loss in 0u32..500_000_000,
        limit in queue_limit(),
        packets in packets(),
    ) {
        let rate = Rate::from_bits_per_sec(bits);
        let queue = Queue { limit, ecn_threshold: None, red: None };
        let channel = Channel { rate, delay: Span::ZERO, queue, loss: Ratio::from_ppb(loss), burst_loss: None, weight: 1 };
        let mut link = LinkModel::new(&channel, 7, 3);
        let (mut now, mut last, mut first, mut bytes) = (Time::ZERO, Time::ZERO, None, 0u64);
        let offered = packets.len() as u64;
        // A link that becomes free within a nanosecond is idle in it: each time, it may gain a part of that.
        let mut idle = 0;
        for (gap, len, _) in packets {
            now += Span::from_nanos(gap);
            idle += u64::from(link.free_at() <= now);
            if let Verdict::Deliver { at, .. } = link.enqueue(now, len, false) {
                prop_assert!(at >= now && at >= last);
                last = at;
                // The time from the last bit of the first packet on, which is the "one packet" more.
                match first {
                    None => first = Some(at),
                    Some(first) => {
                        bytes += u64::from(len);
                        // Deliveries are rounded down to whole nanoseconds.
                        let span = u128::from(at.since(first).as_nanos() + 1 + idle);
                        prop_assert!(u128::from(bytes) * 8_000_000_000 <= span * u128::from(bits));
                    }
                }
            }
            let (packets, queued) = link.occupancy(now);
            let within = match limit {
                QueueLimit::Packets(limit) => packets <= limit,
                QueueLimit::Bytes(limit) => queued <= limit,
            };
            prop_assert!(within, "{} packets, {} queued", packets, queued);
        }
        prop_assert_eq!(link.counters().packets + link.counters().drops.total(), offered);
    }
}
