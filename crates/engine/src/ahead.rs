//! Arrivals ahead of time, for networks of which more is in use than fits the processor's cache.
//!
//! Whatever an arrival sets off arrives at least the shortest delay of any link later. All arrivals within that time are
//! therefore known when the first of them is due. Taken together, what each will need can be read for many of them at
//! once, so that the waits for memory overlap. Their order is the one that they would have one by one.

use std::{fs, sync::LazyLock};

use super::network::{ARC_BITS, ARC_MASK, Network, PackedPacket};

/// As many arcs as the second-level cache holds. While fewer carry packets, looking ahead costs more than it saves,
/// however many others there are. The processor that runs it decides how fast a run is, never what comes out of it.
static ARCS_IN_CACHE: LazyLock<usize> = LazyLock::new(|| {
    let size = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").ok();
    let kib = size.and_then(|size| size.trim().strip_suffix('K')?.parse().ok()).unwrap_or(COMMON_CACHE_KIB);
    kib * 1024 / ARC_BYTES
});
/// The second-level cache of a common processor of servers, where Linux does not report how large it is.
const COMMON_CACHE_KIB: usize = 1024;
/// What an arc in use takes of it, about: the record, its rings, the packets on it and the state of their connections.
/// Found by measurement: with 2 MiB, a fat tree of 2592 arcs is faster without looking ahead, and one of 6144 slower.
const ARC_BYTES: usize = 960;
/// Arrivals that are taken together, about: their records stay in the fastest cache.
const TAKEN: usize = 256;
/// Arrivals whose needs are read at once: about as many as the processor waits for at once.
const READ: usize = 16;

/// The arrivals that come next.
#[derive(Debug)]
pub(super) struct Ahead {
    due: Vec<Due>,
    at: usize,
    /// How far they may reach, in nanoseconds.
    window: u64,
    /// The shortest delay of any link: the most that `window` may be.
    shortest_delay: u64,
    /// What was read; without it the compiler would remove the read.
    read: u64,
}

/// An arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// When, above [`ARC_BITS`] bits of the arc.
    pub(super) key: u64,
    pub(super) carried: PackedPacket,
}

impl Network {
    /// Looks ahead from now on whenever packets are on more arcs than the cache holds, if all arcs have a delay.
    pub(super) fn look_ahead(&mut self) {
        self.look_ahead_from(*ARCS_IN_CACHE);
    }

    /// Looks ahead from now on whenever packets are on at least `arcs` arcs, if all arcs have a delay.
    pub(super) fn look_ahead_from(&mut self, arcs: usize) {
        self.put_back();
        self.ahead = None;
        let fits = self.wires.is_some()
            || self.arcs.len() < arcs
            || self.arcs.iter().any(|arc| arc.link.delay().as_nanos() == 0);
        self.ahead_from = if fits { usize::MAX } else { arcs };
        self.plain = self.is_plain();
        if self.events.len() >= self.ahead_from {
            self.begin_ahead();
        }
    }

    /// Looks ahead until packets are on fewer arcs again.
    #[cold]
    pub(super) fn begin_ahead(&mut self) {
        let shortest_delay = self.arcs.iter().map(|arc| arc.link.delay().as_nanos()).min().unwrap_or(0);
        let due = Vec::new();
        self.ahead = Some(Box::new(Ahead { due, at: 0, window: shortest_delay, shortest_delay, read: 0 }));
        self.plain = self.is_plain();
    }

    /// The next arrival that was looked ahead to, not after `limit`.
    #[inline]
    pub(super) fn next_ahead(&mut self, limit: u64) -> Option<Due> {
        loop {
            let Some(ahead) = self.ahead.as_mut() else { return self.next_due(limit) };
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

    /// Takes the next arrivals off the links, or ends looking ahead. Returns whether there were any, not after `limit`.
    fn take_together(&mut self, limit: u64) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        let first = self.events.top() >> ARC_BITS;
        if first > limit || self.events.top() == u64::MAX {
            return false;
        }
        // Not as soon as there are fewer, or it would begin and end all the time.
        if self.events.len() < self.ahead_from / 4 * 3 {
            self.ahead = None;
            self.plain = self.is_plain();
            return true;
        }
        let end = first + ahead.window;
        ahead.due.clear();
        ahead.at = 0;
        while self.events.top() >> ARC_BITS < end {
            let arc = self.events.top() & ARC_MASK;
            let ring = &mut self.arcs[arc as usize].carried;
            while let Some(carried) = ring.front().copied().filter(|carried| carried.arrives() < end) {
                ring.pop_front();
                ahead.due.push(Due { key: carried.arrives() << ARC_BITS | arc, carried });
            }
            match ring.front() {
                Some(next) => self.events.replace_top(next.arrives() << ARC_BITS | arc),
                None => {
                    ring.clear();
                    self.events.pop();
                }
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
