//! What the path manager knows of one connection.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use sidestep_linux::mptcp::{Ends, FirstSubflow, Window};
use sidestep_net::{Span, Time};

use super::{
    config::{Mode, Rule},
    manager::HostView,
    tally::{Counted, Limit},
};

/// The most addresses of the other end that are remembered for a connection.
const MAX_ANNOUNCED: usize = 8;
/// The most pairs of addresses whose failures are remembered for a connection.
const MAX_FAILED: usize = 256;
/// How long to wait for the first repetition after a failure, and the longest wait.
const RETRY: (Span, Span) = (Span::from_secs(1), Span::from_secs(300));
/// How long to wait at first and at most when the kernel refuses what it may soon allow: the connection is not fully
/// established, or the port or the number that was drawn is in use.
const NOT_YET: (Span, Span) = (Span::from_millis(10), Span::from_secs(10));
/// A subflow that ends sooner has failed; later it was put to use, and its successor comes at once.
const PROVEN: Span = Span::from_secs(10);
/// How long a subflow has to last after a failure: an other end that refuses one may answer its SYN first.
const TRIAL: Span = Span::from_millis(200);
/// How long to wait before a subflow that ended is restored: all of them end when the connection does.
const RESTORE: Span = Span::from_millis(200);

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    /// How it began, as far as that is known.
    pub(super) first: FirstSubflow,
    /// The number of its rule.
    pub(super) rule: usize,
    /// Whether further subflows are possible, and since when; `None`: not yet.
    pub(super) established: Option<Time>,
    /// Whether no further subflows are possible any more.
    pub(super) closing: bool,
    /// Whether it has the kernel's path manager.
    pub(super) is_kernels: bool,
    /// Addresses that the other end has announced, by their numbers.
    pub(super) announced: BTreeMap<u8, SocketAddr>,
    /// Its subflows, the first included.
    pub(super) subflows: BTreeMap<Ends, SubflowState>,
    /// Subflows that were begun, and whose ports are not known yet: from which address, to where.
    pub(super) pending: BTreeMap<(IpAddr, SocketAddr), u32>,
    /// Subflows that we ended ourselves, and whose end was not reported yet.
    pub(super) ending: BTreeSet<Ends>,
    /// Addresses of this host of which the other end was notified that they are gone.
    pub(super) withdrawn: BTreeSet<IpAddr>,
    /// Payload bytes carried, as far as they were seen.
    pub(super) bytes: u64,
    /// What keeps it from more subflows.
    pub(super) limited: Option<Limit>,
    /// No further subflow before.
    pub(super) retry_at: Time,
    /// Whether it waits in the queue of those that may get a subflow.
    pub(super) queued: bool,
    /// Since when the kernel has listed none of its subflows.
    pub(super) absent_since: Option<Time>,
    /// Whether the time until it had all of its subflows was taken.
    pub(super) completed: bool,
    /// The next number for an address with a port of its own.
    pub(super) next_id: u8,
    /// How often subflows between two addresses came to nothing, since one was established.
    failures: BTreeMap<(IpAddr, SocketAddr), u32>,
    retry: Span,
    not_yet: Span,
    /// How many subflows may be in progress at once; after a failure one, doubled with each success.
    allowance: u32,
    /// Until when subflows that began after a failure have to last, to be a success, and how many; `None`: there are none.
    trial: Option<(Time, u32)>,
}

/// A subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubflowState {
    /// Whether its handshake is complete.
    pub(super) established: bool,
    /// Timeouts since something was last acknowledged.
    pub(super) timeouts: u8,
    /// Since when it is known.
    pub(super) since: Time,
    /// Its window in the last list.
    pub(super) window: Window,
}

/// Where a further subflow would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The address here.
    pub(super) local: IpAddr,
    /// The other end, and the number of its address.
    pub(super) remote: (SocketAddr, u8),
}

