//! MPTCP connections: subflows are flows whose data a connection hands out.

use sidestep_proto::{
    mptcp::{Config, Connection, Reassembly},
    packet::Packet,
    tcp::{Acked, Receiver, Sender, Signals},
};

use super::{
    flows::{Flow, FlowId, FlowKind, FlowSpec, segments},
    network::RouteId,
    world::{Steering, World},
};

/// An MPTCP connection; its subflows' numbers, and the slots of their senders, follow each other.
#[derive(Debug)]
pub(super) struct Multipath {
    pub(super) config: Config,
    pub(super) connection: Connection,
    pub(super) reassembly: Reassembly,
    pub(super) first: u32,
    pub(super) first_slot: u32,
    pub(super) count: u32,
    pub(super) done: bool,
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
        self.connections.push(Multipath {
            config,
            connection,
            reassembly,
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
        multipath.connection.handle_ack(&multipath.config, &mut self.senders[range], subflow, packet, acked);
        if multipath.connection.is_finished() && !multipath.done {
            multipath.done = true;
            let first = FlowId(multipath.first);
            self.finished.push_back(first);
            self.close(first);
        }
    }

    /// Something happened to a subflow.
    pub(super) fn handle_multipath_signals(&mut self, flow: u32, signals: Signals) {
        let Some(multipath) = self.connections.get_mut(self.flows[flow as usize].connection as usize) else { return };
        let range = multipath.first_slot as usize..(multipath.first_slot + multipath.count) as usize;
        let subflow = (flow - multipath.first) as usize;
        multipath.connection.handle_signals(&multipath.config, &mut self.senders[range], subflow, signals);
    }

    /// Gives data to the subflows that have room, and has them send it.
    pub(super) fn schedule(&mut self, connection: usize, flow: u32) {
        loop {
            let Multipath { config, connection, first, first_slot, count, .. } = &mut self.connections[connection];
            let subflows = &mut self.senders[*first_slot as usize..(*first_slot + *count) as usize];
            let hint = (flow - *first) as usize;
            let Some(assigned) = connection.poll_transmit(config, subflows, hint) else { return };
            let to = *first + assigned.subflow as u32;
            self.transmit(to);
        }
    }
}
