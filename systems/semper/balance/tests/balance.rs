//! The edges' balancer: that both directions take one path, how evenly flows spread, and which of them move when the
//! set of paths changes.

#[path = "../../../../crates/flow-hash/tests/common/flows.rs"]
mod flows;

use proptest::prelude::*;
use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_balance::{ALL_LIVE, Agreement, BalanceError, BalanceMode, Balanced, MAX_PATHS, PathSet};
use sidestep_flow_hash::FlowKey;

use flows::{FAR, any_key, deviation, families};

const EQUAL: u64 = 50_000_000;

#[test]
fn both_directions_of_a_million_flows_take_the_same_path() {
    let mut random = Pcg32::new(1, 1);
    for number in 0..1_000_000_u32 {
        let mut flow = any_key(&mut random);
        if number.is_multiple_of(8) {
            flow.destination = (flow.source.to_bits() ^ 1 << (number / 8 % 128)).into();
        }
        // The two directions have different labels.
        let back = FlowKey { flow_label: random.next_u32() >> 12, ..flow.reversed() };
        let mode = BalanceMode::ALL[number as usize % 3];
        let set = equal(mode, 2 + number / 3 % 31);
        let live = random.next_u32() | random.next_u32();
        assert_eq!(set.choose(live, &flow), set.choose(live, &back), "{mode:?} {flow:?}");
    }
}

#[test]
fn every_mode_spreads_every_family_of_flows_evenly_over_2_to_32_paths() {
    // The label is left out of the hash.
    for (name, family) in families().into_iter().filter(|(name, _)| !name.contains("label")) {
        for mode in BalanceMode::ALL {
            // Modulo looks at no path's number, and is ten times as fast.
            let family = if mode == BalanceMode::Modulo { &family[..] } else { &family[..8_000] };
            for n in 2..=MAX_PATHS as u32 {
                let set = equal(mode, n);
                let mut counts = vec![0; n as usize];
                family.iter().for_each(|flow| counts[set.choose(ALL_LIVE, flow) as usize] += 1);
                let off = deviation(&counts);
                assert!(off.abs() < FAR, "{name}, {mode:?}, {n} paths: {off:.1}");
            }
        }
    }
}

#[test]
fn the_flows_of_dead_paths_spread_evenly_over_the_live_ones() {
    let family = any_flows(64_000);
    for mode in BalanceMode::ALL {
        for live in [0b1110_u32, 0b1010, 0b0111_1111, 0b10000] {
            let set = equal(mode, 8);
            let mut counts = [0; 8];
            family.iter().for_each(|flow| counts[set.choose(live, flow) as usize] += 1);
            let (alive, dead): (Vec<_>, Vec<_>) = (0..8).partition(|path| live >> path & 1 == 1);
            assert!(dead.iter().all(|path| counts[*path] == 0), "{mode:?} {live:b}: {counts:?}");
            let alive: Vec<u32> = alive.iter().map(|path| counts[*path]).collect();
            if alive.len() > 1 {
                assert!(deviation(&alive).abs() < FAR, "{mode:?} {live:b}: {counts:?}");
            }
        }
    }
}

#[test]
fn from_4_paths_to_3_modulo_moves_75_percent_and_rendezvous_25_and_none_between_survivors() {
    let family = any_flows(100_000);
    for gone in 0..4_usize {
        for (mode, share, between) in
            [(BalanceMode::Modulo, 0.75, 0.5), (BalanceMode::Rendezvous, 0.25, 0.0), (BalanceMode::Weighted, 0.25, 0.0)]
        {
            let four: Vec<Balanced> = (0..4).map(|id| path(id, EQUAL)).collect();
            let mut three = four.clone();
            three.remove(gone);
            let [before, after] = [&four, &three].map(|paths| PathSet::new(mode, 5, 1, paths).unwrap());
            let (mut moved, mut survivors_moved) = (0, 0);
            for flow in &family {
                let old = four[before.choose(ALL_LIVE, flow) as usize].id;
                let new = three[after.choose(ALL_LIVE, flow) as usize].id;
                moved += u32::from(old != new);
                survivors_moved += u32::from(old != new && old != gone as u32);
            }
            let [moved, survivors_moved] = [moved, survivors_moved].map(|count| f64::from(count) / 100_000.0);
            assert!((moved - share).abs() < 0.01, "{mode:?} without {gone}: {moved}");
            // Under modulo, which flows move between survivors depends on which path goes; on average it is half.
            assert!(between > 0.0 || survivors_moved == 0.0, "{mode:?} without {gone}: {survivors_moved}");
            assert!(between == 0.0 || survivors_moved > 0.4, "{mode:?} without {gone}: {survivors_moved}");
        }
    }
}

