use std::{
    net::UdpSocket,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sidestep_linux::{
    netns::set_sysctl,
    prober::{Method, Prober, Reply, Spec},
    testing::{
        egresses::{DELAYS, Net, OWN, PATIENCE, TARGETS, address, channel, ip},
        root_or_skip,
    },
};
use sidestep_net::{Ratio, Span};
use sidestep_proto::{
    echo::Unreachable,
    stamp::{Clock, Directions},
};

use crate::memory;

const STAMP: Method = Method::Stamp { port: 862, clock: Clock::Ntp };
const METHODS: [Method; 4] =
    [Method::Icmp, Method::UdpEcho { port: 7 }, STAMP, Method::Stamp { port: 862, clock: Clock::Ptp }];

/// Probes of a target by an egress.
fn by_egress(egress: usize, target: &str, method: Method) -> Spec {
    Spec {
        device: Some(format!("egress{egress}")),
        mark: Some(egress as u32 + 1),
        ..Spec::new(address(target), method)
    }
}

fn open(net: &Net, spec: &Spec) -> Prober {
    net.site.run(|| Prober::open(spec)).unwrap()
}

/// The next reply, waited for with `poll`.
fn next(prober: &mut Prober) -> Reply {
    let start = Instant::now();
    loop {
        if let Some(reply) = prober.receive().unwrap() {
            return reply;
        }
        assert!(start.elapsed() < PATIENCE, "no reply: {:?}", prober.counts());
        poll(&mut [PollFd::new(prober.as_fd(), PollFlags::POLLIN)], PollTimeout::from(100_u8)).unwrap();
    }
}

/// Sends probes until one has the round trip of these delays: others may have waited for the wire's thread. None is faster.
fn measures(prober: &mut Prober, delays: [Span; 2]) {
    let least = delays[0].as_nanos() + delays[1].as_nanos();
    for _ in 0..100 {
        let sequence = prober.send().unwrap();
        let Reply::Answer(answer) = next(prober) else { panic!("{:?}", prober.counts()) };
        assert_eq!(answer.sequence, sequence);
        assert!(answer.rtt.as_nanos() >= least, "{:?}", answer.rtt);
        if answer.stamped && answer.rtt.as_nanos() < least + 8_000_000 {
            return;
        }
    }
    panic!("never {least} ns: {:?}", prober.counts());
}

/// The delays of an egress, there and back.
fn of(egress: usize) -> [Span; 2] {
    [DELAYS[egress]; 2]
}

#[test]
fn each_method_measures_the_egress_that_it_is_bound_to_whatever_the_routes_say() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let net = Net::lossless();
    net.answer();
    for routes in 0..2 {
        net.route_by(routes);
        // The second time with ICMP sockets of the kernel's own kind.
        if routes == 1 {
            net.site.run(|| set_sysctl("ipv4/ping_group_range", "0 0")).unwrap();
        }
        for target in TARGETS {
            for method in METHODS {
                for egress in 0..2 {
                    let mut prober = open(&net, &by_egress(egress, target, method));
                    println!("{method:?} to {target} by egress {egress}");
                    measures(&mut prober, of(egress));
                    let counts = prober.counts();
                    assert_eq!((counts.answered, counts.foreign, counts.duplicates), (counts.sent, 0, 0));
                }
            }
        }
    }
}

#[test]
fn answers_may_come_in_by_another_egress_only_where_that_is_allowed() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let net = Net::lossless();
    net.answer();
    for (target, own) in TARGETS.into_iter().zip(OWN) {
        for method in [Method::Icmp, Method::UdpEcho { port: 7 }, STAMP] {
            let spec = Spec { source: Some(address(own)), ..by_egress(0, target, method) };
            let mut bound = open(&net, &spec);
            let mut any = open(&net, &Spec { any_return: true, ..spec });
            bound.send().unwrap();
            measures(&mut any, DELAYS);
            assert_eq!(bound.receive().unwrap(), None);
        }
    }
}

#[test]
fn a_stateful_reflector_shows_which_direction_loses() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let lossy = |delay| sidestep_net::Channel { loss: Ratio::from_ppb(300_000_000), ..channel(delay) };
    let fine = DELAYS.map(channel);
    for forward in [true, false] {
        let bad = DELAYS.map(lossy);
        let net = if forward { Net::with(bad, fine) } else { Net::with(fine, bad) };
        net.answer();
        let mut prober = open(&net, &by_egress(0, TARGETS[0], STAMP));
        let (mut answered, mut last) = (0, None);
        let start = Instant::now();
        // Until a few have been lost and a few answered after them.
        while answered < 40 {
            assert!(start.elapsed() < PATIENCE, "{:?}", prober.counts());
            prober.send().unwrap();
            std::thread::sleep(Duration::from_millis(5));
            while let Some(Reply::Answer(answer)) = prober.receive().unwrap() {
                answered += 1;
                last = Some(answer);
            }
        }
        let last = last.unwrap();
        let lost = u64::from(last.sequence) + 1 - answered;
        let remote = last.remote.unwrap();
        assert!(lost > 3, "{lost}");
        let expected = match forward {
            true => Directions { forward: lost, backward: 0 },
            false => Directions { forward: 0, backward: lost },
        };
        assert_eq!((remote.lost, remote.ttl), (expected, 64));
        assert_eq!(u64::from(remote.sequence) + 1, answered + expected.backward);
        // Both ends have the same clock here.
        for (delay, way) in [(DELAYS[0], remote.forward), (DELAYS[0], remote.backward)] {
            assert!((0..1_000_000_000).contains(&(way - delay.as_nanos() as i64)), "{way}");
        }
    }
}

