//! The balancer of an edge as the kernel runs it: it marks as the native code does, and leaves alone what is not its own.

use std::net::Ipv6Addr;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_balance::{ALL_LIVE, BalanceMode, Balanced, PathSet};
use sidestep_flow_hash::flow_key;
use sidestep_linux::{
    netlink::{self, Interface, LOOPBACK},
    netns::NetNs,
    testing::root_or_skip,
};
use sidestep_semper::daemon::balancer::{self, Balancer, BalancerConfig, Side, Site};

const MASK: u32 = 0x3f00_0000;
const OTHERS: u32 = 0xc012_3456;
const CONFIG: BalancerConfig = BalancerConfig { mark_mask: MASK, dry_run: false, flows: None };

/// A filter of another program that does nothing; `_` stands for a space within an argument.
const FOREIGN: &str = "protocol all bpf bytecode 1,6_0_0_0,";
const TCP: u8 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;

fn paths(n: u32, mode: BalanceMode) -> PathSet {
    let paths: Vec<_> = (0..n).map(|path| Balanced { id: 1000 + path, weight: 1 + u64::from(path) }).collect();
    PathSet::new(mode, 7, 1, &paths).unwrap()
}

/// A site whose path at position i has slot i + 1.
fn site(set: PathSet, live: u32) -> Site {
    let slots = (1..=set.count()).map(|slot| slot as u8).collect();
    Site { set, live, slots, arrives: vec![LOOPBACK] }
}

fn slot(mark: u32) -> u32 {
    (mark & MASK) >> MASK.trailing_zeros()
}

/// A frame of Ethernet around a packet, long enough for the kernel's test run.
fn frame(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ethertype[..], packet].concat()
}

fn v6(next: u8, source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, high, low, next, 64], &source.octets()[..], &destination.octets(), payload].concat()
}

fn v4(protocol: u8, fragment: u16, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let ([high, low], [f, g]) = ((20 + payload.len() as u16).to_be_bytes(), fragment.to_be_bytes());
    [&[0x45, 0, high, low, 0, 1, f, g, 64, protocol, 0, 0], &source[..], &destination, payload].concat()
}

fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    vec![a, b, c, d, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]
}

/// A packet to `fd02::/16` or to 10.2.0.0/16 of one of many kinds.
fn any_packet(random: &mut Pcg32) -> Vec<u8> {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let source = Ipv6Addr::from_bits(bits >> 16 | 0xfd01 << 112);
    let destination = Ipv6Addr::from_bits((bits << 9) >> 16 | 0xfd02 << 112);
    let [a, b, c, d, ..] = random.next_u64().to_ne_bytes();
    let (source4, destination4) = ([10, 1, a, b], [10, 2, c, d]);
    let protocol = [TCP, 17, 132, 33, 136, 50, 1, 58][random.next_u32() as usize % 8];
    let ports = tcp(random.next_u32() as u16, random.next_u32() as u16, ACK);
    match random.next_u32() % 8 {
        0 | 1 => v6(protocol, source, destination, &ports),
        2 | 3 => v4(protocol, 0x4000, source4, destination4, &ports),
        4 => v4(protocol, random.next_u32() as u16 & 0x3fff, source4, destination4, &ports),
        5 => {
            let [high, low] = (random.next_u32() as u16).to_be_bytes();
            v6(44, source, destination, &[&[protocol, 0, high, low, 1, 2, 3, 4], &ports[..]].concat())
        }
        6 => {
            let quoted = v6(protocol, destination, source, &ports);
            v6(58, source, destination, &[&[1 + a % 5, 0, 0, 0, 0, 0, 0, 0], &quoted[..]].concat())
        }
        _ => {
            let quoted = v4(protocol, 0, destination4, source4, &ports[..8]);
            v4(1, 0, source4, destination4, &[&[a % 14, 0, 0, 0, 0, 0, 0, 0], &quoted[..]].concat())
        }
    }
}

