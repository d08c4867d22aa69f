use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sidestep_net::{Bytes, Rate, Span, Time};
use sidestep_proto::{
    packet::{Kind, Packet},
    tcp,
};

use super::*;

mod credits;
mod detours;
mod limits;
mod options;
mod sender;

const KEY: Key = Key([1, 2]);
const OUT: Port = Port(0);
const BACK: Port = Port(1);
const SIDE: Port = Port(2);
/// A packet takes 1.2 ms at 10 Mbit/s.
const LEN: u32 = 1_500;

fn config() -> Config {
    Config {
        probe_interval: Span::from_millis(10),
        decision_interval: Span::from_millis(50),
        alpha: 0.4,
        backpressure: Backpressure::Notices,
        expiry: Span::from_secs(1),
        ack_processing: AckProcessing::Figure,
        credit: Credit::Pooled,
        notifications: Notifications::Acks,
        preset: Preset::Text,
    }
}

/// An interface of 10 Mbit/s whose buffer has room for 5 packets, and its cache for 100.
fn interface(nonce: u32) -> Interface {
    Interface {
        rate: Rate::from_mbits(10),
        buffer: Span::from_millis(6),
        cache: Bytes::new(150_000),
        high: Bytes::new(60_000),
        low: Bytes::new(30_000),
        reserved: Bytes::default(),
        others: Bytes::new(15_000),
        key: Some(KEY),
        nonce: Nonce(nonce),
        detours: Vec::new(),
    }
}

/// A router with three interfaces (`OUT`, `BACK` and `SIDE`) and the links behind them.
struct Bench {
    router: Router,
    node: Node,
    handed: u32,
}

/// What the router sees of its node.
#[derive(Default)]
struct Node {
    now: Time,
    free_at: [Time; 3],
    /// What left, and by which interface, in order.
    sent: Vec<(u32, Port)>,
    lost: Vec<u32>,
    probes: Vec<(Port, Probe)>,
    /// Packets that carry a notification.
    said: Vec<u32>,
    /// Window updates: flow, what is acknowledged, limit.
    updates: Vec<(u64, u32, u32)>,
    no_route: bool,
}

impl Node {
    fn transmit(&mut self, packet: u32, port: Port) {
        let free = &mut self.free_at[usize::from(port.0)];
        *free = (*free).max(self.now) + Rate::from_mbits(10).time_for(Bytes::new(u64::from(LEN)));
        self.sent.push((packet, port));
    }
}

impl Egress for Node {
    fn free_at(&self, port: Port) -> Time {
        self.free_at[usize::from(port.0)]
    }
    fn send(&mut self, packet: Handle, way: Way, said: Option<Notification>) {
        if said.is_some() {
            self.said.push(packet.0);
        }
        let (Way::Direct(port) | Way::Detour(port)) = way;
        self.transmit(packet.0, port);
    }
    fn update(&mut self, flow: u64, ack: &LimitFields) {
        self.updates.push((flow, ack.acked, ack.limit));
    }
    fn discard(&mut self, packet: Handle, _: Loss) {
        self.lost.push(packet.0);
    }
    fn next_hop(&mut self, _: Handle) -> Option<Port> {
        (!self.no_route).then_some(OUT)
    }
    fn probe(&mut self, over: Port, probe: Probe) {
        self.probes.push((over, probe));
    }
}

impl Bench {
    fn new(config: Config) -> Bench {
        let out = Interface { detours: vec![SIDE], ..interface(10) };
        Bench::of(config, out)
    }

    fn of(config: Config, out: Interface) -> Bench {
        let router = Router::new(config, RouterId(7), vec![out, interface(11), interface(12)]).unwrap();
        Bench { router, node: Node::default(), handed: 0 }
    }

    fn now(&self) -> Time {
        self.node.now
    }

    /// Lets so much time pass, with all that is due in it.
    fn wait(&mut self, span: Span) {
        let end = self.node.now + span;
        while let Some(due) = self.router.poll_timeout().filter(|due| *due <= end) {
            self.node.now = self.node.now.max(due);
            self.router.handle_timeout(self.node.now, &mut self.node);
        }
        self.node.now = end;
    }

