//! Which subflows to begin and to end: the path manager's decisions, without sockets and clocks.
//!
//! The shell hands over what it learns, with the time: [events](Manager::handle_event), [lists](Manager::handle_list) of all
//! subflows, [addresses](Manager::handle_addresses) of the host, and [results](Manager::handle_result) of what it did. It
//! does what [`poll_transmit`](Manager::poll_transmit) returns, and comes back at [`poll_timeout`](Manager::poll_timeout).
//!
//! Lists are the truth. Events report the same sooner, and may be lost.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod hosts;
mod listed;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use sidestep_linux::mptcp::{Ends, FirstSubflow, MptcpChange, MptcpEvent, NewSubflow, Refusal, RefusalKind, Token};
use sidestep_net::{Span, Time};

pub(super) use self::hosts::HostView;
use super::{
    config::{MptcpPmConfig, PortChoice, PortsConfig, Rule, rule_for},
    connection::{Connection, Place, SubflowState},
    ports::{Loads, draw},
    state::Remembered,
    tally::{Limit, Tally},
};

/// The path manager's decisions.
#[derive(Debug)]
pub struct Manager {
    config: MptcpPmConfig,
    rules: Vec<Rule>,
    connections: BTreeMap<Token, Connection>,
    tally: Tally,
    /// Connections that may get a subflow now.
    ready: VecDeque<Token>,
    /// Subflows to be ended.
    dead: VecDeque<(Token, Ends)>,
    /// Connections to look at again, and when.
    timers: BTreeSet<(Time, Token)>,
    /// Connections that a limit keeps from more subflows.
    limited: BTreeSet<Token>,
    /// The host's addresses and routes.
    host: HostView,
    /// Numbers of addresses whose loss must be announced to the other end of a connection.
    withdrawn: VecDeque<(Token, u8)>,
    /// The numbers of addresses, also of some that are gone: a connection's other end knows an address by one number.
    numbers: BTreeMap<u8, IpAddr>,
    /// What an earlier path manager knew of connections that live.
    remembered: BTreeMap<Token, Remembered>,
    /// The number of the first subflow's address in requests: 0, but 1 where the kernel does not take that.
    own_id: u8,
    /// Whether nothing is done in truth, so that no list ever shows what was begun.
    dry_run: bool,
    counters: Counters,
    random: u64,
}

/// Numbers of the host's addresses: 0 and 1 are for that of the first subflow.
const NUMBERS: RangeInclusive<u8> = 2..=254;

/// What the shell must make the kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin a subflow.
    Create(NewSubflow),
    /// Notify the other end that the address with this number is gone.
    Withdraw(Token, u8),
    /// End a subflow.
    Destroy(Token, Ends),
}

/// What has happened so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Subflows begun.
    pub begun: u64,
    /// Subflows that were established.
    pub joined: u64,
    /// Subflows that ended, or were never established, without us.
    pub lost: u64,
    /// Subflows ended because they were dead, or their address gone.
    pub ended: u64,
    /// Addresses of which the other end of a connection was notified that they are gone.
    pub withdrawn: u64,
    /// Refusals of the kernel, by what they mean.
    pub refusals: BTreeMap<RefusalKind, u64>,
    /// How often a limit began to keep a connection from more subflows.
    pub limited: BTreeMap<Limit, u64>,
    /// Connections that were left alone because there were too many.
    pub unmanaged: u64,
    /// Lists that were read because events were lost.
    pub overflows: u64,
    /// Connections that got all of their subflows, the sum of the times from their establishment, and the longest.
    pub completed: (u64, Span, Span),
}

impl Manager {
    /// A path manager that knows of no connection; `seed` is what its ports are drawn by.
    pub fn new(config: MptcpPmConfig, range: (u16, u16), seed: u64) -> Self {
        let mut manager = Manager {
            rules: config.resolve(),
            config,
            connections: BTreeMap::new(),
            tally: Tally::default(),
            ready: VecDeque::new(),
            dead: VecDeque::new(),
            timers: BTreeSet::new(),
            limited: BTreeSet::new(),
            host: HostView::default(),
            withdrawn: VecDeque::new(),
            numbers: BTreeMap::new(),
            remembered: BTreeMap::new(),
            own_id: 0,
            dry_run: false,
            counters: Counters::default(),
            random: seed,
        };
        manager.tally.set_ports(range, manager.config.ports.share);
        manager
    }

