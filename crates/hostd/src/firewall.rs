//! Rules of others that put the marks of connections back onto their packets, our bits included: what we decide later then means
//! nothing.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidestep_linux::{
    marks::{FilterUse, Hook, MarkUses},
    nftables::DrawTable,
};

/// How often to read the rules, of which there may be ten thousands: the kernel reports no changes in the old tables of iptables.
const PERIOD: Duration = Duration::from_secs(25);
/// How long to wait at least before they are read again, when those of nf_tables have changed.
const REST: Duration = Duration::from_secs(1);
/// Reading takes at most one part in this number of the time.
const SHARE: u32 = 20;

/// A rule that restores our bits of marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredMarks {
    /// Where it is and what it does.
    pub rule: String,
    /// The rules to put in place of it and of the one that saves marks.
    pub instead: Vec<String>,
    /// The same in a sentence.
    pub advice: String,
}

/// When to read the rules of others, and which of them restore our bits.
#[derive(Debug, Default)]
pub struct Firewall {
    table: Option<DrawTable>,
    generation: Option<u32>,
    /// Not before this, and at the latest then.
    times: Option<(Instant, Instant)>,
    found: Vec<RestoredMarks>,
}

impl RestoredMarks {
    fn new(rule: &FilterUse, mask: u32) -> Self {
        RestoredMarks { rule: rule.to_string(), instead: rule.replacement(mask), advice: rule.advice(mask) }
    }
}

/// The rules here that restore bits `mask` of marks on packets that a host sends.
pub fn restored_marks(mask: u32) -> Vec<RestoredMarks> {
    let mut uses = MarkUses::default();
    uses.read_filters();
    uses.restorers(mask, &[Hook::Rerouted]).into_iter().map(|rule| RestoredMarks::new(rule, mask)).collect()
}

impl Firewall {
    /// Those that were found.
    pub fn found(&self) -> &[RestoredMarks] {
        &self.found
    }

    /// Whether the rules may be others than when they were read last.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        match self.times {
            None => true,
            Some((_, latest)) if latest <= now => true,
            Some((earliest, _)) if earliest > now => false,
            Some(_) => self.read_generation() != self.generation,
        }
    }

    /// Makes `uses` read the rules again, and logs which of them restore bits `mask` on packets from one of these hooks, and what
    /// comes of it.
    pub fn read(&mut self, uses: &mut MarkUses, mask: u32, hooks: &[Hook], consequence: &str) {
        let began = Instant::now();
        self.generation = self.read_generation();
        uses.read_filters();
        let now = Instant::now();
        self.times = Some((now + REST.max((now - began) * SHARE), now + PERIOD));
        let found: Vec<_> =
            uses.restorers(mask, hooks).into_iter().map(|rule| RestoredMarks::new(rule, mask)).collect();
        for new in found.iter().filter(|one| !self.found.contains(one)) {
            tracing::warn!("{}, those of mark_mask {mask:#x} too: {consequence}; {}", new.rule, new.advice);
        }
        for gone in self.found.iter().filter(|one| !found.contains(one)) {
            tracing::info!("there is no longer {}", gone.rule);
        }
        self.found = found;
    }

    /// A number that changes with the rules of nf_tables; `None` on a kernel without them.
    fn read_generation(&mut self) -> Option<u32> {
        if self.table.is_none() {
            self.table = DrawTable::open("", 0).ok();
        }
        let generation = self.table.as_mut()?.generation();
        if generation.is_err() {
            self.table = None;
        }
        generation.ok()
    }
}
