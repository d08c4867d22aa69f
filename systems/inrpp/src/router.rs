//! A router: its interfaces, and what passes between them.

use sidestep_net::{Bytes, Rate, Span, Time};

use super::{
    AckFields, Config, Egress, Fate, Grant, Handle, Interface, InterfaceError, LimitFields, Loss, Meta, Nonce, Notice,
    Notification, Port, Probe, RouterId, State, Way,
    cache::{Cache, Entry},
    interface,
};
use crate::{AckProcessing, Backpressure, Notifications};

/// The longest packet for which room is kept: an Ethernet frame's, and the paper's (section IV-A).
const PACKET: u32 = 1500;

/// A router.
///
/// Data goes through [`handle_data`](Self::handle_data) before it leaves, and ACKs through
/// [`handle_ack`](Self::handle_ack). The route of a flow's ACKs is that of its data, backwards.
#[derive(Clone, Debug)]
pub struct Router {
    config: Config,
    id: RouterId,
    ports: Vec<interface::Port>,
    /// By interface: when it wants to be woken.
    due: Vec<Time>,
    /// The first of them.
    next: Time,
}

/// What an interface of a router has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were stored.
    pub stored: u64,
    /// Packets that were sent around a link.
    pub detoured: u64,
    /// Packets for which the cache had no room.
    pub dropped: u64,
    /// Packets of other protocols for which their part of it had none.
    pub dropped_others: u64,
    /// Packets for which no route was left when they were due to leave.
    pub unroutable: u64,
    /// *Slow down*s and *cancel*s that were sent.
    pub slow_downs: u64,
    /// See [`slow_downs`](Self::slow_downs).
    pub cancels: u64,
    /// Notifications that no neighbour has signed.
    pub forged: u64,
    /// Notifications for which there was no place.
    pub refused: u64,
}

impl Router {
    /// A router with these interfaces.
    pub fn new(config: Config, id: RouterId, interfaces: Vec<Interface>) -> Result<Router, InterfaceError> {
        for (at, of) in interfaces.iter().enumerate() {
            check(Port(at as u16), of, &interfaces)?;
        }
        let due = vec![Time::MAX; interfaces.len()];
        let ports = interfaces.into_iter().map(|is| interface::Port::new(&config, is)).collect();
        Ok(Router { config, id, ports, due, next: Time::MAX })
    }

    /// A data packet is about to leave by `to`.
    pub fn handle_data(&mut self, now: Time, to: Port, packet: Handle, meta: &Meta, out: &mut impl Egress) -> Fate {
        let Some(port) = self.ports.get_mut(usize::from(to.0)) else { return Fate::Forward };
        let (gate, may_leave, follows) = match self.config.backpressure {
            Backpressure::Limits => {
                let (may_leave, follows) = port.cache.arrives(now, meta.flow, meta.end, meta.len);
                (None, may_leave, follows)
            }
            Backpressure::Notices => {
                let gate = port.gate(meta.nonces);
                (gate, gate.is_none(), port.cache.holds(meta.flow))
            }
        };
        let room = has_room(now, &port.is, out.free_at(to), meta.len);
        let waits = follows || may_leave && port.cache.has_ready();
        let has_credit = |cache: &mut Cache| match gate {
            Some(gate) => cache.take_credit(meta.flow, gate),
            None => may_leave,
        };
        if room && !waits && has_credit(&mut port.cache) {
            port.meter.sent(meta.len);
            if self.config.backpressure == Backpressure::Limits {
                port.cache.passes();
                self.send_updates(to, out);
            }
            return Fate::Forward;
        }
        // Section III-A: over one neighbour and not two, and behind no packet of the same flow that waits.
        if may_leave && !meta.detoured && !waits {
            for place in 0..port.detours.len() {
                let over = self.ports[usize::from(to.0)].detours[place].over;
                let room = self.has_room_for_detour(now, over, meta.len, out);
                let port = &mut self.ports[usize::from(to.0)];
                if room && port.detours[place].take(now, meta.len) {
                    port.counters.detoured += 1;
                    self.ports[usize::from(over.0)].meter.sent(meta.len);
                    return Fate::Detour(over);
                }
            }
        }
        let Meta { flow, len, end, detoured, .. } = *meta;
        let entry = Entry { handle: packet, flow, len, end, detoured, other: false };
        if self.store(now, to, entry, gate, out) { Fate::Hold } else { Fate::Drop }
    }