#[test]
fn a_path_known_to_be_dead_loses_its_flows_and_no_other_flow_moves_in_any_mode() {
    for mode in BalanceMode::ALL {
        let set = equal(mode, 4);
        for flow in any_flows(20_000) {
            let all = set.choose(ALL_LIVE, &flow);
            let without_2 = set.choose(!(1 << 2), &flow);
            assert!(if all == 2 { without_2 != 2 } else { without_2 == all });
            // Of the flows that moved once, only those of the next dead path move again.
            let without_2_and_0 = set.choose(!(1 << 2 | 1 << 0), &flow);
            assert!(if without_2 == 0 { without_2_and_0 % 2 == 1 } else { without_2_and_0 == without_2 });
            // All dead: as if all were live, rather than nowhere.
            assert_eq!(set.choose(0, &flow), all);
        }
    }
}

#[test]
fn weighted_shares_are_proportional_to_capacities() {
    let most = u64::from(u32::MAX);
    for weights in
        [vec![1, 2, 3, 4], vec![10, 1, 0, 100, 10], vec![most, most, most / 3], vec![1 << 60, 1 << 61, 1 << 59]]
    {
        let paths: Vec<Balanced> = (0..).zip(&weights).map(|(id, weight)| path(90 - id, *weight)).collect();
        let set = PathSet::new(BalanceMode::Weighted, 3, 1, &paths).unwrap();
        let mut counts = vec![0_u32; weights.len()];
        let flows = 100_000;
        any_flows(flows).iter().for_each(|flow| counts[set.choose(ALL_LIVE, flow) as usize] += 1);
        let total: f64 = weights.iter().map(|weight| *weight as f64).sum();
        for (count, weight) in counts.iter().zip(&weights) {
            let expected = *weight as f64 / total;
            let deviation = (expected * (1.0 - expected) / f64::from(flows)).sqrt();
            let share = f64::from(*count) / f64::from(flows);
            assert!((share - expected).abs() <= FAR * deviation, "{weights:?}: {counts:?}");
        }
    }
}

#[test]
fn a_change_of_one_weight_moves_flows_to_or_from_that_path_only() {
    let weights = |second| [path(1, 100), path(2, second), path(3, 50)];
    let [before, after] = [100, 130].map(|second| PathSet::new(BalanceMode::Weighted, 3, 1, &weights(second)).unwrap());
    let mut moved = 0;
    for flow in any_flows(100_000) {
        let [old, new] = [&before, &after].map(|set| set.choose(ALL_LIVE, &flow));
        assert!(old == new || new == 1, "from {old} to {new}");
        moved += u32::from(old != new);
    }
    // From 100 of 250 to 130 of 280.
    assert!((f64::from(moved) / 100_000.0 - (130.0 / 280.0 - 100.0 / 250.0)).abs() < 0.01, "{moved}");
}

#[test]
fn a_path_without_weight_takes_flows_only_when_no_path_with_weight_is_live() {
    let paths = [path(1, 0), path(2, 5), path(3, 0)];
    let set = PathSet::new(BalanceMode::Weighted, 3, 1, &paths).unwrap();
    let mut used = [0; 3];
    for flow in any_flows(1_000) {
        assert_eq!(set.choose(ALL_LIVE, &flow), 1);
        used[set.choose(0b101, &flow) as usize] += 1;
    }
    assert!(used[0] > 400 && used[1] == 0 && used[2] > 400, "{used:?}");
}

