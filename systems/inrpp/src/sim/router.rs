//! A router: the core, the links and neighbours of its node, and the packets by which neighbours ask each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sidestep_engine::{
    Behaviour, CacheReport, Counter, Fate, Leaving, NO_FLOW, Node, PacketId, RouteId, Sizes, Stored,
};
use sidestep_net::{ArcId, Bytes, Channel, LinkId, NodeId, QueueLimit, Span, Time, Topology};
use sidestep_proto::{
    link::LinkState,
    packet::{Flags, Kind, Packet},
};

use super::{
    custody::{Arrival, Custody, Level, Network, Seen},
    nonces_of, read_fields, with_fields,
};
use crate::{
    AckFields, Backpressure, Egress, Grant, Handle, Hosts, InrppSettings, Interface, InterfaceError, Key, LimitFields,
    Loss, Meta, Nonce, Nonces, Notice, Notification, Notifications, Port, Preset, Probe, Router, RouterId, Way,
};

/// The length of a probe, and of the answer to one.
const CONTROL: u16 = 40 + 24;

/// A router, and its interfaces by the arcs that leave it, ascending.
#[derive(Debug)]
pub(super) struct RouterNode {
    router: Router,
    arcs: Vec<ArcId>,
    /// The ends of these arcs.
    heads: Vec<NodeId>,
    /// By interface and the one that its detour begins with: the detour.
    detours: BTreeMap<(Port, Port), Around>,
    /// How its interfaces press back, and whether notifications ride on ACKs.
    backpressure: Backpressure,
    on_acks: bool,
    /// Whether all TCP is INRPP's, as hosts are not modified.
    all_tcp: bool,
    /// By interface: the account of what its cache must have room for; empty where the condition for no loss does not apply.
    custody: Vec<Custody>,
    /// Where an explicit S_high leaves least of what neighbours' detours may bring, with limits; and that.
    unkept: Option<(Bytes, ArcId)>,
}

/// A detour of one hop.
#[derive(Clone, Copy, Debug)]
struct Around {
    arcs: [ArcId; 2],
    route: Option<RouteId>,
}

impl RouterNode {
    pub(super) fn new(
        topology: &Topology,
        node: NodeId,
        config: crate::Config,
        settings: &InrppSettings,
        borders: &BTreeSet<LinkId>,
        network: Option<&Arc<Network>>,
    ) -> Result<RouterNode, InterfaceError> {
        let mut arcs = topology.outgoing(node).to_vec();
        arcs.sort_unstable();
        let heads: Vec<_> = arcs.iter().map(|arc| topology.head(*arc)).collect();
        let mut detours = BTreeMap::new();
        let mut interfaces = Vec::new();
        let mut unkept = None;
        let longest = arcs.iter().map(|arc| topology.channel(*arc).delay).max().unwrap_or_default();
        for (of, (arc, far)) in arcs.iter().zip(&heads).enumerate() {
            let channel = topology.channel(*arc);
            let is_inner = topology.is_router(*far);
            let key = is_inner.then(|| key_of(*arc));
            let rtt = Span::from_nanos(longest.as_nanos().saturating_mul(4));
            let (buffer, nonce) = (buffer(channel, settings.buffer), Nonce(arc.0 + 1));
            let mut interface = Interface::new(channel.rate, buffer, settings.cache, rtt, key, nonce);
            if settings.preset == Preset::Ns3 {
                let [cache, high] = NS3_CACHE.map(|long| channel.rate.bytes_in(long));
                (interface.cache, interface.high) = (cache, high);
            }
            interface.others = channel.rate.bytes_in(settings.tcp_buffer);
            for (over, (first, neighbour)) in arcs.iter().zip(&heads).enumerate() {
                if !settings.detours || !is_inner || neighbour == far || !topology.is_router(*neighbour) {
                    continue;
                }
                let second = topology.outgoing(*neighbour).iter().find(|arc| topology.head(**arc) == *far);
                let crosses = |arc: &ArcId| borders.contains(&arc.link());
                if let Some(second) = second.filter(|second| ![arc, first, second].into_iter().any(crosses)) {
                    let places = (Port(of as u16), Port(over as u16));
                    detours.insert(places, Around { arcs: [*first, *second], route: None });
                    interface.detours.push(Port(over as u16));
                }
            }
            if settings.backpressure == Backpressure::Limits {
                unkept = unkept.max(keep_room(settings, &mut interface).map(|bytes| (bytes, *arc)));
            }
            interface.high = settings.high.given().unwrap_or(interface.high);
            interface.low = settings.low.given().unwrap_or(Bytes::new(interface.high.get() / 2));
            interfaces.push(interface);
        }
        let account = |network: &Arc<Network>| {
            let of = arcs.iter().zip(&interfaces);
            of.map(|(arc, of)| Custody::new(network.clone(), *arc, of.high, of.cache)).collect()
        };
        let custody = network.map(account).unwrap_or_default();
        let router = Router::new(config, RouterId(node.0), interfaces)?;
        let on_acks = settings.notifications == Notifications::Acks;
        let (backpressure, all_tcp) = (settings.backpressure, settings.hosts == Hosts::Unmodified);
        Ok(RouterNode { router, arcs, heads, detours, backpressure, on_acks, all_tcp, custody, unkept })
    }

