//! MPTCP connections: subflows are flows whose data a connection hands out.

use std::ops::Range;

use sidestep_net::{Span, Time};
use sidestep_proto::{
    mptcp::{Config, Connection, Reassembly, ReceiveWindow, Scheduler},
    packet::{Kind, Packet},
    tcp::{Acked, Receiver, Sender, Signals},
};

use super::{
    endpoint::Half,
    flows::{Flow, FlowId, FlowKind, FlowSpec, segments},
    network::RouteId,
    steering::Steering,
    world::World,
};

/// An MPTCP connection; its subflows' numbers, and the slots of their senders, follow each other.
#[derive(Debug)]
pub(super) struct Multipath {
    pub(super) config: Config,
    pub(super) connection: Connection,
    pub(super) reassembly: Reassembly,
    /// The window that the receiver offers; `None`: always the whole buffer.
    pub(super) window: Option<Box<ReceiveWindow>>,
    pub(super) first: u32,
    pub(super) first_slot: u32,
    pub(super) count: u32,
    pub(super) done: bool,
}

impl Multipath {
    /// Completes an ACK of a subflow, which contains what the subflow alone would offer.
    #[inline]
    pub(super) fn complete(&mut self, flow: u32, ack: Packet) -> Packet {
        let window = match &mut self.window {
            Some(window) => {
                let (next, held) = (self.reassembly.data_ack(), self.reassembly.held());
                window.offer(ack.window, next, held)
            }
            None => self.config.receive_buffer,
        };
        // Beside MPTCP's option and the timestamps a TCP header has room for one block.
        Packet { flow, window, sack: [ack.sack[0], (0, 0), (0, 0)], ..ack }
    }

    /// `run` segments of a subflow are newly in order there, of which the packet is the first; returns how many of the connection
    /// are.
    fn read(&mut self, packet: &Packet, run: u32) -> u32 {
        let subflow = (packet.flow - self.first) as usize;
        let follow = (packet.seq + 1..packet.seq + run).map(|seq| self.connection.data_seq(subflow, seq));
        let first = (run > 0).then_some(packet.data_seq);
        first.into_iter().chain(follow).map(|data_seq| self.reassembly.handle_data(data_seq)).sum()
    }

    fn slots(&self) -> Range<usize> {
        self.first_slot as usize..(self.first_slot + self.count) as usize
    }
}

impl<S: Steering> World<S> {
    /// Makes an MPTCP connection with a subflow for each pair of routes; the flows' numbers follow each other.
    ///
    /// Of `spec` the routes do not matter.
    pub fn add_connection(&mut self, spec: FlowSpec, config: Config, routes: &[(RouteId, RouteId)]) -> FlowId {
        let first = FlowId(self.flows.len() as u32);
        let first_slot = self.senders.len() as u32;
        let mut connection = Connection::new(&config, routes.len());
        connection.supply(segments(spec.bytes, spec.mss).0);
        if spec.bytes.is_some() {
            connection.finish();
        }
        let index = self.connections.len() as u32;
        let tuned = config.scheduler == Scheduler::Linux;
        for (forward, reverse) in routes {
            let slot = self.senders.len() as u32;
            let tcp = &self.configs[usize::from(spec.tcp.0)];
            self.senders.push(Sender::new(tcp));
            self.receivers.push(if tuned { Receiver::of_subflow(tcp) } else { Receiver::new(tcp) });
            let spec = FlowSpec { forward: *forward, reverse: *reverse, ..spec };
            self.push_flow(Flow { connection: index, ..Flow::new(spec, FlowKind::Subflow, slot) });
        }
        let (count, reassembly) = (routes.len() as u32, Reassembly::default());
        let window = tuned.then(|| Box::new(ReceiveWindow::new(config.receive_buffer)));
        self.connections.push(Multipath {
            config,
            connection,
            reassembly,
            window,
            first: first.0,
            first_slot,
            count,
            done: false,
        });
        first
    }

    pub(super) fn handle_multipath_ack(&mut self, packet: &Packet, acked: &Acked, connection: usize) {
        let multipath = &mut self.connections[connection];
        let range = multipath.slots();
        let subflow = (packet.flow - multipath.first) as usize;
        multipath.connection.handle_ack(&multipath.config, self.now, &mut self.senders[range], subflow, packet, acked);
        if acked.signals.established() {
            self.confirm_joins(connection);
        }
        let multipath = &self.connections[connection];
        if multipath.connection.is_finished() {
            self.end_connection(connection);
        } else if multipath.connection.poll_timeout().is_some() {
            self.open_subflows(connection);
        }
    }

    /// Sends the third packets of handshakes that are due now.
    fn confirm_joins(&mut self, connection: usize) {
        loop {
            let multipath = &mut self.connections[connection];
            let senders = &self.senders[multipath.slots()];
            let Some(subflow) = multipath.connection.poll_confirm(self.now, senders) else { break };
            let flow = multipath.first + subflow as u32;
            self.send_without_data(flow, Kind::HandshakeAck);
        }
    }

