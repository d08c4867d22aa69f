//! Link-disjoint paths that segment lists of limited length can force.

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_model::{ArcId, NodeId, Topology};

use crate::{Igp, Route, SegmentRules, segment_list};

/// Up to `max_paths` paths without a common link, cheapest first, each with the list that forces it.
///
/// Each is the cheapest by IGP weights of all that a list within the rules forces and that avoid the links (in either
/// direction) of those before it; of the equally cheap, one with the fewest segments. `to` must be a router, `from` may
/// be a host; a node has no path to itself. No path visits a node twice.
pub fn disjoint_paths(
    topo: &Topology,
    igp: &Igp,
    from: NodeId,
    to: NodeId,
    rules: &SegmentRules,
    max_paths: usize,
) -> Vec<Route> {
    let mut routes = Vec::new();
    if from == to || !igp.is_router(to) || rules.max_segments == 0 {
        return routes;
    }
    let mut used = vec![false; igp.link_count()];
    while routes.len() < max_paths {
        let Some(arcs) = Search::new(igp, rules, &used, from, to).and_then(Search::run) else { break };
        let Ok(segments) = segment_list(topo, igp, &arcs, rules) else { break };
        for arc in &arcs {
            used[arc.link().index()] = true;
        }
        routes.push(Route { arcs, segments });
    }
    routes
}

/// Search for the cheapest walk that `max_segments` segments force: A* from the destination, arc by arc.
///
/// A state is a node, the router that owns the SID in force there, and how many segments are used from there on. Two
/// facts keep it small and its result simple; both follow from any part of a unique shortest path being one itself:
///
/// - At one node, a state that is no cheaper and uses more segments than another is never better: whatever its SID can
///   still do, the other can do with one segment more.
/// - A loop never pays. Cut out of a walk, it leaves the rest of one segment, as a node segment, and the rest of a later
///   one: no more segments than before, and a lower cost, since weights are at least 1. (A loop within one adjacency
///   segment, to the tail and back over the arc, leaves one node segment.) So the cheapest walk is a simple path.
struct Search<'a> {
    igp: &'a Igp,
    rules: &'a SegmentRules,
    used: &'a [bool],
    from: NodeId,
    /// Cost from `from` to each node over links that are free: exact, so the bound that A* needs.
    before: Vec<Option<u64>>,
    /// By node: the states expanded there.
    expanded: Vec<Expanded>,
    states: Vec<State>,
    /// Indices of states by total cost, segments and age.
    queue: BinaryHeap<Reverse<(u64, usize, usize)>>,
}

#[derive(Clone, Copy)]
struct State {
    node: NodeId,
    /// The router that owns the SID in force.
    owner: NodeId,
    /// Segments used from here to the destination.
    segments: usize,
    /// Cost from here to the destination.
    cost: u64,
    /// The arc from here and the state that it leads to; `None` at the destination.
    next: Option<(ArcId, usize)>,
}

#[derive(Clone, Default)]
struct Expanded {
    segments: usize,
    owners: Vec<NodeId>,
}

impl<'a> Search<'a> {
    /// A search, unless no free links lead to the destination at all.
    fn new(igp: &'a Igp, rules: &'a SegmentRules, used: &'a [bool], from: NodeId, to: NodeId) -> Option<Self> {
        let before = costs(igp, used, from);
        let bound = before.get(to.index()).copied().flatten()?;
        let expanded = vec![Expanded::default(); igp.node_count()];
        let states = vec![State { node: to, owner: to, segments: 1, cost: 0, next: None }];
        let queue = BinaryHeap::from([Reverse((bound, 1, 0))]);
        Some(Search { igp, rules, used, from, before, expanded, states, queue })
    }

    /// The arcs of the cheapest walk.
    fn run(mut self) -> Option<Vec<ArcId>> {
        while let Some(Reverse((_, _, index))) = self.queue.pop() {
            let state = self.states[index];
            if state.node == self.from {
                let next = |(_, state): &(ArcId, usize)| self.states[*state].next;
                return Some(std::iter::successors(state.next, next).map(|(arc, _)| arc).collect());
            }
            if self.is_new(&state) {
                self.expand(index, state);
            }
        }
        None
    }

