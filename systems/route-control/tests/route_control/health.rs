//! Health of each egress and family, from all evidence: a family that dies alone, answers that come late or by another egress, and
//! traffic that accuses.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sidestep_linux::{netns::NetNs, testing::root_or_skip};
use sidestep_route_control::daemon::FamilyStatus;

use super::net::{Ending, Net, eventually, file, ip, nft};

/// The file with two targets of IPv4 and one of IPv6, as in the manual's example.
fn both_families() -> String {
    file("").replace("address = \"10.3.0.3\"", "address = \"fd03::1\"")
}

fn family(net: &Net, name: &str) -> FamilyStatus {
    net.status().families.into_iter().find(|one| one.family == name).expect("the family")
}

fn until_active(net: &Net, name: &str, egress: &str) {
    eventually(&format!("{egress} for {name}"), || (family(net, name).active == egress).then_some(()));
}

fn decisions(net: &Net, count: u64) {
    let decided = net.status().decided;
    eventually("decisions", || (net.status().decided > decided + count).then_some(()));
}

/// OPNsense #8064.
#[test]
fn a_family_that_dies_behind_the_primary_leaves_it_alone_and_stays_there_over_a_restart() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let control = net.control(&both_families());
    net.until_fine();
    for half in ["fd02::/16", "fd03::/16"] {
        ip(&net.transit[0], &format!("-6 route add blackhole {half} metric 10"));
    }
    until_active(&net, "IPv6", "second");
    let status = net.status();
    assert_eq!(
        (status.active.as_str(), family(&net, "IPv4").active.as_str()),
        ("first (IPv4), second (IPv6)", "first")
    );
    assert_eq!(status.egresses[0].seen.health, "fine (IPv4), dead (IPv6)");
    let routes = || (ip(&net.edge, "route show table 8562"), ip(&net.edge, "-6 route show table 8562"));
    assert!(routes().0.contains("default via 10.9.0.2 dev p0"), "{}", routes().0);
    assert!(routes().1.contains("default via fd09:0:0:1::2 dev p1"), "{}", routes().1);
    net.flow("10.2.0.1".parse().unwrap()).goes_on();
    control.end(Ending::Killed).unwrap();
    let _control = net.control(&both_families());
    assert_eq!(net.status().active, "first (IPv4), second (IPv6)", "the next daemon begins with what is in use");
    decisions(&net, 4);
    for half in ["fd02::/16", "fd03::/16"] {
        ip(&net.transit[0], &format!("-6 route del blackhole {half} metric 10"));
    }
    until_active(&net, "IPv6", "first");
    assert_eq!(net.status().active, "first");
}

#[test]
fn a_family_without_targets_follows_the_other_as_far_as_an_egress_carries_it() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    // The second has no IPv6.
    let _control = net.control(&file("").replace("\"10.9.1.2\", \"fd09:0:0:1::2\"", "\"10.9.1.2\""));
    net.until_fine();
    let six = family(&net, "IPv6");
    assert!(!six.probed && six.egresses.len() == 1 && six.egresses[0].seen.health == "not probed", "{six:?}");
    net.cut(0, true);
    until_active(&net, "IPv4", "second");
    assert_eq!(family(&net, "IPv6").active, "first");
    assert!(ip(&net.edge, "-6 route show table 8562").contains("default via fd09::2 dev p0"));
}