#[test]
fn icmp_errors_are_reported_of_the_probe_that_they_are_about() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let net = Net::lossless();
    ip(&net.far, "route add unreachable 203.0.113.0/24");
    ip(&net.far, "-6 route add unreachable 2001:db8:2::/48");
    let closed = [Method::UdpEcho { port: 9 }, Method::Stamp { port: 9, clock: Clock::Ntp }];
    let check = |spec: Spec, by: &str, port: bool, count: u32| {
        let mut prober = open(&net, &spec);
        for expected in 0..count {
            assert_eq!(prober.send().unwrap(), expected, "an error of an earlier probe keeps none back");
            let Reply::Unreachable { sequence, why, by: told } = next(&mut prober) else { panic!("{spec:?}") };
            assert_eq!((sequence, told), (expected, Some(address(by))), "{spec:?}");
            let fits = if port { why == Unreachable::Port } else { why != Unreachable::Port };
            assert!(fits, "{spec:?}: {why:?}");
        }
        let counts = prober.counts();
        assert_eq!((counts.sent, counts.unreachable), (count.into(), count.into()));
        assert_eq!((counts.refused, counts.foreign), (0, 0));
    };
    for method in closed {
        for target in TARGETS {
            check(by_egress(0, target, method), target, true, 3);
        }
    }
    for (number, method) in METHODS.into_iter().enumerate() {
        // Linux answers for a route one packet a second to an address, so each method has its own.
        let own = format!("10.0.0.{}", 10 + number);
        ip(&net.site, &format!("address add {own}/24 dev egress0"));
        let spec = Spec { source: Some(address(&own)), ..by_egress(0, "203.0.113.1", method) };
        check(spec, "10.0.0.2", false, 1);
        check(by_egress(0, "2001:db8:2::1", method), "fd00::2", false, 3);
    }
}

#[test]
fn a_probe_that_cannot_leave_is_refused_and_the_next_one_is_stamped_again() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let net = Net::lossless();
    net.answer();
    let mut prober = open(&net, &by_egress(0, TARGETS[0], STAMP));
    measures(&mut prober, of(0));
    ip(&net.site, "link set egress0 down");
    let error = prober.send().unwrap_err().to_string();
    assert!(error.contains("sending a probe to 192.0.2.1"), "{error}");
    ip(&net.site, "link set egress0 up");
    ip(&net.site, "route add default via 10.0.0.2 table 100");
    measures(&mut prober, of(0));
    let counts = prober.counts();
    assert_eq!((counts.refused, counts.answered), (1, counts.sent));

    let missing =
        net.site.run(|| Prober::open(&Spec { device: Some("egress9".into()), ..by_egress(0, TARGETS[0], STAMP) }));
    let error = missing.unwrap_err().to_string();
    assert!(error.contains("for probes of 192.0.2.1 by egress9"), "{error}");
}

#[test]
fn what_is_no_answer_to_a_probe_is_counted_and_no_more() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let net = Net::lossless();
    let far = net.far.run(|| Ok(UdpSocket::bind("192.0.2.1:7").unwrap())).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut prober = open(&net, &by_egress(1, TARGETS[0], Method::UdpEcho { port: 7 }));
    prober.send().unwrap();
    let mut buffer = [0; 100];
    let (length, from) = far.recv_from(&mut buffer).unwrap();
    assert_eq!(length, 64);
    // Another secret, too short, another number, the answer, the same once more.
    let mut wrong = buffer;
    wrong[0] ^= 1;
    let mut unsent = buffer;
    unsent[11] ^= 1;
    for packet in [&wrong[..length], &buffer[..11], &unsent[..length], &buffer[..length], &buffer[..length]] {
        far.send_to(packet, from).unwrap();
    }
    assert!(matches!(next(&mut prober), Reply::Answer(answer) if answer.sequence == 0));
    let start = Instant::now();
    while prober.counts().duplicates == 0 {
        assert_eq!(prober.receive().unwrap(), None);
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    let counts = prober.counts();
    assert_eq!((counts.answered, counts.foreign, counts.duplicates), (1, 3, 1));
}

#[test]
fn a_probe_takes_no_memory() {
    if !root_or_skip("probing over wires") {
        return;
    }
    let net = Net::lossless();
    net.answer();
    for target in TARGETS {
        for method in METHODS {
            let mut prober = open(&net, &by_egress(0, target, method));
            measures(&mut prober, of(0));
            let before = memory::asked();
            (0..5).for_each(|_| assert!(prober.send().is_ok()));
            let start = Instant::now();
            let mut answers = 0;
            while answers < 5 && start.elapsed() < PATIENCE {
                answers += u32::from(prober.receive().is_ok_and(|reply| reply.is_some()));
            }
            assert_eq!((memory::asked() - before, answers), (0, 5), "{method:?} to {target}");
        }
    }
}
