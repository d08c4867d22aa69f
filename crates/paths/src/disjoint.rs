//! Link-disjoint paths that segment lists of limited length can force.

use std::ops::Deref;

use sidestep_net::{ArcId, NodeId, Topology};

use crate::{
    Access, Ends, Igp, Route, SegmentRules,
    cost::Cost,
    search::{Dependencies, Refusal, Search, Taken},
    spf::{Direction, Spfs},
};

/// Up to `max_paths` paths without a common link, cheapest first, each with the list that forces it.
///
/// Each path is the cheapest by IGP weights among those that a list within the rules forces and that avoid the links
/// (in either direction) of the earlier paths. A tie is broken by a number that each link derives from its id: the path
/// with the smaller sum wins, so a failure elsewhere changes nothing. `to` must be a router, `from` may be a host; a
/// node has no path to itself. No path visits a node twice. For many pairs use a [`PathFinder`].
pub fn disjoint_paths(
    topo: &Topology,
    igp: &Igp,
    from: NodeId,
    to: NodeId,
    rules: &SegmentRules,
    max_paths: usize,
) -> Vec<Route> {
    debug_assert_eq!(topo.arc_count(), 2 * igp.link_count());
    PathFinder::new(igp, *rules).disjoint_paths(from, to, max_paths)
}

/// Finds the [`disjoint_paths`] of many pairs of one network; `I` is a reference of some kind to its IGP.
///
/// It computes the shortest paths to and from a node only as far as searches need them, and keeps them for later
/// searches, in up to half a GiB.
#[derive(Clone, Debug)]
pub struct PathFinder<I> {
    igp: I,
    rules: SegmentRules,
    spfs: Spfs,
    search: Search,
    taken: Taken,
}

/// One round of a search: a path, or none if there is no further one, and what this result depends on.
pub(crate) struct Round {
    pub(crate) route: Option<Route>,
    pub(crate) depends_on: Vec<Dependencies>,
}

/// The cheapest path that is left from one ingress router to one egress router.
struct Candidate {
    from: NodeId,
    to: NodeId,
    /// The cost that the access links at both ends add.
    beyond: Cost,
    /// `None` while it is not known.
    found: Option<Option<(Cost, Route)>>,
}

impl<I: Deref<Target = Igp>> PathFinder<I> {
    /// A finder of paths within these rules.
    pub fn new(igp: I, rules: SegmentRules) -> Self {
        let (spfs, search, taken) = (Spfs::new(&igp), Search::new(&igp), Taken::new(&igp));
        PathFinder { igp, rules, spfs, search, taken }
    }

    /// Up to `max_paths` paths from one node to another, as the function [`disjoint_paths`] finds them.
    pub fn disjoint_paths(&mut self, from: NodeId, to: NodeId, max_paths: usize) -> Vec<Route> {
        self.disjoint_paths_between(&Ends::pair(from, to), max_paths)
    }

    /// Up to `max_paths` paths without a common link, from any ingress router to any egress router, cheapest first.
    ///
    /// Each is the cheapest over all pairs of an ingress and an egress router; the cost includes the links to the
    /// hosts. Of equally cheap ones, it is that of the first ingress router, then that of the first egress router.
    pub fn disjoint_paths_between(&mut self, ends: &Ends, max_paths: usize) -> Vec<Route> {
        let mut routes = Vec::new();
        self.extend(&mut routes, ends, max_paths, false);
        routes
    }

    /// The shortest path that takes the lowest arc wherever there is a choice; `None` where there is no path.
    pub fn first_path(&mut self, from: NodeId, to: NodeId) -> Option<Vec<ArcId>> {
        self.distance(from, to)?;
        let spf = self.spfs.of(&self.igp, to, Direction::Toward);
        let mut path = Vec::new();
        let mut at = from;
        while at != to {
            let arc = spf.hop(&self.igp, at)?.next;
            path.push(arc);
            at = self.igp.arc(arc).head;
        }
        Some(path)
    }

    /// The sum of the weights along a shortest path; `None` where there is none.
    pub(crate) fn distance(&mut self, from: NodeId, to: NodeId) -> Option<u64> {
        let known = |node: NodeId| node.index() < self.igp.node_count();
        if !known(from) || !known(to) {
            return None;
        }
        Some(self.spfs.of(&self.igp, to, Direction::Toward).hop(&self.igp, from)?.distance)
    }

    /// All rounds of a search; the last one finds nothing, unless `max_paths` are found.
    pub(crate) fn rounds(&mut self, ends: &Ends, max_paths: usize) -> Vec<Round> {
        let mut rounds: Vec<Round> = Vec::new();
        let mut candidates = candidates(ends);
        self.taken.clear();
        while rounds.len() < max_paths && rounds.last().is_none_or(|last| last.route.is_some()) {
            let mut depends_on = Vec::new();
            let route = self.next(&mut candidates, Some(&mut depends_on));
            rounds.push(Round { route, depends_on });
        }
        rounds
    }

