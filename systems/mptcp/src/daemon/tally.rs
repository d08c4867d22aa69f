//! How many subflows there are, by all that limits them.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;
use sidestep_net::{Ratio, Span, Time};

use super::config::{LimitsConfig, Rule};

/// What keeps a connection from a further subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// All subflows together (`[limits] subflows`).
    All,
    /// Those of a rule (`limit`).
    Rule,
    /// Those of a rule with one other host (`limit_per_host`).
    Host,
    /// The ports of an address of this host.
    Ports,
}

impl Limit {
    /// All limits.
    pub const ALL: [Limit; 4] = [Limit::All, Limit::Rule, Limit::Host, Limit::Ports];

    /// Its name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::All => "all",
            Limit::Rule => "rule",
            Limit::Host => "host",
            Limit::Ports => "ports",
        }
    }
}

/// The numbers of subflows that limits are about.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    all: u32,
    by_rule: BTreeMap<usize, u32>,
    by_host: BTreeMap<(usize, IpAddr), u32>,
    ports: Ports,
}

/// The ports of this host's addresses.
#[derive(Clone, Debug, Default)]
struct Ports {
    /// The first and the last that the kernel gives to connections.
    range: (u16, u16),
    /// How many of them each address may have in use.
    most: u32,
    /// How many of them are in use.
    used: BTreeMap<IpAddr, u32>,
    /// Those in use by connections that were listed before they were reported.
    early: BTreeSet<SocketAddr>,
    /// Addresses of which the kernel found no port free, until when they are left alone, and for how long next time.
    none_free: BTreeMap<IpAddr, (Time, Span)>,
}

/// How long an address of which no port was free is left alone at first, and at most.
const NONE_FREE: (Span, Span) = (Span::from_secs(1), Span::from_secs(60));

/// A subflow as limits see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// The number of its connection's rule.
    pub(super) rule: usize,
    /// The address here.
    pub(super) local: IpAddr,
    /// The address there.
    pub(super) remote: IpAddr,
}

impl Tally {
    /// Takes note of the ports that there are, and of the share of them that subflows may have.
    pub(super) fn set_ports(&mut self, range: (u16, u16), share: Ratio) {
        let width = u64::from(range.1.saturating_sub(range.0)) + 1;
        let most = width * u64::from(share.ppb()) / 1_000_000_000;
        (self.ports.range, self.ports.most) = (range, u32::try_from(most).unwrap_or(u32::MAX).max(1));
    }

    /// The ports that the kernel gives to connections.
    pub(super) fn range(&self) -> (u16, u16) {
        self.ports.range
    }

    /// Begins to count subflows again: those that follow are all that there are.
    pub(super) fn clear(&mut self) {
        (self.all, self.by_rule, self.by_host) = Default::default();
    }

    /// Begins to count ports again.
    pub(super) fn clear_ports(&mut self) {
        self.ports.used.clear();
        self.ports.early.clear();
    }

    /// Counts a connection of any kind that takes a port of this host.
    pub(super) fn add_port(&mut self, local: SocketAddr) {
        if !self.ports.early.remove(&local) && (self.ports.range.0..=self.ports.range.1).contains(&local.port()) {
            add(&mut self.ports.used, local.ip());
        }
    }

    /// Counts a connection that is not established, and may turn out to be one that is managed: then it counts once.
    pub(super) fn add_early_port(&mut self, local: SocketAddr) {
        self.add_port(local);
        self.ports.early.insert(local);
    }

    /// Counts a subflow of a managed connection, but for its port.
    pub(super) fn add(&mut self, subflow: Counted) {
        self.all = self.all.saturating_add(1);
        add(&mut self.by_rule, subflow.rule);
        add(&mut self.by_host, (subflow.rule, subflow.remote));
    }

    /// Counts a subflow that is about to be, and its port.
    pub(super) fn add_new(&mut self, subflow: Counted) {
        self.add(subflow);
        add(&mut self.ports.used, subflow.local);
        self.ports.none_free.remove(&subflow.local);
    }

    /// Notes that a subflow ended.
    pub(super) fn remove(&mut self, subflow: Counted) {
        self.all = self.all.saturating_sub(1);
        remove(&mut self.by_rule, subflow.rule);
        remove(&mut self.by_host, (subflow.rule, subflow.remote));
    }

    /// Notes that an address has a port more; until the next list, one of which it is not known whether it is.
    pub(super) fn remove_port(&mut self, local: IpAddr) {
        remove(&mut self.ports.used, local);
    }

    /// Notes that the kernel found no port of an address free; returns when to try again.
    pub(super) fn no_port(&mut self, now: Time, local: IpAddr) -> Time {
        let known = self.ports.none_free.get(&local).map_or(NONE_FREE.0, |(_, next)| *next);
        let until = now + known;
        self.ports.none_free.insert(local, (until, (known * 2).min(NONE_FREE.1)));
        until
    }

    /// What prevents such a subflow now.
    pub(super) fn limit(&self, now: Time, rule: &Rule, subflow: Counted, limits: &LimitsConfig) -> Option<Limit> {
        let of_rule = self.by_rule.get(&subflow.rule).copied().unwrap_or_default();
        let of_host = self.by_host.get(&(subflow.rule, subflow.remote)).copied().unwrap_or_default();
        if self.all >= limits.subflows {
            Some(Limit::All)
        } else if rule.limit.is_some_and(|limit| of_rule >= limit) {
            Some(Limit::Rule)
        } else if rule.limit_per_host.is_some_and(|limit| of_host >= limit) {
            Some(Limit::Host)
        } else if !self.has_port(now, subflow.local) {
            Some(Limit::Ports)
        } else {
            None
        }
    }

    /// All subflows of managed connections.
    pub(super) fn all(&self) -> u32 {
        self.all
    }

    fn has_port(&self, now: Time, local: IpAddr) -> bool {
        let used = self.ports.used.get(&local).copied().unwrap_or_default();
        used < self.ports.most && self.ports.none_free.get(&local).is_none_or(|(until, _)| *until <= now)
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
}

fn remove<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
