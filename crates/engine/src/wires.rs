//! Links that are served as the lab's wires are: by threads that do one thing after the other.
//!
//! A thread of the lab takes a frame from the node that sends it, and hands it to the next node when it is due. What is due
//! at the same time goes one by one, and a thread that is kept from its processor has all of its frames late together.
//! Lateness does not add up: what a router forwards late leaves as if that had been in time. So routers are in time, and hosts
//! notice late.

use std::collections::VecDeque;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_net::Span;

use super::{
    ahead::Due,
    delays::Times,
    lateness::WireTimes,
    network::{ARC_BITS, ARC_MASK, MAX_NANOS, Network},
};

/// Two arcs are a link.
const ARCS: usize = 2;

/// The threads that serve a network's links.
#[derive(Debug)]
pub(super) struct Wires {
    threads: Vec<Thread>,
    arcs_per_thread: usize,
    reads: Times,
    writes: Times,
    random: Pcg32,
    /// When the last packet was handed over, and how late that was if a router forwards it.
    now: u64,
    behind: u64,
    /// When the last packet was sent by each arc: no later one was sent before.
    sent: Box<[u64]>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// When it has done what it has to do so far.
    free: u64,
    /// When it could go on after it had slept, in order, and how much later it did.
    wakes: Box<[(u64, u64)]>,
    /// How many of these were before now.
    woken: usize,
    /// When it cannot go on, and for how long, in that order.
    stalls: VecDeque<(u64, u64)>,
    /// What it hands over, in that order.
    writing: VecDeque<Due>,
}

impl Wires {
    fn new(times: &WireTimes, arcs: usize, seed: u64) -> Self {
        let links = arcs / ARCS;
        let links_per_thread = links.div_ceil(times.threads.max(1) as usize).max(1);
        let mut threads = vec![Thread::default(); links.div_ceil(links_per_thread)];
        let of = |waits: &[(u32, Span, Span)], number: usize| -> Vec<(u64, u64)> {
            let of_thread = waits.iter().filter(|(thread, ..)| *thread as usize == number);
            of_thread.map(|(_, at, length)| (at.as_nanos(), length.as_nanos())).collect()
        };
        for (number, thread) in threads.iter_mut().enumerate() {
            thread.wakes = of(&times.wakes, number).into();
            thread.stalls = of(&times.stalls, number).into();
        }
        Wires {
            threads,
            arcs_per_thread: links_per_thread * ARCS,
            reads: Times::new(&times.reads),
            writes: Times::new(&times.writes),
            random: Pcg32::new(seed, u64::MAX / 8),
            now: 0,
            behind: 0,
            sent: vec![0; arcs].into(),
        }
    }

    /// When the packet counts as sent that a node sends by an arc now: forwarded when it was due, but not before what went there
    /// earlier. Its thread has it to take.
    pub(super) fn send(&mut self, now: u64, arc: usize) -> u64 {
        let took = self.reads.one(self.random.next_u64());
        self.serve(now, arc, took);
        self.sent[arc] = self.sent[arc].max(now - self.behind);
        self.sent[arc]
    }

    /// Takes what is due now.
    fn write(&mut self, due: Due) {
        let arc = (due.key & ARC_MASK) as usize;
        let took = self.writes.one(self.random.next_u64());
        // What a late router forwarded may have been due before now.
        let done = self.serve((due.key >> ARC_BITS).max(self.now), arc, took);
        self.threads[arc / self.arcs_per_thread].writing.push_back(Due { key: done << ARC_BITS | arc as u64, ..due });
    }

    /// When the thread of an arc is done with what it can do from now on and what takes this long.
    fn serve(&mut self, now: u64, arc: usize, took: u64) -> u64 {
        let thread = &mut self.threads[arc / self.arcs_per_thread];
        let mut begun = thread.free;
        if begun < now {
            begun = now + thread.wakes_after(now);
        }
        // What ended before would not have kept it from anything.
        while let Some((at, length)) = thread.stalls.front().copied().filter(|(at, _)| *at <= begun) {
            begun = begun.max(at + length);
            thread.stalls.pop_front();
        }
        let mut done = begun + took;
        while let Some((_, length)) = thread.stalls.front().copied().filter(|(at, _)| *at <= done) {
            done += length;
            thread.stalls.pop_front();
        }
        thread.free = done.min(MAX_NANOS);
        thread.free
    }

    /// Hands over what the thread with this number has next: to a host, or to a router.
    fn hand_over(&mut self, thread: usize, to_host: impl Fn(&Due) -> bool) -> Option<Due> {
        let due = self.threads[thread].writing.pop_front()?;
        self.now = due.key >> ARC_BITS;
        self.behind = if to_host(&due) { 0 } else { self.now - due.carried.arrives() };
        Some(due)
    }

    /// The thread that hands over next, and the key of what.
    fn next(&self) -> Option<(usize, u64)> {
        let fronts =
            self.threads.iter().enumerate().filter_map(|(index, thread)| Some((index, thread.writing.front()?.key)));
        fronts.min_by_key(|(_, key)| *key)
    }

    /// How many packets are being handed over.
    pub(super) fn held(&self) -> usize {
        self.threads.iter().map(|thread| thread.writing.len()).sum()
    }
}

impl Thread {
    /// How long it takes to wake at a time that is not before the last one: as long as it took next to then, since what keeps it
    /// waiting lasts.
    fn wakes_after(&mut self, now: u64) -> u64 {
        while self.wakes.get(self.woken).is_some_and(|(at, _)| *at <= now) {
            self.woken += 1;
        }
        let next_to = self.wakes[self.woken.saturating_sub(1)..].iter().take(2);
        next_to.min_by_key(|(at, _)| at.abs_diff(now)).map_or(0, |(_, length)| *length)
    }
}

