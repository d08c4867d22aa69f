//! The engine and what runs on it, on small networks.

use std::collections::BTreeSet;

use sidestep_net::{
    Bytes, Dumbbell, Link, LinkId, NodeKind, ParallelPaths, QueueLimit, Rate, Span, Time, Topology, srv6,
};
use sidestep_paths::Igp;
use sidestep_proto::{
    link::LinkState,
    mptcp::{self, Coupling, Scheduler},
    tcp::{Algorithm, Config, State},
};

use super::*;

mod behaviour;
mod closing;
mod joins;
mod schedulers;

const MSS: u16 = 1428;

/// A world over `topology` whose routes are asked for by the hosts' names.
struct Lab {
    topology: Topology,
    igp: Igp,
    mptcp: mptcp::Config,
    world: World<()>,
}

impl Lab {
    fn new(topology: Topology, tcp: Config) -> Lab {
        Lab::with(topology, tcp, Coupling::Lia, Scheduler::MinRtt)
    }

    fn with(topology: Topology, tcp: Config, coupling: Coupling, scheduler: Scheduler) -> Lab {
        Lab::seeded(topology, tcp, coupling, scheduler, 1)
    }

    fn seeded(topology: Topology, tcp: Config, coupling: Coupling, scheduler: Scheduler, seed: u64) -> Lab {
        let mptcp = mptcp::Config::new(coupling, scheduler, 10_000);
        let network = Network::new(&topology, seed, Span::from_micros(5));
        let igp = Igp::new(&topology);
        Lab { topology, igp, mptcp, world: World::new(network, tcp, Sizes::default(), ()) }
    }

    /// The routes there and back by the IGP, or over the link named.
    fn routes(&mut self, from: &str, to: &str, by: Option<&str>) -> (RouteId, RouteId) {
        let [from, to] = [from, to].map(|name| self.topology.find(name).unwrap());
        let mut route = |from, to| {
            let mut arcs = self.igp.first_path(from, to).unwrap();
            if let Some(link) = by {
                // A path of one hop between the routers: the middle arc is exchanged.
                let link = self.topology.find_link(link).unwrap();
                arcs[1] = sidestep_net::ArcId(link.0 * 2 + arcs[1].0 % 2);
            }
            self.world.network.add_route(arcs.into_iter().map(|arc| (arc, 0)))
        };
        (route(from, to), route(to, from))
    }

    fn flow(&mut self, from: &str, to: &str, bytes: Option<u64>) -> FlowId {
        let (forward, reverse) = self.routes(from, to, None);
        let flow = self.world.add_flow(FlowSpec { forward, reverse, bytes, mss: MSS, tcp: TcpId::default() });
        self.world.open(flow);
        flow
    }

    fn connection(&mut self, routes: &[(RouteId, RouteId)], bytes: Option<u64>) -> FlowId {
        let (forward, reverse) = routes[0];
        let mss = MSS - Sizes::default().mptcp_data;
        let flow = self.world.add_connection(
            FlowSpec { forward, reverse, bytes, mss, tcp: TcpId::default() },
            self.mptcp,
            routes,
        );
        self.world.open(flow);
        flow
    }

    /// Mbit/s of each flow between two times in seconds.
    fn goodput(&mut self, flows: &[FlowId], from: u64, to: u64) -> Vec<f64> {
        self.world.run_until(Time::ZERO + Span::from_secs(from));
        let before: Vec<u64> = flows.iter().map(|flow| self.world.acked_bytes(*flow)).collect();
        self.world.run_until(Time::ZERO + Span::from_secs(to));
        let bytes = flows.iter().zip(before).map(|(flow, before)| self.world.acked_bytes(*flow) - before);
        bytes.map(|bytes| bytes as f64 * 8e-6 / (to - from) as f64).collect()
    }
}

