//! Packets on links: where they are, and which arrives next.
//!
//! A link decides a packet's whole fate when it is handed over, so a packet costs one event a hop. What a link carries
//! lies in a ring in the order of arrival; only the first of each ring is in the queue of events. Events are ordered
//! by time and then by link, whatever the order in which they were made.

mod packed;
mod tap;

use std::collections::{BTreeMap, VecDeque};

use sidestep_net::{ArcId, Bytes, Channel, Time, Topology};
use sidestep_proto::{
    link::{Counters, LinkModel, LinkState, Verdict},
    packet::{Flags, Kind, Packet},
};

pub(super) use self::packed::{ARC_BITS, ARC_MASK, PackedPacket, is_marked, word_of, word_of_held};
pub use self::tap::Copied;
use self::{
    packed::{BEHAVES, CAPABLE, EXTRA_SHIFT, Hop, LAST, LENGTH, MARKED, MAX_EXTRA},
    tap::Tap,
};
use super::{
    ahead::{Ahead, Due},
    behaviour::Forwarding,
    delays::{jitter, spread},
    heap::MinHeap,
    nodes::Nodes,
    wires::Wires,
};

/// Most arcs of a network.
pub const MAX_ARCS: usize = 1 << ARC_BITS;
/// The latest instant that a run may reach, in nanoseconds: about 19 hours.
pub const MAX_NANOS: u64 = u64::MAX >> ARC_BITS;

/// As many arcs as the first-level cache holds, about. By measurement: a run takes 2 % longer if it [reads ahead](Network::read_next) in
/// a network of 132, and 2 % less in networks of 768 and 2,002.
const ARCS_IN_FIRST_CACHE: usize = 256;

/// Where a route begins; see [`Network::add_route`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteId(pub(super) u32);

impl RouteId {
    /// The route of this [`index`](Self::index).
    pub fn from_index(index: u32) -> RouteId {
        RouteId(index)
    }

    /// A number that names the route.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// The flow of packets that belong to none.
pub const NO_FLOW: u32 = u32::MAX;

/// The arcs of a network, the packets on them, and the routes that packets take.
#[derive(Debug)]
pub struct Network {
    pub(super) arcs: Vec<Arc>,
    pub(super) events: MinHeap,
    pub(super) ahead: Option<Box<Ahead>>,
    /// On how many arcs packets are when looking ahead begins.
    pub(super) ahead_from: usize,
    pub(super) packets: Vec<Packet>,
    pub(super) free: Vec<u32>,
    pub(super) hops: Vec<Hop>,
    /// Packets of each flow that are in the network.
    flows: Vec<u32>,
    /// By flow: the hashes by which routers choose for its data and for its ACKs; see [`World::set_hashes`](super::World::set_hashes).
    hashes: Vec<[u32; 2]>,
    /// Random delay of what a host sends, in nanoseconds, at most.
    pub(super) jitter: u64,
    /// Which delays these are, of the run's seed.
    jitter_seed: u64,
    /// What serves the links; `None`: nothing has to.
    pub(super) wires: Option<Box<Wires>>,
    /// Whether arrivals are those of the links, one by one, and none is copied: one question for three.
    pub(super) plain: bool,
    traversals: u64,
    injected: u64,
    delivered: u64,
    lost: u64,
    /// When a node wants to be woken next, in nanoseconds.
    pub(super) next_wake: u64,
    /// What the nodes do that have a behaviour.
    pub(super) nodes: Option<Box<Nodes>>,
    tap: Option<Box<Tap>>,
    /// What [`read_next`](Self::read_next) has read: the compiler drops a read of which nothing is kept.
    read: u32,
}

#[derive(Debug)]
pub(super) struct Arc {
    pub(super) link: LinkModel,
    pub(super) carried: VecDeque<PackedPacket>,
    /// The last packet from a host, and how many there were.
    last_sent: u64,
    sent: u32,
}

/// A packet that has reached the end of its route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    index: u32,
    /// What a hop needs to know of it; see [`PackedPacket`].
    word: u32,
}

impl Arc {
    /// Reads what a packet that arrives will need, for [`Network::next`] to find it in the processor's cache.
    #[inline(always)]
    pub(super) fn read(&self) -> u64 {
        self.link.read() ^ self.last_sent
    }