#[test]
fn the_next_path_in_turn_skips_dead_ones() {
    let set = equal(BalanceMode::Modulo, 5);
    let turn = |live, last| set.next(live, last);
    assert_eq!([0, 1, 2, 3, 4].map(|last| turn(ALL_LIVE, last)), [1, 2, 3, 4, 0]);
    assert_eq!([0, 1, 2, 3, 4].map(|last| turn(0b01010, last)), [1, 3, 3, 1, 1]);
    assert_eq!([0, 4].map(|last| turn(0, last)), [1, 0]);
    let all = equal(BalanceMode::Modulo, 32);
    assert_eq!([0, 30, 31].map(|last| all.next(ALL_LIVE, last)), [1, 31, 0]);
}

#[test]
fn edges_compare_their_sets_by_digest_and_generation() {
    let paths = [path(1, 10), path(2, 20), path(3, 10)];
    let version =
        |mode, seed, generation, paths: &[Balanced]| PathSet::new(mode, seed, generation, paths).unwrap().version();
    let mine = version(BalanceMode::Weighted, 1, 7, &paths);
    assert_eq!(mine.compare(version(BalanceMode::Weighted, 1, 7, &paths)), Agreement::Same);
    assert_eq!(mine.compare(version(BalanceMode::Weighted, 1, 9, &paths)), Agreement::Same);
    let swapped = [paths[1], paths[0], paths[2]];
    let reweighted = [path(1, 10), path(2, 21), path(3, 10)];
    let renamed = [path(1, 10), path(4, 20), path(3, 10)];
    let others = |generation| {
        [
            version(BalanceMode::Weighted, 1, generation, &swapped),
            version(BalanceMode::Weighted, 1, generation, &reweighted),
            version(BalanceMode::Weighted, 1, generation, &renamed),
            version(BalanceMode::Weighted, 1, generation, &paths[..2]),
            version(BalanceMode::Weighted, 2, generation, &paths),
            version(BalanceMode::Modulo, 1, generation, &paths),
        ]
    };
    assert!(others(7).iter().all(|other| mine.compare(*other) == Agreement::Conflict));
    assert!(others(6).iter().all(|other| mine.compare(*other) == Agreement::Newer));
    assert!(others(8).iter().all(|other| mine.compare(*other) == Agreement::Older));
    let mut digests = others(7).map(|version| version.digest).to_vec();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 6);
}

#[test]
fn sets_that_make_no_sense_are_refused() {
    let refusal = |mode, paths: &[Balanced]| PathSet::new(mode, 0, 0, paths).unwrap_err();
    assert_eq!(refusal(BalanceMode::Modulo, &[]), BalanceError::PathCount(0));
    let many: Vec<Balanced> = (0..33).map(|id| path(id, 1)).collect();
    assert_eq!(refusal(BalanceMode::Modulo, &many), BalanceError::PathCount(33));
    let twice = [path(8, 1), path(9, 1), path(8, 2)];
    assert_eq!(refusal(BalanceMode::Rendezvous, &twice), BalanceError::Duplicate { id: 8, first: 0, second: 2 });
    assert_eq!(refusal(BalanceMode::Weighted, &[path(1, 0), path(2, 0)]), BalanceError::NoWeight);
    assert!(PathSet::new(BalanceMode::Modulo, 0, 0, &[path(1, 0)]).is_ok());
}

#[test]
fn choices_and_digests_are_those_that_were_frozen() {
    let paths = [(0xdead_beef, 1_000), (7, 2_000), (0, 0), (u32::MAX, u64::from(u32::MAX))];
    let paths = paths.map(|(id, weight)| path(id, weight));
    let hashes = [0, 1, 0xc2fc_421b, 0x77df_3c44, 0x7fff_ffff, u32::MAX];
    // Computed by a program of its own, which goes by floating point.
    let frozen = [
        (BalanceMode::Modulo, ALL_LIVE, [0, 1, 3, 0, 3, 3]),
        (BalanceMode::Modulo, 0b0101, [0, 2, 2, 0, 2, 2]),
        (BalanceMode::Modulo, 0b0011, [0, 1, 0, 0, 1, 1]),
        (BalanceMode::Rendezvous, ALL_LIVE, [2, 3, 3, 1, 1, 2]),
        (BalanceMode::Rendezvous, 0b0101, [2, 2, 2, 0, 2, 2]),
        (BalanceMode::Rendezvous, 0b0011, [0, 1, 0, 1, 1, 1]),
        (BalanceMode::Weighted, ALL_LIVE, [3, 3, 3, 3, 3, 3]),
        (BalanceMode::Weighted, 0b0101, [0, 0, 0, 0, 0, 0]),
        (BalanceMode::Weighted, 0b0011, [0, 1, 1, 1, 1, 1]),
    ];
    for (mode, live, chosen) in frozen {
        let set = PathSet::new(mode, 5, 1, &paths).unwrap();
        assert_eq!(hashes.map(|hash| set.choose_by_hash(live, hash)), chosen, "{mode:?} {live:b}");
    }
    let digest = |mode| PathSet::new(mode, 5, 1, &paths).unwrap().version().digest;
    assert_eq!(BalanceMode::ALL.map(digest), [0x1dfb_b60d_5b75_75e5, 0x823d_864b_2e11_6008, 0xe37f_3bbe_6684_edac]);
}

