//! How late a real machine is: what the lab measures of itself, and the simulator can repeat.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use serde::{Deserialize, Serialize};
use sidestep_net::{SettingError, Span, settings::ensure};

/// Most different times of one kind: more do not describe more finely how late something is.
const MAX_TIMES: usize = 1_000;
/// Most instants of one kind.
const MAX_INSTANTS: usize = 1_000_000;
/// The longest time for which a thread cannot go on.
const MAX_STALL: Span = Span::from_secs(60);
/// Most threads that serve wires.
const MAX_WIRE_THREADS: u32 = 64;

/// How late the programs, threads and clocks of a run were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// The threads that served the links; `None`: links are in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wires: Option<WireTimes>,
    /// How much later than planned flows begin whose start is known beforehand: these in turn, in the order in which flows begin.
    /// Empty: in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_starts: Vec<Span>,
    /// How much later than they could programs go on with a connection of TCP: times since the start, in order, and how late
    /// those are that could go on next to each. Empty: at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_wakeups: Vec<(Span, Span)>,
    /// What the kernel's clock of ticks shows when the run begins: its ticks, and the coarser ones of far timers, are at multiples
    /// of their lengths. `None`: zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jiffies: Option<Span>,
}

/// What the threads take that serve the lab's wires, one frame at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireTimes {
    /// How many there are; each serves an equal share of the links, in the links' order.
    #[serde(default = "one")]
    pub threads: u32,
    /// When one that had nothing to do could go on: which thread, when, and how much later it did; in the order of times for
    /// each thread.
    #[serde(default)]
    pub wakes: Vec<(u32, Span, Span)>,
    /// To take a frame from the node that sends it: times, and how often each.
    #[serde(default)]
    pub reads: Vec<(Span, u64)>,
    /// To hand a frame to the node that it goes to, whose kernel works on it within that time, likewise.
    #[serde(default)]
    pub writes: Vec<(Span, u64)>,
    /// When they could not go on: which thread, from when on, for how long; in the order of times for each thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<(u32, Span, Span)>,
}

fn one() -> u32 {
    1
}

impl Lateness {
    /// Checks that there are not too many times, that they are in order, and that none is too long.
    pub fn check(&self) -> Result<(), SettingError> {
        let is_long = |time: &Span| *time > Span::from_secs(1);
        let few = self.late_starts.len() <= MAX_TIMES && !self.late_starts.iter().any(is_long);
        ensure(few, "late_starts", "must be at most 1000 times of at most 1 s")?;
        let wakeups = &self.late_wakeups;
        let fine = wakeups.len() <= MAX_INSTANTS
            && !wakeups.iter().any(|(_, late)| is_long(late))
            && wakeups.is_sorted_by_key(|(at, _)| *at);
        ensure(
            fine,
            "late_wakeups",
            "must be at most 1000000 pairs of a time since the start and of how late that was, at most 1 s, in the order of times",
        )?;
        ensure(self.jiffies.is_none_or(|at| at <= Span::from_secs(4)), "jiffies", "must be at most 4 s")?;
        self.wires.as_ref().map_or(Ok(()), WireTimes::check)
    }
}

impl WireTimes {
    fn check(&self) -> Result<(), SettingError> {
        ensure((1..=MAX_WIRE_THREADS).contains(&self.threads), "wires", "must have 1 to 64 threads")?;
        let are_fine = |times: &[(Span, u64)]| {
            let is_fine =
                |(time, often): &(Span, u64)| *time <= Span::from_secs(1) && (1..=u64::from(u32::MAX)).contains(often);
            times.len() <= MAX_TIMES && times.iter().all(is_fine)
        };
        ensure(
            are_fine(&self.reads) && are_fine(&self.writes),
            "wires",
            "must have at most 1000 reads and writes: pairs of a time of at most 1 s and how often it occurs",
        )?;
        let is_fine = |(thread, _, length): &(u32, Span, Span)| *thread < self.threads && *length <= MAX_STALL;
        let fine = [&self.wakes, &self.stalls].into_iter().all(|waits| {
            waits.len() <= MAX_INSTANTS
                && waits.iter().all(is_fine)
                && waits.is_sorted_by_key(|(thread, at, _)| (*thread, *at))
        });
        ensure(
            fine,
            "wires",
            "must have at most 1000000 wakes and stalls: triples of a thread, a time and a length of at most a minute, in the \
             order of threads and times",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Lateness)) -> Result<(), String> {
        let wires = Some(WireTimes { threads: 1, ..WireTimes::default() });
        let mut lateness = Lateness { wires, ..Lateness::default() };
        change(&mut lateness);
        lateness.check().map_err(|error| error.setting.to_owned())
    }

    #[test]
    fn times_that_are_too_long_too_many_or_out_of_order_are_refused() {
        let (milli, long) = (Span::from_millis(1), Span::from_secs(2));
        let wires = |change: &dyn Fn(&mut WireTimes)| with(|all| all.wires.iter_mut().for_each(change));
        assert_eq!(with(|_| {}), Ok(()));
        for starts in [vec![milli, long], vec![milli; 1_001]] {
            assert_eq!(with(|all| all.late_starts = starts), Err("late_starts".into()));
        }
        for wakeups in [vec![(milli, milli), (long, long)], vec![(long, milli), (milli, milli)]] {
            assert_eq!(with(|all| all.late_wakeups = wakeups), Err("late_wakeups".into()));
        }
        assert_eq!(with(|all| all.jiffies = Some(Span::from_secs(5))), Err("jiffies".into()));
        let bad: [&dyn Fn(&mut WireTimes); 7] = [
            &|wires| wires.threads = 0,
            &|wires| wires.threads = 65,
            &|wires| wires.writes = vec![(long, 3)],
            &|wires| wires.reads = vec![(milli, 0)],
            &|wires| wires.wakes = vec![(0, long, milli), (0, milli, milli)],
            &|wires| wires.stalls = vec![(1, milli, milli)],
            &|wires| wires.stalls = vec![(0, milli, Span::from_secs(61))],
        ];
        for change in bad {
            assert_eq!(wires(change), Err("wires".into()));
        }
        assert_eq!(wires(&|wires| wires.stalls = vec![(0, milli, Span::from_secs(60))]), Ok(()));
    }
}