    /// Reads where its rings lie, as [`read`](Self::read) does the rest.
    #[inline(always)]
    pub(super) fn read_rings(&self) -> u64 {
        self.link.read_queue() ^ self.carried.back().map_or(0, |last| u64::from(last.hop))
    }
}

impl Network {
    /// The idle network of `topology`; random losses and the hosts' random delays, of at most `jitter`, follow from `seed`.
    pub fn new(topology: &Topology, seed: u64, jitter: sidestep_net::Span) -> Self {
        let arcs = (0..topology.arc_count() as u32).map(|arc| {
            let mut link = LinkModel::new(topology.channel(ArcId(arc)), seed, u64::from(arc));
            if !topology.has_arc(ArcId(arc)) {
                // No route leads over the missing direction of a link, and no packet would arrive there.
                link.set_state(Time::ZERO, LinkState::Down);
            }
            Arc { link, carried: VecDeque::new(), last_sent: 0, sent: 0 }
        });
        let mut network = Network {
            arcs: arcs.collect(),
            events: MinHeap::default(),
            ahead: None,
            ahead_from: usize::MAX,
            packets: Vec::new(),
            free: Vec::new(),
            hops: Vec::new(),
            flows: Vec::new(),
            hashes: Vec::new(),
            jitter: jitter.as_nanos(),
            jitter_seed: spread(seed),
            wires: None,
            plain: true,
            traversals: 0,
            injected: 0,
            delivered: 0,
            lost: 0,
            next_wake: u64::MAX,
            nodes: None,
            tap: None,
            read: 0,
        };
        network.look_ahead();
        network
    }

    /// Adds a route of at least one arc, each with the bytes that encapsulation adds to a packet there.
    pub fn add_route(&mut self, hops: impl IntoIterator<Item = (ArcId, u16)>) -> RouteId {
        let first = self.hops.len();
        self.hops.extend(hops.into_iter().map(|(arc, extra)| {
            assert!(arc.index() < MAX_ARCS && extra <= MAX_EXTRA, "an arc of the network, and a packet's headers");
            let behaves = if self.nodes.as_ref().is_some_and(|nodes| nodes.behaves(arc)) { BEHAVES } else { 0 };
            Hop(arc.0 | behaves | u32::from(extra) << EXTRA_SHIFT)
        }));
        assert!(self.hops.len() > first, "a route has at least one arc");
        if let Some(last) = self.hops.last_mut() {
            last.0 |= LAST;
        }
        RouteId(first as u32)
    }

    /// Sends a packet from the host where `route` begins. Returns whether it was dropped at once.
    #[inline]
    pub(super) fn inject(&mut self, now: u64, route: RouteId, packet: Packet) {
        let hop = self.hops[route.0 as usize];
        let arc = &mut self.arcs[hop.arc()];
        arc.sent = arc.sent.wrapping_add(1);
        let sent = (now + jitter(self.jitter, self.jitter_seed, hop.arc() as u32, arc.sent)).max(arc.last_sent);
        arc.last_sent = sent;
        let index = self.place(packet);
        let word = word_of(&packet);
        if hop.behaves() {
            self.consult(sent, None, route.0, index, word);
        } else {
            self.hand_over(sent, route.0, hop, index, word);
        }
    }

