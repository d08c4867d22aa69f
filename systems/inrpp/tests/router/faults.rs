//! What happens to connections when a router's process is killed, hangs, or ends.

use std::{thread, time::Duration};

use nix::sys::signal::Signal;
use sidestep_linux::{netns::NetNs, testing::root_or_skip};

use crate::net::{Net, Over, eventually, ip};

/// How long data may be missing: 100 ms until the programs pass, 300 ms until neighbours do, and TCP's doubled timeouts on a busy machine.
const SILENCE: Duration = Duration::from_secs(5);

#[test]
fn no_connection_dies_when_a_routers_process_is_killed_or_hangs() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    for over in [Over::Udp, Over::Ethernet] {
        let mut routers = net.routers(over, "");
        let nodes: [(&str, &NetNs); 3] = [("a", &net.a), ("b", &net.b), ("c", &net.c)];
        for (router, (name, node)) in routers.iter_mut().zip(nodes) {
            let streams = [net.stream(true, 150), net.stream(false, 10)];
            thread::sleep(Duration::from_millis(400));
            router.kill();
            thread::sleep(Duration::from_millis(700));
            *router = net.start(node, name, over, "");
            net.answers(node);
            thread::sleep(Duration::from_millis(400));
            let gaps = streams.map(crate::net::Stream::end);
            println!("{over:?}, {name} killed: longest silence {gaps:?}");
            assert!(gaps.iter().all(|gap| *gap < SILENCE), "{name}: {gaps:?}");
        }
        for (router, (name, _)) in routers.iter().zip(nodes) {
            let streams = [net.stream(true, 150), net.stream(false, 10)];
            thread::sleep(Duration::from_millis(400));
            router.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_millis(700));
            router.signal(Signal::SIGCONT);
            thread::sleep(Duration::from_millis(400));
            let gaps = streams.map(crate::net::Stream::end);
            println!("{over:?}, {name} hangs: longest silence {gaps:?}");
            assert!(gaps.iter().all(|gap| *gap < SILENCE), "{name}: {gaps:?}");
        }
    }
}

#[test]
fn a_router_that_ends_says_so_and_leaves_nothing() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    let mut routers = net.routers(Over::Udp, "");
    let streams = [net.stream(true, 150), net.stream(false, 10)];
    thread::sleep(Duration::from_millis(400));
    for router in &mut routers {
        router.end();
        thread::sleep(Duration::from_millis(100));
    }
    let gaps = streams.map(crate::net::Stream::end);
    println!("all end: longest silence {gaps:?}");
    assert!(gaps.iter().all(|gap| *gap < SILENCE), "{gaps:?}");
    for node in [&net.a, &net.b, &net.c] {
        let links = ip(node, "-o link");
        assert!(!links.contains("inrpp"), "{links}");
        for link in links.lines().filter_map(|line| line.split([':', '@']).nth(1)) {
            assert_eq!(ip(node, &format!("tc filter show dev {} egress", link.trim())), "");
        }
    }
}

#[test]
fn a_neighbour_with_another_key_is_not_believed_and_the_kernel_sends() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    let routers = net.with_keys(["0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdee"]);
    eventually("forged hellos are counted", || {
        net.status(&net.a).is_some_and(|status| status.ports[0].refused.forged > 3)
    });
    net.transfer(2_000_000, true, false);
    let status = net.status(&net.a).unwrap();
    assert_eq!(status.ports[0].state, sidestep_inrpp::daemon::PortState::Silent);
    assert_eq!(status.ports[0].passed.diverted, 0, "{status:?}");
    drop(routers);
    let _routers = net.with_keys(["0123456789abcdef0123456789abcdef"; 2]);
    net.answers(&net.a);
    net.transfer(2_000_000, true, false);
    assert!(net.status(&net.a).unwrap().ports[0].passed.diverted > 0);
}

#[test]
fn a_successor_takes_over_under_load_and_nothing_is_lost() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    for over in [Over::Udp, Over::Ethernet] {
        let mut routers = net.routers(over, "");
        let streams = [net.stream(true, 150), net.stream(false, 10)];
        thread::sleep(Duration::from_millis(500));
        let (before, datagrams) = (net.sent_again_and_had(), net.datagrams(1_500));
        for (router, node) in routers.iter_mut().zip([&net.a, &net.b, &net.c]) {
            let held = net.status(node).unwrap();
            *router = net.take_over(node, router);
            let status = net.status(node).unwrap();
            assert!(status.uptime_s < 2.0 && status.connections.tracked >= held.connections.tracked, "{status:?}");
            assert_eq!(status.connections.unscaled, 0, "{status:?}");
            thread::sleep(Duration::from_millis(300));
        }
        let lost = datagrams.join().unwrap();
        let gaps = streams.map(crate::net::Stream::end);
        let after = net.sent_again_and_had();
        let (again, had) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{over:?}: three takeovers: {lost} of 1,500 datagrams lost, {again} segments sent again, of which the receivers \
             had {had}, silence {gaps:?}"
        );
        // TCP sends again what is only late on a busy machine; the receivers have that twice.
        assert!(
            lost == 0 && again < had + 10 && gaps.iter().all(|gap| *gap < Duration::from_millis(600)),
            "{again}, {had}: {gaps:?}"
        );
        for node in [&net.a, &net.b, &net.c] {
            let ports = net.status(node).unwrap().ports;
            assert!(ports.iter().all(|port| port.passed.stale == 0 && port.dropped == 0), "{ports:?}");
        }
    }
}

#[test]
fn a_connection_goes_on_when_its_acks_are_not_seen_any_more() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(50);
    net.lead_over_c();
    let mut routers = net.routers_with(|config| config.replace("cache = \"4 MB\"", "cache = \"300 kB\""));
    let stream = net.stream(false, 1_000);
    thread::sleep(Duration::from_millis(1_500));
    // From now on they leave `c` by a port that is not managed while it has no neighbour.
    routers[0].kill();
    thread::sleep(Duration::from_millis(3_500));
    let (bytes, gap) = stream.end_with_bytes();
    println!("{:.1} Mbit/s, silence {gap:?}", bytes as f64 * 8.0 / 5e6);
    assert!(gap < Duration::from_secs(2) && bytes > 10_000_000, "{gap:?}, {bytes}");
}
