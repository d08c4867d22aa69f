//! Whether another program removes our rules and routes again and again.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// This number of losses within [`MEMORY`] is no accident: another program puts its own state in place of ours.
const MANY: usize = 5;
/// How long a loss is remembered.
const MEMORY: Duration = Duration::from_secs(60);

/// The last losses of rules or routes.
///
/// After one loss, rules are back before a connection has measured anything else than the path that its mark names. Where
/// they go again and again, what is measured of a path may often be that of the default route.
#[derive(Debug, Default)]
pub(super) struct Drift {
    losses: VecDeque<Instant>,
    persists: bool,
}

impl Drift {
    /// Whether losses have been many recently: connections then learn nothing together.
    pub(super) fn persists(&self) -> bool {
        self.persists
    }

    /// Notes that something was lost `now`, or that nothing was; returns whether that changes what is learnt.
    pub(super) fn note(&mut self, now: Instant, lost: bool) -> bool {
        if lost {
            self.losses.push_back(now);
        }
        while self.losses.front().is_some_and(|loss| now.duration_since(*loss) > MEMORY) {
            self.losses.pop_front();
        }
        // It is over when nothing was lost for as long as a loss is remembered.
        let persists = self.losses.len() >= MANY || self.persists && !self.losses.is_empty();
        std::mem::replace(&mut self.persists, persists) != persists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_losses_within_a_minute_stop_learning_until_a_minute_has_none() {
        let (mut drift, start) = (Drift::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for seconds in [0, 20, 40, 61, 80, 100, 101] {
            assert!(!drift.note(at(seconds), true) && !drift.persists(), "now and then");
        }
        assert!(drift.note(at(102), true) && drift.persists());
        assert!(!drift.note(at(103), false) && drift.persists());
        assert!(!drift.note(at(150), true) && drift.persists(), "fewer are enough to stay");
        assert!(!drift.note(at(205), false) && drift.persists());
        assert!(drift.note(at(211), false) && !drift.persists());
    }
}
