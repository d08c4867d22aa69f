//! What the kernel routes out of a managed interface: read from its TUN device, and sent, held or dropped.

use sidestep_net::Time;

use super::{
    super::{
        connections::{Half, Place, Seen, flow_number},
        headers::{self, ACK, AckTemplate, FIN, Flow, Headers, RST, SYN, TcpFields},
        resequence::{Resequencer, Verdict},
        segments::{Cut, MAX_HEADERS, VnetHeader},
        shim::Flags,
        slots::SlotNote,
    },
    Forwarder,
    out::{Leaving, Out, detour, disturb, emit},
    port::PortIo,
};
use crate::{Fate, Handle, LimitFields, Meta, Port};

/// What a packet, or a super-packet, is to the core.
#[derive(Clone, Copy, Debug)]
enum Class {
    /// Data of a TCP connection.
    Tcp(Data),
    /// An ACK alone, a SYN or an RST: no cache holds it. One whose window cannot be read waits until then.
    Control(Option<Time>),
    /// Other protocols.
    Other,
}

/// Data of a connection.
#[derive(Clone, Copy, Debug)]
struct Data {
    flow: u64,
    half: Half,
    /// Its first byte, and what had passed before it.
    start: u64,
    passed: u64,
    disturbed: bool,
}

/// One packet that leaves.
#[derive(Clone, Copy, Debug)]
struct One<'a> {
    at: Port,
    partial: bool,
    head: &'a [u8],
    payload: &'a [u8],
    /// The end of its last byte.
    end: u64,
}

impl Forwarder {
    /// A packet, or a super-packet, that the kernel sends out of a port. It may be changed.
    pub(super) fn leave(&mut self, now: Time, at: Port, header: &VnetHeader, packet: &mut [u8]) {
        let headers = Headers::parse(packet);
        let mut class =
            headers.map_or(Class::Other, |headers| self.classify(now, at, header.is_partial(), &headers, packet));
        let (has_queue, is_edge) = match self.ports.get(usize::from(at.0)) {
            Some(port) => (port.has_queue, !port.has_neighbour()),
            None => return,
        };
        if let Class::Control(Some(until)) = class
            && self.hold_ack(until, at, header.is_partial(), packet)
        {
            return;
        }
        let waits = is_edge && matches!(class, Class::Tcp(data) if self.is_out_of_order(&data));
        if !has_queue && !waits {
            return self.pass_whole(now, at, header, packet);
        }
        let Some(cut) = Cut::new(header, packet) else {
            self.counts.malformed += 1;
            return;
        };
        let mut head = [0; MAX_HEADERS];
        for index in 0..cut.segments() {
            let (len, payload) = cut.segment(index, &mut head);
            let head = head.get(..len).unwrap_or_default();
            let mut one = One { at, partial: cut.partial(), head, payload, end: 0 };
            match &mut class {
                Class::Tcp(data) => {
                    let start = data.start + u64::from(cut.payload_before(index));
                    one.end = start + payload.len() as u64;
                    if waits {
                        self.in_order(now, data, start, one);
                    } else {
                        self.leave_data(now, data, one);
                    }
                }
                Class::Control(_) => {
                    self.router.handle_other(at, self.on_wire(&one));
                    emit(&mut self.ports, now, at, leaving(one.partial, false), one.head, one.payload);
                }
                Class::Other => self.leave_other(now, one),
            }
        }
    }

    /// An edge without a rate: the packet goes on as it is.
    fn pass_whole(&mut self, now: Time, at: Port, header: &VnetHeader, packet: &[u8]) {
        // What waits of the port for the end of the round is older.
        self.write_edge(at);
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        port.count(now, packet.len());
        port.lost += u64::from(super::write(&port.tun, header, packet).is_err());
    }

