//! Flows of TCP, and the TCP side of MPTCP's subflows.

use sidestep_net::Time;
use sidestep_proto::{
    packet::{Flags, Kind, Packet},
    tcp::{Sender, State},
};

use super::{
    endpoint::Half,
    flows::{FlowId, FlowKind},
    steering::{End, Event, Steering},
    world::World,
};

/// Whether programs are notified of what a sender sends again now: Linux notifies its own of all; for those of the other profile
/// losses are what a recovery sends.
pub(super) fn reports_retransmits(sender: &Sender) -> bool {
    sender.is_linux() || sender.state() == State::Recovery
}

impl<S: Steering> World<S> {
    #[inline]
    pub(super) fn deliver_data(&mut self, packet: &Packet) {
        let mut flow = &mut self.flows[packet.flow as usize];
        let slot = flow.slot as usize;
        if flow.kind.is_elsewhere() {
            return self.deliver_elsewhere(packet);
        }
        let received = self.receivers[slot].received();
        if received == 0 || packet.seq < received {
            // Its answer takes the new route.
            let event = if received == 0 { Event::Accepted } else { Event::Duplicate };
            self.notify_receiver(packet.flow, event);
            flow = &mut self.flows[packet.flow as usize];
        }
        let (kind, connection) = (flow.kind, flow.connection as usize);
        let data_seq = if kind == FlowKind::Subflow { self.handle_multipath_data(packet, connection) } else { 0 };
        let flow = &mut self.flows[packet.flow as usize];
        let tcp = &self.configs[usize::from(flow.tcp.0)];
        let receiver = &mut self.receivers[slot];
        let reverse = flow.reverse;
        let (network, sizes, now) = (&mut self.network, self.sizes, self.now.as_nanos());
        if flow.kind == FlowKind::Tcp {
            receiver.handle_data(tcp, self.now, packet, &mut |mut ack: Packet| {
                (ack.flow, ack.len) = (packet.flow, sizes.ack(&ack));
                network.inject(now, reverse, ack);
            });
        } else {
            let multipath = &mut self.connections[connection];
            receiver.handle_data(tcp, self.now, packet, &mut |ack: Packet| {
                let ack = multipath.complete(packet.flow, ack);
                let len = sizes.ack(&ack) + sizes.mptcp_ack;
                network.inject(now, reverse, Packet { data_seq, len, ..ack });
            });
        }
        let timeout = receiver.poll_timeout_before(flow.receiver_timer);
        self.timers.arm(&mut flow.receiver_timer, timeout, packet.flow, Half::Receiver);
        if receiver.is_complete() && self.is_to_close(packet.flow) && self.is_awake(packet.flow, Half::Receiver) {
            self.close_server(packet.flow);
        }
    }

    /// Something happened to a receiver that has sent nothing: its program may move ACKs.
    #[cold]
    fn notify_receiver(&mut self, flow: u32, event: Event) {
        let slot = self.flows[flow as usize].slot as usize;
        let receiver = &self.receivers[slot];
        // Its own round trip is the sender's.
        let (received, progress, srtt) = (receiver.received(), receiver.progress(), self.senders[slot].srtt());
        let end = End { half: Half::Receiver, sender: None, srtt, received, progress };
        let to = self.steering.happened(self.now, FlowId(flow), end, event);
        self.reroute(FlowId(flow), to);
    }

    #[inline]
    pub(super) fn deliver_ack(&mut self, packet: &Packet) {
        let flow = &self.flows[packet.flow as usize];
        if flow.kind.is_elsewhere() {
            return self.deliver_elsewhere(packet);
        }
        let connection = flow.connection;
        let sender = &mut self.senders[flow.slot as usize];
        let acked = sender.handle_ack(&self.configs[usize::from(flow.tcp.0)], self.now, packet);
        if flow.kind == FlowKind::Subflow {
            self.handle_multipath_ack(packet, &acked, connection as usize);
        }
        if acked.segments > 0 {
            self.end_outage(packet.flow);
        }
        if acked.signals.any() {
            self.signal(packet.flow, acked.signals);
        }
        self.pump(packet.flow);
        if acked.signals.established() && self.closes_apart(packet.flow) && self.is_awake(packet.flow, Half::Sender) {
            self.shut_down(packet.flow);
        }
        if packet.flags.has(Flags::FIN) && self.closes_apart(packet.flow) {
            self.deliver_fin(packet.flow);
        }
    }

    pub(super) fn deliver_syn(&mut self, packet: &Packet) {
        let flow = &self.flows[packet.flow as usize];
        if flow.kind.is_elsewhere() {
            return self.deliver_elsewhere(packet);
        }
        let (tcp, slot) = (&self.configs[usize::from(flow.tcp.0)], flow.slot as usize);
        let Some(reply) = self.receivers[slot].handle_syn(tcp, self.now, packet) else { return };
        self.reply_to_syn(packet.flow, reply);
        let armed = &mut self.flows[packet.flow as usize].receiver_timer;
        self.timers.arm(armed, self.receivers[slot].poll_timeout(), packet.flow, Half::Receiver);
    }

    /// Each SYN-ACK may take a route of its own.
    fn reply_to_syn(&mut self, flow: u32, reply: Packet) {
        let to = self.steering.requested(self.now, FlowId(flow));
        self.reroute(FlowId(flow), to);
        self.reply(flow, reply);
    }

