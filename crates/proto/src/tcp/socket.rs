//! One end of a connection that carries data both ways.

use sidestep_net::{Span, Time};

use super::{Config, Receiver, Sender, Signals, State, Transmit};
use crate::packet::{Flags, Kind, Packet};

/// Both halves of one end of a connection: it sends data of its own, and receives the other end's.
///
/// The driver keeps the two directions apart: packets of the direction that this end sends in are [`Kind::Syn`] and [`Kind::Data`]
/// from it and [`Kind::SynAck`] and [`Kind::Ack`] to it. It completes packets: it sets the flow, the route and the length.
///
/// Of the two ends one [opens](Self::open) and the other is called. That one sends no SYN: it waits for that of the other, and is
/// established by the first packet after it.
#[derive(Clone, Debug)]
pub struct Socket {
    sender: Sender,
    receiver: Receiver,
    /// The SYN that came, if this end was called: when it was answered first, how many times more, and whether with ECN.
    called: Option<(Time, u8, bool)>,
    /// The number of a segment that means only that nothing follows.
    bare_fin: Option<u32>,
}

/// What came of a packet or a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketEvents {
    /// Events of what this end sends.
    pub signals: Signals,
    /// The end that was called is established.
    pub accepted: bool,
}

impl Socket {
    /// An end that is not open yet.
    pub fn new(config: &Config) -> Self {
        Socket { sender: Sender::new(config), receiver: Receiver::new(config), called: None, bare_fin: None }
    }

    /// Begins to connect.
    pub fn open(&mut self) {
        self.sender.open();
    }

    /// Sends the first SYN again after `rto`; see [`Sender::set_syn_timeout`].
    pub fn set_syn_timeout(&mut self, rto: Span, more_retries: u8) {
        self.sender.set_syn_timeout(rto, more_retries);
    }

    /// Supplies more segments to send.
    pub fn supply(&mut self, segments: u32) {
        self.sender.supply(segments);
    }

    /// Declares that no segments follow. Where some have not been sent yet the last one carries that, else one without payload.
    ///
    /// To be called when [`poll_transmit`](Self::poll_transmit) has nothing more.
    pub fn shut_down(&mut self) {
        if self.sender.next() == self.sender.supplied() {
            self.bare_fin = Some(self.sender.next());
            self.sender.supply(1);
        }
        self.sender.finish();
        if !self.receiver.is_complete() {
            self.receiver.close_first();
        }
    }

    /// Ends the connection: nothing is sent any more.
    pub fn close(&mut self, config: &Config) {
        *self = Socket::new(config);
    }

    /// Handles the SYN of the other end; returns the answer. Once the connection is established there is none.
    pub fn handle_syn(&mut self, config: &Config, now: Time, packet: &Packet) -> Option<Packet> {
        if self.sender.state() != State::Closed {
            return None;
        }
        let answer = self.receiver.handle_syn(config, now, packet)?;
        let ecn = answer.flags.has(Flags::ECE);
        self.called = Some(self.called.map_or((now, 0, ecn), |(first, more, _)| (first, more.saturating_add(1), ecn)));
        Some(answer)
    }

    /// Handles a packet but a SYN; calls `reply` with each ACK that must go now.
    pub fn handle_packet(
        &mut self,
        config: &Config,
        now: Time,
        packet: &Packet,
        reply: &mut impl FnMut(Packet),
    ) -> SocketEvents {
        let mut heard = SocketEvents::default();
        if self.sender.state() == State::Closed {
            let Some((answered, again, ecn)) = self.called else { return heard };
            // Several answers leave open which one was acknowledged.
            self.sender.accept(config, now, (again == 0).then_some(answered), ecn);
            self.receiver.accept(now);
            heard.accepted = true;
        }
        match packet.kind {
            Kind::SynAck if self.sender.state() == State::SynSent => {
                heard.signals = self.sender.handle_ack(config, now, packet).signals;
                let ecn = config.ecn && packet.flags.has(Flags::ECE);
                reply(self.receiver.establish(config, now, ecn, self.sender.srtt()));
            }
            // The ACK of the handshake carries nothing else.
            Kind::Ack if heard.accepted && packet.seq == 0 => {}
            Kind::Ack => heard.signals = self.sender.handle_ack(config, now, packet).signals,
            Kind::Data => {
                heard.signals = self.take_acknowledgement(config, now, packet);
                let data_seq = self.sender.next();
                self.receiver.handle_data(config, now, packet, &mut |ack| reply(Packet { data_seq, ..ack }));
            }
            _ => {}
        }
        heard
    }

    /// Data acknowledges what it can of the other direction.
    fn take_acknowledgement(&mut self, config: &Config, now: Time, packet: &Packet) -> Signals {
        let ece = packet.flags.has(Flags::ECE);
        // What acknowledges nothing new is no duplicate ACK, as it carries data.
        if packet.data_seq <= self.sender.una() && !ece {
            return Signals::default();
        }
        let ack = Packet {
            kind: Kind::Ack,
            seq: packet.data_seq,
            window: packet.window,
            flags: Flags::when(ece, Flags::ECE),
            ..Packet::default()
        };
        self.sender.handle_ack(config, now, &ack).signals
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sender.poll_timeout().into_iter().chain(self.receiver.poll_timeout()).min()
    }

    /// Handles the timeouts that are due; calls `reply` with an ACK that was delayed, or a SYN-ACK that goes again.
    pub fn handle_timeout(&mut self, config: &Config, now: Time, reply: &mut impl FnMut(Packet)) -> SocketEvents {
        if self.receiver.poll_timeout().is_some_and(|due| due <= now)
            && let Some(ack) = self.receiver.handle_timeout(config, now)
        {
            if ack.kind == Kind::SynAck {
                self.called.iter_mut().for_each(|(_, again, _)| *again = again.saturating_add(1));
            }
            reply(Packet { data_seq: self.sender.next(), ..ack });
        }
        SocketEvents { signals: self.sender.handle_timeout(config, now), accepted: false }
    }

    /// The next segment to send.
    pub fn poll_transmit(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        let mut transmit = self.sender.poll_transmit(config, now)?;
        if self.bare_fin == Some(transmit.seq) && transmit.kind == Kind::Data {
            transmit.flags = transmit.flags.without(Flags::ECT).with(self.sender.beside_data());
        }
        Some(transmit)
    }

    /// Has `packet`, which carries data of this end, acknowledge the other's; an ACK that waits need not go any more.
    pub fn acknowledge(&mut self, config: &Config, packet: &mut Packet) {
        let ack = self.receiver.acknowledge(config);
        (packet.data_seq, packet.window) = (ack.seq, ack.window);
        packet.flags = packet.flags.with(Flags::when(ack.flags.has(Flags::ECE), Flags::ECE));
    }

    /// The half that sends.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The half that receives.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Whether a segment means only that nothing follows.
    pub fn is_bare_fin(&self, seq: u32) -> bool {
        self.bare_fin == Some(seq)
    }
}
