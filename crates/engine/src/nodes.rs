//! The nodes that have a behaviour, the packets that they hold, and when they want to be woken.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use sidestep_net::{ArcId, Channel, NodeId, Time, Topology};
use sidestep_proto::{
    link::LinkState,
    packet::{Flags, Packet},
};

use super::{
    behaviour::{Behaviour, CacheReport, Counter, Fate, Forwarding, Leaving, Node, PacketId, Stored},
    network::{Network, RouteId, is_marked, word_of, word_of_held},
};

/// What a [`Network`] knows of nodes that have a behaviour.
#[derive(Debug)]
pub(super) struct Nodes {
    /// By node; taken out while it is called.
    behaviours: Vec<Option<Box<dyn Behaviour>>>,
    /// By arc: whether the node that it leaves has one that wants its packets.
    behaves: Vec<bool>,
    /// By arc: the node that it leaves, and how it is.
    tails: Vec<NodeId>,
    channels: Vec<Channel>,
    /// By packet: the hop that a held packet would take next; [`NOT_HELD`] for others.
    held_at: Vec<u32>,
    /// By packet: the node that holds it.
    holder: Vec<NodeId>,
    held: u64,
    discarded: BTreeMap<&'static str, u64>,
    /// By arc: the packets that the node which it leaves has dropped instead of sending them by it.
    discarded_at: Vec<u64>,
    /// Moves of nodes that no caller has taken yet.
    moves: Vec<(Time, &'static str)>,
    /// When nodes want to be woken; an entry that is not the node's in `wakes` is out of date.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// By node; `u64::MAX`: never.
    wakes: Vec<u64>,
    forwarding: Option<Box<dyn Forwarding>>,
    /// Routes of the forwarding table that were used, by node, destination and the hash of the flow.
    routes: BTreeMap<(NodeId, NodeId, u32), RouteId>,
}

const NOT_HELD: u32 = u32::MAX;

impl Nodes {
    fn new(topology: &Topology) -> Self {
        let count = topology.nodes().len();
        let arcs = || (0..topology.arc_count() as u32).map(ArcId);
        Nodes {
            behaviours: (0..count).map(|_| None).collect(),
            behaves: vec![false; topology.arc_count()],
            tails: arcs().map(|arc| topology.tail(arc)).collect(),
            channels: arcs().map(|arc| *topology.channel(arc)).collect(),
            held_at: Vec::new(),
            holder: Vec::new(),
            held: 0,
            discarded: BTreeMap::new(),
            discarded_at: vec![0; topology.arc_count()],
            moves: Vec::new(),
            timers: BinaryHeap::new(),
            wakes: vec![u64::MAX; count],
            forwarding: None,
            routes: BTreeMap::new(),
        }
    }

    /// Whether the node that an arc leaves has a behaviour that wants the arc's packets.
    pub(super) fn behaves(&self, arc: ArcId) -> bool {
        self.behaves.get(arc.index()).is_some_and(|behaves| *behaves)
    }

    /// How many packets are held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Packets that were dropped, by reason.
    pub(super) fn discarded(&self) -> BTreeMap<&'static str, u64> {
        self.discarded.clone()
    }

    /// Packets that the node which an arc leaves has dropped instead of sending them by it.
    pub(super) fn discarded_at(&self, arc: ArcId) -> u64 {
        self.discarded_at.get(arc.index()).copied().unwrap_or_default()
    }

    pub(super) fn set_channel(&mut self, arc: ArcId, channel: &Channel) {
        if let Some(of) = self.channels.get_mut(arc.index()) {
            *of = *channel;
        }
    }

    pub(super) fn set_forwarding(&mut self, forwarding: Box<dyn Forwarding>) {
        self.forwarding = Some(forwarding);
        self.routes.clear();
    }

    fn hold(&mut self, node: NodeId, packet: u32, at: u32) {
        let index = packet as usize;
        if self.held_at.len() <= index {
            self.held_at.resize(index + 1, NOT_HELD);
            self.holder.resize(index + 1, NodeId(0));
        }
        (self.held_at[index], self.holder[index]) = (at, node);
        self.held += 1;
    }

