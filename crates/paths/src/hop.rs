//! A node's place on shortest paths.

use sidestep_net::ArcId;

/// Where a node stands on the paths to or from a root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// Sum of the weights between the two; `u64::MAX` where there is no path.
    pub(crate) distance: u64,
    /// Toward the root: the lowest of the equal-cost next arcs. From the root: the lowest of the equal-cost last arcs.
    /// Meaningless at the root.
    pub(crate) next: ArcId,
    /// Whether there is exactly one shortest path.
    pub(crate) unique: bool,
}

impl Hop {
    pub(crate) const UNREACHED: Hop = Hop { distance: u64::MAX, next: ArcId(u32::MAX), unique: true };
    /// Where the root itself stands.
    pub(crate) const ROOT: Hop = Hop { distance: 0, ..Hop::UNREACHED };

    pub(crate) fn is_reached(&self) -> bool {
        self.distance != u64::MAX
    }

    /// The hop; `None` where there is no path.
    pub(crate) fn reached(self) -> Option<Hop> {
        Some(self).filter(Hop::is_reached)
    }

    /// Adds the paths over `next`, which have this length; `unique` means that there is only one. Returns whether they
    /// are shorter than all before.
    pub(crate) fn offer(&mut self, distance: u64, next: ArcId, unique: bool) -> bool {
        let shorter = distance < self.distance;
        if shorter {
            *self = Hop { distance, next, unique };
        } else if distance == self.distance {
            *self = Hop { next: self.next.min(next), unique: false, ..*self };
        }
        shorter
    }
}
