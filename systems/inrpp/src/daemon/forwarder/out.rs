//! What the core asks of the process: packets sent, held or dropped, window updates, probes.

use sidestep_net::{Span, Time};

use super::{
    super::{
        connections::Connections,
        headers::AckTemplate,
        message::Probe as ProbeMessage,
        shim::{Flags, Kind, Shim},
        slots::Slots,
    },
    Counts, DISTURBED,
    port::{Peer, PortIo},
};
use crate::{Egress, Handle, LimitFields, Loss, Notification, Port, Probe, RouterId, Way};

/// How long a link that takes nothing is thought to stay so, until it says that it does.
const BLOCKED: Span = Span::from_secs(1);

/// The process, as the core sees it.
pub(super) struct Out<'a> {
    pub(super) now: Time,
    pub(super) ports: &'a mut [PortIo],
    pub(super) slots: &'a mut Slots,
    pub(super) connections: &'a mut Connections,
    pub(super) counts: &'a mut Counts,
}

/// What a packet that leaves is like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    pub(super) flags: Flags,
    /// The router that it has to reach, on a detour.
    pub(super) next: Option<RouterId>,
}

/// Hands a packet, headers and payload, to the link of a port.
pub(super) fn emit(ports: &mut [PortIo], now: Time, port: Port, like: Leaving, head: &[u8], payload: &[u8]) {
    let Some(port) = ports.get_mut(usize::from(port.0)) else { return };
    port.count(now, head.len() + payload.len());
    match &mut port.peer {
        Peer::Neighbour(neighbour) => {
            port.lost += u64::from(!neighbour.put(Kind::Data, like.flags, like.next, &[head, payload]));
        }
        Peer::Edge => {
            port.leaving.extend_from_slice(head);
            port.leaving.extend_from_slice(payload);
            port.ends.push((port.leaving.len(), like.flags.partial));
        }
    }
}

/// The router that answers at a port.
fn router_at(ports: &[PortIo], at: Port) -> Option<RouterId> {
    ports.get(usize::from(at.0)).and_then(PortIo::alive).map(|next| next.id)
}

/// Where a packet for the port `at` leaves that is to take the detour over `over`, and the router that it has to reach. If that one
/// answers no more, the packet takes no detour.
pub(super) fn detour(ports: &[PortIo], at: Port, over: Port) -> (Port, Option<RouterId>) {
    match router_at(ports, at) {
        Some(next) => (over, Some(next)),
        None => (at, None),
    }
}

impl Out<'_> {
    /// Sends a message of the router's own to a neighbour.
    pub(super) fn say(&mut self, port: Port, kind: Kind, body: &[u8]) {
        let Some(port) = self.ports.get_mut(usize::from(port.0)) else { return };
        port.count(self.now, body.len());
        if let Some(neighbour) = port.neighbour() {
            neighbour.put(kind, Flags::default(), None, &[body]);
        }
    }

    /// Notes that packets of a flow may come in another order.
    pub(super) fn disturb(&mut self, flow: u64) {
        disturb(self.connections, self.now, flow);
    }

    /// Sends a packet that waited, and frees its place.
    fn send_slot(&mut self, handle: Handle, port: Port, next: Option<RouterId>) {
        let note = self.slots.note(handle);
        if next.is_some() {
            self.disturb(note.flow);
        }
        let disturbed = note.disturbed || next.is_some();
        let flags = Flags { partial: note.partial, detoured: note.detoured, disturbed };
        emit(self.ports, self.now, port, Leaving { flags, next }, self.slots.packet(handle), &[]);
        self.slots.free(handle);
    }
}

/// Notes that packets of a flow may come in another order.
pub(super) fn disturb(connections: &mut Connections, now: Time, flow: u64) {
    if let Some(half) = connections.half_of(flow) {
        half.disturbed_until = now + DISTURBED;
    }
}

impl Egress for Out<'_> {
    fn free_at(&self, port: Port) -> Time {
        match self.ports.get(usize::from(port.0)) {
            Some(port) if port.is_blocked() => port.free_at.max(self.now + BLOCKED),
            Some(port) => port.free_at,
            None => Time::ZERO,
        }
    }

    fn send(&mut self, packet: Handle, way: Way, _: Option<Notification>) {
        match way {
            Way::Direct(port) => self.send_slot(packet, port, None),
            Way::Detour(over) => {
                let port = self.slots.note(packet).port;
                let (to, next) = detour(self.ports, port, over);
                self.send_slot(packet, to, next);
            }
        }
    }

    fn update(&mut self, flow: u64, ack: &LimitFields) {
        let Some(half) = self.connections.half_of(flow) else { return };
        let (Some(template), Some(back), Some(update)) = (half.template, half.back, half.update(ack.limit)) else {
            return;
        };
        let mut packet = [0; AckTemplate::MAX_LEN];
        let len = template.write(update.window, &mut packet);
        self.counts.window_updates += 1;
        let like = Leaving { flags: Flags { partial: true, ..Flags::default() }, next: None };
        emit(self.ports, self.now, back, like, packet.get(..len).unwrap_or_default(), &[]);
    }

    fn discard(&mut self, packet: Handle, _: Loss) {
        self.slots.free(packet);
    }

    fn next_hop(&mut self, packet: Handle) -> Option<Port> {
        Some(self.slots.note(packet).port)
    }

    fn probe(&mut self, over: Port, probe: Probe) {
        let Some(around) = router_at(self.ports, probe.of) else { return };
        let body = ProbeMessage { of: probe.of, around, wants: probe.wants }.encode();
        self.say(over, Kind::Probe, &body);
    }
}

impl super::port::Neighbour {
    /// Puts a packet into the outbox, in this session; returns false if there is none, or no room.
    pub(super) fn put(&mut self, kind: Kind, flags: Flags, next: Option<RouterId>, parts: &[&[u8]]) -> bool {
        let mut shim = [0; Shim::LEN];
        let is_put = self.session.seal(kind, flags, next, parts, &mut shim) && self.push(&shim, parts);
        self.sealed += u64::from(is_put);
        is_put
    }

    /// Puts a datagram into the outbox, which is emptied first if it is full.
    pub(super) fn push(&mut self, shim: &[u8; Shim::LEN], parts: &[&[u8]]) -> bool {
        if self.outbox.push(shim, parts) {
            return true;
        }
        let sent = self.link.send(&mut self.outbox);
        self.note_sent(&sent);
        self.outbox.push(shim, parts)
    }
}