impl Connection {
    /// A connection that began so; its rule has this number.
    pub(super) fn new(now: Time, first: FirstSubflow, rule: usize) -> Self {
        let state = SubflowState { established: true, ..SubflowState::begun(now) };
        Connection {
            first,
            rule,
            established: None,
            closing: false,
            is_kernels: false,
            announced: BTreeMap::new(),
            subflows: BTreeMap::from([(first.ends, state)]),
            pending: BTreeMap::new(),
            ending: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            bytes: 0,
            limited: None,
            retry_at: now,
            queued: false,
            absent_since: None,
            completed: false,
            next_id: 0,
            failures: BTreeMap::new(),
            retry: RETRY.0,
            not_yet: NOT_YET.0,
            allowance: u32::MAX,
            trial: None,
        }
    }

    /// How limits see a subflow between these addresses.
    pub(super) fn counted(&self, local: IpAddr, remote: IpAddr) -> Counted {
        Counted { rule: self.rule, local, remote }
    }

    /// How limits see all of its subflows.
    pub(super) fn all_counted(&self) -> impl Iterator<Item = Counted> {
        let subflows = self.subflows.keys().map(|ends| self.counted(ends.local.ip(), ends.remote.ip()));
        let pending = self.pending.iter().flat_map(|((local, remote), n)| {
            std::iter::repeat_n(self.counted(*local, remote.ip()), usize::try_from(*n).unwrap_or(usize::MAX))
        });
        subflows.chain(pending)
    }

    /// Subflows that were begun and are not established.
    pub(super) fn joining(&self) -> u32 {
        let known = self.subflows.values().filter(|subflow| !subflow.established).count();
        self.pending.values().sum::<u32>().saturating_add(known as u32)
    }

    /// Subflows that are established.
    pub(super) fn ready(&self) -> u32 {
        self.subflows.values().filter(|subflow| subflow.established).count() as u32
    }

    /// Subflows that are dead if another works: those of more timeouts than `most`; a SYN is given up earlier. The first
    /// is never ended, as the kernel itself leaves it aside while it does not work.
    pub(super) fn dead(&self, most: u8) -> impl Iterator<Item = Ends> {
        let works = self.subflows.values().any(|subflow| subflow.established && subflow.timeouts == 0);
        let dead = self.subflows.iter().filter(move |(_, subflow)| works && subflow.is_dead(most));
        dead.map(|(ends, _)| *ends).filter(|ends| *ends != self.first.ends)
    }

    /// The next subflow that it should get, but for limits; `None`: it has all, or must wait.
    pub(super) fn wants(&self, now: Time, rule: &Rule, most_timeouts: u8, host: &HostView) -> Option<Place> {
        let may = self.established.is_some() && !self.closing && !self.is_kernels && !self.first.accepted;
        let on_trial = self.trial.map_or(0, |(_, subflows)| subflows);
        let unsure = self.joining().saturating_add(on_trial);
        if !may || self.retry_at > now || self.bytes < rule.after.get() || unsure >= self.allowance {
            return None;
        }
        let dead = self.subflows.values().filter(|subflow| subflow.is_dead(most_timeouts)).count() as u32;
        let alive = (self.subflows.len() as u32).saturating_sub(dead).saturating_add(self.pending.values().sum());
        // All are dead: one more at a time, as its ports may put it on another path.
        let most = if alive == 0 && dead > 0 { 1 } else { rule.count };
        if alive >= most || self.subflows.len() as u32 >= rule.count.saturating_mul(2) {
            return None;
        }
        match rule.mode {
            Mode::AcceptOnly => None,
            Mode::Ndiffports if host.gone.contains(&self.first.ends.local.ip()) => None,
            Mode::Ndiffports => Some(Place { local: self.first.ends.local.ip(), remote: self.remotes().next()? }),
            Mode::Fullmesh => self.missing_pair(host),
        }
    }

    /// The other end's addresses that subflows may lead to, with their numbers.
    fn remotes(&self) -> impl Iterator<Item = (SocketAddr, u8)> {
        let first = Some((self.first.ends.remote, 0)).filter(|_| !self.first.denies_first_address);
        let family = self.first.ends.remote.is_ipv4();
        let announced = self.announced.iter().map(|(id, address)| (*address, *id));
        first.into_iter().chain(announced.filter(move |(address, _)| address.is_ipv4() == family))
    }

