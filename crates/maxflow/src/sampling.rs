//! Sampling of the pairs of routers that have heavy hitters: TCPPathChanger gives only their share.

use std::fmt;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_net::{NodeId, Ratio};

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

impl Sampling {
    /// Every choice of `count` of the pairs between these routers; `None` if there are more than `limit`, or none.
    ///
    /// Where pairs send in one direction, each choice is there with each direction of each pair.
    pub fn choices(&self, access: &[NodeId], count: usize, limit: usize) -> Option<Vec<Vec<(NodeId, NodeId)>>> {
        let all = self.pairs.all(access);
        let count = count.min(all.len());
        // There are at least as many choices as 2 to the number of pairs that are chosen, or left.
        if count == 0 || count.min(all.len() - count) > limit.ilog2() as usize {
            return None;
        }
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for place in 0..count {
            let longer = |choice: Vec<usize>| {
                let from = choice.last().map_or(0, |last| last + 1);
                let until = all.len() + place + 1 - count;
                (from..until).map(move |next| choice.iter().copied().chain([next]).collect::<Vec<usize>>())
            };
            choices = choices.into_iter().flat_map(longer).take(limit + 1).collect();
            if place + 1 < count && choices.len() > limit {
                return None;
            }
        }
        let ways = if self.pairs == Pairs::OneWay { 1_usize.checked_shl(count as u32)? } else { 1 };
        if choices.len().checked_mul(ways).is_none_or(|number| number > limit) {
            return None;
        }
        let send = |choice: &[usize], ways: usize| {
            let pairs: Vec<_> = choice.iter().map(|index| all[*index]).collect();
            match self.pairs {
                Pairs::Ordered => pairs,
                Pairs::BothWays => pairs.into_iter().flat_map(|pair| [pair, turned(pair)]).collect(),
                Pairs::OneWay => {
                    let way = |(place, pair)| if ways >> place & 1 == 0 { pair } else { turned(pair) };
                    pairs.into_iter().enumerate().map(way).collect()
                }
            }
        };
        Some(choices.iter().flat_map(|choice| (0..ways).map(|ways| send(choice, ways))).collect())
    }
}

fn turned((one, other): (NodeId, NodeId)) -> (NodeId, NodeId) {
    (other, one)
}

impl Pairs {
    /// How many pairs there are between this many routers.
    pub fn candidates(self, routers: usize) -> usize {
        let ordered = routers * routers.saturating_sub(1);
        if self == Pairs::Ordered { ordered } else { ordered / 2 }
    }

    /// The pair that a sender and a receiver are of.
    pub fn unordered(self, from: NodeId, to: NodeId) -> (NodeId, NodeId) {
        if self == Pairs::Ordered { (from, to) } else { (from.min(to), from.max(to)) }
    }

    fn all(self, access: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let mut all = Vec::with_capacity(self.candidates(access.len()));
        for (index, one) in access.iter().enumerate() {
            all.extend(access[index + 1..].iter().map(|other| (*one, *other)));
            if self == Pairs::Ordered {
                all.extend(access[index + 1..].iter().map(|other| (*other, *one)));
            }
        }
        all
    }

    /// Draws `count` ordered pairs, source and destination: the first ones of a random order that the seed decides.
    pub fn draw(self, access: &[NodeId], count: usize, seed: u64) -> Vec<(NodeId, NodeId)> {
        let mut all = self.all(access);
        let mut random = Pcg32::seed_from_u64(seed);
        let count = count.min(all.len());
        for at in 0..count {
            // A draw from 2^64 numbers, so the bias is negligible.
            let step = (u128::from(random.next_u64()) * (all.len() - at) as u128) >> 64;
            all.swap(at, at + step as usize);
        }
        all.truncate(count);
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
    fn choices_are_all_there_are_each_once_or_too_many() {
        let access: Vec<NodeId> = (0..4).map(NodeId).collect();
        let number = |pairs, count, limit| {
            let choices = Sampling { pairs, rounding: Rounding::Ceil }.choices(&access, count, limit)?;
            let mut sorted: Vec<Vec<_>> = choices
                .into_iter()
                .map(|mut choice| {
                    choice.sort_unstable();
                    choice
                })
                .collect();
            let sent = sorted.first().map_or(0, Vec::len);
            sorted.sort_unstable();
            sorted.dedup();
            Some((sorted.len(), sent))
        };
        // 6 pairs, 12 ordered ones: binomial coefficients, times 2 to the number that send in one direction.
        assert_eq!(number(Pairs::BothWays, 2, 256), Some((15, 4)));
        assert_eq!(number(Pairs::BothWays, 6, 256), Some((1, 12)));
        assert_eq!(number(Pairs::OneWay, 1, 256), Some((12, 1)));
        assert_eq!(number(Pairs::OneWay, 2, 60), Some((60, 2)));
        assert_eq!(number(Pairs::OneWay, 2, 59), None);
        assert_eq!(number(Pairs::Ordered, 2, 256), Some((66, 2)));
        assert_eq!([number(Pairs::Ordered, 6, 256), number(Pairs::BothWays, 0, 256)], [None, None]);
        let many: Vec<NodeId> = (0..2000).map(NodeId).collect();
        assert!(Sampling { pairs: Pairs::OneWay, rounding: Rounding::Ceil }.choices(&many, 1000, 256).is_none());
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