    /// A data packet of another protocol is about to leave by `to` (the paper's section V-A: TCP does badly in a queue
    /// as long as a cache). Other protocols have a part of the cache of their own, and
    /// while both wait half of the link; their packets never take a detour.
    pub fn handle_other_data(&mut self, now: Time, to: Port, packet: Handle, len: u32, out: &mut impl Egress) -> Fate {
        let Some(port) = self.ports.get_mut(usize::from(to.0)) else { return Fate::Forward };
        if has_room(now, &port.is, out.free_at(to), len) && !port.cache.has_ready() {
            port.meter.sent(len);
            return Fate::Forward;
        }
        let entry = Entry { handle: packet, flow: 0, len, end: 0, detoured: true, other: true };
        if self.store(now, to, entry, None, out) { Fate::Hold } else { Fate::Drop }
    }

    /// What the router writes on a data packet of a flow that leaves by `port`, where notifications ride on data.
    pub fn notify_on_data(&mut self, port: Port, flow: u64) -> Option<Notification> {
        if self.config.notifications != Notifications::Data {
            return None;
        }
        let key = self.ports.get(usize::from(port.0))?.is.key;
        self.notify(port, flow, key, &mut AckFields::default())
    }

    /// A packet leaves that must not be stored, such as an ACK. Detours have what it leaves.
    pub fn handle_other(&mut self, to: Port, len: u32) {
        if let Some(port) = self.ports.get_mut(usize::from(to.0)) {
            port.meter.sent(len);
        }
    }

    /// With limits: an ACK or a SYN-ACK comes back over `from`, by which its flow's data leaves.
    pub fn handle_limit(&mut self, now: Time, from: Port, flow: u64, ack: &mut LimitFields, out: &mut impl Egress) {
        let config = self.config;
        let Some(port) = self.ports.get_mut(usize::from(from.0)) else { return };
        if ack.begins || ack.done {
            port.cache.end(flow);
        }
        if !ack.done {
            ack.limit = ack.limit.min(port.cache.limit(now, flow, ack, port.room(now)));
            port.counters.slow_downs += u64::from(port.state == State::Backpressure);
            port.sweeps = port.sweeps.min(now + sweep(&config));
        }
        self.drain(now, from, out);
        self.ports[usize::from(from.0)].update(&config, now);
        self.schedule(now, from, out);
    }

    /// With notices: an ACK comes back over `from`, by which its flow's data leaves, and goes on over `to`.
    pub fn handle_ack(
        &mut self,
        now: Time,
        from: Port,
        to: Port,
        flow: u64,
        ack: &mut AckFields,
        out: &mut impl Egress,
    ) {
        let key = self.ports.get(usize::from(to.0)).and_then(|port| port.is.key);
        let Some(port) = self.ports.get_mut(usize::from(from.0)) else { return };
        let mut said = ack.notification.take();
        let signed = said.is_none_or(|said| port.is.key.is_some_and(|key| said.is_signed(flow, key)));
        if !signed {
            port.counters.forged += 1;
            said = None;
        }
        match self.config.ack_processing {
            AckProcessing::Figure => {
                self.handle_notification(now, from, flow, said, out);
                self.ports[usize::from(from.0)].update(&self.config, now);
                ack.notification = self.notify(from, flow, key, ack);
            }
            AckProcessing::Printed => {
                port.update_as_printed(&self.config, now);
                ack.notification = self.notify(from, flow, key, ack);
                // Lines 14 and 23 read what has just been appended.
                self.handle_notification(now, from, flow, said.or(ack.notification), out);
            }
        }
        self.schedule(now, from, out);
    }

    /// A neighbour asks what it may send around by `to`.
    pub fn handle_probe(&mut self, now: Time, to: Port, probe: Probe, out: &impl Egress) -> Grant {
        let refused = Grant { of: probe.of, push: false, raise: 0.0, cut: 1.0 };
        let Some(port) = self.ports.get_mut(usize::from(to.0)) else { return refused };
        let push = port.is_asked(&self.config, now);
        let queue = backlog(now, port.is.rate, out.free_at(to)) + port.cache.others();
        port.meter.advance(&self.config, now, queue);
        port.meter.grant(&self.config, now, probe.from, probe.wants, probe.of, push)
    }

