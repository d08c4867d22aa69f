use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sidestep_net::{Graph, GraphEdge, GraphNode};

use super::{
    disjoint::Finder,
    node_disjoint::NodeFinder,
    segmented::Segmented,
    trees::{self, Trees},
    *,
};

fn graph(nodes: usize, edges: Vec<GraphEdge>) -> Graph {
    let node = |index| GraphNode { name: format!("n{index}"), position: None };
    Graph { name: "g".into(), nodes: (0..nodes).map(node).collect(), edges, ..Graph::default() }
}

fn edge(from: usize, to: usize, weight: Option<f64>) -> GraphEdge {
    GraphEdge { from, to, directed: false, weight, rate: None, delay: None }
}

/// A graph of links that weigh the same.
fn plain(nodes: usize, links: &[(usize, usize)]) -> Graph {
    graph(nodes, links.iter().map(|(a, b)| edge(*a, *b, None)).collect())
}

fn net(graph: &Graph) -> Net {
    Net::new(graph, NetOptions::default()).unwrap()
}

/// Graphs of up to 6 nodes and 9 links, many parallel or of equal weight, some loops, some that weigh more in one
/// direction, or have one only.
fn arb_graph() -> impl Strategy<Value = Graph> {
    (2..=6usize).prop_flat_map(|nodes| {
        let weight = || prop_oneof![3 => Just(1.0), 1 => Just(2.0), 1 => Just(3.0)];
        let kind = prop_oneof![7 => Just((false, false)), 2 => Just((true, true)), 1 => Just((true, false))];
        let link = (0..nodes, 0..nodes, weight(), weight(), kind);
        prop::collection::vec(link, 1..=9).prop_map(move |links| {
            let edges = links.into_iter().flat_map(|(from, to, there, back, (directed, returns))| {
                let there = GraphEdge { directed, ..edge(from, to, Some(there)) };
                let back = returns.then(|| GraphEdge { directed, ..edge(to, from, Some(back)) });
                std::iter::once(there).chain(back)
            });
            graph(nodes, edges.collect())
        })
    })
}

/// All paths that visit no node twice and no removed arc.
fn simple_paths(net: &Net, removed: &BTreeSet<u32>, from: u32, to: u32) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    let mut open = vec![(from, Vec::new())];
    while let Some((node, path)) = open.pop() {
        if node == to {
            all.push(path);
            continue;
        }
        for arc in
            (0..net.arc_count() as u32).filter(|arc| net.has(*arc) && net.tail(*arc) == node && !removed.contains(arc))
        {
            let head = net.tail(arc ^ 1);
            if head != from && !path.iter().any(|passed| net.tail(passed ^ 1) == head) {
                open.push((head, [path.as_slice(), &[arc]].concat()));
            }
        }
    }
    all
}

fn cost(trees: &Trees, path: &[u32]) -> trees::Cost {
    path.iter().map(|arc| trees.cost(*arc)).sum()
}

/// The path of each node segment; absent where it must be unique and is not.
fn segments(net: &Net, trees: &Trees, unique: bool) -> BTreeMap<(u32, u32), Vec<u32>> {
    let mut segments = BTreeMap::new();
    for from in 0..net.node_count() as u32 {
        for to in (0..net.node_count() as u32).filter(|to| *to != from) {
            let paths = simple_paths(net, &BTreeSet::new(), from, to);
            let Some(best) = paths.iter().min_by_key(|path| cost(trees, path)) else { continue };
            let weight = |path: &[u32]| path.iter().map(|arc| net.weight(*arc)).sum::<u64>();
            if !unique || paths.iter().filter(|path| weight(path) == weight(best)).count() == 1 {
                segments.insert((from, to), best.clone());
            }
        }
    }
    segments
}

