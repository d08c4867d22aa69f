//! Detours: when they are used, and that those who share one settle.

use super::*;
use crate::detour::{Detour, Meter};

#[test]
fn detours_are_probed_only_while_packets_are_stored() {
    let mut bench = Bench::new(config());
    bench.wait(Span::from_secs(1));
    assert!(bench.node.probes.is_empty());
    bench.burst(1, 5 + 40);
    bench.wait(Span::from_millis(35));
    // At once, and then every 10 ms.
    assert_eq!(bench.node.probes.len(), 4);
    let wanted = Probe { from: RouterId(7), of: OUT, wants: true };
    assert!(bench.node.probes.iter().all(|probe| *probe == (SIDE, wanted)));
    bench.wait(Span::from_millis(100));
    let probes = bench.node.probes.len();
    bench.wait(Span::from_secs(1));
    assert_eq!(bench.node.probes.len(), probes);
}

/// Answers the probes with capacity to spare for as long; returns how many packets took the detour.
fn detoured(push: bool, fill_side: bool) -> u64 {
    let mut bench = Bench::new(config());
    if fill_side {
        // The first interface of the detour stores packets itself.
        for _ in 0..60 {
            let meta = Meta { flow: 9, len: LEN, ..Meta::default() };
            bench.handed += 1;
            let handle = Handle(10_000 + bench.handed);
            if bench.router.handle_data(bench.node.now, SIDE, handle, &meta, &mut bench.node) == Fate::Forward {
                bench.node.transmit(handle.0, SIDE);
            }
        }
    }
    bench.burst(1, 5 + 90);
    for _ in 0..8 {
        bench.wait(Span::from_millis(10));
        let grant = Grant { of: OUT, push, raise: 6_250.0, cut: 0.0 };
        bench.router.handle_grant(bench.node.now, SIDE, grant, &mut bench.node);
    }
    bench.router.counters(OUT).detoured
}

#[test]
fn a_detour_is_used_only_while_both_its_interfaces_push() {
    assert!(detoured(true, false) > 20);
    assert_eq!(detoured(false, false), 0);
    assert_eq!(detoured(true, true), 0);
}

#[test]
fn what_is_on_a_detour_takes_no_other() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 90);
    for _ in 0..4 {
        bench.wait(Span::from_millis(10));
        let grant = Grant { of: OUT, push: true, raise: 6_250.0, cut: 0.0 };
        bench.router.handle_grant(bench.node.now, SIDE, grant, &mut bench.node);
    }
    let meta = Meta { flow: 5, len: LEN, detoured: true, ..Meta::default() };
    let packet = Handle(1_000);
    assert_eq!(bench.router.handle_data(bench.node.now, OUT, packet, &meta, &mut bench.node), Fate::Hold);
    bench.wait(Span::from_secs(1));
    assert!(bench.node.sent.contains(&(1_000, OUT)) && bench.router.counters(OUT).detoured > 5);
}

/// The neighbour answers a probe: it would take half of what its link carries.
fn answer(bench: &mut Bench) {
    let grant = Grant { of: OUT, push: true, raise: 6_250.0, cut: 0.0 };
    bench.router.handle_grant(bench.node.now, SIDE, grant, &mut bench.node);
}

#[test]
fn where_only_probes_get_lost_a_detour_is_given_up_within_two_decisions_and_every_packet_leaves() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 90);
    for _ in 0..5 {
        bench.wait(Span::from_millis(10));
        bench.burst(1, 8);
        answer(&mut bench);
    }
    assert!(bench.router.detour_rate(OUT, SIDE) > Rate::from_mbits(1));
    // Nothing else is lost: packets go on to come, and a gated flow receives *slow down*s.
    let decision = config().decision_interval;
    for _ in 0..10 {
        bench.wait(Span::from_millis(10));
        bench.burst(1, 8);
        bench.handle_notice(2, Notice::SlowDown, 99);
        bench.data(2, Nonces::one(Nonce(99)));
    }
    assert_eq!(decision + decision, Span::from_millis(100), "so long ago the last answer came");
    assert_eq!(bench.router.detour_rate(OUT, SIDE), Rate::default());
    let (detoured, asked) = (bench.router.counters(OUT).detoured, bench.node.probes.len());
    bench.burst(1, 20);
    bench.wait(Span::from_millis(50));
    assert!(bench.node.probes.len() >= asked + 4, "it goes on to ask");
    bench.wait(Span::from_secs(1));
    assert_eq!((bench.held(), bench.state(), bench.router.counters(OUT).detoured), (0, State::Push, detoured));
    assert_eq!((bench.node.sent.len(), bench.node.lost.len()), (bench.handed as usize, 0));
}