    /// A pair of addresses that no subflow is between; of several, one that failed least, so that none keeps back the others.
    fn missing_pair(&self, host: &HostView) -> Option<Place> {
        let own = self.first.ends.local.ip();
        let others = host.addresses.iter().copied().filter(|address| *address != own);
        let all = [own].into_iter().chain(others);
        let locals: Vec<IpAddr> =
            all.filter(|address| address.is_ipv4() == own.is_ipv4() && !host.gone.contains(address)).collect();
        let is_there = |local: IpAddr, remote: SocketAddr| {
            self.pending.contains_key(&(local, remote))
                || self.subflows.keys().any(|ends| ends.local.ip() == local && ends.remote == remote)
        };
        let pairs = self.remotes().flat_map(|remote| locals.iter().map(move |local| Place { local: *local, remote }));
        let missing = pairs.filter(|place| {
            !is_there(place.local, place.remote.0) && !host.unroutable.contains(&(place.local, place.remote.0.ip()))
        });
        missing.min_by_key(|place| self.failures.get(&(place.local, place.remote.0)).copied().unwrap_or_default())
    }

    /// Subflows whose address is gone, if another works; the first may be among them.
    pub(super) fn stranded(&self, gone: &BTreeSet<IpAddr>) -> Vec<Ends> {
        let is_gone = |ends: &Ends| gone.contains(&ends.local.ip());
        let works =
            |(ends, subflow): (&Ends, &SubflowState)| subflow.established && subflow.timeouts == 0 && !is_gone(ends);
        if !self.subflows.iter().any(works) {
            return Vec::new();
        }
        self.subflows.keys().filter(|ends| is_gone(ends)).copied().collect()
    }

    /// Makes the next attempt of subflows from these addresses, which have come, due at once.
    pub(super) fn encourage(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.failures.retain(|(local, _), _| !addresses.contains(local));
        self.withdrawn.retain(|address| !addresses.contains(address));
        (self.retry_at, self.retry, self.not_yet) = (Time::ZERO, RETRY.0, NOT_YET.0);
    }

    /// Notes an address that the other end announced; returns whether it is news.
    pub(super) fn announce(&mut self, id: u8, address: IpAddr, port: Option<u16>) -> bool {
        if self.announced.len() >= MAX_ANNOUNCED && !self.announced.contains_key(&id) {
            return false;
        }
        let address = SocketAddr::new(address, port.unwrap_or(self.first.ends.remote.port()));
        self.announced.insert(id, address) != Some(address)
    }

    /// Notes that a subflow is established; returns whether it was not known at all.
    pub(super) fn join(&mut self, now: Time, ends: Ends) -> bool {
        let key = (ends.local.ip(), ends.remote);
        let known = self.subflows.contains_key(&ends) || self.take_pending(key);
        self.failures.remove(&key);
        self.subflows.insert(ends, SubflowState { established: true, ..SubflowState::begun(now) });
        if self.allowance < u32::MAX {
            let (_, subflows) = self.trial.get_or_insert((now + TRIAL, 0));
            *subflows += 1;
        }
        (self.closing, self.absent_since, self.not_yet) = (false, None, NOT_YET.0);
        !known
    }

    /// Notes that a subflow ended; returns whether it was known.
    pub(super) fn leave(&mut self, now: Time, ends: Ends) -> bool {
        if self.ending.remove(&ends) {
            return false;
        }
        if let Some(subflow) = self.subflows.remove(&ends) {
            if subflow.established && now.since(subflow.since) >= PROVEN {
                self.retry_at = self.retry_at.max(now + RESTORE);
                self.retry = RETRY.0;
            } else {
                self.note_failure(ends.local.ip(), ends.remote);
                self.fail(now);
            }
            return true;
        }
        let was_pending = self.take_pending((ends.local.ip(), ends.remote));
        if was_pending {
            self.note_failure(ends.local.ip(), ends.remote);
            self.fail(now);
        }
        was_pending
    }

