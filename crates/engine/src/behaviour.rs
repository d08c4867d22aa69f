//! What a node does with packets beyond carrying them on.
//!
//! A node with a [`Behaviour`] is handed every packet that is about to leave it, whether the packet has arrived there or
//! is the node's own host's. It decides the packet's [`Fate`], and may hold packets and release them later, change what they
//! contain, and send packets of its own. Nodes without a behaviour cost nothing: whether a node has one is a bit of the hop.

use std::fmt::Debug;

use sidestep_net::{ArcId, Bytes, Channel, NodeId, Time};
use sidestep_proto::{
    link::LinkState,
    packet::{Kind, Packet},
};

use super::network::{Network, RouteId};

/// What a node does with packets.
pub trait Behaviour: Debug + Send {
    /// A packet is about to leave the node over `leaving.to`.
    fn handle_packet(&mut self, now: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate;

    /// Whether it wants the packets that leave over this arc. The engine asks once, when it gets the behaviour, and
    /// hands it no others.
    fn wants(&self, _arc: ArcId) -> bool {
        true
    }

    /// A packet of another node's behaviour has arrived, for this one; see [`Node::send`].
    fn handle_control(&mut self, _now: Time, _from: ArcId, _packet: &Packet, _node: &mut Node<'_>) {}

    /// An arc out of the node has another rate or delay, or carries packets no more, or again.
    fn handle_link(&mut self, _now: Time, _arc: ArcId, _channel: &Channel, _state: LinkState, _node: &mut Node<'_>) {}

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    fn handle_timeout(&mut self, _now: Time, _node: &mut Node<'_>) {}

    /// When the node wants to be woken; `None`: never.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// What its caches hold of each flow.
    fn stored(&self) -> Vec<Stored> {
        Vec::new()
    }

    /// What it has counted until now, by names that results have: a dot in a name stands for a group, as in `caches.stored`.
    fn counters(&self) -> Vec<(&'static str, Counter)> {
        Vec::new()
    }

    /// What its caches hold, one for each arc that leaves the node and has one.
    fn caches(&self) -> Vec<CacheReport> {
        Vec::new()
    }
}

/// A count of a behaviour, and how the counts of several nodes are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// They are added up.
    Sum(u64),
    /// The highest counts.
    Max(u64),
}

impl Counter {
    /// The count.
    pub fn get(self) -> u64 {
        match self {
            Counter::Sum(count) | Counter::Max(count) => count,
        }
    }

    /// This and another count of the same name together.
    #[must_use]
    pub fn and(self, other: Counter) -> Counter {
        match self {
            Counter::Sum(count) => Counter::Sum(count + other.get()),
            Counter::Max(count) => Counter::Max(count.max(other.get())),
        }
    }
}

/// What a cache holds of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// The arc behind the cache.
    pub arc: ArcId,
    /// The flow, as packets name it.
    pub flow: u32,
    /// How much.
    pub held: Bytes,
}

/// A cache before an arc.
#[derive(Clone, Copy, Debug)]
pub struct CacheReport {
    /// The arc.
    pub arc: ArcId,
    /// What the node does with packets for it.
    pub state: &'static str,
    /// What it holds.
    pub held: Bytes,
    /// What it may hold.
    pub room: Bytes,
    /// Packets for which there was no room until now.
    pub dropped: u64,
}

/// A packet that is about to leave a node.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The packet.
    pub packet: PacketId,
    /// The arc by which it came; `None`: the node's own host sends it.
    pub from: Option<ArcId>,
    /// The arc by which its route leaves the node.
    pub to: ArcId,
    /// Its length on that arc in bytes, encapsulation included.
    pub len: u32,
    /// Index of the hop that it is about to take.
    pub(super) at: u32,
}

impl Leaving {
    /// The route that it takes from here on.
    pub fn rest(&self) -> RouteId {
        RouteId(self.at)
    }
}

/// A packet in the network; valid from when a behaviour is handed it until it leaves the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(pub(super) u32);

impl PacketId {
    /// The packet of this [`index`](Self::index).
    pub fn from_index(index: u32) -> PacketId {
        PacketId(index)
    }

    /// A number that names the packet as long as the id is valid.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// What becomes of a packet that a behaviour was handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on along its route.
    Forward,
    /// It takes this route, which ends at the node that its own route would have reached next, and goes on from there.
    Detour(RouteId),
    /// It takes this route, which ends where its own ends, instead of its own.
    Reroute(RouteId),
    /// The node keeps it, until it [releases](Node::release) or [discards](Node::discard) it.
    Hold,
    /// It is dropped, and counted under this reason.
    Drop(&'static str),
}

/// Where held packets go when the route that they came on is gone: the routes of each node, as its forwarding table has
/// them.
pub trait Forwarding: Debug + Send {
    /// The arcs from a node to another for flows with this hash; `None` where there is no route.
    ///
    /// Where there are several next hops, the hash chooses as it does for flows that begin at `from`; zero takes the first.
    fn route(&self, from: NodeId, to: NodeId, hash: u32) -> Option<Vec<ArcId>>;

