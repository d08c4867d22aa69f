//! Edge daemons at work: real connections between two sites over four paths, in namespaces.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

#[path = "../../../../crates/hostd/tests/support/daemon.rs"]
mod daemon;
mod gro;
mod kinds;
mod mending;
mod missing;
mod net;
mod offload;
mod probes;
mod seeds;
mod subflows;
#[path = "../../../mptcp/tests/path_manager/support.rs"]
#[expect(dead_code, reason = "the path manager's own tests use the rest")]
mod support;
mod table;
mod throughput;
mod traffic;

use std::{
    collections::BTreeSet,
    hash::Hasher,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket},
};
use sidestep_hostd::AgentError;
use sidestep_linux::{netns::NetNs, testing::root_or_skip};
use sidestep_semper::daemon::{EdgeAgreement, EdgeConfig, EdgeOptions, stop_edge};

use self::net::{Ending, Ip, Net, PATHS, PATIENCE, PORT, config, eventually, ip, try_ip, tuple};

#[test]
fn both_directions_of_a_connection_take_the_path_that_both_edges_name_and_all_paths_are_used() {
    if !root_or_skip("edges") {
        return;
    }
    let net = Net::new();
    let mut used = BTreeSet::new();
    for mode in ["modulo", "rendezvous", "weighted"] {
        let file = |near| {
            let rate = if mode == "weighted" { "\", rate = \"100 Mbit/s\" }" } else { "\" }" };
            config(near, &format!("mode = \"{mode}\"")).replace("\" }", rate)
        };
        let (_e1, _e2) = (net.edge(&net.e1, &file(true)), net.edge(&net.e2, &file(false)));
        let status = [net.status(&net.e1), net.status(&net.e2)];
        for version in [Ip::V4, Ip::V6] {
            let listener = net.listen(version);
            for _ in 0..12 {
                let mut both = net.connect(version, &listener);
                let paths = net.paths_of(&mut both);
                let flow = tuple("tcp", both.0.local_addr().unwrap(), both.0.peer_addr().unwrap());
                let named = status.each_ref().map(|status| status.place(&flow).unwrap().unwrap().position);
                assert_eq!(paths, named, "{flow:?}");
                assert_eq!(paths[0], paths[1], "forward is reverse");
                used.insert(paths[0]);
            }
        }
        let now = net.status(&net.e1);
        assert!(now.packets["balanced"] > 100 && now.packets["unrouted"] == 0, "{now:?}");
    }
    assert_eq!(used.len(), PATHS);
    for edge in [&net.e1, &net.e2] {
        assert_nothing_is_left(edge);
    }
}

fn assert_nothing_is_left(edge: &NetNs) {
    for version in ["-4", "-6"] {
        let rules = ip(edge, &format!("{version} rule"));
        assert!(!rules.contains("lookup 84"), "{rules}");
        assert_eq!(ip(edge, &format!("{version} route show table all proto 83")), "");
    }
    let links = ip(edge, "-o link");
    for link in links.lines().filter_map(|line| line.split([':', '@']).nth(1)) {
        assert_eq!(ip(edge, &format!("tc filter show dev {} ingress", link.trim())), "");
    }
}

/// Opens `count` connections at once; returns how many are not established within `patience`.
fn open_many(net: &Net, count: usize, patience: Duration) -> usize {
    let listener = net.b.run(|| Ok(many_listener())).unwrap();
    let open = || {
        let address = SockaddrIn::new(10, 2, 0, 1, PORT);
        let sockets: Vec<_> = (0..count)
            .map(|_| {
                let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
                let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
                let _ = connect(socket.as_raw_fd(), &address);
                socket
            })
            .collect();
        let deadline = Instant::now() + patience;
        let mut waiting: Vec<_> = sockets.iter().collect();
        while !waiting.is_empty() && Instant::now() < deadline {
            let mut polled: Vec<_> = waiting
                .iter()
                .map(|socket| PollFd::new(std::os::fd::AsFd::as_fd(*socket), PollFlags::POLLOUT))
                .collect();
            poll(&mut polled, PollTimeout::from(50_u16)).unwrap();
            let still: Vec<bool> = polled.iter().map(|fd| fd.revents() != Some(PollFlags::POLLOUT)).collect();
            drop(polled);
            let mut still = still.into_iter();
            waiting.retain(|_| still.next().unwrap_or(false));
        }
        Ok(waiting.len())
    };
    let failed = net.a.run(open).unwrap();
    drop(listener);
    failed
}

