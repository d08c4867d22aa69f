//! Neighbours: who answers, who their neighbours are, and which detours follow.

use sidestep_net::{Rate, Span, Time};

use super::{
    super::{
        message::{About, Neighbour as Known},
        session::HelloSeen,
    },
    Forwarder,
    port::{Carried, HELLOS, Neighbour, NeighbourState, Peer, PortIo},
};
use crate::{Port, RouterId};

/// A neighbour is left after so many intervals without an answer.
const MISSED: u64 = 3;
/// With less than this part delivered a link is full. A rate that follows grows by so much a second.
const MIN_DELIVERED: f64 = 0.99;
const GAIN: f64 = 0.05;

impl Forwarder {
    /// Leaves neighbours that have not answered, and sends a hello to each.
    pub(super) fn send_hellos(&mut self, now: Time) {
        let hello = self.settings.hello;
        for at in 0..self.ports.len() {
            let port = Port(at as u16);
            let is_late =
                self.ports[at].alive().is_some_and(|neighbour| now.since(neighbour.heard) > silence(neighbour, hello));
            if is_late {
                self.left(now, port, NeighbourState::Silent, "it does not answer");
            }
        }
        self.hello_all(now);
    }

    /// Sends a hello over one link.
    pub(super) fn send_hello(&mut self, now: Time, at: Port, leaving: bool) {
        let neighbours = self.known(at);
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        let (mtu, rate) = (port.mtu, port.rate.bits_per_sec());
        let Some(neighbour) = port.neighbour() else { return };
        let (received_packets, received_bytes) = neighbour.at_its_hello;
        let about = About { rate, mtu, leaving, received_packets, received_bytes, neighbours };
        let datagram = neighbour.session.hello(now, &about);
        neighbour.at_hello[neighbour.session.hellos() as usize % HELLOS] = neighbour.sealed;
        if let Some((shim, body)) = datagram.split_first_chunk() {
            neighbour.push(shim, &[body]);
        }
        port.count(now, datagram.len());
    }

    /// The routers that answer, but for the one that is told and those behind borders.
    fn known(&self, but: Port) -> Vec<Known> {
        let ports = self.ports.iter().enumerate().filter(|(at, _)| *at != usize::from(but.0));
        let alive = ports.filter_map(|(_, port)| {
            let neighbour = port.alive().filter(|neighbour| !neighbour.is_border)?;
            Some(Known { id: neighbour.id, rate: port.rate.bits_per_sec() })
        });
        alive.collect()
    }

    /// A hello has come.
    pub(super) fn hello(&mut self, now: Time, at: Port, datagram: &[u8]) {
        let Some(neighbour) = self.ports.get_mut(usize::from(at.0)).and_then(PortIo::neighbour) else { return };
        let Ok(seen) = neighbour.session.handle_hello(now, datagram) else { return };
        neighbour.at_its_hello = (neighbour.received_packets, neighbour.received_bytes);
        // If it echoes an old one only, it does not receive us any more.
        let silent = silence(neighbour, self.settings.hello);
        if seen.fresh && seen.echoed.is_none_or(|ago| ago <= silent) {
            self.answered(now, at, &seen);
        }
        if seen.answer {
            self.send_hello(now, at, false);
        }
    }

    /// A neighbour has answered.
    fn answered(&mut self, now: Time, at: Port, seen: &HelloSeen) {
        let Some(neighbour) = self.ports.get_mut(usize::from(at.0)).and_then(PortIo::neighbour) else { return };
        neighbour.heard = now;
        if seen.began {
            (neighbour.received_packets, neighbour.received_bytes) = (0, 0);
            neighbour.at_its_hello = (0, 0);
            neighbour.judged = Carried { at: now, sent: neighbour.sealed, received: 0, bytes: 0 };
        }
        let about = &seen.hello.about;
        let changed = neighbour.about.as_ref().map(|about| &about.neighbours) != Some(&about.neighbours);
        neighbour.id = seen.hello.id;
        neighbour.about = Some(about.clone());
        let (state, began) = (neighbour.state, seen.began);
        let sent = neighbour.at_hello[seen.hello.echo_number as usize % HELLOS];
        if let (false, Some(ago)) = (began, seen.echoed) {
            let then = Time::from_nanos(now.as_nanos().saturating_sub(ago.as_nanos()));
            self.follow_rate(
                now,
                at,
                Carried { at: then, sent, received: about.received_packets, bytes: about.received_bytes },
            );
        }
        if about.leaving {
            self.left(now, at, NeighbourState::Leaving, "it ends");
        } else if state != NeighbourState::Alive {
            self.found(now, at);
        } else if changed {
            self.set_detours(now);
        }
    }

    /// A neighbour answers: packets to it are diverted, and detours lead over it.
    fn found(&mut self, now: Time, at: Port) {
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        let interface = port.interface.clone();
        let Some(neighbour) = port.neighbour() else { return };
        neighbour.state = NeighbourState::Alive;
        tracing::info!(interface, neighbour = neighbour.name, "a neighbour answers");
        self.set_entry(at);
        self.set_detours(now);
        // Others need not wait for the next hello to use the detour.
        self.hello_all(now);
    }

