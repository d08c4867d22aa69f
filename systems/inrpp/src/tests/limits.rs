//! Limits: how far each flow may come, so that all have an equal part and none is dropped.

use super::*;

/// What happens at some time: a flow's packet comes to the router, its ACK comes back there, or reaches its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Data { flow: u64, end: u32 },
    Ack { flow: u64 },
    Limit { flow: u64, limit: u32 },
}

/// Hosts that send without end as far as they may, and the router that they all send through.
struct Net {
    bench: Bench,
    events: BTreeSet<(Time, u32, Event)>,
    number: u32,
    /// By flow: how far its host is from the router, and how far it has sent.
    hosts: Vec<(Span, u32)>,
    flow_of: Vec<u64>,
    answered: usize,
}

/// How long a packet takes from the router to its receiver, and the ACK back.
const BEYOND: Span = Span::from_millis(4);

fn limited() -> Config {
    Config { backpressure: Backpressure::Limits, ..config() }
}

impl Net {
    /// With one flow of a host at each of these distances.
    fn new(delays: &[u32]) -> Net {
        let out = Interface { high: Bytes::new(150_000), ..interface(10) };
        let hosts: Vec<_> = delays.iter().map(|delay| (Span::from_micros(u64::from(*delay)), 0)).collect();
        let mut net = Net {
            bench: Bench::of(limited(), out),
            events: BTreeSet::new(),
            number: 0,
            hosts,
            flow_of: Vec::new(),
            answered: 0,
        };
        for flow in 0..net.hosts.len() as u64 {
            // The SYN-ACKs.
            let limit = net.bench.limit(flow, true);
            net.at(net.hosts[flow as usize].0, Event::Limit { flow, limit });
        }
        net
    }

    fn at(&mut self, after: Span, event: Event) {
        self.number += 1;
        self.events.insert((self.bench.now() + after, self.number, event));
    }

    /// Lets so much time pass.
    fn run(&mut self, span: Span) {
        let end = self.bench.now() + span;
        while let Some((at, _, event)) = self.events.first().copied().filter(|(at, ..)| *at <= end) {
            self.events.pop_first();
            self.bench.wait(at.since(self.bench.now()));
            match event {
                Event::Data { flow, end } => {
                    self.flow_of.push(flow);
                    self.bench.data_until(flow, end);
                }
                Event::Ack { flow } => {
                    let limit = self.bench.limit(flow, false);
                    self.at(self.hosts[flow as usize].0, Event::Limit { flow, limit });
                }
                Event::Limit { flow, limit } => {
                    let (delay, sent) = self.hosts[flow as usize];
                    // All at once: no host is faster.
                    (sent..limit).for_each(|at| self.at(delay, Event::Data { flow, end: at + 1 }));
                    self.hosts[flow as usize].1 = sent.max(limit);
                }
            }
            for at in self.answered..self.bench.node.sent.len() {
                let flow = self.flow_of[self.bench.node.sent[at].0 as usize];
                self.at(BEYOND, Event::Ack { flow });
            }
            self.answered = self.bench.node.sent.len();
        }
        self.bench.wait(end.since(self.bench.now()));
    }

    /// Packets of each flow that the router has sent.
    fn carried(&self) -> Vec<f64> {
        let mut carried = vec![0.0; self.hosts.len()];
        for (packet, _) in &self.bench.node.sent {
            carried[self.flow_of[*packet as usize] as usize] += 1.0;
        }
        carried
    }
}

impl Bench {
    /// A flow's packet arrives, up to and with which it has `end` packets.
    fn data_until(&mut self, flow: u64, end: u32) -> Fate {
        let (now, packet) = (self.node.now, self.handed);
        self.handed += 1;
        let meta = Meta { flow, len: LEN, end, ..Meta::default() };
        let fate = self.router.handle_data(now, OUT, Handle(packet), &meta, &mut self.node);
        match fate {
            Fate::Forward | Fate::Detour(_) => self.node.transmit(packet, OUT),
            Fate::Drop => self.node.lost.push(packet),
            Fate::Hold => {}
        }
        fate
    }

    /// An ACK of a flow comes back, of a receiver that has room for all, and leaves with this limit.
    fn limit(&mut self, flow: u64, begins: bool) -> u32 {
        self.limit_to(flow, u32::MAX, begins)
    }