/// A listener whose queue holds thousands of connections that no process accepts.
fn many_listener() -> std::os::fd::OwnedFd {
    use nix::sys::socket::{Backlog, bind, listen};
    sidestep_linux::netns::set_sysctl("core/somaxconn", "8192").unwrap();
    sidestep_linux::netns::set_sysctl("ipv4/tcp_max_syn_backlog", "8192").unwrap();
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReuseAddr, &true).unwrap();
    bind(socket.as_raw_fd(), &SockaddrIn::new(10, 2, 0, 1, PORT)).unwrap();
    listen(&socket, Backlog::new(4096).unwrap()).unwrap();
    socket
}

#[test]
fn of_a_thousand_new_connections_none_fails_on_a_dead_path_and_a_quarter_hangs_without_health_or_on_a_silent_one() {
    if !root_or_skip("a dead path") {
        return;
    }
    let net = Net::new();
    let compared =
        |listen: &str, peer: &str| format!("listen = \"10.9.0.{listen}:8400\"\npeer = \"10.9.0.{peer}:8400\"");
    let start = |health: &str| {
        let more = |listen, peer| format!("health = \"{health}\"\n{}", compared(listen, peer));
        let edges =
            (net.edge(&net.e1, &config(true, &more("1", "2"))), net.edge(&net.e2, &config(false, &more("2", "1"))));
        for edge in [&net.e1, &net.e2] {
            eventually("agreement", || (net.status(edge).peer == Some(EdgeAgreement::Agrees)).then_some(()));
        }
        edges
    };
    // One direction of a path dies where only one edge can know it: that edge loses the carrier, the other reports nothing.
    let blind = start("off");
    ip(&net.e1, "link set p2 down");
    ip(&net.e1, "link set p2 up");
    ip(&net.e2, "link set p2 down");
    eventually("no carrier", || ip(&net.e1, "link show p2").contains("NO-CARRIER").then_some(()));
    let hung = open_many(&net, 1_000, Duration::from_millis(700));
    println!("without health {hung} of 1,000 new connections hang");
    assert!((180..320).contains(&hung), "{hung}");
    drop(blind);

    let _edges = start("carrier");
    let status = eventually("a dead path", || {
        let status = net.status(&net.e1);
        (!status.destinations[0].paths[2].live).then_some(status)
    });
    assert_eq!(status.destinations[0].paths[2].why.as_deref(), Some("its interface is down or has no carrier"));
    assert_eq!(open_many(&net, 1_000, PATIENCE), 0, "with health no connection fails");

    // Survivors' flows stay when the path comes back, and those of the dead path return.
    ip(&net.e2, "link set p2 up");
    let back = eventually("a path that is back", || {
        let now = [&net.e1, &net.e2].map(|edge| net.status(edge));
        now.iter().all(|status| status.destinations[0].paths[2].live).then_some(now)
    });
    let mut moved = 0;
    for port in 1..1000 {
        let flow = tuple("tcp", SocketAddr::new(Ip::V4.at_a(), port), SocketAddr::new(Ip::V4.at_b(), 443));
        let place = |status: &sidestep_semper::daemon::EdgeStatus| status.place(&flow).unwrap().unwrap().position;
        let (without, with) = (place(&status), place(&back[0]));
        assert!(without == with || with == 2, "only flows of the dead path move");
        assert_eq!(with, place(&back[1]));
        moved += usize::from(without != with);
    }
    assert!((200..300).contains(&moved), "{moved}");

    // A path that has carrier and swallows packets is not noticed by that.
    ip(&net.e2, "rule add blackhole iif p2 priority 1");
    let hung = open_many(&net, 1_000, Duration::from_millis(700));
    println!("with a silent path {hung} of 1,000 new connections hang");
    assert!((180..320).contains(&hung), "{hung}");
    for edge in [&net.e1, &net.e2] {
        assert!(net.status(edge).destinations[0].paths[2].live);
    }
}

/// Sends numbered bytes for as long as `work` takes; the checksum of what arrives must be that of what was sent.
fn transfer<T>(both: (TcpStream, TcpStream), work: impl FnOnce() -> T) -> (T, u64) {
    let (mut client, mut server) = both;
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let sender = thread::spawn(move || {
        let (mut sum, mut number) = (std::hash::DefaultHasher::new(), 0_u64);
        while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            let chunk: Vec<u8> = (0..4096_u64).flat_map(|word| (number + word).to_le_bytes()).collect();
            number += 4096;
            sum.write(&chunk);
            client.write_all(&chunk).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        client.shutdown(std::net::Shutdown::Write).unwrap();
        sum.finish()
    });
    let receiver = thread::spawn(move || {
        let (mut sum, mut chunk, mut bytes) = (std::hash::DefaultHasher::new(), vec![0; 32_768], 0);
        while server.read_exact(&mut chunk).is_ok() {
            sum.write(&chunk);
            bytes += chunk.len() as u64;
        }
        (sum.finish(), bytes)
    });
    let result = work();
    drop(stop);
    let (sent, (received, bytes)) = (sender.join().unwrap(), receiver.join().unwrap());
    assert_eq!(sent, received, "after {bytes} bytes");
    (result, bytes)
}

