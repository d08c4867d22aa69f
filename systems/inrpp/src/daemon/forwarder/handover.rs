//! What a router passes to its successor, and how that begins with it.

use std::os::fd::{AsFd, BorrowedFd};

use sidestep_net::Time;

use super::{
    super::{
        link::Link,
        slots::SlotNote,
        takeover::{Passed, Saved, SavedNeighbour, SavedPacket, SavedPort},
    },
    Forwarder,
    port::{NeighbourState, Peer, PortIo},
};
use crate::{Egress, Fate, Handle, Meta, Port, Way};

impl Forwarder {
    /// What the successor gets, and the packets that wait; their places are [given back](Self::put_back) if it fails.
    pub(in super::super) fn save(&mut self, now: Time) -> (Saved, Vec<u8>, Vec<Handle>) {
        self.with_order(now, |order, ready| order.clear(ready));
        self.flush(now);
        let mut saved = Saved::new(self.keys);
        saved.connections = self.connections.export().collect();
        let mut waiting = Vec::new();
        for at in 0..self.ports.len() {
            saved.ports.push(save_port(&self.ports[at]));
            let (router, mut out) = self.split(now);
            router.evacuate(now, Port(at as u16), &mut out, |handle| waiting.push(handle));
        }
        let bytes = self.copy_of(&waiting, &mut saved);
        (saved, bytes, waiting)
    }

    /// Notes packets, and returns their bytes.
    fn copy_of(&self, waiting: &[Handle], saved: &mut Saved) -> Vec<u8> {
        let mut bytes = Vec::new();
        for handle in waiting {
            let (note, packet) = (self.slots.note(*handle), self.slots.packet(*handle));
            let SlotNote { port, flow, end, partial, disturbed, detoured, .. } = note;
            saved.packets.push(SavedPacket {
                port: port.0,
                flow,
                end,
                partial,
                disturbed,
                detoured,
                len: packet.len() as u32,
            });
            bytes.extend_from_slice(packet);
        }
        bytes
    }

    /// The descriptors, as [`Saved::ports`] names them.
    pub(in super::super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut descriptors = Vec::new();
        for port in &self.ports {
            descriptors.push(port.tun.as_fd());
            if let Peer::Neighbour(neighbour) = &port.peer {
                descriptors.extend(passes(&neighbour.link));
            }
        }
        descriptors
    }

    /// The successor has failed: what waited waits again. Neighbours may have heard of it.
    pub(in super::super) fn put_back(&mut self, now: Time, waiting: Vec<Handle>) {
        for neighbour in self.ports.iter_mut().filter_map(PortIo::neighbour) {
            neighbour.session.go_on();
            neighbour.excuse(now);
        }
        for handle in waiting {
            self.decide(now, handle);
        }
    }

    /// Begins with what the router before this one knew, once the ports are those that it had.
    pub(super) fn take(&mut self, now: Time, passed: &Passed) {
        self.keys = passed.saved.keys;
        for row in &passed.saved.connections {
            self.connections.import(now, row);
        }
        let of = |saved: &SavedPort| self.ports.iter().position(|port| port.interface == saved.interface);
        let places: Vec<Option<usize>> = passed.saved.ports.iter().map(of).collect();
        self.take_packets(now, &passed.saved, &passed.bytes, &places);
    }

    /// Takes packets, whose ports are at these places now.
    pub(super) fn take_packets(&mut self, now: Time, saved: &Saved, bytes: &[u8], places: &[Option<usize>]) {
        let mut rest = bytes;
        for packet in &saved.packets {
            let Some((bytes, after)) = rest.split_at_checked(packet.len as usize) else { return };
            rest = after;
            let at = places.get(usize::from(packet.port)).copied().flatten();
            let (Some(at), Some(handle)) = (at, self.slots.reserve()) else { continue };
            let SavedPacket { flow, end, partial, disturbed, detoured, .. } = *packet;
            if let Some(note) = self.slots.note_mut(handle) {
                *note =
                    SlotNote { port: Port(at as u16), flow, end, partial, disturbed, detoured, ..SlotNote::default() };
            }
            if self.slots.fill(handle, &[bytes]) {
                self.decide(now, handle);
            } else {
                self.slots.free(handle);
            }
        }
    }

    /// Asks the core what becomes of a packet that has a place already, and does that.
    pub(super) fn decide(&mut self, now: Time, handle: Handle) {
        let note = self.slots.note(handle);
        let end = self.connections.half_of(note.flow).map_or(1, |half| half.data_end(note.end).max(1));
        let len = self.slots.packet(handle).len() as u32 + self.overhead(note.port);
        let has_queue = self.has_queue(note.port);
        let (router, mut out) = self.split(now);
        let fate = if !has_queue {
            Fate::Forward
        } else if note.flow == 0 {
            router.handle_other_data(now, note.port, handle, len, &mut out)
        } else {
            let meta = Meta { flow: note.flow, len, end, detoured: note.detoured, ..Meta::default() };
            router.handle_data(now, note.port, handle, &meta, &mut out)
        };
        match fate {
            Fate::Hold => {}
            Fate::Drop => self.slots.free(handle),
            Fate::Forward => out.send(handle, Way::Direct(note.port), None),
            Fate::Detour(over) => out.send(handle, Way::Detour(over), None),
        }
    }
}

/// The link's descriptor, if it has one that can pass. A TCP connection has what was read and written in part, and is made again,
/// but the address where one listens is taken while this process has it.
fn passes(link: &Link) -> Option<BorrowedFd<'_>> {
    match link {
        Link::Udp(_) | Link::Ethernet(_) => link.fds().into_iter().flatten().next(),
        Link::Tcp(_) => link.fds()[1],
    }
}

fn save_port(port: &PortIo) -> SavedPort {
    let (interface, tun) = (port.interface.clone(), port.tun.name().to_string());
    match &port.peer {
        Peer::Neighbour(neighbour) => SavedPort {
            interface,
            tun,
            link: passes(&neighbour.link).map(|_| neighbour.link_name.clone()),
            neighbour: Some(SavedNeighbour {
                session: neighbour.session.export(),
                alive: neighbour.state == NeighbourState::Alive,
                received: (neighbour.received_packets, neighbour.received_bytes),
                at_its_hello: neighbour.at_its_hello,
                rate: port.rate.bits_per_sec(),
            }),
        },
        Peer::Edge => SavedPort { interface, tun, link: None, neighbour: None },
    }
}