#[test]
fn the_kernel_marks_as_the_native_code_says() {
    if !root_or_skip("the balancer in BPF") {
        return;
    }
    let balancer = Balancer::load(&CONFIG).unwrap();
    let mut random = Pcg32::new(15, 1);
    let mut used = [0; 33];
    let (mut fragments, mut errors) = (0, 0);
    for (round, mode) in BalanceMode::ALL.into_iter().cycle().take(12).enumerate() {
        let n = 2 + (round as u32 * 7) % 31;
        let (set, live) = (paths(n, mode), if round % 2 == 0 { ALL_LIVE } else { random.next_u32() });
        for prefix in ["fd02::/16", "10.2.0.0/16"] {
            balancer.set_site(prefix.parse().unwrap(), Some(&site(set.clone(), live))).unwrap();
        }
        for _ in 0..2_000 {
            let packet = any_packet(&mut random);
            let view = flow_key::read(&packet).unwrap();
            let expected = set.choose(live, &view.key) + 1;
            let (mark, _) = balancer.run(Side::Site, &mut frame(&packet), OTHERS, 1).unwrap();
            assert_eq!(mark, OTHERS & !MASK | expected << 24, "{view:?}\n{packet:02x?}");
            fragments += u64::from(view.kind == flow_key::Kind::Addresses);
            errors += u64::from(view.error);
            used[expected as usize] += 1;
        }
    }
    let counts = balancer.counts().unwrap();
    assert_eq!((counts.balanced, counts.fragments, counts.errors), (24_000, fragments, errors));
    assert!(fragments > 2_000 && errors > 2_000 && used[1..10].iter().all(|count| *count > 100), "{used:?}");
    let carried: u64 = balancer.uses().unwrap().values().map(|used| used.packets).sum();
    assert_eq!(carried, counts.balanced);
}

#[test]
fn what_has_no_path_keeps_its_mark_and_a_path_without_a_route_is_counted() {
    if !root_or_skip("the balancer in BPF") {
        return;
    }
    let balancer = Balancer::load(&CONFIG).unwrap();
    let (from, to) = ("fd01::1".parse().unwrap(), "fd02::2".parse().unwrap());
    let packet = v6(TCP, from, to, &tcp(1, 2, ACK));
    let run = |packet: &[u8]| balancer.run(Side::Site, &mut frame(packet), OTHERS, 1).unwrap().0;
    assert_eq!(run(&packet), OTHERS, "no destination");
    balancer.set_site("fd02::/16".parse().unwrap(), Some(&site(paths(4, BalanceMode::Modulo), ALL_LIVE))).unwrap();
    assert_ne!(slot(run(&packet)), 0);
    let routed = [&[TCP, 2, 4, 1, 0, 0, 0, 0], &Ipv6Addr::LOCALHOST.octets()[..], &tcp(1, 2, ACK)].concat();
    assert_eq!(run(&v6(43, from, to, &routed)), OTHERS, "a source route is the sender's wish");
    assert_eq!(run(&v4(TCP, 0, [10, 1, 0, 1], [10, 2, 0, 1], &tcp(1, 2, ACK))), OTHERS, "another family");
    balancer.set_site("fd02::/64".parse().unwrap(), None).unwrap();
    assert_eq!(run(&packet), OTHERS, "left alone within a destination");
    balancer.remove_site("fd02::/64".parse().unwrap()).unwrap();
    assert_ne!(slot(run(&packet)), 0);
    let without = Site { slots: vec![0; 4], ..site(paths(4, BalanceMode::Modulo), ALL_LIVE) };
    balancer.set_site("fd02::/16".parse().unwrap(), Some(&without)).unwrap();
    assert_eq!(run(&packet), OTHERS & !MASK);
    let counts = balancer.counts().unwrap();
    assert_eq!((counts.balanced, counts.left_alone, counts.unrouted), (3, 4, 1));

    let dry = Balancer::load(&BalancerConfig { dry_run: true, ..CONFIG }).unwrap();
    dry.set_site("fd02::/16".parse().unwrap(), Some(&site(paths(4, BalanceMode::Modulo), ALL_LIVE))).unwrap();
    assert_eq!(dry.run(Side::Site, &mut frame(&packet), OTHERS, 1).unwrap().0, OTHERS);
    assert_eq!(dry.counts().unwrap().balanced, 1);
}

