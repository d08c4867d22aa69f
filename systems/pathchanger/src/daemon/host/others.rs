//! What others do to the agent's marks, rules and routes, and what that means for learning.

use std::time::Instant;

use sidestep_hostd::{effect::Effects, routing};
use sidestep_linux::netlink::RoutingChange;

use super::{drift::Drift, mending::Mended, neighbours::Neighbours};

/// What others do, as it was last looked at.
#[derive(Default)]
pub(super) struct Others {
    /// What they do with marks.
    pub(super) neighbours: Neighbours,
    /// Whether our rules and routes stay in place.
    drift: Drift,
    mended: Mended,
    /// Whether packets leave by the paths of their marks.
    pub(super) effects: Effects,
}

impl Others {
    /// Whether a change in the kernel may be one after which packets leave otherwise.
    pub(super) fn concerns(&self, change: &RoutingChange) -> bool {
        self.effects.concerns(change)
    }

    /// Whether what connections see of paths is learnt: not while packets may go elsewhere than along their path.
    pub(super) fn learns(&self) -> bool {
        !self.drift.persists() && !self.effects.is_any_whole()
    }

    /// How many rules and routes were put back.
    pub(super) fn mended(&self) -> Mended {
        self.mended
    }

    /// Counts rules and routes that have to be put back.
    pub(super) fn count(&mut self, lost: &routing::Drift) {
        self.mended.rules += lost.rules as u32;
        self.mended.routes += lost.routes as u32;
    }

    /// Notes whether rules or routes were lost: if that happens again and again, connections learn nothing together. Returns
    /// whether that changes what is learnt.
    pub(super) fn note_drift(&mut self, lost: bool) -> bool {
        let changed = self.drift.note(Instant::now(), lost);
        match self.drift.persists() {
            _ if !changed => {}
            true => tracing::warn!(
                "another program removes rules or routes of ours again and again: they are put back, and connections are moved, \
                 but nothing is learnt of paths until that has stopped"
            ),
            false => tracing::info!("rules and routes stay in place again: what is seen of paths is learnt"),
        }
        changed
    }

    /// What they do, for the status in one line; empty if nothing.
    pub(super) fn status(&self) -> String {
        let drift = if self.drift.persists() { "; rules are removed again and again, nothing is learnt" } else { "" };
        let overridden = match self.effects.found().count() {
            0 => String::new(),
            count => format!("; packets of {count} paths do not leave by them"),
        };
        let restored = match self.neighbours.restored().len() {
            0 => String::new(),
            count => format!("; {count} rules of others restore mark_mask: moves have no effect"),
        };
        let collisions = match self.neighbours.met() {
            0 => String::new(),
            met => format!("; {met} rules of others meet mark_mask"),
        };
        format!("{drift}{overridden}{restored}{collisions}")
    }
}