    /// The neighbour at `over` has answered a probe.
    pub fn handle_grant(&mut self, now: Time, over: Port, grant: Grant, out: &mut impl Egress) {
        let config = self.config;
        let at = usize::from(grant.of.0);
        let Some(first) = self.ports.get_mut(usize::from(over.0)) else { return };
        // The first link of the detour has other load as well, and other detours lead over it: each of the router's own
        // interfaces asks for its share as a router would.
        let queue = backlog(now, first.is.rate, out.free_at(over)) + first.cache.others();
        first.meter.advance(&config, now, queue);
        let asker = RouterId(u32::MAX - u32::from(grant.of.0));
        let pushes = first.state == State::Push;
        let own = first.meter.grant(&config, now, asker, true, grant.of, pushes);
        let capacity = first.is.rate.bits_per_sec() as f64 / 8.0;
        let Some(detour) = self.ports.get_mut(at).and_then(|of| of.detours.iter_mut().find(|of| of.over == over))
        else {
            return;
        };
        let is_first = !detour.is_answered();
        detour.handle_grant(&config, now, capacity, grant, own);
        if is_first {
            // A burst may be over after T_d.
            detour.decide(&config, now, pushes);
        }
        self.schedule(now, grant.of, out);
    }

    /// The capacity of an interface's link is another from now on.
    pub fn handle_rate(&mut self, now: Time, port: Port, rate: Rate, out: &mut impl Egress) {
        let Some(of) = self.ports.get_mut(usize::from(port.0)) else { return };
        of.is.rate = rate;
        of.meter.set_capacity(rate);
        self.schedule(now, port, out);
    }

    /// With limits: packets and ACKs have passed by another way than this router. What was known of flows that do not wait is out of
    /// date: a packet beyond the last limit that was seen would wait, and none of the ACKs that bring a new one would come.
    pub fn forget_limits(&mut self) {
        self.ports.iter_mut().for_each(|port| port.cache.end_all());
    }

    /// The detours of an interface begin with these from now on: neighbours have come or gone. One that is no interface, is the
    /// interface itself, or has no router at its other end is left out.
    pub fn set_detours(&mut self, now: Time, of: Port, over: &[Port], out: &mut impl Egress) {
        let is_neighbour =
            |over: &&Port| **over != of && self.ports.get(usize::from(over.0)).is_some_and(|at| at.is.key.is_some());
        let over: Vec<Port> = over.iter().filter(is_neighbour).copied().collect();
        let Some(port) = self.ports.get_mut(usize::from(of.0)) else { return };
        port.set_detours(&self.config, now, over);
        self.schedule(now, of, out);
    }

    /// Takes out all that waits for an interface, whose link is gone or whose router ends, and calls `with` for each, in the order in
    /// which it would leave. The driver sends it by another path.
    pub fn evacuate(&mut self, now: Time, at: Port, out: &mut impl Egress, mut with: impl FnMut(Handle)) {
        let config = self.config;
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        port.cache.let_all_leave();
        while let Some(entry) = port.cache.pop() {
            with(entry.handle);
        }
        // What may come now has no limit that was given for this cache.
        while port.cache.take_update().is_some() {}
        port.update(&config, now);
        self.schedule(now, at, out);
    }

    /// With limits: forgets flows of which nothing has come for long, also those whose ACKs do not pass here.
    pub fn forget_idle(&mut self, now: Time) {
        for port in &mut self.ports {
            port.cache.end_idle(now, idle(&port.is));
        }
    }