    /// Whether the IGP believes that this arc carries packets.
    fn is_up(&self, arc: ArcId) -> bool;
}

/// The network as the behaviour of one of its nodes may see and change it.
#[derive(Debug)]
pub struct Node<'a> {
    pub(super) network: &'a mut Network,
    pub(super) id: NodeId,
    pub(super) now: u64,
}

impl Node<'_> {
    /// Which node it is.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// A packet that the node was handed, or holds.
    pub fn packet(&self, packet: PacketId) -> Packet {
        self.network.packets.get(packet.0 as usize).copied().unwrap_or_default()
    }

    /// The hash by which routers choose for a packet; zero if none is known.
    pub fn hash(&self, packet: PacketId) -> u32 {
        self.network.packets.get(packet.0 as usize).map_or(0, |packet| self.network.hash_of(packet))
    }

    /// The arc with which the route of a packet ends that is about to leave.
    pub fn last_arc(&self, leaving: &Leaving) -> ArcId {
        self.network.last_arc(leaving.at)
    }

    /// The arcs of its route that a packet which is about to leave has taken.
    pub fn arcs_before(&self, leaving: &Leaving) -> Vec<ArcId> {
        self.network.arcs_before(leaving.at)
    }

    /// Changes what a packet contains. Its length and its flow stay what they are.
    pub fn edit(&mut self, packet: PacketId, change: impl FnOnce(&mut Packet)) {
        let Some(packet) = self.network.packets.get_mut(packet.0 as usize) else { return };
        let before = *packet;
        change(packet);
        (packet.len, packet.flow, packet.cursor) = (before.len, before.flow, before.cursor);
    }

    /// Bytes that wait in the queue of an arc now.
    pub fn queue(&mut self, arc: ArcId) -> Bytes {
        let Some(of) = self.network.arcs.get_mut(arc.index()) else { return Bytes::default() };
        of.link.occupancy(Time::from_nanos(self.now)).1
    }

    /// When an arc will have sent all that was handed to it.
    pub fn free_at(&self, arc: ArcId) -> Time {
        self.network.arcs.get(arc.index()).map_or(Time::ZERO, |of| of.link.free_at())
    }

    /// Sends a held packet on; returns the arc by which it left. `None`: no route leads on now, and it stays held.
    ///
    /// It keeps its own route while the next link of it is up, and takes that of the node's forwarding table otherwise.
    pub fn release(&mut self, packet: PacketId) -> Option<ArcId> {
        self.network.release(self.now, self.id, packet.0)
    }

    /// The arc by which [`release`](Self::release) would send a held packet on.
    pub fn next_hop(&mut self, packet: PacketId) -> Option<ArcId> {
        let at = self.network.next_hop(self.id, packet.0)?;
        Some(self.network.arc_of(at))
    }

    /// Sends a held packet over this route, which ends at the node that its own route would have reached next. Returns
    /// whether the node held it.
    pub fn release_over(&mut self, packet: PacketId, detour: RouteId) -> bool {
        self.network.release_over(self.now, self.id, packet.0, detour)
    }

    /// Drops a held packet, counted under this reason. Returns whether the node held it.
    pub fn discard(&mut self, packet: PacketId, reason: &'static str) -> bool {
        self.network.discard_held(self.id, packet.0, reason)
    }

    /// Sends a packet of the node's own over a route that begins here, past the behaviour of this node.
    ///
    /// Of kind [`Kind::Control`] it is handed to the behaviour of the node where the route ends. Other kinds go to the host
    /// of the packet's flow.
    pub fn send(&mut self, packet: Packet, route: RouteId) {
        self.network.send_from_node(self.now, packet, route);
    }

    /// Records for the results that the node has moved traffic to another route, for this reason.
    pub fn note_move(&mut self, reason: &'static str) {
        self.network.note_move(self.now, reason);
    }

    /// A probe or notification for [`send`](Self::send), of `len` bytes: about this flow, or none ([`NO_FLOW`](super::NO_FLOW)).
    pub fn control(flow: u32, len: u16) -> Packet {
        Packet { flow, len, kind: Kind::Control, ..Packet::default() }
    }

    /// Adds a route with the bytes that encapsulation adds to a packet on each arc.
    pub fn add_encapsulated_route(&mut self, hops: &[(ArcId, u16)]) -> RouteId {
        self.network.add_route(hops.iter().copied())
    }

    /// Adds a route for detours and for packets of the node's own.
    pub fn add_route(&mut self, arcs: &[ArcId]) -> RouteId {
        self.network.add_route(arcs.iter().map(|arc| (*arc, 0)))
    }
}
