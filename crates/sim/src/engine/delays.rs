//! Delays at random that hosts and links have in the lab. They follow from what is delayed, so that the order of events does not
//! matter.

use sidestep_model::{Span, Time};

use super::network::MAX_NANOS;

/// When a packet arrives on an arc that is due there at this time, where packets are late, each by one of `lateness`.
#[cold]
pub(super) fn late(due: u64, arc: u64, lateness: &[u64]) -> u64 {
    (due + one_of(lateness, spread(due ^ arc.rotate_left(48)))).min(MAX_NANOS)
}

/// How late, by one of `lateness`, a program is woken that was to be now, at this end of a flow.
pub(super) fn late_wakeup(now: Time, end: u32, chance: u64, lateness: &[Span]) -> Span {
    one_of(lateness, spread(chance ^ spread(now.as_nanos() ^ u64::from(end).rotate_left(32))))
}

/// The one of these that a random number says; nothing of none.
#[inline]
fn one_of<T: Copy + Default>(these: &[T], random: u64) -> T {
    let drawn = (u128::from(random) * these.len() as u128) >> 64;
    these.get(drawn as usize).copied().unwrap_or_default()
}

/// How much later than intended a host's `count`-th packet leaves, below `limit` nanoseconds: real hosts are never in
/// step, and simulated ones that are let one flow of many with equal round trips take everything.
#[inline]
pub(super) fn jitter(limit: u64, arc: u32, count: u32) -> u64 {
    if limit == 0 {
        return 0;
    }
    ((u128::from(spread(u64::from(arc) << 32 | u64::from(count))) * u128::from(limit)) >> 64) as u64
}

/// The finaliser of SplitMix64, which spreads neighbouring numbers.
#[inline]
fn spread(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