/// Pairs of hosts `l1`–`r1`… over a bottleneck of 50 Mbit/s; the base round trip is 24 ms, the queue holds one of them.
fn dumbbell(hosts: u32) -> Topology {
    let rate = Rate::from_mbits(50);
    Dumbbell {
        hosts,
        rate,
        delay: Span::from_millis(10),
        queue: QueueLimit::Bytes(rate.bytes_in(Span::from_millis(24))),
        access_rate: Some(Rate::from_mbits(1000)),
        access_delay: Some(Span::from_millis(1)),
        access_queue: QueueLimit::Bytes(Bytes::new(10_000_000)),
        ..Dumbbell::default()
    }
    .build()
    .unwrap()
}

/// `c1` and `s1` with `paths` equal paths of 10 Mbit/s between their routers.
fn parallel(paths: u32) -> Topology {
    let rate = Rate::from_mbits(10);
    ParallelPaths {
        paths,
        hops: 1,
        rate,
        delay: Span::from_millis(5),
        queue: QueueLimit::Packets(30),
        ..ParallelPaths::default()
    }
    .build()
    .unwrap()
}

/// Jain's index.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    sum * sum / (shares.len() as f64 * squares)
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

#[test]
fn equal_flows_share_a_bottleneck_and_fill_it() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut lab = Lab::new(dumbbell(8), Config { algorithm, ..Config::rfc() });
        let flows: Vec<FlowId> = (1..=8).map(|i| lab.flow(&format!("l{i}"), &format!("r{i}"), None)).collect();
        let goodput = lab.goodput(&flows, 10, 70);
        assert!(jain(&goodput) > 0.95, "{algorithm:?}: {goodput:?}");
        // Of 1500 bytes 1428 are the application's.
        let utilisation = sum(&goodput) / 50.0 * 1500.0 / 1428.0;
        assert!(utilisation > 0.97 && utilisation < 1.001, "{algorithm:?}: {utilisation}");
    }
}