    /// Handles what is due.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl Egress) {
        for at in 0..self.ports.len() {
            if self.due[at] <= now {
                self.wake(now, Port(at as u16), out);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        (self.next != Time::MAX).then_some(self.next)
    }

    /// The state of an interface.
    pub fn state(&self, port: Port) -> State {
        self.ports.get(usize::from(port.0)).map_or(State::Push, |of| of.state)
    }

    /// Bytes in the cache of an interface.
    pub fn occupancy(&self, port: Port) -> Bytes {
        self.ports.get(usize::from(port.0)).map_or(Bytes::default(), |of| of.cache.occupancy())
    }

    /// Bytes that the cache of an interface may hold.
    pub fn room(&self, port: Port) -> Bytes {
        self.ports.get(usize::from(port.0)).map_or(Bytes::default(), |of| of.is.cache)
    }

    /// Bytes of one flow in the cache of an interface.
    pub fn occupancy_of(&self, port: Port, flow: u64) -> Bytes {
        self.ports.get(usize::from(port.0)).map_or(Bytes::default(), |of| of.cache.of_flow(flow))
    }

    /// The flows of which packets are in the cache of an interface, and their bytes.
    pub fn stored(&self, port: Port) -> impl Iterator<Item = (u64, Bytes)> {
        self.ports.get(usize::from(port.0)).into_iter().flat_map(|of| of.cache.flows())
    }

    /// The most bytes that were ever in the cache of an interface.
    pub fn peak(&self, port: Port) -> Bytes {
        self.ports.get(usize::from(port.0)).map_or(Bytes::default(), |of| of.cache.peak())
    }

    /// Bytes of memory that its caches' books take, the packets themselves not counted.
    pub fn memory(&self) -> Bytes {
        self.ports.iter().fold(Bytes::default(), |sum, of| sum + of.cache.memory())
    }

    /// The rate at which the detour of `port` over `over` may send now.
    pub fn detour_rate(&self, port: Port, over: Port) -> Rate {
        let detours = self.ports.get(usize::from(port.0)).map_or(&[][..], |of| &of.detours);
        let rate = detours.iter().find(|of| of.over == over).map_or(0.0, |of| of.rate());
        Rate::from_bits_per_sec((rate * 8.0) as u64)
    }

    /// With which interfaces the detours of an interface begin.
    pub fn detours(&self, port: Port) -> impl Iterator<Item = Port> {
        self.ports.get(usize::from(port.0)).into_iter().flat_map(|of| of.detours.iter().map(|detour| detour.over))
    }

    /// What an interface has done so far.
    pub fn counters(&self, port: Port) -> Counters {
        self.ports.get(usize::from(port.0)).map_or(Counters::default(), |of| of.counters)
    }

    /// Takes note of what the next router downstream has sent on an ACK (Algorithm 1, lines 14 to 26): its flows wait
    /// here, and one packet goes for each ACK, so that no more arrives there than leaves.
    fn handle_notification(
        &mut self,
        now: Time,
        from: Port,
        flow: u64,
        said: Option<Notification>,
        out: &mut impl Egress,
    ) {
        let Some(Notification { notice, nonce, .. }) = said else { return };
        let config = self.config;
        let port = &mut self.ports[usize::from(from.0)];
        match notice {
            Notice::SlowDown => {
                if !port.heard.insert(now, nonce, config.expiry) {
                    port.counters.refused += 1;
                    return;
                }
                port.sweeps = port.sweeps.min(now + sweep(&config));
                // What is stored of the flow needs no echo of the sender to wait.
                port.cache.gate(now, flow, nonce);
                port.cache.credit(now, flow, config.credit, nonce);
                self.drain(now, from, out);
            }
            Notice::Cancel => {
                if port.heard.remove(nonce) {
                    port.cache.open_gate(nonce);
                }
            }
        }
    }

    /// What an interface writes on an ACK that passes, for the router or the sender before this one (Algorithm 1, lines
    /// 4, 8 and 21): nothing but its own state, so that only as many routers wait as have full caches.
    fn notify(&mut self, from: Port, flow: u64, key: Option<super::Key>, ack: &mut AckFields) -> Option<Notification> {
        let port = &mut self.ports[usize::from(from.0)];
        let own = port.is.nonce;
        match port.state {
            State::Backpressure => {
                port.counters.slow_downs += 1;
                ack.nonces.push(own);
                Some(Notification::sign(Notice::SlowDown, own, flow, key))
            }
            State::DisableBackpressure => {
                port.counters.cancels += 1;
                ack.nonces.remove(own);
                Some(Notification::sign(Notice::Cancel, own, flow, key))
            }
            State::Push | State::StoreAndDetour => None,
        }
    }

    /// Puts a packet into the cache of an interface; returns whether there was room.
    fn store(&mut self, now: Time, to: Port, packet: Entry, gate: Option<Nonce>, out: &mut impl Egress) -> bool {
        let config = self.config;
        let port = &mut self.ports[usize::from(to.0)];
        let len = Bytes::new(u64::from(packet.len));
        if packet.other {
            if port.cache.others() + len > port.is.others {
                port.counters.dropped_others += 1;
                return false;
            }
        } else {
            while port.cache.occupancy() + len > port.is.cache {
                port.counters.dropped += 1;
                // The flow that fills the cache pays, and not the one that comes last.
                let Some(evicted) = port.cache.evict(packet.flow, packet.len) else { return false };
                out.discard(evicted.handle, Loss::FairPart);
            }
            port.counters.stored += 1;
        }
        port.cache.push(now, packet, gate);
        port.update(&config, now);
        if gate.is_some() {
            port.sweeps = port.sweeps.min(now + sweep(&config));
        }
        self.schedule(now, to, out);
        true
    }

    /// Does what is due at an interface.
    fn wake(&mut self, now: Time, at: Port, out: &mut impl Egress) {
        let config = self.config;
        let port = &mut self.ports[usize::from(at.0)];
        if port.sweeps <= now {
            let cache = &mut port.cache;
            port.heard.expire(now, config.expiry, |nonce| cache.open_gate(nonce));
            cache.open_stale(now, config.expiry);
            if port.heard.is_empty() {
                cache.forget_credits();
            }
            let idle = idle(&port.is);
            cache.end_idle(now, idle);
            // Until then one packet after the other has looked for the way.
            cache.end_held(now, Span::from_nanos(idle.as_nanos() * HELD));
            let limited = config.backpressure == Backpressure::Limits && cache.knows_flows();
            let more = !port.heard.is_empty() || cache.has_waiting() || limited;
            port.sweeps = if more { now + sweep(&config) } else { Time::MAX };
        }
        if port.probes <= now {
            port.probes = now + config.probe_interval;
            let wants = port.cache.has_ready_for_detour();
            for detour in &port.detours {
                out.probe(detour.over, Probe { from: self.id, of: at, wants });
            }
        }
        if port.decides <= now {
            port.decides = now + config.decision_interval;
            for place in 0..port.detours.len() {
                let over = self.ports[usize::from(at.0)].detours[place].over;
                let own = self.state(over) == State::Push;
                self.ports[usize::from(at.0)].detours[place].decide(&config, now, own);
            }
        }
        self.drain(now, at, out);
        self.ports[usize::from(at.0)].update(&config, now);
        // A detour that is ready still has found no packet that it may take. Our choice: often enough, and not each
        // packet.
        self.schedule_from(now, at, now + Span::from_nanos(config.probe_interval.as_nanos() / 16 + 1), out);
    }

    /// Hands packets of the cache to the detours and to the link, as far as these have room, and sends the window updates
    /// that follow.
    fn drain(&mut self, now: Time, at: Port, out: &mut impl Egress) {
        self.drain_cache(now, at, out);
        self.send_updates(at, out);
    }

    /// Sends the window updates of an interface.
    fn send_updates(&mut self, at: Port, out: &mut impl Egress) {
        while let Some((flow, ack)) = self.ports[usize::from(at.0)].cache.take_update() {
            out.update(flow, &ack);
        }
    }

    /// Hands packets of the cache to the detours and to the link, as far as these have room.
    fn drain_cache(&mut self, now: Time, at: Port, out: &mut impl Egress) {
        for place in 0..self.ports[usize::from(at.0)].detours.len() {
            loop {
                let over = self.ports[usize::from(at.0)].detours[place].over;
                let room = self.has_room_for_detour(now, over, PACKET, out);
                let port = &mut self.ports[usize::from(at.0)];
                let detour = &mut port.detours[place];
                if !room || detour.ready(PACKET).is_none_or(|ready| ready > now) {
                    break;
                }
                let Some(entry) = port.cache.pop_for_detour() else { break };
                detour.spend(now, entry.len);
                port.counters.detoured += 1;
                self.ports[usize::from(over.0)].meter.sent(entry.len);
                let said = self.notify_on_data(at, entry.flow);
                out.send(entry.handle, Way::Detour(over), said);
            }
        }
        loop {
            let port = &mut self.ports[usize::from(at.0)];
            if !has_room(now, &port.is, out.free_at(at), PACKET) {
                return;
            }
            let Some(entry) = port.cache.pop() else { return };
            self.send(now, at, entry, out);
        }
    }

    /// Whether the buffer of a detour's first interface has room: no cache is before what goes around.
    fn has_room_for_detour(&self, now: Time, over: Port, len: u32, out: &impl Egress) -> bool {
        has_room(now, &self.ports[usize::from(over.0)].is, out.free_at(over), len)
    }

    /// Sends a packet that has left the cache of `at` to where routing leads it now.
    fn send(&mut self, now: Time, at: Port, packet: Entry, out: &mut impl Egress) {
        match out.next_hop(packet.handle) {
            Some(to) if to == at => {
                self.ports[usize::from(at.0)].meter.sent(packet.len);
                let said = if packet.other { None } else { self.notify_on_data(at, packet.flow) };
                out.send(packet.handle, Way::Direct(at), said);
            }
            Some(to) if usize::from(to.0) < self.ports.len() => {
                if !self.store(now, to, packet, None, out) {
                    out.discard(packet.handle, Loss::CacheFull);
                }
            }
            _ => {
                self.ports[usize::from(at.0)].counters.unroutable += 1;
                out.discard(packet.handle, Loss::NoRoute);
            }
        }
    }

    /// Notes when an interface wants to be woken.
    fn schedule(&mut self, now: Time, at: Port, out: &impl Egress) {
        self.schedule_from(now, at, now, out);
    }

    /// As [`schedule`](Self::schedule); packets of the cache do not leave before `drains`.
    fn schedule_from(&mut self, now: Time, at: Port, drains: Time, out: &impl Egress) {
        let port = &mut self.ports[usize::from(at.0)];
        port.drains = if port.cache.has_ready() {
            let room = room_at(&port.is, out.free_at(at), PACKET);
            let detours = port.detours.iter().filter_map(|of| of.ready(PACKET)).min();
            detours.map_or(room, |ready| ready.max(drains).min(room)).max(now)
        } else {
            Time::MAX
        };
        let due = port.drains.min(port.sweeps).min(port.probes).min(port.decides).min(port.ends());
        let before = std::mem::replace(&mut self.due[usize::from(at.0)], due);
        if due <= self.next {
            self.next = due;
        } else if before == self.next {
            self.next = self.due.iter().copied().min().unwrap_or(Time::MAX);
        }
    }
}

/// Whether an interface of a router with all of these can be.
fn check(place: Port, of: &Interface, all: &[Interface]) -> Result<(), InterfaceError> {
    if of.cache < Bytes::new(u64::from(PACKET)) {
        return Err(InterfaceError::Small { of: place, cache: of.cache });
    }
    if of.low >= of.high || of.high > of.cache || of.reserved >= of.high {
        return Err(InterfaceError::Thresholds { of: place, low: of.low, high: of.high, cache: of.cache });
    }
    for over in &of.detours {
        match all.get(usize::from(over.0)) {
            Some(first) if *over != place && first.key.is_none() => return Err(InterfaceError::Key { of: *over }),
            Some(_) if *over != place => {}
            _ => return Err(InterfaceError::Detour { of: place, over: *over }),
        }
    }
    Ok(())
}

/// When the buffer of a link has room for `len` bytes more.
fn room_at(of: &Interface, free_at: Time, len: u32) -> Time {
    let full = of.buffer - of.rate.time_for(Bytes::new(u64::from(len)));
    Time::from_nanos(free_at.as_nanos().saturating_sub(full.as_nanos()))
}

fn has_room(now: Time, of: &Interface, free_at: Time, len: u32) -> bool {
    room_at(of, free_at, len) <= now
}

/// Bytes that wait for a link, without the packet that it is sending: a link that is busy without a queue is not overloaded.
fn backlog(now: Time, rate: Rate, free_at: Time) -> Bytes {
    rate.bytes_in(free_at.since(now)) - Bytes::new(u64::from(PACKET))
}

/// A flow whose packets wait for ACKs that do not come waits so many times as long as [idle] ones.
const HELD: u64 = 3;

/// A flow of which nothing has come for so long has ended: longer than a round trip, even if this cache is full. Until then
/// others lack its part. Our choice.
fn idle(of: &Interface) -> Span {
    (Span::from_secs(1) + of.rate.time_for(of.high)).min(Span::from_secs(10))
}

/// How often nonces and gates are looked at. Our choice: none stays longer than a quarter more than its time.
fn sweep(config: &Config) -> Span {
    Span::from_nanos((config.expiry.as_nanos() / 4).max(1))
}
