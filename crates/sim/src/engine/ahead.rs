//! Arrivals ahead of time, for networks that do not fit the processor's cache.
//!
//! Whatever an arrival sets off arrives at least the shortest delay of any link later. All arrivals within that time are
//! therefore known when the first of them is due. Taken together, what each will need can be read for many of them at
//! once, so that the waits for memory overlap. Their order is the one that they would have one by one.

use super::network::{ARC_BITS, ARC_MASK, Carried, Network};

/// Networks with fewer arcs are in the cache anyway.
const MANY_ARCS: usize = 1024;
/// Arrivals that are taken together, about: their records stay in the fastest cache.
const TAKEN: usize = 256;
/// Arrivals whose needs are read at once: about as many as the processor waits for at once.
const READ: usize = 16;

/// The arrivals that come next.
#[derive(Debug)]
pub(super) struct Ahead {
    due: Vec<Due>,
    at: usize,
    arcs: Vec<u32>,
    /// How far they may reach, in nanoseconds.
    window: u64,
    /// The shortest delay of any link: the most that `window` may be.
    shortest_delay: u64,
    /// What was read, or the compiler would not have it read.
    read: u64,
}

/// An arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// When, above [`ARC_BITS`] bits of the arc.
    pub(super) key: u64,
    pub(super) carried: Carried,
}

impl Network {
    /// Looks ahead from now on if there are many arcs, and a delay on each.
    pub(super) fn look_ahead(&mut self) {
        self.look_ahead_from(MANY_ARCS);
    }

    /// The same, if there are at least so many.
    pub(super) fn look_ahead_from(&mut self, arcs: usize) {
        self.put_back();
        self.ahead = None;
        if self.arcs.len() < arcs {
            return;
        }
        let shortest_delay = self.arcs.iter().map(|arc| arc.link.delay().as_nanos()).min().unwrap_or(0);
        if shortest_delay > 0 {
            let (due, arcs) = (Vec::new(), Vec::new());
            self.ahead = Some(Box::new(Ahead { due, at: 0, arcs, window: shortest_delay, shortest_delay, read: 0 }));
        }
    }

    /// The next arrival that was looked ahead to, not after `limit`.
    #[inline]
    pub(super) fn next_ahead(&mut self, limit: u64) -> Option<Due> {
        loop {
            let ahead = self.ahead.as_mut()?;
            if let Some(due) = ahead.due.get(ahead.at).copied() {
                if due.key >> ARC_BITS > limit {
                    return None;
                }
                ahead.at += 1;
                if ahead.at % READ == 1 {
                    self.read_together();
                }
                return Some(due);
            }
            if !self.take_together(limit) {
                return None;
            }
        }
    }

    /// Takes the next arrivals off the links. Returns whether there were any, not after `limit`.
    fn take_together(&mut self, limit: u64) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        let first = self.events.top() >> ARC_BITS;
        if first > limit || self.events.top() == u64::MAX {
            return false;
        }
        let end = first + ahead.window;
        while self.events.top() >> ARC_BITS < end {
            ahead.arcs.push((self.events.top() & ARC_MASK) as u32);
            self.events.pop();
        }
        ahead.due.clear();
        ahead.at = 0;
        for arc in ahead.arcs.drain(..) {
            let ring = &mut self.arcs[arc as usize].carried;
            while let Some(carried) = ring.front().copied().filter(|carried| carried.arrives() < end) {
                ring.pop_front();
                ahead.due.push(Due { key: carried.arrives() << ARC_BITS | u64::from(arc), carried });
            }
            match ring.front() {
                Some(next) => self.events.push(next.arrives() << ARC_BITS | u64::from(arc)),
                None => ring.clear(),
            }
        }
        ahead.due.sort_by_key(|due| due.key);
        if ahead.due.len() > 2 * TAKEN {
            ahead.window = (ahead.window / 2).max(1);
        } else if ahead.due.len() < TAKEN {
            ahead.window = (ahead.window * 2).min(ahead.shortest_delay);
        }
        true
    }

    /// Reads what the arrivals that come now will need.
    fn read_together(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        let from = ahead.at - 1;
        let due = &ahead.due[from..ahead.due.len().min(from + READ)];
        let mut next = [None; READ];
        for (due, next) in due.iter().zip(&mut next) {
            let hop = due.carried.hop as usize;
            if !self.hops[hop].is_last() {
                *next = Some(self.hops[hop + 1].arc());
            }
        }
        let mut read = 0;
        for (due, next) in due.iter().zip(&next) {
            read ^= match next {
                Some(arc) => self.arcs[*arc].read(),
                None => u64::from(self.packets[due.carried.packet as usize].flow),
            };
        }
        for arc in next.iter().flatten() {
            read ^= self.arcs[*arc].read_rings();
        }
        ahead.read ^= read;
    }

    /// Puts arrivals that were taken and are not due yet back on their links.
    pub(super) fn put_back(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        for due in ahead.due.drain(..).skip(ahead.at).rev() {
            self.arcs[(due.key & ARC_MASK) as usize].carried.push_front(due.carried);
        }
        ahead.at = 0;
        let fronts = self.arcs.iter().enumerate().filter_map(|(arc, of)| {
            let front = of.carried.front()?;
            Some(front.arrives() << ARC_BITS | arc as u64)
        });
        self.events = fronts.collect();
    }

    /// How many arrivals were taken and are not due yet.
    pub(super) fn ahead_count(&self) -> usize {
        self.ahead.as_ref().map_or(0, |ahead| ahead.due.len() - ahead.at)
    }
}
