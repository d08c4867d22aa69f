//! What keeps a live edge from moving too often: a penalty for egresses that flap, and a rule for the return to the primary.

use sidestep_net::{Span, Time};

/// When the aggregate returns, and to which egresses it does not move for now. The defaults change nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stability {
    /// Whether the aggregate returns to the primary.
    pub fail_back: FailBack,
    /// The primary must have been fine for this long before the aggregate returns.
    pub fail_back_after: Span,
    /// The penalty of egresses that flap; `None`: there is none.
    pub damping: Option<Damping>,
}

/// Whether the aggregate returns to a primary that has recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailBack {
    /// Yes.
    #[default]
    Auto,
    /// No: it stays until the egress in use is impaired.
    Never,
}

/// The decaying penalty of an egress that flaps, as RFC 2439 has it for routes and RFC 7196 makes it usable: an egress
/// that comes and goes does more harm than one that is gone.
///
/// Each time an egress that was fine is not any more, its penalty rises by [`PENALTY`]. The penalty halves with each half-life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damping {
    /// The time in which a penalty halves.
    pub half_life: Span,
    /// From this penalty on the egress is suppressed: the aggregate does not move there unless all others are dead.
    pub suppress: f64,
    /// Below this penalty it is used again.
    pub reuse: f64,
    /// It is suppressed for no longer than this after its last flap.
    pub longest: Span,
}

/// What one flap adds (RFC 7196, section 3, table 1: the penalty of a withdrawal).
pub const PENALTY: f64 = 1_000.0;

/// The penalty of one egress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Penalty {
    /// What it was then.
    value: f64,
    at: Time,
    suppressed: bool,
}

impl Damping {
    /// The highest penalty (RFC 7196, section 5): from there it takes the longest time to decay to the value of reuse.
    pub fn ceiling(&self) -> f64 {
        self.reuse * (self.longest.as_secs_f64() / self.half_life.as_secs_f64().max(1e-9)).exp2()
    }
}

impl Penalty {
    /// The penalty now.
    pub(super) fn value(&self, now: Time, damping: &Damping) -> f64 {
        let halvings = now.since(self.at).as_secs_f64() / damping.half_life.as_secs_f64().max(1e-9);
        self.value * (-halvings).exp2()
    }

    /// The egress was fine, and is not any more.
    pub(super) fn flap(&mut self, now: Time, damping: &Damping) {
        self.value = (self.value(now, damping) + PENALTY).min(damping.ceiling());
        self.at = now;
        self.suppressed |= self.value >= damping.suppress;
    }

    /// Whether the egress is suppressed now.
    pub(super) fn is_suppressed(&self, now: Time, damping: &Damping) -> bool {
        self.suppressed && self.value(now, damping) >= damping.reuse
    }

    /// Ends the suppression when the penalty has decayed.
    pub(super) fn decay(&mut self, now: Time, damping: &Damping) {
        self.suppressed = self.is_suppressed(now, damping);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAMPING: Damping =
        Damping { half_life: Span::from_secs(60), suppress: 3_000.0, reuse: 1_000.0, longest: Span::from_secs(240) };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn the_fourth_flap_in_a_minute_suppresses_and_two_half_lives_without_one_end_it() {
        let mut penalty = Penalty::default();
        for second in [0, 10, 20] {
            penalty.flap(at(second), &DAMPING);
            assert!(!penalty.is_suppressed(at(second), &DAMPING));
        }
        penalty.flap(at(30), &DAMPING);
        let value = penalty.value(at(30), &DAMPING);
        // By hand: 1000 · (1 + 2^(-1/6) + 2^(-2/6) + 2^(-3/6)).
        assert!((value - 3_391.8).abs() < 1.0, "{value}");
        assert!(penalty.is_suppressed(at(30), &DAMPING));
        assert!((penalty.value(at(90), &DAMPING) - value / 2.0).abs() < 1e-6);
        assert!(penalty.is_suppressed(at(130), &DAMPING), "between the two thresholds it stays what it was");
        assert!(!penalty.is_suppressed(at(140), &DAMPING));
        penalty.decay(at(140), &DAMPING);
        penalty.flap(at(141), &DAMPING);
        assert!(!penalty.is_suppressed(at(141), &DAMPING), "below the threshold of suppression a flap is one flap");
    }

    proptest! {
        #[test]
        fn however_often_it_flaps_it_is_used_again_after_the_longest_time(
            gaps in prop::collection::vec(0_u64..30, 1..200),
        ) {
            let mut penalty = Penalty::default();
            let mut now = 0;
            for gap in gaps {
                now += gap;
                penalty.decay(at(now), &DAMPING);
                penalty.flap(at(now), &DAMPING);
                prop_assert!(penalty.value(at(now), &DAMPING) <= DAMPING.ceiling());
            }
            prop_assert!(!penalty.is_suppressed(at(now + 241), &DAMPING));
        }
    }
}
