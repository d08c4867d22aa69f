//! Intelligent route control: the edge of a multihomed site moves the aggregate of its flows between its egress links.
//!
//! A controlled edge has a controller for each other edge that its hosts send to. Its egresses towards there are its links
//! to other routers, each followed by the shortest path that does not come back; the shortest one is the primary. Whatever
//! its hosts send takes the egress in use. Answers come as the IGP has them, by whatever egress. Edges of hosts answer
//! probes, over the IGP's path back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_engine::{Behaviour, Fate, Leaving, NO_FLOW, Node, RouteId};
use sidestep_net::{ArcId, Bytes, Channel, NodeId, Rate, Time, Topology};
use sidestep_paths::Igp;
use sidestep_proto::{
    link::LinkState,
    packet::{Flags, Kind, Packet},
};
use sidestep_results::{Doubt, DoubtKind, ReturnPath, single_ways};
use sidestep_scenario::{Flow, SystemInfo};
use sidestep_sim::{
    SimError,
    system::{Context, MakeBehaviour, Setup, System},
};

use crate::{BUCKETS, Controller, Probe, RouteControlMode, RouteControlSettings, Sample, Timeout};

/// Bytes of a probe, and of its answer.
const PROBE: u16 = 64;

/// Route control at the edges of multihomed sites.
#[derive(Clone, Copy, Debug)]
pub struct RouteControl;

