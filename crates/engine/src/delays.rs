//! Delays at random that hosts and links have in the lab. They follow from what is delayed, so that the order of events does not
//! matter.

use sidestep_net::Span;

/// Times in nanoseconds of which one is drawn, each with how often it or one before it occurs.
#[derive(Debug, Default)]
pub(super) struct Times(Box<[(u64, u64)]>);

impl Times {
    /// Of times and how often each occurs.
    pub(super) fn new(times: &[(Span, u64)]) -> Self {
        let mut count = 0;
        let counted = times.iter().map(|(time, often)| {
            count += often;
            (time.as_nanos(), count)
        });
        Times(counted.collect())
    }

    /// The one that a random number selects; nothing of none.
    pub(super) fn one(&self, random: u64) -> u64 {
        let count = self.0.last().map_or(0, |(_, count)| *count);
        let drawn = ((u128::from(random) * u128::from(count)) >> 64) as u64;
        self.0.get(self.0.partition_point(|(_, count)| *count <= drawn)).map_or(0, |(time, _)| *time)
    }
}

/// How much later than intended a host's `count`-th packet leaves, below `limit` nanoseconds: real hosts are never in
/// step, and simulated ones that are let one flow of many with equal round trips take everything. The seed is
/// [spread](spread) before, once.
#[inline]
pub(super) fn jitter(limit: u64, seed: u64, arc: u32, count: u32) -> u64 {
    if limit == 0 {
        return 0;
    }
    let random = spread(seed.wrapping_add(u64::from(arc) << 32 | u64::from(count)));
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// The finaliser of SplitMix64, which spreads neighbouring numbers.
#[inline]
pub(super) fn spread(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
