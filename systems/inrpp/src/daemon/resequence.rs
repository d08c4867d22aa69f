//! Restores the order of a flow's packets that detours have disturbed.
//!
//! It knows a flow only while packets of it wait behind a hole, so what is in order costs one look into a table.
//! Positions are bytes of one direction of a connection, as [`connections`](super::connections) finds them.

use foldhash::HashMap;
use sidestep_net::{Bytes, Span, Time};

use super::connections::{Links, List, NONE};
use crate::Handle;

/// Bytes that a packet counts beside its own, for what is noted of it. Without them empty packets could wait without number.
const OVERHEAD: u64 = 256;

/// Keeps packets that come before earlier ones of their flow until these have come, for a bounded time and in bounded memory.
#[derive(Debug)]
pub struct Resequencer {
    max_wait: Span,
    max_of_flow: u64,
    max: u64,
    flows: Vec<Flow>,
    free_flows: Vec<u32>,
    /// Never iterated over, so that its order does not matter.
    by_key: HashMap<u64, u32>,
    packets: Vec<Waiting>,
    free_packets: Vec<u32>,
    /// Of each flow its packets by where they begin, and all packets by when they came.
    by_start: Links,
    by_age: Links,
    ages: List,
    bytes: u64,
    counts: ResequencerCounts,
}

/// Where a packet is in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is next, or goes on what has passed.
    Next,
    /// There is a hole before it.
    Ahead,
    /// It has nothing that has not passed.
    Old,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequencerCounts {
    /// Packets that have waited until what was before them had come.
    pub restored: u64,
    /// Packets that have waited as long as they may.
    pub timed_out: u64,
    /// Packets that left, out of order, as there was no room for them or others.
    pub overflowed: u64,
    /// The most bytes that have waited, with 256 a packet for what is noted of it.
    pub peak: Bytes,
}

/// A flow of which packets wait.
#[derive(Clone, Copy, Debug)]
struct Flow {
    key: u64,
    /// The end of what has left: what begins later waits.
    next: u64,
    packets: List,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    start: u64,
    end: u64,
    handle: Handle,
    since: Time,
    flow: u32,
}

/// Why packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Restored,
    TimedOut,
    Overflowed,
    Ended,
}

impl Resequencer {
    /// Keeps a packet for `max_wait` at most, and so many bytes of a flow and of all. Each packet counts 256 bytes
    /// beside its own.
    pub fn new(max_wait: Span, max_bytes_per_flow: Bytes, max_bytes: Bytes) -> Resequencer {
        Resequencer {
            max_wait,
            max_of_flow: max_bytes_per_flow.get(),
            max: max_bytes.get(),
            flows: Vec::new(),
            free_flows: Vec::new(),
            by_key: HashMap::default(),
            packets: Vec::new(),
            free_packets: Vec::new(),
            by_start: Links::new(),
            by_age: Links::new(),
            ages: List::default(),
            bytes: 0,
            counts: ResequencerCounts::default(),
        }
    }

    /// Where a packet from `start` to `end` is in its flow, of which `passed` bytes had come before it
    /// ([`Seen::passed`](super::connections::Seen::passed)); that does not count while packets of it wait.
    ///
    /// One that is next or old may leave at once, and then [`passed`](Self::passed) is due; one that is ahead is to be
    /// stored, and goes to [`arrive`](Self::arrive). A packet without data or FIN is to leave unasked. While packets of a flow
    /// wait ([`holds`](Self::holds)), all of its data is to be asked for.
    pub fn is_in_order(&self, flow: u64, passed: u64, start: u64, end: u64) -> Verdict {
        let known = self.by_key.get(&flow).and_then(|at| self.flows.get(*at as usize));
        let next = known.map_or(passed, |flow| flow.next);
        match (start <= next, end <= next) {
            (_, true) => Verdict::Old,
            (true, false) => Verdict::Next,
            (false, false) => Verdict::Ahead,
        }
    }

    /// A packet that was next, up to `end`, has left: those leave that follow it.
    pub fn passed(&mut self, flow: u64, end: u64, out: &mut dyn FnMut(Handle)) {
        if let Some(at) = self.by_key.get(&flow).copied() {
            self.advance(at, end, Why::Restored, out);
        }
    }

