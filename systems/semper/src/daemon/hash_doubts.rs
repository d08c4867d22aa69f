//! What is doubtful about how the edge's hash spreads flows: another router before this one may have chosen by the same hash.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_hostd::{AgentError, paths::StaticPath};

use super::{EdgeConfig, probes::Sites};
use crate::daemon::balancer::Balancer;

/// What is doubtful about the hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum HashDoubt {
    /// The seed is 0, which other edges may have as well.
    CommonSeed,
    /// Live paths get no flow, although others get many.
    Idle {
        /// The destinations; of several it is not known which one the flows were to.
        prefixes: Vec<IpNet>,
        /// The paths that get none.
        idle: Vec<String>,
        /// How many paths are live.
        live: usize,
        /// About how many flows the destinations had meanwhile.
        flows: u32,
    },
}

/// A path, as far as it matters here.
#[derive(Clone, Debug)]
struct Share {
    name: String,
    slot: u32,
    weight: u64,
}

/// How long flows are noted before they are noted again.
const WINDOW: Duration = Duration::from_secs(60);
/// How many flows a path that gets none should have had: by chance it has none with a probability of e⁻²⁰.
const EXPECTED: f64 = 20.0;

/// The flows of a while in which no path came or died.
#[derive(Debug)]
struct Window {
    began: Instant,
    /// The live paths of each destination.
    live: BTreeMap<IpNet, Vec<(String, u32)>>,
}

impl Window {
    fn new() -> Self {
        Window { began: Instant::now(), live: BTreeMap::new() }
    }
}

impl HashDoubt {
    /// What is doubtful about a seed by itself.
    pub fn of_seed(seed: u32) -> Option<Self> {
        (seed == 0).then_some(HashDoubt::CommonSeed)
    }

    /// Whether both mean the same, whatever their numbers.
    fn is_like(&self, other: &HashDoubt) -> bool {
        match (self, other) {
            (HashDoubt::Idle { prefixes, idle, .. }, HashDoubt::Idle { prefixes: other, idle: others, .. }) => {
                (prefixes, idle) == (other, others)
            }
            _ => self == other,
        }
    }
}

/// How flows have been spread recently, and what is doubtful about it.
#[derive(Debug)]
pub(super) struct Spread {
    window: Window,
    doubts: Vec<HashDoubt>,
}

impl Spread {
    /// Nothing was seen yet.
    pub(super) fn new() -> Self {
        Spread { window: Window::new(), doubts: Vec::new() }
    }

    /// What is doubtful now.
    pub(super) fn doubts(&self) -> &[HashDoubt] {
        &self.doubts
    }

    /// Looks how flows are spread, and reports what is doubtful about it when that changes.
    pub(super) fn doubt(
        &mut self,
        balancer: &mut Balancer,
        config: &EdgeConfig,
        sites: &Sites,
    ) -> Result<(), AgentError> {
        let shares = shares_of(config, sites);
        let live: BTreeMap<_, Vec<_>> = shares
            .iter()
            .map(|(prefix, shares)| (*prefix, shares.iter().map(|share| (share.name.clone(), share.slot)).collect()))
            .collect();
        if self.window.live != live || self.window.began.elapsed() >= WINDOW {
            self.window = Window { began: Instant::now(), live };
            balancer.forget_seen()?;
            return Ok(());
        }
        let seen = balancer.seen()?;
        let mut doubts = doubts_of(&shares, &seen);
        doubts.extend(HashDoubt::of_seed(config.edge.seed));
        for doubt in doubts.iter().filter(|doubt| !self.doubts.iter().any(|said| said.is_like(doubt))) {
            tracing::warn!("{doubt}");
        }
        // What was seen stays true until these paths have a flow, or others are live.
        let is_new = |known: &&HashDoubt| !doubts.iter().any(|doubt| doubt.is_like(known));
        let kept: Vec<_> =
            self.doubts.iter().filter(is_new).filter(|known| still_idle(known, &shares, &seen)).cloned().collect();
        doubts.extend(kept);
        self.doubts = doubts;
        Ok(())
    }
}