    /// The hop that a packet which this node holds would take.
    fn held_at(&self, node: NodeId, packet: u32) -> Option<u32> {
        let at = self.held_at.get(packet as usize).copied().filter(|at| *at != NOT_HELD);
        at.filter(|_| self.holder[packet as usize] == node)
    }

    /// The packet is not held any more; returns the hop that it would take.
    fn release(&mut self, node: NodeId, packet: u32) -> Option<u32> {
        let at = self.held_at(node, packet)?;
        self.held_at[packet as usize] = NOT_HELD;
        self.held -= 1;
        Some(at)
    }
}

impl Network {
    /// Gives a node a behaviour, in the place of the one that it may have had.
    pub fn set_behaviour(&mut self, topology: &Topology, node: NodeId, behaviour: Box<dyn Behaviour>) {
        let nodes = self.nodes.get_or_insert_with(|| Box::new(Nodes::new(topology)));
        let mut changed = false;
        for arc in topology.outgoing(node) {
            let wants = behaviour.wants(*arc);
            changed |= std::mem::replace(&mut nodes.behaves[arc.index()], wants) != wants;
        }
        let Some(place) = nodes.behaviours.get_mut(node.index()) else { return };
        *place = Some(behaviour);
        if changed {
            self.mark_hops();
        }
        self.rearm(node);
    }

    /// The caches of all nodes, in the order of the nodes.
    pub fn caches(&self) -> Vec<CacheReport> {
        let behaviours = self.nodes.iter().flat_map(|nodes| nodes.behaviours.iter().flatten());
        behaviours.flat_map(|behaviour| behaviour.caches()).collect()
    }