/// The fewest segments that force a path.
fn needed(net: &Net, segments: &BTreeMap<(u32, u32), Vec<u32>>, adjacency: bool, path: &[u32]) -> Option<usize> {
    let Some(first) = path.first() else { return Some(0) };
    let one = |part: &[u32]| {
        let end = part.last().map_or(0, |arc| net.tail(arc ^ 1));
        segments.get(&(net.tail(*first), end)).is_some_and(|path| path == part)
    };
    let forced = |length: &usize| {
        let part = &path[..*length];
        one(part) || adjacency && (*length == 1 || one(&part[..length - 1]))
    };
    let rest = |length| needed(net, segments, adjacency, &path[length..]);
    (1..=path.len()).filter(forced).filter_map(|length| Some(1 + rest(length)?)).min()
}

/// How many paths are found by repeatedly taking the cheapest allowed one and removing it.
fn iterated(net: &Net, trees: &Trees, ends: (u32, u32), remove: Remove, allowed: impl Fn(&[u32]) -> bool) -> usize {
    let mut removed = BTreeSet::new();
    for found in 0.. {
        let mut paths = simple_paths(net, &removed, ends.0, ends.1);
        paths.retain(|path| allowed(path));
        let Some(best) = paths.into_iter().min_by_key(|path| cost(trees, path)) else { return found };
        for arc in best {
            removed.insert(arc);
            if remove == Remove::Both {
                removed.insert(arc ^ 1);
            }
        }
    }
    0
}

/// The size of the largest subset of these paths without a common link.
fn packed(paths: &[Vec<u32>]) -> usize {
    let Some((first, rest)) = paths.split_first() else { return 0 };
    let apart = |path: &&Vec<u32>| path.iter().all(|arc| first.iter().all(|other| arc / 2 != other / 2));
    let with: Vec<_> = rest.iter().filter(apart).cloned().collect();
    packed(rest).max(1 + packed(&with))
}

fn pairs(net: &Net) -> impl Iterator<Item = (u32, u32)> {
    let nodes = net.node_count() as u32;
    (0..nodes).flat_map(move |from| (0..nodes).filter(move |to| *to != from).map(move |to| (from, to)))
}

#[test]
fn parallel_links_and_loops_count_as_the_options_say() {
    let mut graph = plain(3, &[(0, 1), (1, 0), (2, 2), (1, 2)]);
    graph.edges[1].weight = Some(0.5);
    let with = |merge_parallel, keep_loops| NetOptions { merge_parallel, keep_loops, hops: false };
    let made = |options| Net::new(&graph, options).unwrap();
    assert_eq!(made(with(false, false)).links(), [[0, 1], [0, 1], [1, 2]]);
    assert_eq!(made(with(true, true)).links(), [[0, 1], [1, 2], [2, 2]]);
    assert_eq!(made(with(true, true)).degree(2), 3);
    let merged = made(with(true, false));
    assert_eq!([merged.weight(0), merged.weight(2)], [1, 2]);
}

#[test]
fn a_ring_of_one_direction_has_one_path_each_way_round() {
    let arc = |from, to| GraphEdge { directed: true, ..edge(from, to, None) };
    let net = net(&graph(5, (0..5).map(|node| arc(node, (node + 1) % 5)).collect()));
    assert_eq!((net.link_count(), net.missing().len(), net.is_symmetric()), (5, 5, false));
    let survey = Survey::new(&net).unwrap();
    let all = [0, 1, 2, 3, 4];
    // 20 ordered pairs, each with one path.
    assert_eq!(survey.most(&all).pairs, [0, 20]);
    assert_eq!(survey.most_node_disjoint(&all).pairs, [0, 20]);
    assert_eq!(survey.greedy(&all, Remove::Both).pairs, [0, 20]);
    assert_eq!(survey.segmented(&all, 2, SegmentOptions::default())[0].pairs, [0, 20]);
    assert_eq!(Trees::new(&net).unwrap().toward(0).iter().map(|cost| cost >> 32).collect::<Vec<_>>(), [0, 4, 3, 2, 1]);
    assert_eq!(detours(&net).with_one_hop(), 0);
    // Around 0 -> 1 a detour leads over 2 only if links lead there and back out in this order.
    let along = graph(3, vec![arc(0, 1), arc(0, 2), arc(2, 1)]);
    let against = graph(3, vec![arc(0, 1), arc(0, 2), arc(1, 2)]);
    let around = |graph: &Graph| detours(&Net::new(graph, NetOptions::default()).unwrap()).with_one_hop();
    assert_eq!((around(&along), around(&against)), (1, 1), "0 -> 1, and 0 -> 2 over 1");
}

