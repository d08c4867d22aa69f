//! A port: an interface that the process manages, with its TUN device, and the neighbour at its other end if there is one.

use sidestep_linux::tun::Tun;
use sidestep_net::{Bytes, Rate, Span, Time};

use super::super::{
    config::{Link as LinkConfig, RouterSettings},
    divert::PortEntry,
    link::{Link, Outbox, Sent},
    message::About,
    session::Session,
    shim::Shim,
};
use super::QUANTUM;
use crate::{Counters, Interface, RouterId};

/// How long an interface without a rate may take for a packet: it is never the reason to wait.
pub(super) const UNLIMITED: Rate = Rate::from_bits_per_sec(1_000_000_000_000);
/// Bytes of an Ethernet frame beside the packet that an edge's link carries.
const ETHERNET: u32 = 14;

/// A managed interface.
pub(super) struct PortIo {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) ethernet: bool,
    pub(super) mtu: u16,
    pub(super) tun: Tun,
    /// Whether the interface is there, and whether the TUN device was deleted by somebody.
    pub(super) is_present: bool,
    pub(super) is_cut: bool,
    pub(super) peer: Peer,
    pub(super) rate: Rate,
    /// Whether packets wait here: an edge without a rate takes all at once.
    pub(super) has_queue: bool,
    /// When the link will have sent all that was handed to it.
    pub(super) free_at: Time,
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    /// What could not be written into the TUN device, and what the link did not take.
    pub(super) lost: u64,
    /// What was counted by the core before the one at work.
    pub(super) before: Counters,
    /// What leaves an edge, at the end of the round.
    pub(super) leaving: Vec<u8>,
    pub(super) ends: Vec<(usize, bool)>,
}

/// Who is at the other end.
pub(super) enum Peer {
    /// An INRPP router.
    Neighbour(Box<Neighbour>),
    /// Hosts, and networks that know nothing of it.
    Edge,
}

/// A neighbour.
pub(super) struct Neighbour {
    pub(super) name: String,
    pub(super) link_name: String,
    pub(super) link_config: LinkConfig,
    pub(super) id: RouterId,
    pub(super) is_border: bool,
    pub(super) has_key: bool,
    pub(super) link: Link,
    pub(super) outbox: Outbox,
    pub(super) session: Session,
    pub(super) state: NeighbourState,
    /// When it has said something last, and when it has answered.
    pub(super) spoke: Time,
    pub(super) heard: Time,
    /// What it said.
    pub(super) about: Option<About>,
    /// Since when more has come from it than was read.
    pub(super) unread: Option<Time>,
    /// Messages that were no datagrams.
    pub(super) malformed: u64,
    /// Datagrams that the link did not take.
    pub(super) lost: u64,
    /// Whether its kernel has refused datagrams since that was looked at.
    pub(super) refused: bool,
    pub(super) received_packets: u64,
    pub(super) received_bytes: u64,
    /// What had come from it when its last hello came: what ours report.
    pub(super) at_its_hello: u64,
    /// Packets that were put into the outbox, and what had been sent before the last hellos of ours.
    pub(super) sealed: u64,
    pub(super) at_hello: [Carried; HELLOS],
    /// What the link had carried when its rate was judged last.
    pub(super) judged: Carried,
    /// What the link can carry, as far as is known, in bits per second.
    pub(super) carries: f64,
    /// Whether the rate follows what it receives, and what it is at most.
    pub(super) follows: bool,
    pub(super) most: Rate,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeighbourState {
    /// It does not answer: the kernel sends.
    Silent,
    /// It answers.
    Alive,
    /// It has said that it ends.
    Leaving,
}

impl PortIo {
    /// The neighbour, if one is at the other end.
    pub(super) fn neighbour(&mut self) -> Option<&mut Neighbour> {
        match &mut self.peer {
            Peer::Neighbour(neighbour) => Some(neighbour),
            Peer::Edge => None,
        }
    }

