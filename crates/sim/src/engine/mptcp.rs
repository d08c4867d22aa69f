//! MPTCP connections: subflows are flows whose data a connection hands out.

use sidestep_model::Time;
use sidestep_proto::{
    mptcp::{Config, Connection, Reassembly, ReceiveWindow, Scheduler},
    packet::Packet,
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
    /// What an ACK of a subflow says that the receiver has room for.
    #[inline]
    pub(super) fn offered(&self, flow: u32) -> u32 {
        let own = |window: &ReceiveWindow| window.offered((flow - self.first) as usize, self.reassembly.held());
        self.window.as_deref().map_or(self.config.receive_buffer, own)
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
        for (forward, reverse) in routes {
            let slot = self.senders.len() as u32;
            let tcp = &self.configs[usize::from(spec.tcp.0)];
            self.senders.push(Sender::new(tcp));
            self.receivers.push(Receiver::new(tcp));
            let spec = FlowSpec { forward: *forward, reverse: *reverse, ..spec };
            self.push_flow(Flow { connection: index, ..Flow::new(spec, FlowKind::Subflow, slot) });
        }
        let (count, reassembly) = (routes.len() as u32, Reassembly::default());
        let tuned = config.scheduler == Scheduler::Linux;
        let window = tuned.then(|| Box::new(ReceiveWindow::new(routes.len(), config.receive_buffer)));
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
        let range = multipath.first_slot as usize..(multipath.first_slot + multipath.count) as usize;
        let subflow = (packet.flow - multipath.first) as usize;
        multipath.connection.handle_ack(&multipath.config, self.now, &mut self.senders[range], subflow, packet, acked);
        let finished = multipath.connection.is_finished();
        if finished {
            self.end_connection(connection);
        } else if multipath.connection.poll_timeout().is_some() {
            self.open_subflows(connection);
        }
    }

    /// A segment of a connection has arrived over a subflow; returns what the receiver waits for, and what it has room for.
    #[inline]
    pub(super) fn handle_multipath_data(&mut self, packet: &Packet, connection: usize) -> (u32, u32) {
        let multipath = &mut self.connections[connection];
        let read = multipath.reassembly.handle_data(packet.data_seq);
        if let Some(window) = &mut multipath.window {
            let range = multipath.first_slot as usize..(multipath.first_slot + multipath.count) as usize;
            let senders = &self.senders[range];
            // Both ends measure the same round trip.
            let round_trips = || senders.iter().map(Sender::srtt);
            window.handle_data(self.now, (packet.flow - multipath.first) as usize, read, round_trips);
        }
        (multipath.reassembly.data_ack(), multipath.offered(packet.flow))
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

    /// Opens the subflows that are to be opened now, and sees when the connection wants to be woken.
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
        if multipath.connection.poll_timeout().is_some_and(|(due, _)| due <= self.now) {
            let range = multipath.first_slot as usize..(multipath.first_slot + multipath.count) as usize;
            multipath.connection.handle_timeout(self.now, &self.senders[range]);
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
        let range = multipath.first_slot as usize..(multipath.first_slot + multipath.count) as usize;
        let subflow = (flow - multipath.first) as usize;
        multipath.connection.handle_signals(&multipath.config, &mut self.senders[range.clone()], subflow, signals);
        if signals.finished() && multipath.connection.is_refused(&self.senders[range]) {
            self.end_connection(connection);
        }
    }

    /// Gives data to the subflows that have room, and has them send it.
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
