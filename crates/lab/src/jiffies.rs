//! The kernel's clock of ticks, at which the timers of its TCP fire.

use nix::time::{ClockId, clock_getres};
use sidestep_net::Span;

use crate::traffic::Monotonic;

/// Lists the kernel's timers, with both of its clocks; root may read it.
const TIMER_LIST: &str = "/proc/timer_list";
/// Ticks after which the clock counts as at zero: the longest step of a timer of less than 4,032 ticks, 16 s on most machines. A
/// scenario's clock shows at most 4 s, so for ticks of 10 ms it is the next shorter step.
const PERIODS: [u64; 2] = [512, 64];
const MAX: u64 = 4_000_000_000;

/// What the clock of ticks shows at an instant: the time since a multiple of 512 ticks, or 64. `None`: the kernel reports none.
pub(crate) fn at(instant: Monotonic) -> Option<Span> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let tick = u64::try_from(tick.tv_nsec()).ok().filter(|nanos| *nanos > 0 && tick.tv_sec() == 0)?;
    // The list has the time first, and a tick may pass before it has the ticks: the least difference is right.
    let lead = (0..3).filter_map(|_| lead(&std::fs::read_to_string(TIMER_LIST).ok()?, tick)).min()?;
    Some(shown(instant, tick, lead))
}

/// By how many ticks the clock is ahead of the whole ticks since the start of `CLOCK_MONOTONIC`.
fn lead(list: &str, tick: u64) -> Option<u64> {
    let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    let now = list.lines().find_map(|line| number(line.strip_prefix("now at ")?))?;
    let jiffies = list.lines().find_map(|line| number(line.strip_prefix("jiffies:")?))?;
    jiffies.checked_sub(now / tick)
}

fn shown(instant: Monotonic, tick: u64, lead: u64) -> Span {
    let (ticks, rest) = (instant.as_nanos() / tick, instant.as_nanos() % tick);
    let period = PERIODS.into_iter().find(|period| period * tick <= MAX).unwrap_or(1);
    Span::from_nanos(ticks.wrapping_add(lead) % period * tick + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "Timer List Version: v0.10\nnow at 35298421801450 nsecs\n\ncpu: 0\n  .jiffies : 7\njiffies: 4303716847\n";

    #[test]
    fn ticks_are_at_multiples_of_their_length_since_boot() {
        let lead = lead(LIST, 4_000_000).unwrap();
        assert_eq!(lead, 4_303_716_847 - 8_824_605);
        // 4,303,716,847 is 495 after a multiple of 512.
        let at = |nanos| shown(Monotonic::from_nanos(nanos), 4_000_000, lead);
        assert_eq!(at(35_298_421_801_450), Span::from_nanos(495 * 4_000_000 + 1_801_450));
        assert_eq!(at(35_298_420_000_000 + 17 * 4_000_000), Span::ZERO);
        // Ticks of 10 ms: 65 are one after 64.
        assert_eq!(shown(Monotonic::from_nanos(7), 10_000_000, 65), Span::from_nanos(10_000_007));
    }

    #[test]
    fn a_list_without_either_clock_shows_nothing() {
        for list in
            ["", "now at x nsecs\njiffies: 5", "now at 8000000 nsecs", "jiffies: 5", "now at 8000000 nsecs\njiffies: 1"]
        {
            assert_eq!(lead(list, 4_000_000), None, "{list}");
        }
    }

    #[test]
    fn this_kernel_tells() {
        let now = Monotonic::now().unwrap();
        if std::fs::read(TIMER_LIST).is_ok() {
            let later = now + Span::from_millis(1);
            let [first, second] = [now, later].map(|at| super::at(at).unwrap().as_nanos());
            // It may have begun again meanwhile.
            let passed = (second + 1_000_000_000_000 - first) % 1_000_000;
            assert!(passed == 0 && first <= MAX, "{first} {second}");
        }
    }
}