    /// What the behaviours of all nodes have counted until now, by name.
    pub fn counters(&self) -> BTreeMap<&'static str, Counter> {
        let behaviours = self.nodes.iter().flat_map(|nodes| nodes.behaviours.iter().flatten());
        let mut all = BTreeMap::new();
        for (name, counter) in behaviours.flat_map(|behaviour| behaviour.counters()) {
            all.entry(name).and_modify(|sum: &mut Counter| *sum = sum.and(counter)).or_insert(counter);
        }
        all
    }

    /// What the caches of all nodes hold of each flow, by arc and flow.
    pub fn stored(&self) -> Vec<Stored> {
        let behaviours = self.nodes.iter().flat_map(|nodes| nodes.behaviours.iter().flatten());
        let mut all: Vec<Stored> = behaviours.flat_map(|behaviour| behaviour.stored()).collect();
        all.sort_unstable();
        all
    }

    /// Hands a packet that is about to leave a node to its behaviour, and does what that decides.
    #[cold]
    #[inline(never)]
    pub(super) fn consult(&mut self, now: u64, from: Option<usize>, at: u32, packet: u32, word: u32) {
        let to = self.arc_of(at);
        let len = self.len_at(at, word);
        let from = from.map(|arc| ArcId(arc as u32));
        let leaving = Leaving { packet: PacketId(packet), from, to, len, at };
        let Some(node) = self.nodes.as_ref().map(|nodes| nodes.tails[to.index()]) else { return };
        // The mark lies beside the packet while it is on links.
        if is_marked(word) {
            let flags = &mut self.packets[packet as usize].flags;
            *flags = flags.with(Flags::CE);
        }
        let now_time = Time::from_nanos(now);
        let fate = self.with(now, node, |behaviour, node| behaviour.handle_packet(now_time, &leaving, node));
        let word = word_of_held(&self.packets[packet as usize]);
        match fate.unwrap_or(Fate::Forward) {
            Fate::Forward => self.enqueue(now, at, packet, word),
            Fate::Reroute(route) => {
                self.packets[packet as usize].cursor = 0;
                self.enqueue(now, route.0, packet, word);
            }
            Fate::Detour(route) => {
                self.leave_route(at, packet);
                self.enqueue(now, route.0, packet, word);
            }
            Fate::Hold => {
                if let Some(nodes) = &mut self.nodes {
                    nodes.hold(node, packet, at);
                }
            }
            Fate::Drop(reason) => self.discard(at, packet, reason),
        }
        self.rearm(node);
    }

    /// Notes where a packet that takes a detour goes on: with the hop after the one that it avoids.
    fn leave_route(&mut self, at: u32, packet: u32) {
        let packet = &mut self.packets[packet as usize];
        // A packet that is on a detour already goes on where that one ends.
        if packet.cursor == 0 && !self.hops[at as usize].is_last() {
            packet.cursor = at + 1;
        }
    }

    /// A packet has come to the end of its detour.
    #[cold]
    #[inline(never)]
    pub(super) fn resume(&mut self, now: u64, from: usize, packet: u32, word: u32) {
        let at = std::mem::take(&mut self.packets[packet as usize].cursor);
        let arc = self.arc_of(at);
        if self.nodes.as_ref().is_some_and(|nodes| nodes.behaves(arc)) {
            self.consult(now, Some(from), at, packet, word);
        } else {
            self.enqueue(now, at, packet, word);
        }
    }

    /// A packet of a behaviour has arrived at the far end of an arc.
    #[cold]
    #[inline(never)]
    pub(super) fn deliver_control(&mut self, now: u64, arc: usize, packet: u32) {
        let arc = ArcId(arc as u32);
        let packet = self.packets[packet as usize];
        let Some(node) = self.nodes.as_ref().map(|nodes| nodes.tails[arc.reversed().index()]) else { return };
        let at = Time::from_nanos(now);
        self.with(now, node, |behaviour, node| behaviour.handle_control(at, arc, &packet, node));
        self.rearm(node);
    }

    /// A link has changed: the behaviour of the node that it leaves may want to know.
    pub(super) fn link_changed(&mut self, now: Time, arc: ArcId) {
        let Some(nodes) = &self.nodes else { return };
        let (Some(node), Some(channel)) = (nodes.tails.get(arc.index()), nodes.channels.get(arc.index())) else {
            return;
        };
        let (node, channel, state) = (*node, *channel, self.arcs[arc.index()].link.state());
        self.with(now.as_nanos(), node, |behaviour, node| behaviour.handle_link(now, arc, &channel, state, node));
        self.rearm(node);
    }

    /// Wakes the node whose time has come.
    #[cold]
    #[inline(never)]
    pub(super) fn wake(&mut self) {
        let Some(nodes) = &mut self.nodes else { return };
        let Some(Reverse((due, node))) = nodes.timers.pop() else {
            self.next_wake = u64::MAX;
            return;
        };
        let current = nodes.wakes[node as usize] == due;
        if current {
            nodes.wakes[node as usize] = u64::MAX;
        }
        self.next_wake = nodes.timers.peek().map_or(u64::MAX, |Reverse((due, _))| *due);
        if current {
            let (node, at) = (NodeId(node), Time::from_nanos(due));
            self.with(due, node, |behaviour, node| behaviour.handle_timeout(at, node));
            self.rearm(node);
        }
    }

    /// Calls a node's behaviour, if it has one.
    fn with<R>(
        &mut self,
        now: u64,
        node: NodeId,
        call: impl FnOnce(&mut dyn Behaviour, &mut Node<'_>) -> R,
    ) -> Option<R> {
        let mut behaviour = self.nodes.as_mut()?.behaviours.get_mut(node.index())?.take()?;
        let result = call(behaviour.as_mut(), &mut Node { network: self, id: node, now });
        if let Some(nodes) = &mut self.nodes {
            nodes.behaviours[node.index()] = Some(behaviour);
        }
        Some(result)
    }

    /// Looks at when a node wants to be woken.
    fn rearm(&mut self, node: NodeId) {
        let Some(nodes) = &mut self.nodes else { return };
        let behaviour = nodes.behaviours.get(node.index()).and_then(Option::as_ref);
        let due = behaviour.and_then(|behaviour| behaviour.poll_timeout()).map_or(u64::MAX, Time::as_nanos);
        let Some(wakes) = nodes.wakes.get_mut(node.index()).filter(|wakes| **wakes != due) else { return };
        *wakes = due;
        if due != u64::MAX {
            nodes.timers.push(Reverse((due, node.0)));
            self.next_wake = self.next_wake.min(due);
        }
    }

    /// The hop that a held packet takes when it leaves: its own while its link is up, else that of the forwarding table.
    pub(super) fn next_hop(&mut self, node: NodeId, packet: u32) -> Option<u32> {
        let nodes = self.nodes.as_ref()?;
        let at = nodes.held_at(node, packet)?;
        let arc = self.arc_of(at);
        let carrier = |arc: ArcId| self.arcs[arc.index()].link.state() != LinkState::Down;
        let believed = nodes.forwarding.as_ref().is_none_or(|forwarding| forwarding.is_up(arc));
        if carrier(arc) && believed {
            return Some(at);
        }
        let of = self.packets[packet as usize];
        // A detour ends before the route does.
        let end = self.last_arc(if of.cursor == 0 { at } else { of.cursor });
        let to = nodes.tails[end.reversed().index()];
        let key = (node, to, self.hash_of(&of));
        let nodes = self.nodes.as_ref()?;
        let known = nodes.routes.get(&key).copied();
        let route = match known {
            Some(route) => route,
            None => {
                let arcs = nodes.forwarding.as_ref()?.route(node, to, key.2)?;
                if arcs.is_empty() {
                    return None;
                }
                let route = self.add_route(arcs.into_iter().map(|arc| (arc, 0)));
                self.nodes.as_mut()?.routes.insert(key, route);
                route
            }
        };
        let first = self.arc_of(route.0);
        (self.arcs[first.index()].link.state() != LinkState::Down).then_some(route.0)
    }

    pub(super) fn release(&mut self, now: u64, node: NodeId, packet: u32) -> Option<ArcId> {
        let at = self.next_hop(node, packet)?;
        let own = self.nodes.as_mut()?.release(node, packet)?;
        if at != own {
            // The new route leads to the end.
            self.packets[packet as usize].cursor = 0;
        }
        let word = word_of_held(&self.packets[packet as usize]);
        self.enqueue(now, at, packet, word);
        Some(self.arc_of(at))
    }

    pub(super) fn release_over(&mut self, now: u64, node: NodeId, packet: u32, detour: RouteId) -> bool {
        let Some(at) = self.nodes.as_mut().and_then(|nodes| nodes.release(node, packet)) else { return false };
        self.leave_route(at, packet);
        let word = word_of_held(&self.packets[packet as usize]);
        self.enqueue(now, detour.0, packet, word);
        true
    }

    pub(super) fn discard_held(&mut self, node: NodeId, packet: u32, reason: &'static str) -> bool {
        let Some(at) = self.nodes.as_mut().and_then(|nodes| nodes.release(node, packet)) else { return false };
        self.discard(at, packet, reason);
        true
    }

    /// Drops a packet that would have taken the hop `at`.
    fn discard(&mut self, at: u32, packet: u32, reason: &'static str) {
        let arc = self.hops[at as usize].arc();
        if let Some(nodes) = &mut self.nodes {
            *nodes.discarded.entry(reason).or_default() += 1;
            if let Some(count) = nodes.discarded_at.get_mut(arc) {
                *count += 1;
            }
        }
        self.lose(packet);
    }

    pub(super) fn note_move(&mut self, now: u64, reason: &'static str) {
        if let Some(nodes) = &mut self.nodes {
            nodes.moves.push((Time::from_nanos(now), reason));
        }
    }

    /// When nodes have moved traffic to other routes since this was called last, and why.
    pub fn take_moves(&mut self) -> Vec<(Time, &'static str)> {
        self.nodes.as_mut().map(|nodes| std::mem::take(&mut nodes.moves)).unwrap_or_default()
    }

    pub(super) fn send_from_node(&mut self, now: u64, packet: Packet, route: RouteId) {
        let index = self.place(Packet { cursor: 0, ..packet });
        self.enqueue(now, route.0, index, word_of(&packet));
    }
}
