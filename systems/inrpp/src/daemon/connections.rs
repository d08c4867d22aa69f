//! TCP connections that pass: window scales, sequence numbers, the last ACK.
//!
//! The table is bounded. A connection is *half-open* until its handshake is complete, or packets of both directions have passed
//! where its SYNs have not. Half-open ones have at most a quarter of the places, and the oldest makes room for a
//! new one. So neither a flood of SYNs nor one of anything else takes the place of a connection that works.
//!
//! A connection that works is not put out for another unless it has been idle for a minute. To put out the one idle
//! longest would let many short connections push out those that work, and with them their scales, which no later packet
//! says again. A connection for which there is no place is refused: its packets are traffic of other protocols.

mod half;
mod list;
mod rows;

#[cfg(test)]
mod tests;

use foldhash::HashMap;
use sidestep_net::{Span, Time};

use super::headers::{ACK, AckTemplate, FIN, Flow, RST, SYN, SynOptions, TcpFields};
use crate::Port;
use half::{Acked, Found, MIN_UNIT, UNKNOWN_UNIT};

pub use half::Half;
pub(super) use list::{Links, List, NONE};
pub use rows::Row;

/// How long a half-open connection, an idle one, and one that has ended are kept.
const HALF_OPEN: Span = Span::from_secs(10);
const IDLE: Span = Span::from_secs(600);
const ENDED: Span = Span::from_secs(1);
/// A connection that has been idle for so long makes room for a new one, and its ports may be used again.
const SPARE: Span = Span::from_secs(60);
/// Times of use are as exact as this.
const GRAIN: Span = Span::from_secs(1);
/// The largest shift of windows (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;
/// Bytes that timestamps take in each segment.
const TIMESTAMPS: u32 = 12;
/// Connections that one [`Connections::sweep`] forgets at most.
const SWEEP: usize = 256;

/// The TCP connections that pass this router.
#[derive(Debug)]
pub struct Connections {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Never iterated over, so that its order does not matter.
    by_key: HashMap<u64, u32>,
    /// By state, those used longest ago first.
    lists: [List; 3],
    links: Links,
    max: usize,
    counts: Counts,
}

/// The place of a connection in the table, until the next [`note`](Connections::note) or [`sweep`](Connections::sweep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

/// What a packet is to its connection. Positions are bytes from the first of its direction on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its connection.
    pub at: Place,
    /// Its first byte.
    pub start: u64,
    /// The end of its last byte.
    pub end: u64,
    /// The end of what had passed before it: for a packet that is next, its start.
    pub passed: u64,
    /// Whether its ACK is the newest of the other direction's data.
    pub is_newest_ack: bool,
    /// Whether its ACK is the first of the other direction's data.
    pub begins: bool,
    /// Whether it belongs to an MPTCP connection, whose windows are not those of its subflows.
    pub is_multipath: bool,
}

/// What has happened in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that got a place.
    pub made: u64,
    /// Packets of connections for which there was no place.
    pub refused: u64,
    /// Half-open connections that made room for others, as there were too many.
    pub pushed_out: u64,
    /// Connections that were opened without a scale of the windows of both ends.
    pub unscaled: u64,
    /// Connections that speak MPTCP.
    pub multipath: u64,
    /// Packets whose numbers were too far from those of their connection.
    pub strays: u64,
}

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    HalfOpen,
    Open,
    Ended,
}

#[derive(Clone, Debug)]
struct Entry {
    connection: Connection,
    /// Where it is filed; `None`: the place is free.
    state: Option<State>,
    /// When it was filed.
    used: Time,
}

/// A connection: the data of both directions.
#[derive(Clone, Debug, Default)]
struct Connection {
    key: u64,
    halves: [Half; 2],
    /// By sender: what its SYN has said.
    syns: [Option<Syn>; 2],
    /// A SYN that may be the beginning of another connection, and its direction. The answer to it says so.
    pending: Option<(usize, Syn)>,
    is_open: bool,
    is_multipath: bool,
    /// The direction of an RST.
    reset_by: Option<usize>,
}

/// What a SYN has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Syn {
    sequence: u32,
    options: SynOptions,
    /// Whether it is a SYN-ACK.
    is_answer: bool,
}

/// The number by which the core knows the data of one direction of a connection.
pub fn flow_number(key: u64, reversed: bool) -> u64 {
    key & !1 | u64::from(reversed)
}

/// The connection of a flow of the core, and the direction.
pub fn of_flow_number(flow: u64) -> Flow {
    Flow { key: flow & !1, reversed: flow & 1 != 0 }
}

