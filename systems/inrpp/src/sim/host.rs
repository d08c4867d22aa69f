//! The hosts: both ends of a flow, and the links that a host's flows share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use sidestep_engine::{Behaviour, Endpoint, Fate, FlowSpec, Half, Leaving, Node, Outbox, Segments};
use sidestep_net::{ArcId, Bytes, Channel, Rate, Span, Time, Topology};
use sidestep_proto::{
    link::LinkState,
    packet::{Flags, Packet},
    tcp::{self, Acked, Receiver, Signals},
};

use super::{read_fields, sizes, with_fields, with_nonces};
use crate::{AckFields, AfterTimeout, Nonces, Notice, Notification, Sender};

/// The links by which hosts send, each shared evenly by its flows in open loop.
///
/// A simulation runs in one thread; the atomic numbers only let its flows and nodes share them.
#[derive(Debug)]
pub(super) struct Links(BTreeMap<ArcId, Shared>);

#[derive(Debug)]
struct Shared {
    /// Bits a second.
    rate: AtomicU64,
    /// Flows that share it now.
    flows: AtomicU32,
    /// When it will have sent what it was handed, ACKs included, in nanoseconds.
    free: AtomicU64,
}

/// How far a host's link may be behind before its senders wait: its queue is no place to lose packets.
const BEHIND: Span = Span::from_millis(2);

impl Links {
    pub(super) fn new(topology: &Topology) -> Links {
        let hosts = topology.node_ids().filter(|node| !topology.is_router(*node));
        let arcs = hosts.flat_map(|host| topology.outgoing(host).to_vec());
        let shared = |arc| {
            let rate = AtomicU64::new(topology.channel(arc).rate.bits_per_sec());
            (arc, Shared { rate, flows: AtomicU32::new(0), free: AtomicU64::new(0) })
        };
        Links(arcs.map(shared).collect())
    }
}

/// A flow's part of its host's link.
#[derive(Debug)]
pub(super) struct Share {
    /// By which of the hosts' links it sends.
    arc: ArcId,
    links: Arc<Links>,
    /// Whether it counts among the flows that share the link.
    counts: bool,
}

impl Share {
    pub(super) fn new(arc: ArcId, links: Arc<Links>) -> Share {
        Share { arc, links, counts: false }
    }

    /// The part that it has now, if it `wants` one.
    pub(super) fn of(&mut self, wants: bool) -> Rate {
        let Some(link) = self.links.0.get(&self.arc) else { return Rate::default() };
        if wants != self.counts {
            self.counts = wants;
            if wants {
                link.flows.fetch_add(1, Ordering::Relaxed);
            } else {
                link.flows.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let flows = u64::from(link.flows.load(Ordering::Relaxed)).max(1);
        Rate::from_bits_per_sec(link.rate.load(Ordering::Relaxed) / flows)
    }

    /// Until when the link has so much to send that nothing more should come.
    pub(super) fn busy_until(&self) -> Time {
        let free = self.links.0.get(&self.arc).map_or(0, |link| link.free.load(Ordering::Relaxed));
        Time::from_nanos(free.saturating_sub(BEHIND.as_nanos()))
    }
}

/// A host, which notes how fast its links are, and how far behind.
#[derive(Debug)]
pub(super) struct HostNode(pub(super) Arc<Links>);

impl Behaviour for HostNode {
    fn handle_packet(&mut self, now: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        if let Some(link) = self.0.0.get(&leaving.to) {
            let rate = Rate::from_bits_per_sec(link.rate.load(Ordering::Relaxed));
            let free = node.free_at(leaving.to).max(now) + rate.time_for(Bytes::new(u64::from(leaving.len)));
            link.free.store(free.as_nanos(), Ordering::Relaxed);
        }
        Fate::Forward
    }

    fn handle_link(&mut self, _: Time, arc: ArcId, channel: &Channel, _: LinkState, _: &mut Node<'_>) {
        if let Some(link) = self.0.0.get(&arc) {
            link.rate.store(channel.rate.bits_per_sec(), Ordering::Relaxed);
        }
    }
}

/// What hosts do.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostSettings {
    pub(super) tcp: tcp::Config,
    pub(super) expiry: Span,
    pub(super) after_timeout: AfterTimeout,
    pub(super) obedient: bool,
    /// Whether receivers echo the notifications that data carry.
    pub(super) echo: bool,
}

/// The two ends of a flow.
#[derive(Debug)]
pub(super) struct Ends {
    config: tcp::Config,
    sender: Sender,
    receiver: Receiver,
    share: Share,
    segments: Segments,
    /// Whether the receiver echoes notifications, and the one that its next ACK will carry.
    echo: bool,
    heard: Option<Notification>,
}

impl Ends {
    pub(super) fn new(spec: &FlowSpec, settings: &HostSettings, arc: ArcId, links: Arc<Links>) -> Ends {
        let HostSettings { tcp: config, expiry, after_timeout, obedient, echo } = *settings;
        let segments = Segments::new(spec, sizes());
        let sender = Sender::new(&config, segments.full(), expiry);
        let mut sender = sender.after_timeout(after_timeout).obedient(obedient);
        sender.supply(segments.count());
        if spec.bytes.is_some() {
            sender.finish();
        }
        let receiver = Receiver::new(&config);
        let share = Share::new(arc, links);
        Ends { config, sender, receiver, share, segments, echo, heard: None }
    }

