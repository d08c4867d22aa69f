//! Source ports such that the subflows of a connection spread evenly over any number of paths.
//!
//! Edges put a subflow on path `hash % n` by the symmetric hash of `bpf/include/policy/flow_hash.h`. A host does not know
//! `n`. So a port is drawn among some candidates such that the subflows so far, and the new one, are as even as possible
//! for every `n` up to [`MOST_PATHS`] at once.

use std::net::{IpAddr, SocketAddr};

use sidestep_linux::mptcp::Ends;
use sidestep_policy::flow_hash::{FlowKey, Symmetry, hash, pick};

use crate::paths::mapped;

/// The most paths that ports are drawn for.
pub const MOST_PATHS: u32 = 32;
/// Candidates among which the best port is taken: with more, drawing takes longer, and spreads hardly better.
const CANDIDATES: usize = 64;

/// How many subflows each path has, for every number of paths from 2 to [`MOST_PATHS`].
#[derive(Clone, Debug)]
pub(super) struct Loads {
    /// The loads of `n` paths, one after the other, from `n = 2` on.
    counts: Vec<u16>,
    /// The seed of the edges' hash.
    seed: u32,
}

impl Loads {
    /// The loads of these subflows at edges whose hash has this seed.
    pub(super) fn of<'a>(subflows: impl IntoIterator<Item = &'a Ends>, seed: u32) -> Self {
        let mut loads = Loads { counts: vec![0; (2..=MOST_PATHS).sum::<u32>() as usize], seed };
        subflows.into_iter().for_each(|ends| loads.add(ends));
        loads
    }

    /// Counts a subflow.
    pub(super) fn add(&mut self, ends: &Ends) {
        for place in places(hash_of(ends, self.seed)) {
            if let Some(count) = self.counts.get_mut(place) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// How uneven a further subflow would be: the subflows that it would meet on its path, for each number of paths,
    /// weighted such that all numbers count alike.
    fn cost(&self, ends: &Ends) -> u32 {
        let met = places(hash_of(ends, self.seed)).zip(2..=MOST_PATHS);
        met.map(|(place, n)| u32::from(self.counts.get(place).copied().unwrap_or_default()) * n).sum()
    }

    /// The best port of `range` that `random` finds for a further subflow from `local` to `remote`.
    pub(super) fn best_port(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        range: (u16, u16),
        mut random: impl FnMut() -> u32,
    ) -> u16 {
        let width = u32::from(range.1.saturating_sub(range.0)) + 1;
        let mut best = (u32::MAX, range.0);
        for _ in 0..CANDIDATES {
            let port = u32::from(range.0) + random() % width;
            let port = u16::try_from(port).unwrap_or(range.1);
            let cost = self.cost(&Ends { local: SocketAddr::new(local, port), remote });
            best = best.min((cost, port));
        }
        best.1
    }
}

/// 32 bits (Steele, Lea and Flood, 2014: SplitMix64).
pub(super) fn draw(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 32) as u32
}

/// The place of a hash among the loads of each number of paths.
fn places(hash: u32) -> impl Iterator<Item = usize> {
    let mut first = 0;
    (2..=MOST_PATHS).map(move |n| {
        let place = first + pick(hash, n);
        first += n;
        place as usize
    })
}

/// The hash of a subflow by which edges choose its path.
pub fn hash_of(ends: &Ends, seed: u32) -> u32 {
    let key = FlowKey {
        source: mapped(ends.local.ip()),
        destination: mapped(ends.remote.ip()),
        source_port: ends.local.port(),
        destination_port: ends.remote.port(),
        protocol: libc::IPPROTO_TCP as u8,
        flow_label: 0,
    };
    hash(&key, seed, Symmetry::Symmetric)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: (u16, u16) = (32_768, 60_999);

    /// The ends of `k` subflows whose ports are chosen by `port`, the first at random.
    fn subflows(k: usize, seed: u64, stratified: bool) -> Vec<Ends> {
        let mut state = seed;
        let mut random = || draw(&mut state);
        let local: IpAddr = "fd02:0:1::1".parse().unwrap();
        let remote: SocketAddr = "[fd02:0:2::1]:443".parse().unwrap();
        let width = u32::from(RANGE.1 - RANGE.0) + 1;
        let mut found: Vec<Ends> = Vec::new();
        while found.len() < k {
            let port = if stratified && !found.is_empty() {
                Loads::of(&found, 7).best_port(local, remote, RANGE, &mut random)
            } else {
                RANGE.0 + (random() % width) as u16
            };
            let ends = Ends { local: SocketAddr::new(local, port), remote };
            if !found.contains(&ends) {
                found.push(ends);
            }
        }
        found
    }

    /// Paths without a subflow, and the largest load over the mean, on average over connections.
    fn unevenness(k: usize, n: u32, stratified: bool) -> (f64, f64) {
        let connections = 100;
        let (mut empty, mut largest) = (0.0, 0.0);
        for seed in 0..connections {
            let mut loads = vec![0; n as usize];
            for ends in subflows(k, seed, stratified) {
                loads[pick(hash_of(&ends, 7), n) as usize] += 1;
            }
            empty += loads.iter().filter(|load| **load == 0).count() as f64;
            largest += f64::from(*loads.iter().max().unwrap()) * f64::from(n) / k as f64;
        }
        (empty / f64::from(connections as u32), largest / f64::from(connections as u32))
    }

    #[test]
    fn stratified_ports_leave_fewer_paths_empty_and_less_loaded_than_random_ones() {
        for (k, n) in [(8, 2), (8, 4), (8, 8), (32, 4), (32, 8), (32, 16), (32, 32)] {
            let (random, stratified) = (unevenness(k, n, false), unevenness(k, n, true));
            println!(
                "K = {k}, {n} paths: random {:.2} empty, largest load {:.2}; stratified {:.2}, {:.2}",
                random.0, random.1, stratified.0, stratified.1
            );
            assert!(stratified.0 <= random.0 && stratified.1 < random.1, "K = {k}, n = {n}");
        }
        assert!(unevenness(32, 8, true).0 < 0.01, "no path is empty");
    }

    #[test]
    fn both_directions_of_a_subflow_have_one_hash() {
        let ends = subflows(1, 3, false)[0];
        assert_eq!(hash_of(&ends, 9), hash_of(&Ends { local: ends.remote, remote: ends.local }, 9));
        assert_ne!(hash_of(&ends, 9), hash_of(&ends, 10));
    }
}
