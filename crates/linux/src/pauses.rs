//! Times in which this process did not run: it was stopped, the machine was suspended, or the processor was taken.

use sidestep_net::{Span, Time};

use crate::monotonic_now;

/// Notices that the process did not run for a while.
///
/// Two clocks show it: the monotonic one goes on while a process is stopped, and stands still while the machine is suspended; the
/// boot clock counts both.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// When the process ran last, by both clocks.
    ran: (Time, Time),
    least: Span,
}

impl Pauses {
    /// Begins now. Only what lasts `least` or longer is a pause: that must be longer than the caller of [`look`](Self::look)
    /// sleeps.
    pub fn new(least: Span) -> Self {
        Pauses { ran: (monotonic_now(), boot_now()), least }
    }

    /// How long the process did not run since this was called last, if that was a pause.
    pub fn look(&mut self) -> Option<Span> {
        self.look_at(monotonic_now(), boot_now())
    }

    /// The same where the clocks show this.
    fn look_at(&mut self, monotonic: Time, boot: Time) -> Option<Span> {
        let (before, boot_before) = std::mem::replace(&mut self.ran, (monotonic, boot));
        let (ran, passed) = (monotonic.since(before), boot.since(boot_before));
        // Between the readings of the two clocks there is time.
        let suspended = if passed > ran + SKEW { passed - ran } else { Span::ZERO };
        (suspended > Span::ZERO || passed >= self.least).then_some(passed)
    }
}

/// What the readings of the two clocks may differ by without a suspension.
const SKEW: Span = Span::from_millis(100);

/// The time since the machine was booted, suspensions included.
fn boot_now() -> Time {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    Time::from_nanos(now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_stopped_process_and_a_suspended_machine_are_pauses_and_short_delays_are_not() {
        let mut pauses = Pauses { ran: (at(1_000), at(50_000)), least: Span::from_secs(2) };
        assert_eq!(pauses.look_at(at(2_000), at(51_000)), None);
        assert_eq!(pauses.look_at(at(3_900), at(52_950)), None, "late, and read with a delay");
        assert_eq!(pauses.look_at(at(5_900), at(54_950)), Some(Span::from_millis(2_000)), "stopped");
        assert_eq!(pauses.look_at(at(5_910), at(55_460)), Some(Span::from_millis(510)), "suspended");
        assert_eq!(pauses.look_at(at(5_920), at(55_470)), None);
    }

    #[test]
    fn a_process_that_runs_has_no_pause() {
        let mut pauses = Pauses::new(Span::from_secs(3_600));
        assert_eq!(pauses.look(), None);
    }
}
