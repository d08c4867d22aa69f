//! An interface's cache: a queue for each flow, served by deficit round robin (Shreedhar and Varghese, 1996).
//!
//! With limits a packet leaves if the next router has room for it. With notices a flow is free, or gated for an interface
//! further on that presses back; a packet of a gated flow leaves only with a credit, which an ACK brings.
//!
//! The paper's cache is fair between flows (section V-A, and Figure 12) and names no algorithm. This one needs a few
//! steps for a packet, however many flows there are.

mod limits;
mod ring;

use std::collections::VecDeque;

use foldhash::HashMap;
use sidestep_net::{Bytes, Span, Time};

use limits::Limits;
use ring::{Links, Ring};

use super::{Handle, Nonce};
use crate::{Credit, LimitFields};

/// A round's worth of bytes for a flow: above the usual packet, so that it is served in one round, as Shreedhar and
/// Varghese ask for work that does not grow with the number of flows.
const QUANTUM: u32 = 1_600;
/// Most credits that are kept while there is no packet for them: of all flows that wait for one interface, and of one
/// alone. Our choice: none would waste what an ACK lets go just before a packet comes, and many would let a burst into
/// the full cache.
const POOLED_CREDITS: u32 = 64;
const OWN_CREDITS: u32 = 4;
const NONE: u32 = u32::MAX;

/// The packets of an interface that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    packets: Vec<Stored>,
    free_packets: Vec<u32>,
    flows: Vec<Flow>,
    free_flows: Vec<u32>,
    /// Never iterated over, so that its order does not matter.
    by_key: HashMap<u64, u32>,
    /// Flows with packets that may leave, in the order in which they are served.
    ready: Ring,
    /// Flows with packets that wait for credits, in the order in which they get them, or for limits.
    waiting: Ring,
    links: Links,
    bytes: u64,
    /// Bytes that flows may send beyond what has come, and the flows with limits.
    promised: u64,
    limited: u32,
    /// The flow of which a packet has come last.
    last: u32,
    /// What flows may have together, stored and to come.
    high: Bytes,
    /// A flow that has less than this may have room worth a window update.
    worth: u64,
    /// Window updates to be sent.
    updates: Vec<(u64, LimitFields)>,
    peak: u64,
    /// Packets of other protocols, which have a part of their own, in the order in which they came, and their bytes.
    others: VecDeque<Entry>,
    other_bytes: u64,
    /// While both wait: the bytes of other protocols that have left, less the bytes of INRPP.
    lead: i64,
    /// Credits that found no flow, by the interface whose ACKs have brought them. While there are any, no flow waits for one.
    spare: Vec<(Nonce, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    handle: Handle,
    len: u32,
    end: u32,
    detoured: bool,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: u64,
    first: u32,
    last: u32,
    bytes: u64,
    /// How far the next router lets it come.
    next: u32,
    limits: Limits,
    deficit: u32,
    /// Whether it has had its quantum in this round.
    in_round: bool,
    /// The interface for which it is gated; none: it is free.
    gate: Nonce,
    credits: u32,
    /// When it got a credit last, or became more than empty.
    served: Time,
}

impl Flow {
    fn is_gated(&self) -> bool {
        self.gate != Nonce::default()
    }

    fn has_credit(&self) -> bool {
        !self.is_gated() || self.credits > 0
    }
}

/// A packet that enters or leaves the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) flow: u64,
    pub(super) len: u32,
    /// The packets of its flow up to it and with it.
    pub(super) end: u32,
    /// Whether it must not take a detour: it is on one already, or of another protocol.
    pub(super) detoured: bool,
    /// Whether it is of another protocol.
    pub(super) other: bool,
}

impl Cache {
    /// Bytes in it, those of other protocols not counted.
    pub(super) fn occupancy(&self) -> Bytes {
        Bytes::new(self.bytes)
    }

    /// Bytes of other protocols in it.
    pub(super) fn others(&self) -> Bytes {
        Bytes::new(self.other_bytes)
    }

    /// The most bytes that were ever in it, those of other protocols not counted.
    pub(super) fn peak(&self) -> Bytes {
        Bytes::new(self.peak)
    }

    /// Bytes of one flow.
    pub(super) fn of_flow(&self, key: u64) -> Bytes {
        Bytes::new(self.by_key.get(&key).map_or(0, |at| self.flows[*at as usize].bytes))
    }

    /// The flows of which packets are in it, and their bytes.
    pub(super) fn flows(&self) -> impl Iterator<Item = (u64, Bytes)> {
        let of = |at: u32| self.flows.get(at as usize).map(|flow| (flow.key, Bytes::new(flow.bytes)));
        self.ready.iter(&self.links).chain(self.waiting.iter(&self.links)).filter_map(of)
    }