    /// The most that neighbours' detours may bring over one of its links for which S_high leaves no room; and that link.
    pub(super) fn unkept(&self) -> Option<(Bytes, ArcId)> {
        self.unkept
    }

    /// The links that are probed, as the interfaces of the router have detours over them.
    pub(super) fn probed(&self) -> BTreeSet<ArcId> {
        self.detours.values().map(|around| around.arcs[0]).collect()
    }

    fn port(&self, arc: ArcId) -> Option<Port> {
        self.arcs.binary_search(&arc).ok().map(|at| Port(at as u16))
    }

    /// Notes that a data packet has come to a cache.
    fn account(&mut self, now: Time, at: Port, leaving: &Leaving, meta: &Meta, node: &Node<'_>) {
        let Some(custody) = self.custody.get_mut(usize::from(at.0)) else { return };
        let level = Level { held: self.router.occupancy(at), dropped: self.router.counters(at).dropped };
        custody.holds(level.held);
        let again = node.packet(leaving.packet).flags.has(Flags::RETRANSMIT);
        let seen = Seen { flow: meta.flow, len: meta.len, again };
        if custody.sees(now, self.router.state(at), seen, level) {
            let before = node.arcs_before(leaving);
            let detour = leaving.from.filter(|_| meta.detoured);
            let arrival = Arrival { flow: meta.flow, detour, before: &before };
            custody.arrives(now, &arrival, level.held);
        }
    }

    /// Notes what the router writes on an ACK, of data that leaves by `from`, for those before it.
    fn account_ack(&mut self, now: Time, from: Port, back: ArcId, flow: u64, said: &AckFields, node: &Node<'_>) {
        let Some(custody) = self.custody.get_mut(usize::from(from.0)) else { return };
        custody.handle_ack(flow);
        if said.notification.is_some() || said.nonces != Nonces::default() {
            custody.waits(back, node.free_at(back).since(now));
        }
        match said.notification.map(|said| said.notice) {
            Some(Notice::SlowDown) => {
                let level = Level { held: self.router.occupancy(from), dropped: self.router.counters(from).dropped };
                custody.count_notification(now, flow, level);
            }
            Some(Notice::Cancel) => custody.ends(),
            None => {}
        }
    }

    /// The router, and the node as it sees it.
    fn with<'a, 'n>(&'a mut self, node: &'a mut Node<'n>) -> (&'a mut Router, Out<'a, 'n>) {
        (&mut self.router, Out { node, arcs: &self.arcs, heads: &self.heads, detours: &mut self.detours })
    }
}

/// With [`Preset::Ns3`]: how long a cache that is full takes to drain, and one that is at its high threshold.
const NS3_CACHE: [Span; 2] = [Span::from_secs(10), Span::from_secs(8)];