#[test]
fn with_a_table_connections_take_turns_and_the_other_edge_learns_their_paths() {
    if !root_or_skip("the balancer in BPF") {
        return;
    }
    let load = |flows| {
        let balancer = Balancer::load(&BalancerConfig { flows: Some(flows), ..CONFIG }).unwrap();
        let site = site(paths(4, BalanceMode::Modulo), ALL_LIVE);
        balancer.set_site("fd02::/16".parse().unwrap(), Some(&site)).unwrap();
        balancer
    };
    let (here, there) = ("fd01::1".parse().unwrap(), "fd02::2".parse().unwrap());
    let out = |balancer: &Balancer, port, flags| {
        let packet = v6(TCP, here, there, &tcp(port, 443, flags));
        slot(balancer.run(Side::Site, &mut frame(&packet), 0, 1).unwrap().0)
    };
    let balancer = load(100);
    let first = out(&balancer, 40_000, SYN);
    let turns: Vec<_> = (1..9).map(|n| out(&balancer, 40_000 + n, SYN)).collect();
    let expected: Vec<_> = (0..8).map(|n| (first + n) % 4 + 1).collect();
    assert_eq!(turns, expected, "the first is hashed, the next ones follow in turn");
    // What follows stays there, also a SYN that comes again.
    assert_eq!((out(&balancer, 40_001, SYN), out(&balancer, 40_001, ACK)), (turns[0], turns[0]));
    // A connection from before goes by its hash, and takes no entry.
    assert_eq!(balancer.flows().unwrap(), 9);
    out(&balancer, 50_000, ACK);
    assert_eq!(balancer.flows().unwrap(), 9);

    // From the paths' side: the SYN came by the interface of path 0, whatever the hash of the connection is.
    for port in 1..20 {
        let syn = v6(TCP, there, here, &tcp(port, 80, SYN));
        balancer.run(Side::Paths, &mut frame(&syn), 0, 1).unwrap();
        let answer = v6(TCP, here, there, &tcp(80, port, SYN | ACK));
        assert_eq!(slot(balancer.run(Side::Site, &mut frame(&answer), 0, 1).unwrap().0), 1);
    }
    // Flows are forgotten some time after their end, or when nothing is seen of them for long.
    out(&balancer, 40_001, ACK | 1);
    let seen = (sidestep_linux::monotonic_now().as_nanos() >> 30) as u32;
    assert_eq!(balancer.forget_flows(seen + 20, 1_000, 10).unwrap(), 1);
    assert_eq!(balancer.forget_flows(seen + 2_000, 1_000, 10).unwrap(), 27);

    // The kernel gives a large table in many parts.
    let large = load(20_000);
    for port in 1..=20_000 {
        out(&large, port, SYN);
    }
    assert_eq!(large.flows().unwrap(), 20_000);
    assert_eq!(large.forget_flows(seen, 1_000, 10).unwrap(), 0);
    assert_eq!(large.forget_flows(seen + 2_000, 1_000, 10).unwrap(), 20_000);
    assert_eq!(large.flows().unwrap(), 0);

    // A table that is full forgets no flow: the rest goes by hash.
    let small = load(4);
    let plain = Balancer::load(&CONFIG).unwrap();
    plain.set_site("fd02::/16".parse().unwrap(), Some(&site(paths(4, BalanceMode::Modulo), ALL_LIVE))).unwrap();
    let kept: Vec<_> = (1..5).map(|port| out(&small, port, SYN)).collect();
    for port in 5..50 {
        assert_eq!(out(&small, port, SYN), out(&plain, port, SYN));
    }
    assert_eq!((1..5).map(|port| out(&small, port, ACK)).collect::<Vec<_>>(), kept);
    assert_eq!(small.counts().unwrap().table_full, 45);
}

#[test]
fn connections_of_the_table_go_by_their_hash_while_their_path_is_dead_and_then_return() {
    if !root_or_skip("the balancer in BPF") {
        return;
    }
    let (here, there) = ("fd01::1".parse().unwrap(), "fd02::2".parse().unwrap());
    let out = |balancer: &Balancer, port, flags| {
        let packet = v6(TCP, here, there, &tcp(port, 443, flags));
        slot(balancer.run(Side::Site, &mut frame(&packet), 0, 1).unwrap().0)
    };
    let table = Balancer::load(&BalancerConfig { flows: Some(100), ..CONFIG }).unwrap();
    let plain = Balancer::load(&CONFIG).unwrap();
    let tell = |live| {
        for balancer in [&table, &plain] {
            let site = site(paths(4, BalanceMode::Modulo), live);
            balancer.set_site("fd02::/16".parse().unwrap(), Some(&site)).unwrap();
        }
    };
    tell(ALL_LIVE);
    let ports = 40_000..40_032;
    let before: Vec<_> = ports.clone().map(|port| out(&table, port, SYN)).collect();
    tell(ALL_LIVE & !2);
    for (port, before) in ports.clone().zip(&before) {
        let expected = if *before == 2 { out(&plain, port, ACK) } else { *before };
        assert_eq!(out(&table, port, ACK), expected, "what the other edge chooses, too");
        assert_ne!(expected, 2);
    }
    for live in [0, ALL_LIVE] {
        tell(live);
        assert_eq!(ports.clone().map(|port| out(&table, port, ACK)).collect::<Vec<_>>(), before, "live: {live:x}");
    }
}