impl System for RouteControl {
    fn info(&self) -> SystemInfo {
        crate::ROUTE_CONTROL
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    let settings: RouteControlSettings = context.settings()?;
    let topology = Arc::new(context.scenario.topology.clone());
    let sites = sites(context, &settings)?;
    let (returns, doubts) = match settings.mode {
        RouteControlMode::None => (Vec::new(), Vec::new()),
        _ => returns(context, &sites),
    };
    let shared = Arc::new(Shared {
        igp: Igp::new(&topology),
        topology: topology.clone(),
        settings,
        seed: context.scenario.chance(context.scenario.seed),
    });
    let behaviour = MakeBehaviour(Arc::new(move |topology, node| {
        let hosts = hosts_of(topology, node);
        if sites.contains(&node) {
            return Some(Box::new(Site::new(shared.clone(), node, hosts)));
        }
        let reflector = Reflector { shared: shared.clone(), node, answers: BTreeMap::new() };
        (!hosts.is_empty()).then(|| Box::new(reflector) as Box<dyn Behaviour>)
    }));
    Ok(Setup { behaviour: Some(behaviour), returns, doubts, ..Setup::tcp(context)? })
}

/// The paths back to the sites from the edges that their hosts send to, and where a site has no choice.
fn returns(context: &Context<'_>, sites: &BTreeSet<NodeId>) -> (Vec<ReturnPath>, Vec<Doubt>) {
    let topology = &context.scenario.topology;
    let connections = context.scenario.flows.iter().filter(|flow| flow.transport().is_some());
    let edges = connections
        .flat_map(Flow::pairs)
        .filter_map(|(from, to)| topology.access_router(*from).zip(topology.access_router(*to)));
    let towards: BTreeSet<(NodeId, NodeId)> = edges.filter(|(site, far)| sites.contains(site) && site != far).collect();
    let name = |node: NodeId| topology.node(node).name.clone();
    let igp = Igp::new(topology);
    let back = |(site, far): &(NodeId, NodeId)| {
        let arcs = igp.first_path(*far, *site).unwrap_or_default();
        let egresses = ways(topology, *site, *far).into_iter().map(|(_, arcs)| arcs).collect();
        ReturnPath { site: name(*site), far: name(*far), arcs, egresses }
    };
    let returns: Vec<ReturnPath> = towards.iter().map(back).collect();
    let egresses: Vec<_> =
        returns.iter().map(|back| (back.site.clone(), back.far.clone(), back.egresses.len())).collect();
    let mut doubts: Vec<Doubt> = single_ways(&egresses, "egress").into_iter().collect();
    if returns.is_empty() {
        let text = "no edge with two egresses has hosts that send: nothing is controlled";
        doubts.push(Doubt::new(DoubtKind::CouldNotAct, text));
    }
    (returns, doubts)
}

/// The paths from a site to another edge, none of which comes back, each with its length; the shortest first.
fn ways(topology: &Topology, site: NodeId, edge: NodeId) -> Vec<(u64, Vec<ArcId>)> {
    let links = egress_links(topology, site);
    let beyond = Igp::without(topology, &links.iter().map(|arc| arc.link()).collect());
    let mut found: Vec<(u64, Vec<ArcId>)> = Vec::new();
    for arc in links {
        let next = topology.head(arc);
        let rest = beyond.first_path(next, edge);
        if let Some((rest, distance)) = rest.zip(beyond.distance(next, edge)) {
            let arcs = std::iter::once(arc).chain(rest).collect();
            found.push((distance + topology.channel(arc).weight, arcs));
        }
    }
    found.sort();
    found
}

/// The routers that control routes.
fn sites(context: &Context<'_>, settings: &RouteControlSettings) -> Result<BTreeSet<NodeId>, SimError> {
    let topology = &context.scenario.topology;
    if settings.edges.is_empty() {
        let connections = context.scenario.flows.iter().filter(|flow| flow.transport().is_some());
        let senders = connections.flat_map(Flow::pairs);
        let edges = senders.filter_map(|(from, _)| topology.access_router(*from));
        return Ok(edges.filter(|edge| egress_links(topology, *edge).len() >= 2).collect());
    }
    let wrong = |problem: String| context.bad_value("edges", problem);
    let site = |name: &String| {
        let node = topology.find(name).map_err(|error| wrong(error.to_string()))?;
        let controls = topology.is_router(node) && !hosts_of(topology, node).is_empty();
        if !controls || egress_links(topology, node).len() < 2 {
            return Err(wrong(format!("`{name}` is not a router with hosts and at least two links to other routers")));
        }
        Ok(node)
    };
    settings.edges.iter().map(site).collect()
}

/// The arcs from a router to other routers.
fn egress_links(topology: &Topology, router: NodeId) -> Vec<ArcId> {
    let arcs = topology.outgoing(router).iter().copied();
    arcs.filter(|arc| topology.is_router(topology.head(*arc))).collect()
}

/// The arcs from hosts to a router, ascending; none to a host.
fn hosts_of(topology: &Topology, router: NodeId) -> Vec<ArcId> {
    if !topology.is_router(router) {
        return Vec::new();
    }
    let mut arcs: Vec<ArcId> = topology.host_arcs(router).map(ArcId::reversed).collect();
    arcs.sort_unstable();
    arcs
}

/// What all edges of a run share.
#[derive(Debug)]
struct Shared {
    topology: Arc<Topology>,
    igp: Igp,
    settings: RouteControlSettings,
    seed: u64,
}

/// An edge that answers probes, and does nothing else.
#[derive(Debug)]
struct Reflector {
    shared: Arc<Shared>,
    node: NodeId,
    /// By the edge that asks.
    answers: BTreeMap<NodeId, Option<RouteId>>,
}

/// An edge that controls its routes.
#[derive(Debug)]
struct Site {
    shared: Arc<Shared>,
    node: NodeId,
    /// The arcs by which its hosts' packets come, ascending.
    hosts: Vec<ArcId>,
    /// Its egress links that are not as the topology has them: whether each has carrier, and whether it is impaired.
    links: BTreeMap<ArcId, (bool, bool)>,
    towards: Vec<PeerEdge>,
    /// By other edge: index into `towards`; `None`: there are no two paths there.
    known: BTreeMap<NodeId, Option<usize>>,
    /// By the arc to a host, ascending.
    destinations: Vec<(ArcId, Option<Destination>)>,
    /// By flow.
    flows: Vec<Seen>,
    random: Pcg32,
    reflector: Reflector,
}

/// The control towards another edge.
#[derive(Debug)]
struct PeerEdge {
    controller: Controller,
    egresses: Vec<Egress>,
    /// Bytes acknowledged since the last sample.
    acked: u64,
    /// Connections seen since then.
    connections: u32,
    last_advance: Option<Time>,
    /// Samples so far.
    samples: u32,
    /// By egress: bytes that were sent since the last sample.
    sent: Vec<Bytes>,
}

/// A path to another edge.
#[derive(Debug)]
struct Egress {
    arcs: Vec<ArcId>,
    probes: RouteId,
}

/// A host behind another edge.
#[derive(Debug)]
struct Destination {
    toward: usize,
    /// By egress.
    routes: Vec<RouteId>,
}

/// What was seen of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    toward: u32,
    /// In how many samples its edge had been when data of it was seen last, and one more.
    sample: u32,
    /// Payload of a segment.
    mss: u16,
    acked: u32,
}

