//! What a thread of the wires took for what it did.

use std::{mem, time::Instant};

use nix::time::{ClockId, clock_gettime};
use sidestep_net::{Histogram, Span, Time};

use super::{Times, Wait, lateness::Lateness};
use crate::bpf::arrivals::{self, Entered};

/// What takes so long does so because the thread was kept from its processor.
const STALL: Span = Span::from_micros(500);
/// Most stalls that a thread remembers, and most times that it woke.
const MAX: usize = 10_000;

/// What a thread has done, and what that took.
#[derive(Debug)]
pub(super) struct ThreadStats {
    started: Instant,
    /// When that was, in nanoseconds of `CLOCK_MONOTONIC`.
    started_at: u64,
    /// The thread, if frames show when they arrived.
    entered: Option<Entered>,
    /// When the thread woke, or was done with the frame before the next.
    since: Time,
    pub(super) lateness: Lateness,
    pub(super) times: Times,
    pub(super) wakes: Thinned,
    pub(super) stalls: Vec<Wait>,
}

/// Of all waits an even share: each, until there are too many, then each second, each fourth, and so on.
#[derive(Debug)]
pub(super) struct Thinned {
    pub(super) kept: Vec<Wait>,
    /// One wait in `step` is kept.
    step: u64,
    seen: u64,
}

impl ThreadStats {
    pub(super) fn new(started: Instant) -> Self {
        let wakes = Thinned { kept: Vec::with_capacity(MAX), step: 1, seen: 0 };
        let (lateness, times) = (Lateness::default(), Times::default());
        ThreadStats {
            started,
            started_at: monotonic().saturating_sub(age(started)),
            entered: None,
            since: Time::ZERO,
            lateness,
            times,
            wakes,
            stalls: Vec::new(),
        }
    }

    /// The time since the wires were started.
    pub(super) fn now(&self) -> Time {
        Time::from_nanos(age(self.started))
    }

    /// From now on frames show when they arrived, and know from this thread when they were due.
    pub(super) fn enter(&mut self, entered: Entered) {
        self.entered = Some(entered);
    }

    /// When a frame arrived at a TAP with this address, which was taken from there at `now`.
    pub(super) fn arrival(&self, frame: &mut [u8], address: [u8; 6], now: Time) -> Time {
        if self.entered.is_none() {
            return now;
        }
        let age = arrivals::age(frame, self.started_at + now.as_nanos(), address);
        Time::from_nanos(now.as_nanos().saturating_sub(age))
    }

    /// A frame has been taken from a TAP; returns the time.
    pub(super) fn read(&mut self) -> Time {
        self.did(|times| &mut times.reads);
        self.since
    }

    /// A frame that was due at `due` is handed to a TAP.
    pub(super) fn hands_over(&self, due: Time) {
        if let Some(entered) = &self.entered {
            entered.hands_over(self.started_at + due.as_nanos());
        }
    }

    /// No frame is handed to a TAP any more.
    pub(super) fn handed_over(&self) {
        if let Some(entered) = &self.entered {
            entered.hands_over(0);
        }
    }

    /// A frame has been handed to a TAP; returns the time.
    pub(super) fn wrote(&mut self) -> Time {
        self.did(|times| &mut times.writes);
        self.since
    }

    /// The thread has slept, and had a frame to deliver at `due`.
    pub(super) fn slept(&mut self, due: Time) {
        self.since = self.now();
        if due > self.since {
            return;
        }
        let wait = Wait { thread: 0, at: due, length: self.since.since(due) };
        if wait.length < STALL {
            self.wakes.push(wait);
        } else {
            self.stalled(wait);
        }
    }

    /// The thread has done something, and nothing else since it noted the time last.
    fn did(&mut self, what: fn(&mut Times) -> &mut Histogram) {
        let now = self.now();
        let at = mem::replace(&mut self.since, now);
        let length = now.since(at);
        if length < STALL {
            what(&mut self.times).record(length);
        } else {
            self.stalled(Wait { thread: 0, at, length });
        }
    }

    fn stalled(&mut self, wait: Wait) {
        if self.stalls.len() < MAX {
            self.stalls.push(wait);
        }
    }
}

fn age(started: Instant) -> u64 {
    started.elapsed().as_nanos() as u64
}

/// Nanoseconds of the clock that BPF programs and [`Instant`] have.
pub(super) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

impl Thinned {
    fn push(&mut self, wait: Wait) {
        if self.kept.len() == MAX {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step *= 2;
        }
        if self.seen.is_multiple_of(self.step) {
            self.kept.push(wait);
        }
        self.seen += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_share_of_many_waits_is_kept() {
        let mut stats = ThreadStats::new(Instant::now());
        for number in 0..45_000 {
            let (at, length) = (Time::from_nanos(number), Span::from_nanos(number));
            stats.wakes.push(Wait { thread: 0, at, length });
        }
        let kept: Vec<u64> = stats.wakes.kept.iter().map(|wait| wait.at.as_nanos()).collect();
        assert_eq!(kept, (0..45_000).step_by(8).collect::<Vec<_>>());
    }
}