    /// Makes commands count as done, although the shell carries none out.
    pub fn set_dry_run(&mut self) {
        self.dry_run = true;
    }

    /// Takes note of what an earlier path manager knew.
    pub fn remember(&mut self, remembered: BTreeMap<Token, Remembered>) {
        self.remembered = remembered;
    }

    /// What a later path manager should know, of the connections that live.
    pub fn to_remember(&self) -> BTreeMap<Token, Remembered> {
        let is_told =
            |connection: &Connection| connection.first.denies_first_address || !connection.announced.is_empty();
        let told = self.connections.iter().filter(|(_, connection)| is_told(connection));
        let known = told.map(|(token, connection)| {
            let denies = connection.first.denies_first_address;
            (*token, Remembered { denies_first_address: denies, announced: connection.announced.clone() })
        });
        known.collect()
    }

    /// Takes another configuration; what connections have beyond it stays.
    pub fn handle_config(&mut self, config: MptcpPmConfig, range: (u16, u16)) {
        self.rules = config.resolve();
        self.config = config;
        self.tally.set_ports(range, self.config.ports.share);
        for connection in self.connections.values_mut() {
            connection.rule = rule_for(&self.rules, connection.first.ends.remote.ip());
            connection.completed = true;
        }
        self.count_anew();
        self.look_at_all();
    }

    /// Takes an event.
    pub fn handle_event(&mut self, now: Time, event: &MptcpEvent) {
        let token = event.token;
        match event.what {
            MptcpChange::Created(first) => {
                if !self.begin(now, token, first) {
                    self.counters.unmanaged += 1;
                }
            }
            MptcpChange::Established(first) => {
                if !self.connections.contains_key(&token) {
                    self.begin(now, token, first);
                }
                self.change(token, |connection| {
                    connection.first = first;
                    connection.established.get_or_insert(now);
                });
            }
            MptcpChange::Closed => self.forget(token),
            MptcpChange::Announced { id, address, port } => {
                self.change(token, |connection| {
                    connection.announce(id, address, port);
                });
            }
            MptcpChange::Removed { id } => self.change(token, |connection| {
                connection.announced.remove(&id);
            }),
            MptcpChange::SubflowEstablished(ends) => self.join(now, token, ends),
            MptcpChange::SubflowClosed { ends, .. } => self.leave(now, token, ends),
        }
    }

    /// Notes that events were lost. A list has to follow.
    pub fn handle_overflow(&mut self) {
        self.counters.overflows += 1;
    }