#[test]
fn the_two_directions_of_a_link_are_one_link() {
    let arc = |from, to, weight| GraphEdge { directed: true, ..edge(from, to, Some(weight)) };
    let loops = [arc(2, 2, 5.0), arc(2, 2, 6.0)];
    let edges = [arc(0, 1, 1.0), arc(1, 0, 2.0), arc(1, 0, 4.0), loops[0].clone(), loops[1].clone()];
    let options = NetOptions { keep_loops: true, ..NetOptions::default() };
    let net = Net::new(&graph(3, edges.to_vec()), options).unwrap();
    assert_eq!(net.links(), [[0, 1], [0, 1], [2, 2]]);
    assert_eq!((0..6).map(|arc| net.weight(arc)).collect::<Vec<_>>(), [1, 2, 4, 4, 5, 6]);
    assert!(!net.is_symmetric());
}

#[test]
fn weights_that_cannot_be_added_up_are_refused() {
    let graph = graph(2, vec![edge(0, 1, Some(1e-12)), edge(0, 1, Some(1e12))]);
    let message = Net::new(&graph, NetOptions::default()).unwrap_err().to_string();
    assert!(message.contains("count hops instead"), "{message}");
    assert!(Net::new(&graph, NetOptions { hops: true, ..NetOptions::default() }).is_ok());
}

#[test]
fn pruning_leaves_rings_and_what_joins_them() {
    // Two triangles with two links between, and a tail of two.
    let net = net(&plain(9, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 6), (6, 4), (6, 7), (7, 8)]));
    let pruned = net.pruned();
    assert_eq!((pruned.node_count(), pruned.link_count()), (7, 8));
    assert_eq!(pruned.access(), [0, 1, 3, 5, 6]);
    assert_eq!((0..7).map(|node| pruned.origin(node)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    let chain = self::net(&plain(3, &[(0, 1), (1, 2)]));
    assert_eq!(chain.pruned().node_count(), 0);
    assert_eq!(Survey::new(&chain.pruned()).unwrap().most(&[]).mean(), None);
}

#[test]
fn on_a_ring_the_detour_takes_two_segments() {
    let ring: Vec<_> = (0..7).map(|node| (node, (node + 1) % 7)).collect();
    let ring = net(&plain(7, &ring));
    let survey = Survey::new(&ring).unwrap();
    let all: Vec<u32> = (0..7).collect();
    let means: Vec<_> = survey.segmented(&all, 4, SegmentOptions::default()).iter().map(Counts::mean).collect();
    // A segment goes three hops at most, and the detour is up to six.
    assert_eq!(means, [Some(1.0), Some(2.0), Some(2.0), Some(2.0)]);
    assert_eq!(survey.most(&all).pairs, [0, 0, 21]);
    assert_eq!(survey.greedy(&all, Remove::Both).pairs, [0, 0, 21]);
    assert_eq!(survey.most_node_disjoint(&all).pairs, [0, 0, 21]);
}

#[test]
fn iterated_dijkstra_can_take_the_links_that_both_paths_need() {
    // The shortest path 0-1-2-3 crosses both others, 0-1-4-3 and 0-5-2-3.
    let trap = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 6), (6, 3), (0, 5), (5, 7), (7, 2)];
    let trap = net(&plain(8, &trap));
    let survey = Survey::new(&trap).unwrap();
    assert_eq!(survey.most(&[0, 3]).mean(), Some(2.0));
    assert_eq!(survey.greedy(&[0, 3], Remove::Both).mean(), Some(1.0));
}