/// An echo service at the targets: an answer by the first egress takes `millis` milliseconds.
struct Slow {
    millis: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Slow {
    fn serve(net: &Net) -> Slow {
        let slow = Slow { millis: Arc::new(AtomicU64::new(0)), ends: Arc::new(AtomicBool::new(false)) };
        for last in 1..=3 {
            let socket = net.world.run(|| Ok(UdpSocket::bind(format!("10.3.0.{last}:7")).unwrap())).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let (millis, ends) = (slow.millis.clone(), slow.ends.clone());
            thread::spawn(move || {
                let (mut queue, mut buffer) = (Vec::<(Instant, SocketAddr, Vec<u8>)>::new(), [0; 2_000]);
                while !ends.load(Ordering::Relaxed) {
                    match socket.recv_from(&mut buffer) {
                        Ok((length, from)) => {
                            let is_first = from.ip() == "10.9.0.1".parse::<IpAddr>().unwrap();
                            let wait = if is_first { millis.load(Ordering::Relaxed) } else { 0 };
                            queue.push((Instant::now() + Duration::from_millis(wait), from, buffer[..length].to_vec()));
                        }
                        Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
                    }
                    queue.retain(|(due, from, bytes)| {
                        let is_due = *due <= Instant::now();
                        if is_due {
                            socket.send_to(bytes, from).unwrap();
                        }
                        !is_due
                    });
                }
            });
        }
        slow
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn answers_that_come_later_than_the_shortest_timeout_are_no_losses_and_a_slow_egress_that_dies_is_left() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let slow = Slow::serve(&net);
    // The shortest timeout of the file is 200 ms.
    slow.millis.store(640, Ordering::Relaxed);
    let _control = net.control(&file("").replace("rate = 10", "rate = 10\nkind = \"udp\""));
    net.until_fine();
    eventually("the round trip", || (net.status().egresses[0].seen.rtt_ms > Some(600.0)).then_some(()));
    decisions(&net, 12);
    let status = net.status();
    assert_eq!((status.active.as_str(), status.egresses[0].seen.health.as_str()), ("first", "fine"), "{status:?}");
    assert!(!status.moved.contains_key("dead") && status.egresses[0].seen.loss < 0.1, "{status:?}");
    net.cut(0, true);
    net.until_active("second");
}

/// A site with a prefix of its own, of which all answers come back by the first provider.
#[test]
fn an_egress_whose_answers_come_back_by_the_other_is_measured_as_it_is() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    ip(&net.world, "route replace 10.9.1.0/24 via 10.8.0.1");
    ip(&net.transit[0], "route add 10.9.1.0/24 via 10.9.0.1");
    let _control = net.control(&file(""));
    net.until_fine();
    net.cut(1, true);
    eventually("a dead second", || (net.status().egresses[1].seen.health == "dead").then_some(()));
    assert_eq!(net.status().egresses[0].seen.health, "fine");
}

/// Connections that hosts begin again and again, as browsers do.
struct Visitors(Arc<AtomicBool>);

impl Visitors {
    fn come(net: &Net, to: &'static str) -> Visitors {
        let ends = Arc::new(AtomicBool::new(false));
        for _ in 0..4 {
            let ends = ends.clone();
            let host = net.host.run(NetNs::current).unwrap();
            thread::spawn(move || {
                host.enter().unwrap();
                while !ends.load(Ordering::Relaxed) {
                    let wait = Duration::from_millis(2_500);
                    let to = to.parse().unwrap();
                    if let Ok(mut stream) = TcpStream::connect_timeout(&to, wait) {
                        let _ = stream.write_all(b"hello");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            });
        }
        Visitors(ends)
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn serve(net: &Net, at: &str) {
    let listener = net.world.run(|| Ok(TcpListener::bind(at).unwrap())).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                while stream.read(&mut [0; 100]).is_ok_and(|length| length > 0) {}
            });
        }
    });
}

/// Answers all pings itself, and forwards nothing; or no longer.
fn portal(net: &Net, there: bool) {
    let rules = "add table ip portal; add chain ip portal pre { type nat hook prerouting priority -100; }; \
                 add rule ip portal pre iifname site icmp type echo-request dnat to 10.9.0.2; \
                 add chain ip portal forward { type filter hook forward priority 0; }; \
                 add rule ip portal forward iifname site drop";
    nft(&net.transit[0], if there { rules } else { "delete table ip portal" });
}

#[test]
fn a_portal_that_answers_pings_and_forwards_nothing_is_left_and_used_again_when_it_opens() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    serve(&net, "10.2.0.1:443");
    let _control = net.control(&file("passive = true"));
    net.until_fine();
    let _visitors = Visitors::come(&net, "10.2.0.1:443");
    decisions(&net, 4);
    assert_eq!(net.status().moved.len(), 0);
    portal(&net, true);
    net.until_active("second");
    let status = net.status();
    assert_eq!(status.egresses[0].seen.health, "forwards-nothing", "{status:?}");
    let moved = status.decisions.iter().rfind(|one| one.from != one.to).unwrap();
    assert_eq!(
        (moved.reason.as_str(), moved.inputs["first"].lost),
        ("forwards-nothing", 0.0),
        "its probes are answered"
    );
    portal(&net, false);
    net.until_active("first");
}

#[test]
fn a_server_that_is_dead_by_all_egresses_accuses_none() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    ip(&net.world, "route add blackhole 10.2.0.9/32");
    let _control = net.control(&file("passive = true"));
    net.until_fine();
    let _visitors = Visitors::come(&net, "10.2.0.9:443");
    let begin = Instant::now();
    // A trial begins within two seconds and takes three and a half.
    while begin.elapsed() < Duration::from_secs(10) {
        decisions(&net, 2);
        let status = net.status();
        assert_eq!((status.active.as_str(), status.moved.len()), ("first", 0), "{status:?}");
    }
    assert_eq!(net.status().egresses[0].seen.health, "fine");
}
