//! What others do to a router's rules, routes and marks.

use sidestep_linux::netlink::RoutingChange;

use crate::{effect::Effects, firewall::Firewall};

/// What others do, as it was last looked at.
#[derive(Default)]
pub struct Others {
    /// Whether packets leave by the paths of their marks.
    pub effects: Effects,
    /// Rules of others that restore marks.
    pub firewall: Firewall,
    /// How many rules, routes and filters of ours others removed, and were put back.
    mended: u64,
}

impl Others {
    /// Whether a change in the kernel may be one after which packets leave otherwise.
    pub fn concerns(&self, change: &RoutingChange) -> bool {
        self.effects.concerns(change)
    }

    /// Counts what others removed, and has to be put back.
    pub fn count(&mut self, lost: usize) {
        self.mended += lost as u64;
    }

    /// How much others removed, and was put back.
    pub fn mended(&self) -> u64 {
        self.mended
    }

    /// How many kinds of packets do not leave as decided, and how many rules restore marks, for the status in one line.
    pub fn status(&self) -> String {
        let restored = match self.firewall.found().len() {
            0 => String::new(),
            count => format!("; {count} rules of others restore mark_mask"),
        };
        match self.effects.found().count() {
            0 => restored,
            count => format!("; {count} kinds of packets do not leave as decided{restored}"),
        }
    }
}