#[test]
fn connections_that_began_at_the_other_edge_follow_it_and_those_of_before_keep_the_path_by_which_they_came() {
    if !root_or_skip("the balancer in BPF") {
        return;
    }
    let (here, there) = ("fd01::1".parse().unwrap(), "fd02::2".parse().unwrap());
    let table = Balancer::load(&BalancerConfig { flows: Some(100), ..CONFIG }).unwrap();
    // Packets that arrive come by the path at this position.
    let arrive_by = |position: usize| {
        let mut arrives = vec![0; 4];
        arrives[position] = LOOPBACK;
        let site = Site { arrives, ..site(paths(4, BalanceMode::Modulo), ALL_LIVE) };
        table.set_site("fd02::/16".parse().unwrap(), Some(&site)).unwrap();
    };
    let out = |port, flags| {
        let packet = v6(TCP, here, there, &tcp(443, port, flags));
        slot(table.run(Side::Site, &mut frame(&packet), 0, 1).unwrap().0)
    };
    let arrives = |port, flags| {
        let packet = v6(TCP, there, here, &tcp(port, 443, flags));
        table.run(Side::Paths, &mut frame(&packet), 0, 1).unwrap();
    };
    arrive_by(2);
    arrives(1, SYN);
    arrives(2, ACK);
    assert_eq!((out(1, SYN | ACK), out(2, ACK)), (3, 3), "the second was there before this edge");
    let own = out(3, SYN);
    arrive_by(if own == 1 { 1 } else { 0 });
    let other = if own == 1 { 2 } else { 1 };
    for port in 1..4 {
        arrives(port, ACK);
    }
    assert_eq!([1, 2, 3].map(|port| out(port, ACK)), [other, 3, own]);
    // What ends, or begins elsewhere, takes no entry.
    let flows = table.flows().unwrap();
    for flags in [ACK | 1, 4] {
        arrives(4, flags);
    }
    assert_eq!((flows, table.flows().unwrap()), (3, 3));
    // A connection that begins again with the ports of one that is gone is another one.
    arrive_by(3);
    arrives(3, SYN);
    assert_eq!(out(3, SYN | ACK), 4);
}

