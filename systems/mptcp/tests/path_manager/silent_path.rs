//! A path that goes silent while others work, between two hosts with real wires between them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sidestep_linux::{
    mptcp::{Ends, TcpEnds},
    netns::set_sysctl,
    tap::Tap,
    testing::root_or_skip,
    wire::{WireSpec, Wires},
};
use sidestep_net::{Channel, Direction, LinkId, Queue, QueueLimit, Rate, Ratio, Span};

use crate::support::{Host, Pair, PathManager, Transfer, accepting, config};

/// A router hashes subflows onto paths by their source ports: these, and further ones up to the last.
const FIRST_PORT: u16 = 32_768;
const PORTS: u16 = 9_411;
const PATHS: u16 = 3;
/// A successor draws its path, and a SYN on a silent one takes three seconds: few need more than four draws.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client fd42:1::1 behind a router, three wires, and a server fd42:2::2 that answers by the first of them.
struct Wired {
    pair: Pair,
    _router: Host,
    wires: Wires,
}

fn wired() -> Wired {
    let (client, router, server) = (Host::new(), Host::new(), Host::new());
    router.run(|| set_sysctl("ipv6/conf/all/forwarding", "1").unwrap());
    let other = format!("/proc/{}/fd/{}", std::process::id(), router.0.raw_fd());
    client.ip(&format!("link add veth type veth peer name client netns {other}"));
    client.ip("address add fd42:1::1/64 dev veth nodad");
    client.ip("link set veth up");
    router.ip("address add fd42:1::2/64 dev client nodad");
    router.ip("link set client up");
    client.ip("route add default via fd42:1::2");
    server.ip("address add fd42:2::2/128 dev lo");
    let mut specs = Vec::new();
    for path in 0..PATHS {
        let [a, b] = [&router, &server].map(|host| host.run(|| Tap::create(&format!("w{path}"), 256).unwrap()));
        specs.push(WireSpec { a, b, ab: channel(), ba: channel(), mtu: 1500 });
        for (host, end) in [(&router, 1), (&server, 2)] {
            host.ip(&format!("address add fd43:{path}::{end}/64 dev w{path} nodad"));
            host.ip(&format!("link set w{path} up"));
        }
        let (first, table) = (FIRST_PORT + path * PORTS, 100 + path);
        // TCP by its number: the guest of `make test-kernels` has no /etc/protocols.
        router.ip(&format!("-6 rule add ipproto 6 sport {first}-{} table {table}", first + PORTS - 1));
        router.ip(&format!("-6 route add fd42:2::2 via fd43:{path}::2 table {table}"));
    }
    server.ip("-6 route add fd42:1::/64 via fd43:0::1");
    Wired { pair: Pair::new(client, server), _router: router, wires: Wires::start(specs, 1, 1, None).unwrap() }
}

fn channel() -> Channel {
    let queue = Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None };
    let (rate, delay) = (Rate::from_mbits(20), Span::from_millis(2));
    Channel { rate, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: 1 }
}

fn path_of(ends: &Ends) -> u16 {
    (ends.local.port() - FIRST_PORT) / PORTS
}

#[test]
fn subflows_on_a_path_that_goes_silent_are_ended_and_restored_on_the_others() {
    if !root_or_skip("the path manager") {
        return;
    }
    let Wired { pair, wires, .. } = &wired();
    let quick = config("count = 6\n[watch]\ninterval = \"200 ms\"\ntimeouts = 2");
    let (client, _server) = (PathManager::start(&pair.client, quick), accepting(&pair.server));
    let connection = pair.connect("fd42:2::2");
    connection.exchange();
    pair.client.eventually("6 subflows", || pair.client.subflows(&connection).len() == 6);
    let joined = pair.client.joined(&pair.client.subflows(&connection));
    let mut by_path: BTreeMap<u16, Vec<Ends>> = BTreeMap::new();
    joined.iter().for_each(|ends| by_path.entry(path_of(&ends.ends)).or_default().push(ends.ends));
    let (silent, victims) = by_path.into_iter().max_by_key(|(_, ends)| ends.len()).unwrap();
    let transfer = Transfer::start(connection);
    transfer.pass(4 << 20);

    let lossy = Channel { loss: Ratio::from_ppb(1_000_000_000), ..channel() };
    wires.handle().set_channel(LinkId(silent.into()).arc(Direction::AToB), lossy).unwrap();
    let began = Instant::now();
    let working = || {
        let mut all = pair.client.subflows(transfer.connection());
        all.retain(|ends| path_of(&ends.ends) != silent);
        all
    };
    let is_over = || {
        let listed = pair.client.subflows(transfer.connection());
        working().len() == 6 && !victims.iter().any(|victim| listed.iter().any(|ends| ends.ends == *victim))
    };
    pair.client.within(PATIENCE, "6 subflows on the other paths", is_over);
    println!("{} of 6 subflows were on the silent path; 6 work elsewhere after {:?}", victims.len(), began.elapsed());
    assert!(client.counter("sidestep_mptcp_subflows_ended_total") >= victims.len() as f64);
    // Each of them carries.
    let before: BTreeMap<Ends, u64> = working().iter().map(|ends| (ends.ends, bytes(ends))).collect();
    let carries = || working().iter().filter(|ends| before.get(&ends.ends) < Some(&bytes(ends))).count() >= 6;
    pair.client.eventually("data on each of the 6", carries);
    transfer.pass(4 << 20);
    transfer.finish();
}

fn bytes(ends: &TcpEnds) -> u64 {
    ends.subflow.unwrap().bytes
}
