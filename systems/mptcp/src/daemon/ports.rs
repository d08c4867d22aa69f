//! Source ports such that the subflows of a connection spread evenly over any number of paths.
//!
//! Edges put a subflow on path `hash % n` by the symmetric hash of `crates/flow-hash/include/policy/flow_hash.h`. A host that does not know
//! `n` draws a port among some candidates such that the subflows so far, and the new one, are as even as possible for
//! every `n` up to [`MAX_PATHS`] at once. No ports are perfectly even for all of them: a hash has a remainder for each `n`, and
//! those cannot be chosen apart. For one `n` that is known they are.

use std::net::{IpAddr, SocketAddr};

use sidestep_flow_hash::{FlowKey, Symmetry, hash};
use sidestep_hostd::paths::mapped;
use sidestep_linux::mptcp::Ends;

/// The most paths that ports are drawn for.
pub const MAX_PATHS: u32 = 32;
/// Candidates among which the best port is taken. All 28,232 ports would halve the empty paths of 32 subflows on 32 paths once more,
/// for 27 times the time.
const CANDIDATES: usize = 1_024;
/// What a subflow on the same path of the known number of paths weighs, beside one of any other number: more than all of these
/// together.
const KNOWN: u32 = 1 << 20;

/// How many subflows each path has, for every number of paths from 2 to [`MAX_PATHS`].
#[derive(Clone, Debug)]
pub(super) struct Loads {
    /// The loads of `n` paths, one after the other, from `n = 2` on.
    counts: Vec<u16>,
    /// The seed of the edges' hash.
    seed: u32,
    /// The number of paths, where it is known.
    paths: Option<u32>,
}