#[test]
fn a_new_balancer_takes_the_place_of_the_last_and_nothing_of_others_is_touched() {
    if !root_or_skip("attaching the balancer") {
        return;
    }
    let words = |arguments: &str| arguments.split(' ').map(|word| word.replace('_', " ")).collect::<Vec<_>>();
    let tc = |arguments: &str| {
        let output = std::process::Command::new("tc").args(words(arguments)).output().expect("iproute2 is installed");
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let work = || {
        netlink::block_on(async |netlink| {
            netlink.add_veth("a", "b").await?;
            let interfaces = netlink.interfaces().await?;
            let find = |name: &str| interfaces.iter().find(|one: &&Interface| one.name == name).unwrap();
            let (a, b) = (find("a"), find("b"));
            tc("qdisc add dev a clsact");
            tc(&format!("filter add dev a ingress prio 7 {FOREIGN}"));
            tc("qdisc add dev b ingress");
            let foreign = tc("filter show dev a ingress");
            for _ in 0..2 {
                let balancer = Balancer::load(&CONFIG)?;
                balancer.attach(netlink, a, Side::Site).await?;
                balancer.attach(netlink, b, Side::Site).await?;
                assert!(balancer.is_attached(netlink, a.index, Side::Site).await?);
                assert!(!balancer.is_attached(netlink, a.index, Side::Paths).await?);
                assert_eq!(netlink.ingress_filters(a.index).await?.len(), 2, "the last one was replaced");
            }
            let other = Balancer::load(&CONFIG)?;
            assert!(!other.is_attached(netlink, a.index, Side::Site).await?, "another's program is not this one");
            assert!(balancer::remove(netlink, a.index).await? && balancer::remove(netlink, b.index).await?);
            assert!(!balancer::remove(netlink, a.index).await?);
            assert_eq!(tc("filter show dev a ingress"), foreign);

            // A filter of another program in our place stays, and is named.
            tc(&format!("filter add dev a ingress prio 84 handle 0x5354 {FOREIGN}"));
            let refused = other.attach(netlink, a, Side::Site).await.unwrap_err().to_string();
            assert!(refused.contains("of somebody else has priority 84 and handle 0x5354"), "{refused}");
            assert!(!balancer::remove(netlink, a.index).await?);
            assert_eq!(tc("filter show dev a ingress").matches("bytecode").count(), 2);
            assert!(tc("qdisc show dev b").contains("ingress"));
            Ok(())
        })
    };
    NetNs::create().and_then(|namespace| namespace.run(work)).unwrap();
}

#[test]
fn the_verifier_has_room_to_spare() {
    if !root_or_skip("loading the balancer") {
        return;
    }
    let _loaded = Balancer::load(&BalancerConfig { flows: Some(16), ..CONFIG }).unwrap();
    let programs = libbpf_rs::query::ProgInfoIter::default();
    let ours = programs.filter(|program| {
        let name = program.name.to_string_lossy().into_owned();
        name.starts_with("sidestep_edge") || name.starts_with("sidestep_learn")
    });
    let verified = ours.map(|program| program.verified_insns).max().unwrap();
    println!("the verifier walked {verified} instructions of the balancer");
    // Kernels since 5.2 give up at a million, and older verifiers prune less than this one.
    assert!((1..200_000).contains(&verified), "{verified}");
}

#[test]
#[ignore = "a measurement; needs a quiet machine"]
fn nanoseconds_a_packet() {
    const RUNS: u32 = 200_000;
    let balancer = Balancer::load(&CONFIG).unwrap();
    let table = Balancer::load(&BalancerConfig { flows: Some(1_000), ..CONFIG }).unwrap();
    let (from, to) = ("fd01::1".parse().unwrap(), "fd02::2".parse().unwrap());
    let of_v6 = frame(&v6(TCP, from, to, &tcp(40_000, 443, ACK)));
    let of_v4 = frame(&v4(TCP, 0x4000, [10, 1, 0, 1], [10, 2, 0, 2], &tcp(40_000, 443, ACK)));
    let elsewhere = frame(&v4(TCP, 0x4000, [10, 1, 0, 1], [10, 3, 0, 2], &tcp(40_000, 443, ACK)));
    let arrives = frame(&v6(TCP, to, from, &tcp(443, 40_000, ACK)));
    let begins = frame(&v6(TCP, to, from, &tcp(80, 40_000, SYN)));
    let follows = frame(&v6(TCP, to, from, &tcp(80, 40_000, ACK)));
    let time_on = |side, balancer: &Balancer, frame: &[u8]| {
        let one = || balancer.run(side, &mut frame.to_vec(), 0, RUNS).unwrap().1.as_nanos();
        let mut all: Vec<_> = (0..9).map(|_| one()).collect();
        all.sort_unstable();
        all[4]
    };
    let time = |balancer: &Balancer, frame: &[u8]| time_on(Side::Site, balancer, frame);
    println!("left alone: {} ns", time(&balancer, &elsewhere));
    for mode in BalanceMode::ALL {
        for n in [4, 8, 32] {
            for one in [&balancer, &table] {
                for prefix in ["fd02::/16", "10.2.0.0/16"] {
                    one.set_site(prefix.parse().unwrap(), Some(&site(paths(n, mode), ALL_LIVE))).unwrap();
                }
            }
            let syn = frame(&v6(TCP, from, to, &tcp(40_000, 443, SYN)));
            table.run(Side::Site, &mut syn.clone(), 0, 1).unwrap();
            let [v4, v6, kept] = [time(&balancer, &of_v4), time(&balancer, &of_v6), time(&table, &of_v6)];
            println!("{}, {n} paths: IPv4 {v4} ns, IPv6 {v6} ns, IPv6 with a table {kept} ns", mode.as_str());
            table.run(Side::Paths, &mut begins.clone(), 0, 1).unwrap();
            let [own, theirs] = [&arrives, &follows].map(|frame| time_on(Side::Paths, &table, frame));
            println!("  from a path: {own} ns of a connection that began here, {theirs} ns of one that began there");
        }
    }
}