#[test]
fn paths_through_one_node_are_link_disjoint_only() {
    let bow = net(&plain(5, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)]));
    let survey = Survey::new(&bow).unwrap();
    assert_eq!(survey.most(&[0, 3]).mean(), Some(2.0));
    assert_eq!(survey.most_node_disjoint(&[0, 3]).mean(), Some(1.0));
}

#[test]
fn thousands_of_parallel_links_take_little_memory() {
    let net = net(&plain(2, &[(0, 1); 2000]));
    let options = SegmentOptions { adjacency: true, ..SegmentOptions::default() };
    let count = move || Survey::new(&net).unwrap().segmented(&[0, 1], 10, options)[9].mean();
    let small_stack = std::thread::Builder::new().stack_size(128 << 10).spawn(count).unwrap();
    assert_eq!(small_stack.join().unwrap(), Some(2000.0));
}

#[test]
fn a_triangle_has_1_hop_detours_and_a_square_2_hop_detours() {
    let net = net(&plain(7, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 6), (6, 3)]));
    assert_eq!(detours(&net), Detours { links: 8, one_hop: [3, 0, 0, 0, 0], two_hops: 4 });
}

/// A ring of 8 to 11 nodes of any weights with up to four chords: paths through it take many segments.
fn arb_ring() -> impl Strategy<Value = Graph> {
    (8..=11usize).prop_flat_map(|nodes| {
        let weights = prop::collection::vec(1..8u32, nodes);
        let chords = prop::collection::vec((0..nodes, 0..nodes, 1..16u32), 2..=4);
        (weights, chords).prop_map(move |(weights, chords)| {
            let ring = weights.into_iter().enumerate().map(|(node, weight)| (node, (node + 1) % nodes, weight));
            let links = ring.chain(chords).map(|(a, b, weight)| edge(a, b, Some(f64::from(weight))));
            graph(nodes, links.collect())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn counts_under_a_limit_are_right_where_paths_are_long(graph in arb_ring()) {
        let net = net(&graph);
        let trees = Trees::new(&net).unwrap();
        let mut finder = Segmented::new(&net, SegmentOptions::default());
        let segments = segments(&net, &trees, false);
        for (from, to) in pairs(&net).filter(|(from, to)| net.degree(*from) > 2 && net.degree(*to) > 2) {
            let mut counts = [0; 6];
            finder.counts(&trees, from, to, &mut counts);
            for (limit, count) in (1..).zip(counts) {
                let within = |path: &[u32]| needed(&net, &segments, false, path).is_some_and(|needed| needed <= limit);
                prop_assert_eq!(count, iterated(&net, &trees, (from, to), Remove::Forward, within), "{} segments", limit);
            }
        }
    }
}

proptest! {
    #[test]
    fn pruning_is_what_removing_one_node_at_a_time_leaves(graph in arb_graph()) {
        let net = net(&graph);
        let mut kept: BTreeSet<u32> = (0..net.node_count() as u32).collect();
        let degree = |kept: &BTreeSet<u32>, node| {
            net.hops(node).iter().filter(|hop| kept.contains(&hop.head)).count()
        };
        while let Some(node) = kept.iter().copied().find(|node| degree(&kept, *node) < 2) {
            kept.remove(&node);
        }
        let pruned = net.pruned();
        let left: BTreeSet<u32> = (0..pruned.node_count() as u32).map(|node| pruned.origin(node) as u32).collect();
        prop_assert_eq!(&left, &kept);
        let links = net.links().iter().filter(|ends| ends.iter().all(|end| kept.contains(end))).count();
        prop_assert_eq!(pruned.link_count(), links);
        prop_assert!((0..pruned.node_count() as u32).all(|node| pruned.degree(node) == degree(&kept, pruned.origin(node) as u32)));
    }

    #[test]
    fn counts_are_those_of_all_simple_paths(graph in arb_graph(), both: bool) {
        let net = net(&graph);
        let trees = Trees::new(&net).unwrap();
        let remove = if both { Remove::Both } else { Remove::Forward };
        let mut finder = Finder::new(&net);
        for (from, to) in pairs(&net) {
            prop_assert_eq!(finder.most(from, to), packed(&simple_paths(&net, &BTreeSet::new(), from, to)));
            let greedy = iterated(&net, &trees, (from, to), remove, |_| true);
            prop_assert_eq!(finder.greedy(&trees, from, to, remove), greedy);
        }
    }

    #[test]
    fn node_disjoint_counts_are_those_of_all_simple_paths(graph in arb_graph()) {
        fn packed(net: &Net, paths: &[Vec<u32>]) -> usize {
            let Some((first, rest)) = paths.split_first() else { return 0 };
            let between = |path: &[u32]| path[1..].iter().map(|arc| net.tail(*arc)).collect::<BTreeSet<u32>>();
            let apart = |path: &&Vec<u32>| path[0] != first[0] && between(path).is_disjoint(&between(first));
            let with: Vec<_> = rest.iter().filter(apart).cloned().collect();
            packed(net, rest).max(1 + packed(net, &with))
        }
        let net = net(&graph);
        let mut finder = NodeFinder::new(&net);
        for (from, to) in pairs(&net) {
            let paths = simple_paths(&net, &BTreeSet::new(), from, to);
            prop_assert_eq!(finder.most(from, to), packed(&net, &paths));
        }
    }

    #[test]
    fn counts_under_a_limit_are_those_of_all_paths_within_it(
        graph in arb_graph(),
        both: bool,
        unique: bool,
        adjacency: bool,
    ) {
        let net = net(&graph);
        let trees = Trees::new(&net).unwrap();
        let remove = if both { Remove::Both } else { Remove::Forward };
        let mut finder = Segmented::new(&net, SegmentOptions { remove, unique, adjacency });
        let segments = segments(&net, &trees, unique);
        for (from, to) in pairs(&net) {
            let mut counts = [0; 4];
            finder.counts(&trees, from, to, &mut counts);
            for (limit, count) in (1..).zip(counts) {
                let within = |path: &[u32]| needed(&net, &segments, adjacency, path).is_some_and(|needed| needed <= limit);
                prop_assert_eq!(count, iterated(&net, &trees, (from, to), remove, within), "{} segments", limit);
            }
        }
    }

    #[test]
    fn both_directions_of_a_pair_count_alike_where_weights_do(mut graph in arb_graph()) {
        graph.edges.iter_mut().for_each(|edge| edge.directed = false);
        let net = net(&graph);
        let trees = Trees::new(&net).unwrap();
        let mut finder = Segmented::new(&net, SegmentOptions::default());
        for (from, to) in pairs(&net) {
            let (mut there, mut back) = ([0; 4], [0; 4]);
            finder.counts(&trees, from, to, &mut there);
            finder.counts(&trees, to, from, &mut back);
            prop_assert_eq!(there, back);
        }
    }

    #[test]
    fn detours_are_common_neighbours(graph in arb_graph(), keep_loops: bool) {
        let options = NetOptions { merge_parallel: true, keep_loops, hops: true };
        let net = Net::new(&graph, options).unwrap();
        let leads = |from, to| net.hops(from).iter().any(|hop| hop.head == to && net.has(hop.arc));
        let nodes = 0..net.node_count() as u32;
        let mut wanted = Detours { links: net.link_count(), ..Detours::default() };
        for [a, b] in net.links() {
            let (there, back) = (leads(*a, *b), leads(*b, *a));
            // Both ways round, as far as the link has both directions.
            let step = |from, to| (!there || leads(from, to)) && (!back || leads(to, from));
            match nodes.clone().filter(|node| step(*a, *node) && step(*node, *b)).count() {
                0 => {
                    let inner = || nodes.clone().filter(|node| node != a && node != b);
                    let pairs = inner().flat_map(|first| inner().map(move |last| (first, last)));
                    let mut pairs = pairs.filter(|(first, last)| first != last);
                    let around = pairs.any(|(first, last)| step(*a, first) && step(first, last) && step(last, *b));
                    wanted.two_hops += usize::from(around);
                }
                count => wanted.one_hop[count.min(5) - 1] += 1,
            }
        }
        prop_assert_eq!(detours(&net), wanted);
    }
}

/// The size of the largest subset of these paths of which no two have a link or a group in common.
fn most_apart(paths: &[BTreeSet<u32>]) -> usize {
    let Some((first, rest)) = paths.split_first() else { return 0 };
    let apart: Vec<BTreeSet<u32>> = rest.iter().filter(|other| first.is_disjoint(other)).cloned().collect();
    most_apart(rest).max(1 + most_apart(&apart))
}

#[test]
fn paths_that_share_a_duct_are_no_two_paths() {
    // Three paths from 0 to 4; the first links of two of them lie in one duct, as do the last links of another two.
    let mut graph = plain(5, &[(0, 1), (1, 4), (0, 2), (2, 4), (0, 3), (3, 4)]);
    let survey_of = |graph: &Graph| {
        let net = net(graph);
        Survey::new(&net).unwrap().greedy_risk_disjoint(&[0, 4], &RiskGroups::of(graph, &net)).pairs
    };
    assert_eq!(survey_of(&graph), [0, 0, 0, 1]);
    graph.risk_groups = BTreeMap::from([(0, [7].into()), (2, [7, 8].into())]);
    assert_eq!(survey_of(&graph), [0, 0, 1]);
    graph.risk_groups.extend([(3, [9].into()), (5, [9].into()), (4, [8].into())]);
    assert_eq!(survey_of(&graph), [0, 0, 1]);
    graph.risk_groups.insert(1, [9].into());
    assert_eq!(survey_of(&graph), [0, 1]);
}

proptest! {
    #[test]
    fn risk_disjoint_paths_are_no_more_than_there_are_and_one_where_there_is_one(
        mut graph in arb_graph(), groups in prop::collection::vec(prop::collection::btree_set(0u32..4, 0..3), 18),
    ) {
        graph.risk_groups = groups.into_iter().take(graph.edges.len()).enumerate().filter(|(_, one)| !one.is_empty()).collect();
        let net = net(&graph);
        let risks = RiskGroups::of(&graph, &net);
        let survey = Survey::new(&net).unwrap();
        for from in 0..net.node_count() as u32 {
            for to in (0..net.node_count() as u32).filter(|to| *to > from) {
                let found = survey.greedy_risk_disjoint(&[from, to], &risks).pairs.len() - 1;
                let tokens = |path: &Vec<u32>| -> BTreeSet<u32> {
                    let groups = path.iter().flat_map(|arc| [net.edge(*arc), net.edge(arc ^ 1)]);
                    let groups = groups.filter_map(|edge| graph.risk_groups.get(&edge)).flatten().map(|group| 1000 + group);
                    path.iter().map(|arc| arc / 2).chain(groups).collect()
                };
                // Both directions are counted, and the greater number is `found`.
                let paths = [(from, to), (to, from)].map(|(from, to)| {
                    let mut paths: Vec<_> = simple_paths(&net, &BTreeSet::new(), from, to).iter().map(tokens).collect();
                    // Enough for the greatest of all sets, and not too many to try all.
                    paths.truncate(14);
                    paths
                });
                prop_assert_eq!(found == 0, paths.iter().all(|paths| paths.is_empty()));
                if paths.iter().all(|paths| paths.len() < 14) {
                    prop_assert!(found <= paths.iter().map(|paths| most_apart(paths)).max().unwrap_or(0));
                }
                let none = RiskGroups::default();
                let plain = survey.greedy(&[from, to], Remove::Both);
                prop_assert_eq!(survey.greedy_risk_disjoint(&[from, to], &none), plain);
            }
        }
    }
}
