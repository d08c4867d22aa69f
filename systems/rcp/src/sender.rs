//! The sender's half: TCP's sender, paced at the rate that routers offer instead of limited by a congestion window.

use sidestep_net::{Span, Time};
use sidestep_proto::{
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
    /// When the waiting packet may leave; `None`: none waits.
    wakes: Option<Time>,
}

/// Which timer of a [`Sender`] is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderTimeout {
    /// One of TCP's.
    Tcp(tcp::SenderTimeout),
    /// The next packet may leave at the rate that routers offer.
    Pacing,
}

impl SenderTimeout {
    /// The name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            SenderTimeout::Tcp(timeout) => timeout.as_str(),
            SenderTimeout::Pacing => "pacing",
        }
    }
}

impl Sender {
    /// A connection that is not open yet; its packets are of `len` bytes.
    pub fn new(config: &tcp::Config, len: u16) -> Self {
        let tcp = tcp::Sender::new(config);
        Sender { tcp, bits: u32::from(len) * 8, rate: 0, next: Time::ZERO, wakes: None }
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
        // An old SYN-ACK or ACK would bring back a rate that routers do not offer any more.
        let valid = match packet.kind {
            Kind::SynAck => self.tcp.state() == State::SynSent,
            _ => !connecting && (self.tcp.una()..=self.tcp.next()).contains(&packet.seq),
        };
        if valid {
            self.rate = packet.rate;
        }
        self.tcp.handle_ack(config, now, packet)
    }

    /// Handles the timeout that is due. After [`SenderTimeout::Pacing`] there is a packet to
    /// [transmit](Self::poll_transmit).
    pub fn handle_timeout(&mut self, config: &tcp::Config, now: Time) -> Signals {
        self.tcp.handle_timeout(config, now)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never.
    pub fn next_timeout(&self) -> Option<(Time, SenderTimeout)> {
        let tcp = self.tcp.next_timeout().map(|(due, timeout)| (due, SenderTimeout::Tcp(timeout)));
        let pacing = self.wakes.map(|due| (due, SenderTimeout::Pacing));
        tcp.into_iter().chain(pacing).min_by_key(|(due, _)| *due)
    }

    /// The next segment to send, if its pacing time has come.
    pub fn poll_transmit(&mut self, config: &tcp::Config, now: Time) -> Option<Transmit> {
        if self.tcp.state() == State::SynSent || !self.tcp.window_has_room(config) {
            return self.tcp.poll_transmit(config, now);
        }
        if !self.tcp.has_segment() {
            self.wakes = None;
            return None;
        }
        if now < self.next {
            self.wakes = Some(self.next);
            return None;
        }
        self.wakes = None;
        // Bits divided by kbit/s are milliseconds. Paced, as a rate in bursts would be the queue that RCP must do
        // without.
        let gap = u64::from(self.bits) * 1_000_000 / u64::from(self.rate.max(1));
        self.next = now + Span::from_nanos(gap);
        self.tcp.poll_transmit(config, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_timeout_says_what_it_is_for() {
        let config = tcp::Config { algorithm: tcp::Algorithm::Unreduced, ..tcp::Config::rfc() };
        let mut sender = Sender::new(&config, 1_500);
        sender.supply(2);
        sender.open();
        assert_eq!(sender.poll_timeout(), None, "the SYN has not left");
        assert!(sender.poll_transmit(&config, Time::ZERO).is_some());
        let reason = |sender: &Sender| sender.next_timeout().map(|(_, timeout)| timeout);
        assert_eq!(reason(&sender), Some(SenderTimeout::Tcp(tcp::SenderTimeout::Syn)));
        // At 12 Mbit/s a packet takes a millisecond, much less than any retransmission timeout.
        let now = Time::ZERO + Span::from_millis(10);
        let syn_ack = Packet { kind: Kind::SynAck, rate: 12_000, window: 100, ..Packet::default() };
        sender.handle_ack(&config, now, &syn_ack);
        assert!(sender.poll_transmit(&config, now).is_some());
        assert_eq!(sender.poll_transmit(&config, now), None);
        assert_eq!(sender.next_timeout(), Some((now + Span::from_millis(1), SenderTimeout::Pacing)));
        assert!(sender.poll_transmit(&config, now + Span::from_millis(1)).is_some());
        assert_eq!(reason(&sender), Some(SenderTimeout::Tcp(tcp::SenderTimeout::Retransmission)));
    }
}