    /// A packet of a flow arrives, which names these nonces.
    fn data(&mut self, flow: u64, nonces: Nonces) -> Fate {
        let (now, packet) = (self.node.now, self.handed);
        self.handed += 1;
        let meta = Meta { flow, len: LEN, nonces, ..Meta::default() };
        let fate = self.router.handle_data(now, OUT, Handle(packet), &meta, &mut self.node);
        match fate {
            Fate::Forward => self.node.transmit(packet, OUT),
            Fate::Detour(over) => self.node.transmit(packet, over),
            Fate::Drop => self.node.lost.push(packet),
            Fate::Hold => {}
        }
        fate
    }

    fn burst(&mut self, flow: u64, packets: u32) {
        for _ in 0..packets {
            self.data(flow, Nonces::default());
        }
    }

    /// An ACK of a flow comes back; returns what it carries when it goes on.
    fn ack(&mut self, flow: u64, notification: Option<Notification>) -> AckFields {
        let mut ack = AckFields { notification, ..AckFields::default() };
        self.router.handle_ack(self.node.now, OUT, BACK, flow, &mut ack, &mut self.node);
        ack
    }

    fn handle_notice(&mut self, flow: u64, notice: Notice, nonce: u32) -> AckFields {
        self.ack(flow, Some(Notification::sign(notice, Nonce(nonce), flow, Some(KEY))))
    }

    fn held(&self) -> u64 {
        self.router.occupancy(OUT).get() / u64::from(LEN)
    }

    fn state(&self) -> State {
        self.router.state(OUT)
    }
}

#[test]
fn what_the_buffer_has_room_for_passes_the_cache() {
    let mut bench = Bench::new(config());
    assert!((0..5).all(|_| bench.data(1, Nonces::default()) == Fate::Forward));
    assert_eq!((bench.data(1, Nonces::default()), bench.state()), (Fate::Hold, State::StoreAndDetour));
    bench.wait(Span::from_millis(20));
    assert_eq!((bench.held(), bench.state(), bench.router.counters(OUT).stored), (0, State::Push, 1));
    assert_eq!(bench.data(1, Nonces::default()), Fate::Forward);
}

#[test]
fn an_interface_presses_back_above_the_high_threshold_until_it_is_below_the_low_one() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 41);
    assert_eq!((bench.held(), bench.state()), (41, State::Backpressure));
    let said = bench.ack(1, None);
    assert_eq!(said.notification.map(|said| (said.notice, said.nonce)), Some((Notice::SlowDown, Nonce(10))));
    assert!(said.notification.unwrap().is_signed(1, KEY) && said.nonces.contains(Nonce(10)));
    // Between the thresholds nothing changes: 21 packets leave in 25.2 ms.
    bench.wait(Span::from_millis(20));
    assert_eq!(bench.state(), State::Backpressure, "{} held", bench.held());
    bench.wait(Span::from_millis(10));
    assert_eq!(bench.state(), State::DisableBackpressure, "{} held", bench.held());
    let mut ack = AckFields { nonces: Nonces::one(Nonce(10)), ..AckFields::default() };
    bench.router.handle_ack(bench.now(), OUT, BACK, 1, &mut ack, &mut bench.node);
    assert_eq!(ack.notification.map(|said| said.notice), Some(Notice::Cancel));
    assert_eq!(ack.nonces, Nonces::default());
    // The timer ends it; then the cache is empty.
    bench.wait(Span::from_secs(1));
    assert_eq!((bench.state(), bench.ack(1, None)), (State::Push, AckFields::default()));
}

#[test]
fn disabling_ends_where_the_cache_fills_again() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 41);
    bench.wait(Span::from_millis(30));
    assert_eq!(bench.state(), State::DisableBackpressure);
    bench.burst(1, 30);
    assert_eq!(bench.state(), State::Backpressure);
}

#[test]
fn the_printed_algorithm_turns_back_between_the_thresholds() {
    let mut bench = Bench::new(Config { ack_processing: AckProcessing::Printed, ..config() });
    bench.burst(1, 5 + 41);
    assert_eq!(bench.state(), State::StoreAndDetour, "only an ACK looks at the cache");
    assert!(bench.ack(1, None).notification.is_some());
    assert_eq!(bench.state(), State::Backpressure);
    bench.wait(Span::from_millis(10));
    assert!(bench.ack(1, None).notification.is_none());
    assert_eq!(bench.state(), State::StoreAndDetour, "at {} packets, between the thresholds", bench.held());
}