impl Connections {
    /// A table of at most so many connections.
    pub fn new(max: usize) -> Connections {
        Connections {
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::default(),
            lists: [List::default(); 3],
            links: Links::new(),
            max: max.min(NONE as usize),
            counts: Counts::default(),
        }
    }

    /// A packet passes; a SYN or SYN-ACK with its options. `None`: its connection has no place, or it is an RST of one that
    /// is not known.
    pub fn note(&mut self, now: Time, flow: Flow, tcp: &TcpFields, syn: Option<&SynOptions>) -> Option<Seen> {
        let at = match self.by_key.get(&flow.key) {
            Some(at) => *at,
            None if tcp.flags & RST != 0 => return None,
            None => self.make(now, flow.key)?,
        };
        let entry = self.entries.get_mut(at as usize)?;
        let was_multipath = entry.connection.is_multipath;
        let by = usize::from(flow.reversed);
        if let Some(options) = syn.filter(|_| tcp.flags & SYN != 0) {
            let syn = Syn { sequence: tcp.sequence, options: *options, is_answer: tcp.flags & ACK != 0 };
            let is_over = entry.state == Some(State::Ended) || now.since(entry.used) > SPARE;
            if !entry.connection.handle_syn(by, syn, tcp.acknowledgement, is_over) {
                self.refile(now, at);
                return self.entries.get(at as usize).map(|entry| entry.connection.unseen(at, by));
            }
        }
        let (was_open, (found, acked)) = (entry.connection.is_open, entry.connection.note(by, tcp));
        let connection = &entry.connection;
        let seen = Seen {
            start: found.start,
            end: found.end,
            passed: found.passed,
            is_newest_ack: acked.is_newest,
            begins: acked.is_first,
            ..connection.unseen(at, by)
        };
        let is_unscaled = connection.halves.iter().any(|half| half.scale.is_none());
        self.counts.unscaled += u64::from(connection.is_open && !was_open && is_unscaled);
        self.counts.multipath += u64::from(connection.is_multipath && !was_multipath);
        self.counts.strays += u64::from(found.is_stray);
        self.refile(now, at);
        Some(seen)
    }

    /// The connection with this key.
    pub fn by_key(&self, key: u64) -> Option<Place> {
        self.by_key.get(&key).copied().map(Place)
    }

    /// The data of one direction of a connection: with `reversed` as in a packet's [`Flow`], what that packet's sender sends,
    /// and with its opposite that which the packet acknowledges.
    pub fn half(&mut self, at: Place, reversed: bool) -> Option<&mut Half> {
        let entry = self.entries.get_mut(at.0 as usize).filter(|entry| entry.state.is_some())?;
        entry.connection.halves.get_mut(usize::from(reversed))
    }

    /// The data of the direction that has this [number](flow_number).
    pub fn half_of(&mut self, flow: u64) -> Option<&mut Half> {
        let Flow { key, reversed } = of_flow_number(flow);
        let at = self.by_key(key)?;
        self.half(at, reversed)
    }

    /// Forgets connections that have ended, are idle, or were not opened; a bounded number of them. Returns whether there
    /// may be more.
    pub fn sweep(&mut self, now: Time) -> bool {
        for _ in 0..SWEEP {
            let over = [(State::Ended, ENDED), (State::HalfOpen, HALF_OPEN), (State::Open, IDLE)];
            let Some(at) = over.into_iter().find_map(|(state, span)| self.oldest(now, state, span)) else {
                return false;
            };
            self.forget(at);
        }
        true
    }

    /// The flows whose ACKs go back by this port: the ports by which their data leave, and their [numbers](flow_number).
    pub fn acked_by(&self, port: Port) -> impl Iterator<Item = (Port, u64)> {
        self.entries.iter().filter(|entry| entry.state.is_some()).flat_map(move |Entry { connection, .. }| {
            let halves = connection.halves.iter().zip([false, true]);
            halves
                .filter(move |(half, _)| half.back == Some(port))
                .filter_map(|(half, reversed)| Some((half.port?, flow_number(connection.key, reversed))))
        })
    }

    /// Ports have other numbers from now on, or are gone.
    pub fn renumber(&mut self, to: impl Fn(Port) -> Option<Port>) {
        for half in self.entries.iter_mut().flat_map(|entry| &mut entry.connection.halves) {
            (half.port, half.back) = (half.port.and_then(&to), half.back.and_then(&to));
        }
    }

    /// Sets how many connections are known at most; those that are more stay until they end.
    pub fn set_max(&mut self, max: usize) {
        self.max = max.min(NONE as usize);
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.lists.iter().map(List::len).sum()
    }

    /// Whether there is none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them are half-open.
    #[cfg(test)]
    pub fn half_open(&self) -> usize {
        self.lists[State::HalfOpen as usize].len()
    }