impl Site {
    fn new(shared: Arc<Shared>, node: NodeId, hosts: Vec<ArcId>) -> Site {
        Site {
            reflector: Reflector { shared: shared.clone(), node, answers: BTreeMap::new() },
            random: Pcg32::seed_from_u64(shared.seed ^ u64::from(node.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            shared,
            node,
            hosts,
            links: BTreeMap::new(),
            towards: Vec::new(),
            known: BTreeMap::new(),
            destinations: Vec::new(),
            flows: Vec::new(),
        }
    }

    /// Where in `destinations` the host is that `last` leads to.
    fn destination(&mut self, now: Time, last: ArcId, node: &mut Node<'_>) -> usize {
        self.destinations.binary_search_by_key(&last, |(arc, _)| *arc).unwrap_or_else(|at| {
            let found = self.find(now, last, node);
            self.destinations.insert(at, (last, found));
            at
        })
    }

    fn find(&mut self, now: Time, last: ArcId, node: &mut Node<'_>) -> Option<Destination> {
        let edge = self.shared.topology.tail(last);
        let toward = match self.known.get(&edge) {
            Some(known) => *known,
            None => {
                let toward = self.toward(now, edge, node).map(|toward| {
                    self.towards.push(toward);
                    self.towards.len() - 1
                });
                self.known.insert(edge, toward);
                toward
            }
        }?;
        let route = |egress: &Egress| {
            let arcs: Vec<ArcId> = egress.arcs.iter().copied().chain([last]).collect();
            node.add_route(&arcs)
        };
        Some(Destination { toward, routes: self.towards.get(toward)?.egresses.iter().map(route).collect() })
    }

    /// The control towards another edge, the primary first; `None` if there are no two paths.
    fn toward(&self, now: Time, edge: NodeId, node: &mut Node<'_>) -> Option<PeerEdge> {
        let topology = &self.shared.topology;
        if edge == self.node || !topology.is_router(edge) {
            return None;
        }
        let found = ways(topology, self.node, edge);
        if found.len() < 2 {
            return None;
        }
        let rate = |arcs: &[ArcId]| {
            let limited = arcs.iter().map(|arc| topology.channel(*arc).rate).filter(|rate| *rate > Rate::ZERO);
            limited.min().unwrap_or(Rate::ZERO)
        };
        let capacities: Vec<Rate> = found.iter().map(|(_, arcs)| rate(arcs)).collect();
        // The settings were checked when the scenario was read.
        let mut controller = Controller::new(&self.shared.settings, &capacities, now).ok()?;
        let egress = |(_, arcs): (u64, Vec<ArcId>)| Egress { probes: node.add_route(&arcs), arcs };
        let egresses: Vec<Egress> = found.into_iter().map(egress).collect();
        for (number, egress) in egresses.iter().enumerate() {
            if let Some((carrier, impaired)) = egress.arcs.first().and_then(|arc| self.links.get(arc)) {
                controller.handle_carrier(now, number, *carrier);
                controller.handle_impairment(now, number, *impaired);
            }
        }
        let sent = vec![Bytes::default(); egresses.len()];
        Some(PeerEdge { controller, egresses, acked: 0, connections: 0, last_advance: None, samples: 0, sent })
    }

    /// What is known of a flow.
    fn seen(&mut self, flow: u32) -> &mut Seen {
        let index = flow as usize;
        if self.flows.len() <= index {
            self.flows.resize(index + 1, Seen::default());
        }
        &mut self.flows[index]
    }

    /// The bucket of a flow: the engine gives flows hashes only where routers choose by them.
    fn bucket(&self, flow: u32) -> usize {
        // A round of SplitMix64.
        let mut mixed =
            (self.shared.seed ^ u64::from(self.node.0) << 32 ^ u64::from(flow)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as usize % BUCKETS
    }

    /// A packet of a host leaves.
    fn note_outbound(&mut self, packet: &Packet, toward: usize) {
        if packet.flow == NO_FLOW || !matches!(packet.kind, Kind::Data | Kind::Syn) {
            return;
        }
        let sample = self.towards.get(toward).map_or(0, |toward| toward.samples) + 1;
        let seen = self.seen(packet.flow);
        if packet.kind == Kind::Syn {
            // The number may have been another connection's.
            *seen = Seen::default();
        }
        if packet.kind == Kind::Data && packet.seq == 0 && !packet.flags.has(Flags::RETRANSMIT) {
            // Answers to requests begin without a SYN of their own.
            seen.acked = 0;
        }
        let new = seen.sample != sample;
        (seen.toward, seen.sample, seen.mss) = (toward as u32, sample, seen.mss.max(packet.payload));
        if let Some(toward) = self.towards.get_mut(toward) {
            toward.connections += u32::from(new);
        }
    }

    /// A packet for a host has come.
    fn note_inbound(&mut self, now: Time, packet: &Packet) {
        if packet.kind != Kind::Ack || packet.flow as usize >= self.flows.len() {
            return;
        }
        let seen = self.seen(packet.flow);
        let segments = packet.seq.saturating_sub(seen.acked);
        if segments == 0 || seen.sample == 0 {
            return;
        }
        seen.acked = packet.seq;
        let (toward, bytes) = (seen.toward as usize, u64::from(segments) * u64::from(seen.mss));
        if let Some(toward) = self.towards.get_mut(toward) {
            toward.acked += bytes;
            toward.last_advance = Some(now);
        }
    }
}

impl PeerEdge {
    /// Does what is due, and sends probes.
    fn serve(&mut self, now: Time, index: usize, site: NodeId, random: u32, node: &mut Node<'_>) {
        while let Some((_, timeout)) = self.controller.next_timeout().filter(|(due, _)| *due <= now) {
            if timeout == Timeout::Decision {
                let acked = Bytes::new(std::mem::take(&mut self.acked));
                let connections = std::mem::take(&mut self.connections);
                self.samples += 1;
                self.controller.handle_sample(now, Sample { acked, connections, last_advance: self.last_advance });
                self.controller.handle_sent(now, &self.sent);
                self.sent.fill(Bytes::default());
            }
            self.controller.handle_timeout(now, random);
            while let Some(Probe { egress, period, number }) = self.controller.poll_transmit(now) {
                let Some(way) = self.egresses.get(egress as usize) else { continue };
                let ask = Packet {
                    sent: now.into(),
                    seq: number,
                    data_seq: period,
                    window: egress,
                    rate: index as u32,
                    rtt: site.0,
                    ..Node::control(NO_FLOW, PROBE)
                };
                node.send(ask, way.probes);
            }
        }
        self.report(node);
    }

    /// Lets the results know of a move.
    fn report(&mut self, node: &mut Node<'_>) {
        if let Some(decision) = self.controller.poll_decision().filter(|decision| decision.from != decision.to) {
            node.note_move(decision.reason.as_str());
        }
        if let Some(shift) = self.controller.poll_shift() {
            node.note_move(shift.reason.as_str());
        }
    }

    /// A packet of a flow of this bucket leaves; returns its egress.
    fn leave(&mut self, bucket: usize, length: u32) -> usize {
        let egress = self.controller.egress_of(bucket);
        if let Some(sent) = self.sent.get_mut(egress) {
            *sent = *sent + Bytes::new(length.into());
        }
        egress
    }
}

impl Reflector {
    /// Answers a probe.
    fn reflect(&mut self, now: Time, probe: &Packet, node: &mut Node<'_>) {
        let (shared, from) = (&self.shared, self.node);
        let asks = NodeId(probe.rtt);
        let route = self.answers.entry(asks).or_insert_with(|| {
            let arcs = shared.igp.first_path(from, asks).filter(|arcs| !arcs.is_empty());
            arcs.map(|arcs| node.add_route(&arcs))
        });
        let Some(route) = *route else { return };
        // The delay to here, in the place of the time at which it was sent.
        let delay = probe.sent.get().map(|sent| Time::ZERO + now.since(sent));
        node.send(Packet { sent: delay.into(), payload: ANSWER, cursor: 0, ..*probe }, route);
    }
}

/// What distinguishes an answer from a probe.
const ANSWER: u16 = 1;

impl Behaviour for Reflector {
    fn wants(&self, _: ArcId) -> bool {
        false
    }

    fn handle_packet(&mut self, _: Time, _: &Leaving, _: &mut Node<'_>) -> Fate {
        Fate::Forward
    }

    fn handle_control(&mut self, now: Time, _: ArcId, packet: &Packet, node: &mut Node<'_>) {
        if packet.payload != ANSWER {
            self.reflect(now, packet, node);
        }
    }
}

impl Behaviour for Site {
    fn handle_packet(&mut self, now: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        let Some(from) = leaving.from else { return Fate::Forward };
        let outbound = self.hosts.binary_search(&from).is_ok();
        let inbound = self.hosts.binary_search(&leaving.to.reversed()).is_ok();
        if outbound == inbound {
            return Fate::Forward;
        }
        let packet = node.packet(leaving.packet);
        // A host chose the path: what is addressed to segments is not addressed to a destination.
        if leaving.len > u32::from(packet.len) {
            return Fate::Forward;
        }
        if inbound {
            self.note_inbound(now, &packet);
            return Fate::Forward;
        }
        let at = self.destination(now, node.last_arc(leaving), node);
        let Some((_, Some(Destination { toward, .. }))) = self.destinations.get(at) else { return Fate::Forward };
        let toward = *toward;
        self.note_outbound(&packet, toward);
        let bucket = self.bucket(packet.flow);
        let egress = self.towards.get_mut(toward).map_or(0, |toward| toward.leave(bucket, leaving.len));
        let routes = self.destinations.get(at).and_then(|(_, destination)| destination.as_ref());
        routes.and_then(|of| of.routes.get(egress)).map_or(Fate::Forward, |route| Fate::Reroute(*route))
    }

    fn handle_control(&mut self, now: Time, from: ArcId, packet: &Packet, node: &mut Node<'_>) {
        if packet.payload != ANSWER {
            self.reflector.handle_control(now, from, packet, node);
            return;
        }
        let probe = Probe { egress: packet.window, period: packet.data_seq, number: packet.seq };
        let delay = packet.sent.get().map(|delay| delay.since(Time::ZERO));
        if let Some(toward) = self.towards.get_mut(packet.rate as usize) {
            toward.controller.handle_answer(now, probe, delay);
        }
    }

    fn handle_link(&mut self, now: Time, arc: ArcId, channel: &Channel, state: LinkState, node: &mut Node<'_>) {
        let usual = self.shared.topology.channel(arc);
        let worse = channel.loss > usual.loss || channel.rate < usual.rate || channel.burst_loss != usual.burst_loss;
        let (carrier, impaired) = (state != LinkState::Down, state != LinkState::Up || worse);
        self.links.insert(arc, (carrier, impaired));
        for toward in &mut self.towards {
            let over = toward.egresses.iter().position(|egress| egress.arcs.first() == Some(&arc));
            if let Some(egress) = over {
                toward.controller.handle_carrier(now, egress, carrier);
                toward.controller.handle_impairment(now, egress, impaired);
                toward.report(node);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time, node: &mut Node<'_>) {
        for (index, toward) in self.towards.iter_mut().enumerate() {
            toward.serve(now, index, self.node, self.random.next_u32(), node);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.towards.iter().filter_map(|toward| toward.controller.poll_timeout()).min()
    }
}

#[cfg(test)]
mod tests;
