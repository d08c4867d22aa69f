use proptest::prelude::*;

use super::*;
use crate::{
    Access,
    brute_force::{arb_network, expressible, network},
    cost::{Cost, own},
    disjoint_paths, reroute,
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

/// What [`PathSets`] must give, computed from scratch.
fn from_scratch(topo: &Topology, down: &BTreeSet<LinkId>, rules: &SegmentRules, max_paths: usize) -> Vec<PathSet> {
    let igp = Igp::without(topo, down);
    let set = |(from, to)| {
        let routes = disjoint_paths(topo, &igp, from, to, rules, max_paths);
        let follows_igp = routes.iter().map(|route| igp.unique_path(from, to).as_ref() == Some(&route.arcs)).collect();
        let back = igp.first_path(to, from).map(|arcs| Back { from: to, to: from, arcs });
        PathSet { routes, follows_igp, back }
    };
    all_pairs(topo).into_iter().map(set).collect()
}

fn sets(sets: &PathSets) -> Vec<PathSet> {
    (0..sets.ends().len()).filter_map(|index| sets.get(index).cloned()).collect()
}

/// A ring of eight routers with a second ring behind router 0.
fn two_rings() -> Topology {
    let ring = |first: u32, count: u32| {
        (0..count).map(move |at| (first + at, first + (at + 1) % count, u64::from(10 + at), u64::from(10 + at)))
    };
    let links: Vec<_> = ring(0, 8).chain(ring(8, 8)).chain([(0, 8, 1, 1)]).collect();
    network(16, &links)
}

#[test]
fn only_the_pairs_that_a_failure_touches_are_computed_again() {
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

/// Networks with many equal-cost paths, so that ties decide much: up to 12 routers, links of weight 1 or 2.
fn arb_ties() -> impl Strategy<Value = Topology> {
    (4..=12u32).prop_flat_map(|count| {
        let link = (0..count, 1..count, 1..3u64, 1..3u64);
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

/// Networks with pairs of several routers at either end, of any weights beyond.
fn arb_ends() -> impl Strategy<Value = (Topology, Vec<Ends>)> {
    prop_oneof![arb_network(), arb_ties()].prop_flat_map(|topo| {
        let routers: Vec<NodeId> = topo.node_ids().filter(|node| topo.is_router(*node)).collect();
        let most = routers.len().min(3);
        let access = prop::sample::subsequence(routers, most.min(1)..=most).prop_flat_map(|routers| {
            let weights = prop::collection::vec((0..3u64, 0..3u64), routers.len());
            weights.prop_map(move |weights| {
                let access = |(router, (up, down)): (&NodeId, (u64, u64))| Access { router: *router, up, down };
                routers.iter().zip(weights).map(access).collect::<Vec<_>>()
            })
        });
        let ends = (access.clone(), access).prop_map(|(ingresses, egresses)| Ends { ingresses, egresses });
        (Just(topo), prop::collection::vec(ends, 1..4))
    })
}

/// The set between some ends, computed slowly: each path is the best of all paths of all pairs of an ingress and an
/// egress, those over links used before left out.
fn slow_routes(topo: &Topology, ends: &Ends, rules: &SegmentRules, max_paths: usize) -> Vec<Vec<ArcId>> {
    let mut used: BTreeSet<LinkId> = BTreeSet::new();
    let mut routes = Vec::new();
    while routes.len() < max_paths {
        let mut best: Option<(Cost, usize, usize, Vec<ArcId>)> = None;
        for (first, ingress) in ends.ingresses.iter().enumerate() {
            let lists = expressible(topo, ingress.router, rules);
            for (last, egress) in ends.egresses.iter().enumerate() {
                let is_free = |path: &Vec<ArcId>| {
                    path.last().is_some_and(|arc| topo.head(*arc) == egress.router)
                        && egress.router != ingress.router
                        && path.iter().all(|arc| !used.contains(&arc.link()))
                };
                for path in lists.keys().filter(|path| is_free(path)) {
                    let beyond = Cost::at_least(ingress.up + egress.down);
                    let costs = path.iter().map(|arc| Cost::of(topo.channel(*arc).weight, own(arc.link().0)));
                    let found = (costs.fold(beyond, |sum, cost| sum + cost), first, last, path.clone());
                    if best.as_ref().is_none_or(|best| found < *best) {
                        best = Some(found);
                    }
                }
            }
        }
        let Some((.., path)) = best else { break };
        used.extend(path.iter().map(|arc| arc.link()));
        routes.push(path);
    }
    routes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_path_of_a_set_is_the_cheapest_of_all_entries_and_exits_over_links_that_are_left(
        topo in arb_network(),
        seed in any::<[prop::sample::Index; 4]>(),
        weights in any::<[bool; 4]>(),
        max_segments in 1..4usize,
        adjacency: bool,
        max_paths in 1..5usize,
    ) {
        let routers: Vec<NodeId> = topo.node_ids().filter(|node| topo.is_router(*node)).collect();
        prop_assume!(!routers.is_empty());
        let access = |places: &[prop::sample::Index], weights: &[bool]| {
            let mut access: Vec<Access> = Vec::new();
            for (place, weight) in places.iter().zip(weights) {
                let router = routers[place.index(routers.len())];
                if access.iter().all(|known| known.router != router) {
                    access.push(Access { router, up: u64::from(*weight), down: u64::from(*weight) });
                }
            }
            access
        };
        let ends = Ends { ingresses: access(&seed[..2], &weights[..2]), egresses: access(&seed[2..], &weights[2..]) };
        let rules = SegmentRules { max_segments, adjacency };
        let igp = Igp::new(&topo);
        let routes = PathFinder::new(&igp, rules).disjoint_paths_between(&ends, max_paths);
        let arcs: Vec<Vec<ArcId>> = routes.iter().map(|route| route.arcs.clone()).collect();
        prop_assert_eq!(arcs, slow_routes(&topo, &ends, &rules, max_paths));
        for route in &routes {
            prop_assert!(route.segments.len() <= max_segments);
            let first = topo.tail(route.arcs[0]);
            prop_assert_eq!(reroute(&topo, &igp, first, &route.segments), Ok(route.arcs.clone()));
        }
    }
}

/// Whether these arcs are the only shortest path from their first node to a destination behind the egress routers.
fn only_shortest(topo: &Topology, igp: &Igp, ends: &Ends, arcs: &[ArcId]) -> bool {
    let from = topo.tail(arcs[0]);
    let length = |egress: &Access| igp.distance(from, egress.router).map(|length| length + egress.down);
    let least = ends.egresses.iter().filter_map(length).min();
    let mut nearest = ends.egresses.iter().filter(|egress| length(egress) == least);
    let only = nearest.next().filter(|_| nearest.next().is_none());
    only.is_some_and(|egress| igp.unique_path(from, egress.router).as_deref() == Some(arcs))
}

proptest! {
    #[test]
    fn sets_of_several_exits_follow_failures_as_if_from_scratch(
        (topo, ends) in arb_ends(),
        steps in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1..4),
        max_segments in 1..5usize,
        adjacency: bool,
        max_paths in 1..5usize,
    ) {
        let rules = SegmentRules { max_segments, adjacency };
        let all = |down: &BTreeSet<LinkId>| {
            let igp = Arc::new(Igp::without(&topo, down));
            let mut finder = PathFinder::new(igp.clone(), rules);
            let set = |ends: &Ends| {
                let routes = finder.disjoint_paths_between(ends, max_paths);
                let follows_igp = routes.iter().map(|route| only_shortest(&topo, &igp, ends, &route.arcs)).collect();
                PathSet { routes, follows_igp, back: back(&mut finder, ends) }
            };
            ends.iter().map(set).collect::<Vec<_>>()
        };
        let mut kept = PathSets::new(&topo, rules, max_paths);
        kept.add(&topo, ends[0].clone());
        for (number, step) in steps.iter().enumerate() {
            let down: BTreeSet<LinkId> =
                step.iter().map(|index| LinkId(index.index(topo.links().len()) as u32)).collect();
            kept.set_down(&topo, &down);
            if number == 0 {
                // Some sets are asked for only while links are down.
                for ends in &ends[1..] {
                    kept.add(&topo, ends.clone());
                }
            }
            prop_assert_eq!(sets(&kept), all(&down));
        }
    }
}