proptest! {
    #[test]
    fn rendezvous_takes_the_greatest_draw_and_weighted_the_least_cost(
        ids in prop::collection::btree_set(any::<u32>(), 1..=32),
        seed in any::<u64>(),
        live in any::<u32>(),
        hash in any::<u32>(),
    ) {
        let mut random = Pcg32::new(seed, 1);
        let mut paths: Vec<Balanced> =
            ids.into_iter().map(|id| path(id, u64::from(random.next_u32() >> (random.next_u32() % 32)) + 1)).collect();
        let usable = |at: usize| live >> at & 1 == 1 || live.trailing_zeros() as usize >= paths.len();
        let draw = |id: u32| mixed(added(hash, id));
        let usable: Vec<Balanced> =
            paths.iter().enumerate().filter(|(at, _)| usable(*at)).map(|(_, path)| *path).collect();
        let chosen = |mode| {
            let set = PathSet::new(mode, 9, 1, &paths).unwrap();
            paths[set.choose_by_hash(live, hash) as usize]
        };
        let greatest = usable.iter().max_by_key(|path| (draw(path.id), path.id)).unwrap();
        prop_assert_eq!(chosen(BalanceMode::Rendezvous).id, greatest.id);
        let cost = |path: &Balanced| -((f64::from(draw(path.id)) + 0.5) / 2_f64.powi(32)).log2();
        let relative = |path: &Balanced| cost(path) / path.weight as f64;
        let least = usable.iter().map(relative).fold(f64::MAX, f64::min);
        let weighted = chosen(BalanceMode::Weighted);
        prop_assert!((cost(&weighted) - 1e-6) / weighted.weight as f64 <= least, "{weighted:?} of {paths:?}");

        // In another order, with the same ones live, the same path is chosen.
        let all = [BalanceMode::Rendezvous, BalanceMode::Weighted].map(|mode| {
            let set = PathSet::new(mode, 9, 1, &paths).unwrap();
            paths[set.choose_by_hash(ALL_LIVE, hash) as usize]
        });
        let turn = random.next_u32() as usize % paths.len();
        paths.rotate_left(turn);
        let turned = [BalanceMode::Rendezvous, BalanceMode::Weighted].map(|mode| {
            let set = PathSet::new(mode, 9, 1, &paths).unwrap();
            paths[set.choose_by_hash(ALL_LIVE, hash) as usize]
        });
        prop_assert_eq!(all, turned);
    }
}

/// The step of MurmurHash3 (x86, 32 bits).
fn added(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// The finaliser of MurmurHash3 (x86, 32 bits).
fn mixed(mut hash: u32) -> u32 {
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

fn path(id: u32, weight: u64) -> Balanced {
    Balanced { id, weight }
}

/// A set of `n` paths of equal weight, whose identities are consecutive.
fn equal(mode: BalanceMode, n: u32) -> PathSet {
    let paths: Vec<Balanced> = (0..n).map(|id| path(1_000 + id, EQUAL)).collect();
    PathSet::new(mode, 5, 1, &paths).unwrap()
}

fn any_flows(count: u32) -> Vec<FlowKey> {
    let mut random = Pcg32::new(4, 1);
    (0..count).map(|_| any_key(&mut random)).collect()
}