#[test]
fn a_gated_flow_sends_a_packet_for_each_ack() {
    let mut bench = Bench::new(config());
    let named = Nonces::one(Nonce(99));
    bench.handle_notice(1, Notice::SlowDown, 99);
    assert_eq!(bench.data(1, named), Fate::Forward, "the first ACK has left a credit");
    assert!((0..3).all(|_| bench.data(1, named) == Fate::Hold));
    assert_eq!(bench.data(2, Nonces::default()), Fate::Forward, "others pass");
    bench.wait(Span::from_millis(100));
    assert_eq!(bench.held(), 3);
    bench.handle_notice(1, Notice::SlowDown, 99);
    assert_eq!(bench.held(), 2);
    // An ACK of a flow that holds nothing serves the next one that waits.
    bench.handle_notice(3, Notice::SlowDown, 99);
    assert_eq!(bench.held(), 1);
    bench.handle_notice(1, Notice::Cancel, 99);
    assert_eq!((bench.held(), bench.state()), (1, State::StoreAndDetour));
    bench.wait(Span::from_millis(5));
    assert_eq!((bench.held(), bench.state(), bench.data(1, named)), (0, State::Push, Fate::Forward));
}

#[test]
fn what_a_cancel_has_freed_waits_again_after_the_next_slow_down() {
    let mut bench = Bench::new(config());
    bench.handle_notice(3, Notice::SlowDown, 99);
    for _ in 0..4 {
        bench.data(1, Nonces::one(Nonce(99)));
    }
    bench.burst(2, 10);
    bench.handle_notice(1, Notice::Cancel, 99);
    // The buffer was full, so all of it is there; its sender has nothing more to send, and so names no nonce.
    bench.handle_notice(1, Notice::SlowDown, 99);
    bench.wait(Span::from_millis(100));
    assert_eq!(bench.held(), 2, "one of three had a credit");
}

#[test]
fn credits_of_ones_own_serve_no_other_flow() {
    let mut bench = Bench::new(Config { credit: Credit::Own, ..config() });
    let named = Nonces::one(Nonce(99));
    bench.handle_notice(3, Notice::SlowDown, 99);
    assert_eq!(bench.data(1, named), Fate::Hold);
    bench.handle_notice(3, Notice::SlowDown, 99);
    assert_eq!(bench.held(), 1);
    bench.handle_notice(1, Notice::SlowDown, 99);
    assert_eq!(bench.held(), 0);
    assert!((0..2).all(|_| bench.data(3, named) == Fate::Forward));
    assert_eq!(bench.data(3, named), Fate::Hold);
}

#[test]
fn credits_are_not_lost_while_the_buffer_is_full() {
    let mut bench = Bench::new(config());
    let named = Nonces::one(Nonce(99));
    bench.handle_notice(3, Notice::SlowDown, 99);
    bench.data(3, named);
    bench.burst(2, 30);
    assert_eq!(bench.data(1, named), Fate::Hold);
    bench.handle_notice(1, Notice::SlowDown, 99);
    bench.wait(Span::from_millis(10));
    assert!(bench.node.sent.iter().any(|(packet, _)| *packet == 31), "the gated flow takes its turn among the others");
}

#[test]
fn a_flow_is_open_again_when_nothing_was_heard_for_long() {
    let mut bench = Bench::new(config());
    let named = Nonces::one(Nonce(99));
    bench.handle_notice(3, Notice::SlowDown, 99);
    bench.data(1, named);
    assert!((0..20).all(|_| bench.data(1, named) == Fate::Hold));
    // The ACKs that follow are all lost.
    bench.wait(Span::from_millis(1_500));
    assert_eq!((bench.held(), bench.data(1, named)), (0, Fate::Forward), "a stale nonce gates nothing");
}

#[test]
fn only_the_neighbour_that_holds_the_key_is_believed() {
    let mut bench = Bench::new(config());
    let slow_down = |flow, key| Some(Notification::sign(Notice::SlowDown, Nonce(99), flow, key));
    for wrong in [slow_down(1, None), slow_down(1, Some(Key([1, 3]))), slow_down(2, Some(KEY))] {
        assert_eq!(bench.ack(1, wrong).notification, None);
    }
    assert_eq!(bench.router.counters(OUT).forged, 3);
    assert!((0..4).all(|_| bench.data(1, Nonces::one(Nonce(99))) == Fate::Forward));
    // At the border no host holds a key.
    let mut border = Bench::of(config(), Interface { key: None, ..interface(10) });
    border.handle_notice(1, Notice::SlowDown, 99);
    assert_eq!(border.router.counters(OUT).forged, 1);
}

