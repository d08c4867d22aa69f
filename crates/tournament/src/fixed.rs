//! Fixed assignments: each connection keeps the path that it is given when it opens.
//!
//! The best of them is what a policy's regret is measured against. An assignment sets which paths are used at all, and
//! in what shares. Paths that it does not use are taken out of the scenario's network.

use std::collections::BTreeSet;

use sidestep_net::{NamedPath, ParseError, Rate, Span, Topology};
use sidestep_scenario::{Scenario, SystemError, SystemSpec};
use toml::{Table, Value};

use crate::variant::edited;

/// Up to this number of paths every set of them is tried.
const ALL_SETS: usize = 3;

/// Some of a scenario's paths, and how connections are spread over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// By path of the topology, whether it is used.
    used: Vec<bool>,
    pub(crate) shares: Shares,
}

/// How connections are spread over the paths of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shares {
    /// All paths are equally likely.
    Even,
    /// Paths are as likely as they are fast.
    Capacity,
}

/// The assignments that are tried in a scenario.
///
/// With up to three paths these are all sets of paths; with more, the *k* fastest and the *k* nearest, for each *k*. Each
/// set comes with even shares and, if its paths differ in rate, with shares by rate.
pub(crate) fn assignments(topology: &Topology) -> Vec<Assignment> {
    let paths = topology.paths();
    let count = paths.len();
    let mut sets: BTreeSet<Vec<bool>> = BTreeSet::new();
    if count <= ALL_SETS {
        sets.extend((1..1u32 << count).map(|set| (0..count).map(|path| set >> path & 1 == 1).collect()));
    } else {
        let mut fastest: Vec<usize> = (0..count).collect();
        let mut nearest = fastest.clone();
        fastest.sort_by_key(|path| std::cmp::Reverse(rate(topology, &paths[*path])));
        nearest.sort_by_key(|path| delay(topology, &paths[*path]));
        for order in [fastest, nearest] {
            sets.extend((1..=count).map(|k| {
                let best: BTreeSet<_> = order.iter().take(k).collect();
                (0..count).map(|path| best.contains(&path)).collect()
            }));
        }
    }
    let with_shares = |used: Vec<bool>| {
        let rates: BTreeSet<Rate> =
            paths.iter().zip(&used).filter(|(_, used)| **used).map(|(path, _)| rate(topology, path)).collect();
        let by_rate = (rates.len() > 1).then(|| Assignment { used: used.clone(), shares: Shares::Capacity });
        std::iter::once(Assignment { used, shares: Shares::Even }).chain(by_rate)
    };
    sets.into_iter().flat_map(with_shares).collect()
}

impl Assignment {
    /// The system that keeps each connection on the path that it draws first.
    pub(crate) fn system(&self) -> Result<SystemSpec, SystemError> {
        let initial = match self.shares {
            Shares::Even => "even",
            Shares::Capacity => "capacity",
        };
        format!("pathchanger:policy=fixed,initial={initial}").parse()
    }

    /// The scenario without the paths that are not used: each loses its first link.
    ///
    /// Cross-traffic that enters further on still has its path.
    pub(crate) fn scenario(&self, scenario: &Scenario) -> Result<Scenario, ParseError> {
        let topology = &scenario.topology;
        let unused = || topology.paths().iter().zip(&self.used).filter(|(_, used)| !**used).map(|(path, _)| path);
        let first = |path: &NamedPath| path.links.first().map(|link| topology.link(*link).name.as_str());
        let links: BTreeSet<&str> = unused().filter_map(first).collect();
        let paths: BTreeSet<&str> = unused().map(|path| path.name.as_str()).collect();
        edited(scenario, |file| {
            if let Some(Value::Table(network)) = file.get_mut("topology") {
                retain(network, "link", |link| !named(link, &links));
                retain(network, "path", |path| !named(path, &paths));
            }
            for list in ["event", "impairment"] {
                retain(file, list, |one| without(one, &links));
            }
        })
    }