/// Leaves room in a cache, with limits, for what neighbours' detours over its link may bring: these have no limit there, and last
/// until their routers' next decision. Returns that where an explicit S_high leaves less.
fn keep_room(settings: &InrppSettings, interface: &mut Interface) -> Option<Bytes> {
    let brought = interface.keep_room(settings.decision_interval + settings.probe_interval);
    let given = settings.high.given();
    if interface.detours.is_empty() || given.is_some() {
        interface.reserved = Bytes::default();
    }
    given.filter(|high| !interface.detours.is_empty() && interface.cache - *high < brought).map(|_| brought)
}

/// The key of a link, the same for both directions.
fn key_of(arc: ArcId) -> Key {
    Key([u64::from(arc.link().0), 0x6b65_795f_6f66_5f6c])
}

/// How long the buffer before a link may take to drain: a tenth of the link's own queue is left for what is not stored.
fn buffer(channel: &Channel, wanted: Span) -> Span {
    let queue = match channel.queue.limit {
        QueueLimit::Bytes(bytes) => bytes.get(),
        QueueLimit::Packets(packets) => u64::from(packets) * 1_500,
    };
    wanted.max(Interface::least_buffer(channel.rate, 1_500)).min(channel.rate.time_for(Bytes::new(queue / 10 * 9)))
}

impl Behaviour for RouterNode {
    fn handle_packet(&mut self, now: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        let packet = node.packet(leaving.packet);
        let Some(to) = self.port(leaving.to) else { return Fate::Forward };
        let is_own = packet.flags.has(Flags::CUSTODY) || self.all_tcp && packet.kind != Kind::Cbr;
        let is_data = matches!(packet.kind, Kind::Data | Kind::Cbr);
        if !is_data {
            self.router.handle_other(to, leaving.len);
        }
        match packet.kind {
            _ if is_data && !is_own => {
                let (router, mut out) = self.with(node);
                match router.handle_other_data(now, to, Handle(leaving.packet.index()), leaving.len, &mut out) {
                    crate::Fate::Forward | crate::Fate::Detour(_) => Fate::Forward,
                    crate::Fate::Hold => Fate::Hold,
                    crate::Fate::Drop => Fate::Drop("TCP's part of the cache full"),
                }
            }
            _ if !is_own => Fate::Forward,
            Kind::Data => {
                let meta = Meta {
                    flow: u64::from(packet.flow),
                    len: leaving.len,
                    end: packet.seq.saturating_add(1),
                    nonces: nonces_of(&packet),
                    detoured: packet.cursor != 0,
                };
                let (router, mut out) = self.with(node);
                let fate = router.handle_data(now, to, Handle(leaving.packet.index()), &meta, &mut out);
                let said = match fate {
                    crate::Fate::Forward | crate::Fate::Detour(_) => router.notify_on_data(to, meta.flow),
                    crate::Fate::Hold | crate::Fate::Drop => None,
                };
                out.set_notification(leaving.packet, said);
                let fate = match fate {
                    crate::Fate::Forward => Fate::Forward,
                    crate::Fate::Hold => Fate::Hold,
                    crate::Fate::Drop => Fate::Drop("cache full"),
                    crate::Fate::Detour(over) => out.detour(to, over).map_or(Fate::Forward, Fate::Detour),
                };
                self.account(now, to, leaving, &meta, node);
                fate
            }
            Kind::Ack | Kind::SynAck if self.backpressure == Backpressure::Limits => {
                // Its flow's data leaves by the link over which the ACK has come.
                let Some(from) = leaving.from.and_then(|arc| self.port(arc.reversed())) else { return Fate::Forward };
                let limit = packet.seq.saturating_add(packet.window);
                let done = packet.flags.has(Flags::FIN);
                let begins = packet.kind == Kind::SynAck;
                let mut fields = LimitFields { acked: packet.seq, limit, back: leaving.rest().index(), begins, done };
                let (router, mut out) = self.with(node);
                router.handle_limit(now, from, u64::from(packet.flow), &mut fields, &mut out);
                if fields.limit < limit {
                    let window = fields.limit.saturating_sub(packet.seq);
                    node.edit(leaving.packet, |packet| packet.window = window);
                }
                Fate::Forward
            }
            Kind::Ack if self.on_acks => {
                // Its flow's data leaves by the link over which the ACK has come.
                let Some(from) = leaving.from.and_then(|arc| self.port(arc.reversed())) else { return Fate::Forward };
                let mut fields = read_fields(&packet);
                let (router, mut out) = self.with(node);
                router.handle_ack(now, from, to, u64::from(packet.flow), &mut fields, &mut out);
                self.account_ack(now, from, leaving.to, u64::from(packet.flow), &fields, node);
                node.edit(leaving.packet, |packet| *packet = with_fields(*packet, &fields));
                Fate::Forward
            }
            _ => Fate::Forward,
        }
    }