    /// Gives a packet that enters the network its place.
    #[inline(always)]
    pub(super) fn place(&mut self, packet: Packet) -> u32 {
        self.injected += 1;
        if let Some(count) = self.flows.get_mut(packet.flow as usize) {
            *count += 1;
        }
        match self.free.pop() {
            Some(index) => {
                self.packets[index as usize] = packet;
                index
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Carries packets on until one reaches the end of its route, not after `limit`; returns when, and the packet as
    /// [`arrived`](Self::arrived) wants it.
    // A packet that is returned is copied twice on its way to the caller; one whose place is returned, once.
    #[inline]
    pub(super) fn next(&mut self, limit: u64) -> Option<(u64, Arrived)> {
        if self.events.len() >= self.ahead_from && self.ahead.is_none() {
            self.begin_ahead();
        }
        loop {
            if let Some((now, index, word)) = self.carry(limit.min(self.next_wake)) {
                return Some((now, Arrived { index, word }));
            }
            if self.next_wake > limit {
                return None;
            }
            self.wake();
        }
    }

    /// The packet that arrived last, until another takes its place.
    #[inline(always)]
    pub(super) fn arrived(&self, of: Arrived) -> Packet {
        let mut packet = self.packets[of.index as usize];
        if of.word & MARKED != 0 {
            // Only then: what was written in part is slow to copy as a whole.
            packet.flags = packet.flags.with(Flags::CE);
        }
        packet
    }

    /// As [`next`](Self::next), where no node has to be woken until `limit`; the packet lies in its place still, and its
    /// mark in its word.
    #[inline(always)]
    fn carry(&mut self, limit: u64) -> Option<(u64, u32, u32)> {
        loop {
            let Due { key, carried } = if self.plain { self.next_due(limit)? } else { self.next_otherwise(limit)? };
            let (now, arc) = (key >> ARC_BITS, (key & ARC_MASK) as usize);
            self.traversals += 1;
            let word = carried.word();
            if self.hops[carried.hop as usize].is_last() {
                let packet = &self.packets[carried.packet as usize];
                let (flow, kind) = (packet.flow, packet.kind);
                if packet.cursor != 0 {
                    self.resume(now, arc, carried.packet, word);
                    continue;
                }
                self.delivered += 1;
                self.free.push(carried.packet);
                self.left(flow);
                if kind == Kind::Control {
                    self.deliver_control(now, arc, carried.packet);
                    continue;
                }
                return Some((now, carried.packet, word));
            }
            let at = carried.hop + 1;
            let hop = self.hops[at as usize];
            if hop.behaves() {
                self.consult(now, Some(arc), at, carried.packet, word);
            } else {
                self.hand_over(now, at, hop, carried.packet, word);
            }
        }
    }

    /// The next arrival, not after `limit`.
    #[inline(always)]
    pub(super) fn next_due(&mut self, limit: u64) -> Option<Due> {
        loop {
            let key = self.events.top();
            if key >> ARC_BITS > limit || key == u64::MAX {
                return None;
            }
            let arc = key & ARC_MASK;
            let ring = &mut self.arcs[arc as usize].carried;
            let Some(carried) = ring.pop_front() else {
                self.events.pop();
                continue;
            };
            match ring.front() {
                Some(next) => self.events.replace_top(next.arrives() << ARC_BITS | arc),
                None => {
                    // Begins again at the front of its memory, which is in the processor's cache.
                    ring.clear();
                    self.events.pop();
                }
            }
            if self.arcs.len() > ARCS_IN_FIRST_CACHE {
                self.read_next();
            }
            return Some(Due { key, carried });
        }
    }

    /// Reads what the next arrival needs, so that it comes into the processor's cache while this one is handled.
    #[inline(always)]
    fn read_next(&mut self) {
        let next = self.arcs.get((self.events.top() & ARC_MASK) as usize).and_then(|arc| arc.carried.front());
        if let Some(next) = next {
            self.read ^= self.packets[next.packet as usize].flow;
        }
    }

    /// Whether it is so; see [`plain`](Self::plain).
    pub(super) fn is_plain(&self) -> bool {
        self.ahead.is_none() && self.wires.is_none() && self.tap.is_none()
    }

    /// As [`next_due`](Self::next_due), where that is not so.
    #[inline]
    fn next_otherwise(&mut self, limit: u64) -> Option<Due> {
        let due = if self.wires.is_some() { self.next_served(limit)? } else { self.next_ahead(limit)? };
        self.copy(due.key >> ARC_BITS, (due.key & ARC_MASK) as usize, due.carried);
        Some(due)
    }

    /// Makes place for one flow more.
    pub(super) fn add_flow(&mut self) {
        self.flows.push(0);
    }

    pub(super) fn set_hashes(&mut self, flow: u32, hashes: [u32; 2]) {
        let index = flow as usize;
        if self.hashes.len() <= index {
            self.hashes.resize(index + 1, [0; 2]);
        }
        self.hashes[index] = hashes;
    }

    /// The hash by which routers choose for a packet; zero for packets of no flow.
    pub(super) fn hash_of(&self, packet: &Packet) -> u32 {
        let of_flow = self.hashes.get(packet.flow as usize);
        of_flow.map_or(0, |[data, acks]| if matches!(packet.kind, Kind::Ack | Kind::SynAck) { *acks } else { *data })
    }

    /// How many packets of a flow are in the network.
    pub(super) fn in_network(&self, flow: u32) -> u32 {
        self.flows[flow as usize]
    }

    /// Hands a packet to the link of the hop with this index.
    pub(super) fn enqueue(&mut self, now: u64, at: u32, packet: u32, word: u32) {
        self.hand_over(now, at, self.hops[at as usize], packet, word);
    }

    /// As [`enqueue`](Self::enqueue), where the hop is known.
    #[inline(always)]
    fn hand_over(&mut self, now: u64, at: u32, hop: Hop, packet: u32, word: u32) {
        let len = (word & LENGTH) + hop.extra();
        let now = self.wires.as_mut().map_or(now, |wires| wires.send(now, hop.arc()));
        let arc = &mut self.arcs[hop.arc()];
        match arc.link.enqueue(Time::from_nanos(now), len, word & CAPABLE != 0) {
            Verdict::Deliver { at: arrives, mark_ce } => {
                let arrives = arrives.as_nanos();
                if arc.carried.is_empty() {
                    self.events.push(arrives << ARC_BITS | hop.arc() as u64);
                }
                let word = word | if mark_ce { MARKED } else { 0 };
                arc.carried.push_back(PackedPacket::new(arrives, word, packet, at));
            }
            Verdict::Drop(_) => self.lose(packet),
        }
    }

    pub(super) fn lose(&mut self, packet: u32) {
        self.left(self.packets[packet as usize].flow);
        self.free.push(packet);
        self.lost += 1;
    }

    /// A packet of a flow has left the network.
    #[inline(always)]
    fn left(&mut self, flow: u32) {
        if let Some(count) = self.flows.get_mut(flow as usize) {
            *count -= 1;
        }
    }

    /// Changes whether an arc carries packets; what is on it when it goes down is lost.
    pub fn set_state(&mut self, now: Time, arc: ArcId, state: LinkState) {
        self.put_back();
        let Some(of) = self.arcs.get_mut(arc.index()) else { return };
        of.link.set_state(now, state);
        if state != LinkState::Down {
            self.link_changed(now, arc);
            return;
        }
        let gone = std::mem::take(&mut of.carried);
        for carried in &gone {
            let len = (carried.word() & LENGTH) + self.hops[carried.hop as usize].extra();
            self.arcs[arc.index()].link.discarded(len);
            self.lose(carried.packet);
        }
        self.events.retain(|key| key & ARC_MASK != u64::from(arc.0));
        self.link_changed(now, arc);
    }

    /// Whether an arc carries packets; `None`: there is no such arc.
    pub fn state(&self, arc: ArcId) -> Option<LinkState> {
        self.arcs.get(arc.index()).map(|of| of.link.state())
    }

    /// Changes rate, delay, queue and loss of an arc at `now`, also for packets that have not left its transmitter; see
    /// [`LinkModel::set_channel`].
    pub fn set_channel(&mut self, now: Time, arc: ArcId, channel: &Channel) {
        self.put_back();
        self.revise(now, arc, channel);
        if let Some(nodes) = &mut self.nodes {
            nodes.set_channel(arc, channel);
        }
        self.look_ahead();
        self.link_changed(now, arc);
    }

    /// Changes an arc's channel, and when what it carries arrives.
    fn revise(&mut self, now: Time, arc: ArcId, channel: &Channel) {
        let Some(of) = self.arcs.get_mut(arc.index()) else { return };
        let carried = std::mem::take(&mut of.carried);
        let mut arrivals: Vec<_> = carried.iter().map(|packet| Some(Time::from_nanos(packet.arrives()))).collect();
        of.link.set_channel(now, channel, &mut arrivals);
        for (packet, arrival) in carried.into_iter().zip(arrivals) {
            match arrival {
                Some(at) => self.arcs[arc.index()].carried.push_back(packet.arriving(at.as_nanos())),
                None => self.lose(packet.packet),
            }
        }
        self.events.retain(|key| key & ARC_MASK != u64::from(arc.0));
        if let Some(first) = self.arcs[arc.index()].carried.front() {
            self.events.push(first.arrives() << ARC_BITS | u64::from(arc.0));
        }
    }

    /// What an arc has done, and the bytes in its queue at `now`.
    pub fn arc(&mut self, now: Time, arc: ArcId) -> (Counters, Bytes) {
        let link = &mut self.arcs[arc.index()].link;
        let (_, queued) = link.occupancy(now);
        (*link.counters(), queued)
    }

    /// How many arcs there are.
    pub fn arc_count(&self) -> usize {
        self.arcs.len()
    }

    /// Links crossed by packets so far, each packet counted at each.
    pub fn traversals(&self) -> u64 {
        self.traversals
    }

    /// How many packets there have been, and what became of them.
    pub fn balance(&self) -> Balance {
        let on_links: usize = self.arcs.iter().map(|arc| arc.carried.len()).sum();
        Balance {
            injected: self.injected,
            delivered: self.delivered,
            lost: self.lost,
            on_links: (on_links + self.ahead_count() + self.wires.as_ref().map_or(0, |wires| wires.held())) as u64,
            held: self.nodes.as_ref().map_or(0, |nodes| nodes.held()),
        }
    }

    /// Packets that behaviours have dropped so far, by their reasons.
    pub fn discarded(&self) -> BTreeMap<&'static str, u64> {
        self.nodes.as_ref().map(|nodes| nodes.discarded()).unwrap_or_default()
    }

    /// Packets that the behaviour of the node which an arc leaves has dropped so far instead of sending them by it.
    pub fn discarded_at(&self, arc: ArcId) -> u64 {
        self.nodes.as_ref().map_or(0, |nodes| nodes.discarded_at(arc))
    }

    /// Gives nodes that may hold packets their routes for those whose own route is gone; made only if there are such nodes.
    pub fn set_forwarding(&mut self, make: impl FnOnce() -> Box<dyn Forwarding>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.set_forwarding(make());
        }
    }

    /// Marks the hops that leave a node which has a behaviour now.
    pub(super) fn mark_hops(&mut self) {
        let Some(nodes) = &self.nodes else { return };
        for hop in &mut self.hops {
            hop.0 = hop.0 & !BEHAVES | if nodes.behaves(ArcId(hop.arc() as u32)) { BEHAVES } else { 0 };
        }
    }

    /// The length, and the bytes on the link of this hop, of a packet.
    #[inline]
    pub(super) fn len_at(&self, at: u32, word: u32) -> u32 {
        (word & LENGTH) + self.hops[at as usize].extra()
    }

    /// The arc by which a route leaves the host where it begins.
    pub fn first_arc(&self, route: RouteId) -> ArcId {
        self.arc_of(route.0)
    }

    /// The arcs of a route.
    pub fn arcs_of(&self, route: RouteId) -> impl Iterator<Item = ArcId> {
        let hops = &self.hops[route.0 as usize..];
        let len = hops.iter().position(|hop| hop.is_last()).map_or(0, |last| last + 1);
        hops[..len].iter().map(|hop| ArcId(hop.arc() as u32))
    }

    /// The arc of a hop.
    pub(super) fn arc_of(&self, at: u32) -> ArcId {
        ArcId(self.hops[at as usize].arc() as u32)
    }

    /// The arcs before this hop of the route that it is on.
    pub(super) fn arcs_before(&self, at: u32) -> Vec<ArcId> {
        let before = &self.hops[..at as usize];
        let first = before.iter().rposition(|hop| hop.is_last()).map_or(0, |last| last + 1);
        before[first..].iter().map(|hop| ArcId(hop.arc() as u32)).collect()
    }

    /// The arc with which the route ends that this hop is on.
    pub(super) fn last_arc(&self, at: u32) -> ArcId {
        let mut at = at as usize;
        while !self.hops[at].is_last() {
            at += 1;
        }
        ArcId(self.hops[at].arc() as u32)
    }
}

/// How many packets there have been, and what became of them: `injected` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Sent by hosts, and by nodes of their own accord.
    pub injected: u64,
    /// Arrived where they were sent.
    pub delivered: u64,
    /// Dropped by links and by nodes.
    pub lost: u64,
    /// On links now.
    pub on_links: u64,
    /// Held by nodes now.
    pub held: u64,
}

impl Balance {
    /// Whether no packet is missing, and none is counted twice.
    pub fn is_even(&self) -> bool {
        self.injected == self.delivered + self.lost + self.on_links + self.held
    }
}