    /// A packet arrives, as in [`is_in_order`](Self::is_in_order). Calls `out` with all that leave now, in order.
    #[expect(clippy::too_many_arguments, reason = "a packet and its place")]
    pub fn arrive(
        &mut self,
        now: Time,
        flow: u64,
        passed: u64,
        start: u64,
        end: u64,
        packet: Handle,
        out: &mut dyn FnMut(Handle),
    ) {
        let cost = cost(start, end);
        loop {
            if self.is_in_order(flow, passed, start, end) != Verdict::Ahead {
                out(packet);
                return self.passed(flow, end, out);
            }
            let known = self.by_key.get(&flow).copied();
            let of_flow = known.and_then(|at| self.flows.get(at as usize)).map_or(0, |flow| flow.bytes);
            let is_flow_full = of_flow.saturating_add(cost) > self.max_of_flow;
            if !is_flow_full && self.bytes.saturating_add(cost) <= self.max {
                return self.store(flow, passed, Waiting { start, end, handle: packet, since: now, flow: NONE });
            }
            // The flow itself makes room, or that of which a packet waits longest.
            let Some(gives) = (if is_flow_full { known } else { self.oldest().map(|oldest| oldest.flow) }) else {
                self.counts.overflowed += 1;
                return out(packet);
            };
            match self.first(gives).filter(|first| Some(gives) != known || first.start <= start) {
                Some(first) => self.advance(gives, first.start, Why::Overflowed, out),
                None => {
                    // It is before all that wait.
                    self.counts.overflowed += 1;
                    out(packet);
                    return self.advance(gives, end, Why::Overflowed, out);
                }
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None`: nothing waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.oldest().map(|oldest| oldest.since + self.max_wait)
    }

    /// Those leave that have waited as long as they may, and before each what is before it in its flow.
    pub fn handle_timeout(&mut self, now: Time, out: &mut dyn FnMut(Handle)) {
        while let Some(oldest) = self.oldest().filter(|oldest| oldest.since + self.max_wait <= now) {
            // The hole is left behind: what is lost is TCP's matter.
            self.advance(oldest.flow, oldest.start, Why::TimedOut, out);
        }
    }

    /// What waits of a flow leaves, as the flow has ended.
    pub fn forget(&mut self, flow: u64, out: &mut dyn FnMut(Handle)) {
        if let Some(at) = self.by_key.get(&flow).copied() {
            self.advance(at, u64::MAX, Why::Ended, out);
        }
    }

    /// All that waits leaves.
    pub fn clear(&mut self, out: &mut dyn FnMut(Handle)) {
        while let Some(oldest) = self.oldest() {
            self.advance(oldest.flow, u64::MAX, Why::Ended, out);
        }
    }

    /// Whether packets of a flow wait.
    pub fn holds(&self, flow: u64) -> bool {
        self.by_key.contains_key(&flow)
    }

    /// Bytes that wait, with 256 a packet for what is noted of it.
    #[cfg(test)]
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.bytes)
    }

    /// Packets that wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.ages.len()
    }

    /// Whether none waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    /// What has happened.
    pub fn counts(&self) -> ResequencerCounts {
        self.counts
    }

    /// The packet that waits longest.
    fn oldest(&self) -> Option<Waiting> {
        self.packets.get(self.ages.first()? as usize).copied()
    }

    /// The packet that is first in a flow.
    fn first(&self, flow: u32) -> Option<Waiting> {
        self.packets.get(self.flows.get(flow as usize)?.packets.first()? as usize).copied()
    }

    /// The packets leave that follow `next` bytes of a flow; a flow of which none waits then is forgotten.
    fn advance(&mut self, at: u32, next: u64, why: Why, out: &mut dyn FnMut(Handle)) {
        let Some(flow) = self.flows.get_mut(at as usize) else { return };
        flow.next = flow.next.max(next);
        while let Some(first) = self.first(at) {
            let Some(flow) = self.flows.get_mut(at as usize).filter(|flow| first.start <= flow.next) else { return };
            flow.next = flow.next.max(first.end);
            self.count(why, 1);
            self.take(at);
            out(first.handle);
        }
        if let Some(flow) = self.flows.get(at as usize) {
            self.by_key.remove(&flow.key);
            self.free_flows.push(at);
        }
    }

    fn count(&mut self, why: Why, packets: u64) {
        match why {
            Why::Restored => self.counts.restored += packets,
            Why::TimedOut => self.counts.timed_out += packets,
            Why::Overflowed => self.counts.overflowed += packets,
            Why::Ended => {}
        }
    }

    /// Keeps a packet of a flow of which `passed` bytes have come, if none of it waits yet.
    fn store(&mut self, key: u64, passed: u64, packet: Waiting) {
        let at = match self.by_key.get(&key) {
            Some(at) => *at,
            None => {
                let flow = Flow { key, next: passed, packets: List::default(), bytes: 0 };
                let at = put(&mut self.flows, &mut self.free_flows, flow);
                self.by_key.insert(key, at);
                at
            }
        };
        let number = put(&mut self.packets, &mut self.free_packets, Waiting { flow: at, ..packet });
        let Some(flow) = self.flows.get_mut(at as usize) else { return };
        let begins = |number: u32| self.packets.get(number as usize).map_or(0, |of| of.start);
        // Most come last; one that comes first needs no search either.
        let mut before = flow.packets.last();
        if flow.packets.first().is_some_and(|first| packet.start < begins(first)) {
            before = None;
        }
        while let Some(of) = before.filter(|of| begins(*of) > packet.start) {
            before = flow.packets.before(&self.by_start, of);
        }
        flow.packets.insert_after(&mut self.by_start, before, number);
        self.ages.push_back(&mut self.by_age, number);
        let cost = cost(packet.start, packet.end);
        flow.bytes += cost;
        self.bytes += cost;
        self.counts.peak = self.counts.peak.max(Bytes::new(self.bytes));
    }

    /// Takes the first packet of a flow out.
    fn take(&mut self, at: u32) {
        let Some(flow) = self.flows.get_mut(at as usize) else { return };
        let Some(packet) = flow.packets.first() else { return };
        flow.packets.remove(&mut self.by_start, packet);
        self.ages.remove(&mut self.by_age, packet);
        self.free_packets.push(packet);
        if let Some(Waiting { start, end, .. }) = self.packets.get(packet as usize) {
            let cost = cost(*start, *end);
            flow.bytes -= cost;
            self.bytes -= cost;
        }
    }
}

/// What a packet counts.
fn cost(start: u64, end: u64) -> u64 {
    end.saturating_sub(start).saturating_add(OVERHEAD)
}

/// Puts something into a free place, or a new one.
fn put<T>(places: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    if let Some(at) = free.pop()
        && let Some(place) = places.get_mut(at as usize)
    {
        *place = value;
        return at;
    }
    places.push(value);
    places.len() as u32 - 1
}

#[cfg(test)]
mod tests;
