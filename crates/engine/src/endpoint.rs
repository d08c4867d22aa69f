//! Both ends of a flow whose protocol is neither TCP nor MPTCP.

use std::fmt::Debug;

use sidestep_net::{Span, Time};
use sidestep_proto::{
    packet::{Kind, Packet},
    tcp::{Acked, Signals},
};

use super::{flows::FlowId, steering::Steering, world::World};

/// Both ends of a flow, as the engine drives them.
///
/// After each call the engine sends what lies in the [`Outbox`], and asks each half when it wants to be woken.
pub trait Endpoint: Debug + Send {
    /// The sender begins to connect.
    fn connect(&mut self);

    /// Sends what the sender may send now.
    fn transmit(&mut self, now: Time, out: &mut Outbox);

    /// A SYN has reached the receiver.
    fn handle_syn(&mut self, now: Time, packet: &Packet, out: &mut Outbox);

    /// Data has reached the receiver.
    fn handle_data(&mut self, now: Time, packet: &Packet, out: &mut Outbox);

    /// An ACK or a SYN-ACK has reached the sender, which transmits next.
    fn handle_ack(&mut self, now: Time, packet: &Packet) -> Acked;

    /// The time of [`poll_timeout`](Self::poll_timeout) has come for the sender, which transmits next.
    fn handle_sender_timeout(&mut self, now: Time) -> Signals;

    /// The time of [`poll_timeout`](Self::poll_timeout) has come for the receiver.
    fn handle_receiver_timeout(&mut self, now: Time, out: &mut Outbox);

    /// The flow begins.
    fn open(&mut self, now: Time, out: &mut Outbox) {
        self.connect();
        self.transmit(now, out);
    }

    /// A packet has arrived at the end that it was for; its kind shows which.
    fn handle_packet(&mut self, now: Time, packet: &Packet, out: &mut Outbox) -> Progress {
        match packet.kind {
            Kind::Syn => self.handle_syn(now, packet, out),
            Kind::Data => self.handle_data(now, packet, out),
            Kind::Ack | Kind::SynAck => {
                let acked = self.handle_ack(now, packet);
                self.transmit(now, out);
                return Progress { acked: acked.segments > 0, signals: acked.signals };
            }
            Kind::HandshakeAck | Kind::LastAck | Kind::Cbr | Kind::Control => {}
        }
        Progress::default()
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come for a half.
    fn handle_timeout(&mut self, now: Time, half: Half, out: &mut Outbox) -> Progress {
        match half {
            Half::Sender => {
                let signals = self.handle_sender_timeout(now);
                self.transmit(now, out);
                Progress { acked: false, signals }
            }
            Half::Receiver => {
                self.handle_receiver_timeout(now, out);
                Progress::default()
            }
        }
    }

    /// When a half wants to be woken; `None`: never.
    fn poll_timeout(&self, half: Half) -> Option<Time>;

    /// Ends the flow: nothing of it is sent any more.
    fn close(&mut self);

    /// Application bytes acknowledged.
    fn acked_bytes(&self) -> u64;

    /// The smoothed round-trip time; `None` before the first sample.
    fn srtt(&self) -> Option<Span>;

    /// The timeout for what is outstanding, before back-off.
    fn rto(&self) -> Span;

    /// Packets sent again.
    fn retransmits(&self) -> u64;

    /// The mode in which the sender is, such as `closed` for closed loop; `None` where there is one mode only.
    fn mode(&self) -> Option<&'static str> {
        None
    }
}

/// One of the two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The end that sends data.
    Sender,
    /// The end that receives it.
    Receiver,
}

/// What a call brought about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Whether new data was acknowledged.
    pub acked: bool,
    /// What else happened.
    pub signals: Signals,
}

/// Packets that an endpoint sends, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    packets: Vec<(Half, Packet)>,
}

impl Outbox {
    /// Sends a packet from one of the ends to the other.
    pub fn send(&mut self, from: Half, packet: Packet) {
        self.packets.push((from, packet));
    }
}

impl<S: Steering> World<S> {
    /// Calls a flow's endpoint, sends what it wants sent and sees when it wants to be woken.
    pub(super) fn drive<R: Default>(
        &mut self,
        flow: u32,
        call: impl FnOnce(&mut dyn Endpoint, Time, &mut Outbox) -> R,
    ) -> R {
        let slot = self.flows[flow as usize].slot as usize;
        let Some(mut endpoint) = self.others.get_mut(slot).and_then(Option::take) else { return R::default() };
        let mut out = std::mem::take(&mut self.outbox);
        let result = call(endpoint.as_mut(), self.now, &mut out);
        for (from, packet) in out.packets.drain(..) {
            let of = &self.flows[flow as usize];
            let route = if from == Half::Sender { of.forward } else { of.reverse };
            self.network.inject(self.now.as_nanos(), route, Packet { flow, ..packet });
        }
        self.outbox = out;
        for half in [Half::Sender, Half::Receiver] {
            let timeout = endpoint.poll_timeout(half);
            let of = &mut self.flows[flow as usize];
            let armed = match half {
                Half::Sender => &mut of.sender_timer,
                Half::Receiver => &mut of.receiver_timer,
            };
            self.timers.arm(armed, timeout, flow, half);
        }
        self.others[slot] = Some(endpoint);
        result
    }

    /// A packet of a flow whose ends are neither a sender and a receiver of TCP nor those of a subflow.
    #[cold]
    #[inline(never)]
    pub(super) fn deliver_elsewhere(&mut self, packet: &Packet) {
        if self.flows[packet.flow as usize].kind.is_exchange() {
            return self.deliver_to_exchange(packet);
        }
        let progress = self.drive(packet.flow, |endpoint, now, out| endpoint.handle_packet(now, packet, out));
        self.note_progress(packet.flow, progress);
    }

    pub(super) fn fire_endpoint(&mut self, flow: u32, half: Half) {
        let of = &mut self.flows[flow as usize];
        match half {
            Half::Sender => of.sender_timer = Time::MAX,
            Half::Receiver => of.receiver_timer = Time::MAX,
        }
        let progress = self.drive(flow, |endpoint, now, out| endpoint.handle_timeout(now, half, out));
        self.note_progress(flow, progress);
    }

    fn note_progress(&mut self, flow: u32, Progress { acked, signals }: Progress) {
        if acked {
            self.end_outage(flow);
        }
        if signals.timeout() {
            let rto = self.others[self.flows[flow as usize].slot as usize].as_ref().map_or(Span::ZERO, |of| of.rto());
            self.note_timeout(flow, rto);
        }
        if signals.finished() {
            self.finished.push_back(FlowId(flow));
        }
    }
}
