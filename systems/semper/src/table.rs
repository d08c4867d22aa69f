//! The table of an edge router that keeps state: which path each subflow takes.
//!
//! The first subflow of a host is hashed onto a path, and the next ones take the paths in turn. So a host with as many
//! subflows as there are paths uses each path once. The router near the host assigns. The far router *learns*: it sends
//! the answers of a subflow along the path on which the subflow's packets arrive. Its own turn would lead to another path
//! than the near router's.
//!
//! The table is bounded. A subflow that finds no room takes its hash's path, and is counted; no entry is ever removed for
//! another one. Entries end after FINs of both directions, after a RST, or when nothing was seen for a time.
//!
//! ```
//! use sidestep_net::Time;
//! use sidestep_semper::table::{Choices, Config, Marks, Table};
//!
//! /// Four paths, all alive.
//! struct Four;
//! impl Choices for Four {
//!     fn by_hash(&self, hash: u32) -> Option<u32> {
//!         Some(hash % 4)
//!     }
//!     fn after(&self, path: u32) -> Option<u32> {
//!         Some((path + 1) % 4)
//!     }
//!     fn is_live(&self, path: u32) -> bool {
//!         path < 4
//!     }
//! }
//!
//! let (mut near, mut far) = (Table::new(Config::default()), Table::new(Config::default()));
//! let path_of = |near: &mut Table<_, _>, port: u16, hash| near.handle_outbound(Time::ZERO, port, "host", hash, Marks::SYN, &Four);
//! let paths = [(5_000, 7), (5_001, 1), (5_002, 9)].map(|(port, hash)| path_of(&mut near, port, hash));
//! assert_eq!(paths, [Some(3), Some(0), Some(1)]);
//!
//! // The far edge answers where the subflow came from, whatever it would assign itself.
//! far.handle_inbound(Time::ZERO, 5_002, 1, Marks::SYN);
//! assert_eq!(far.handle_outbound(Time::ZERO, 5_002, "server", 9, Marks::NONE, &Four), Some(1));
//! ```

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::Hash,
};

use sidestep_net::{Span, Time};

#[cfg(test)]
mod tests;

/// The settings of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most subflows that have an entry.
    pub capacity: usize,
    /// An entry ends when nothing of its subflow was seen for this time.
    pub idle: Span,
    /// An entry outlives the end of its subflow by this time, for the packets that still come.
    pub linger: Span,
}

/// The paths towards a destination as they are now. A path is any number that the caller gives it.
pub trait Choices {
    /// The path that a hash chooses; `None`: there is none at all.
    fn by_hash(&self, hash: u32) -> Option<u32>;
    /// The live path after this one, in turn; the first live one if this path is none of them.
    fn after(&self, path: u32) -> Option<u32>;
    /// Whether the path is one of them and not known to be dead.
    fn is_live(&self, path: u32) -> bool;
}

/// What a packet shows about the beginning and the end of its subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// It opens the subflow.
    pub syn: bool,
    /// It is the last one of its direction.
    pub fin: bool,
    /// It ends the subflow at once.
    pub rst: bool,
}

/// What the table has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Subflows that were assigned a path in turn or, as the first of a host, by hash.
    pub assigned: u64,
    /// Subflows whose path was learnt from a packet that arrived.
    pub learnt: u64,
    /// Entries that ended because nothing was seen of them.
    pub idle: u64,
    /// Entries that ended with their subflow.
    pub ended: u64,
    /// Packets of subflows without an entry, for which there was no room: they took their hash's path, or none was learnt.
    pub overflowed: u64,
    /// Subflows that left a dead path.
    pub detoured: u64,
}

/// Which path each subflow takes. `K` names a subflow, in both directions alike; `H` names a host of this edge.
#[derive(Clone, Debug)]
pub struct Table<K, H> {
    config: Config,
    entries: HashMap<K, Entry<H>>,
    /// The hosts with entries that were assigned here.
    hosts: HashMap<H, Turn>,
    /// When to look at which entry: what is not the entry's `notice` is out of date.
    agenda: BinaryHeap<Reverse<(Time, K)>>,
    counters: Counters,
}

#[derive(Clone, Debug)]
struct Entry<H> {
    path: u32,
    /// While `path` is dead: the path taken instead.
    detour: Option<u32>,
    /// The host whose turn assigned it; `None`: it was learnt.
    host: Option<H>,
    seen: Time,
    /// When it is looked at next; never later than it ends.
    notice: Time,
    /// Since when the subflow is over.
    over: Option<Time>,
    fin_out: bool,
    fin_in: bool,
}

/// Whose turn it is at a host.
#[derive(Clone, Copy, Debug)]
struct Turn {
    last: u32,
    entries: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { capacity: 65_536, idle: Span::from_secs(300), linger: Span::from_secs(2) }
    }
}

impl Marks {
    /// A packet in the middle of a subflow.
    pub const NONE: Marks = Marks { syn: false, fin: false, rst: false };
    /// A packet that opens a subflow.
    pub const SYN: Marks = Marks { syn: true, ..Marks::NONE };
    /// The last packet of a direction.
    pub const FIN: Marks = Marks { fin: true, ..Marks::NONE };
    /// A packet that ends the subflow at once.
    pub const RST: Marks = Marks { rst: true, ..Marks::NONE };
}

