//! The kernel's clock, for which timers wait.

use sidestep_net::{Span, Time};

use super::Config;

/// The timer wheel: each level has eight times coarser steps than the one before, beyond 63 of its own (`LVL_START` and
/// `LVL_CLK_SHIFT` of `kernel/time/timer.c`). Exact timers would fire up to an eighth earlier than the kernel's.
const WHEEL_SPAN: u64 = 63;
const WHEEL_SHIFT: u32 = 3;

/// Length of a tick in nanoseconds; a millisecond where timers are exact.
#[inline]
pub(super) fn tick(config: &Config) -> u64 {
    let hz = if config.hz == 0 { 1_000 } else { config.hz };
    Span::from_secs(1).as_nanos() / u64::from(hz)
}

/// The ticks that timers wait for, in nanoseconds.
// Of two words of 32 bits, as every sender and receiver has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wheel {
    /// The length of a tick; zero: timers are exact.
    tick: u32,
    /// What the clock that ticks shows at [`Time::ZERO`].
    start: u32,
}

impl Wheel {
    /// The ticks that these settings ask for.
    pub(super) fn of(config: &Config) -> Wheel {
        let tick = if config.hz == 0 { 0 } else { tick(config) };
        let short = |nanos: u64| nanos.try_into().unwrap_or(u32::MAX);
        Wheel { tick: short(tick), start: short(config.jiffies.as_nanos()) }
    }

    /// When a timer for `after` nanoseconds fires: the kernel counts in ticks and rounds up, farther timers by more.
    #[inline]
    pub(super) fn fires_at(self, now: Time, after: u64) -> Time {
        if self.tick == 0 {
            return now + Span::from_nanos(after);
        }
        let (tick, start) = (u64::from(self.tick), u64::from(self.start));
        let ticks = after.div_ceil(tick).max(1);
        let mut shift = 0;
        while ticks >= WHEEL_SPAN << shift && shift < 8 * WHEEL_SHIFT {
            shift += WHEEL_SHIFT;
        }
        let expires = (now.as_nanos() + start) / tick + ticks;
        Time::from_nanos((((expires >> shift) + 1) << shift) * tick - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_at_multiples_of_a_tick_by_the_clock_that_ticks() {
        let fires = |jiffies: u64, now: u64, after: u64| {
            let config = Config { hz: 250, jiffies: Span::from_millis(jiffies), ..Config::rfc() };
            let at = Wheel::of(&config).fires_at(Time::ZERO + Span::from_millis(now), after * 1_000_000);
            at.as_nanos() / 1_000_000
        };
        // Ticks of 4 ms, at least one of them after that which is rounded up to.
        assert_eq!([fires(0, 1_000, 14), fires(0, 1_001, 14), fires(0, 1_004, 14)], [1_020, 1_020, 1_024]);
        assert_eq!([fires(3, 1_000, 14), fires(3, 1_001, 14), fires(3, 1_004, 14)], [1_017, 1_021, 1_021]);
        // From 63 ticks on, eight at a time; from 504 on, 64.
        assert_eq!([fires(0, 1_000, 248), fires(0, 1_000, 249), fires(0, 1_000, 2_016)], [1_252, 1_280, 3_072]);
        assert_eq!([fires(33, 1_000, 248), fires(33, 1_000, 249), fires(33, 1_000, 2_016)], [1_251, 1_279, 3_039]);
        let exact = Config { hz: 0, jiffies: Span::from_millis(3), ..Config::rfc() };
        assert_eq!(Wheel::of(&exact).fires_at(Time::ZERO, 5), Time::from_nanos(5));
    }
}