    /// As [`limit`](Self::limit); the next router lets the flow come up to `next`.
    fn limit_to(&mut self, flow: u64, next: u32, begins: bool) -> u32 {
        let mut ack = LimitFields { limit: next, begins, ..LimitFields::default() };
        self.router.handle_limit(self.node.now, OUT, flow, &mut ack, &mut self.node);
        ack.limit
    }
}

proptest! {
    /// Flows from hosts near and far, which all send at once what they may: the link is full, each has an equal part of it, and
    /// the cache drops nothing.
    #[test]
    fn flows_share_equally_and_nothing_is_dropped(delays in proptest::collection::vec(1u32..20_000, 1..20)) {
        let mut net = Net::new(&delays);
        net.run(Span::from_secs(3));
        let before = net.carried();
        net.run(Span::from_secs(5));
        let shares: Vec<f64> = net.carried().iter().zip(&before).map(|(now, before)| now - before).collect();
        prop_assert_eq!(net.bench.node.lost.len(), 0);
        // 10 Mbit/s are 833 packets a second.
        let (all, equal) = (shares.iter().sum::<f64>(), 4_166.0 / shares.len() as f64);
        prop_assert!(all > 4_150.0, "{} of 4166", all);
        prop_assert!(shares.iter().all(|share| (share / equal - 1.0).abs() < 0.05), "{:?} of {}", shares, equal);
    }
}

#[test]
fn a_limit_never_falls_and_what_may_come_has_room() {
    let mut bench = Bench::of(limited(), Interface { high: Bytes::new(150_000), ..interface(10) });
    let mut last = bench.limit(1, true);
    assert_eq!(last, 11, "an eighth of the room, of which an eighth is kept");
    let mut others = 0;
    for flow in 2..40 {
        others += bench.limit(flow, true);
        let now = bench.limit(1, false);
        assert!(now >= last);
        last = now;
    }
    // Two for each, whatever room there is.
    assert!(last + others <= 100 + 2 * 39, "{last} and {others}");
}

#[test]
fn what_the_next_router_has_no_room_for_waits_and_what_is_sent_again_passes() {
    let mut bench = Bench::of(limited(), interface(10));
    assert_eq!(bench.limit_to(1, 2, true), 2, "no more than the next router lets come");
    let fates: Vec<Fate> = (1..=4).map(|end| bench.data_until(1, end)).collect();
    assert_eq!(fates, [Fate::Forward, Fate::Forward, Fate::Hold, Fate::Hold]);
    bench.wait(Span::from_millis(500));
    assert_eq!(bench.held(), 2);
    assert_eq!(bench.data_until(1, 2), Fate::Forward, "it was lost further on");
    // Another flow is not kept back.
    bench.limit(2, true);
    assert_eq!(bench.data_until(2, 1), Fate::Forward);
    bench.limit_to(1, 3, false);
    assert_eq!(bench.held(), 1);
    bench.limit_to(1, 2, false);
    bench.limit_to(1, 9, false);
    assert_eq!((bench.held(), bench.node.sent.len()), (0, 6));
}

#[test]
fn what_waits_for_room_further_on_leaves_when_its_acks_take_another_way() {
    let mut bench = Bench::of(limited(), interface(10));
    bench.limit_to(1, 2, true);
    let _: Vec<Fate> = (1..=30).map(|end| bench.data_until(1, end)).collect();
    bench.wait(Span::from_millis(900));
    assert_eq!(bench.held(), 28, "its next ACK may still come");
    bench.wait(Span::from_secs(9));
    assert_eq!(bench.held(), 0);
    // Without limits from now on, until an ACK passes again.
    assert_eq!(bench.data_until(1, 39), Fate::Forward);
    bench.limit_to(1, 39, false);
    assert_eq!(bench.data_until(1, 40), Fate::Hold);
}

#[test]
fn a_packet_that_is_sent_again_passes_those_that_wait_for_room_further_on() {
    let mut bench = Bench::of(limited(), interface(10));
    bench.limit_to(1, 6, true);
    let _: Vec<Fate> = (1..=9).map(|end| bench.data_until(1, end)).collect();
    // The buffer is full: the sixth waits for the link, and 7 to 9 for room.
    assert_eq!(bench.held(), 4);
    bench.wait(Span::from_millis(100));
    bench.limit_to(2, 6, true);
    let _: Vec<Fate> = (1..=6).map(|end| bench.data_until(2, end)).collect();
    assert_eq!(bench.data_until(1, 5), Fate::Hold);
    bench.wait(Span::from_millis(100));
    assert_eq!((bench.held(), bench.node.sent.last().map(|(packet, _)| *packet)), (3, Some(15)));
}

