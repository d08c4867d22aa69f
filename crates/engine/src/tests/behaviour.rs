//! Nodes that decide: what they may do with packets, and that the balance counts it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use sidestep_net::{ArcId, Direction, LinkId, Node as ModelNode, NodeId};
use sidestep_proto::packet::{Flags, Packet};

use super::*;

/// What a test saw or wants of a behaviour.
#[derive(Debug, Default)]
struct Record {
    handed: u32,
    held: Vec<(Time, PacketId)>,
    stuck: u32,
    left_by: Vec<ArcId>,
    controls: Vec<(Time, ArcId, u16)>,
    woken: Vec<Time>,
}

type Shared = Arc<Mutex<Record>>;

/// Decides by a function of how many packets it was handed before.
struct Decides<F> {
    record: Shared,
    decide: F,
}

impl<F> std::fmt::Debug for Decides<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decides")
    }
}

impl<F: FnMut(u32, &Leaving, &mut Node<'_>) -> Fate + Send> Behaviour for Decides<F> {
    fn handle_packet(&mut self, _: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        let mut record = self.record.lock().unwrap();
        record.handed += 1;
        (self.decide)(record.handed - 1, leaving, node)
    }

    fn handle_control(&mut self, now: Time, from: ArcId, packet: &Packet, _: &mut Node<'_>) {
        self.record.lock().unwrap().controls.push((now, from, packet.len));
    }
}

/// Holds each packet that leaves by one arc for this long.
#[derive(Debug)]
struct Holds {
    record: Shared,
    arc: ArcId,
    wait: Span,
}

impl Behaviour for Holds {
    fn handle_packet(&mut self, now: Time, leaving: &Leaving, _: &mut Node<'_>) -> Fate {
        if leaving.to != self.arc {
            return Fate::Forward;
        }
        self.record.lock().unwrap().held.push((now + self.wait, leaving.packet));
        Fate::Hold
    }