    /// Adds the routes that follow these. `hardly` means that there probably is none: it then first asks whether there
    /// is one, which costs less than to look for the cheapest.
    pub(crate) fn extend(&mut self, routes: &mut Vec<Route>, ends: &Ends, max_paths: usize, hardly: bool) {
        self.taken.clear();
        routes.iter().flat_map(|route| &route.arcs).for_each(|arc| self.taken.take(*arc));
        let mut candidates = candidates(ends);
        if hardly {
            let PathFinder { igp, rules, spfs, search, taken } = self;
            candidates.retain(|one| search.finds_any(igp, spfs, rules, taken, (one.from, one.to)));
        }
        while routes.len() < max_paths {
            match self.next(&mut candidates, None) {
                Some(route) => routes.push(route),
                None => break,
            }
        }
    }

    /// Whether the refusals of a search on a network with more links hold on this network, too.
    pub(crate) fn refuses(&mut self, refusal: &Refusal) -> bool {
        !self.spfs.of(&self.igp, refusal.root, refusal.direction).forces(&self.igp, refusal.arc)
    }

    /// Finds the next path over links that are not taken, and takes its links.
    ///
    /// A candidate stays the cheapest of its pair while all of its links are free, so it is searched again only after
    /// that.
    fn next(&mut self, candidates: &mut [Candidate], mut depends_on: Option<&mut Vec<Dependencies>>) -> Option<Route> {
        for candidate in candidates.iter_mut().filter(|candidate| candidate.found.is_none()) {
            let route = self.cheapest(candidate.from, candidate.to, depends_on.is_some());
            if let Some(depends_on) = &mut depends_on {
                depends_on.push(self.search.dependencies(&self.igp, &mut self.spfs, route.as_ref()));
            }
            let cost = |route: &Route| route.arcs.iter().fold(candidate.beyond, |sum, arc| sum + self.igp.cost(*arc));
            candidate.found = Some(route.map(|route| (cost(&route), route)));
        }
        let found = |(index, one): (usize, &Candidate)| Some((one.found.as_ref()?.as_ref()?.0, index));
        let (_, best) = candidates.iter().enumerate().filter_map(found).min()?;
        let (_, route) = candidates.get_mut(best)?.found.take()??;
        route.arcs.iter().for_each(|arc| self.taken.take(*arc));
        for candidate in candidates {
            let is_taken = |(_, route): &(Cost, Route)| route.arcs.iter().any(|arc| self.taken.has(*arc));
            if candidate.found.as_ref().is_some_and(|found| found.as_ref().is_some_and(is_taken)) {
                candidate.found = None;
            }
        }
        Some(route)
    }

    /// The cheapest path of a pair over links that are not taken.
    fn cheapest(&mut self, from: NodeId, to: NodeId, watched: bool) -> Option<Route> {
        self.search.begin();
        let known = from.index() < self.igp.node_count();
        if from == to || !known || !self.igp.is_router(to) || self.rules.max_segments == 0 {
            return None;
        }
        let PathFinder { igp, rules, spfs, search, taken } = self;
        search.run(igp, spfs, rules, taken, (from, to), watched)
    }
}

/// The candidates between these ends, ordered by ingress router, then by egress router.
fn candidates(ends: &Ends) -> Vec<Candidate> {
    let egresses = |ingress: &Access| {
        let ingress = *ingress;
        ends.egresses.iter().map(move |egress| Candidate {
            from: ingress.router,
            to: egress.router,
            beyond: Cost::at_least(ingress.up + egress.down),
            found: None,
        })
    };
    ends.ingresses.iter().flat_map(egresses).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use sidestep_net::LinkId;

    use super::*;
    use crate::{
        Segment,
        brute_force::{arb_network, expressible, network},
        cost::{Cost, own},
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
        // The links' own numbers decide which of the equal ones comes first.
        assert_eq!(lists, [over(2), over(0), over(4)]);
    }

    #[test]
    fn links_taken_are_avoided_though_the_igp_still_uses_them() {
        // The IGP goes 0-1-2; the detour, 0-3-4-5-2, needs a segment to get past the middle.
        let topo = network(6, &[(0, 1, 1, 1), (1, 2, 1, 1), (0, 3, 1, 1), (3, 4, 1, 1), (4, 5, 1, 1), (5, 2, 1, 1)]);
        let routes = paths(&topo, 0, 2, 2, false);
        let list: Vec<_> = routes.iter().map(|route| route.segments.clone()).collect();
        assert_eq!(list[0], [Segment::Node(NodeId(2))]);
        assert_eq!(list[1], [Segment::Node(NodeId(4)), Segment::Node(NodeId(2))]);
        assert_eq!(paths(&topo, 0, 2, 1, true).len(), 1);
    }

    #[test]
    fn a_dearer_path_wins_where_the_cheaper_needs_too_many_segments() {
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
            let cost = |path: &[ArcId]| {
                let costs = path.iter().map(|arc| Cost::of(topo.channel(*arc).weight, own(arc.link().0)));
                costs.fold(Cost::ZERO, |sum, cost| sum + cost)
            };
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
