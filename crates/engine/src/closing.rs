//! How flows of TCP close under Linux's profile: the client's program shuts its side down when it has written all, the server's
//! closes when it has read all, and each FIN is acknowledged.

use sidestep_proto::{
    packet::{Flags, Kind, Packet},
    tcp::{Sender, State},
};

use super::{
    endpoint::Half,
    flows::{FlowId, FlowKind},
    steering::{End, Event, Steering},
    tcp::reports_retransmits,
    world::World,
};

/// The server's side of a flow that has closed: its one segment is its FIN.
#[derive(Debug)]
pub(super) struct Closing {
    sender: Sender,
    /// Whether the client has it.
    arrived: bool,
}

impl<S: Steering> World<S> {
    /// Whether the FINs of a flow's two ends are packets of their own.
    pub(super) fn closes_apart(&self, flow: u32) -> bool {
        let of = &self.flows[flow as usize];
        of.kind == FlowKind::Tcp && self.senders[of.slot as usize].is_linux()
    }

    /// The sender of the end that was called: of answers, or of a FIN.
    pub fn server(&self, flow: FlowId) -> Option<&Sender> {
        let own = self.closings.get(&flow.0).map(|closing| &closing.sender);
        own.or_else(|| self.sender_of_exchange(self.answers_of(flow)?))
    }

    /// Whether nothing is sent any more of a flow that finished.
    pub fn is_over(&self, flow: FlowId) -> bool {
        self.is_exchange_over(flow)
            && self.closings.get(&flow.0).is_none_or(|closing| closing.sender.state() == State::Finished)
    }

    /// The client's program, which was late, writes what it sends, and shuts its side down.
    pub(super) fn write_all(&mut self, flow: u32) {
        let of = &self.flows[flow as usize];
        let sender = &mut self.senders[of.slot as usize];
        sender.supply(of.last.wrapping_add(1));
        if of.last_payload == 0 {
            sender.finish();
        }
        self.pump(flow);
        self.shut_down(flow);
    }

    /// The client is connected and has written what it sends, which was sent as far as it may: nothing follows. The last
    /// segment carries that if it waits, else one without data.
    pub(super) fn shut_down(&mut self, flow: u32) {
        let of = &self.flows[flow as usize];
        let sender = &mut self.senders[of.slot as usize];
        if !of.is_sized() || sender.is_finishing() {
            return;
        }
        if sender.next() == sender.supplied() {
            sender.supply(1);
        }
        sender.finish();
        self.pump(flow);
    }

    /// Whether the server, which has read all, has not closed yet.
    pub(super) fn is_to_close(&self, flow: u32) -> bool {
        // The place of a flow that is over still gets what was in the network.
        let is_over = || self.senders[self.flows[flow as usize].slot as usize].state() == State::Closed;
        self.closes_apart(flow) && !is_over() && !self.closings.contains_key(&flow)
    }

    /// The server's program closes.
    pub(super) fn close_server(&mut self, flow: u32) {
        let of = &self.flows[flow as usize];
        let config = &self.configs[usize::from(of.tcp.0)];
        let mut sender = Sender::new(config);
        match self.receivers[of.slot as usize].answered() {
            Some((sent, answered)) => sender.accept(config, answered, Some(sent), false),
            None => sender.accept(config, self.now, None, false),
        }
        sender.supply(1);
        sender.finish();
        self.closings.insert(flow, Closing { sender, arrived: false });
        self.pump_server(flow);
    }

    /// Sends the server's FIN if that is due, and sees when it wants to be woken.
    fn pump_server(&mut self, flow: u32) {
        let of = &mut self.flows[flow as usize];
        let config = &self.configs[usize::from(of.tcp.0)];
        let Some(Closing { sender, .. }) = self.closings.get_mut(&flow) else { return };
        let mut resent = 0;
        while let Some(transmit) = sender.poll_transmit(config, self.now) {
            resent += u32::from(transmit.flags.has(Flags::RETRANSMIT));
            let ack = self.receivers[of.slot as usize].acknowledge(config);
            let fin = Packet { flow, flags: ack.flags.with(Flags::FIN), len: self.sizes.header, ..ack };
            self.network.inject(self.now.as_nanos(), of.reverse, fin);
        }
        self.timers.arm(&mut of.receiver_timer, sender.poll_timeout(), flow, Half::Receiver);
        if resent > 0 && reports_retransmits(sender) {
            self.notify_server(flow, Event::Retransmitted(resent));
        }
    }

    /// The server's FIN has arrived: the client has finished, and acknowledges each that comes.
    pub(super) fn deliver_fin(&mut self, flow: u32) {
        self.send_without_data(flow, Kind::LastAck);
        if let Some(closing) = self.closings.get_mut(&flow)
            && !std::mem::replace(&mut closing.arrived, true)
            && self.is_awake(flow, Half::Sender)
        {
            self.finished.push_back(FlowId(flow));
        }
    }

    /// Whether the client has the server's FIN.
    pub(super) fn has_fin(&self, flow: u32) -> bool {
        self.closings.get(&flow).is_some_and(|closing| closing.arrived)
    }

    pub(super) fn deliver_last_ack(&mut self, packet: &Packet) {
        let of = &self.flows[packet.flow as usize];
        let config = &self.configs[usize::from(of.tcp.0)];
        let Some(Closing { sender, .. }) = self.closings.get_mut(&packet.flow) else { return };
        let srtt = sender.srtt();
        let ack =
            Packet { kind: Kind::Ack, seq: sender.supplied(), window: config.receive_window, ..Packet::default() };
        let signals = sender.handle_ack(config, self.now, &ack).signals;
        if signals.any() {
            // Linux calls its program before it takes in the sample.
            let end = End { srtt, ..End::of(Half::Receiver, sender) };
            self.steering.happened(self.now, FlowId(packet.flow), end, Event::Signals(signals));
            // A client that will be woken has not finished before.
            if !self.programs.is_due(packet.flow, Half::Sender) {
                self.finished.push_back(FlowId(packet.flow));
            }
        }
    }

    /// The timer of a server's FIN may have fired.
    pub(super) fn fire_server(&mut self, flow: u32) {
        let config = &self.configs[usize::from(self.flows[flow as usize].tcp.0)];
        let Some(Closing { sender, .. }) = self.closings.get_mut(&flow) else { return };
        let signals = sender.handle_timeout(config, self.now);
        if signals.any() {
            self.notify_server(flow, Event::Signals(signals));
        }
        self.pump_server(flow);
    }

    fn notify_server(&mut self, flow: u32, event: Event) {
        let Some(Closing { sender, .. }) = self.closings.get(&flow) else { return };
        let to = self.steering.happened(self.now, FlowId(flow), End::of(Half::Receiver, sender), event);
        self.reroute(FlowId(flow), to);
    }
}