#[test]
fn every_packet_is_delivered_lost_or_in_flight() {
    let mut lab = Lab::new(dumbbell(4), Config::rfc());
    for i in 1..=4 {
        lab.flow(&format!("l{i}"), &format!("r{i}"), None);
    }
    for second in 1..10 {
        lab.world.run_until(Time::ZERO + Span::from_secs(second));
        let balance = lab.world.network.balance();
        assert!(balance.is_even(), "{balance:?}");
        assert!(balance.lost > 0 || second < 5);
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let run = || {
        let mut lab = Lab::new(dumbbell(5), Config { algorithm: Algorithm::Cubic, ..Config::rfc() });
        let flows: Vec<FlowId> = (1..=5).map(|i| lab.flow(&format!("l{i}"), &format!("r{i}"), None)).collect();
        (lab.goodput(&flows, 1, 20), lab.world.network.balance(), lab.world.network.traversals())
    };
    assert_eq!(run(), run());
}

#[test]
fn looking_ahead_begins_and_ends_with_the_arcs_that_carry_packets_and_changes_nothing() {
    let run = |arcs: usize| {
        let mut lab = Lab::new(dumbbell(5), Config { algorithm: Algorithm::Cubic, ..Config::rfc() });
        let flows: Vec<FlowId> = (1..=5).map(|i| lab.flow(&format!("l{i}"), &format!("r{i}"), None)).collect();
        lab.world.network.look_ahead_from(arcs);
        let (mut seen, mut looked) = (Vec::new(), BTreeSet::new());
        for step in 1..400 {
            lab.world.run_until(Time::ZERO + Span::from_micros(step * 9_999));
            looked.insert(lab.world.network.ahead.is_some());
            let acked: Vec<u64> = flows.iter().map(|flow| lab.world.acked_bytes(*flow)).collect();
            seen.push((acked, lab.world.network.balance(), lab.world.network.traversals()));
        }
        (seen, looked)
    };
    let (always, never) = (run(0), run(usize::MAX));
    assert_eq!(always.1, [true].into());
    assert_eq!(never.1, [false].into());
    assert_eq!(always.0, never.0);
    let sometimes = [4, 6, 8, 10].map(run);
    assert!(sometimes.iter().all(|(seen, _)| *seen == never.0));
    assert!(sometimes.iter().any(|(_, looked)| looked.len() == 2));
}

#[test]
fn looking_ahead_changes_nothing() {
    let run = |ahead: bool| {
        let mut lab = Lab::new(dumbbell(5), Config { algorithm: Algorithm::Cubic, ..Config::rfc() });
        let flows: Vec<FlowId> = (1..=5).map(|i| lab.flow(&format!("l{i}"), &format!("r{i}"), None)).collect();
        let link = lab.topology.find_link("L-R").unwrap();
        let arc = link.arc(sidestep_net::Direction::AToB);
        let mut seen = Vec::new();
        for step in 1..60 {
            // Looking ahead begins while packets are in flight.
            if ahead && step == 2 {
                lab.world.network.look_ahead_from(0);
                assert!(lab.world.network.ahead.is_some());
            }
            lab.world.run_until(Time::ZERO + Span::from_micros(step * 99_999));
            let now = lab.world.now();
            match step {
                20 => lab.world.network.set_state(now, arc, LinkState::Down),
                25 => lab.world.network.set_state(now, arc, LinkState::Up),
                _ => {}
            }
            let acked: Vec<u64> = flows.iter().map(|flow| lab.world.acked_bytes(*flow)).collect();
            seen.push((acked, lab.world.network.balance(), lab.world.network.traversals()));
        }
        seen
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_delay_that_shrinks_lets_no_arrival_come_late() {
    let run = |ahead: bool| {
        let mut lab = Lab::new(dumbbell(3), Config::rfc());
        let flows: Vec<FlowId> = (1..=3).map(|i| lab.flow(&format!("l{i}"), &format!("r{i}"), None)).collect();
        let link = lab.topology.find_link("L-R").unwrap();
        let arc = link.arc(sidestep_net::Direction::AToB);
        for (step, delay) in [5_000, 20, 900, 1].into_iter().enumerate() {
            let channel = sidestep_net::Channel { delay: Span::from_micros(delay), ..*lab.topology.channel(arc) };
            lab.world.network.set_channel(lab.world.now(), arc, &channel);
            if ahead {
                lab.world.network.look_ahead_from(0);
            }
            lab.world.run_until(Time::ZERO + Span::from_millis(777 * (step as u64 + 1)));
        }
        let acked: Vec<u64> = flows.iter().map(|flow| lab.world.acked_bytes(*flow)).collect();
        (acked, lab.world.network.balance())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn packets_that_wait_when_a_link_recovers_leave_at_its_new_rate() {
    let run = |ahead: bool| {
        let mut lab = Lab::new(dumbbell(2), Config::rfc());
        let flows: Vec<FlowId> = (1..=2).map(|i| lab.flow(&format!("l{i}"), &format!("r{i}"), None)).collect();
        let arc = lab.topology.find_link("L-R").unwrap().arc(sidestep_net::Direction::AToB);
        let fast = *lab.topology.channel(arc);
        let slow = sidestep_net::Channel { rate: Rate::from_bits_per_sec(200_000), ..fast };
        let mut seen = Vec::new();
        for (millis, channel) in [(3_000, slow), (6_000, fast)] {
            lab.world.run_until(Time::ZERO + Span::from_millis(millis));
            if ahead {
                lab.world.network.look_ahead_from(0);
            }
            let now = lab.world.now();
            lab.world.network.set_channel(now, arc, &channel);
            let (counters, queued) = lab.world.network.arc(now, arc);
            seen.push((counters.packets, queued, lab.world.network.balance()));
        }
        let now = lab.world.now();
        let (_, waits) = lab.world.network.arc(now, arc);
        assert!(waits > Bytes::new(50_000), "{waits}");
        let (before, queued) = lab.world.network.arc(now, arc);
        let before = before.bytes - queued;
        lab.world.run_until(now + fast.rate.time_for(waits) + Span::from_millis(1));
        let (after, queued) = lab.world.network.arc(lab.world.now(), arc);
        // All of it, and no more than the rate allows.
        assert!(after.bytes - queued - before >= waits, "{waits} of {}", after.bytes - queued - before);
        assert!(lab.world.network.balance().is_even());
        lab.world.run_until(now + Span::from_secs(2));
        seen.push((0, Bytes::default(), lab.world.network.balance()));
        let acked: Vec<u64> = flows.iter().map(|flow| lab.world.acked_bytes(*flow)).collect();
        (acked, seen)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_transfer_takes_its_handshake_its_rounds_and_its_bytes() {
    let mut lab = Lab::new(dumbbell(1), Config::rfc());
    let flow = lab.flow("l1", "r1", Some(100_000));
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(flow));
    assert_eq!(lab.world.acked_bytes(flow), 100_000);
    // A round trip of 24 ms for the handshake, and three for 10, 20 and 40 of 71 segments and the last: at least that.
    let took = lab.world.now().as_secs_f64();
    assert!((0.024 * 5.0..0.024 * 6.5).contains(&took), "{took}");
}

#[test]
fn the_place_of_a_finished_flow_is_used_again_and_only_when_its_packets_are_gone() {
    let mut lab = Lab::new(dumbbell(1), Config::rfc());
    let first = lab.flow("l1", "r1", Some(10_000));
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(first));
    lab.world.release(first);
    lab.world.run_until(Time::ZERO + Span::from_secs(10));
    let second = lab.flow("l1", "r1", Some(10_000));
    assert_eq!((second, lab.world.flow_count()), (first, 1));
    let third = lab.flow("l1", "r1", None);
    lab.world.run_until(lab.world.now() + Span::from_secs(1));
    lab.world.release(third);
    assert_ne!(lab.flow("l1", "r1", None), third, "its packets are still in the network");
}

#[test]
fn a_link_that_goes_down_loses_what_it_carries_and_carries_again_when_up() {
    let mut lab = Lab::new(dumbbell(1), Config::rfc());
    let flow = lab.flow("l1", "r1", None);
    lab.world.run_until(Time::ZERO + Span::from_secs(2));
    let link = lab.topology.find_link("L-R").unwrap();
    let arcs = [link.arc(sidestep_net::Direction::AToB), link.arc(sidestep_net::Direction::BToA)];
    for arc in arcs {
        lab.world.network.set_state(lab.world.now(), arc, LinkState::Down);
    }
    lab.world.run_until(Time::ZERO + Span::from_secs(3));
    let stuck = lab.world.acked_bytes(flow);
    lab.world.run_until(Time::ZERO + Span::from_secs(4));
    assert_eq!(
        (lab.world.acked_bytes(flow), lab.world.sender(flow).map(|sender| sender.state())),
        (stuck, Some(State::Loss))
    );
    for arc in arcs {
        lab.world.network.set_state(lab.world.now(), arc, LinkState::Up);
    }
    lab.world.run_until(Time::ZERO + Span::from_secs(10));
    assert!(lab.world.acked_bytes(flow) > stuck + 5_000_000);
}

#[test]
fn a_flow_that_is_rerouted_sends_over_its_new_route() {
    let mut lab = Lab::new(parallel(2), Config::rfc());
    let flow = lab.flow("c1", "s1", None);
    let (forward, _) = lab.routes("c1", "s1", Some("A-B.2"));
    lab.world.run_until(Time::ZERO + Span::from_secs(2));
    lab.world.reroute(flow, Move { forward: Some(forward), reverse: None });
    // What was on the host's link already goes where it was sent.
    lab.world.run_until(Time::ZERO + Span::from_millis(2_006));
    let bytes = |lab: &mut Lab, link: &str| {
        let arc = LinkId(lab.topology.find_link(link).unwrap().0).arc(sidestep_net::Direction::AToB);
        lab.world.network.arc(lab.world.now(), arc).0.bytes.get()
    };
    let (first, second) = (bytes(&mut lab, "A-B"), bytes(&mut lab, "A-B.2"));
    lab.world.run_until(Time::ZERO + Span::from_secs(4));
    assert_eq!(bytes(&mut lab, "A-B"), first);
    assert!(second < 20_000 && bytes(&mut lab, "A-B.2") > 2_000_000);
}

#[test]
fn dctcp_keeps_its_queue_near_the_threshold() {
    let mut topology = dumbbell(2);
    let threshold = 20;
    let link = topology.find_link("L-R").unwrap();
    let mut lone = Topology::new();
    for node in topology.nodes() {
        lone.add_node(sidestep_net::Node { name: node.name.clone(), kind: node.kind, prefix: None, locator: None })
            .unwrap();
    }
    for (index, other) in topology.links().iter().enumerate() {
        let mut changed: Link = other.clone();
        if index as u32 == link.0 {
            changed.ab.queue.ecn_threshold = Some(QueueLimit::Packets(threshold));
            changed.ab.queue.limit = QueueLimit::Packets(500);
        }
        lone.add_link(changed).unwrap();
    }
    srv6::assign_addresses(&mut lone);
    topology = lone;
    let mut lab = Lab::new(topology, Config { algorithm: Algorithm::Dctcp, ecn: true, ..Config::rfc() });
    let flows = [lab.flow("l1", "r1", None), lab.flow("l2", "r2", None)];
    let goodput = lab.goodput(&flows, 5, 6);
    assert!(sum(&goodput) > 0.9 * 50.0 * 1428.0 / 1500.0, "{goodput:?}");
    let arc = link.arc(sidestep_net::Direction::AToB);
    let mut queue = 0.0;
    for step in 1..=1000 {
        lab.world.run_until(Time::ZERO + Span::from_millis(6_000 + step * 5));
        queue += lab.world.network.arc(lab.world.now(), arc).1.get() as f64 / 1_500.0 / 1_000.0;
    }
    let (_, drops) = (queue, lab.world.network.arc(lab.world.now(), arc).0.drops.total());
    assert!((0.3 * f64::from(threshold)..1.7 * f64::from(threshold)).contains(&queue), "{queue} packets");
    assert_eq!(drops, 0);
}

#[test]
fn reno_is_unfair_to_long_round_trips() {
    // Two flows through one bottleneck, of 24 and 48 ms: the throughputs differ by the round trips to a power between
    // one and two (Lakshman and Madhow 1997).
    let mut topology = Topology::new();
    for (name, kind) in [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("L", 1), ("R", 1)] {
        let kind = if kind == 0 { NodeKind::Host } else { NodeKind::Router };
        topology.add_node(sidestep_net::Node { name: name.into(), kind, prefix: None, locator: None }).unwrap();
    }
    let template = dumbbell(1);
    for (a, b, like, millis) in
        [("a", "L", 0, 1), ("b", "L", 0, 13), ("L", "R", 1, 10), ("c", "R", 0, 1), ("d", "R", 0, 1)]
    {
        let mut link = template.links()[like].clone();
        (link.name, link.a, link.b) = (format!("{a}-{b}"), topology.find(a).unwrap(), topology.find(b).unwrap());
        link.ab.delay = Span::from_millis(millis);
        link.ba.delay = Span::from_millis(millis);
        // A short queue, so that round trips are mostly propagation.
        link.ab.queue.limit = QueueLimit::Packets(if like == 1 { 25 } else { 5_000 });
        topology.add_link(link).unwrap();
    }
    srv6::assign_addresses(&mut topology);
    let mut lab = Lab::new(topology, Config::rfc());
    let flows = [lab.flow("a", "c", None), lab.flow("b", "d", None)];
    let goodput = lab.goodput(&flows, 20, 220);
    let power = (goodput[0] / goodput[1]).ln() / 2f64.ln();
    assert!((1.0..2.0).contains(&power), "{goodput:?}: the power is {power}");
}

#[test]
fn an_mptcp_connection_delivers_all_its_bytes_over_all_its_paths() {
    for scheduler in [Scheduler::MinRtt, Scheduler::RoundRobin] {
        let mut lab = Lab::with(parallel(2), coupled(), Coupling::Lia, scheduler);
        let routes = [lab.routes("c1", "s1", Some("A-B")), lab.routes("c1", "s1", Some("A-B.2"))];
        let flow = lab.connection(&routes, Some(10_000_000));
        assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(60)), Stopped::Finished(flow));
        assert_eq!(lab.world.acked_bytes(flow), 10_000_000);
        // One path would take 8.5 s at least, both together 4.3 s.
        assert!(lab.world.now().as_secs_f64() < 7.5, "{scheduler:?}: {:?}", lab.world.now());
    }
}

#[test]
fn a_redundant_connection_is_no_faster_than_its_best_path_and_survives_the_other() {
    let mut lab = Lab::with(parallel(2), coupled(), Coupling::Lia, Scheduler::Redundant);
    let routes = [lab.routes("c1", "s1", Some("A-B")), lab.routes("c1", "s1", Some("A-B.2"))];
    let flow = lab.connection(&routes, Some(2_000_000));
    let arc = lab.topology.find_link("A-B").unwrap().arc(sidestep_net::Direction::AToB);
    lab.world.run_until(Time::ZERO + Span::from_millis(500));
    lab.world.network.set_state(lab.world.now(), arc, LinkState::Blackhole);
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(60)), Stopped::Finished(flow));
    let took = lab.world.now().as_secs_f64();
    // One path takes 1.7 s at least.
    assert!((1.7..3.5).contains(&took), "{took}");
}

#[test]
fn what_a_dead_subflow_held_is_sent_over_another() {
    let mut lab = Lab::new(parallel(2), coupled());
    let routes = [lab.routes("c1", "s1", Some("A-B")), lab.routes("c1", "s1", Some("A-B.2"))];
    let flow = lab.connection(&routes, Some(5_000_000));
    lab.world.run_until(Time::ZERO + Span::from_secs(1));
    let arc = lab.topology.find_link("A-B").unwrap().arc(sidestep_net::Direction::AToB);
    lab.world.network.set_state(lab.world.now(), arc, LinkState::Blackhole);
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(60)), Stopped::Finished(flow));
    assert_eq!(lab.world.acked_bytes(flow), 5_000_000);
    // The path that is left takes 4.3 s at least.
    assert!(lab.world.now().as_secs_f64() < 8.0, "{:?}", lab.world.now());
}