    /// The assignment in words, such as `path-1 and path-3, by rate`.
    pub(crate) fn words(&self, topology: &Topology) -> String {
        let names: Vec<&str> = topology
            .paths()
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| **used)
            .map(|(path, _)| path.name.as_str())
            .collect();
        let paths = match &names[..] {
            names if names.len() == self.used.len() => format!("all {} paths", names.len()),
            [alone] => (*alone).to_owned(),
            [others @ .., last] => format!("{} and {last}", others.join(", ")),
            [] => String::new(),
        };
        match (self.shares, names.len()) {
            (_, 1) => paths,
            (Shares::Even, _) => format!("{paths}, evenly"),
            (Shares::Capacity, _) => format!("{paths}, by rate"),
        }
    }
}

/// The lowest rate on the path.
fn rate(topology: &Topology, path: &NamedPath) -> Rate {
    path.links.iter().map(|link| topology.link(*link).ab.rate).min().unwrap_or_default()
}

/// The delay of its links.
fn delay(topology: &Topology, path: &NamedPath) -> Span {
    path.links.iter().map(|link| topology.link(*link).ab.delay).fold(Span::ZERO, |sum, delay| sum + delay)
}

fn retain(table: &mut Table, list: &str, keep: impl FnMut(&mut Value) -> bool) {
    if let Some(Value::Array(list)) = table.get_mut(list) {
        list.retain_mut(keep);
    }
}

fn named(value: &Value, names: &BTreeSet<&str>) -> bool {
    value.get("name").and_then(Value::as_str).is_some_and(|name| names.contains(name))
}

/// Takes links out of an event; returns whether any are left.
fn without(event: &mut Value, links: &BTreeSet<&str>) -> bool {
    let Some(list) = event.get_mut("link") else { return true };
    match list {
        Value::String(link) => !links.contains(link.as_str()),
        Value::Array(list) => {
            list.retain(|link| link.as_str().is_none_or(|link| !links.contains(link)));
            !list.is_empty()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn scenario(name: &str) -> Scenario {
        cases().find(|case| case.name == name).unwrap().scenario()
    }

    #[test]
    fn up_to_three_paths_every_set_is_tried_with_shares_by_rate_where_rates_differ() {
        let count = |name| assignments(&scenario(name).topology).len();
        assert_eq!(count("equal-long"), 7);
        // Seven sets, of which four have paths of several rates.
        assert_eq!(count("unequal-50-10-5-closed"), 11);
        assert_eq!(count("paths-6-long"), 6);
        // Four transits of 30, 20, 20 and 10 Mbit/s: the fastest are the nearest.
        assert_eq!(count("provider-day"), 7);
    }

    #[test]
    fn an_unused_path_is_gone_with_what_happens_to_it_and_all_else_stays() {
        for case in cases() {
            let whole = case.scenario();
            for assignment in assignments(&whole.topology) {
                let part = assignment.scenario(&whole).unwrap();
                let used = assignment.used.iter().filter(|used| **used).count();
                let gone = whole.topology.paths().len() - used;
                assert_eq!(part.topology.paths().len(), used, "{}", case.name);
                assert_eq!(part.topology.links().len() + gone, whole.topology.links().len(), "{}", case.name);
                assert_eq!((&part.flows, &part.tcp, part.duration), (&whole.flows, &whole.tcp, whole.duration));
                assert!(assignment.scenario(&whole).is_ok());
            }
        }
        let whole = scenario("silent-default-long");
        let without_first = assignments(&whole.topology).into_iter().find(|one| !one.used[0]).unwrap();
        let left = without_first.scenario(&whole).unwrap();
        let touched: usize = left.events.iter().map(|event| event.links.len()).sum();
        assert_eq!((left.events.len(), touched), (2, 2));
    }

    #[test]
    fn an_assignment_is_put_into_words() {
        let topology = scenario("unequal-50-10-5-closed").topology;
        let words: Vec<String> = assignments(&topology).iter().map(|one| one.words(&topology)).collect();
        for expected in ["path-1", "path-2 and path-3, evenly", "path-1 and path-3, by rate", "all 3 paths, by rate"] {
            assert!(words.iter().any(|words| words == expected), "no {expected} in {words:?}");
        }
    }
}
