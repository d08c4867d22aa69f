//! The receiver's half: TCP's receiver, whose ACKs echo the rate that routers offered.

use sidestep_net::Time;
use sidestep_proto::{packet::Packet, tcp};

/// The half of a connection that receives data, acknowledges it, and echoes the rate of the last segment.
#[derive(Clone, Debug)]
pub struct Receiver {
    tcp: tcp::Receiver,
    /// The rate that the last segment carried, in kbit/s.
    rate: u32,
}

impl Receiver {
    /// A receiver that waits for the SYN.
    pub fn new(config: &tcp::Config) -> Self {
        Receiver { tcp: tcp::Receiver::new(config), rate: 0 }
    }

    /// Handles a SYN; returns the SYN-ACK, if it is answered.
    pub fn handle_syn(&mut self, config: &tcp::Config, now: Time, packet: &Packet) -> Option<Packet> {
        Some(Packet { rate: packet.rate, ..self.tcp.handle_syn(config, now, packet)? })
    }

    /// Handles a segment; calls `reply` with each ACK that must go now.
    pub fn handle_data(&mut self, config: &tcp::Config, now: Time, packet: &Packet, reply: &mut impl FnMut(Packet)) {
        self.rate = packet.rate;
        let rate = self.rate;
        self.tcp.handle_data(config, now, packet, &mut |ack: Packet| reply(Packet { rate, ..ack }));
    }

    /// Returns the delayed ACK if it is due.
    pub fn handle_timeout(&mut self, config: &tcp::Config, now: Time) -> Option<Packet> {
        let ack = self.tcp.handle_timeout(config, now)?;
        Some(Packet { rate: self.rate, ..ack })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.tcp.poll_timeout()
    }
}