    /// Whether no state expanded before at the same node is as good; remembers this one if so.
    fn is_new(&mut self, state: &State) -> bool {
        let seen = &mut self.expanded[state.node.index()];
        if seen.owners.is_empty() || state.segments < seen.segments {
            *seen = Expanded { segments: state.segments, owners: vec![state.owner] };
            return true;
        }
        // A SID of the node itself can do all that another can.
        let worse = state.segments > seen.segments || seen.owners.iter().any(|o| *o == state.node || *o == state.owner);
        if !worse {
            seen.owners.push(state.owner);
        }
        !worse
    }

    /// Steps back over every free arc, within the segment in force where that goes on, else with one more.
    fn expand(&mut self, index: usize, state: State) {
        for &id in self.igp.incoming(state.node) {
            let tail = self.igp.arc(id).tail;
            let Some(before) = self.before[tail.index()].filter(|_| !self.used[id.link().index()]) else { continue };
            let forced_by = |owner| self.igp.hop(tail, owner).is_some_and(|hop| hop.unique && hop.next == id);
            let more = state.segments + 1;
            let (owner, segments) = if forced_by(state.owner) {
                (state.owner, state.segments)
            } else if more > self.rules.max_segments {
                continue;
            } else if self.rules.adjacency && self.igp.is_router(tail) {
                (tail, more)
            } else if forced_by(state.node) {
                (state.node, more)
            } else {
                continue;
            };
            let cost = state.cost + self.igp.arc(id).weight;
            self.queue.push(Reverse((cost + before, segments, self.states.len())));
            self.states.push(State { node: tail, owner, segments, cost, next: Some((id, index)) });
        }
    }
}