    /// A segment of a connection has arrived over a subflow; returns the first that the receiver still waits for.
    #[inline]
    pub(super) fn handle_multipath_data(&mut self, packet: &Packet, connection: usize) -> u32 {
        let multipath = &mut self.connections[connection];
        if multipath.window.is_some() {
            self.handle_tuned_data(packet, connection);
        } else {
            multipath.reassembly.handle_data(packet.data_seq);
        }
        self.connections[connection].reassembly.data_ack()
    }

    /// As [`handle_multipath_data`](Self::handle_multipath_data), with a window that grows as the application reads: what is in
    /// order in its subflow (`mptcp_subflow_data_available`).
    fn handle_tuned_data(&mut self, packet: &Packet, connection: usize) {
        let multipath = &mut self.connections[connection];
        let (slots, subflow) = (multipath.slots(), (packet.flow - multipath.first) as usize);
        let run = self.receivers[slots.start + subflow].in_order_with(packet.seq);
        let read = multipath.read(packet, run);
        let Some(window) = &mut multipath.window else { return };
        let (senders, receivers) = (&self.senders[slots.clone()], &mut self.receivers[slots.clone()]);
        // Both ends measure the same round trip, the receiver from the first data on.
        let round_trips = || {
            let ends = senders.iter().zip(&*receivers).enumerate().filter(|(_, (_, receiver))| receiver.is_accepted());
            ends.map(|(at, (sender, receiver))| {
                let heard = at == subflow || receiver.has_data();
                heard.then(|| sender.srtt().unwrap_or(Span::ZERO))
            })
        };
        if let Some(read) = window.handle_data(self.now, read, round_trips) {
            receivers.iter_mut().for_each(|receiver| receiver.follow(read));
        }
        receivers[subflow].note_connection(window.is_short(multipath.reassembly.held()));
    }

    /// A connection has sent all its data, or was never established.
    fn end_connection(&mut self, connection: usize) {
        let multipath = &mut self.connections[connection];
        if !std::mem::replace(&mut multipath.done, true) {
            self.finished.push_back(FlowId(multipath.first));
        }
    }

    /// From when on a subflow could carry data; `None`: not yet, or it is none.
    pub fn ready_at(&self, flow: FlowId) -> Option<Time> {
        let multipath = self.connections.get(self.flows.get(flow.0 as usize)?.connection as usize)?;
        multipath.connection.ready_at((flow.0 - multipath.first) as usize)
    }

    /// Opens the subflows that are due now, and sees when the connection wants to be woken.
    pub(super) fn open_subflows(&mut self, connection: usize) {
        loop {
            let multipath = &mut self.connections[connection];
            if multipath.done {
                return;
            }
            let Some(subflow) = multipath.connection.poll_open(self.now) else { break };
            let flow = multipath.first + subflow as u32;
            self.senders[multipath.first_slot as usize + subflow].open();
            self.transmit(flow);
        }
        self.arm_connection(connection);
    }

    /// The connection is woken by the timer of its first subflow's sender.
    pub(super) fn arm_connection(&mut self, connection: usize) {
        let multipath = &self.connections[connection];
        let (first, timeout) = (multipath.first, multipath.connection.poll_timeout());
        let armed = &mut self.flows[first as usize].sender_timer;
        self.timers.arm(armed, timeout.filter(|_| !multipath.done), first, Half::Sender);
    }

    /// The timer of a connection's first subflow fired, which may have been for the connection.
    pub(super) fn fire_connection(&mut self, flow: u32) {
        let connection = self.flows[flow as usize].connection as usize;
        let Some(multipath) = self.connections.get_mut(connection).filter(|of| of.first == flow && !of.done) else {
            return;
        };
        if multipath.connection.poll_timeout().is_some_and(|due| due <= self.now) {
            let range = multipath.slots();
            multipath.connection.handle_timeout(self.now, &self.senders[range]);
            self.confirm_joins(connection);
            self.open_subflows(connection);
            self.schedule(connection, flow);
        } else {
            self.arm_connection(connection);
        }
    }

    /// Something happened to a subflow.
    pub(super) fn handle_multipath_signals(&mut self, flow: u32, signals: Signals) {
        let connection = self.flows[flow as usize].connection as usize;
        let Some(multipath) = self.connections.get_mut(connection) else { return };
        let range = multipath.slots();
        let subflow = (flow - multipath.first) as usize;
        multipath.connection.handle_signals(&multipath.config, &self.senders[range.clone()], subflow, signals);
        if signals.finished() && multipath.connection.is_refused(&self.senders[range]) {
            self.end_connection(connection);
        }
    }

    /// Gives data to the subflows that have room, and makes them send it.
    pub(super) fn schedule(&mut self, connection: usize, flow: u32) {
        loop {
            let Multipath { config, connection, first, first_slot, count, .. } = &mut self.connections[connection];
            let subflows = &mut self.senders[*first_slot as usize..(*first_slot + *count) as usize];
            let hint = (flow - *first) as usize;
            let Some(assigned) = connection.poll_transmit(config, self.now, subflows, hint) else { return };
            let to = *first + assigned.subflow as u32;
            self.transmit(to);
        }
    }
}