#[test]
fn transfers_outlive_kills_restarts_a_vanished_interface_and_hands_of_others() {
    if !root_or_skip("edges that are killed") {
        return;
    }
    let net = Net::new();
    let mut e1 = Some(net.edge(&net.e1, &config(true, "")));
    let _e2 = net.edge(&net.e2, &config(false, ""));
    let listener = net.listen(Ip::V4);
    // One of its connections is on the path whose interface will go.
    let on = |path: usize| loop {
        let both = net.connect(Ip::V4, &listener);
        let flow = tuple("tcp", both.0.local_addr().unwrap(), both.0.peer_addr().unwrap());
        if net.status(&net.e1).place(&flow).unwrap().unwrap().position == path {
            return both;
        }
    };
    let rule = "from all fwmark 0x2000000/0x3f000000 iif in lookup 8402 proto 83";
    let ((), bytes) = transfer(on(3), || {
        for ending in [Ending::Killed, Ending::Keep] {
            e1.take().unwrap().end(ending).unwrap();
            // Packets go on along their paths while no daemon runs, and while the next one takes over.
            let before = net.sent(&net.e1)[3];
            eventually("bytes without a daemon", || (net.sent(&net.e1)[3] > before + 100_000).then_some(()));
            e1 = Some(net.edge(&net.e1, &config(true, "")));
            assert!(ip(&net.e1, "rule").contains(rule), "{}", ip(&net.e1, "rule"));
            assert_eq!(ip(&net.e1, "tc filter show dev in ingress").matches("handle 0x5354").count(), 1);
        }
        // Others' hands.
        ip(&net.e1, "rule del fwmark 0x2000000/0x3f000000 iif in");
        ip(&net.e1, "route flush table 8402");
        ip(&net.e1, "tc qdisc del dev in clsact");
        // `ip route flush` removes what is put back meanwhile once more, so the number alone does not show what is there.
        let is_there = || {
            let routes = try_ip(&net.e1, "route show table 8402").unwrap_or_default();
            let filters = ip(&net.e1, "tc filter show dev in ingress");
            ip(&net.e1, "rule").contains(rule) && !routes.is_empty() && filters.contains("0x5354")
        };
        eventually("what others removed", || (net.status(&net.e1).mended >= 3 && is_there()).then_some(()));

        // The interface goes, at both ends.
        ip(&net.e1, "link del p3");
        let (_, took) =
            timed(|| eventually("a dead path", || (!net.status(&net.e1).destinations[0].paths[3].live).then_some(())));
        println!("the path was known to be dead {took:?} after its interface had gone");
        let before = net.sent(&net.e1);
        eventually("bytes on other paths", || {
            (net.sent(&net.e1).iter().zip(&before).any(|(now, before)| *now > before + 100_000)).then_some(())
        });
    });
    println!("{bytes} bytes arrived unharmed");
    let status = net.status(&net.e1);
    assert_eq!(status.packets["unrouted"], 0);

    // One more edge is refused; a stop from outside removes everything.
    let (second, _) = net.spawn(&net.e1, &config(true, ""), false);
    assert!(matches!(second.wait(), Err(AgentError::Occupied { kind: "edge" })));
    let stop = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Ok(runtime.block_on(stop_edge(8400, 8400)).unwrap())
    };
    assert!(net.e1.run(stop).unwrap());
    e1.take().unwrap().wait().unwrap();
    assert!(!net.e1.run(stop).unwrap());
    assert!(!ip(&net.e1, "rule").contains("84") && ip(&net.e1, "tc filter show dev in ingress").is_empty());
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