    fn handle_timeout(&mut self, now: Time, node: &mut Node<'_>) {
        let mut record = self.record.lock().unwrap();
        record.woken.push(now);
        while let Some((due, packet)) = record.held.first().copied().filter(|(due, _)| *due <= now) {
            match node.release(packet) {
                Some(arc) => {
                    assert_eq!(node.release(packet), None, "it is not held any more");
                    record.left_by.push(arc);
                    record.held.remove(0);
                }
                None => {
                    record.stuck += 1;
                    record.held[0].0 = due + Span::from_millis(10);
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.record.lock().unwrap().held.first().map(|(due, _)| *due)
    }
}

/// Sends a probe to the next node every 10 ms.
#[derive(Debug)]
struct Probes {
    next: Time,
    route: RouteId,
}

impl Behaviour for Probes {
    fn handle_packet(&mut self, _: Time, _: &Leaving, _: &mut Node<'_>) -> Fate {
        Fate::Forward
    }

    fn handle_timeout(&mut self, now: Time, node: &mut Node<'_>) {
        assert_eq!(now, self.next);
        self.next = now + Span::from_millis(10);
        node.send(Node::control(NO_FLOW, 64), self.route);
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
}

/// `c` and `s` behind A and B, which a link joins, and a longer path over C.
fn triangle() -> Topology {
    core(&["A", "B", "C"], &[("A", "B"), ("A", "C"), ("C", "B")])
}

/// These routers and links, with host `c` at `A` and host `s` at `B`.
fn core(routers: &[&str], links: &[(&str, &str)]) -> Topology {
    let mut topology = Topology::new();
    let hosts = ["c", "s"].map(|name| (name, NodeKind::Host));
    for (name, kind) in hosts.into_iter().chain(routers.iter().map(|name| (*name, NodeKind::Router))) {
        topology.add_node(ModelNode { name: name.into(), kind, prefix: None, locator: None }).unwrap();
    }
    let template = parallel(1);
    let core = template.links()[template.find_link("A-B").unwrap().index()].clone();
    for (a, b) in [("c", "A")].into_iter().chain(links.iter().copied()).chain([("B", "s")]) {
        let mut link = core.clone();
        (link.name, link.a, link.b) = (format!("{a}-{b}"), topology.find(a).unwrap(), topology.find(b).unwrap());
        topology.add_link(link).unwrap();
    }
    srv6::assign_addresses(&mut topology);
    topology
}

impl Lab {
    fn node(&self, name: &str) -> NodeId {
        self.topology.find(name).unwrap()
    }

    /// The arc over a link from its first end to its second.
    fn arc(&self, link: &str) -> ArcId {
        self.topology.find_link(link).unwrap().arc(Direction::AToB)
    }

    fn set(&mut self, name: &str, behaviour: impl Behaviour + 'static) {
        let node = self.node(name);
        self.world.network.set_behaviour(&self.topology, node, Box::new(behaviour));
    }

    fn decide(
        &mut self,
        name: &str,
        decide: impl FnMut(u32, &Leaving, &mut Node<'_>) -> Fate + Send + 'static,
    ) -> Shared {
        let record = Shared::default();
        self.set(name, Decides { record: record.clone(), decide });
        record
    }

    fn packets(&mut self, link: &str) -> u64 {
        let arc = self.arc(link);
        self.world.network.arc(self.world.now(), arc).0.packets
    }

    fn run(&mut self, millis: u64) {
        while self.world.run_until(Time::ZERO + Span::from_millis(millis)) != Stopped::Reached {}
        let balance = self.world.network.balance();
        assert!(balance.is_even(), "{balance:?}");
    }
}

/// Forwarding tables as the IGP fills them once it knows that these links are down.
#[derive(Debug)]
struct Tables {
    igp: Igp,
    topology: Topology,
    failed: BTreeSet<LinkId>,
}

impl Tables {
    fn boxed(topology: &Topology, failed: &BTreeSet<LinkId>) -> Box<dyn Forwarding> {
        let igp = Igp::without(topology, failed);
        Box::new(Tables { igp, topology: topology.clone(), failed: failed.clone() })
    }
}

impl Forwarding for Tables {
    fn route(&self, from: NodeId, to: NodeId, mut hash: u32) -> Option<Vec<ArcId>> {
        self.igp.distance(from, to)?;
        let (mut here, mut path) = (from, Vec::new());
        while here != to {
            let arcs: Vec<ArcId> = self.igp.next_arcs(here, to).collect();
            let scaled = u64::from(hash) * arcs.len() as u64;
            let arc = arcs[(scaled >> 32) as usize];
            hash = scaled as u32;
            path.push(arc);
            here = self.topology.head(arc);
        }
        Some(path)
    }

    fn is_up(&self, arc: ArcId) -> bool {
        !self.failed.contains(&arc.link())
    }
}

#[test]
fn behaviours_that_let_everything_go_on_change_nothing() {
    let run = |behave: bool, ahead: bool| {
        let mut lab = Lab::new(triangle(), Config::rfc());
        if ahead {
            lab.world.network.look_ahead_from(0);
        }
        let flows = [lab.flow("c", "s", None), lab.flow("s", "c", Some(400_000))];
        if behave {
            // In the middle of a run: hops of routes that are there already are marked.
            lab.run(50);
            for name in ["c", "A", "B"] {
                lab.decide(name, |_, _, _| Fate::Forward);
            }
        }
        lab.run(5_000);
        (flows.map(|flow| lab.world.acked_bytes(flow)), lab.world.network.balance(), lab.world.network.traversals())
    };
    let plain = run(false, false);
    assert!(plain.0[0] > 1_000_000 && plain.0[1] == 400_000);
    assert_eq!(run(true, false), plain);
    assert_eq!(run(true, true), plain);
}

#[test]
fn a_node_is_handed_what_its_host_sends_and_what_passes_but_not_what_ends_there() {
    let mut lab = Lab::new(triangle(), Config::rfc());
    let at_host = lab.decide("c", |_, leaving, _| {
        assert_eq!(leaving.from, None);
        Fate::Forward
    });
    let arc = lab.arc("c-A");
    let passing = lab.decide("A", move |_, leaving, _| {
        assert!(leaving.from == Some(arc) || leaving.to == arc.reversed());
        Fate::Forward
    });
    lab.flow("c", "s", Some(50_000));
    lab.run(4_000);
    let (host, router) = (at_host.lock().unwrap().handed, passing.lock().unwrap().handed);
    assert_eq!(u64::from(host), lab.packets("c-A"));
    assert!(router > host && u64::from(router) == lab.world.network.balance().injected);
}

#[test]
fn held_packets_are_counted_and_arrive_as_much_later_as_they_were_held() {
    let took = |wait: Option<u64>| {
        let mut lab = Lab::new(triangle(), Config::rfc());
        let record = Shared::default();
        if let Some(wait) = wait {
            let (arc, wait) = (lab.arc("A-B"), Span::from_millis(wait));
            lab.set("A", Holds { record: record.clone(), arc, wait });
        }
        let flow = lab.flow("c", "s", Some(1_000));
        lab.run(12);
        assert_eq!(lab.world.network.balance().held, u64::from(wait.is_some()), "the SYN");
        assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(flow));
        let balance = lab.world.network.balance();
        assert!(balance.is_even() && balance.held == 0);
        lab.world.now().as_secs_f64()
    };
    // A SYN and a segment pass.
    let later = took(Some(20)) - took(None);
    assert!((0.0399..0.0402).contains(&later), "{later}");
}

#[test]
fn a_held_packet_whose_link_is_gone_takes_the_route_of_the_forwarding_table() {
    let mut lab = Lab::new(triangle(), Config::rfc());
    let record = Shared::default();
    let (arc, wait) = (lab.arc("A-B"), Span::from_millis(30));
    lab.set("A", Holds { record: record.clone(), arc, wait });
    let flow = lab.flow("c", "s", Some(1_000));
    lab.run(20);
    assert_eq!(lab.world.network.balance().held, 1);
    lab.world.network.set_state(lab.world.now(), arc, LinkState::Down);
    // Without a forwarding table there is nowhere to go.
    lab.run(60);
    assert!(record.lock().unwrap().stuck > 0 && lab.world.network.balance().held == 1);
    let failed = [lab.topology.find_link("A-B").unwrap()].into();
    lab.world.network.set_forwarding(|| Tables::boxed(&lab.topology, &failed));
    lab.run(100);
    assert_eq!(record.lock().unwrap().left_by, [lab.arc("A-C")]);
    let forward = lab.world.network.add_route(["c-A", "A-C", "C-B", "B-s"].map(|link| (lab.arc(link), 0)));
    lab.world.reroute(flow, Move { forward: Some(forward), reverse: None });
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(flow));
    assert!(lab.world.network.balance().is_even());
}

#[test]
fn held_packets_of_a_flow_are_spread_over_equal_paths_by_the_hash_of_the_flow() {
    let square = core(&["A", "B", "C", "D"], &[("A", "B"), ("A", "C"), ("A", "D"), ("C", "B"), ("D", "B")]);
    // One direction is held where it enters the link that fails. The hash of the other direction does not matter.
    for (held_at, link, there) in [("A", "A-B", true), ("B", "A-B", false)] {
        let left_by = |hash: u32| {
            let mut lab = Lab::new(square.clone(), Config::rfc());
            let arc = if there { lab.arc(link) } else { lab.arc(link).reversed() };
            let record = Shared::default();
            lab.set(held_at, Holds { record: record.clone(), arc, wait: Span::from_millis(30) });
            let flow = lab.flow("c", "s", Some(1_000));
            lab.world.set_hashes(flow, if there { (hash, !hash) } else { (!hash, hash) });
            while lab.world.network.balance().held == 0 {
                lab.run((lab.world.now().as_secs_f64() * 1e3) as u64 + 1);
            }
            let failed = [lab.topology.find_link(link).unwrap()].into();
            lab.world.network.set_state(lab.world.now(), arc, LinkState::Down);
            lab.world.network.set_forwarding(|| Tables::boxed(&lab.topology, &failed));
            lab.run(200);
            let left_by = record.lock().unwrap().left_by[0];
            lab.topology.link(left_by.link()).name.clone()
        };
        let over = if there { ["A-C", "A-D"] } else { ["C-B", "D-B"] };
        assert_eq!([0, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff].map(left_by), [over[0], over[0], over[1], over[1]]);
    }
}

#[test]
fn a_detour_leads_back_to_the_route_and_a_new_route_to_its_end() {
    for whole in [false, true] {
        let mut lab = Lab::new(triangle(), Config::rfc());
        let mut links = vec!["A-C", "C-B"];
        if whole {
            links.push("B-s");
        }
        let arcs: Vec<ArcId> = links.iter().map(|link| lab.arc(link)).collect();
        let route = lab.world.network.add_route(arcs.iter().map(|arc| (*arc, 0)));
        let avoided = lab.arc("A-B");
        // Every other packet.
        lab.decide("A", move |count, leaving, _| match leaving.to == avoided && count % 2 == 0 {
            true if whole => Fate::Reroute(route),
            true => Fate::Detour(route),
            false => Fate::Forward,
        });
        // The end of a detour may be a node that decides as well.
        let seen = lab.decide("B", |_, _, _| Fate::Forward);
        let flow = lab.flow("c", "s", Some(100_000));
        assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(flow));
        assert!(lab.world.network.balance().is_even());
        let (direct, around) = (lab.packets("A-B"), lab.packets("C-B"));
        assert!(direct > 20 && around > 20, "{direct} and {around}");
        assert_eq!(lab.packets("B-s"), direct + around);
        assert!(u64::from(seen.lock().unwrap().handed) > direct + around);
    }
}

#[test]
fn a_dropped_packet_is_lost_under_its_reason() {
    let mut lab = Lab::new(triangle(), Config::rfc());
    lab.decide("A", |count, _, _| if count == 5 { Fate::Drop("test") } else { Fate::Forward });
    let flow = lab.flow("c", "s", Some(100_000));
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(flow));
    assert_eq!(lab.world.network.discarded(), [("test", 1)].into());
    assert_eq!(lab.world.network.balance().lost, 1);
    let at = |link: &str| lab.world.network.discarded_at(lab.arc(link));
    assert_eq!((at("A-B"), at("C-B")), (1, 0));
}

#[test]
fn a_node_may_change_what_a_packet_holds_but_not_how_long_it_is() {
    let mut lab = Lab::new(triangle(), Config { ecn: true, ..Config::rfc() });
    lab.decide("A", |_, leaving, node| {
        node.edit(leaving.packet, |packet| {
            (packet.len, packet.flow) = (1, 77);
            packet.flags = packet.flags.with(Flags::CE);
        });
        Fate::Forward
    });
    let flow = lab.flow("c", "s", Some(200_000));
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(9)), Stopped::Finished(flow));
    assert!(lab.world.sender(flow).unwrap().delivered_ce() > 0, "the receiver saw the marks");
    assert!(lab.world.network.balance().is_even());
}