impl<K: Copy + Hash + Ord, H: Clone + Hash + Eq> Table<K, H> {
    /// An empty table.
    pub fn new(config: Config) -> Self {
        let (entries, hosts, agenda, counters) = Default::default();
        Table { config, entries, hosts, agenda, counters }
    }

    /// A packet of the edge's own `host` is about to leave; returns the path that it takes. `None`: there is no path.
    pub fn handle_outbound(
        &mut self,
        now: Time,
        key: K,
        host: H,
        hash: u32,
        marks: Marks,
        choices: &impl Choices,
    ) -> Option<u32> {
        if marks.syn {
            self.forget_over(key);
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return self.assign(now, key, host, hash, marks, choices);
        };
        let ends = entry.note(now, marks, true, &self.config);
        let (path, detour) = (entry.path, entry.detour);
        let taken = if choices.is_live(path) {
            entry.detour = None;
            Some(path)
        } else if detour.is_some_and(|detour| choices.is_live(detour)) {
            detour
        } else {
            self.detour(key, hash, choices)
        };
        self.agenda.extend(ends.map(|notice| Reverse((notice, key))));
        taken
    }

    /// A packet for a host of this edge has arrived over `path`.
    pub fn handle_inbound(&mut self, now: Time, key: K, path: u32, marks: Marks) {
        if marks.syn {
            self.forget_over(key);
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.host.is_none() {
                // The near edge may have moved the subflow.
                entry.path = path;
            }
            let ends = entry.note(now, marks, false, &self.config);
            self.agenda.extend(ends.map(|notice| Reverse((notice, key))));
        } else if self.has_room() {
            self.counters.learnt += 1;
            self.insert(now, key, path, None, marks, false);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.agenda.peek().map(|Reverse((due, _))| *due)
    }

    /// Removes the entries that have ended.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(Reverse((notice, key))) = self.agenda.peek().copied()
            && notice <= now
        {
            self.agenda.pop();
            let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.notice == notice) else { continue };
            entry.notice = entry.due(&self.config);
            if entry.notice > now {
                self.agenda.push(Reverse((entry.notice, key)));
                continue;
            }
            match entry.over {
                Some(_) => self.counters.ended += 1,
                None => self.counters.idle += 1,
            }
            self.remove(key);
        }
    }

    /// How many subflows have an entry.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no subflow has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives a new subflow of `host` its path, and an entry if there is room.
    fn assign(&mut self, now: Time, key: K, host: H, hash: u32, marks: Marks, choices: &impl Choices) -> Option<u32> {
        if !self.has_room() {
            return choices.by_hash(hash);
        }
        let path = match self.hosts.get(&host) {
            Some(turn) => choices.after(turn.last),
            None => choices.by_hash(hash),
        }?;
        let turn = self.hosts.entry(host.clone()).or_insert(Turn { last: path, entries: 0 });
        *turn = Turn { last: path, entries: turn.entries + 1 };
        self.counters.assigned += 1;
        self.insert(now, key, path, Some(host), marks, true);
        Some(path)
    }

    /// Another path for a subflow whose own is dead, until that lives again.
    fn detour(&mut self, key: K, hash: u32, choices: &impl Choices) -> Option<u32> {
        let entry = self.entries.get_mut(&key)?;
        let Some(turn) = entry.host.as_ref().and_then(|host| self.hosts.get_mut(host)) else {
            // The other edge decides; until its packets show the path, both edges' hash is the best guess.
            return choices.by_hash(hash);
        };
        turn.last = choices.after(turn.last)?;
        entry.detour = Some(turn.last);
        self.counters.detoured += 1;
        Some(turn.last)
    }

    /// Whether another entry fits; counts if not.
    fn has_room(&mut self) -> bool {
        let room = self.entries.len() < self.config.capacity;
        self.counters.overflowed += u64::from(!room);
        room
    }

    fn insert(&mut self, now: Time, key: K, path: u32, host: Option<H>, marks: Marks, out: bool) {
        let (over, detour, notice) = (None, None, now + self.config.idle);
        let mut entry = Entry { path, detour, host, seen: now, notice, over, fin_out: false, fin_in: false };
        entry.note(now, marks, out, &self.config);
        self.agenda.push(Reverse((entry.notice, key)));
        self.entries.insert(key, entry);
    }

    /// Ports are used again: a SYN makes room for its subflow's successor.
    fn forget_over(&mut self, key: K) {
        if self.entries.get(&key).is_some_and(|entry| entry.over.is_some()) {
            self.counters.ended += 1;
            self.remove(key);
        }
    }

    fn remove(&mut self, key: K) {
        let Some(host) = self.entries.remove(&key).and_then(|entry| entry.host) else { return };
        if let Some(turn) = self.hosts.get_mut(&host) {
            turn.entries -= 1;
            if turn.entries == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

impl<H> Entry<H> {
    /// Takes notice of a packet; returns when to look at the entry if the subflow is over with it.
    fn note(&mut self, now: Time, marks: Marks, out: bool, config: &Config) -> Option<Time> {
        self.seen = now;
        *(if out { &mut self.fin_out } else { &mut self.fin_in }) |= marks.fin;
        let ends = marks.rst || self.fin_out && self.fin_in;
        if self.over.is_some() || !ends {
            return None;
        }
        self.over = Some(now);
        self.notice = self.due(config);
        Some(self.notice)
    }

    /// When it ends unless something is seen before.
    fn due(&self, config: &Config) -> Time {
        match self.over {
            Some(over) => over + config.linger,
            None => self.seen + config.idle,
        }
    }
}
