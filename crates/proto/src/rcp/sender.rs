//! The sender's half: TCP's sender, paced at the rate that routers offer instead of limited by a congestion window.

use sidestep_model::{Span, Time};

use crate::{
    packet::{Kind, Packet},
    tcp::{self, Acked, Signals, State, Transmit},
};

/// The half of a connection that sends data.
///
/// It is driven as a [`tcp::Sender`] is. Its settings should have [`tcp::Algorithm::Unreduced`].
#[derive(Clone, Debug)]
pub struct Sender {
    tcp: tcp::Sender,
    /// The length of a packet in bits.
    bits: u32,
    /// The rate that routers offer, in kbit/s; zero before the first offer.
    rate: u32,
    /// When the next packet may leave.
    next: Time,
    /// When the waiting packet may leave; [`Time::MAX`]: none waits.
    wakes: Time,
}

impl Sender {
    /// A connection that is not open yet; its packets are of `len` bytes.
    pub fn new(config: &tcp::Config, len: u16) -> Self {
        let tcp = tcp::Sender::new(config);
        Sender { tcp, bits: u32::from(len) * 8, rate: 0, next: Time::ZERO, wakes: Time::MAX }
    }

    /// The TCP sender below, which does all but the pacing.
    pub fn tcp(&self) -> &tcp::Sender {
        &self.tcp
    }

    /// Begins to connect.
    pub fn open(&mut self) {
        self.tcp.open();
    }

    /// Supplies more segments to send.
    pub fn supply(&mut self, segments: u32) {
        self.tcp.supply(segments);
    }

    /// Declares that no segments follow those supplied so far.
    pub fn finish(&mut self) {
        self.tcp.finish();
    }

    /// Handles an ACK or a SYN-ACK.
    pub fn handle_ack(&mut self, config: &tcp::Config, now: Time, packet: &Packet) -> Acked {
        let connecting = matches!(self.tcp.state(), State::Closed | State::SynSent);
        let valid = match packet.kind {
            Kind::SynAck => self.tcp.state() == State::SynSent,
            _ => !connecting && (self.tcp.una()..=self.tcp.next()).contains(&packet.seq),
        };
        if valid {
            self.rate = packet.rate;
        }
        self.tcp.handle_ack(config, now, packet)
    }

    /// Handles a timeout: of the retransmission timer, or of the pacing of the next packet.
    pub fn handle_timeout(&mut self, config: &tcp::Config, now: Time) -> Signals {
        self.tcp.handle_timeout(config, now)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; [`Time::MAX`]: never.
    pub fn poll_timeout(&self) -> Time {
        self.tcp.poll_timeout().min(self.wakes)
    }

    /// The next segment to send, if its pacing time has come.
    pub fn poll_transmit(&mut self, config: &tcp::Config, now: Time) -> Option<Transmit> {
        if self.tcp.state() == State::SynSent || !self.tcp.window_has_room(config) {
            return self.tcp.poll_transmit(config, now);
        }
        if !self.tcp.has_segment() {
            self.wakes = Time::MAX;
            return None;
        }
        if now < self.next {
            self.wakes = self.next;
            return None;
        }
        self.wakes = Time::MAX;
        // Bits divided by kbit/s are milliseconds.
        let gap = u64::from(self.bits) * 1_000_000 / u64::from(self.rate.max(1));
        self.next = now + Span::from_nanos(gap);
        self.tcp.poll_transmit(config, now)
    }
}