#[test]
fn a_flood_of_nonces_evicts_none_that_holds() {
    let mut bench = Bench::new(config());
    bench.handle_notice(1, Notice::SlowDown, 99);
    bench.data(1, Nonces::one(Nonce(99)));
    for nonce in 1_000..3_000 {
        bench.handle_notice(1, Notice::SlowDown, nonce);
    }
    assert!(bench.router.counters(OUT).refused > 1_900);
    // All spare credits are used up, and the nonce still gates.
    let fates: Vec<_> = (0..80).map(|_| bench.data(1, Nonces::one(Nonce(99)))).collect();
    assert_eq!(fates.last(), Some(&Fate::Hold));
    // What holds no longer makes room.
    bench.wait(Span::from_millis(1_100));
    let refused = bench.router.counters(OUT).refused;
    bench.handle_notice(1, Notice::SlowDown, 5_000);
    assert_eq!(bench.router.counters(OUT).refused, refused);
}

#[test]
fn a_greedy_flow_leaves_the_others_their_share() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 60);
    bench.burst(2, 10);
    bench.burst(3, 10);
    let before = bench.node.sent.len();
    bench.wait(Span::from_millis(36));
    // Of flow 1 are the packets 0 to 64, then of 2 and 3 ten each.
    let of = |packets: std::ops::Range<u32>| {
        bench.node.sent[before..].iter().filter(|(packet, _)| packets.contains(packet)).count()
    };
    let shares = [of(0..65), of(65..75), of(75..85)];
    assert!(shares.iter().all(|share| share.abs_diff(10) <= 1), "{shares:?} of thirty");
}

#[test]
fn a_full_cache_drops_what_is_too_much() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 100 + 7);
    assert_eq!((bench.held(), bench.router.counters(OUT).dropped, bench.node.lost.len()), (100, 7, 7));
    assert_eq!(bench.router.peak(OUT), Bytes::new(150_000));
}

#[test]
fn a_full_cache_drops_packets_of_the_flow_that_fills_it() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 100);
    assert!((0..40).all(|_| bench.data(2, Nonces::default()) == Fate::Hold));
    // The first five have passed the cache; of the others the oldest went.
    assert_eq!(bench.node.lost, (5..45).collect::<Vec<u32>>());
    assert_eq!((bench.held(), bench.router.counters(OUT).dropped), (100, 40));
    // With ten more each would have as many as the other: who comes pays.
    bench.burst(2, 20);
    assert_eq!(bench.router.occupancy_of(OUT, 2), Bytes::new(50 * 1_500));
}

#[test]
fn packets_are_routed_when_they_leave() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 4);
    bench.node.no_route = true;
    bench.wait(Span::from_millis(20));
    assert_eq!((bench.held(), bench.router.counters(OUT).unroutable), (0, 4));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Interface)| {
        let mut out = interface(10);
        change(&mut out);
        let all = vec![out, interface(11), Interface { key: None, ..interface(12) }];
        Router::new(config(), RouterId(7), all).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|of| of.low = of.high),
        "interface 0: the low threshold (60 kB) must be below the high one (60 kB), and that at most the cache (150 kB)"
    );
    assert_eq!(
        refused(&|of| of.high = Bytes::new(150_001)),
        "interface 0: the low threshold (30 kB) must be below the high one (150001 B), and that at most the cache (150 kB)"
    );
    assert_eq!(
        refused(&|of| of.cache = Bytes::new(1_000)),
        "interface 0: a cache of 1 kB cannot hold a packet of 1500 bytes"
    );
    assert_eq!(refused(&|of| of.detours = vec![Port(3)]), "interface 0: there is no detour over interface 3");
    assert_eq!(refused(&|of| of.detours = vec![OUT]), "interface 0: there is no detour over interface 0");
    assert_eq!(
        refused(&|of| of.detours = vec![SIDE]),
        "interface 2: a detour leads over it, so it needs the key that it shares with the router at its other end"
    );
}