    /// Bytes of memory that it takes, packets not counted.
    pub(super) fn memory(&self) -> Bytes {
        let packets = self.packets.capacity() * size_of::<Stored>() + self.free_packets.capacity() * 4;
        let flows = self.flows.capacity() * size_of::<Flow>() + self.free_flows.capacity() * 4;
        let rings = self.links.capacity() * 8 + self.by_key.capacity() * 16;
        Bytes::new((packets + flows + rings) as u64)
    }

    /// Whether there is a packet that may leave.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.others.is_empty()
    }

    /// Whether there is a packet that may take a detour.
    pub(super) fn has_ready_for_detour(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a flow waits for credits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether packets of a flow are in it; a later one must not overtake them.
    pub(super) fn holds(&self, key: u64) -> bool {
        self.by_key.get(&key).is_some_and(|at| self.flows[*at as usize].first != NONE)
    }

    /// Stores a packet behind those of its flow. `gate` names the interface for which the flow is gated, if it is.
    pub(super) fn push(&mut self, now: Time, entry: Entry, gate: Option<Nonce>) {
        if entry.other {
            self.other_bytes += u64::from(entry.len);
            self.others.push_back(entry);
            return;
        }
        let at = self.flow(now, entry.flow);
        let Entry { handle, len, end, detoured, .. } = entry;
        let index = place(&mut self.packets, &mut self.free_packets, Stored { handle, len, end, detoured, next: NONE });
        let (is_first, could) = (self.flows[at as usize].first == NONE, self.may_leave(at));
        let flow = &mut self.flows[at as usize];
        let passes = !is_first && end <= flow.next && self.packets[flow.first as usize].end > flow.next;
        // A packet that names no nonce yet waits behind those of its flow that an ACK has gated.
        flow.gate = gate.unwrap_or(if is_first { Nonce::default() } else { flow.gate });
        if !flow.is_gated() {
            flow.credits = 0;
        }
        if is_first {
            (flow.first, flow.served, flow.deficit, flow.in_round) = (index, now, 0, false);
        } else if passes {
            // Sent again, as it was lost further on: what waits for a limit waits for it.
            self.packets[index as usize].next = std::mem::replace(&mut flow.first, index);
        } else {
            self.packets[flow.last as usize].next = index;
        }
        if !passes {
            flow.last = index;
        }
        flow.bytes += u64::from(entry.len);
        self.bytes += u64::from(entry.len);
        self.peak = self.peak.max(self.bytes);
        if is_first {
            self.enlist(at);
        } else if could != self.may_leave(at) {
            let ring = if could { &mut self.ready } else { &mut self.waiting };
            ring.remove(&mut self.links, at);
            self.enlist(at);
        }
    }

    /// Gates a flow of which packets are stored.
    pub(super) fn gate(&mut self, now: Time, key: u64, gate: Nonce) {
        let Some(at) = self.by_key.get(&key).copied() else { return };
        let flow = &mut self.flows[at as usize];
        if flow.first == NONE || flow.is_gated() {
            return;
        }
        let could = may_leave(flow, &self.packets);
        (flow.gate, flow.credits, flow.served) = (gate, 0, now);
        let ring = if could { &mut self.ready } else { &mut self.waiting };
        ring.remove(&mut self.links, at);
        self.enlist(at);
    }

    /// Takes the next packet that may leave: INRPP's and those of other protocols by turns, as long as both wait. The
    /// paper's section V-A makes them share the link equally.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        if self.others.is_empty() || self.ready.is_empty() {
            self.lead = 0;
        }
        let entry = if self.ready.is_empty() || self.lead <= 0 && !self.others.is_empty() {
            let entry = self.others.pop_front()?;
            self.other_bytes -= u64::from(entry.len);
            self.lead += i64::from(entry.len);
            entry
        } else {
            let entry = self.pop_own(false)?;
            self.lead -= i64::from(entry.len);
            entry
        };
        Some(entry)
    }

    /// Takes the next packet that may take a detour.
    pub(super) fn pop_for_detour(&mut self) -> Option<Entry> {
        self.pop_own(true)
    }

    fn pop_own(&mut self, for_detour: bool) -> Option<Entry> {
        let mut passed = 0;
        loop {
            let at = self.ready.first()?;
            let flow = &mut self.flows[at as usize];
            let first = self.packets[flow.first as usize];
            if for_detour && first.detoured {
                passed += 1;
                if passed > self.ready.len() {
                    return None;
                }
                self.ready.rotate(&mut self.links);
                continue;
            }
            if !flow.in_round {
                flow.in_round = true;
                flow.deficit += QUANTUM;
            }
            if flow.deficit < first.len {
                flow.in_round = false;
                self.ready.rotate(&mut self.links);
                continue;
            }
            flow.deficit -= first.len;
            return Some(self.take_first(at));
        }
    }

    /// Takes out the oldest packet of the flow that has stored most, if that is more than `key` would have with `len` bytes
    /// more: where a cache is full, who fills it pays.
    pub(super) fn evict(&mut self, key: u64, len: u32) -> Option<Entry> {
        let stored = self.ready.iter(&self.links).chain(self.waiting.iter(&self.links));
        let at = stored.max_by_key(|at| (self.flows[*at as usize].bytes, *at))?;
        let flow = &self.flows[at as usize];
        if flow.key == key || flow.bytes <= self.of_flow(key).get() + u64::from(len) {
            return None;
        }
        if self.packets[flow.first as usize].next == NONE {
            return None;
        }
        Some(self.unlink(at))
    }

    /// Takes the first packet off a flow's queue; the flow stays in its ring.
    fn unlink(&mut self, at: u32) -> Entry {
        let flow = &mut self.flows[at as usize];
        let Stored { handle, len, end, detoured, next } = self.packets[flow.first as usize];
        self.free_packets.push(flow.first);
        flow.first = next;
        flow.bytes -= u64::from(len);
        self.bytes -= u64::from(len);
        Entry { handle, flow: flow.key, len, end, detoured, other: false }
    }

    /// Algorithm 1, lines 17 and 18. An ACK of a gated flow has passed on which the interface `from` presses back: a
    /// packet of this flow may leave, or, if
    /// credits are pooled, of the next that waits for the same interface.
    pub(super) fn credit(&mut self, now: Time, key: u64, credit: Credit, from: Nonce) {
        let own = self.by_key.get(&key).copied().filter(|at| {
            let flow = &self.flows[*at as usize];
            credit != Credit::RoundRobin && flow.first != NONE && !flow.has_credit()
        });
        let at = match (own, credit) {
            (Some(at), _) => {
                self.waiting.remove(&mut self.links, at);
                at
            }
            (None, Credit::Own) => {
                let at = self.flow(now, key);
                let flow = &mut self.flows[at as usize];
                flow.credits = (flow.credits + 1).min(OWN_CREDITS);
                return;
            }
            (None, Credit::Pooled | Credit::RoundRobin) => {
                let next = self.waiting.iter(&self.links).find(|at| self.flows[*at as usize].gate == from);
                let Some(at) = next else { return self.keep(from) };
                self.waiting.remove(&mut self.links, at);
                at
            }
        };
        let flow = &mut self.flows[at as usize];
        (flow.credits, flow.served) = (flow.credits + 1, now);
        self.ready.push_back(&mut self.links, at);
    }

    /// Keeps a credit that found no flow.
    fn keep(&mut self, from: Nonce) {
        match self.spare.iter_mut().find(|(of, _)| *of == from) {
            Some((_, spare)) => *spare = (*spare + 1).min(POOLED_CREDITS),
            None => self.spare.push((from, 1)),
        }
    }

    /// Takes a credit for a packet of a flow that passes the cache, and is gated for an interface; returns whether there was one.
    pub(super) fn take_credit(&mut self, key: u64, gate: Nonce) -> bool {
        let own = self.by_key.get(&key).map(|at| &mut self.flows[*at as usize].credits);
        match own {
            Some(credits) if *credits > 0 => {
                *credits -= 1;
                true
            }
            _ => self.take_spare(gate),
        }
    }

    fn take_spare(&mut self, gate: Nonce) -> bool {
        let kept = self.spare.iter_mut().find(|(of, spare)| *of == gate && *spare > 0);
        kept.map(|(_, spare)| *spare -= 1).is_some()
    }

    /// Frees the flows that are gated for one interface, and forgets its credits.
    pub(super) fn open_gate(&mut self, nonce: Nonce) {
        self.spare.retain(|(of, _)| *of != nonce);
        self.free_those(|flow| flow.gate == nonce);
    }

    /// Frees the flows that got no credit for so long; those that wait for a limit may send one packet, as their ACKs may
    /// come another way now.
    pub(super) fn open_stale(&mut self, now: Time, expiry: Span) {
        for at in self.waiting.iter(&self.links) {
            let flow = &mut self.flows[at as usize];
            if now.since(flow.served) >= expiry
                && let Some(first) = self.packets.get(flow.first as usize)
                && first.end > flow.next
            {
                (flow.next, flow.served) = (first.end, now);
            }
        }
        self.free_those(|flow| now.since(flow.served) >= expiry);
    }

    /// Forgets the credits that are kept: nothing is gated any more.
    pub(super) fn forget_credits(&mut self) {
        self.spare.clear();
        for at in 0..self.flows.len() as u32 {
            let flow = &mut self.flows[at as usize];
            if flow.credits > 0 && flow.first == NONE {
                flow.credits = 0;
                self.forget(at);
            }
        }
    }

    /// Frees all flows, from gates and from limits of the next router.
    pub(super) fn let_all_leave(&mut self) {
        while let Some(at) = self.waiting.first() {
            let flow = &mut self.flows[at as usize];
            (flow.gate, flow.credits, flow.next) = (Nonce::default(), 0, u32::MAX);
            self.refile(at, false);
        }
    }

    fn free_those(&mut self, which: impl Fn(&Flow) -> bool) {
        for at in self.ready.iter(&self.links).chain(self.waiting.iter(&self.links)) {
            let flow = &mut self.flows[at as usize];
            if flow.is_gated() && which(flow) {
                (flow.gate, flow.credits) = (Nonce::default(), 0);
            }
        }
        let mut next = self.waiting.first();
        while let Some(at) = next {
            next = self.waiting.after(&self.links, at);
            self.refile(at, false);
        }
    }

    /// Moves a flow with packets to its other ring, if that it could leave is not as it was.
    fn refile(&mut self, at: u32, could: bool) {
        let can = self.may_leave(at);
        if could != can {
            let (from, to) =
                if can { (&mut self.waiting, &mut self.ready) } else { (&mut self.ready, &mut self.waiting) };
            from.remove(&mut self.links, at);
            to.push_back(&mut self.links, at);
        }
    }

    /// Puts a flow with packets where it belongs: among those that may leave, or those that wait.
    fn enlist(&mut self, at: u32) {
        let flow = &self.flows[at as usize];
        let gate = flow.gate;
        if !flow.has_credit() && self.take_spare(gate) {
            self.flows[at as usize].credits = 1;
        }
        let ring = if self.may_leave(at) { &mut self.ready } else { &mut self.waiting };
        ring.push_back(&mut self.links, at);
    }

    /// Whether the first packet of a flow may leave.
    fn may_leave(&self, at: u32) -> bool {
        may_leave(&self.flows[at as usize], &self.packets)
    }

    /// Takes the first packet of the flow that is served now.
    fn take_first(&mut self, at: u32) -> Entry {
        let entry = self.unlink(at);
        self.note_room(at);
        let flow = &mut self.flows[at as usize];
        if flow.is_gated() {
            flow.credits = flow.credits.saturating_sub(1);
        }
        if flow.first == NONE {
            self.ready.remove(&mut self.links, at);
            let flow = &self.flows[at as usize];
            if flow.credits == 0 && flow.limits.is_none() {
                self.forget(at);
            }
        } else if !may_leave(flow, &self.packets) {
            (flow.in_round, flow.deficit) = (false, 0);
            self.ready.remove(&mut self.links, at);
            self.enlist(at);
        }
        entry
    }

    /// The place of a flow, which is made if it is not there.
    fn flow(&mut self, now: Time, key: u64) -> u32 {
        if let Some(at) = self.by_key.get(&key) {
            return *at;
        }
        let flow = Flow {
            key,
            first: NONE,
            last: NONE,
            bytes: 0,
            next: u32::MAX,
            limits: Limits::default(),
            deficit: 0,
            in_round: false,
            gate: Nonce::default(),
            credits: 0,
            served: now,
        };
        let at = place(&mut self.flows, &mut self.free_flows, flow);
        self.by_key.insert(key, at);
        at
    }

    fn forget(&mut self, at: u32) {
        self.by_key.remove(&self.flows[at as usize].key);
        self.free_flows.push(at);
    }
}

/// Whether the first packet of a flow, if there is one, may leave.
fn may_leave(flow: &Flow, packets: &[Stored]) -> bool {
    flow.has_credit() && packets.get(flow.first as usize).is_none_or(|first| first.end <= flow.next)
}

/// Puts something where a place is free, or at the end; returns where.
fn place<T>(all: &mut Vec<T>, free: &mut Vec<u32>, new: T) -> u32 {
    match free.pop() {
        Some(at) => {
            all[at as usize] = new;
            at
        }
        None => {
            all.push(new);
            all.len() as u32 - 1
        }
    }
}
