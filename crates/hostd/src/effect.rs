//! Whether packets leave as a daemon has decided, which rules that are in place do not yet show.
//!
//! Each daemon names the packets that its rules are for. The kernel is asked about them after each change that may matter, and
//! now and then; what overrides a rule is logged once when it begins, and once when it has ended.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_linux::{
    effect::{Checker, Expected, Override, Part},
    netlink::{Family, FoundRoute, InterfaceAddress, Netlink, RoutingChange, RoutingRule, RuleVerdict},
};

use crate::AgentError;

/// Most packets that the kernel is asked about at once; the others have their turn the next time.
const MAX_ASKED: usize = 400;
/// Most of those that one cause overrides that are named in one line.
const MAX_NAMED: usize = 4;

/// Packets that do not leave as decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overridden {
    /// Which packets: `path blue to 10.2.0.0/16`, `the site to 0.0.0.0/0`, `probes of isp1`.
    pub what: String,
    /// Which of these, if not all.
    pub part: Option<String>,
    /// The interface by which they leave; `None`: they are refused, dropped, or taken for the host's own.
    pub leaves_by: Option<String>,
    /// The rule that comes before ours, as `ip rule` prints it; `None`: a route in our own table is preferred to ours.
    pub rule: Option<String>,
    /// The route by which they go, as `ip route` prints it.
    pub route: Option<String>,
    /// All of that in a sentence.
    pub why: String,
    /// What can be done about it.
    pub advice: String,
}

/// What packets of a path are called.
pub fn path_of(name: &str, destination: IpNet) -> String {
    format!("path {name} to {destination}")
}

/// Packets of which something is expected.
pub struct Watched {
    /// Which, for people.
    pub what: String,
    /// How they should leave.
    pub expected: Expected,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Effects {
    found: BTreeMap<String, Overridden>,
    /// Tables of others whose routes come before ours.
    tables: BTreeSet<u32>,
    /// Where to go on.
    next: usize,
}

impl Overridden {
    fn new(what: &str, found: &Override, option: &str) -> Self {
        Overridden {
            what: what.into(),
            part: (found.part != Part::All).then(|| found.part.to_string()),
            leaves_by: found.leaves_by.clone(),
            rule: found.rule.as_ref().map(ToString::to_string),
            route: found.route.clone(),
            why: format!("packets of {what} {found}"),
            advice: found.advice(option),
        }
    }

    /// Whether it is about the packets of a path.
    pub fn is_of_path(&self, name: &str, destination: IpNet) -> bool {
        self.what == path_of(name, destination)
    }

    /// Whether the same overrides both.
    fn is_like(&self, other: &Overridden) -> bool {
        (&self.part, &self.leaves_by, &self.rule, &self.route)
            == (&other.part, &other.leaves_by, &other.rule, &other.route)
    }
}

impl Effects {
    /// Those that do not leave as decided.
    pub fn found(&self) -> impl Iterator<Item = &Overridden> {
        self.found.values()
    }

    /// What overrides these packets.
    pub fn of(&self, what: &str) -> Option<&Overridden> {
        self.found.get(what)
    }

    /// Whether all packets of something are led elsewhere.
    pub fn is_any_whole(&self) -> bool {
        self.found.values().any(|one| one.part.is_none())
    }

    /// Whether a change may be one after which packets leave otherwise.
    pub fn concerns(&self, change: &RoutingChange) -> bool {
        matches!(change, RoutingChange::Route { route, .. } if !route.is_ours() && self.tables.contains(&route.table()))
    }

