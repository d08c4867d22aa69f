use std::{net::UdpSocket, process::Command, thread, time::Duration};

use sidestep_linux::{
    monotonic_now, netlink,
    netns::{NetNs, set_sysctl},
    testing::{cable, eventually, ip, root_or_skip},
    tun::{MAX_READ, Tun},
};

use sidestep_net::Rate;

use super::*;
use crate::daemon::config::MAX_PORTS;

/// A classifier of others that matches nothing.
const FOREIGN: &str = "protocol all bpf bytecode 1,6_0_0_0,";

#[test]
fn the_verifier_has_room_to_spare() {
    if !root_or_skip("loading the programs that divert") {
        return;
    }
    let loaded = Filters::load().unwrap();
    let places = |name| loaded.map(name).unwrap().max_entries() as usize;
    assert!(
        ["sidestep_ports", "sidestep_counts", "sidestep_edges"]
            .map(places)
            .iter()
            .all(|places| *places >= 2 * MAX_PORTS)
    );
    let ours = |name: &[u8]| [Place::Divert, Place::Emit].iter().any(|place| name == place.program().as_bytes());
    let programs = libbpf_rs::query::ProgInfoIter::default().filter(|one| ours(one.name.as_encoded_bytes()));
    let verified = programs.map(|program| program.verified_insns).max().unwrap();
    println!("the verifier walked {verified} instructions");
    assert!((1..20_000).contains(&verified), "{verified}");
}