    /// A neighbour has gone: the kernel sends what waits, and all that comes.
    pub(super) fn left(&mut self, now: Time, at: Port, state: NeighbourState, why: &str) {
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        let interface = port.interface.clone();
        let Some(neighbour) = port.neighbour() else { return };
        if neighbour.state != NeighbourState::Alive {
            return;
        }
        neighbour.state = state;
        neighbour.outbox.clear();
        neighbour.link.forget();
        tracing::warn!(interface, neighbour = neighbour.name, "a neighbour has gone, as {why}: the kernel sends");
        self.set_entry(at);
        self.set_detours(now);
        self.give_to_kernel(now, at);
        self.hello_all(now);
    }

    fn hello_all(&mut self, now: Time) {
        for at in 0..self.ports.len() {
            self.send_hello(now, Port(at as u16), false);
        }
    }

    /// What waits for a port goes to the kernel, which routes it as it is now.
    pub(super) fn give_to_kernel(&mut self, now: Time, at: Port) {
        let mut waiting = std::mem::take(&mut self.ready);
        let (router, mut out) = self.split(now);
        router.evacuate(now, at, &mut out, |handle| waiting.push(handle));
        self.ready = waiting;
        self.write_to_kernel(at);
    }

    /// The detours of each port, as neighbours are now: over those that are also neighbours of its next hop.
    pub(super) fn set_detours(&mut self, now: Time) {
        if !self.settings.detours {
            return;
        }
        for of in 0..self.ports.len() {
            let over = self.detours_of(of);
            let (router, mut out) = self.split(now);
            router.set_detours(now, Port(of as u16), &over, &mut out);
        }
    }

    fn detours_of(&self, of: usize) -> Vec<Port> {
        let inner = |at: usize| self.ports.get(at)?.alive().filter(|neighbour| !neighbour.is_border);
        let Some(next) = inner(of) else { return Vec::new() };
        let leads = |at: &usize| {
            let over = inner(*at).filter(|over| *at != of && over.id != next.id);
            over.and_then(|over| over.about.as_ref()).is_some_and(|about| knows(about, next.id))
        };
        (0..self.ports.len()).filter(leads).map(|at| Port(at as u16)).collect()
    }

    /// Has the program at egress do for a port what its neighbour's state asks for.
    pub(super) fn set_entry(&mut self, at: Port) {
        let Some(port) = self.ports.get(usize::from(at.0)) else { return };
        if let Err(error) = self.divert.set_port(port.index, &port.entry(self.dry_run)) {
            tracing::error!("{}: {error}", port.interface);
        }
    }

    /// The neighbour's kernel refuses datagrams: its process has ended.
    pub(super) fn refused(&mut self, now: Time, at: Port) {
        self.left(now, at, NeighbourState::Silent, "its kernel refuses datagrams");
    }

    /// A rate that is not given is no more than what the neighbour has received while the link lost packets; from there it grows
    /// while packets wait.
    fn follow_rate(&mut self, now: Time, at: Port, carried: Carried) {
        let busy = self.router.occupancy(at).get() > 0;
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        let before = port.rate;
        let Peer::Neighbour(neighbour) = &mut port.peer else { return };
        let last = neighbour.judged;
        let count = carried.sent.saturating_sub(last.sent);
        if !neighbour.follows || count < MIN_JUDGED {
            return;
        }
        neighbour.judged = carried;
        let received = carried.received.saturating_sub(last.received);
        let took = carried.at.since(last.at).as_secs_f64();
        let bits = before.bits_per_sec() as f64;
        let is_loss = (received as f64) < count as f64 * MIN_DELIVERED;
        let next = if is_loss && took > 0.0 {
            let bytes = carried.bytes.saturating_sub(last.bytes) + received * u64::from(neighbour.link.overhead());
            (bytes as f64 * 8.0 / took).max(neighbour.most.bits_per_sec() as f64 / 1_000.0)
        } else if busy {
            bits * (1.0 + GAIN * self.settings.hello.as_secs_f64())
        } else {
            return;
        };
        let rate = Rate::from_bits_per_sec(next as u64).min(neighbour.most);
        if rate != before {
            port.rate = rate;
            let (router, mut out) = self.split(now);
            router.handle_rate(now, at, rate, &mut out);
        }
    }
}

/// With fewer packets sent, what is in flight counts for too much.
const MIN_JUDGED: u64 = 100;

/// How long a neighbour may be silent that sends a hello in this interval.
fn silence(neighbour: &Neighbour, hello: Span) -> Span {
    Span::from_nanos(hello.as_nanos() * MISSED).max(neighbour.link.may_repeat_for())
}

fn knows(about: &About, router: RouterId) -> bool {
    about.neighbours.iter().any(|neighbour| neighbour.id == router)
}
