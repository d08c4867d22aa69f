//! Both ends of a flow whose routers set limits: TCP, which sends as fast as its host's link as far as the window reaches.

use std::sync::Arc;

use sidestep_engine::{Endpoint, FlowSpec, Half, Outbox, Segments, Sizes};
use sidestep_net::{ArcId, Bytes, Rate, Span, Time};
use sidestep_proto::{
    packet::{Flags, Kind, Packet},
    tcp::{self, Acked, Receiver, Sender, Signals},
};

use super::host::{Links, Share};

/// By how much a window's pace exceeds the window in a round trip (`tcp_pacing_ca_ratio`).
const SPREAD: f64 = 1.2;

/// The two ends of a flow. Its sender is [`tcp::Algorithm::Unreduced`]: the window that routers leave is all that limits it.
#[derive(Debug)]
pub(super) struct LimitedEnds {
    config: tcp::Config,
    sender: Sender,
    receiver: Receiver,
    segments: Segments,
    share: Share,
    /// When the next segment may leave, and when to look again; `None`: no segment waits for that.
    paced: Time,
    wakes: Option<Time>,
}

impl LimitedEnds {
    pub(super) fn new(spec: &FlowSpec, config: tcp::Config, arc: ArcId, links: Arc<Links>) -> LimitedEnds {
        let segments = Segments::new(spec, Sizes::default());
        let mut sender = Sender::new(&config);
        sender.supply(segments.count());
        if spec.bytes.is_some() {
            sender.finish();
        }
        let (mut receiver, share) = (Receiver::new(&config), Share::new(arc, links));
        // Its program has nothing to say: the last segment is acknowledged at once.
        receiver.close_first();
        LimitedEnds { config, sender, receiver, segments, share, paced: Time::ZERO, wakes: None }
    }

    /// The rate that spreads the window over a round trip, once one is known, with the part more that Linux has in congestion
    /// avoidance. A burst would come back as a burst of ACKs, and between bursts routers could tell no limits.
    fn asked(&self, len: u16) -> Rate {
        let Some(srtt) = self.sender.srtt() else { return Rate::from_bits_per_sec(u64::MAX) };
        let window = u64::from(self.sender.receive_window().max(2)) * u64::from(len);
        Rate::from_bits_per_sec((window as f64 * 8.0 * SPREAD / srtt.as_secs_f64().max(1e-9)) as u64)
    }
}

/// An answer of the receiver's, complete. It closes when it has read all: routers see by its FIN that the flow has ended.
fn answer(segments: &Segments, ack: Packet) -> Packet {
    let closes = Flags::when(ack.kind == Kind::Ack && ack.seq == segments.count(), Flags::FIN);
    Packet { flags: ack.flags.with(Flags::CUSTODY).with(closes), ..segments.answer(ack) }
}

impl Endpoint for LimitedEnds {
    fn connect(&mut self) {
        self.sender.open();
    }

    fn transmit(&mut self, now: Time, out: &mut Outbox) {
        self.wakes = None;
        loop {
            let share = self.share.of(self.sender.has_segment());
            self.paced = self.paced.max(self.share.busy_until());
            // Where it has none it is asked all the same, for it sets its timers then.
            if now < self.paced && self.sender.has_segment() {
                self.wakes = Some(self.paced);
                return;
            }
            let Some(transmit) = self.sender.poll_transmit(&self.config, now) else { return };
            let packet = self.segments.packet(now, transmit);
            let rate = share.min(self.asked(packet.len));
            self.paced = self.paced.max(now) + rate.time_for(Bytes::new(u64::from(packet.len)));
            out.send(Half::Sender, Packet { flags: packet.flags.with(Flags::CUSTODY), ..packet });
        }
    }

    fn handle_syn(&mut self, now: Time, packet: &Packet, out: &mut Outbox) {
        let reply = self.receiver.handle_syn(&self.config, now, packet);
        reply.into_iter().for_each(|reply| out.send(Half::Receiver, answer(&self.segments, reply)));
    }

    fn handle_data(&mut self, now: Time, packet: &Packet, out: &mut Outbox) {
        let segments = &self.segments;
        let mut reply = |ack: Packet| out.send(Half::Receiver, answer(segments, ack));
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
            out.send(Half::Receiver, answer(&self.segments, ack));
        }
    }

    fn poll_timeout(&self, half: Half) -> Option<Time> {
        match half {
            Half::Sender => self.sender.poll_timeout().into_iter().chain(self.wakes).min(),
            Half::Receiver => self.receiver.poll_timeout(),
        }
    }

    fn close(&mut self) {
        self.sender = Sender::new(&self.config);
        self.wakes = None;
        self.share.of(false);
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
