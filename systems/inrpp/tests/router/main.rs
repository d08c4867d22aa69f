//! INRPP routers at work: real connections of hosts that know nothing of them, in namespaces.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

mod cost;
mod faults;
mod islands;
mod net;
mod reload;
mod soak;

use std::{ffi::OsStr, fs, thread, time::Duration};

use sidestep_hostd::Shutdown;
use sidestep_inrpp::daemon::{InrppConfig, InrppConfigs, InrppOptions, run_inrpp};
use sidestep_linux::{netns::NetNs, testing::root_or_skip};

use net::{CHILD, Net, Over};

fn read(file: &OsStr) -> InrppConfigs {
    let config = InrppConfig::parse(&fs::read_to_string(file).unwrap()).unwrap();
    let files = config.neighbours.iter().map(|neighbour| neighbour.key_file.as_ref());
    let keys = files.map(|file| file.map(|file| sidestep_inrpp::daemon::read_key(file).unwrap())).collect();
    (config, keys)
}

/// No test, but the daemon of the others, which start this program once more: so that one can be killed.
#[test]
fn daemon_process() {
    let Some(file) = std::env::var_os(CHILD) else { return };
    let (config, keys) = read(&file);
    let options =
        InrppOptions { keys, config, keep: false, dry_run: false, takeover: std::env::var_os("TAKEOVER").is_some() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (configs, changed) = tokio::sync::mpsc::unbounded_channel();
    runtime.block_on(async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        let mut hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).unwrap();
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                configs.send(read(&file)).unwrap();
            }
        });
        let shutdown = async {
            term.recv().await;
            Shutdown::CleanUp
        };
        run_inrpp(options, changed, || (), shutdown).await.unwrap();
    });
}

#[test]
fn connections_of_hosts_that_know_nothing_use_the_detour_and_nothing_is_dropped() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(100);
    let plain = net.transfer(10_000_000, true, false);
    for over in [Over::Udp, Over::Ethernet, Over::Tcp] {
        let _routers = net.routers(over, "");
        for v6 in [true, false] {
            for back in [false, true] {
                let took = net.transfer(10_000_000, v6, back);
                println!("{over:?} v6 {v6} back {back}: {took:?}, without {plain:?}");
                assert!(took < plain * 8 / 10, "{over:?} {v6} {back}: {took:?} for {plain:?}");
            }
        }
        for node in [&net.a, &net.b, &net.c] {
            let status = net.status(node).unwrap();
            assert!(status.ports.iter().all(|port| port.dropped == 0), "{status:?}");
        }
        let status = net.status(&net.a).unwrap();
        assert!(status.ports.iter().any(|port| port.detoured > 1_000), "{status:?}");
    }
}

#[test]
fn small_caches_limit_connections_so_that_nothing_is_dropped_and_all_have_a_fair_share() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(50);
    let _routers = net.routers_with(|config| config.replace("\"4 MB\"", "\"300 kB\""));
    let streams: Vec<_> = (0..8).map(|number| net.stream(number % 2 == 0, 1_000)).collect();
    thread::sleep(Duration::from_secs(4));
    let status = net.status(&net.a).unwrap();
    let received: Vec<_> = streams.into_iter().map(|stream| stream.end_with_bytes().0 as f64).collect();
    let (sum, squares) =
        received.iter().fold((0.0, 0.0), |(sum, squares), bytes| (sum + bytes, squares + bytes * bytes));
    let jain = sum * sum / (received.len() as f64 * squares);
    println!("Jain {jain:.3}, {:.1} Mbit/s, {:?}", sum * 8.0 / 4e6, status.connections);
    assert!(status.connections.clamped_acks > 100, "{status:?}");
    assert!(status.ports.iter().all(|port| port.dropped == 0 && port.peak_bytes <= 300_000), "{status:?}");
    assert!(jain > 0.9 && sum * 8.0 / 4e6 > 70.0, "{jain}: {received:?}");
}

#[test]
fn connections_older_than_the_router_are_slowed_by_the_spacing_of_their_acks() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(50);
    net.widen();
    let streams = [net.stream(true, 1_000), net.stream(false, 1_000)];
    thread::sleep(Duration::from_millis(300));
    let _routers = net.routers(Over::Udp, "");
    thread::sleep(Duration::from_secs(3));
    let status = net.status(&net.a).unwrap();
    let gaps = streams.map(net::Stream::end);
    println!(
        "{gaps:?} {:?} peak {:?}",
        status.connections,
        status.ports.iter().map(|port| (port.peak_bytes, port.dropped)).collect::<Vec<_>>()
    );
    assert!(status.connections.tracked >= 2 && status.connections.spaced_acks > 100, "{status:?}");
}

#[test]
fn while_nothing_waits_packets_stay_in_the_kernel_if_that_is_wished() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(50);
    let _routers = net.routers(Over::Udp, "idle = \"pass\"");
    let quiet = net.stream(true, 5);
    thread::sleep(Duration::from_millis(700));
    let mode = |node| net.status(node).unwrap().mode;
    assert_eq!(mode(&net.a), sidestep_inrpp::daemon::Mode::Pass);
    let before = net.status(&net.a).unwrap();
    thread::sleep(Duration::from_millis(500));
    let after = net.status(&net.a).unwrap();
    let diverted = |status: &sidestep_inrpp::daemon::InrppStatus| {
        status.ports.iter().map(|port| port.passed.diverted).sum::<u64>()
    };
    assert_eq!(diverted(&before), diverted(&after), "nothing is diverted at rest");
    let loud = net.stream(true, 1_000);
    thread::sleep(Duration::from_secs(2));
    let status = net.status(&net.a).unwrap();
    assert_eq!(status.mode, sidestep_inrpp::daemon::Mode::Divert);
    assert!(status.ports.iter().any(|port| port.detoured > 500), "{status:?}");
    assert_eq!(status.connections.unscaled, 0, "their SYNs were diverted all the same: {status:?}");
    for stream in [quiet, loud] {
        println!("longest silence {:?}", stream.end());
    }
    net::eventually("packets pass again", || mode(&net.a) == sidestep_inrpp::daemon::Mode::Pass);
}

