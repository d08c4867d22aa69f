//! Whether packets depend on what a daemon has in the kernel, and so what becomes of it at the end.

use crate::{End, Shutdown};

/// How far a daemon's work has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenure {
    /// Whether an earlier daemon left something, by which packets go.
    inherited: bool,
    /// Whether packets go by what this daemon installed.
    at_work: bool,
}

impl Tenure {
    /// A daemon that has not begun, after one that left something or not.
    pub fn new(inherited: bool) -> Self {
        Tenure { inherited, at_work: false }
    }

    /// Takes note that an earlier daemon left something, if it did.
    pub fn inherit(&mut self, left: bool) {
        self.inherited |= left;
    }

    /// Whether an earlier daemon left something, by which packets go.
    pub fn is_inherited(self) -> bool {
        self.inherited
    }

    /// Whether packets go by what this daemon installed.
    pub fn is_at_work(self) -> bool {
        self.at_work
    }

    /// Takes note that packets go by what this daemon installed; returns whether they did not before.
    pub fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.at_work, true)
    }

    /// Whether a daemon that ends leaves everything in place; `keep` is what it was started with.
    pub fn should_keep_state(self, end: End, keep: bool) -> bool {
        match end {
            End::Shutdown(Shutdown::Keep) | End::Failed => self.at_work || self.inherited,
            // A request to end a daemon that is not at work yet does not mean what an earlier one left.
            End::Shutdown(Shutdown::CleanUp) if !self.at_work => self.inherited,
            End::Shutdown(Shutdown::CleanUp) => keep,
            End::Finished => false,
        }
    }
}