/// MPTCP of two subflows and plain TCP through one bottleneck: Mbit/s of each.
/// Sums over seeds: in one run the phases of both decide who gets more.
fn beside_tcp(coupling: Coupling) -> (f64, f64) {
    let run = |seed| {
        let mut lab = Lab::seeded(dumbbell(2), subflows(coupling), coupling, Scheduler::MinRtt, seed);
        let routes = [lab.routes("l1", "r1", None); 2];
        let mptcp = lab.connection(&routes, None);
        // A connection of one subflow grows as plain NewReno does under LIA.
        let route = [lab.routes("l2", "r2", None)];
        let tcp = lab.connection(&route, None);
        let goodput = lab.goodput(&[mptcp, tcp], 20, 220);
        (goodput[0], goodput[1])
    };
    (1..=8).map(run).fold((0.0, 0.0), |(mptcp, tcp), (more, beside)| (mptcp + more, tcp + beside))
}

#[test]
fn coupled_subflows_take_no_more_than_one_tcp_of_a_shared_bottleneck() {
    for coupling in [Coupling::Lia, Coupling::Olia, Coupling::Balia] {
        let (mptcp, tcp) = beside_tcp(coupling);
        assert!(mptcp <= 1.15 * tcp, "{coupling:?}: {mptcp} beside {tcp}");
        assert!(mptcp >= 0.5 * tcp, "{coupling:?}: {mptcp} beside {tcp}");
    }
    let (uncoupled, tcp) = beside_tcp(Coupling::Reno);
    assert!(uncoupled > 1.4 * tcp, "the check would not notice: {uncoupled} beside {tcp}");
}

#[test]
fn a_coupled_connection_gets_at_least_what_its_best_path_gives() {
    for coupling in [Coupling::Lia, Coupling::Olia, Coupling::Balia] {
        let mut lab = Lab::with(parallel(2), coupled(), coupling, Scheduler::MinRtt);
        let routes = [lab.routes("c1", "s1", Some("A-B")), lab.routes("c1", "s1", Some("A-B.2"))];
        let flow = lab.connection(&routes, None);
        let goodput = lab.goodput(&[flow], 5, 65)[0];
        assert!(goodput > 0.95 * 10.0 * 1408.0 / 1500.0, "{coupling:?}: {goodput}");
    }
}

fn coupled() -> Config {
    subflows(Coupling::Lia)
}

fn subflows(coupling: Coupling) -> Config {
    Config { algorithm: coupling.tcp(), ..Config::rfc() }
}