    fn handle_control(&mut self, now: Time, from: ArcId, packet: &Packet, node: &mut Node<'_>) {
        let Some(back) = self.port(from.reversed()) else { return };
        if packet.flags.has(Flags::ECE) {
            let grant = Grant {
                of: Port(packet.seq as u16),
                push: packet.flags.has(Flags::CWR),
                raise: f64::from(f32::from_bits(packet.rate)),
                cut: f64::from(f32::from_bits(packet.rtt)),
            };
            let (router, mut out) = self.with(node);
            router.handle_grant(now, back, grant, &mut out);
            return;
        }
        let Some(to) = self.heads.iter().position(|head| head.0 == packet.data_seq) else { return };
        let of = Port(packet.seq as u16);
        let probe = Probe { from: RouterId(packet.window), of, wants: packet.flags.has(Flags::FIN) };
        let (router, mut out) = self.with(node);
        let grant = router.handle_probe(now, Port(to as u16), probe, &out);
        let answer = Packet {
            seq: u32::from(of.0),
            rate: (grant.raise as f32).to_bits(),
            rtt: (grant.cut as f32).to_bits(),
            flags: Flags::ECE.with(Flags::when(grant.push, Flags::CWR)),
            ..Node::control(NO_FLOW, CONTROL)
        };
        out.control(back, answer);
    }

    fn handle_link(&mut self, now: Time, arc: ArcId, channel: &Channel, _: LinkState, node: &mut Node<'_>) {
        let Some(port) = self.port(arc) else { return };
        let (router, mut out) = self.with(node);
        router.handle_rate(now, port, channel.rate, &mut out);
    }

    fn handle_timeout(&mut self, now: Time, node: &mut Node<'_>) {
        let (router, mut out) = self.with(node);
        router.handle_timeout(now, &mut out);
        for (at, custody) in self.custody.iter().enumerate() {
            custody.holds(self.router.occupancy(Port(at as u16)));
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.router.poll_timeout()
    }

    fn stored(&self) -> Vec<Stored> {
        let of = |(at, arc): (usize, &ArcId)| {
            let arc = *arc;
            let stored = self.router.stored(Port(at as u16));
            stored.map(move |(flow, held)| Stored { arc, flow: flow as u32, held }).collect::<Vec<_>>()
        };
        self.arcs.iter().enumerate().flat_map(of).collect()
    }

    fn counters(&self) -> Vec<(&'static str, Counter)> {
        let of = |at: usize| {
            let port = Port(at as u16);
            let done = self.router.counters(port);
            let mut counters = vec![
                ("caches.stored", Counter::Sum(done.stored)),
                ("caches.detoured", Counter::Sum(done.detoured)),
                ("caches.dropped", Counter::Sum(done.dropped)),
                ("caches.slow_downs", Counter::Sum(done.slow_downs)),
                ("caches.cancels", Counter::Sum(done.cancels)),
                ("caches.forged", Counter::Sum(done.forged)),
                ("caches.peak_bytes", Counter::Max(self.router.peak(port).get())),
                ("caches.memory_bytes", Counter::Max(self.router.memory().get())),
            ];
            if let Some(custody) = self.custody.get(at).and_then(|custody| custody.report(done.dropped)) {
                counters.extend([
                    ("caches.custody.pressed", Counter::Sum(custody.pressed)),
                    ("caches.custody.covered", Counter::Sum(custody.covered)),
                    ("caches.custody.dropped", Counter::Sum(custody.dropped)),
                    ("caches.custody.needed_bytes", Counter::Max(custody.needed_bytes)),
                ]);
            }
            counters
        };
        (0..self.arcs.len()).flat_map(of).collect()
    }

    fn caches(&self) -> Vec<CacheReport> {
        let report = |(at, arc): (usize, &ArcId)| {
            let port = Port(at as u16);
            let (state, dropped) = (self.router.state(port).as_str(), self.router.counters(port).dropped);
            CacheReport { arc: *arc, state, held: self.router.occupancy(port), room: self.router.room(port), dropped }
        };
        self.arcs.iter().enumerate().map(report).collect()
    }
}

/// The node that a router runs in.
struct Out<'a, 'n> {
    node: &'a mut Node<'n>,
    arcs: &'a [ArcId],
    heads: &'a [NodeId],
    detours: &'a mut BTreeMap<(Port, Port), Around>,
}

impl Out<'_, '_> {
    fn detour(&mut self, of: Port, over: Port) -> Option<RouteId> {
        let around = self.detours.get_mut(&(of, over))?;
        if around.route.is_none() {
            around.route = Some(self.node.add_route(&around.arcs));
        }
        around.route
    }

