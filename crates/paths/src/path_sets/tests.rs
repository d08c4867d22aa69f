use proptest::prelude::*;

use super::*;
use crate::{
    brute_force::{arb_network, network},
    disjoint_paths,
};

fn path_sets(topo: &Topology, rules: SegmentRules, max_paths: usize) -> PathSets {
    let mut sets = PathSets::new(topo, rules, max_paths);
    for (from, to) in all_pairs(topo) {
        sets.add(topo, Ends::pair(from, to));
    }
    sets
}

const RULES: SegmentRules = SegmentRules { max_segments: 4, adjacency: true };

fn all_pairs(topo: &Topology) -> Vec<(NodeId, NodeId)> {
    topo.node_ids().flat_map(|from| topo.node_ids().map(move |to| (from, to))).filter(|(from, to)| from != to).collect()
}

/// What [`PathSets`] must give, from scratch.
fn from_scratch(topo: &Topology, down: &BTreeSet<LinkId>, rules: &SegmentRules, max_paths: usize) -> Vec<PathSet> {
    let igp = Igp::without(topo, down);
    let set = |(from, to)| PathSet {
        routes: disjoint_paths(topo, &igp, from, to, rules, max_paths),
        back: igp.first_path(to, from).map(|arcs| Back { from: to, to: from, arcs }),
    };
    all_pairs(topo).into_iter().map(set).collect()
}

fn sets(sets: &PathSets) -> Vec<PathSet> {
    (0..sets.ends().len()).filter_map(|index| sets.get(index).cloned()).collect()
}

/// A ring of eight routers with a second ring behind router 0.
fn two_rings() -> Topology {
    let ring =
        |first: u32, count: u32| (0..count).map(move |at| (first + at, first + (at + 1) % count, 10 + at, 10 + at));
    let links: Vec<_> = ring(0, 8).chain(ring(8, 8)).chain([(0, 8, 1, 1)]).collect();
    network(16, &links)
}

#[test]
fn only_the_pairs_that_a_failure_touches_are_computed_anew() {
    let topo = two_rings();
    let mut kept = path_sets(&topo, RULES, 8);
    // Link 12 lies in the second ring: pairs within the first one never come near it.
    let down = BTreeSet::from([LinkId(12)]);
    let recomputed = kept.set_down(&topo, &down);
    let pairs = all_pairs(&topo);
    let within_first = |index: &usize| pairs[*index].0.0 < 8 && pairs[*index].1.0 < 8;
    assert!(!recomputed.changed.iter().any(within_first), "{recomputed:?}");
    assert!((1..=240 - 56).contains(&recomputed.computed), "{recomputed:?}");
    assert_eq!(sets(&kept), from_scratch(&topo, &down, &RULES, 8));
}

#[test]
fn a_recovery_needs_no_computation_and_names_what_changed() {
    let topo = two_rings();
    let mut kept = path_sets(&topo, RULES, 8);
    let before = sets(&kept);
    let failed = kept.set_down(&topo, &BTreeSet::from([LinkId(3)]));
    let recovered = kept.set_down(&topo, &BTreeSet::new());
    assert_eq!(recovered, Recomputed { computed: 0, changed: failed.changed });
    assert_eq!(sets(&kept), before);
    assert_eq!(kept.set_down(&topo, &BTreeSet::from([LinkId(99)])), Recomputed::default(), "there is no such link");
}

/// Networks with so many equal ways that ties decide much: up to 12 routers, links of weight 1 or 2.
fn arb_ties() -> impl Strategy<Value = Topology> {
    (4..=12u32).prop_flat_map(|count| {
        let link = (0..count, 1..count, 1..3u32, 1..3u32);
        let link = link.prop_map(move |(a, step, there, back)| (a, (a + step) % count, there, back));
        prop::collection::vec(link, 4..=24).prop_map(move |links| network(count, &links))
    })
}

proptest! {
    #[test]
    fn any_failures_and_recoveries_lead_to_the_same_as_from_scratch(
        topo in prop_oneof![arb_network(), arb_ties()],
        steps in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1..4),
        max_segments in 1..5usize,
        adjacency: bool,
        max_paths in 1..5usize,
    ) {
        let rules = SegmentRules { max_segments, adjacency };
        let mut kept = path_sets(&topo, rules, max_paths);
        let mut before = sets(&kept);
        prop_assert_eq!(&before, &from_scratch(&topo, &BTreeSet::new(), &rules, max_paths));
        for step in steps {
            let down: BTreeSet<LinkId> =
                step.iter().map(|index| LinkId(index.index(topo.links().len()) as u32)).collect();
            let recomputed = kept.set_down(&topo, &down);
            let now = sets(&kept);
            prop_assert_eq!(&now, &from_scratch(&topo, &down, &rules, max_paths));
            let changed: Vec<usize> = (0..now.len()).filter(|index| now[*index] != before[*index]).collect();
            prop_assert_eq!(recomputed.changed, changed);
            before = now;
        }
    }
}