#[test]
fn where_no_probe_is_ever_answered_everything_leaves_by_its_own_link() {
    let mut bench = Bench::new(config());
    bench.burst(1, 5 + 90);
    bench.wait(Span::from_secs(2));
    assert_eq!((bench.held(), bench.state(), bench.router.counters(OUT).detoured), (0, State::Push, 0));
    assert!(bench.node.probes.len() > 5 && bench.node.sent.iter().all(|(_, port)| *port == OUT));
}

#[test]
fn a_router_whose_probes_get_lost_leaves_its_share_to_the_others_after_a_decision() {
    let config = config();
    let mut meter = Meter::new(&config, Rate::from_mbits(10));
    let at = |millis: u64| Time::ZERO + Span::from_millis(millis);
    let raise = |meter: &mut Meter, millis: u64, router: u32| {
        meter.advance(&config, at(millis), Bytes::default());
        meter.grant(&config, at(millis), RouterId(router), true, OUT, true).raise
    };
    let alone = raise(&mut meter, 100, 1);
    raise(&mut meter, 100, 2);
    assert!((raise(&mut meter, 140, 1) - alone / 2.0).abs() < 1.0, "two share");
    assert!((raise(&mut meter, 151, 1) - alone).abs() < 1.0, "neither has had news of the other for T_d");
}

/// Routers that share one detour of 10 Mbit/s for 6 s, beside other traffic.
///
/// Probes and their answers take 5 ms in each direction. What does not fit waits in the neighbour's queue.
struct Shared {
    /// Mean rate of each after 2 s, in Mbit/s.
    means: Vec<f64>,
    /// The largest difference of one from its mean after 2 s, as a share of it.
    swing: f64,
    /// The longest queue after 2 s, in bytes.
    queue: f64,
}

fn share(routers: usize, background: Rate) -> Shared {
    let config = config();
    let capacity = Rate::from_mbits(10);
    let mut meter = Meter::new(&config, capacity);
    let mut detours: Vec<_> = (0..routers).map(|_| Detour::new(SIDE)).collect();
    // No limit of the first link.
    let own = Grant { of: OUT, push: true, raise: f64::MAX, cut: 0.0 };
    let (mut queue, mut longest): (f64, f64) = (0.0, 0.0);
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); routers];
    let mut answers: Vec<(usize, usize, Grant)> = Vec::new();
    let mut sent = 0.0;
    for milli in 0..6_000usize {
        let now = Time::ZERO + Span::from_millis(milli as u64 + 1);
        let arriving = detours.iter().map(Detour::rate).sum::<f64>() + background.bits_per_sec() as f64 / 8.0;
        queue += arriving / 1e3;
        let leaving = queue.min(1_250.0);
        queue -= leaving;
        sent += arriving / 1e3;
        meter.sent(sent as u32);
        sent -= sent.floor();
        for (at, detour) in detours.iter_mut().enumerate() {
            // Routers do not probe at the same time.
            let phase = (milli + 10 - at * 10 / routers) % 10;
            if phase == 5 && milli > 10 {
                meter.advance(&config, now, Bytes::new(queue as u64));
                let grant = meter.grant(&config, now, RouterId(at as u32), true, OUT, true);
                answers.push((milli + 5, at, grant));
            }
            if milli % 50 == 0 {
                detour.decide(&config, now, true);
            }
        }
        answers.retain(|(due, at, grant)| {
            if *due == milli {
                detours[*at].handle_grant(&config, now, 1_250_000.0, *grant, own);
            }
            *due > milli
        });
        if milli >= 2_000 {
            longest = longest.max(queue);
            for (samples, detour) in samples.iter_mut().zip(&detours) {
                samples.push(detour.rate() * 8.0 / 1e6);
            }
        }
    }
    let means: Vec<f64> = samples.iter().map(|of| of.iter().sum::<f64>() / of.len() as f64).collect();
    let swing = |(of, mean): (&Vec<f64>, &f64)| of.iter().map(|rate| (rate / mean - 1.0).abs()).fold(0.0, f64::max);
    let swing = samples.iter().zip(&means).map(swing).fold(0.0, f64::max);
    Shared { means, swing, queue: longest }
}

#[test]
fn routers_that_share_a_detour_settle_on_equal_parts_of_what_is_left() {
    for (routers, background) in [(1, 0), (2, 0), (8, 0), (2, 4), (8, 7)] {
        let Shared { means, swing, queue } = share(routers, Rate::from_mbits(background));
        let sum: f64 = means.iter().sum();
        let jain = sum * sum / (means.len() as f64 * means.iter().map(|rate| rate * rate).sum::<f64>());
        let left = 10.0 - background as f64;
        assert!(
            (sum / left - 1.0).abs() < 0.02 && jain >= 0.99 && swing < 0.05 && queue < 10_000.0,
            "{routers} routers beside {background} Mbit/s: {sum} Mbit/s, Jain {jain}, swing {swing}, queue {queue}"
        );
    }
}