    /// When it may get a further subflow, if it waits for that.
    pub(super) fn waits_until(&self) -> Time {
        self.trial.map_or(self.retry_at, |(until, _)| self.retry_at.max(until))
    }

    /// Counts a subflow as a success that has lasted long enough.
    pub(super) fn end_trial(&mut self, now: Time) {
        if self.trial.is_some_and(|(until, _)| until <= now) {
            (self.trial, self.allowance) = (None, self.allowance.saturating_mul(2));
        }
    }

    /// Notes that a subflow between these addresses came to nothing.
    pub(super) fn note_failure(&mut self, local: IpAddr, remote: SocketAddr) {
        if self.failures.len() >= MAX_FAILED && !self.failures.contains_key(&(local, remote)) {
            self.failures.clear();
        }
        let failures = self.failures.entry((local, remote)).or_default();
        *failures = failures.saturating_add(1);
    }

    /// Notes that a subflow came to nothing: wait, longer each time, and then try with one.
    pub(super) fn fail(&mut self, now: Time) {
        (self.trial, self.allowance) = (None, 1);
        // Those that were begun together fail together.
        if self.retry_at <= now {
            self.retry_at = now + self.retry;
            self.retry = (self.retry * 2).min(RETRY.1);
        }
    }

    /// Notes that the kernel refused what it may soon allow: wait a little, longer each time until a subflow is established.
    pub(super) fn wait_a_little(&mut self, now: Time) {
        self.retry_at = now + self.not_yet;
        self.not_yet = (self.not_yet * 2).min(NOT_YET.1);
    }

    /// Takes what the kernel lists for the whole truth, but for what is only begun in a dry run.
    pub(super) fn replace(&mut self, now: Time, listed: &BTreeMap<Ends, SubflowState>, dry_run: bool) {
        if !dry_run {
            // Those that were begun and are not there have come to nothing, whether or not that was reported yet.
            let is_new = |ends: &&Ends| self.subflows.get(ends).is_none_or(|known| !known.established);
            if self.joining() as usize > listed.keys().filter(is_new).count() {
                self.fail(now);
                let begun =
                    self.subflows.iter().filter(|(ends, known)| !known.established && !listed.contains_key(*ends));
                let begun = begun.map(|(ends, _)| (ends.local.ip(), ends.remote));
                let is_listed =
                    |pair: &(IpAddr, SocketAddr)| listed.keys().any(|ends| (ends.local.ip(), ends.remote) == *pair);
                let failed = begun.chain(self.pending.keys().copied()).filter(|pair| !is_listed(pair));
                for (local, remote) in failed.collect::<BTreeSet<_>>() {
                    self.note_failure(local, remote);
                }
            }
            self.pending.clear();
        }
        self.ending.clear();
        let since = |ends: &Ends| self.subflows.get(ends).map_or(now, |known| known.since);
        let subflows = listed.iter().map(|(ends, state)| (*ends, SubflowState { since: since(ends), ..*state }));
        let subflows: BTreeMap<_, _> = subflows.collect();
        let lost = self.subflows.keys().filter(|ends| !subflows.contains_key(ends)).count();
        if lost > 0 {
            // Their end was not reported, or will be: it comes to the same.
            self.retry_at = self.retry_at.max(now + RESTORE);
        }
        self.subflows = subflows;
        self.absent_since = if listed.is_empty() { self.absent_since.or(Some(now)) } else { None };
    }

    fn take_pending(&mut self, key: (IpAddr, SocketAddr)) -> bool {
        let Some(count) = self.pending.get_mut(&key) else { return false };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.pending.remove(&key);
        }
        true
    }
}

impl SubflowState {
    /// One that was begun now.
    pub(super) fn begun(now: Time) -> Self {
        SubflowState { established: false, timeouts: 0, since: now, window: Window::default() }
    }

    fn is_dead(&self, most: u8) -> bool {
        // A SYN is repeated after 1, 2, 4 … seconds, data after fractions of them.
        self.timeouts >= if self.established { most } else { most.min(2) }
    }
}