    /// Makes the sender take its share of its host's link.
    fn share(&mut self) {
        self.sender.set_rate(self.share.of(self.sender.is_open()));
    }
}

/// An answer of the receiver's, complete, with the notification that it echoes.
fn answer(segments: &Segments, ack: Packet, echo: &mut Option<Notification>) -> Packet {
    let ack = Packet { flags: ack.flags.with(Flags::CUSTODY), ..segments.answer(ack) };
    let Some(said) = echo.take() else { return ack };
    let nonces = if said.notice == Notice::SlowDown { Nonces::one(said.nonce) } else { Nonces::default() };
    with_fields(ack, &AckFields { notification: Some(said), nonces })
}

impl Endpoint for Ends {
    fn connect(&mut self) {
        self.sender.open();
    }

    fn transmit(&mut self, now: Time, out: &mut Outbox) {
        self.share();
        self.sender.pause_until(self.share.busy_until());
        while let Some((transmit, nonces)) = self.sender.poll_transmit(&self.config, now) {
            let packet = self.segments.packet(now, transmit);
            out.send(Half::Sender, with_nonces(packet, nonces));
            self.share();
        }
    }

    fn handle_syn(&mut self, now: Time, packet: &Packet, out: &mut Outbox) {
        let reply = self.receiver.handle_syn(&self.config, now, packet);
        reply.into_iter().for_each(|reply| out.send(Half::Receiver, answer(&self.segments, reply, &mut None)));
    }

    fn handle_data(&mut self, now: Time, packet: &Packet, out: &mut Outbox) {
        if self.echo {
            self.heard = read_fields(packet).notification.or(self.heard);
        }
        let (segments, heard) = (&self.segments, &mut self.heard);
        let mut reply = |ack: Packet| out.send(Half::Receiver, answer(segments, ack, heard));
        self.receiver.handle_data(&self.config, now, packet, &mut reply);
    }

    fn handle_ack(&mut self, now: Time, packet: &Packet) -> Acked {
        self.sender.handle_ack(&self.config, now, packet, &read_fields(packet))
    }

    fn handle_sender_timeout(&mut self, now: Time) -> Signals {
        self.sender.handle_timeout(&self.config, now)
    }

    fn handle_receiver_timeout(&mut self, now: Time, out: &mut Outbox) {
        if let Some(ack) = self.receiver.handle_timeout(&self.config, now) {
            out.send(Half::Receiver, answer(&self.segments, ack, &mut self.heard));
        }
    }

    fn poll_timeout(&self, half: Half) -> Option<Time> {
        match half {
            Half::Sender => self.sender.poll_timeout(),
            Half::Receiver => self.receiver.poll_timeout(),
        }
    }

    fn close(&mut self) {
        self.sender = Sender::new(&self.config, self.segments.full(), Span::ZERO);
        self.share();
    }

    fn acked_bytes(&self) -> u64 {
        self.segments.acked_bytes(self.sender.una())
    }

    fn srtt(&self) -> Option<Span> {
        self.sender.srtt()
    }

    fn rto(&self) -> Span {
        self.sender.rto()
    }

    fn retransmits(&self) -> u64 {
        u64::from(self.sender.retransmits())
    }

    fn mode(&self) -> Option<&'static str> {
        Some(if self.sender.is_closed_loop() { "closed" } else { "open" })
    }
}
