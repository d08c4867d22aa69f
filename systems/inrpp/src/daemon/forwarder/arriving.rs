//! What neighbours send: packets for this router's kernel, packets on a detour, hellos, probes and grants.

use sidestep_net::Time;

use super::{
    super::{
        connections::flow_number,
        headers::{self, Headers},
        message::{Grant as GrantMessage, Probe as ProbeMessage},
        segments::{Batch, Joiner},
        session::Refused,
        shim::{Kind, Shim},
        slots::SlotNote,
    },
    Forwarder, TAKEN,
    out::disturb,
    port::PortIo,
};
use crate::{Grant, Meta, Port, Probe, RouterId};

impl Forwarder {
    /// Takes what a neighbour has sent, up to a batch.
    pub(super) fn arrive(&mut self, now: Time, at: Port) {
        let (mut buffers, mut joiner) = (std::mem::take(&mut self.buffers), std::mem::take(&mut self.joiner));
        let (mut taken, mut behind) = (0, true);
        while behind && taken < TAKEN {
            let (count, more) = self.arrive_in(now, at, &mut buffers, &mut joiner);
            (taken, behind) = (taken + count, more);
        }
        if let Some(neighbour) = self.ports.get_mut(usize::from(at.0)).and_then(PortIo::neighbour) {
            neighbour.unread = if behind { neighbour.unread.or(Some(now)) } else { None };
        }
        (self.buffers, self.joiner) = (buffers, joiner);
    }

    /// Takes what one call gives; returns how many datagrams these are, and whether there may be more.
    fn arrive_in(
        &mut self,
        now: Time,
        at: Port,
        buffers: &mut super::ReceiveBuffers,
        joiner: &mut Joiner,
    ) -> (usize, bool) {
        let Some(neighbour) = self.ports.get_mut(usize::from(at.0)).and_then(PortIo::neighbour) else {
            return (0, false);
        };
        // They point into the buffers; their list has the memory of the one before.
        let mut datagrams: Vec<&[u8]> = std::mem::take(&mut self.datagrams);
        let received = neighbour.link.receive(buffers, &mut |datagram| datagrams.push(datagram));
        neighbour.malformed += u64::from(received.bad);
        if received.refused {
            self.refused(now, at);
        }
        let mut batch = joiner.begin();
        for datagram in &datagrams {
            self.datagram(now, at, datagram, &mut batch);
        }
        let count = datagrams.len();
        datagrams.clear();
        // The same memory with another lifetime: the standard library collects in place.
        self.datagrams = datagrams.into_iter().map(|_| &[][..]).collect();
        let tun = self.ports.get(usize::from(at.0)).map(|port| &port.tun);
        let mut lost = 0;
        batch.flush(&mut |_, parts| lost += u64::from(tun.is_none_or(|tun| tun.write(parts).is_err())));
        self.note_lost(at, lost);
        (count, received.more && count > 0)
    }