/// The live paths of each destination that can be judged: flows are noted by slot, so it shares its slots with none, or with
/// destinations that have the same live ones.
fn shares_of(config: &EdgeConfig, sites: &Sites) -> BTreeMap<IpNet, Vec<Share>> {
    let mut shares = BTreeMap::new();
    for set in &config.destinations {
        let Some(site) = sites.get(&set.prefix).and_then(Option::as_ref) else { continue };
        let weights = config.balanced(set).into_iter().map(|one| one.weight);
        let paths = set.paths.iter().zip(weights).zip(&site.slots).enumerate();
        let live = paths.filter(|(position, (_, slot))| site.live >> position & 1 == 1 && **slot > 0);
        let share = |(_, ((path, weight), slot)): (usize, ((&StaticPath, u64), &u8))| Share {
            name: path.name.clone().unwrap_or_default(),
            slot: u32::from(*slot),
            weight,
        };
        shares.insert(set.prefix, live.map(share).collect());
    }
    keep_comparable(&mut shares);
    shares
}

/// Leaves out destinations that share a slot with one whose live slots are others.
fn keep_comparable(shares: &mut BTreeMap<IpNet, Vec<Share>>) {
    let slots = |shares: &Vec<Share>| shares.iter().map(|share| share.slot).collect::<BTreeSet<u32>>();
    let all: Vec<BTreeSet<u32>> = shares.values().map(slots).collect();
    shares.retain(|_, one| {
        let own = slots(one);
        all.iter().all(|other| *other == own || other.is_disjoint(&own))
    });
}

/// Which paths get no flow by more than chance.
fn doubts_of(shares: &BTreeMap<IpNet, Vec<Share>>, seen: &BTreeMap<u32, u32>) -> Vec<HashDoubt> {
    // Destinations with the same slots are judged together.
    let mut sets: BTreeMap<Vec<u32>, (&Vec<Share>, Vec<IpNet>)> = BTreeMap::new();
    for (prefix, shares) in shares {
        let mut slots: Vec<u32> = shares.iter().map(|share| share.slot).collect();
        slots.sort_unstable();
        sets.entry(slots).or_insert_with(|| (shares, Vec::new())).1.push(*prefix);
    }
    let flows_on = |share: &Share| seen.get(&share.slot).copied().unwrap_or_default();
    let doubt = |(shares, prefixes): (&Vec<Share>, Vec<IpNet>)| {
        let flows: u32 = shares.iter().map(flows_on).sum();
        let weights: f64 = shares.iter().map(|share| share.weight as f64).sum();
        let should = |share: &Share| f64::from(flows) * share.weight as f64 / weights.max(1.0);
        let idle: Vec<String> = shares
            .iter()
            .filter(|share| flows_on(share) == 0 && should(share) >= EXPECTED)
            .map(|share| share.name.clone())
            .collect();
        (!idle.is_empty()).then_some(HashDoubt::Idle { prefixes, idle, live: shares.len(), flows })
    };
    sets.into_values().filter_map(doubt).collect()
}

/// Whether the paths of a doubt are live and have had no flow since.
fn still_idle(doubt: &HashDoubt, shares: &BTreeMap<IpNet, Vec<Share>>, seen: &BTreeMap<u32, u32>) -> bool {
    let HashDoubt::Idle { prefixes, idle, .. } = doubt else { return false };
    let of = |prefix: &IpNet, name: &String| shares.get(prefix)?.iter().find(|share| share.name == *name);
    let is_idle = |prefix: &IpNet, name| of(prefix, name).is_some_and(|share| !seen.contains_key(&share.slot));
    prefixes.iter().all(|prefix| idle.iter().all(|name| is_idle(prefix, name)))
}

