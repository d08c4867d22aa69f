use std::{
    net::Ipv6Addr,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use sidestep_net::{Queue, QueueLimit, Rate, Ratio};

use super::{
    port::{Port, ipv6_frame},
    thread_stats::monotonic,
    *,
};
use crate::{
    bpf::arrivals,
    netlink,
    netns::{NetNs, set_sysctl},
    testing::root_or_skip,
};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;
/// Longer than any frame should take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(5);

/// Two namespaces that send nothing by themselves, with wires from one to the other.
struct Net {
    near_namespace: NetNs,
    near: Vec<Port>,
    far: Vec<Port>,
    wires: Wires,
}

impl Net {
    fn new(channel: Channel, mtu: u32, count: usize, threads: usize) -> Net {
        Self::with(channel, mtu, count, threads, None)
    }

    fn with(channel: Channel, mtu: u32, count: usize, threads: usize, arrivals: Option<&Arc<Arrivals>>) -> Net {
        let near_namespace = NetNs::create().unwrap();
        let [near, far] = [&near_namespace, &NetNs::create().unwrap()].map(|node| ends(node, count, arrivals));
        let (near_taps, near): (Vec<_>, Vec<_>) = near.into_iter().unzip();
        let (far_taps, far): (Vec<_>, Vec<_>) = far.into_iter().unzip();
        let specs = near_taps.into_iter().zip(far_taps);
        let specs = specs.map(|(a, b)| WireSpec { a, b, ab: channel, ba: channel, mtu }).collect();
        Net { near_namespace, near, far, wires: Wires::start(specs, 1, threads, arrivals).unwrap() }
    }

    fn one(channel: Channel) -> Net {
        Self::new(channel, 1_500, 1, 1)
    }

    fn stats(&self, arc: usize) -> ArcStats {
        self.wires.handle().stats().unwrap().arcs[arc]
    }

    /// The statistics of the first direction, once they are as they should be.
    fn stats_when(&self, ready: impl Fn(&ArcStats) -> bool) -> ArcStats {
        let start = Instant::now();
        loop {
            let stats = self.stats(0);
            if ready(&stats) || start.elapsed() > PATIENCE {
                return stats;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn ends(namespace: &NetNs, count: usize, arrivals: Option<&Arc<Arrivals>>) -> Vec<(Tap, Port)> {
    let end = |number: usize| {
        let tap = Tap::create(&format!("wire{number}"), 500)?;
        let index = netlink::block_on(async |netlink| {
            let index = netlink.index_of(tap.name()).await?;
            netlink.bring_up(index, 1_500, MAC).await?;
            Ok(index)
        })?;
        arrivals.map_or(Ok(()), |arrivals| arrivals.attach(index))?;
        Ok((tap, Port::open(index)?))
    };
    let quiet_ends = || {
        set_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
        (0..count).map(end).collect()
    };
    namespace.run(quiet_ends).unwrap()
}

fn channel(rate: Rate, delay_ms: u64, packets: u32) -> Channel {
    let queue = Queue { limit: QueueLimit::Packets(packets), ecn_threshold: None, red: None };
    Channel { rate, delay: Span::from_millis(delay_ms), queue, loss: Ratio::ZERO, burst_loss: None, weight: 1 }
}

/// A frame with a packet of `len` bytes.
fn frame(len: usize, ecn: u8) -> Vec<u8> {
    ipv6_frame(MAC, Ipv6Addr::LOCALHOST, len, ecn)
}

fn receive_within(port: &Port, patience: Duration) -> Option<Vec<u8>> {
    let start = Instant::now();
    loop {
        let frame = port.receive();
        if frame.is_some() || start.elapsed() > patience {
            return frame;
        }
        thread::sleep(Duration::from_micros(50));
    }
}

fn receive(port: &Port) -> Vec<u8> {
    receive_within(port, PATIENCE).expect("no frame arrived")
}

fn ab() -> ArcId {
    LinkId(0).arc(Direction::AToB)
}

#[test]
fn packets_arrive_in_order_at_the_links_rate_after_its_delay() {
    if !root_or_skip("wires") {
        return;
    }
    // 1000 bytes take 800 µs.
    let net = Net::one(channel(Rate::from_mbits(10), 20, 200));
    let start = Instant::now();
    for number in 0..100 {
        let mut frame = frame(1_000, 0);
        frame[60] = number;
        assert!(net.near[0].send(&frame));
    }
    let mut least_late = PATIENCE;
    for number in 0..100 {
        assert_eq!(receive(&net.far[0])[60], number);
        let soonest = Duration::from_micros(20_000 + 800 * (u64::from(number) + 1));
        let took = start.elapsed();
        assert!(took >= soonest, "packet {number} took {took:?}, not {soonest:?}");
        least_late = least_late.min(took - soonest);
    }
    // A busy machine may hold some of them up, but not all.
    assert!(least_late < Duration::from_millis(15), "every packet was {least_late:?} late");
    let stats = net.wires.stop();
    assert_eq!((stats.arcs[0].counters.packets, stats.arcs[0].counters.bytes), (100, Bytes::new(100_000)));
    assert_eq!((stats.arcs[1], stats.lateness.frames()), (ArcStats::default(), 100));
    // What is not known to have taken less was a stall.
    let known = [&stats.times.reads, &stats.times.writes].map(|times| times.count());
    assert!(known.iter().all(|count| *count <= 100) && known.iter().sum::<u64>() + stats.stalls.len() as u64 >= 200);
    assert!(!stats.wakes.is_empty() && stats.threads == 1, "{:?}", stats.stalls);
}

#[test]
fn a_full_queue_drops_what_arrives() {
    if !root_or_skip("wires") {
        return;
    }
    let net = Net::one(channel(Rate::from_bits_per_sec(10_000), 0, 10));
    for _ in 0..50 {
        assert!(net.near[0].send(&frame(1_000, 0)));
    }
    let stats = net.stats_when(|stats| stats.counters.packets + stats.counters.drops.total() == 50);
    assert_eq!((stats.counters.packets, stats.counters.drops.queue_full), (11, 39));
    assert_eq!((stats.queue_packets, stats.queue_bytes), (10, Bytes::new(10_000)));
}

#[test]
fn only_ecn_capable_packets_are_marked_in_a_congested_queue() {
    if !root_or_skip("wires") {
        return;
    }
    let mut congested = channel(Rate::from_mbits(10), 0, 100);
    congested.queue.ecn_threshold = Some(QueueLimit::Packets(0));
    let net = Net::one(congested);
    for ecn in [ECT_0, 0] {
        assert!(net.near[0].send(&frame(500, ecn)));
    }
    assert_eq!(receive(&net.far[0]), frame(500, CE));
    assert_eq!(receive(&net.far[0]), frame(500, 0));
    assert_eq!(net.stats(0).counters.ce_marked, 1);
}

#[test]
fn a_blackhole_in_one_direction_leaves_the_other() {
    if !root_or_skip("wires") {
        return;
    }
    let net = Net::one(channel(Rate::from_mbits(100), 1, 100));
    let handle = net.wires.handle();
    handle.set_state(ab(), LinkState::Blackhole).unwrap();
    handle.stats().unwrap();
    assert!(net.near[0].send(&frame(100, 0)) && net.far[0].send(&frame(200, 0)));
    assert_eq!(receive(&net.near[0]).len(), 214);
    let stats = net.stats_when(|stats| stats.counters.drops.blackhole == 1);
    assert_eq!((stats.counters.packets, stats.counters.drops.blackhole), (0, 1));
    handle.set_state(ab(), LinkState::Up).unwrap();
    handle.stats().unwrap();
    assert!(net.near[0].send(&frame(300, 0)));
    assert_eq!(receive(&net.far[0]).len(), 314);
}

#[test]
fn a_cut_loses_the_frames_in_flight() {
    if !root_or_skip("wires") {
        return;
    }
    let net = Net::one(channel(Rate::from_mbits(100), 2_000, 100));
    for _ in 0..3 {
        assert!(net.near[0].send(&frame(100, 0)));
    }
    assert_eq!(net.stats_when(|stats| stats.counters.packets == 3).counters.packets, 3);
    let handle = net.wires.handle();
    handle.set_state(ab(), LinkState::Down).unwrap();
    handle.set_channel(ab(), channel(Rate::from_mbits(100), 1, 100)).unwrap();
    handle.set_state(ab(), LinkState::Up).unwrap();
    handle.stats().unwrap();
    assert!(net.near[0].send(&frame(200, 0)));
    assert_eq!(receive(&net.far[0]).len(), 214);
    assert_eq!(receive_within(&net.far[0], Duration::from_millis(2_100)), None);
    let stats = net.stats(0);
    assert_eq!((stats.counters.packets, stats.counters.drops.down), (1, 3));
}

#[test]
fn arp_passes_a_link_that_is_too_slow_for_it_and_too_large_frames_do_not() {
    if !root_or_skip("wires") {
        return;
    }
    let net = Net::new(channel(Rate::from_bits_per_sec(1), 1, 100), 1_280, 1, 1);
    let mut arp = frame(46, 0);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert!(net.near[0].send(&frame(1_281, 0)) && net.near[0].send(&arp));
    assert_eq!(receive(&net.far[0]), arp);
    let stats = net.stats(0);
    assert_eq!((stats.passed, stats.oversized, stats.counters.packets), (1, 1, 0));
}

#[test]
fn every_wire_is_found_by_its_number_however_many_threads_there_are() {
    if !root_or_skip("wires") {
        return;
    }
    let net = Net::new(channel(Rate::from_mbits(100), 1, 100), 1_500, 3, 2);
    let handle = net.wires.handle();
    handle.set_state(LinkId(2).arc(Direction::BToA), LinkState::Blackhole).unwrap();
    handle.stats().unwrap();
    for (number, (near, far)) in net.near.iter().zip(&net.far).enumerate() {
        assert!(near.send(&frame(100 + number, 0)));
        assert_eq!(receive(far).len(), 114 + number);
        assert!(far.send(&frame(200, 0)));
    }
    thread::sleep(Duration::from_millis(100));
    let stats = handle.stats().unwrap();
    let packets: Vec<_> = stats.arcs.iter().map(|arc| arc.counters.packets).collect();
    assert_eq!((packets, stats.arcs[5].counters.drops.blackhole), (vec![1, 1, 1, 1, 1, 0], 1));
    let unknown = LinkId(3).arc(Direction::AToB);
    assert_eq!(handle.set_state(unknown, LinkState::Up), Err(WireError::Unknown(unknown)));
    net.wires.stop();
    assert_eq!(handle.stats(), Err(WireError::Stopped));
    assert_eq!(handle.set_state(ab(), LinkState::Up), Err(WireError::Stopped));
}

#[test]
fn an_interface_that_is_deleted_neither_stops_the_other_wires_nor_keeps_them_busy() {
    if !root_or_skip("wires") {
        return;
    }
    let net = Net::new(channel(Rate::from_mbits(100), 1, 100), 1_500, 2, 1);
    let delete = async |netlink: &netlink::Netlink| {
        let index = netlink.index_of("wire0").await?;
        let deleted = netlink.handle().link().del(index).execute().await;
        deleted.map_err(|error| LinuxError::io("deleting an interface", std::io::Error::other(error)))
    };
    net.near_namespace.run(|| netlink::block_on(delete)).unwrap();
    assert!(net.far[0].send(&frame(100, 0)) && net.near[1].send(&frame(200, 0)));
    assert_eq!(receive(&net.far[1]).len(), 214);
    let before = net.wires.handle().stats().unwrap();
    thread::sleep(Duration::from_millis(300));
    let after = net.wires.handle().stats().unwrap();
    assert_eq!(after.arcs[1].write_errors, 1);
    assert!(after.cpu - before.cpu < Span::from_millis(30), "busy for {}", after.cpu - before.cpu);
}

/// A router with two TAPs, which sends by the second what goes to fd00:1::1, and what sends by the second itself.
fn router(arrivals: &Arrivals) -> ([Tap; 2], Port) {
    let build = || {
        set_sysctl("ipv6/conf/default/accept_dad", "0")?;
        set_sysctl("ipv6/conf/all/forwarding", "1")?;
        let taps = [Tap::create("wire0", 100)?, Tap::create("wire1", 100)?];
        let far = netlink::block_on(async |netlink| {
            for tap in &taps {
                let index = netlink.index_of(tap.name()).await?;
                netlink.bring_up(index, 1_500, MAC).await?;
                arrivals.attach(index)?;
            }
            let interface = netlink.index_of("wire1").await?;
            let target = netlink::Target::Via(vec![netlink::NextHop { via: None, interface }]);
            let destination = ipnet::Ipv6Net::from(FAR).into();
            netlink.add_route(&netlink::Route { table: netlink::MAIN_TABLE, destination, target, mtu: None }).await?;
            netlink.add_neighbour(interface, FAR, MAC).await?;
            Ok(interface)
        })?;
        Ok((taps, Port::open(far)?))
    };
    NetNs::create().unwrap().run(build).unwrap()
}

const FAR: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);

#[test]
fn frames_show_when_they_were_sent_and_what_a_router_forwards_late_when_it_was_due() {
    if !root_or_skip("wires") {
        return;
    }
    let arrivals = Arc::new(Arrivals::load().unwrap());
    let ([near, far], port) = router(&arrivals);
    let packet = ipv6_frame(MAC, FAR, 333, 0);
    // How old the packet is when it is read, which is the first frame of its length: the router sends packets of its own.
    let age_of_one = |send: &(dyn Fn() + Sync)| {
        send();
        let mut bytes = [0; 2_000];
        let start = Instant::now();
        while !nix::unistd::read(&far, &mut bytes).is_ok_and(|length| length == packet.len()) {
            assert!(start.elapsed() < PATIENCE, "nothing was forwarded");
        }
        let age = arrivals::age(&mut bytes, monotonic(), far.address().unwrap());
        assert_eq!(bytes[6..12], MAC);
        Duration::from_nanos(age)
    };
    let forward = || assert_eq!(nix::unistd::write(&near, &packet), Ok(packet.len()));
    let (short, long) = (Duration::from_millis(30), Duration::from_millis(600));
    let waited = age_of_one(&|| {
        forward();
        thread::sleep(short);
    });
    assert!(waited >= short && waited < long, "{waited:?}");
    let entered = arrivals.enter(3).unwrap();
    let hands_over = || entered.hands_over(monotonic() - long.as_nanos() as u64);
    hands_over();
    let late = age_of_one(&forward);
    assert!(late >= long && late < long + Duration::from_millis(400), "{late:?}");
    // Neither what a host sends itself, nor what others forward meanwhile, nor what the thread does at other times.
    assert!(age_of_one(&|| assert!(port.send(&packet))) < long);
    assert!(age_of_one(&|| thread::scope(|scope| scope.spawn(forward).join().unwrap())) < long);
    entered.hands_over(0);
    assert!(age_of_one(&forward) < long);
    hands_over();
    drop(entered);
    assert!(age_of_one(&forward) < long);
    assert!(arrivals.enter(arrivals::THREADS).is_err());
}

#[test]
fn wires_that_know_when_frames_were_sent_carry_them_with_the_address_of_their_sender() {
    if !root_or_skip("wires") {
        return;
    }
    let arrivals = Arc::new(Arrivals::load().unwrap());
    let net = Net::with(channel(Rate::from_mbits(10), 20, 200), 1_500, 2, 2, Some(&arrivals));
    let start = Instant::now();
    for (near, far) in net.near.iter().zip(&net.far) {
        let mut sent = frame(1_000, 0);
        assert!(near.send(&sent));
        sent[6..12].copy_from_slice(&MAC);
        assert_eq!(receive(far), sent);
    }
    // 800 µs to send and 20 ms on the path, each.
    assert!(start.elapsed() >= Duration::from_micros(2 * 20_800));
    assert_eq!(net.wires.stop().lateness.frames(), 2);
}

#[test]
fn the_benchmark_counts_frames_over_both_kinds_of_load() {
    if !root_or_skip("wires") {
        return;
    }
    for load in [bench::Load::Discard, bench::Load::Forward] {
        let report = bench::bench(4, 0.2, 2, load).unwrap();
        assert!(report.frames > 1_000 && report.cpu > Span::ZERO, "{load:?}: {report:?}");
    }
}

/// When 50 packets of 1000 bytes arrive that were sent at once, and when, 400 ms after that, the rate changed.
fn arrivals_around(net: &Net, change: impl FnOnce()) -> (Vec<Duration>, Duration) {
    let start = Instant::now();
    for _ in 0..50 {
        assert!(net.near[0].send(&frame(1_000, 0)));
    }
    let (mut change, mut changed, mut arrivals) = (Some(change), Duration::ZERO, Vec::new());
    while arrivals.len() < 50 && start.elapsed() < Duration::from_secs(9) {
        if start.elapsed() >= Duration::from_millis(400)
            && let Some(change) = change.take()
        {
            changed = start.elapsed();
            change();
        }
        match net.far[0].receive() {
            Some(_) => arrivals.push(start.elapsed()),
            None => thread::sleep(Duration::from_micros(50)),
        }
    }
    (arrivals, changed)
}

#[test]
fn what_waits_meets_a_new_rate_as_it_does_in_the_kernels_token_bucket() {
    if !root_or_skip("wires") {
        return;
    }
    // 80 ms a packet, and then 0.8; or 16 ms, and then 40.
    for (first, then) in [(100_000, 10_000_000), (500_000, 200_000)] {
        let free = Net::one(channel(Rate::default(), 0, 100));
        let shape = |rate: u32| {
            let text = format!("qdisc replace dev wire0 root tbf rate {rate}bit burst 1600 limit 100000");
            let run = || Ok(Command::new("tc").args(text.split(' ')).status().expect("iproute2 is installed"));
            assert!(free.near_namespace.run(run).unwrap().success());
        };
        shape(first);
        let kernels = arrivals_around(&free, || shape(then));
        let [before, after] = [first, then].map(|rate| channel(Rate::from_bits_per_sec(rate.into()), 0, 100));
        let net = Net::one(before);
        let ours = arrivals_around(&net, || net.wires.handle().set_channel(ab(), after).unwrap());
        for (name, (arrivals, changed)) in [("kernel", kernels), ("wire", ours)] {
            assert_eq!(arrivals.len(), 50, "{name}");
            let done = arrivals.iter().filter(|at| **at < changed).count();
            let took = arrivals[49] - changed;
            // The kernel looks at the new rate when the next packet would have been due, and fills the bucket.
            let (left, slack) = (50 - done as u32, Duration::from_millis(300));
            let each = Duration::from_secs(8_000) / then;
            assert!(left >= 10, "{name}: {done}");
            assert!(took > each * (left - 5) && took < each * left + slack, "{name}: {left} in {took:?}");
        }
    }
}