    /// One datagram of a neighbour.
    fn datagram<'a>(&mut self, now: Time, at: Port, datagram: &'a [u8], batch: &mut Batch<'_, 'a>) {
        let Some(neighbour) = self.ports.get_mut(usize::from(at.0)).and_then(PortIo::neighbour) else { return };
        let Some((shim, body)) = Shim::read(datagram) else {
            neighbour.session.count(Refused::Malformed);
            return;
        };
        if shim.kind == Kind::Hello {
            return self.hello(now, at, datagram);
        }
        if neighbour.session.open(&shim, body).is_err() {
            return;
        }
        neighbour.received_packets += 1;
        neighbour.received_bytes += datagram.len() as u64;
        let from = neighbour.id;
        match shim.kind {
            Kind::Data => match shim.next {
                Some(next) => self.detoured(now, at, next, &shim, body, batch),
                None => self.for_kernel(now, at, &shim, body, batch),
            },
            Kind::Probe => match ProbeMessage::decode(body) {
                Some(probe) => self.probed(now, at, from, &probe),
                None => self.counts.malformed += 1,
            },
            Kind::Grant => match GrantMessage::decode(body) {
                Some(GrantMessage { of, push, raise, cut }) => {
                    let (router, mut out) = self.split(now);
                    router.handle_grant(now, at, Grant { of, push, raise, cut }, &mut out);
                }
                None => self.counts.malformed += 1,
            },
            Kind::Hello => {}
        }
    }

    /// A neighbour asks what it may send over this router to another.
    fn probed(&mut self, now: Time, at: Port, from: RouterId, probe: &ProbeMessage) {
        let refused = Grant { of: probe.of, push: false, raise: 0.0, cut: 1.0 };
        let to = self.port_to(probe.around).filter(|to| *to != at);
        let (router, mut out) = self.split(now);
        let asked = Probe { from, of: probe.of, wants: probe.wants };
        let grant = to.map_or(refused, |to| router.handle_probe(now, to, asked, &out));
        let body = GrantMessage { of: grant.of, push: grant.push, raise: grant.raise, cut: grant.cut }.encode();
        out.say(at, Kind::Grant, &body);
    }

    /// The port to a router that answers, over which detours may lead.
    fn port_to(&self, router: RouterId) -> Option<Port> {
        let leads = |port: &PortIo| port.alive().is_some_and(|next| next.id == router && !next.is_border);
        self.ports.iter().position(leads).map(|at| Port(at as u16))
    }

    /// A packet on a detour: it goes on to the router that it has to reach, without this router's kernel.
    fn detoured<'a>(
        &mut self,
        now: Time,
        at: Port,
        next: RouterId,
        shim: &Shim,
        packet: &'a [u8],
        batch: &mut Batch<'_, 'a>,
    ) {
        let Some(to) = self.port_to(next).filter(|to| *to != at) else {
            return self.for_kernel(now, at, shim, packet, batch);
        };
        let flow = Headers::parse(packet).map(|headers| headers::flow(packet, &headers, self.keys));
        let flow = flow.map_or(0, |flow| flow_number(flow.key, flow.reversed));
        let len = packet.len() as u32 + self.overhead(to);
        let Some(handle) = self.slots.reserve() else {
            self.counts.no_memory += 1;
            return;
        };
        // Its ACKs do not pass here, so it has no limits: its end says no more than that it was there.
        let meta = Meta { flow, len, end: 1, detoured: true, ..Meta::default() };
        let (router, mut out) = self.split(now);
        let fate = router.handle_data(now, to, handle, &meta, &mut out);
        let partial = shim.flags.partial;
        let note = SlotNote { port: to, flow, partial, disturbed: true, detoured: true, ..SlotNote::default() };
        self.follow(now, (handle, fate), note, &[packet, &[]]);
    }

    /// A packet that the kernel routes on. Where its flow was on detours, its egress will look after its order.
    fn for_kernel<'a>(&mut self, now: Time, at: Port, shim: &Shim, packet: &'a [u8], batch: &mut Batch<'_, 'a>) {
        if (shim.flags.disturbed || shim.flags.detoured)
            && let Some(headers) = Headers::parse(packet)
        {
            let flow = headers::flow(packet, &headers, self.keys);
            disturb(&mut self.connections, now, flow_number(flow.key, flow.reversed));
        }
        let tun = self.ports.get(usize::from(at.0)).map(|port| &port.tun);
        let mut lost = 0;
        let is_ip = batch.push(packet, shim.flags.partial, &mut |_, parts| {
            lost += u64::from(tun.is_none_or(|tun| tun.write(parts).is_err()));
        });
        self.counts.malformed += u64::from(!is_ip);
        self.note_lost(at, lost);
    }

    fn note_lost(&mut self, at: Port, lost: u64) {
        if let Some(port) = self.ports.get_mut(usize::from(at.0)) {
            port.lost += lost;
        }
    }

    /// Writes what has gathered for an edge: the port's own device sends it out.
    pub(super) fn write_edge(&mut self, at: Port) {
        let Some(port) = self.ports.get_mut(usize::from(at.0)).filter(|port| !port.ends.is_empty()) else { return };
        let mut batch = self.joiner.begin();
        let (tun, mut lost, mut start) = (&port.tun, 0, 0);
        let mut write = |_: &super::VnetHeader, parts: &[std::io::IoSlice<'_>]| {
            lost += u64::from(tun.write(parts).is_err());
        };
        for (end, partial) in &port.ends {
            let packet = port.leaving.get(start..*end).unwrap_or_default();
            batch.push(packet, *partial, &mut write);
            start = *end;
        }
        batch.flush(&mut write);
        port.lost += lost;
        port.leaving.clear();
        port.ends.clear();
    }

    /// Writes packets that waited for a port into its device: the kernel routes them as it is now.
    pub(super) fn write_to_kernel(&mut self, at: Port) {
        let mut ready = std::mem::take(&mut self.ready);
        let mut lost = 0;
        if let Some(port) = self.ports.get(usize::from(at.0)) {
            let mut batch = self.joiner.begin();
            let mut write = |_: &super::VnetHeader, parts: &[std::io::IoSlice<'_>]| {
                lost += u64::from(port.tun.write(parts).is_err());
            };
            for handle in &ready {
                batch.push(self.slots.packet(*handle), self.slots.note(*handle).partial, &mut write);
            }
            batch.flush(&mut write);
        }
        ready.drain(..).for_each(|handle| self.slots.free(handle));
        self.ready = ready;
        self.note_lost(at, lost);
    }
}
