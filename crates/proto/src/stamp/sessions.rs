//! A table of bounded size whose entries go when they were not used for a while.

use std::collections::BTreeMap;

use sidestep_net::{Span, Time};

/// Entries by key, in two generations. An entry that is used moves into the younger one. When that has existed for `expiry`, or is
/// full, it becomes the older one, and what was in the older one is forgotten.
///
/// So an entry lasts for one to two times `expiry` after its last use. Under pressure those go first that were not used for
/// longest: strangers cannot push out one that is in use, unless more than half of the table is new between two uses.
#[derive(Clone, Debug)]
pub(super) struct Sessions<K, V> {
    young: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
    /// Most entries of a generation.
    room: usize,
    expiry: Span,
    turned: Option<Time>,
}

impl<K: Ord + Clone, V> Sessions<K, V> {
    /// A table for `most` entries.
    pub(super) fn new(most: usize, expiry: Span) -> Self {
        Sessions { young: BTreeMap::new(), old: BTreeMap::new(), room: (most / 2).max(1), expiry, turned: None }
    }

    /// The entry of a key, a new one if there is none.
    pub(super) fn entry(&mut self, now: Time, key: &K, new: impl FnOnce() -> V) -> &mut V {
        self.age(now);
        if !self.young.contains_key(key) && self.young.len() >= self.room {
            self.turn(now);
        }
        let old = &mut self.old;
        self.young.entry(key.clone()).or_insert_with(|| old.remove(key).unwrap_or_else(new))
    }

    /// Forgets what has expired.
    pub(super) fn age(&mut self, now: Time) {
        let age = now.since(*self.turned.get_or_insert(now));
        if age < self.expiry {
            return;
        }
        self.turn(now);
        if age.as_nanos() >= self.expiry.as_nanos().saturating_mul(2) {
            self.turn(now);
        }
    }

    fn turn(&mut self, now: Time) {
        self.old = std::mem::take(&mut self.young);
        self.turned = Some(now);
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