impl Loads {
    /// The loads of these subflows at edges whose hash has this seed, and that have `paths` paths if that is known.
    pub(super) fn of<'a>(subflows: impl IntoIterator<Item = &'a Ends>, seed: u32, paths: Option<u32>) -> Self {
        let mut loads = Loads { counts: vec![0; (2..=MAX_PATHS).sum::<u32>() as usize], seed, paths };
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
    /// weighted such that all numbers count alike, and a known one more than all others.
    fn cost(&self, ends: &Ends) -> u32 {
        let met = places(hash_of(ends, self.seed)).zip(2..=MAX_PATHS);
        met.map(|(place, n)| u32::from(self.counts.get(place).copied().unwrap_or_default()) * self.weight(n)).sum()
    }

    fn weight(&self, n: u32) -> u32 {
        if self.paths == Some(n) { KNOWN } else { n }
    }

    /// What no further subflow can cost less than: it takes a path with least subflows for each number of paths.
    fn least_cost(&self) -> u32 {
        let (mut sum, mut counts) = (0, self.counts.iter());
        for n in 2..=MAX_PATHS {
            let least = counts.by_ref().take(n as usize).min().copied().unwrap_or_default();
            sum += u32::from(least) * self.weight(n);
        }
        sum
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
        let (least, mut best) = (self.least_cost(), (u32::MAX, range.0));
        for _ in 0..CANDIDATES {
            if best.0 <= least {
                break;
            }
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
    (2..=MAX_PATHS).map(move |n| {
        // The remainder, as `pick` has it, without a call for each.
        let place = first + hash % n;
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
    use sidestep_flow_hash::pick;

    use super::*;

    const RANGE: (u16, u16) = (32_768, 60_999);

    /// How the ports of a test's subflows are chosen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Choice {
        Random,
        /// For a known number of paths, or any.
        Stratified(Option<u32>),
    }

    /// The ends of `k` subflows, the first at random.
    fn subflows(k: usize, seed: u64, choice: Choice) -> Vec<Ends> {
        let mut state = seed;
        let mut random = || draw(&mut state);
        let local: IpAddr = "fd02:0:1::1".parse().unwrap();
        let remote: SocketAddr = "[fd02:0:2::1]:443".parse().unwrap();
        let width = u32::from(RANGE.1 - RANGE.0) + 1;
        let mut found: Vec<Ends> = Vec::new();
        while found.len() < k {
            let port = match choice {
                Choice::Stratified(paths) if !found.is_empty() => {
                    Loads::of(&found, 7, paths).best_port(local, remote, RANGE, &mut random)
                }
                _ => RANGE.0 + (random() % width) as u16,
            };
            let ends = Ends { local: SocketAddr::new(local, port), remote };
            if !found.contains(&ends) {
                found.push(ends);
            }
        }
        found
    }

    /// Connections over which means are taken.
    const CONNECTIONS: u64 = 50;

    /// Paths without a subflow, and the largest and the least load over the mean, on average over connections.
    fn unevenness(connections: &[Vec<Ends>], n: u32) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for subflows in connections {
            let mut loads = vec![0_u32; n as usize];
            subflows.iter().for_each(|ends| loads[pick(hash_of(ends, 7), n) as usize] += 1);
            let share = |load: u32| f64::from(load) * f64::from(n) / subflows.len() as f64;
            sums[0] += loads.iter().filter(|load| **load == 0).count() as f64;
            sums[1] += share(*loads.iter().max().unwrap());
            sums[2] += share(*loads.iter().min().unwrap());
        }
        sums.map(|sum| sum / connections.len() as f64)
    }

    fn connections(k: usize, choice: Choice) -> Vec<Vec<Ends>> {
        (0..CONNECTIONS).map(|seed| subflows(k, seed, choice)).collect()
    }

    #[test]
    fn stratified_ports_leave_fewer_paths_empty_and_less_loaded_than_random_ones_for_every_number_of_paths() {
        for k in [8, 16, 32] {
            let [random, any] = [Choice::Random, Choice::Stratified(None)].map(|choice| connections(k, choice));
            for n in 2..=MAX_PATHS {
                let [random, any] = [&random, &any].map(|all| unevenness(all, n));
                println!("| {k} | {n} | {:.2}, {:.2} | {:.2}, {:.2} |", random[0], random[1], any[0], any[1]);
                assert!(any[0] <= random[0] && any[1] < random[1], "K = {k}, n = {n}: {random:?}, {any:?}");
                let few = (k as u32 * 3) / 8;
                assert!(n > few || any[0] < 0.1, "no path is empty: K = {k}, n = {n}, {any:?}");
            }
        }
    }

    #[test]
    fn stratified_ports_for_a_known_number_of_paths_are_perfectly_even() {
        for (k, n) in [(8, 2), (8, 3), (8, 8), (16, 5), (16, 32), (32, 7), (32, 24), (32, 31), (32, 32)] {
            let known = unevenness(&connections(k, Choice::Stratified(Some(n))), n);
            let (most, least) = ((k as u32).div_ceil(n), k as u32 / n);
            let share = |load: u32| f64::from(load) * f64::from(n) / k as f64;
            let expected = [f64::from(n.saturating_sub(k as u32)), share(most), share(least)];
            assert!(known.iter().zip(expected).all(|(is, should)| (is - should).abs() < 1e-9), "{k}, {n}: {known:?}");
            // What else there may be, if a path goes.
            let [other, random] = [Choice::Stratified(Some(n)), Choice::Random]
                .map(|choice| unevenness(&connections(k, choice), n.saturating_sub(1).max(2)));
            assert!(other[1] < random[1], "K = {k}, n = {n} less one: {other:?}, {random:?}");
        }
    }

    #[test]
    #[ignore = "a measurement"]
    fn time_to_draw_the_ports_of_a_connection() {
        for k in [8, 32] {
            #[expect(clippy::disallowed_methods, reason = "it measures")]
            let start = std::time::Instant::now();
            connections(k, Choice::Stratified(None));
            println!("K = {k}: {:?} a connection", start.elapsed() / CONNECTIONS as u32);
        }
    }

    #[test]
    fn both_directions_of_a_subflow_have_one_hash() {
        let ends = subflows(1, 3, Choice::Random)[0];
        assert_eq!(hash_of(&ends, 9), hash_of(&Ends { local: ends.remote, remote: ends.local }, 9));
        assert_ne!(hash_of(&ends, 9), hash_of(&ends, 10));
    }
}