    /// What has happened in it.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.by_key.capacity() * 17 + self.links.capacity() * 8
    }

    /// The connections that are open, for a successor.
    pub fn export(&self) -> impl Iterator<Item = Row> {
        let open = self.entries.iter().filter(|entry| entry.state == Some(State::Open));
        open.map(|entry| entry.connection.export())
    }

    /// Takes a connection over. Returns whether it had a place, and was not known.
    pub fn import(&mut self, now: Time, row: &Row) -> bool {
        let Some(connection) = Connection::import(row) else { return false };
        if self.by_key.contains_key(&connection.key) {
            return false;
        }
        let Some(at) = self.make(now, connection.key) else { return false };
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.connection = connection;
        }
        self.refile(now, at);
        true
    }

    /// A place for a new connection.
    fn make(&mut self, now: Time, key: u64) -> Option<u32> {
        if self.len() >= self.max {
            let spare = [(State::Ended, ENDED), (State::HalfOpen, HALF_OPEN), (State::Open, SPARE)];
            let Some(at) = spare.into_iter().find_map(|(state, span)| self.oldest(now, state, span)) else {
                self.counts.refused += 1;
                return None;
            };
            self.forget(at);
        }
        let connection = Connection { key, ..Connection::default() };
        let entry = Entry { connection, state: None, used: now };
        let at = match self.free.pop() {
            Some(at) => {
                *self.entries.get_mut(at as usize)? = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.by_key.insert(key, at);
        self.counts.made += 1;
        self.refile(now, at);
        Some(at)
    }

    /// The connection in a state that was filed longest ago, if that is more than so long ago.
    fn oldest(&self, now: Time, state: State, span: Span) -> Option<u32> {
        let at = self.lists[state as usize].first()?;
        self.entries.get(at as usize).filter(|entry| now.since(entry.used) > span).map(|_| at)
    }

    /// Files a connection by its state and by when it was used.
    fn refile(&mut self, now: Time, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        let state = entry.connection.state();
        if let Some(before) = entry.state {
            if before == state && (state == State::Ended || now.since(entry.used) < GRAIN) {
                return;
            }
            self.lists[before as usize].remove(&mut self.links, at);
        }
        (entry.state, entry.used) = (Some(state), now);
        self.lists[state as usize].push_back(&mut self.links, at);
        let half_open = self.lists[State::HalfOpen as usize];
        if half_open.len() > (self.max / 4).max(1) {
            self.counts.pushed_out += 1;
            half_open.first().into_iter().for_each(|at| self.forget(at));
        }
    }

    fn forget(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        let Some(state) = entry.state.take() else { return };
        self.by_key.remove(&entry.connection.key);
        self.lists[state as usize].remove(&mut self.links, at);
        self.free.push(at);
    }
}

/// A packet of a connection, as [`Found`], where what had passed is known.
#[derive(Clone, Copy, Debug)]
struct Passed {
    start: u64,
    end: u64,
    passed: u64,
    is_stray: bool,
}

impl Connection {
    fn state(&self) -> State {
        match self.reset_by.is_some() || self.halves.iter().all(|half| half.done) {
            true => State::Ended,
            false if self.is_open => State::Open,
            false => State::HalfOpen,
        }
    }

    /// A packet that is not taken note of.
    fn unseen(&self, at: u32, by: usize) -> Seen {
        let passed = self.halves[by].end;
        let Connection { is_multipath, .. } = *self;
        Seen { at: Place(at), start: passed, end: passed, passed, is_newest_ack: false, begins: false, is_multipath }
    }

    /// A SYN or SYN-ACK passes, which acknowledges `answers`; `is_over`: the connection has ended, or is idle. Returns whether it
    /// belongs to the connection, or begins one in its place.
    fn handle_syn(&mut self, by: usize, syn: Syn, answers: u32, is_over: bool) -> bool {
        let other = 1 - by;
        let is_known = self.syns[by].is_some_and(|of| of.sequence == syn.sequence);
        if !is_known && (self.is_open || self.reset_by.is_some()) {
            // Ports are used again, or somebody guesses. An end of a connection that works does not answer with a SYN-ACK.
            let begins = match self.pending {
                Some((from, pending)) if syn.is_answer && from == other => pending.sequence.wrapping_add(1) == answers,
                _ => is_over && !syn.is_answer,
            };
            if !begins {
                self.pending = (!syn.is_answer).then_some((by, syn)).or(self.pending);
                return false;
            }
            let pending = self.pending.filter(|_| syn.is_answer);
            *self = Connection { key: self.key, ..Connection::default() };
            if let Some((from, pending)) = pending {
                self.begin(from, pending);
                self.halves[from].sent = true;
            }
        }
        self.begin(by, syn);
        if syn.is_answer && !self.is_open && self.halves[other].first != Some(answers.wrapping_sub(1)) {
            // Of several SYNs it says which one it answers.
            let Half { port, back, scale, unit, sent, .. } = self.halves[other];
            let first = Some(answers.wrapping_sub(1));
            self.halves[other] = Half { first, port, back, scale, unit, sent, ..Half::default() };
        }
        true
    }

    /// Notes what a SYN says. One that is sent again may lack options that the first has had.
    fn begin(&mut self, by: usize, syn: Syn) {
        let before = self.syns[by].filter(|of| of.sequence == syn.sequence);
        let scale = syn.options.scale.or(before.and_then(|of| of.options.scale));
        if before.is_none() {
            let Half { port, back, scale, .. } = self.halves[by];
            self.halves[by] = Half { first: Some(syn.sequence), port, back, scale, ..Half::default() };
        }
        self.is_multipath |= syn.options.is_multipath;
        self.syns[by] = Some(Syn { options: SynOptions { scale, ..syn.options }, ..syn });
        let scales = [self.scale_of(0), self.scale_of(1)];
        let unit = self.unit();
        for (half, scale) in self.halves.iter_mut().zip(scales.into_iter().rev()) {
            (half.scale, half.unit) = (scale, unit);
        }
    }

    /// The shift of the windows that an end advertises (RFC 7323, section 2.2): none unless both SYNs have the option, and
    /// a SYN-ACK has it only if the SYN has had it.
    fn scale_of(&self, by: usize) -> Option<u8> {
        let says = |syn: Syn| syn.options.scale;
        match (self.syns[by], self.syns[1 - by]) {
            (Some(own), Some(other)) => Some(says(other).and(says(own)).unwrap_or(0).min(MAX_SCALE)),
            (Some(own), None) if own.is_answer || says(own).is_none() => Some(says(own).unwrap_or(0).min(MAX_SCALE)),
            (None, Some(other)) if says(other).is_none() => Some(0),
            _ => None,
        }
    }

    /// Bytes of a segment: the lower MSS of both ends, less what timestamps take.
    fn unit(&self) -> u32 {
        let mss = |syn: Syn| syn.options.mss.map_or(MIN_UNIT, u32::from);
        let Some(lowest) = self.syns.iter().flatten().map(|syn| mss(*syn)).min() else { return UNKNOWN_UNIT };
        let stamped = self.syns.iter().flatten().all(|syn| syn.options.timestamps);
        lowest.saturating_sub(if stamped { TIMESTAMPS } else { 0 }).max(MIN_UNIT)
    }

    /// A packet passes, in the direction `by`.
    fn note(&mut self, by: usize, tcp: &TcpFields) -> (Passed, Acked) {
        let passed = self.halves[by].end;
        if tcp.flags & RST != 0 {
            if self.is_reset(by, tcp) {
                self.reset_by = Some(by);
                self.halves.iter_mut().for_each(|half| half.done = true);
            }
            return (Passed { start: passed, end: passed, passed, is_stray: false }, Acked::default());
        }
        let found = self.halves[by].note_data(tcp);
        let acked = match tcp.flags & ACK {
            0 => Acked::default(),
            _ => self.halves[1 - by].note_ack(tcp),
        };
        let advances = found.is_some_and(|found| found.advances) || acked.advances;
        if self.reset_by == Some(by) && advances {
            // It goes on, so the RST was not its own, or was not believed.
            self.reset_by = None;
            self.halves.iter_mut().for_each(|half| half.done = false);
        }
        let is_handshake = tcp.flags & SYN != 0;
        self.is_open |= !is_handshake && acked.is_plausible && self.halves[1 - by].sent;
        let is_stray = found.is_none();
        let Found { start, end, .. } = found.unwrap_or(Found { start: passed, end: passed, advances: false });
        (Passed { start, end, passed, is_stray }, acked)
    }

    /// Whether an RST may be believed: its number is one that its sender may use, or it answers what the other end has sent.
    fn is_reset(&self, by: usize, tcp: &TcpFields) -> bool {
        let (own, other) = (&self.halves[by], &self.halves[1 - by]);
        let within = |half: &Half, sequence: u32| {
            let last = half.end.max(half.reach).max(half.acked) as i64;
            half.position(sequence).is_some_and(|at| (half.acked as i64..=last + 1).contains(&at))
        };
        let answers = tcp.flags & ACK != 0 && !own.sent && within(other, tcp.acknowledgement);
        own.sent && within(own, tcp.sequence) || answers
    }
}