#[test]
fn a_new_program_takes_the_place_of_the_last_and_nothing_of_others_is_touched() {
    if !root_or_skip("attaching the programs that divert") {
        return;
    }
    let tc = |arguments: &str| {
        let words = arguments.split(' ').map(|word| word.replace('_', " "));
        let output = Command::new("tc").args(words).output().expect("iproute2 is installed");
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let work = || {
        netlink::block_on(async |netlink| {
            netlink.add_veth("a", "b").await?;
            let interfaces = netlink.interfaces().await?;
            let a = interfaces.iter().find(|one| one.name == "a").unwrap();
            tc("qdisc add dev a clsact");
            tc(&format!("filter add dev a egress prio 7 {FOREIGN}"));
            let foreign = tc("filter show dev a egress");
            for _ in 0..2 {
                let divert = Filters::load()?;
                divert.attach(netlink, a).await?;
                assert!(divert.programs().divert(netlink, a.index).await?);
                assert_eq!(netlink.egress_filters(a.index).await?.len(), 2, "the last one was replaced");
            }
            let other = Filters::load()?;
            assert!(!other.programs().divert(netlink, a.index).await?, "another's program is not this one");
            let tun = Tun::create("inrpp-a", 1_500, 10)?;
            other.attach_reinject(netlink, tun.index(), a.index).await?;
            assert!(remove_all(netlink).await? && !remove_all(netlink).await?);
            assert_eq!(tc("filter show dev a egress"), foreign);
            assert_eq!(netlink.ingress_filters(tun.index()).await?, []);

            // A filter of another program in our place stays, and is named.
            tc(&format!("filter add dev a egress prio 85 handle 0x5357 {FOREIGN}"));
            let refused = other.attach(netlink, a).await.unwrap_err().to_string();
            assert!(refused.contains("of somebody else has priority 85 and handle 0x5357"), "{refused}");
            assert!(!remove(netlink, a.index).await?);
            Ok(())
        })
    };
    NetNs::create().and_then(|namespace| namespace.run(work)).unwrap();
}

#[test]
fn counts_begin_at_zero_and_go_with_the_port() {
    if !root_or_skip("loading the programs that divert") {
        return;
    }
    let divert = Filters::load().unwrap();
    let entry = PortEntry {
        tun: 9,
        up: true,
        edge: true,
        tcp_only: true,
        ethernet: true,
        max_len: 1_400,
        rate: Rate::from_mbits(1),
    };
    assert_eq!(divert.counts(7).unwrap(), DivertCounts::default());
    divert.set_port(7, &entry).unwrap();
    divert.set_port(7, &PortEntry { up: false, ..entry }).unwrap();
    assert_eq!(divert.counts(7).unwrap(), DivertCounts::default());
    divert.remove_port(7, 8).unwrap();
    divert.remove_port(7, 8).unwrap();
    assert_eq!(divert.mode(), Mode::Divert);
    divert.set_mode(Mode::PassIdle);
    assert_eq!(divert.mode(), Mode::PassIdle);
}

/// `a` – `r` – `b`, and a router at `r` that diverts what goes to `b`.
struct Bench {
    nodes: [NetNs; 3],
    divert: Filters,
    tun: Tun,
    towards: u32,
}

impl Bench {
    fn new() -> Self {
        let nodes = [(); 3].map(|()| NetNs::create().unwrap());
        let [a, r, b] = &nodes;
        r.run(|| set_sysctl("ipv4/ip_forward", "1")).unwrap();
        cable((a, "host"), (r, "to-a"), "10.1.0", "fd01:0:0:1");
        cable((b, "host"), (r, "to-b"), "10.2.0", "fd02:0:0:2");
        ip(a, "route add default via 10.1.0.2");
        ip(b, "route add default via 10.2.0.2");
        let make = || {
            let (divert, tun) = (Filters::load()?, Tun::create("inrpp-b", 1_500, 1_000)?);
            let towards = netlink::block_on(async |netlink| {
                let all = netlink.interfaces().await?;
                let b = all.iter().find(|one| one.name == "to-b").unwrap();
                divert.attach(netlink, b).await?;
                Ok(b.index)
            })?;
            Ok((divert, tun, towards))
        };
        let (divert, tun, towards) = r.run(make).unwrap();
        Bench { nodes, divert, tun, towards }
    }

    fn entry(&self) -> PortEntry {
        let rate = Rate::from_mbits(10);
        PortEntry { tun: self.tun.index(), up: true, edge: true, tcp_only: false, ethernet: true, max_len: 1_500, rate }
    }

    /// Sends UDP datagrams from a node to `b`; returns what has become of them.
    fn send(&self, from: usize, payload: usize, count: usize) -> DivertCounts {
        self.divert.beat(monotonic_now());
        let before = self.divert.counts(self.towards).unwrap();
        let socket = self.nodes[from].run(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
        for _ in 0..count {
            socket.send_to(&vec![0; payload], "10.2.0.1:9").unwrap();
        }
        let sum = |of: &DivertCounts| of.diverted + of.down + of.stale + of.own + of.oversize + of.not_tcp + of.idle;
        // On a busy machine the kernel forwards a little later.
        let begin = std::time::Instant::now();
        let mut now = self.divert.counts(self.towards).unwrap();
        while sum(&now) < sum(&before) + count as u64 && begin.elapsed() < Duration::from_millis(50) {
            now = self.divert.counts(self.towards).unwrap();
        }
        while self.tun.read(&mut vec![0; MAX_READ]).is_ok() {}
        DivertCounts {
            diverted: now.diverted - before.diverted,
            down: now.down - before.down,
            stale: now.stale - before.stale,
            // Without those that the router sends by itself.
            own: if from == 1 { now.own - before.own } else { 0 },
            other: now.other - before.other,
            oversize: now.oversize - before.oversize,
            not_tcp: now.not_tcp - before.not_tcp,
            idle: now.idle - before.idle,
            bytes: now.bytes - before.bytes,
        }
    }
}

#[test]
fn each_packet_is_diverted_or_passes_for_a_reason_that_is_counted() {
    if !root_or_skip("diverting packets") {
        return;
    }
    let bench = Bench::new();
    let none = DivertCounts::default();
    assert_eq!(bench.send(0, 100, 3), none, "a port that is not known");
    bench.divert.set_port(bench.towards, &bench.entry()).unwrap();
    // Addresses of neighbours are asked for first.
    bench.send(0, 100, 1);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(bench.send(0, 100, 3), DivertCounts { diverted: 3, bytes: 384, ..none });
    assert!(bench.send(1, 100, 3).own >= 3, "the router's own");
    bench.divert.set_port(bench.towards, &PortEntry { max_len: 127, ..bench.entry() }).unwrap();
    assert_eq!(bench.send(0, 100, 3), DivertCounts { oversize: 3, ..none });
    bench.divert.set_port(bench.towards, &PortEntry { max_len: 128, ..bench.entry() }).unwrap();
    assert_eq!(bench.send(0, 100, 3).diverted, 3);
    bench.divert.set_port(bench.towards, &PortEntry { tcp_only: true, ..bench.entry() }).unwrap();
    assert_eq!(bench.send(0, 100, 3), DivertCounts { not_tcp: 3, ..none });
    bench.divert.set_port(bench.towards, &PortEntry { up: false, ..bench.entry() }).unwrap();
    assert_eq!(bench.send(0, 100, 3), DivertCounts { down: 3, ..none });
    bench.divert.set_port(bench.towards, &bench.entry()).unwrap();
    bench.divert.stop();
    let socket = bench.nodes[0].run(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
    socket.send_to(&[0; 100], "10.2.0.1:9").unwrap();
    let stale = || (bench.divert.counts(bench.towards).unwrap().stale == 1).then_some(());
    eventually("a packet that passes", Duration::from_secs(2), stale);
}

#[test]
fn an_idle_router_passes_what_is_below_the_rate_and_the_first_busy_link_makes_it_divert() {
    if !root_or_skip("diverting packets") {
        return;
    }
    let bench = Bench::new();
    bench.divert.set_port(bench.towards, &bench.entry()).unwrap();
    bench.send(0, 100, 1);
    thread::sleep(Duration::from_millis(50));
    bench.divert.set_mode(Mode::PassIdle);
    // At 10 Mbit/s 3,000 bytes may wait: one packet of 1,000 bytes in 2 ms is below the rate.
    for _ in 0..20 {
        let counts = bench.send(0, 1_000, 1);
        assert_eq!((counts.idle, counts.diverted), (1, 0));
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(bench.divert.mode(), Mode::PassIdle);
    // A SYN is seen, and changes nothing.
    let connect = || {
        let address = "10.2.0.1:9".parse().unwrap();
        Ok(std::net::TcpStream::connect_timeout(&address, Duration::from_millis(20)).is_err())
    };
    let before = bench.divert.counts(bench.towards).unwrap().diverted;
    bench.divert.beat(monotonic_now());
    assert!(bench.nodes[0].run(connect).unwrap());
    assert_eq!(bench.divert.counts(bench.towards).unwrap().diverted, before + 1);
    assert_eq!(bench.divert.mode(), Mode::PassIdle);
    let counts = bench.send(0, 1_000, 40);
    assert!((2..20).contains(&counts.idle) && counts.idle + counts.diverted == 40, "{counts:?}");
    assert_eq!(bench.divert.mode(), Mode::Divert);
    // A port without a rate never makes the router divert.
    bench.divert.set_mode(Mode::PassIdle);
    bench.divert.set_port(bench.towards, &PortEntry { rate: Rate::default(), ..bench.entry() }).unwrap();
    assert_eq!(bench.send(0, 1_000, 40).idle, 40);
}
