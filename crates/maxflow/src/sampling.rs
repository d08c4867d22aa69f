//! Sampling of the pairs of routers that have heavy hitters: TCPPathChanger gives only their share.

use std::fmt;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_model::{NodeId, Ratio};

/// How pairs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sampling {
    /// The pairs of which the share is taken.
    pub pairs: Pairs,
    /// How it becomes a whole number.
    pub rounding: Rounding,
}

/// The pairs of which the share is taken, and the direction in which a pair sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pairs {
    /// Of ordered pairs.
    Ordered,
    /// Of unordered pairs, each of which sends in one direction.
    OneWay,
    /// Of unordered pairs, each of which sends in both directions.
    BothWays,
}

/// How the share becomes a whole number of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rounding {
    /// Rounds down, but to at least one pair.
    Floor,
    /// Rounds to the nearest number, but to at least one pair.
    Nearest,
    /// Rounds up.
    Ceil,
    /// Rounds down; a network without pairs is left out.
    FloorOrNone,
}

impl Sampling {
    /// All sensible combinations.
    pub fn all() -> impl Iterator<Item = Sampling> {
        const ROUNDINGS: [Rounding; 4] = [Rounding::Floor, Rounding::Nearest, Rounding::Ceil, Rounding::FloorOrNone];
        let pairs = [Pairs::Ordered, Pairs::OneWay, Pairs::BothWays];
        pairs.into_iter().flat_map(|pairs| ROUNDINGS.map(|rounding| Sampling { pairs, rounding }))
    }

    /// The number of pairs that is this share of all pairs between `routers` routers.
    pub fn count(&self, routers: usize, share: Ratio) -> usize {
        const ALL: u128 = 1_000_000_000;
        let billionths = self.pairs.candidates(routers) as u128 * u128::from(share.ppb());
        let count = match self.rounding {
            Rounding::Floor => (billionths / ALL).max(1),
            Rounding::Nearest => ((billionths + ALL / 2) / ALL).max(1),
            Rounding::Ceil => billionths.div_ceil(ALL),
            Rounding::FloorOrNone => billionths / ALL,
        };
        // No more than there are candidates.
        count as usize
    }
}

impl Pairs {
    fn candidates(self, routers: usize) -> usize {
        let ordered = routers * routers.saturating_sub(1);
        if self == Pairs::Ordered { ordered } else { ordered / 2 }
    }

    /// Draws `count` ordered pairs, source and destination: the first ones of a random order that the seed decides.
    pub fn draw(self, access: &[NodeId], count: usize, seed: u64) -> Vec<(NodeId, NodeId)> {
        let mut all = Vec::with_capacity(self.candidates(access.len()));
        for (index, one) in access.iter().enumerate() {
            all.extend(access[index + 1..].iter().map(|other| (*one, *other)));
            if self == Pairs::Ordered {
                all.extend(access[index + 1..].iter().map(|other| (*other, *one)));
            }
        }
        let mut random = Pcg32::seed_from_u64(seed);
        let count = count.min(all.len());
        for at in 0..count {
            // A draw from 2^64 numbers, so the bias is negligible.
            let step = (u128::from(random.next_u64()) * (all.len() - at) as u128) >> 64;
            all.swap(at, at + step as usize);
        }
        all.truncate(count);
        let turned = |(one, other): (NodeId, NodeId)| (other, one);
        match self {
            Pairs::Ordered => all,
            Pairs::OneWay => {
                all.into_iter().map(|pair| if random.next_u32() & 1 == 0 { pair } else { turned(pair) }).collect()
            }
            Pairs::BothWays => all.into_iter().flat_map(|pair| [pair, turned(pair)]).collect(),
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = match self.pairs {
            Pairs::Ordered => "ordered pairs",
            Pairs::OneWay => "unordered pairs, one way",
            Pairs::BothWays => "unordered pairs, both ways",
        };
        let rounding = match self.rounding {
            Rounding::Floor => "rounded down, at least one",
            Rounding::Nearest => "rounded, at least one",
            Rounding::Ceil => "rounded up",
            Rounding::FloorOrNone => "rounded down, none left out",
        };
        write!(f, "{pairs}, {rounding}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_differ_where_the_share_is_no_whole_number() {
        let counts = |routers, percent: u32| {
            let share = Ratio::from_ppb(percent * 10_000_000);
            Sampling::all().map(|rule| rule.count(routers, share)).collect::<Vec<_>>()
        };
        // 0.9 of 90 ordered pairs, 0.45 of 45 unordered ones.
        assert_eq!(counts(10, 1), [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0]);
        // 3.8 and 1.9.
        assert_eq!(counts(20, 1), [3, 4, 4, 3, 1, 2, 2, 1, 1, 2, 2, 1]);
        assert_eq!(counts(5, 50), [10, 10, 10, 10, 5, 5, 5, 5, 5, 5, 5, 5]);
    }

    #[test]
    fn pairs_are_drawn_once_each_and_by_the_seed() {
        let access: Vec<NodeId> = (0..7).map(NodeId).collect();
        for (pairs, sent) in [(Pairs::Ordered, 42), (Pairs::OneWay, 21), (Pairs::BothWays, 42)] {
            let mut all = pairs.draw(&access, 1000, 1);
            assert_eq!(pairs.draw(&access, 3, 1), pairs.draw(&access, 3, 1));
            assert_ne!(pairs.draw(&access, 9, 1), pairs.draw(&access, 9, 2));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), sent);
            assert!(all.iter().all(|(from, to)| from != to));
        }
    }
}