    /// Notes the packet's connection, and lowers the window of an ACK to how far its data may come here.
    fn classify(&mut self, now: Time, at: Port, partial: bool, headers: &Headers, packet: &mut [u8]) -> Class {
        let Some(tcp) = headers::tcp(packet, headers) else { return Class::Other };
        let flow = headers::flow(packet, headers, self.keys);
        let mut options = None;
        if tcp.has(SYN) {
            let longest = self.longest_segment(headers);
            self.counts.mss_clamped += u64::from(headers::clamp_mss(packet, headers, longest, partial));
            // What leaves with the lower MSS is what counts.
            options = headers::syn_options(packet, headers);
        }
        let Some(seen) = self.connections.note(now, flow, &tcp, options.as_ref()) else { return Class::Other };
        if seen.is_multipath {
            return Class::Other;
        }
        let until = tcp.has(ACK).then(|| self.limit(now, at, (flow, &seen, &tcp), headers, packet, partial)).flatten();
        if tcp.has(RST) {
            self.end(now, flow, seen.at);
        }
        let Some(half) = self.connections.half(seen.at, flow.reversed) else { return Class::Other };
        half.port = Some(at);
        if tcp.has(RST) || tcp.has(SYN) || tcp.payload == 0 && !tcp.has(FIN) {
            let is_alone = !tcp.has(RST) && !tcp.has(SYN);
            return Class::Control(until.filter(|_| is_alone));
        }
        let disturbed = half.disturbed_until > now;
        let flow = flow_number(flow.key, flow.reversed);
        Class::Tcp(Data { flow, half: *half, start: seen.start, passed: seen.passed, disturbed })
    }

    /// An ACK leaves by `at`: the core says how far the data may come that it acknowledges, and the window is lowered to that. Returns
    /// until when it has to wait, where the window cannot be read.
    fn limit(
        &mut self,
        now: Time,
        at: Port,
        (flow, seen, tcp): (Flow, &Seen, &TcpFields),
        headers: &Headers,
        packet: &mut [u8],
        partial: bool,
    ) -> Option<Time> {
        let half = self.connections.half(seen.at, !flow.reversed)?;
        half.back = Some(at);
        if seen.is_newest_ack {
            half.template = AckTemplate::of(packet, headers).or(half.template);
        }
        let half = *half;
        let port = half.port.filter(|port| self.has_queue(*port))?;
        let limit = half.limit_of(tcp);
        let number = flow_number(flow.key, !flow.reversed);
        if half.scale().is_none() {
            return self.spacing(now, port, number);
        }
        let begins = tcp.has(SYN);
        let mut fields = LimitFields { acked: half.acked_units(), limit, back: 0, begins, done: half.is_done() };
        let (router, mut out) = self.split(now);
        router.handle_limit(now, port, number, &mut fields, &mut out);
        if fields.limit < limit
            && let Some(window) = half.window_for(tcp, fields.limit)
        {
            headers::set_window(packet, headers, window, partial);
            self.counts.clamped_acks += 1;
        }
        None
    }

    /// A connection was reset: both directions have ended.
    fn end(&mut self, now: Time, flow: Flow, at: Place) {
        for reversed in [false, true] {
            let port = self.connections.half(at, reversed).and_then(|half| half.port);
            let Some(port) = port.filter(|port| self.has_queue(*port)) else { continue };
            let number = flow_number(flow.key, reversed);
            self.with_order(now, |order, ready| order.forget(number, ready));
            self.unlimit(now, port, number);
        }
    }

    /// A flow whose data leaves by `port` has no limit any more: it has ended, or its ACKs pass elsewhere.
    pub(super) fn unlimit(&mut self, now: Time, port: Port, flow: u64) {
        let (router, mut out) = self.split(now);
        router.handle_limit(now, port, flow, &mut LimitFields { done: true, ..LimitFields::default() }, &mut out);
    }

    /// One packet of a connection leaves.
    fn leave_data(&mut self, now: Time, data: &Data, one: One<'_>) {
        let (flow, end) = (data.flow, data.half.data_end(one.end).max(1));
        let Some(handle) = self.reserve() else { return };
        let len = self.on_wire(&one);
        let meta = Meta { flow, len, end, ..Meta::default() };
        let (router, mut out) = self.split(now);
        let fate = router.handle_data(now, one.at, handle, &meta, &mut out);
        let note = SlotNote {
            port: one.at,
            flow,
            end: one.end,
            partial: one.partial,
            disturbed: data.disturbed,
            ..SlotNote::default()
        };
        self.follow(now, (handle, fate), note, &[one.head, one.payload]);
    }

    /// One packet of another protocol leaves.
    fn leave_other(&mut self, now: Time, one: One<'_>) {
        let Some(handle) = self.reserve() else { return };
        let len = self.on_wire(&one);
        let (router, mut out) = self.split(now);
        let fate = router.handle_other_data(now, one.at, handle, len, &mut out);
        let note = SlotNote { port: one.at, partial: one.partial, ..SlotNote::default() };
        self.follow(now, (handle, fate), note, &[one.head, one.payload]);
    }

    fn reserve(&mut self) -> Option<Handle> {
        let handle = self.slots.reserve();
        self.counts.no_memory += u64::from(handle.is_none());
        handle
    }

