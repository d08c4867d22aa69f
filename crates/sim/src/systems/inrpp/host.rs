//! The hosts: both ends of a flow, and the links that a host's flows share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use sidestep_model::{ArcId, Channel, Rate, Span, Time, Topology};
use sidestep_proto::{
    inrpp::Sender,
    link::LinkState,
    packet::{Flags, Kind, Packet},
    tcp::{self, Receiver},
};

use super::{read_fields, sizes, with_nonces};
use crate::engine::{Behaviour, Endpoint, Fate, FlowSpec, Half, Leaving, Node, Outbox, Progress, Segments};

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
}

impl Links {
    pub(super) fn new(topology: &Topology) -> Links {
        let hosts = topology.node_ids().filter(|node| !topology.is_router(*node));
        let arcs = hosts.flat_map(|host| topology.outgoing(host).to_vec());
        let shared = |arc| {
            let rate = AtomicU64::new(topology.channel(arc).rate.bits_per_sec());
            (arc, Shared { rate, flows: AtomicU32::new(0) })
        };
        Links(arcs.map(shared).collect())
    }
}

/// A host, which notes how fast its links are.
#[derive(Debug)]
pub(super) struct HostNode(pub(super) Arc<Links>);

impl Behaviour for HostNode {
    fn handle_packet(&mut self, _: Time, _: &Leaving, _: &mut Node<'_>) -> Fate {
        Fate::Forward
    }

    fn wants(&self, _: ArcId) -> bool {
        false
    }

    fn handle_link(&mut self, _: Time, arc: ArcId, channel: &Channel, _: LinkState, _: &mut Node<'_>) {
        if let Some(link) = self.0.0.get(&arc) {
            link.rate.store(channel.rate.bits_per_sec(), Ordering::Relaxed);
        }
    }
}

/// The two ends of a flow.
#[derive(Debug)]
pub(super) struct Ends {
    config: tcp::Config,
    sender: Sender,
    receiver: Receiver,
    /// By which of the hosts' links it sends.
    arc: ArcId,
    links: Arc<Links>,
    /// Whether it counts among the flows that share the link.
    shares: bool,
    segments: Segments,
}

impl Ends {
    pub(super) fn new(spec: &FlowSpec, config: tcp::Config, expiry: Span, arc: ArcId, links: Arc<Links>) -> Ends {
        let segments = Segments::new(spec, sizes());
        let mut sender = Sender::new(&config, segments.full(), expiry);
        sender.supply(segments.count());
        if spec.bytes.is_some() {
            sender.finish();
        }
        Ends { config, sender, receiver: Receiver::new(&config), arc, links, shares: false, segments }
    }

    /// Sends what the sender may send now.
    fn transmit(&mut self, now: Time, out: &mut Outbox) {
        self.share();
        while let Some((transmit, nonces)) = self.sender.poll_transmit(&self.config, now) {
            let packet = self.segments.packet(now, transmit);
            out.send(Half::Sender, with_nonces(packet, nonces));
            self.share();
        }
    }

    /// Has the sender take its share of its host's link.
    fn share(&mut self) {
        let Some(link) = self.links.0.get(&self.arc) else { return };
        let open = self.sender.is_open();
        if open != self.shares {
            self.shares = open;
            if open {
                link.flows.fetch_add(1, Ordering::Relaxed);
            } else {
                link.flows.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let flows = u64::from(link.flows.load(Ordering::Relaxed)).max(1);
        self.sender.set_rate(Rate::from_bits_per_sec(link.rate.load(Ordering::Relaxed) / flows));
    }
}

/// An answer of the receiver's, complete.
fn answer(segments: &Segments, ack: Packet) -> Packet {
    Packet { flags: ack.flags.with(Flags::INRPP), ..segments.answer(ack) }
}

impl Endpoint for Ends {
    fn open(&mut self, now: Time, out: &mut Outbox) {
        self.sender.open();
        self.transmit(now, out);
    }

    fn handle_packet(&mut self, now: Time, packet: &Packet, out: &mut Outbox) -> Progress {
        match packet.kind {
            Kind::Syn => {
                let reply = self.receiver.handle_syn(&self.config, packet);
                out.send(Half::Receiver, answer(&self.segments, reply));
            }
            Kind::Data => {
                let mut reply = |ack: Packet| out.send(Half::Receiver, answer(&self.segments, ack));
                self.receiver.handle_data(&self.config, now, packet, &mut reply);
            }
            Kind::Ack | Kind::SynAck => {
                let acked = self.sender.handle_ack(&self.config, now, packet, &read_fields(packet));
                self.transmit(now, out);
                return Progress { acked: acked.segments > 0, signals: acked.signals };
            }
            Kind::Cbr | Kind::Control => {}
        }
        Progress::default()
    }

    fn handle_timeout(&mut self, now: Time, half: Half, out: &mut Outbox) -> Progress {
        match half {
            Half::Sender => {
                let signals = self.sender.handle_timeout(&self.config, now);
                self.transmit(now, out);
                Progress { acked: false, signals }
            }
            Half::Receiver => {
                if let Some(ack) = self.receiver.handle_timeout(&self.config, now) {
                    out.send(Half::Receiver, answer(&self.segments, ack));
                }
                Progress::default()
            }
        }
    }

    fn poll_timeout(&self, half: Half) -> Option<(Time, &'static str)> {
        match half {
            Half::Sender => self.sender.poll_timeout().map(|(due, timeout)| (due, timeout.as_str())),
            Half::Receiver => self.receiver.poll_timeout().map(|(due, timeout)| (due, timeout.as_str())),
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
}
