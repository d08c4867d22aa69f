//! What INRPP alone measures.

use serde::{Deserialize, Serialize};

/// What the routers' caches did in a whole run, all together: sums, but for the peak and the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheMeasures {
    /// Packets that were stored.
    pub stored: u64,
    /// Packets that were sent around a link.
    pub detoured: u64,
    /// Packets for which there was no room.
    pub dropped: u64,
    /// ACKs that notified the router or sender before to slow down.
    pub slow_downs: u64,
    /// ACKs that notified it that it need not any more.
    pub cancels: u64,
    /// Notifications that were not believed, since no neighbour had signed them.
    pub forged: u64,
    /// The most bytes that were ever in one cache.
    pub peak_bytes: u64,
    /// The most bytes that the books of one router's caches took in memory, packets not counted.
    pub memory_bytes: u64,
    /// Whether the condition for no loss held; `None` where it does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custody: Option<CustodyMeasures>,
}

/// Whether the margins of caches covered what could arrive until those before had slowed down; of several caches the sums, but
/// for the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustodyMeasures {
    /// Caches that pressed back.
    pub pressed: u64,
    /// Those of them whose margin covered what could arrive.
    pub covered: u64,
    /// Packets that caches dropped which did not press back, or whose margin did: none, if the system keeps its promise.
    pub dropped: u64,
    /// The most that the margin of one cache had to hold.
    pub needed_bytes: u64,
}

impl CustodyMeasures {
    /// What these and other caches did together.
    #[must_use]
    pub fn and(self, other: CustodyMeasures) -> CustodyMeasures {
        CustodyMeasures {
            pressed: self.pressed + other.pressed,
            covered: self.covered + other.covered,
            dropped: self.dropped + other.dropped,
            needed_bytes: self.needed_bytes.max(other.needed_bytes),
        }
    }

    /// Whether every margin covered what could arrive.
    pub fn holds(&self) -> bool {
        self.covered == self.pressed
    }
}