    /// Does what the core has decided about a packet that is not stored yet.
    pub(super) fn follow(&mut self, now: Time, (handle, fate): (Handle, Fate), note: SlotNote, parts: &[&[u8]; 2]) {
        let flags = Flags { partial: note.partial, detoured: note.detoured, disturbed: note.disturbed };
        match fate {
            Fate::Hold => {
                if !self.slots.fill(handle, parts) {
                    self.counts.malformed += 1;
                }
                if let Some(to) = self.slots.note_mut(handle) {
                    *to = note;
                }
            }
            Fate::Forward => {
                self.slots.free(handle);
                emit(&mut self.ports, now, note.port, Leaving { flags, next: None }, parts[0], parts[1]);
            }
            Fate::Detour(over) => {
                self.slots.free(handle);
                let (to, next) = detour(&self.ports, note.port, over);
                disturb(&mut self.connections, now, note.flow);
                let like = Leaving { flags: Flags { disturbed: true, ..flags }, next };
                emit(&mut self.ports, now, to, like, parts[0], parts[1]);
            }
            Fate::Drop => self.slots.free(handle),
        }
    }

    /// Whether a packet of a disturbed flow is ahead of others, or others wait.
    fn is_out_of_order(&self, data: &Data) -> bool {
        let is_ahead = data.disturbed && data.start > data.passed;
        self.order.as_ref().is_some_and(|order| is_ahead || order.holds(data.flow))
    }

    /// At the egress: a packet of a disturbed flow leaves if it is next, and waits if it is ahead of others.
    fn in_order(&mut self, now: Time, data: &mut Data, start: u64, one: One<'_>) {
        let Some(order) = &mut self.order else { return };
        let flow = data.flow;
        if order.is_in_order(flow, data.passed, start, one.end) != Verdict::Ahead {
            data.passed = data.passed.max(one.end);
            if self.has_queue(one.at) {
                self.leave_data(now, data, one);
            } else {
                emit(&mut self.ports, now, one.at, leaving(one.partial, true), one.head, one.payload);
            }
            return self.with_order(now, |order, ready| order.passed(flow, one.end, ready));
        }
        let Some(handle) = self.reserve() else { return };
        self.slots.fill(handle, &[one.head, one.payload]);
        if let Some(note) = self.slots.note_mut(handle) {
            *note = SlotNote { port: one.at, flow, start, end: one.end, partial: one.partial, ..SlotNote::default() };
        }
        self.with_order(now, |order, ready| order.arrive(now, flow, data.passed, start, one.end, handle, ready));
    }

    /// Has the resequencer do something, and what it lets go leaves.
    pub(super) fn with_order(&mut self, now: Time, run: impl FnOnce(&mut Resequencer, &mut dyn FnMut(Handle))) {
        let Some(order) = &mut self.order else { return };
        let mut ready = std::mem::take(&mut self.ready);
        run(order, &mut |handle| ready.push(handle));
        for handle in ready.drain(..) {
            self.decide(now, handle);
        }
        self.ready = ready;
    }

    /// The longest segment of TCP for which every neighbour's link has room.
    fn longest_segment(&self, headers: &Headers) -> u16 {
        let longest = self.ports.iter().filter(|port| port.has_neighbour()).map(PortIo::longest).min();
        let ip = if headers.version == 4 { 20 } else { 40 };
        longest.unwrap_or(u32::from(u16::MAX)).saturating_sub(ip + 20).clamp(536, u32::from(u16::MAX)) as u16
    }

    fn on_wire(&self, one: &One<'_>) -> u32 {
        (one.head.len() + one.payload.len()) as u32 + self.overhead(one.at)
    }

    pub(super) fn overhead(&self, at: Port) -> u32 {
        self.ports.get(usize::from(at.0)).map_or(0, PortIo::overhead)
    }

    pub(super) fn has_queue(&self, at: Port) -> bool {
        self.ports.get(usize::from(at.0)).is_some_and(|port| port.has_queue)
    }

    /// The core, and the process as it sees it.
    pub(super) fn split(&mut self, now: Time) -> (&mut crate::Router, Out<'_>) {
        let Forwarder { router, ports, slots, connections, counts, .. } = self;
        (router, Out { now, ports, slots, connections, counts })
    }
}

fn leaving(partial: bool, disturbed: bool) -> Leaving {
    Leaving { flags: Flags { partial, disturbed, ..Flags::default() }, next: None }
}