#[test]
fn the_margin_is_what_arrives_until_those_before_slow_down() {
    // 100 Mbit/s for 2 · 5 ms + 1 ms; 10 Mbit/s leave meanwhile.
    let input = (Rate::from_mbits(100), Span::from_millis(5), Span::from_millis(1));
    assert_eq!(custody_margin(&[input], Rate::from_mbits(10)), Bytes::new(137_500 - 13_750));
    assert_eq!(custody_margin(&[input, input], Rate::from_mbits(10)), Bytes::new(2 * 137_500 - 13_750));
}

/// What may happen to a router.
#[derive(Clone, Copy, Debug)]
enum Event {
    Data { flow: u64, named: bool },
    Ack { flow: u64, says: Option<(Notice, bool)> },
    Grant { push: bool, raise: u32, cut: u8 },
    Wait { micros: u64 },
    Route { is_there: bool },
}

fn event() -> impl Strategy<Value = Event> {
    let notice = prop_oneof![Just(Notice::SlowDown), Just(Notice::Cancel)];
    let says = proptest::option::of((notice, proptest::bool::weighted(0.9)));
    prop_oneof![
        10 => (0..5u64, any::<bool>()).prop_map(|(flow, named)| Event::Data { flow, named }),
        5 => (0..5u64, says).prop_map(|(flow, says)| Event::Ack { flow, says }),
        2 => (any::<bool>(), 0..100_000u32, any::<u8>()).prop_map(|(push, raise, cut)| Event::Grant { push, raise, cut }),
        4 => (0..30_000u64).prop_map(|micros| Event::Wait { micros }),
        1 => proptest::bool::weighted(0.8).prop_map(|is_there| Event::Route { is_there }),
    ]
}

proptest! {
    /// Whatever it receives, or is lost on the path, a router keeps each packet exactly as long as it reports, keeps to the size
    /// of its cache and to the order of what it sends on the same path, and lets everything go in the end.
    #[test]
    fn a_router_loses_no_packet_and_keeps_none(
        events in proptest::collection::vec(event(), 1..600),
        own in any::<bool>(),
        printed in any::<bool>(),
    ) {
        let credit = if own { Credit::Own } else { Credit::Pooled };
        let ack_processing = if printed { AckProcessing::Printed } else { AckProcessing::Figure };
        let mut bench = Bench::new(Config { credit, ack_processing, ..config() });
        let mut flow_of = BTreeMap::new();
        for event in events {
            match event {
                Event::Data { flow, named } => {
                    flow_of.insert(bench.handed, flow);
                    bench.data(flow, if named { Nonces::one(Nonce(99)) } else { Nonces::default() });
                }
                Event::Ack { flow, says } => {
                    let key = says.map(|(_, signed)| if signed { KEY } else { Key([0, 0]) });
                    let said = says.map(|(notice, _)| Notification::sign(notice, Nonce(99), flow, key));
                    bench.ack(flow, said);
                }
                Event::Grant { push, raise, cut } => {
                    let grant = Grant { of: OUT, push, raise: f64::from(raise), cut: f64::from(cut) / 255.0 };
                    bench.router.handle_grant(bench.node.now, SIDE, grant, &mut bench.node);
                }
                Event::Wait { micros } => bench.wait(Span::from_micros(micros)),
                Event::Route { is_there } => bench.node.no_route = !is_there,
            }
            prop_assert!(bench.router.occupancy(OUT) <= Bytes::new(150_000));
            let seen = bench.node.sent.len() + bench.node.lost.len();
            prop_assert_eq!(seen as u64 + bench.held(), u64::from(bench.handed));
        }
        bench.wait(Span::from_secs(20));
        prop_assert_eq!(bench.held(), 0);
        prop_assert_eq!(bench.state(), if printed { bench.state() } else { State::Push });
        let once: BTreeSet<u32> = bench.node.sent.iter().map(|(packet, _)| *packet).chain(bench.node.lost.clone()).collect();
        prop_assert_eq!(once.len(), bench.handed as usize);
        for port in [OUT, SIDE] {
            for flow in 0..5 {
                let of_flow = bench.node.sent.iter().filter(|(packet, by)| flow_of[packet] == flow && *by == port);
                let packets: Vec<u32> = of_flow.map(|(packet, _)| *packet).collect();
                prop_assert!(packets.is_sorted(), "flow {} by {:?}: {:?}", flow, port, packets);
            }
        }
    }
}