    /// Sends what a flow may send.
    #[inline]
    pub(super) fn pump(&mut self, flow: u32) {
        let resent = self.transmit(flow);
        let of = &self.flows[flow as usize];
        let (slot, connection) = (of.slot as usize, of.connection);
        if of.kind == FlowKind::Subflow {
            self.schedule(connection as usize, flow);
        }
        if resent > 0 && reports_retransmits(&self.senders[slot]) {
            let end = End::of(Half::Sender, &self.senders[slot]);
            let to = self.steering.happened(self.now, FlowId(flow), end, Event::Retransmitted(resent));
            self.reroute(FlowId(flow), to);
        }
    }

    /// Sends what a flow's sender has; returns how many segments were sent again.
    #[inline]
    pub(super) fn transmit(&mut self, index: u32) -> u32 {
        let flow = &mut self.flows[index as usize];
        let sender = &mut self.senders[flow.slot as usize];
        let tcp = &self.configs[usize::from(flow.tcp.0)];
        let mut resent = 0;
        while let Some(transmit) = sender.poll_transmit(tcp, self.now) {
            let mut packet = Packet {
                sent: self.now.into(),
                flow: index,
                seq: transmit.seq,
                kind: transmit.kind,
                flags: transmit.flags,
                len: self.sizes.header,
                ..Packet::default()
            };
            if transmit.kind == Kind::Syn {
                packet.len += self.sizes.syn;
                resent += u32::from(sender.is_linux() && sender.backoff() > 0);
            } else {
                let mut data_seq = transmit.seq;
                if flow.kind == FlowKind::Subflow {
                    let multipath = &self.connections[flow.connection as usize];
                    data_seq = multipath.connection.data_seq((index - multipath.first) as usize, transmit.seq);
                    packet.data_seq = data_seq;
                    packet.len += self.sizes.mptcp_data;
                }
                packet.payload = if data_seq == flow.last { flow.last_payload } else { flow.mss };
                if data_seq > flow.last {
                    packet.payload = 0;
                    packet.flags = packet.flags.without(Flags::ECT).with(sender.beside_data());
                }
                packet.len += packet.payload;
                resent += u32::from(transmit.flags.has(Flags::RETRANSMIT));
            }
            self.network.inject(self.now.as_nanos(), flow.forward, packet);
        }
        let timeout = sender.poll_timeout_before(flow.sender_timer);
        self.timers.arm(&mut flow.sender_timer, timeout, index, Half::Sender);
        resent
    }

    /// Sends a packet that no segment stands for: the third of a handshake, which Linux sends before it has data, or the ACK of
    /// the receiver's FIN.
    pub(super) fn send_without_data(&mut self, flow: u32, kind: Kind) {
        let of = &self.flows[flow as usize];
        let sender = &self.senders[of.slot as usize];
        let (seq, flags, sent) = (sender.una(), sender.beside_data(), self.now.into());
        let packet = Packet { flow, kind, seq, flags, len: self.sizes.header, sent, ..Packet::default() };
        self.network.inject(self.now.as_nanos(), of.forward, packet);
    }

    pub(super) fn deliver_handshake_ack(&mut self, packet: &Packet) {
        let of = &self.flows[packet.flow as usize];
        let (slot, connection, tcp) = (of.slot as usize, of.connection as usize, usize::from(of.tcp.0));
        if self.receivers[slot].received() == 0 {
            self.receivers[slot].accept(self.now);
            self.notify_receiver(packet.flow, Event::Accepted);
        }
        if let Some(multipath) = self.connections.get(connection) {
            // The fourth packet of a join: the subflow may carry data.
            let data_seq = multipath.reassembly.data_ack();
            let ack = self.receivers[slot].acknowledge(&self.configs[tcp]);
            self.reply(packet.flow, Packet { data_seq, sent: packet.sent, ..ack });
        }
    }

    pub(super) fn reply(&mut self, flow: u32, packet: Packet) {
        let of = &self.flows[flow as usize];
        let mut packet = Packet { flow, ..packet };
        let mut option = 0;
        if let Some(multipath) = self.connections.get_mut(of.connection as usize) {
            (packet, option) = (multipath.complete(flow, packet), self.sizes.mptcp_ack);
        }
        packet.len = self.sizes.ack(&packet) + option;
        self.network.inject(self.now.as_nanos(), of.reverse, packet);
    }

    pub(super) fn fire_receiver(&mut self, index: u32) {
        let of = &mut self.flows[index as usize];
        of.receiver_timer = Time::MAX;
        let (slot, connection) = (of.slot as usize, of.connection as usize);
        let tcp = &self.configs[usize::from(of.tcp.0)];
        if let Some(mut ack) = self.receivers[slot].handle_timeout(tcp, self.now) {
            if let Some(multipath) = self.connections.get(connection) {
                ack.data_seq = multipath.reassembly.data_ack();
            }
            match ack.kind {
                Kind::SynAck => self.reply_to_syn(index, ack),
                _ => self.reply(index, ack),
            }
        }
        let armed = &mut self.flows[index as usize].receiver_timer;
        self.timers.arm(armed, self.receivers[slot].poll_timeout(), index, Half::Receiver);
        if self.receivers[slot].is_complete() {
            self.fire_server(index);
        }
    }

    pub(super) fn fire_sender(&mut self, index: u32) {
        let of = &mut self.flows[index as usize];
        of.sender_timer = Time::MAX;
        let slot = of.slot as usize;
        let signals = self.senders[slot].handle_timeout(&self.configs[usize::from(of.tcp.0)], self.now);
        if signals.any() {
            self.signal(index, signals);
            self.handle_multipath_signals(index, signals);
            self.pump(index);
        }
        let of = &mut self.flows[index as usize];
        let is_subflow = of.kind == FlowKind::Subflow;
        self.timers.arm(&mut of.sender_timer, self.senders[slot].poll_timeout(), index, Half::Sender);
        if is_subflow {
            self.fire_connection(index);
        }
    }
}