impl fmt::Display for HashDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashDoubt::CommonSeed => f.write_str(
                "the edge's hash has the seed 0, as other edges may have: of two such edges behind each other the second uses a \
                 part of its paths only; give both edges of this pair the same `seed`, and other pairs another one",
            ),
            HashDoubt::Idle { prefixes, idle, live, flows } => {
                let prefixes: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "of about {flows} flows to {} none took {}, {} of {live} live paths: a router before this one seems to \
                     choose by the same hash; give this edge, and the one at the other end, another `seed` than that router's",
                    prefixes.join(" and "),
                    idle.join(", "),
                    idle.len()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weights: &[u64]) -> BTreeMap<IpNet, Vec<Share>> {
        let share = |(slot, weight): (u32, &u64)| Share { name: format!("p{slot}"), slot, weight: *weight };
        BTreeMap::from([("10.2.0.0/16".parse().unwrap(), (1..).zip(weights).map(share).collect())])
    }

    fn idle(weights: &[u64], seen: &[u32]) -> Vec<String> {
        let seen = (1..).zip(seen.iter().copied()).filter(|(_, flows)| *flows > 0).collect();
        let doubts = doubts_of(&shares(weights), &seen);
        let text: Vec<_> = doubts.iter().map(ToString::to_string).collect();
        doubts
            .iter()
            .flat_map(|doubt| match doubt {
                HashDoubt::Idle { idle, .. } => idle.clone(),
                HashDoubt::CommonSeed => panic!("{text:?}"),
            })
            .collect()
    }

    #[test]
    fn paths_that_get_no_flow_are_named_and_only_where_chance_cannot_explain_it() {
        assert_eq!(idle(&[1, 1], &[200, 0]), ["p2"]);
        assert_eq!(idle(&[1, 1, 1, 1], &[100, 0, 100, 0]), ["p2", "p4"]);
        assert!(idle(&[1, 1], &[39, 0]).is_empty(), "19.5 flows were to be expected");
        assert!(idle(&[1, 1], &[200, 1]).is_empty());
        assert!(idle(&[1], &[200]).is_empty() && idle(&[], &[]).is_empty());
        assert!(idle(&[1000, 1], &[200, 0]).is_empty(), "one in a thousand");
        assert_eq!(idle(&[3, 1], &[200, 0]), ["p2"]);
        let said = HashDoubt::Idle {
            prefixes: vec!["10.2.0.0/16".parse().unwrap()],
            idle: vec!["p1".into()],
            live: 2,
            flows: 400,
        };
        assert!(
            said.to_string().starts_with("of about 400 flows to 10.2.0.0/16 none took p1, 1 of 2 live paths"),
            "{said}"
        );
        let more = HashDoubt::Idle {
            prefixes: vec!["10.2.0.0/16".parse().unwrap()],
            idle: vec!["p1".into()],
            live: 2,
            flows: 900,
        };
        assert!(said.is_like(&more) && !said.is_like(&HashDoubt::CommonSeed));
    }

    #[test]
    fn destinations_that_share_slots_are_judged_if_they_have_the_same_ones() {
        let of = |slots: &[u32]| {
            let share = |slot: &u32| Share { name: format!("p{slot}"), slot: *slot, weight: 1 };
            slots.iter().map(share).collect::<Vec<_>>()
        };
        let judged = |destinations: &[&[u32]]| {
            let prefix = |n: u8| IpNet::new([10, n, 0, 0].into(), 16).unwrap();
            let mut shares = (0..).map(prefix).zip(destinations.iter().map(|slots| of(slots))).collect();
            keep_comparable(&mut shares);
            shares.len()
        };
        assert_eq!(judged(&[&[1, 2], &[2, 1], &[3]]), 3);
        assert_eq!(judged(&[&[1, 2], &[1], &[3, 4]]), 1, "what goes by slot 1 may be of the second alone");
    }

    #[test]
    fn a_doubt_lasts_until_its_paths_get_a_flow_or_die() {
        let doubt = HashDoubt::Idle {
            prefixes: vec!["10.2.0.0/16".parse().unwrap()],
            idle: vec!["p2".into()],
            live: 2,
            flows: 99,
        };
        let seen = |flows: &[(u32, u32)]| flows.iter().copied().collect();
        assert!(still_idle(&doubt, &shares(&[1, 1]), &seen(&[(1, 3)])));
        assert!(!still_idle(&doubt, &shares(&[1, 1]), &seen(&[(1, 3), (2, 1)])));
        assert!(!still_idle(&doubt, &shares(&[1]), &seen(&[(1, 3)])));
    }
}