    /// The neighbour that answers.
    pub(super) fn alive(&self) -> Option<&Neighbour> {
        match &self.peer {
            Peer::Neighbour(neighbour) if neighbour.state == NeighbourState::Alive => Some(neighbour),
            _ => None,
        }
    }

    /// Bytes on the wire beside a packet.
    pub(super) fn overhead(&self) -> u32 {
        match &self.peer {
            Peer::Neighbour(neighbour) => neighbour.link.overhead() + Shim::LEN as u32,
            Peer::Edge => ETHERNET,
        }
    }

    /// The longest packet that the port carries.
    pub(super) fn longest(&self) -> u32 {
        u32::from(self.mtu).saturating_sub(self.overhead().saturating_sub(ETHERNET))
    }

    /// What the program at egress does for the port.
    pub(super) fn entry(&self, dry_run: bool) -> PortEntry {
        let is_up = match &self.peer {
            Peer::Neighbour(neighbour) => neighbour.state == NeighbourState::Alive,
            Peer::Edge => true,
        };
        let is_up = is_up && self.is_present && !self.is_cut;
        PortEntry {
            tun: self.tun.index(),
            up: is_up && !dry_run,
            edge: !self.has_neighbour(),
            tcp_only: !self.has_queue,
            ethernet: self.ethernet,
            max_len: self.longest(),
            rate: if self.has_queue { self.rate } else { Rate::from_bits_per_sec(0) },
        }
    }

    /// A message leaves without a pause: no more than the link takes in a quantum.
    pub(super) fn set_burst(&mut self) {
        let burst = self.rate.bytes_in(QUANTUM).get() / u64::from(self.mtu.max(1));
        if let Some(neighbour) = self.neighbour() {
            neighbour.outbox.set_burst(burst as usize);
        }
    }

    /// Whether a router of INRPP is at the other end.
    pub(super) fn has_neighbour(&self) -> bool {
        matches!(self.peer, Peer::Neighbour(_))
    }

    /// Notes that a packet of so many bytes is handed to the link.
    pub(super) fn count(&mut self, now: Time, len: usize) {
        let on_wire = len as u64 + u64::from(self.overhead());
        self.free_at = self.free_at.max(now) + self.rate.time_for(Bytes::new(on_wire));
        self.sent_packets += 1;
        self.sent_bytes += on_wire;
    }

    /// Whether the link takes nothing now.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(&self.peer, Peer::Neighbour(neighbour) if neighbour.link.is_blocked())
    }
}

impl Neighbour {
    /// None of the silence until now was its own.
    pub(super) fn excuse(&mut self, now: Time) {
        (self.spoke, self.heard) = (now, now);
    }

    pub(super) fn note_sent(&mut self, sent: &Sent) {
        self.lost += u64::from(sent.lost) + u64::from(sent.too_long);
        self.refused |= sent.refused;
    }
}

/// What a link had carried when a hello of ours went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    /// The hello's number, and when it went.
    pub(super) hello: u64,
    pub(super) at: Time,
    /// Packets sent before it, all bytes on the wire, and the packets among them that have come.
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) received: u64,
}

/// Hellos of ours of which it is known what had been sent before them.
pub(super) const HELLOS: usize = 64;

/// The interface of the core that a port is.
pub(super) fn interface(port: &PortIo, settings: &RouterSettings) -> Interface {
    let cache = settings.cache;
    // Notifications need keys; limits need to know that a router is there.
    let key = matches!(port.peer, Peer::Neighbour(_)).then_some(crate::Key([0; 2]));
    let buffer = settings.buffer.max(Interface::least_buffer(port.rate, u64::from(port.mtu)));
    let mut interface = Interface::new(port.rate, buffer, cache, Span::ZERO, key, crate::Nonce(port.index));
    interface.keep_room(settings.decision_interval + settings.probe_interval);
    if key.is_none() {
        interface.reserved = Bytes::default();
    }
    interface.others = port.rate.bytes_in(settings.tcp_buffer);
    interface
}
