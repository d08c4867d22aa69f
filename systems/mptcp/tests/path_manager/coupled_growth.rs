//! How windows of real connections grow, held against RFC 6356 in floating point: while two subflows send, when one of them has become
//! a backup, with segments of different sizes, and when the program has nothing to send.

use std::time::{Duration, Instant};

use sidestep_coupled::Algorithm;
use sidestep_linux::{bpf::coupled::Registration, mptcp::Window, netns::set_sysctl, testing::root_or_skip};

use crate::{
    SECOND,
    congestion::alone,
    support::{Connection, Host, Pair, Transfer},
};

const SERVER: &str = "10.62.0.1";

/// A client with two links, the second with this MTU, to a router with a narrow link for each to a server; the kernel's own path manager
/// opens a subflow over each. A queue of the client's own would keep its windows from being full.
struct Network {
    pair: Pair,
    _router: Host,
}

impl Network {
    fn new(mtu: u32, algorithm: Algorithm) -> Self {
        let (client, router, server) = (Host::new(), Host::new(), Host::new());
        let of = |host: &Host| format!("/proc/{}/fd/{}", std::process::id(), host.0.raw_fd());
        router.run(|| set_sysctl("ipv4/ip_forward", "1").unwrap());
        server.ip(&format!("address add {SERVER} dev lo"));
        for (link, mtu) in [(0, 1500), (1, mtu)] {
            client.ip(&format!("link add link{link} type veth peer name near{link} netns {}", of(&router)));
            router.ip(&format!("link add far{link} type veth peer name link{link} netns {}", of(&server)));
            client.ip(&format!("address add 10.60.{link}.1/24 dev link{link}"));
            router.ip(&format!("address add 10.60.{link}.2/24 dev near{link}"));
            router.ip(&format!("address add 10.61.{link}.1/24 dev far{link}"));
            server.ip(&format!("address add 10.61.{link}.2/24 dev link{link}"));
            for (host, name) in [(&client, "link"), (&router, "near"), (&router, "far"), (&server, "link")] {
                host.ip(&format!("link set {name}{link} mtu {mtu} up"));
            }
            client.ip(&format!("rule add from 10.60.{link}.1 table 10{link}"));
            client.ip(&format!("route add default via 10.60.{link}.2 table 10{link}"));
            router.ip(&format!("rule add iif near{link} table 10{link}"));
            router.ip(&format!("route add {SERVER} via 10.61.{link}.2 table 10{link}"));
            server.ip(&format!("route add 10.60.{link}.0/24 via 10.61.{link}.1"));
            let shape = format!("qdisc add dev far{link} root tbf rate 20mbit burst 10kb limit 150kb");
            let run = || std::process::Command::new("tc").args(shape.split(' ')).status().unwrap();
            assert!(router.run(run).success());
        }
        client.ip(&format!("route add {SERVER} via 10.60.0.2"));
        for host in [&client, &server] {
            host.ip("mptcp limits set subflows 2 add_addr_accepted 2");
            host.run(|| set_sysctl("ipv4/tcp_congestion_control", algorithm.as_str()).unwrap());
        }
        client.ip("mptcp endpoint add 10.60.1.1 id 7 dev link1 subflow");
        Network { pair: Pair::new(client, server), _router: router }
    }
}

fn connected(pair: &Pair) -> Connection {
    let connection = pair.connect(SERVER);
    connection.exchange();
    pair.client.eventually("two subflows", || pair.client.subflows(&connection).len() == 2);
    connection
}

/// The windows of the first subflow and the other.
fn windows(pair: &Pair, connection: &Connection) -> [Window; 2] {
    let mut subflows: Vec<_> = pair.client.subflows(connection).into_iter().filter_map(|one| one.subflow).collect();
    subflows.sort_by_key(|subflow| !subflow.is_first);
    [subflows[0].window, subflows[1].window]
}

/// Segments by which a window grows for bytes acknowledged (RFC 6356, section 3, equations 1 and 2), among those that send.
fn increase(of: &Window, acked: u64, sending: &[Window]) -> f64 {
    let window = |one: &Window| one.path.window as f64;
    let rtt = |one: &Window| f64::from(one.path.rtt);
    let total: f64 = sending.iter().map(window).sum();
    let best = sending.iter().map(|one| window(one) / rtt(one).powi(2)).fold(0.0, f64::max);
    let alpha = total * best / sending.iter().map(|one| window(one) / rtt(one)).sum::<f64>().powi(2);
    acked as f64 * (alpha / total).min(1.0 / window(of))
}

