//! Other protocols beside INRPP, and the options.

use super::*;
use crate::detour::{Detour, Meter};

impl Bench {
    /// A data packet of another protocol arrives.
    fn other(&mut self) -> Fate {
        let (now, packet) = (self.node.now, self.handed);
        self.handed += 1;
        let fate = self.router.handle_other_data(now, OUT, Handle(packet), LEN, &mut self.node);
        match fate {
            Fate::Forward => self.node.transmit(packet, OUT),
            Fate::Drop => self.node.lost.push(packet),
            Fate::Hold | Fate::Detour(_) => {}
        }
        fate
    }
}

#[test]
fn other_protocols_have_a_part_of_the_cache_and_half_of_the_link() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 60);
    let first = bench.handed;
    let fates: Vec<Fate> = (0..12).map(|_| bench.other()).collect();
    // There is room for ten, whatever INRPP has stored; these do not count as INRPP's.
    assert_eq!(fates.iter().filter(|fate| **fate == Fate::Hold).count(), 10);
    assert_eq!((bench.router.counters(OUT).dropped_others, bench.router.counters(OUT).dropped), (2, 0));
    assert_eq!((bench.held(), bench.state()), (60, State::Backpressure));
    let before = bench.node.sent.len();
    bench.wait(Span::from_millis(18));
    let others = bench.node.sent[before..].iter().filter(|(packet, _)| *packet >= first).count();
    assert!((6..=8).contains(&others), "{others} of 15 are TCP's");
}

#[test]
fn what_other_protocols_store_presses_no_sender_back_and_takes_no_detour() {
    let mut bench = Bench::new(config());
    assert!((0..5).all(|_| bench.other() == Fate::Forward));
    assert!((0..10).all(|_| bench.other() == Fate::Hold));
    assert_eq!((bench.held(), bench.state(), bench.ack(1, None).notification), (0, State::Push, None));
    bench.wait(Span::from_millis(50));
    assert!(bench.node.sent.iter().all(|(_, port)| *port == OUT) && bench.node.sent.len() == 15);
    assert!(bench.node.probes.is_empty());
}

#[test]
fn notifications_ride_on_data_where_acks_take_other_routes() {
    let mut bench = Bench::new(Config { notifications: Notifications::Data, ..config() });
    bench.burst(1, 5 + 41);
    assert_eq!(bench.state(), State::Backpressure);
    bench.wait(Span::from_millis(10));
    assert!(!bench.node.said.is_empty(), "packets that leave say it");
    let said = bench.router.notify_on_data(OUT, 1).unwrap();
    assert!(said.notice == Notice::SlowDown && said.nonce == Nonce(10) && said.is_signed(1, KEY));
    assert_eq!(Bench::new(config()).router.notify_on_data(OUT, 1), None);
}

#[test]
fn credits_in_turn_pass_over_the_flow_that_brings_them() {
    let mut bench = Bench::new(Config { credit: Credit::RoundRobin, ..config() });
    let named = Nonces::one(Nonce(99));
    bench.handle_notice(3, Notice::SlowDown, 99);
    bench.data(3, named);
    let handed = bench.handed;
    bench.data(1, named);
    bench.data(2, named);
    bench.handle_notice(2, Notice::SlowDown, 99);
    assert_eq!(bench.node.sent.last().map(|sent| sent.0), Some(handed), "flow 1 waited first");
}

#[test]
fn the_ns3_preset_adds_what_is_spare_to_what_is_used() {
    let config = Config { preset: Preset::Ns3, ..config() };
    let mut meter = Meter::new(&config, Rate::from_mbits(10));
    let at = |millis: u64| Time::ZERO + Span::from_millis(millis);
    // Half of what the link carries in an interval, in two of them.
    for millis in [10, 20] {
        meter.sent(6_250);
        meter.advance(&config, at(millis), Bytes::default());
    }
    let grant = meter.grant(&config, at(20), RouterId(1), true, OUT, true);
    assert!((grant.raise - 6_250.0).abs() < 1.0 && grant.cut == 0.0, "{grant:?}");
    let mut detour = Detour::new(SIDE);
    let full = Grant { raise: 1e9, ..grant };
    detour.handle_grant(&config, at(20), 1.25e6, grant, full);
    detour.decide(&config, at(20), true);
    assert!((detour.rate() - 625_000.0).abs() < 100.0, "{}", detour.rate());
    // It has carried 3,000 bytes in ten milliseconds, and nothing is spare any more.
    detour.spend(at(25), 3_000);
    let none = Grant { raise: 0.0, ..grant };
    detour.handle_grant(&config, at(30), 1.25e6, none, full);
    assert!((detour.rate() - 300_000.0).abs() < 1.0, "{}", detour.rate());
}
