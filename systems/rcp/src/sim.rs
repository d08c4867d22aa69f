//! The Rate Control Protocol: every node lets senders know the rate that flows may have on its links.

use std::sync::Arc;

use sidestep_engine::{Behaviour, Endpoint, Fate, FlowSpec, Half, Leaving, Node, Outbox, Segments, Sizes};
use sidestep_net::{ArcId, Channel, NodeId, Span, Time, Topology};
use sidestep_proto::{
    link::LinkState,
    packet::{Kind, Packet},
    tcp::{self, Acked, Algorithm, Profile, Signals},
};
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, MakeBehaviour, MakeEndpoint, Setup, System, Transport},
};

use crate::{RcpSettings, Receiver, Router, Sender};

/// What RCP adds to every packet: the link's rate, the echoed rate and the round-trip time, 4 bytes each.
const HEADER: u16 = 12;

/// The Rate Control Protocol.
#[derive(Clone, Copy, Debug)]
pub struct Rcp;

impl System for Rcp {
    fn info(&self) -> SystemInfo {
        crate::RCP
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    let settings: RcpSettings = context.settings()?;
    let config = crate::Config {
        alpha: settings.alpha,
        beta: settings.beta,
        gamma: settings.gamma,
        slot: settings.slot,
        initial_rate: settings.initial_rate.as_f64(),
    };
    let base = Setup::tcp(context)?;
    // Linux's batches would send in bursts what the routers' rate paces.
    let (profile, algorithm) = (Profile::Rfc, Algorithm::Unreduced);
    let tcp = tcp::Config { profile, algorithm, ecn: false, ..base.tcp };
    let make: MakeEndpoint = MakeEndpoint(Arc::new(move |spec, _| Box::new(Ends::new(spec, tcp))));
    let behaviour = MakeBehaviour(Arc::new(move |topology, node| Some(Box::new(Rates::new(topology, node, config)))));
    let headers = base.headers + HEADER;
    Ok(Setup { transport: Transport::Own(make), tcp, headers, behaviour: Some(behaviour), ecmp: settings.ecmp, ..base })
}

/// The two ends of a flow.
#[derive(Debug)]
struct Ends {
    config: tcp::Config,
    sender: Sender,
    receiver: Receiver,
    segments: Segments,
}

impl Ends {
    fn new(spec: &FlowSpec, config: tcp::Config) -> Ends {
        let sizes = Sizes::default();
        let segments = Segments::new(spec, Sizes { header: sizes.header + HEADER, ..sizes });
        let mut sender = Sender::new(&config, segments.full());
        sender.supply(segments.count());
        if spec.bytes.is_some() {
            sender.finish();
        }
        Ends { config, sender, receiver: Receiver::new(&config), segments }
    }
}

impl Endpoint for Ends {
    fn connect(&mut self) {
        self.sender.open();
    }

    fn transmit(&mut self, now: Time, out: &mut Outbox) {
        while let Some(transmit) = self.sender.poll_transmit(&self.config, now) {
            let rtt = self.sender.tcp().srtt().map_or(0, |srtt| (srtt.as_nanos() / 1_000) as u32);
            let packet = Packet { rate: u32::MAX, rtt, ..self.segments.packet(now, transmit) };
            out.send(Half::Sender, packet);
        }
    }

    fn handle_syn(&mut self, now: Time, packet: &Packet, out: &mut Outbox) {
        let reply = self.receiver.handle_syn(&self.config, now, packet);
        reply.into_iter().for_each(|reply| out.send(Half::Receiver, self.segments.answer(reply)));
    }

    fn handle_data(&mut self, now: Time, packet: &Packet, out: &mut Outbox) {
        let mut reply = |ack: Packet| out.send(Half::Receiver, self.segments.answer(ack));
        self.receiver.handle_data(&self.config, now, packet, &mut reply);
    }

    fn handle_ack(&mut self, now: Time, packet: &Packet) -> Acked {
        self.sender.handle_ack(&self.config, now, packet)
    }

    fn handle_sender_timeout(&mut self, now: Time) -> Signals {
        self.sender.handle_timeout(&self.config, now)
    }

    fn handle_receiver_timeout(&mut self, now: Time, out: &mut Outbox) {
        if let Some(ack) = self.receiver.handle_timeout(&self.config, now) {
            out.send(Half::Receiver, self.segments.answer(ack));
        }
    }

    fn poll_timeout(&self, half: Half) -> Option<Time> {
        match half {
            Half::Sender => self.sender.poll_timeout(),
            Half::Receiver => self.receiver.poll_timeout(),
        }
    }

    fn close(&mut self) {
        self.sender = Sender::new(&self.config, self.segments.full());
    }

    fn acked_bytes(&self) -> u64 {
        self.segments.acked_bytes(self.sender.tcp().una())
    }

    fn srtt(&self) -> Option<Span> {
        self.sender.tcp().srtt()
    }

    fn rto(&self) -> Span {
        self.sender.tcp().rto()
    }

    fn retransmits(&self) -> u64 {
        u64::from(self.sender.tcp().retransmits())
    }
}

/// The rates of a node's links.
#[derive(Debug)]
struct Rates {
    config: crate::Config,
    /// By the arcs that leave the node, ascending.
    routers: Vec<(ArcId, Router)>,
}

impl Rates {
    fn new(topology: &Topology, node: NodeId, config: crate::Config) -> Rates {
        let router = |arc: &ArcId| (*arc, Router::new(&config, topology.channel(*arc).rate));
        let mut routers: Vec<_> = topology.outgoing(node).iter().map(router).collect();
        routers.sort_unstable_by_key(|(arc, _)| *arc);
        Rates { config, routers }
    }

    fn router(&mut self, arc: ArcId) -> Option<&mut Router> {
        let at = self.routers.binary_search_by_key(&arc, |(arc, _)| *arc).ok()?;
        Some(&mut self.routers[at].1)
    }
}

impl Behaviour for Rates {
    /// Puts the rate of the link into the packet, unless that of a link before is lower.
    fn handle_packet(&mut self, now: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        let queued = node.queue(leaving.to);
        let packet = node.packet(leaving.packet);
        let asks = matches!(packet.kind, Kind::Data | Kind::Syn);
        let config = self.config;
        let Some(router) = self.router(leaving.to) else { return Fate::Forward };
        let rate = router.handle_packet(&config, now, leaving.len, if asks { packet.rtt } else { 0 }, queued);
        if asks && rate < packet.rate {
            node.edit(leaving.packet, |packet| packet.rate = rate);
        }
        Fate::Forward
    }

    fn handle_link(&mut self, _: Time, arc: ArcId, channel: &Channel, _: LinkState, _: &mut Node<'_>) {
        if let Some(router) = self.router(arc) {
            router.set_capacity(channel.rate);
        }
    }
}
