//! SIGHUP: neighbours and edges come and go, rates, caches and keys change, and no connection dies.

use std::{fs, thread, time::Duration};

use nix::sys::signal::Signal;
use sidestep_inrpp::daemon::{InrppStatus, PortState};
use sidestep_linux::testing::root_or_skip;

use crate::net::{Net, Over, Router, Stream, eventually, ip};

const SILENCE: Duration = Duration::from_secs(5);

/// Has a router read another file.
fn reload(router: &Router, text: &str) {
    fs::write(&router.config, text).unwrap();
    router.signal(Signal::SIGHUP);
}

/// A file without the table that begins with `start`.
fn without(text: &str, start: &str) -> String {
    let (head, rest) = text.split_once(start).unwrap();
    format!("{head}{}", rest.find("[[").map_or("", |at| &rest[at..]))
}

#[test]
fn neighbours_edges_rates_and_caches_change_while_connections_go_on() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    let text = |name: &str| net.config(name, Over::Udp, "");
    let mut routers = net.routers(Over::Udp, "");
    let streams = [net.stream(true, 150), net.stream(false, 10)];
    let status = |at: usize| net.status(net.nodes()[at]).unwrap();
    let has = |at: usize, what: &str, holds: &dyn Fn(&InrppStatus) -> bool| {
        eventually(what, || net.status(net.nodes()[at]).is_some_and(|status| holds(&status)));
    };
    let alive = |status: &InrppStatus| status.ports.iter().filter(|port| port.state == PortState::Alive).count();

    has(0, "the detour is taken", &|status| status.ports[0].detoured > 100);
    let tracked = status(0).connections.tracked;
    // Without the neighbour of the detour: first at one end, then at both.
    let neighbour = "[[neighbour]]\nname = \"c\"";
    for at in [0, 1] {
        reload(&routers[at], &without(&text(crate::net::NAMES[at]), neighbour));
        has(at, "the neighbour is gone", &|status| status.ports.len() == 2);
        thread::sleep(Duration::from_millis(300));
    }
    has(2, "they have said so", &|status| status.ports.iter().all(|port| port.state == PortState::Leaving));
    assert!(!ip(&net.a, "-o link").contains("inrpp-to-c"));
    assert_eq!(ip(&net.a, "tc filter show dev to-c egress"), "");
    assert!(status(0).connections.tracked >= tracked && status(0).connections.unscaled == 0, "{:?}", status(0));
    assert_eq!((alive(&status(0)), status(0).ports[0].dropped), (1, 0));

    // Another rate and cache.
    let slower = |name: &str| text(name).replace("98500 kbit/s", "50 Mbit/s").replace("4 MB", "2 MB");
    for (router, name) in routers.iter().zip(crate::net::NAMES) {
        reload(router, &slower(name));
    }
    has(0, "the neighbour is back", &|status| alive(status) == 2);
    assert_eq!((status(0).ports[0].rate_mbps, status(0).ports[0].cache_room), (50.0, 2_000_000));
    let detoured = status(0).ports[0].detoured;
    has(0, "detours are taken again", &|status| status.ports[0].detoured > detoured + 100);

    // Another name, table and order; the edge goes and comes.
    reload(&routers[0], &without(&slower("a"), "[[edge]]"));
    has(0, "the edge is gone", &|status| status.ports.len() == 2);
    assert_eq!(ip(&net.a, "tc filter show dev h1 egress"), "");
    thread::sleep(Duration::from_millis(300));
    reload(&routers[0], &text("a").replace("name = \"a\"", "name = \"a\"\nresequence = \"off\"\nflows = 100"));
    has(0, "the edge is back", &|status| status.ports.len() == 3 && alive(status) == 2);

    // What cannot be is left out, and comes when it can.
    let odd = format!("{}[[edge]]\ninterface = \"later\"\n", text("b"));
    reload(&routers[1], &odd);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(status(1).ports.len(), 3);
    ip(&net.b, "link add later type veth peer name other");
    has(1, "the interface is there", &|status| status.ports.len() == 4);
    let tracked = status(0).connections.tracked;
    thread::sleep(Duration::from_millis(300));
    let gaps = streams.map(Stream::end);
    println!("reloads: longest silence {gaps:?}, {tracked} connections");
    assert!(gaps.iter().all(|gap| *gap < SILENCE), "{gaps:?}");
    for (at, router) in routers.iter_mut().enumerate() {
        assert!(status(at).ports.iter().all(|port| port.dropped == 0), "{:?}", status(at));
        router.end();
    }
}

#[test]
fn a_key_changes_at_both_ends_and_the_link_goes_on() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    let routers = net.with_keys(["0123456789abcdef0123456789abcdef"; 2]);
    net.answers(&net.a);
    let streams = [net.stream(true, 50)];
    for (router, name) in routers.iter().zip(["a", "b"]) {
        fs::write(net.files.path().join(format!("{name}.key")), "00112233445566778899aabbccddeeff").unwrap();
        router.signal(Signal::SIGHUP);
        thread::sleep(Duration::from_millis(500));
    }
    net.answers(&net.a);
    net.answers(&net.b);
    let diverted = net.status(&net.a).unwrap().ports[0].passed.diverted;
    eventually("packets are diverted", || net.status(&net.a).unwrap().ports[0].passed.diverted > diverted + 10);
    let gaps = streams.map(Stream::end);
    assert!(gaps.iter().all(|gap| *gap < SILENCE), "{gaps:?}");
}
