//! The kernel's clock, for which timers wait.

use sidestep_model::{Span, Time};

use super::Config;

/// The timer wheel: each level has eight times coarser steps than the one before, beyond 63 of its own.
const WHEEL_SPAN: u64 = 63;
const WHEEL_SHIFT: u32 = 3;

/// Length of a tick in nanoseconds; a millisecond where timers are exact.
#[inline]
pub(super) fn tick(config: &Config) -> u64 {
    let hz = if config.hz == 0 { 1_000 } else { config.hz };
    Span::from_secs(1).as_nanos() / u64::from(hz)
}

/// Length of the ticks that timers wait for; zero: they are exact.
#[inline]
pub(super) fn wheel_tick(config: &Config) -> u64 {
    if config.hz == 0 { 0 } else { tick(config) }
}

/// When a timer for `after` nanoseconds fires: the kernel counts in ticks, as [`wheel_tick`] has them, and rounds up, farther
/// timers by more.
pub(super) fn fires_at(tick: u64, now: Time, after: u64) -> Time {
    if tick == 0 {
        return now + Span::from_nanos(after);
    }
    let ticks = after.div_ceil(tick).max(1);
    let mut shift = 0;
    while ticks >= WHEEL_SPAN << shift && shift < 8 * WHEEL_SHIFT {
        shift += WHEEL_SHIFT;
    }
    let expires = now.as_nanos() / tick + ticks;
    Time::from_nanos((((expires >> shift) + 1) << shift) * tick)
}