#[test]
fn fragments_stay_together_and_icmp_errors_follow_their_flow() {
    if !root_or_skip("fragments and errors") {
        return;
    }
    let net = Net::new();
    let (_e1, _e2) = (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, "")));
    for version in [Ip::V4, Ip::V6] {
        let receiver = net.b.run(|| Ok(UdpSocket::bind((version.at_b(), PORT)).unwrap())).unwrap();
        let sender = net.a.run(|| Ok(UdpSocket::bind((version.at_a(), 0)).unwrap())).unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let before = (net.status(&net.e1).packets["fragments"], net.sent(&net.e1));
        for _ in 0..10 {
            sender.send_to(&[1; 5_000], (version.at_b(), PORT)).unwrap();
            assert_eq!(receiver.recv(&mut [0; 6_000]).unwrap(), 5_000);
        }
        assert_eq!(net.status(&net.e1).packets["fragments"] - before.0, 40);
        net.busiest(&net.e1, &before.1);

        // No process listens at this port: the error comes back by the path of what it is about.
        for _ in 0..10 {
            let sender = net.a.run(|| Ok(UdpSocket::bind((version.at_a(), 0)).unwrap())).unwrap();
            sender.connect((version.at_b(), 9)).unwrap();
            sender.set_read_timeout(Some(PATIENCE)).unwrap();
            let errors = net.status(&net.e2).packets["icmp_errors"];
            let before = net.status(&net.e2).slots;
            sender.send(&[1]).unwrap();
            assert_eq!(sender.recv(&mut [0; 10]).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
            let status = net.status(&net.e2);
            assert_eq!(status.packets["icmp_errors"], errors + 1);
            let flow = tuple("udp", sender.local_addr().unwrap(), sender.peer_addr().unwrap());
            let place = status.place(&flow).unwrap().unwrap();
            let paths = status.destinations.iter().find(|one| one.prefix == place.prefix).unwrap();
            let slot = u32::from(paths.paths[place.position].slot);
            let packets = |slots: &std::collections::BTreeMap<u32, sidestep_semper::daemon::SlotUsed>| {
                slots.get(&slot).map_or(0, |used| used.packets)
            };
            assert!(packets(&status.slots) > packets(&before), "{place}");
        }
    }
}

#[test]
fn edges_that_differ_say_so_and_a_dry_run_changes_nothing() {
    if !root_or_skip("edges that differ") {
        return;
    }
    let net = Net::new();
    let peers = |listen, peer| format!("listen = \"10.9.0.{listen}:8400\"\npeer = \"10.9.0.{peer}:8400\"");
    let _e1 = net.edge(&net.e1, &config(true, &format!("generation = 2\n{}", peers(1, 2))));
    let other = net.edge(&net.e2, &config(false, &format!("generation = 1\nseed = 9\n{}", peers(2, 1))));
    let agreement = |edge| net.status(edge).peer.unwrap();
    eventually("drift", || (agreement(&net.e1) == EdgeAgreement::NewerHere).then_some(()));
    eventually("drift", || (agreement(&net.e2) == EdgeAgreement::OlderHere).then_some(()));
    drop(other);
    assert!(try_ip(&net.e2, "route show table 8401").is_none_or(|routes| routes.is_empty()));

    let (_dry, is_ready) = net.spawn(&net.e2, &config(false, &peers(2, 1)), true);
    is_ready.recv_timeout(PATIENCE).unwrap();
    eventually("agreement", || (agreement(&net.e1) == EdgeAgreement::Agrees).then_some(()));
    let listener = net.listen(Ip::V6);
    let before = net.sent(&net.e2);
    let mut both = net.connect(Ip::V6, &listener);
    net.talk(&mut both);
    assert_eq!(net.busiest(&net.e2, &before), 0, "the router's own route");
    let status = net.status(&net.e2);
    assert!(status.dry_run && status.packets["balanced"] > 0 && !ip(&net.e2, "rule").contains("8400"), "{status:?}");
}

#[test]
fn filters_that_an_earlier_edge_left_elsewhere_are_removed() {
    if !root_or_skip("filters of an earlier edge") {
        return;
    }
    let net = Net::new();
    let filters = |link: &str| {
        let filters = ip(&net.e1, &format!("tc filter show dev {link} ingress"));
        ["0x5354", "0x5355", "0x5356"].into_iter().filter(|handle| filters.contains(handle)).collect::<Vec<_>>()
    };
    let offload = EdgeOptions {
        config: EdgeConfig::parse(&config(true, "seed = 7")).unwrap(),
        table_base: 8400,
        priority: 8400,
        keep: false,
        offload: true,
        dry_run: false,
    };
    let killed = |edge: (net::Edge, std::sync::mpsc::Receiver<()>)| {
        edge.1.recv_timeout(PATIENCE).unwrap();
        edge.0.end(Ending::Killed).unwrap();
    };
    killed(net.spawn(&net.e1, &config(true, "stateful = true"), false));
    assert_eq!((filters("in"), filters("p0"), filters("p3")), (vec!["0x5354"], vec!["0x5355"], vec!["0x5355"]));
    // A table is not wanted any more, and the site is elsewhere.
    ip(&net.e1, "link add site type veth peer name host");
    killed(net.spawn(&net.e1, &config(true, "").replace("\"in\"", "\"site\""), false));
    assert_eq!((filters("in"), filters("site"), filters("p3")), (vec![], vec!["0x5354"], vec![]));
    if std::path::Path::new("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists() {
        killed(net.spawn_with(&net.e1, offload));
        assert_eq!((filters("in"), filters("site")), (vec!["0x5356"], vec![]));
    }
    let edge = net.edge(&net.e1, &config(true, ""));
    assert_eq!((filters("in"), filters("site")), (vec!["0x5354"], vec![]));
    drop(edge);
    assert_nothing_is_left(&net.e1);
}