    /// Writes the router's notification on a data packet. A *cancel* is no answer to a *slow down* of a router before.
    fn set_notification(&mut self, packet: PacketId, said: Option<Notification>) {
        let Some(said) = said else { return };
        self.node.edit(packet, |packet| {
            let before = read_fields(packet).notification.map(|before| before.notice);
            if said.notice == Notice::SlowDown || before != Some(Notice::SlowDown) {
                let fields = AckFields { notification: Some(said), nonces: nonces_of(packet) };
                *packet = with_fields(*packet, &fields);
            }
        });
    }

    /// Sends a packet of the router's own to the neighbour at an interface.
    fn control(&mut self, over: Port, packet: Packet) {
        let Some(arc) = self.arcs.get(usize::from(over.0)) else { return };
        let around = self.detours.entry((over, over)).or_insert(Around { arcs: [*arc; 2], route: None });
        let node = &mut self.node;
        let route = *around.route.get_or_insert_with(|| node.add_route(&[*arc]));
        self.node.send(packet, route);
    }
}

impl Egress for Out<'_, '_> {
    fn free_at(&self, port: Port) -> Time {
        self.arcs.get(usize::from(port.0)).map_or(Time::ZERO, |arc| self.node.free_at(*arc))
    }

    fn send(&mut self, packet: Handle, way: Way, said: Option<Notification>) {
        let id = PacketId::from_index(packet.0);
        self.set_notification(id, said);
        match way {
            Way::Direct(_) => {
                self.node.release(id);
            }
            Way::Detour(over) => {
                let of = self.next_hop(packet);
                match of.and_then(|of| self.detour(of, over)) {
                    Some(route) => {
                        self.node.release_over(id, route);
                    }
                    None => {
                        self.node.release(id);
                    }
                }
            }
        }
    }

    fn update(&mut self, flow: u64, ack: &LimitFields) {
        let (seq, window) = (ack.acked, ack.limit.saturating_sub(ack.acked));
        let (flow, len, kind) = (flow as u32, Sizes::default().header, Kind::Ack);
        let packet = Packet { flow, seq, window, len, kind, flags: Flags::CUSTODY, ..Packet::default() };
        self.node.send(packet, RouteId::from_index(ack.back));
    }

    fn discard(&mut self, packet: Handle, why: Loss) {
        let reason = match why {
            Loss::NoRoute => "no route",
            Loss::CacheFull => "cache full",
            Loss::FairPart => "fair part of a full cache exceeded",
        };
        self.node.discard(PacketId::from_index(packet.0), reason);
    }

    fn next_hop(&mut self, packet: Handle) -> Option<Port> {
        let arc = self.node.next_hop(PacketId::from_index(packet.0))?;
        self.arcs.binary_search(&arc).ok().map(|at| Port(at as u16))
    }

    fn probe(&mut self, over: Port, probe: Probe) {
        let Some(target) = self.heads.get(usize::from(probe.of.0)) else { return };
        let packet = Packet {
            seq: u32::from(probe.of.0),
            window: probe.from.0,
            data_seq: target.0,
            flags: Flags::when(probe.wants, Flags::FIN),
            ..Node::control(NO_FLOW, CONTROL)
        };
        self.control(over, packet);
    }
}