#[test]
fn probes_reach_the_next_nodes_behaviour_on_time() {
    let mut lab = Lab::new(triangle(), Config::rfc());
    let arc = lab.arc("A-B");
    let route = lab.world.network.add_route([(arc, 0)]);
    lab.set("A", Probes { next: Time::ZERO + Span::from_millis(10), route });
    let record = lab.decide("B", |_, _, _| Fate::Forward);
    lab.run(1_000);
    let controls = record.lock().unwrap().controls.clone();
    assert_eq!(controls.len(), 99, "one each 10 ms, and the last is in flight");
    let channel = lab.topology.channel(arc);
    let first = Time::ZERO + Span::from_millis(10) + channel.delay + channel.rate.time_for(Bytes::new(64));
    assert_eq!(controls[0], (first, arc, 64));
    assert_eq!(lab.world.network.balance().injected, 100);
}

#[test]
fn an_outage_of_the_link_leaves_the_held_packets_with_the_node() {
    let mut lab = Lab::new(triangle(), Config::rfc());
    let record = Shared::default();
    let (arc, wait) = (lab.arc("A-B"), Span::from_secs(3));
    lab.set("A", Holds { record, arc, wait });
    lab.flow("c", "s", Some(1_000));
    lab.run(500);
    lab.world.network.set_state(lab.world.now(), LinkId(1).arc(Direction::AToB), LinkState::Down);
    lab.world.network.set_state(lab.world.now(), LinkId(1).arc(Direction::AToB), LinkState::Up);
    lab.run(2_999);
    let balance = lab.world.network.balance();
    assert!(balance.held >= 1 && balance.lost == 0, "{balance:?}");
}
