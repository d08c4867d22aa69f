//! Costs of paths, chosen so that two paths (almost) never cost the same.

use std::ops::Add;

/// The cost of a path: the sum of its IGP weights, and a tie-breaker, the sum of its links' own numbers.
///
/// So which of two paths is cheaper depends on these two paths alone. (The numbers have 44 bits. Two sums of different
/// links' numbers can be equal, but hardly ever are.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    weight: u64,
    /// The sum of the links' own numbers.
    own: u64,
}

impl Cost {
    pub(crate) const ZERO: Cost = Cost { weight: 0, own: 0 };
    /// The cost where there is no path.
    pub(crate) const MAX: Cost = Cost { weight: u64::MAX, own: u64::MAX };

    /// The cost of a link with this weight and this [`own`] number.
    pub(crate) fn of(weight: u64, own: u64) -> Cost {
        // A path has fewer than 2²⁰ links, so sums of these numbers do not overflow.
        Cost { weight, own: own >> 20 }
    }

    /// The least that a path of this weight can cost.
    pub(crate) fn at_least(weight: u64) -> Cost {
        Cost { weight, own: 0 }
    }

    /// A cost somewhat above this one.
    pub(crate) fn further(self) -> Cost {
        Cost { weight: self.weight.saturating_add(self.weight / 8 + 1), own: 0 }
    }
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost { weight: self.weight + other.weight, own: self.own + other.own }
    }
}

/// A link's own number. Numbers of neighbouring ids are unlike (SplitMix64's output function, Steele and others 2014).
pub(crate) fn own(link: u32) -> u64 {
    let mut z = u64::from(link).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