impl Network {
    /// Has threads that take these times serve the links; which time when follows from `seed`. They stand for what makes
    /// hosts send late at random, too.
    pub fn set_wires(&mut self, times: &WireTimes, seed: u64) {
        self.wires = Some(Box::new(Wires::new(times, self.arcs.len(), seed)));
        self.jitter = 0;
        self.look_ahead();
    }

    /// The next arrival, not after `limit`, where threads serve the links.
    pub(super) fn next_served(&mut self, limit: u64) -> Option<Due> {
        loop {
            let wires = self.wires.as_mut()?;
            wires.behind = 0;
            if let Some((thread, key)) = wires.next()
                && key >> ARC_BITS <= limit.min(self.events.top() >> ARC_BITS)
            {
                return wires.hand_over(thread, |due| self.hops[due.carried.hop as usize].is_last());
            }
            let due = self.next_due(limit)?;
            self.wires.as_mut()?.write(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::network::PackedPacket, *};

    fn times(wake: u64, read: u64, write: u64) -> WireTimes {
        let one = |nanos| vec![(Span::from_nanos(nanos), 1)];
        let wakes = vec![(0, Span::ZERO, Span::from_nanos(wake))];
        WireTimes { threads: 1, wakes, reads: one(read), writes: one(write), stalls: Vec::new() }
    }

    #[test]
    fn a_thread_does_one_thing_after_the_other_and_takes_time_to_wake() {
        let mut wires = Wires::new(&times(100, 7, 30), 4, 1);
        // Woken for the first; busy with it when the next two come.
        assert_eq!([1_000, 1_000, 1_050].map(|now| wires.serve(now, 0, 7)), [1_107, 1_114, 1_121]);
        // Due together: one by one. It was asleep, again.
        assert_eq!([2_000, 2_000].map(|now| wires.serve(now, 2, 30)), [2_130, 2_160]);
    }

    #[test]
    fn what_is_handed_over_late_is_sent_on_in_time_and_after_what_was_sent_before() {
        let mut wires = Wires::new(&times(0, 7, 30), 4, 1);
        let carried = |arrives| PackedPacket::new(arrives, 0, 0, 0);
        wires.write(Due { key: 1_000 << ARC_BITS, carried: carried(1_000) });
        wires.write(Due { key: 1_000 << ARC_BITS, carried: carried(1_000) });
        let (router, host) = (|_: &Due| false, |_: &Due| true);
        assert_eq!(wires.hand_over(0, router).map(|due| due.key >> ARC_BITS), Some(1_030));
        // A router forwards what was due at 1,000; something else was sent by arc 2 meanwhile.
        wires.sent[2] = 1_020;
        assert_eq!([1, 2].map(|arc| wires.send(1_030, arc)), [1_000, 1_020]);
        // A host sends when it notices.
        assert_eq!(wires.hand_over(0, host).map(|due| due.key >> ARC_BITS), Some(1_060));
        assert_eq!(wires.send(1_060, 1), 1_060);
        // What was due before is handed over later than that.
        wires.threads[0].free = 0;
        wires.write(Due { key: 1_010 << ARC_BITS, carried: carried(1_010) });
        assert_eq!(wires.hand_over(0, host).map(|due| due.key >> ARC_BITS), Some(1_090));
    }

    #[test]
    fn a_thread_wakes_as_slowly_as_it_did_next_to_then() {
        let wakes = [(0, 100, 3), (0, 200, 5), (1, 90, 7)];
        let wakes = wakes.map(|(thread, at, long)| (thread, Span::from_nanos(at), Span::from_nanos(long)));
        let mut wires = Wires::new(&WireTimes { threads: 3, wakes: wakes.into(), ..times(0, 0, 0) }, 6, 1);
        assert_eq!([0, 100, 140, 160, 900].map(|now| wires.threads[0].wakes_after(now)), [3, 3, 3, 5, 5]);
        assert_eq!([0, 900].map(|now| wires.threads[1].wakes_after(now)), [7, 7]);
        assert_eq!(wires.threads[2].wakes_after(100), 0);
    }

    #[test]
    fn a_thread_that_stalls_is_late_with_all_that_it_has_and_others_are_not() {
        let stall = |thread, at, length| (thread, Span::from_nanos(at), Span::from_nanos(length));
        let stalls = vec![stall(0, 1_000, 500), stall(0, 2_000, 300), stall(0, 2_100, 300)];
        let mut wires = Wires::new(&WireTimes { threads: 2, stalls, ..times(0, 0, 30) }, 6, 1);
        // Three links: two of the first thread, one of the second.
        assert_eq!([0, 3, 4].map(|arc| wires.serve(1_200, arc, 30)), [1_530, 1_560, 1_230]);
        // The first of two stalls ends while the second lasts.
        assert_eq!(wires.serve(2_250, 0, 30), 2_430);
        // One that begins while a packet is handed over, and one that was over before.
        let stalls = vec![stall(0, 1_000, 500), stall(0, 2_010, 300)];
        let mut wires = Wires::new(&WireTimes { stalls, ..times(0, 0, 30) }, 2, 1);
        assert_eq!(wires.serve(2_000, 0, 30), 2_330);
    }

    #[test]
    fn times_are_drawn_as_often_as_is_said() {
        let often = [(Span::from_nanos(5), 1), (Span::from_nanos(9), 3)];
        let drawn = Times::new(&often);
        assert_eq!([0, u64::MAX / 4 - 1, u64::MAX / 4 + 1, u64::MAX].map(|random| drawn.one(random)), [5, 5, 9, 9]);
        assert_eq!(Times::new(&[]).one(u64::MAX), 0);
    }
}
