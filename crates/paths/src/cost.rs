//! What a path costs, such that of two paths one is always the better.

use std::ops::Add;

/// The sum of a path's IGP weights; of equally heavy paths, one is told from the other by the sum of what is each link's
/// own.
///
/// So which of two paths is cheaper depends on nothing but the two. (Sums of different links' numbers of 44 bits can be
/// equal, but hardly ever are.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    weight: u64,
    /// The sum of the links' own numbers.
    own: u64,
}

impl Cost {
    pub(crate) const ZERO: Cost = Cost { weight: 0, own: 0 };
    /// That of no path.
    pub(crate) const MAX: Cost = Cost { weight: u64::MAX, own: u64::MAX };

    /// Of a link with this weight and this number of its [`own`].
    pub(crate) fn of(weight: u32, own: u64) -> Cost {
        // A path has less than 2²⁰ links, so that these numbers can be added up.
        Cost { weight: weight.into(), own: own >> 20 }
    }

    /// The least that a path of this weight can cost.
    pub(crate) fn at_least(weight: u64) -> Cost {
        Cost { weight, own: 0 }
    }

    /// Somewhat more.
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

/// A link's own number; those of neighbouring links are unlike. (SplitMix64's output function, Steele and others 2014.)
pub(crate) fn own(link: u32) -> u64 {
    let mut z = u64::from(link).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