#[test]
fn a_flow_that_went_on_unseen_waits_for_no_limit_of_before() {
    let mut bench = Bench::of(limited(), interface(10));
    bench.limit_to(1, 2, true);
    assert_eq!([1, 2].map(|end| bench.data_until(1, end)), [Fate::Forward; 2]);
    bench.limit_to(2, 1, true);
    assert_eq!([1, 2].map(|end| bench.data_until(2, end)), [Fate::Forward, Fate::Hold]);
    // All of the first but these two, and their ACKs, go by the kernel.
    bench.router.forget_limits();
    assert_eq!(bench.data_until(1, 500), Fate::Forward);
    assert_eq!(bench.data_until(2, 3), Fate::Hold, "packets of it wait");
}

#[test]
fn a_flow_that_has_ended_leaves_its_part_to_others() {
    let mut bench = Bench::of(limited(), interface(10));
    for flow in 1..5 {
        bench.limit(flow, true);
    }
    let mut done = LimitFields { limit: 9, done: true, ..LimitFields::default() };
    for flow in 1..4 {
        bench.router.handle_limit(bench.now(), OUT, flow, &mut done, &mut bench.node);
    }
    assert_eq!(done.limit, 9);
    // Of 40 packets it may now have all but what is kept. Flows without packets and ACKs are forgotten too.
    let last = (0..50).map(|_| bench.limit(4, false)).last();
    assert!(last > Some(25), "{last:?}");
    bench.wait(Span::from_secs(60));
    let memory = bench.router.memory();
    for flow in 10..1_000 {
        bench.limit(flow, true);
        bench.wait(Span::from_secs(1));
    }
    assert!(bench.router.memory() < memory + Bytes::new(10_000), "{} after {memory}", bench.router.memory());
}

#[test]
fn where_no_ack_comes_any_more_one_packet_after_the_other_looks_for_the_way() {
    let mut bench = Bench::of(limited(), interface(10));
    bench.limit_to(1, 1, true);
    let _: Vec<Fate> = (1..=9).map(|end| bench.data_until(1, end)).collect();
    assert_eq!(bench.held(), 8);
    // A notification would hold for a second, and each is looked at four times in it.
    bench.wait(Span::from_millis(900));
    assert_eq!(bench.held(), 8);
    bench.wait(Span::from_millis(2_000));
    assert!((5..=6).contains(&bench.held()), "{}", bench.held());
}

#[test]
fn acks_of_data_that_went_another_way_set_no_limit() {
    let mut bench = Bench::of(limited(), interface(10));
    assert!(bench.limit(1, true) < 40);
    let mut ack = LimitFields { acked: 3, limit: u32::MAX, ..LimitFields::default() };
    bench.router.handle_limit(bench.now(), OUT, 1, &mut ack, &mut bench.node);
    assert_eq!(ack.limit, u32::MAX);
}

#[test]
fn packets_that_leave_while_no_ack_passes_let_others_come() {
    let mut bench = Bench::of(limited(), interface(10));
    let first = bench.limit(1, true);
    // A burst up to the limit: five fit into the buffer, the others wait, and leave without an ACK.
    for end in 1..=first {
        bench.data_until(1, end);
    }
    bench.wait(Span::from_millis(100));
    let last = bench.node.updates.last().copied().unwrap();
    assert!(last.0 == 1 && last.1 == 0 && last.2 > first, "{:?}, after a limit of {first}", bench.node.updates);
    // Only for a part that is worth a packet, and never less than before.
    assert!(bench.node.updates.len() <= 8 && bench.node.updates.is_sorted_by_key(|update| update.2));
    assert!(bench.limit(1, false) >= last.2);
}

#[test]
fn an_update_never_says_more_than_the_next_router_lets_come() {
    let mut bench = Bench::of(limited(), interface(10));
    bench.limit_to(1, 6, true);
    for end in 1..=5 {
        bench.data_until(1, end);
    }
    bench.wait(Span::from_millis(100));
    assert!(bench.node.updates.iter().all(|update| update.2 <= 6), "{:?}", bench.node.updates);
}