#[test]
fn a_rate_that_is_not_given_follows_what_the_neighbour_receives() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(40);
    let rate = format!("\"{} kbit/s\"", 40 * 985);
    let mut routers = net.routers_with(|config| config.replace(&rate, "\"auto\""));
    let rate = || net.status(&net.a).unwrap().ports[0].rate_mbps;
    let first = rate();
    let least_rate = || {
        let each = (0..20).map(|_| {
            thread::sleep(Duration::from_millis(50));
            rate()
        });
        each.fold(f64::INFINITY, f64::min)
    };
    let (began, stream) = (std::time::Instant::now(), net.stream(true, 1_000));
    thread::sleep(Duration::from_secs(4));
    let then = rate();
    // What a successor counts goes on from where it was, and what it has found is known.
    routers[1] = net.take_over(&net.b, &mut routers[1]);
    let least = least_rate();
    routers[0] = net.take_over(&net.a, &mut routers[0]);
    let again = rate();
    let took = began.elapsed().as_secs_f64();
    let (bytes, gap) = stream.end_with_bytes();
    let mbits = bytes as f64 * 8.0 / took / 1e6;
    println!(
        "{first} Mbit/s, then {then:.1}, {least:.1} and {again:.1}; {mbits:.1} Mbit/s carried, longest silence {gap:?}"
    );
    // Beside it the detour carries, whose rate is found likewise.
    assert!(first >= 1_000.0 && (20.0..60.0).contains(&then), "{first}, then {then}");
    assert!((20.0..60.0).contains(&least) && (20.0..60.0).contains(&again), "{least}, then {again}");
    assert!(mbits > 25.0, "{bytes}");
}

#[test]
fn where_no_programs_are_allowed_routes_lead_into_the_devices() {
    if !root_or_skip("routers") {
        return;
    }
    let net = Net::new(50);
    let change = |config: String| {
        config.replace("cache = \"4 MB\"", "cache = \"300 kB\"").replacen("[inrpp]", "[inrpp]\ndivert = \"routes\"", 1)
    };
    let mut routers = net.routers_with(change);
    let shown = |node: &NetNs, words: &str| {
        let run = || Ok(std::process::Command::new("sh").args(["-c", words]).output().unwrap().stdout);
        String::from_utf8(node.run(run).unwrap()).unwrap()
    };
    let rules = |node: &NetNs| shown(node, "ip rule; ip -6 rule").matches("lookup 8583").count();
    // A rule for each of a router's interfaces, but for the edge's device.
    net::eventually("rules", || rules(&net.a) >= 10 && rules(&net.b) >= 10 && rules(&net.c) >= 8);
    net::eventually("routes", || shown(&net.a, "ip route show table 8583").contains("10.2.0.0/16 dev inrpp-to-b"));
    assert_eq!(shown(&net.a, "tc filter show dev to-b egress"), "");
    let sent = |at: usize| net.status(&net.a).unwrap().ports[at].sent_packets;
    for (v6, back) in [(false, false), (true, false), (false, true), (true, true)] {
        let before = sent(0) + sent(1);
        net.transfer(2_000_000, v6, back);
        let packets = sent(0) + sent(1) - before;
        assert!(packets > if back { 20 } else { 1_000 }, "{v6} {back}: {packets}");
    }
    let stream = net.stream(true, 1_000);
    thread::sleep(Duration::from_millis(1_500));
    let status = net.status(&net.a).unwrap();
    assert!(status.ports[0].detoured > 500 && status.connections.clamped_acks > 20, "{status:?}");
    assert_eq!(status.ports.iter().map(|port| port.dropped).sum::<u64>(), 0, "{status:?}");
    // What the router itself sends goes as the kernel sends it.
    let (before, port) = (sent(1), net.h2.run(|| Ok(std::net::TcpListener::bind("10.2.0.2:0").unwrap())).unwrap());
    let address = port.local_addr().unwrap();
    net.a.run(|| Ok(std::net::TcpStream::connect_timeout(&address, net::PATIENCE).unwrap())).unwrap();
    // Another route of the main table: another device.
    net.lead_over_c();
    net::eventually("routes", || shown(&net.a, "ip route show table 8583").contains("10.2.0.0/16 dev inrpp-to-c"));
    net.transfer(2_000_000, false, false);
    assert!(sent(1) - before > 1_000);
    // With the devices the routes go: the kernel forwards.
    routers[0].kill();
    net.transfer(2_000_000, false, false);
    assert_eq!(shown(&net.a, "ip route show table 8583 | grep inrpp"), "");
    let gap = stream.end();
    assert!(gap < Duration::from_secs(5), "{gap:?}");
    routers[1].end();
    assert_eq!((rules(&net.b), shown(&net.b, "ip route show table 8583").as_str()), (0, ""));
}