    /// What the kernel must do next; its result must be [handed over](Self::handle_result) before more is asked for.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Command> {
        while let Some((token, number)) = self.withdrawn.pop_front() {
            if self.connections.contains_key(&token) {
                return Some(Command::Withdraw(token, number));
            }
        }
        while let Some((token, ends)) = self.dead.pop_front() {
            let is_known = |connection: &Connection| connection.subflows.contains_key(&ends);
            if self.connections.get(&token).is_some_and(is_known) {
                return Some(Command::Destroy(token, ends));
            }
        }
        self.wake(now);
        while let Some(token) = self.ready.pop_front() {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.queued = false;
            }
            if let Some(subflow) = self.next_subflow(now, token) {
                // Connections get their subflows in turn.
                self.queue(token);
                return Some(Command::Create(subflow));
            }
        }
        None
    }

    /// Takes what the kernel answered to a command.
    pub fn handle_result(&mut self, now: Time, command: &Command, result: &Result<(), Refusal>) {
        // That an address is gone can be announced only for those that the kernel has a number for.
        if let Err(refusal) = result
            && !matches!(command, Command::Withdraw(..))
        {
            *self.counters.refusals.entry(refusal.kind).or_default() += 1;
        }
        match (command, result) {
            (Command::Create(subflow), Ok(())) => self.begun(now, subflow),
            (Command::Create(subflow), Err(refusal)) => self.refused(now, subflow, refusal.kind),
            (Command::Withdraw(..), result) => self.counters.withdrawn += u64::from(result.is_ok()),
            (Command::Destroy(token, ends), result) => {
                if result.is_ok() {
                    self.counters.ended += 1;
                    self.change(*token, |connection| {
                        connection.ending.insert(*ends);
                    });
                }
                self.drop_subflow(*token, *ends);
            }
        }
    }

    /// When [`poll_transmit`](Self::poll_transmit) may have something new to do, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.ready.is_empty() || !self.dead.is_empty() || !self.withdrawn.is_empty() {
            return Some(Time::ZERO);
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration.
    pub fn config(&self) -> &MptcpPmConfig {
        &self.config
    }

    /// How many connections are managed, and how many of them a limit keeps from more subflows.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.limited.len())
    }

    /// The connections, with the rule of each.
    pub(super) fn connections(&self) -> impl Iterator<Item = (Token, &Connection, Option<&Rule>)> {
        self.connections.iter().map(|(token, connection)| (*token, connection, self.rules.get(connection.rule)))
    }

    /// All subflows of managed connections.
    pub(super) fn subflows(&self) -> u32 {
        self.tally.all()
    }

    /// Begins to manage a connection; false if there are too many.
    fn begin(&mut self, now: Time, token: Token, first: FirstSubflow) -> bool {
        // A token may come again as soon as its connection is gone.
        self.forget(token);
        if self.connections.len() >= self.config.limits.connections as usize {
            return false;
        }
        let connection = Connection::new(now, first, rule_for(&self.rules, first.ends.remote.ip()));
        connection.all_counted().for_each(|subflow| self.tally.add(subflow));
        if !first.accepted {
            self.tally.add_port(first.ends.local);
        }
        self.connections.insert(token, connection);
        true
    }

    fn forget(&mut self, token: Token) {
        self.limited.remove(&token);
        self.remembered.remove(&token);
        if let Some(connection) = self.connections.remove(&token) {
            for subflow in connection.all_counted() {
                self.tally.remove(subflow);
                if !connection.first.accepted {
                    self.tally.remove_port(subflow.local);
                }
            }
            self.look_at_limited();
        }
    }

    /// Changes a connection, and makes the manager look at it.
    fn change(&mut self, token: Token, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.connections.get_mut(&token) {
            change(connection);
            self.queue(token);
        }
    }

    fn join(&mut self, now: Time, token: Token, ends: Ends) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        self.counters.joined += 1;
        if connection.join(now, ends) {
            self.tally.add(connection.counted(ends.local.ip(), ends.remote.ip()));
        }
        // A subflow shows that further ones are possible.
        let since = *connection.established.get_or_insert(now);
        let count = self.rules.get(connection.rule).map_or(u32::MAX, |rule| rule.count);
        if !connection.completed && connection.ready() >= count {
            connection.completed = true;
            let (connections, sum, longest) = &mut self.counters.completed;
            let took = now.since(since);
            (*connections, *sum, *longest) = (*connections + 1, *sum + took, (*longest).max(took));
        }
        // One whose address is gone may have waited for it.
        self.end_stranded(token);
        self.queue(token);
    }

    fn leave(&mut self, now: Time, token: Token, ends: Ends) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if !connection.leave(now, ends) {
            return;
        }
        self.counters.lost += 1;
        self.tally.remove(connection.counted(ends.local.ip(), ends.remote.ip()));
        if !connection.first.accepted {
            self.tally.remove_port(ends.local.ip());
        }
        self.look_at_limited();
        self.look_at_later(token);
    }

    fn drop_subflow(&mut self, token: Token, ends: Ends) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if let Some(subflow) = connection.subflows.remove(&ends) {
            if !subflow.established {
                connection.note_failure(ends.local.ip(), ends.remote);
            }
            self.tally.remove(connection.counted(ends.local.ip(), ends.remote.ip()));
            self.tally.remove_port(ends.local.ip());
            self.queue(token);
        }
    }

    /// The next subflow of a connection, if it should have one now and no limit forbids it.
    fn next_subflow(&mut self, now: Time, token: Token) -> Option<NewSubflow> {
        let connection = self.connections.get_mut(&token)?;
        let rule = self.rules.get(connection.rule)?;
        connection.end_trial(now);
        let place = connection.wants(now, rule, self.config.watch.timeouts, &self.host);
        let Some(place) = place else {
            if connection.waits_until() > now {
                // What limits it may do so after the wait as well.
                if connection.limited.is_some() {
                    self.limited.insert(token);
                }
                self.look_at_later(token);
            } else {
                (connection.limited, _) = (None, self.limited.remove(&token));
            }
            return None;
        };
        let counted = connection.counted(place.local, place.remote.0.ip());
        if let Some(limit) = self.tally.limit(now, rule, counted, &self.config.limits) {
            self.limit(token, limit);
            return None;
        }
        Some(self.subflow_at(token, place))
    }

    /// Notes what keeps a connection from more subflows, and counts it if nothing did.
    fn limit(&mut self, token: Token, limit: Limit) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.limited.replace(limit).is_none() {
            *self.counters.limited.entry(limit).or_default() += 1;
        }
        self.limited.insert(token);
    }

    fn number_of(&self, address: IpAddr) -> Option<u8> {
        self.numbers.iter().find(|(_, known)| **known == address).map(|(number, _)| *number)
    }

    fn subflow_at(&mut self, token: Token, place: Place) -> NewSubflow {
        let (remote, remote_id) = place.remote;
        let own = self.connections.get(&token).map(|connection| connection.first.ends.local.ip());
        let (mut port, mut local_id) = (0, self.own_id);
        if own != Some(place.local) {
            local_id = self.number_of(place.local).unwrap_or(u8::MAX);
        } else if self.config.ports.choice == PortChoice::Stratified {
            let range = self.tally.range();
            let random = &mut self.random;
            if let Some(connection) = self.connections.get_mut(&token) {
                let PortsConfig { seed, paths, .. } = self.config.ports;
                let loads = Loads::of(connection.subflows.keys(), seed, paths);
                port = loads.best_port(place.local, remote, range, || draw(random));
                // The kernel wants a number of its own for each address with its port.
                connection.next_id = connection.next_id.checked_add(1).unwrap_or(1);
                local_id = connection.next_id;
            }
        }
        NewSubflow { token, local: SocketAddr::new(place.local, port), local_id, remote, remote_id }
    }

    fn begun(&mut self, now: Time, subflow: &NewSubflow) {
        let Some(connection) = self.connections.get_mut(&subflow.token) else { return };
        (connection.limited, _) = (None, self.limited.remove(&subflow.token));
        self.counters.begun += 1;
        if subflow.local.port() == 0 {
            *connection.pending.entry((subflow.local.ip(), subflow.remote)).or_default() += 1;
        } else {
            let ends = Ends { local: subflow.local, remote: subflow.remote };
            connection.subflows.insert(ends, SubflowState::begun(now));
        }
        self.tally.add_new(connection.counted(subflow.local.ip(), subflow.remote.ip()));
    }

    fn refused(&mut self, now: Time, subflow: &NewSubflow, kind: RefusalKind) {
        let token = subflow.token;
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let is_drawn = subflow.local.port() != 0;
        if is_drawn || kind != RefusalKind::NoPort {
            (connection.limited, _) = (None, self.limited.remove(&token));
        }
        connection.note_failure(subflow.local.ip(), subflow.remote);
        match kind {
            RefusalKind::Gone => return self.forget(token),
            RefusalKind::KernelManager => connection.is_kernels = true,
            RefusalKind::NotConnected => connection.wait_a_little(now),
            // Another port is drawn next time.
            RefusalKind::NoPort if is_drawn => connection.wait_a_little(now),
            RefusalKind::IdTaken if is_drawn => {
                // An earlier path manager may have given out the numbers that follow as well.
                connection.next_id = draw(&mut self.random) as u8;
                connection.wait_a_little(now);
            }
            RefusalKind::NoPort => {
                connection.retry_at = self.tally.no_port(now, subflow.local.ip());
                self.limit(token, Limit::Ports);
            }
            RefusalKind::NeedsId if self.own_id == 0 => {
                self.own_id = 1;
                return self.queue(token);
            }
            _ => connection.fail(now),
        }
        self.look_at_later(token);
    }

    /// Makes the manager look at a connection as soon as it may get something.
    fn look_at_later(&mut self, token: Token) {
        if let Some(connection) = self.connections.get(&token) {
            self.timers.insert((connection.waits_until(), token));
        }
    }

    /// Makes the manager look at one of the connections that a limit keeps from more: something has become free.
    fn look_at_limited(&mut self) {
        if let Some(token) = self.limited.pop_first() {
            self.queue(token);
        }
    }

    fn look_at_all(&mut self) {
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.queue(token));
    }

    fn wake(&mut self, now: Time) {
        while let Some((at, token)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.queue(token);
        }
    }

    fn queue(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(&token)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(token);
        }
    }

    fn count_anew(&mut self) {
        self.tally.clear();
        for connection in self.connections.values() {
            connection.all_counted().for_each(|subflow| self.tally.add(subflow));
        }
    }
}