    /// Asks the kernel about these packets, and logs what has changed. `option` is how the priority of our rules is set.
    pub async fn look(
        &mut self,
        netlink: &Netlink,
        watched: impl AsyncFnOnce(&Checker<'_>) -> Result<Vec<Watched>, AgentError>,
        option: &str,
    ) -> Result<(), AgentError> {
        let before = self.found.clone();
        self.look_quietly(netlink, watched, option).await?;
        log_changes(&before, &self.found);
        Ok(())
    }

    /// Asks the kernel about these packets, and logs nothing.
    pub async fn look_quietly(
        &mut self,
        netlink: &Netlink,
        watched: impl AsyncFnOnce(&Checker<'_>) -> Result<Vec<Watched>, AgentError>,
        option: &str,
    ) -> Result<(), AgentError> {
        let mut checker = Checker::new(netlink).await?;
        let watched = watched(&checker).await?;
        self.tables = watched.iter().flat_map(|one| checker.tables_ahead(&one.expected)).collect();
        self.tables.extend(watched.iter().map(|one| one.expected.table));
        let is_there: BTreeSet<_> = watched.iter().map(|one| one.what.as_str()).collect();
        let mut now: BTreeMap<_, _> = self
            .found
            .iter()
            .filter(|(what, _)| is_there.contains(what.as_str()))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        let (count, mut fresh) = (watched.len(), BTreeSet::new());
        for step in 0..count {
            let Some(Watched { what, expected }) = watched.get((self.next + step) % count) else { break };
            if checker.asked() >= MAX_ASKED {
                self.next = (self.next + step) % count;
                break;
            }
            // Several may be about the same: the first that is overridden counts.
            if fresh.insert(what.as_str()) {
                now.remove(what);
            }
            if !now.contains_key(what)
                && let Some(found) = checker.check(expected).await?
            {
                now.insert(what.clone(), Overridden::new(what, &found, option));
            }
        }
        self.found = now;
        Ok(())
    }
}

/// Logs what has begun and what has ended, one line for each cause.
fn log_changes(before: &BTreeMap<String, Overridden>, now: &BTreeMap<String, Overridden>) {
    let is_new = |one: &&Overridden| before.get(&one.what).is_none_or(|before| !before.is_like(one));
    let mut begun: Vec<_> = now.values().filter(is_new).collect();
    while let Some(first) = begun.first().copied() {
        let (like, others): (Vec<_>, Vec<_>) = begun.into_iter().partition(|one| one.is_like(first));
        let also = named(like.iter().skip(1).map(|one| one.what.as_str()));
        let also = if also.is_empty() { also } else { format!("; likewise {also}") };
        tracing::warn!("{}{also}; {}", first.why, first.advice);
        begun = others;
    }
    let ended = named(before.keys().filter(|what| !now.contains_key(*what)).map(String::as_str));
    if !ended.is_empty() {
        tracing::info!("packets leave as decided again: {ended}");
    }
}

/// The first of some names, and how many others there are.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<_> = names.collect();
    let first = all.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    if all.len() > MAX_NAMED { format!("{first}, and {} more", all.len() - MAX_NAMED) } else { first }
}

/// A rule of ours, and a route of its table.
pub struct Led<'a> {
    /// The rule that decides.
    pub rule: &'a RoutingRule,
    /// The route that it leads to.
    pub route: &'a FoundRoute,
    /// Destinations within the route's that the table leads elsewhere.
    pub except: Vec<IpNet>,
}

impl Led<'_> {
    /// What is expected of packets that the rule is for and the route leads.
    pub fn expected(&self) -> Expected {
        Expected {
            destination: self.route.destination,
            except: self.except.clone(),
            sources: Vec::new(),
            mark: self.rule.mark.0,
            input: None,
            output: None,
            protocol: 0,
            hops: self.route.hops.clone(),
            by_table_only: self.route.encapsulates,
            table: self.route.table,
            priority: self.rule.priority,
        }
    }
}

/// The rules among these that are ours, each with each route of its table that leads somewhere.
pub fn led<'a>(
    rules: &'a [RoutingRule],
    routes: &'a [FoundRoute],
    is_ours: impl Fn(&RoutingRule) -> bool,
) -> Vec<Led<'a>> {
    let mut by_table: BTreeMap<u32, Vec<&FoundRoute>> = BTreeMap::new();
    for route in routes {
        by_table.entry(route.table).or_default().push(route);
    }
    let mut led = Vec::new();
    for rule in rules.iter().filter(|rule| rule.is_ours() && is_ours(rule)) {
        let RuleVerdict::Table(table) = rule.verdict else { continue };
        let all = by_table.get(&table).map(Vec::as_slice).unwrap_or_default();
        let family = |route: &FoundRoute| sidestep_linux::netlink::Family::of(route.destination);
        let destinations: BTreeSet<_> = all.iter().map(|route| route.destination).collect();
        for route in all.iter().filter(|route| route.kind.is_empty() && family(route) == rule.family) {
            led.push(Led { rule, route, except: within(&destinations, route.destination).collect() });
        }
    }
    led
}

/// Those prefixes that are parts of this one, and not all of it. None has host bits.
pub fn within(prefixes: &BTreeSet<IpNet>, net: IpNet) -> impl Iterator<Item = IpNet> {
    // Parts follow the whole in the order of prefixes.
    prefixes.range(net..).copied().take_while(move |other| net.contains(other)).filter(move |other| *other != net)
}

/// Notes that the kernel could not be asked: nothing else depends on it.
pub fn note(asked: Result<(), AgentError>) {
    if let Err(error) = asked {
        tracing::warn!(%error, "whether packets leave as decided cannot be seen now");
    }
}

/// How the priority of the rules is set.
pub const OPTION: &str = "--rule-priority";

/// The subnets of an interface.
pub fn subnets(addresses: &[InterfaceAddress], interface: u32, family: Family) -> Vec<IpNet> {
    let of = addresses.iter().filter(|one| one.interface == interface && Family::of(one.address) == family);
    let nets: BTreeSet<_> = of.map(|one| one.address.trunc()).collect();
    nets.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn parts_of_a_prefix_are_found_among_many() {
        let all: BTreeSet<_> =
            ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.2.0.0/16", "11.0.0.0/8", "::/0", "fd00::/8"].map(net).into();
        let of = |text: &str| within(&all, net(text)).collect::<Vec<_>>();
        assert_eq!(of("10.0.0.0/8"), ["10.0.0.0/24", "10.2.0.0/16"].map(net));
        assert_eq!(of("::/0"), [net("fd00::/8")]);
        assert_eq!((of("0.0.0.0/0").len(), of("10.2.0.0/16").len()), (4, 0));
    }

    #[test]
    fn many_names_are_cut_short() {
        assert_eq!(named(["a", "b"].into_iter()), "a, b");
        assert_eq!(named(["a", "b", "c", "d", "e", "f"].into_iter()), "a, b, c, d, and 2 more");
    }
}