/// For each subflow how much its window has grown over what the equation says, from its first step to its last in `time`; nothing of
/// one that made fewer than seven steps. Steps count from the end of the last recovery.
fn grown(pair: &Pair, connection: &Connection, sending: usize, time: Duration) -> [Option<f64>; 2] {
    let start = Instant::now();
    let mut last = windows(pair, connection);
    // Steps, and what the equation says: since the last step, and up to it.
    let mut seen = [(0_u64, 0.0, 0.0); 2];
    let mut best: [(u64, f64); 2] = [(0, 0.0); 2];
    let mut recovered = [start; 2];
    while start.elapsed() < time {
        std::thread::sleep(Duration::from_millis(3));
        let now = windows(pair, connection);
        for k in 0..2 {
            let segments = |one: &Window| one.path.window / u64::from(one.path.mss);
            let (steps, since, until) = &mut seen[k];
            *since += increase(&last[k], now[k].acked - last[k].acked, &last[..sending]);
            if segments(&now[k]) < segments(&last[k]) {
                recovered[k] = Instant::now() + SECOND / 2;
            }
            if Instant::now() < recovered[k] {
                seen[k] = (0, 0.0, 0.0);
            } else if segments(&now[k]) > segments(&last[k]) {
                // From the first step on, at which the rest of a segment is nearly nothing.
                let more = segments(&now[k]) - segments(&last[k]);
                (*steps, *until) = if *steps == 0 { (1, 0.0) } else { (*steps + more, *until + *since) };
                *since = 0.0;
                if *steps > best[k].0 {
                    best[k] = (*steps, *until);
                }
            }
        }
        last = now;
    }
    best.map(|(steps, expected)| (steps > 6).then(|| (steps - 1) as f64 / expected))
}

/// Measures three times at most, until all is near, else returns what was found: windows that other work keeps the program from filling
/// grow less.
fn tries<T>(measure: impl Fn() -> T, is_near: impl Fn(&T) -> bool) -> Result<(), Vec<T>> {
    let mut found = Vec::new();
    for _ in 0..3 {
        let one = measure();
        if is_near(&one) {
            return Ok(());
        }
        found.push(one);
    }
    Err(found)
}

fn near(grown: Option<f64>) -> bool {
    grown.is_some_and(|share| (0.9..1.1).contains(&share))
}

#[test]
fn windows_grow_as_rfc_6356_says_and_a_subflow_that_became_a_backup_counts_no_more() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    let _registered = Registration::new(Algorithm::Lia).unwrap();
    // Of the second link, whose segments then are less than half as large.
    for mtu in [1500, 700] {
        let network = Network::new(mtu, Algorithm::Lia);
        let pair = &network.pair;
        let transfer = Transfer::start(connected(pair));
        let connection = transfer.connection();
        let [first, second] = windows(pair, connection);
        assert_eq!([first, second].map(|window| window.coupling), [Some(Algorithm::Lia); 2]);
        assert_eq!(first.path.mss > 2 * second.path.mss, mtu == 700);
        // Slow start ends by a loss.
        std::thread::sleep(SECOND * 3);
        tries(|| grown(pair, connection, 2, SECOND * 5), |both| both.iter().copied().all(near)).unwrap();
        pair.client.ip("mptcp endpoint change id 7 backup");
        std::thread::sleep(SECOND * 2);
        let idle = windows(pair, connection)[1];
        tries(|| grown(pair, connection, 1, SECOND * 4), |alone| near(alone[0])).unwrap();
        assert_eq!(windows(pair, connection)[1].acked, idle.acked, "a backup sends nothing");
        transfer.finish();
    }
}

#[test]
fn a_window_that_the_program_does_not_fill_does_not_grow() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    let _alone = alone();
    for algorithm in Algorithm::ALL {
        let _registered = Registration::new(algorithm).unwrap();
        let network = Network::new(1500, algorithm);
        let pair = &network.pair;
        let connection = connected(pair);
        // Past slow start, which ends by a loss.
        connection.send(10_000_000);
        let before = windows(pair, &connection);
        for _ in 0..100 {
            connection.send(10_000);
            std::thread::sleep(Duration::from_millis(10));
        }
        let after = windows(pair, &connection);
        assert_eq!(after.map(|window| window.coupling), [Some(algorithm); 2]);
        assert!((after[0].acked + after[1].acked) - (before[0].acked + before[1].acked) > 900_000);
        for (before, after) in before.into_iter().zip(after) {
            assert!(after.path.window <= before.path.window, "{before:?} {after:?}");
        }
    }
}
