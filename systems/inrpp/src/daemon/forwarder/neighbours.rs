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
/// The same where what has come is not read yet, its answer perhaps among it.
const BEHIND: u64 = 30;
/// With less than this part delivered a link is full. A rate that follows grows by so much a second.
const MIN_DELIVERED: f64 = 0.99;
const GAIN: f64 = 0.05;
/// At once it falls to no less than this part of what the link has carried.
const LEAST_STEP: f64 = 0.75;

impl Forwarder {
    /// Leaves neighbours that have not answered, and sends a hello to each.
    pub(super) fn send_hellos(&mut self, now: Time) {
        let hello = self.settings.hello;
        for at in 0..self.ports.len() {
            let port = Port(at as u16);
            let is_late = self.ports[at].alive().is_some_and(|neighbour| is_late(neighbour, now, hello));
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
        let (mtu, rate, bytes) = (port.mtu, port.rate.bits_per_sec(), port.sent_bytes);
        let Some(neighbour) = port.neighbour() else { return };
        let received_packets = neighbour.at_its_hello;
        let behind = is_behind(neighbour, now, self.settings.hello);
        let about = About { rate, mtu, leaving, behind, received_packets, neighbours };
        let datagram = neighbour.session.hello(&about);
        let number = neighbour.session.hellos();
        neighbour.at_hello[number as usize % HELLOS] =
            Carried { hello: number, at: now, sent: neighbour.sealed, bytes, received: 0 };
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
        neighbour.at_its_hello = neighbour.received_packets;
        if seen.fresh {
            self.answered(now, at, &seen);
        }
        if seen.answer {
            self.send_hello(now, at, false);
        }
    }

    /// A neighbour has answered.
    fn answered(&mut self, now: Time, at: Port, seen: &HelloSeen) {
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return };
        let bytes = port.sent_bytes;
        let Some(neighbour) = port.neighbour() else { return };
        neighbour.spoke = now;
        if seen.advances {
            neighbour.heard = now;
        }
        if seen.began {
            (neighbour.received_packets, neighbour.received_bytes) = (0, 0);
            neighbour.at_its_hello = 0;
            neighbour.judged = Carried { at: now, sent: neighbour.sealed, bytes, ..Carried::default() };
        }
        let about = &seen.hello.about;
        let changed = neighbour.about.as_ref().map(|about| &about.neighbours) != Some(&about.neighbours);
        neighbour.id = seen.hello.id;
        neighbour.about = Some(about.clone());
        let (state, began) = (neighbour.state, seen.began);
        let carried = neighbour.at_hello[seen.hello.echo_number as usize % HELLOS];
        if !began && carried.hello == seen.hello.echo_number {
            self.follow_rate(now, at, Carried { received: about.received_packets, ..carried });
        }
        if about.leaving {
            self.left(now, at, NeighbourState::Leaving, "it ends");
        } else if state != NeighbourState::Alive && seen.advances {
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
        // ACKs that leave there are not seen any more, and bring no limits.
        for (port, flow) in self.connections.acked_by(at).collect::<Vec<_>>() {
            self.unlimit(now, port, flow);
        }
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

    /// A rate that is not given falls to what the neighbour has received while the link lost packets, and from there grows while packets
    /// wait. If it has received more before, it falls step by step: perhaps nothing waited a part of the time.
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
        let part = carried.received.saturating_sub(last.received) as f64 / count as f64;
        let took = carried.at.since(last.at).as_secs_f64().max(1e-9);
        let came = carried.bytes.saturating_sub(last.bytes) as f64 * part.min(1.0) * 8.0 / took;
        let bits = before.bits_per_sec() as f64;
        neighbour.carries = neighbour.carries.max(came.min(bits));
        let next = if part < MIN_DELIVERED {
            neighbour.carries =
                came.max(neighbour.carries * LEAST_STEP).max(neighbour.most.bits_per_sec() as f64 / 1_000.0);
            neighbour.carries
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

/// Whether a neighbour, which sends a hello in this interval, has said nothing for too long, or does not receive what we say.
fn is_late(neighbour: &Neighbour, now: Time, hello: Span) -> bool {
    let after = |missed| Span::from_nanos(hello.as_nanos() * missed).max(neighbour.link.may_repeat_for());
    let its_behind = neighbour.about.as_ref().is_some_and(|about| about.behind);
    let behind = is_behind(neighbour, now, hello);
    let [speaks, answers] = [behind, behind || its_behind].map(|behind| after(if behind { BEHIND } else { MISSED }));
    now.since(neighbour.spoke) > speaks || now.since(neighbour.heard) > answers
}

/// Whether hellos wait with all else that has come and is not read yet.
fn is_behind(neighbour: &Neighbour, now: Time, hello: Span) -> bool {
    neighbour.unread.is_some_and(|since| now.since(since) > hello)
}

fn knows(about: &About, router: RouterId) -> bool {
    about.neighbours.iter().any(|neighbour| neighbour.id == router)
}