/// Dijkstra's algorithm over the links that are free; hosts are ends only.
fn costs(igp: &Igp, used: &[bool], from: NodeId) -> Vec<Option<u64>> {
    let mut costs = vec![None; igp.node_count()];
    let mut queue = BinaryHeap::from([Reverse((0, from))]);
    while let Some(Reverse((cost, node))) = queue.pop() {
        match costs.get_mut(node.index()) {
            Some(known @ None) => *known = Some(cost),
            _ => continue,
        }
        for &id in igp.outgoing(node).iter().filter(|id| !used[id.link().index()]) {
            let arc = igp.arc(id);
            if igp.is_router(arc.head) && costs[arc.head.index()].is_none() {
                queue.push(Reverse((cost + arc.weight, arc.head)));
            }
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use sidestep_model::LinkId;

    use super::*;
    use crate::{
        Segment,
        brute_force::{arb_network, expressible, network},
        max_flow_links, reroute,
    };

    fn paths(topo: &Topology, from: u32, to: u32, max_segments: usize, adjacency: bool) -> Vec<Route> {
        let rules = SegmentRules { max_segments, adjacency };
        disjoint_paths(topo, &Igp::new(topo), NodeId(from), NodeId(to), &rules, usize::MAX)
    }

    #[test]
    fn one_segment_is_the_unique_shortest_path_or_nothing() {
        let topo = network(4, &[(0, 1, 1, 1), (1, 3, 1, 1), (0, 2, 1, 1), (2, 3, 1, 1)]);
        assert_eq!(paths(&topo, 0, 3, 1, true), []);
        let only = Route { arcs: vec![ArcId(0)], segments: vec![Segment::Node(NodeId(1))] };
        assert_eq!(paths(&topo, 0, 1, 1, true), [only]);
        assert_eq!(paths(&topo, 0, 3, 2, false).len(), 2);
    }

    #[test]
    fn parallel_links_are_disjoint_paths_only_with_adjacency_segments() {
        let topo = network(2, &[(0, 1, 1, 1), (0, 1, 1, 1), (0, 1, 2, 2)]);
        assert_eq!(paths(&topo, 0, 1, 3, false), []);
        let lists: Vec<_> = paths(&topo, 0, 1, 2, true).into_iter().map(|route| route.segments).collect();
        let over = |arc| vec![Segment::Adjacency(ArcId(arc)), Segment::Node(NodeId(1))];
        assert_eq!(lists, [over(0), over(2), over(4)]);
    }

    #[test]
    fn links_taken_are_avoided_though_the_igp_still_uses_them() {
        // The IGP goes 0-1-2; the way round, 0-3-4-5-2, needs a segment to get past the middle.
        let topo = network(6, &[(0, 1, 1, 1), (1, 2, 1, 1), (0, 3, 1, 1), (3, 4, 1, 1), (4, 5, 1, 1), (5, 2, 1, 1)]);
        let routes = paths(&topo, 0, 2, 2, false);
        let list: Vec<_> = routes.iter().map(|route| route.segments.clone()).collect();
        assert_eq!(list[0], [Segment::Node(NodeId(2))]);
        assert_eq!(list[1], [Segment::Node(NodeId(4)), Segment::Node(NodeId(2))]);
        assert_eq!(paths(&topo, 0, 2, 1, true).len(), 1);
    }

    #[test]
    fn a_dearer_way_wins_where_the_cheaper_needs_too_many_segments() {
        // 0 = 1 (parallel links), then to 6 over two diamonds, 1-{2,3}-4-{5,7}-6 at cost 4, or over 8 at cost 6.
        let diamonds = [(1, 2), (2, 4), (1, 3), (3, 4), (4, 5), (5, 6), (4, 7), (7, 6)];
        let mut links = vec![(0, 1, 1, 1), (0, 1, 1, 1), (1, 8, 3, 3), (8, 6, 3, 3)];
        links.extend(diamonds.map(|(a, b)| (a, b, 1, 1)));
        let topo = network(9, &links);
        let costs = |max| paths(&topo, 0, 6, max, true).iter().map(|route| route.cost(&topo)).collect::<Vec<_>>();
        assert_eq!(costs(2), []);
        assert_eq!(costs(3), [7]);
        assert_eq!(costs(4), [5, 5]);
    }

    #[test]
    fn a_node_has_no_path_to_itself_or_to_what_does_not_exist() {
        let topo = network(3, &[(0, 1, 1, 1)]);
        for to in [0, 2, 9] {
            assert_eq!(paths(&topo, 0, to, 3, true), []);
        }
        assert_eq!(paths(&topo, 9, 0, 3, true), []);
        assert_eq!(paths(&topo, 0, 1, 0, true), []);
    }

    proptest! {
        #[test]
        fn each_path_is_the_cheapest_of_all_lists_that_avoid_those_before(
            topo in arb_network(),
            max_segments in 1..5usize,
            adjacency: bool,
            max_paths in 1..5usize,
        ) {
            let igp = Igp::new(&topo);
            let rules = SegmentRules { max_segments, adjacency };
            let cost = |path: &[ArcId]| path.iter().map(|arc| u64::from(topo.channel(*arc).weight)).sum::<u64>();
            for from in topo.node_ids() {
                let lists = expressible(&topo, from, &rules);
                for to in topo.node_ids().filter(|to| *to != from) {
                    let mut used: BTreeSet<LinkId> = BTreeSet::new();
                    let routes = disjoint_paths(&topo, &igp, from, to, &rules, max_paths);
                    let best = |used: &BTreeSet<LinkId>| {
                        let to_end = lists.iter().filter(|(path, _)| path.last().is_some_and(|arc| topo.head(*arc) == to));
                        let free = to_end.filter(|(path, _)| path.iter().all(|arc| !used.contains(&arc.link())));
                        free.map(|(path, segments)| (cost(path), *segments)).min()
                    };
                    for route in &routes {
                        prop_assert_eq!(Some((cost(&route.arcs), route.segments.len())), best(&used));
                        prop_assert_eq!(reroute(&topo, &igp, from, &route.segments), Ok(route.arcs.clone()));
                        for arc in &route.arcs {
                            prop_assert!(used.insert(arc.link()), "{:?} is used twice", arc.link());
                        }
                    }
                    prop_assert!(routes.len() == max_paths || best(&used).is_none());
                    prop_assert!(routes.len() <= max_flow_links(&topo, from, to));
                }
            }
        }
    }
}
