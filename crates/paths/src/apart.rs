//! Paths that have no router, or no shared risk, in common.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use sidestep_net::{ArcId, NodeId, Topology};

use crate::{Igp, Route, SegmentRules, disjoint_paths, reroute, segment_list};

/// The kind of thing that no two paths may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// A link, in whichever direction.
    Links,
    /// A router between their ends.
    Nodes,
    /// A link, or a shared-risk group of one (SRLG, RFC 4202).
    Risks,
}

/// Up to `max_paths` paths that have nothing of this kind in common, cheapest first, each with the list that forces it.
///
/// For [`Apart::Links`] these are the [`disjoint_paths`]. For the other kinds, each path is the cheapest one that
/// avoids what the earlier ones use; the search ends at the first path that needs more segments than the rules allow.
/// Every list is checked with [`reroute`].
pub fn paths_apart(
    topo: &Topology,
    igp: &Igp,
    (from, to): (NodeId, NodeId),
    rules: &SegmentRules,
    max_paths: usize,
    apart: Apart,
) -> Vec<Route> {
    let known = |node: NodeId| node.index() < topo.nodes().len();
    if !known(from) || !known(to) || from == to || !topo.is_router(to) {
        return Vec::new();
    }
    let mut routes = Vec::new();
    if apart == Apart::Links {
        routes = disjoint_paths(topo, igp, from, to, rules, max_paths);
    } else {
        let mut taken = Taken { links: vec![false; topo.links().len()], nodes: vec![false; topo.nodes().len()] };
        while routes.len() < max_paths {
            let Some(arcs) = cheapest(topo, &taken, from, to) else { break };
            let Ok(segments) = segment_list(topo, igp, &arcs, rules) else { break };
            taken.add(topo, &arcs, apart);
            routes.push(Route { arcs, segments });
        }
    }
    routes.retain(|route| reroute(topo, igp, from, &route.segments).as_ref() == Ok(&route.arcs));
    routes
}

/// What the paths found so far use.
struct Taken {
    links: Vec<bool>,
    nodes: Vec<bool>,
}

impl Taken {
    fn add(&mut self, topo: &Topology, arcs: &[ArcId], apart: Apart) {
        arcs.iter().for_each(|arc| self.links[arc.link().index()] = true);
        if apart == Apart::Nodes {
            let between = arcs.iter().skip(1).map(|arc| topo.tail(*arc));
            between.for_each(|node| self.nodes[node.index()] = true);
        } else {
            let risks: BTreeSet<u32> = arcs.iter().flat_map(|arc| topo.risk_groups(arc.link())).copied().collect();
            for link in topo.link_ids().filter(|link| !topo.risk_groups(*link).is_disjoint(&risks)) {
                self.links[link.index()] = true;
            }
        }
    }
}

/// Dijkstra's algorithm over what is free; hosts are ends only. Of equally cheap paths it takes the one with the lowest
/// arcs.
fn cheapest(topo: &Topology, taken: &Taken, from: NodeId, to: NodeId) -> Option<Vec<ArcId>> {
    let mut came: Vec<Option<(u64, Option<ArcId>)>> = vec![None; topo.nodes().len()];
    let mut queue = BinaryHeap::from([Reverse((0u64, None::<ArcId>, from))]);
    while let Some(Reverse((cost, arc, node))) = queue.pop() {
        if came[node.index()].is_some() {
            continue;
        }
        came[node.index()] = Some((cost, arc));
        if node == to {
            let before = |arc: &ArcId| came[topo.tail(*arc).index()].and_then(|(_, arc)| arc);
            let mut arcs: Vec<ArcId> = std::iter::successors(arc, before).collect();
            arcs.reverse();
            return Some(arcs);
        }
        for &next in topo.outgoing(node) {
            let head = topo.head(next);
            let free = !taken.links[next.link().index()] && !taken.nodes[head.index()];
            if free && topo.is_router(head) && came[head.index()].is_none() {
                queue.push(Reverse((cost + topo.channel(next).weight, Some(next), head)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_net::LinkId;

    use super::*;
    use crate::brute_force::{arb_network, network};

    const RULES: SegmentRules = SegmentRules { max_segments: 6, adjacency: true };

    /// Two paths 0-1-3-4-6 and 0-2-3-5-6 without a common link, and 0-7-6, which is dear.
    fn bow_tie() -> Topology {
        let ends = [(0, 1), (1, 3), (0, 2), (2, 3), (3, 4), (4, 6), (3, 5), (5, 6)];
        let mut links: Vec<_> = ends.iter().map(|(a, b)| (*a, *b, 1, 1)).collect();
        links.extend([(0, 7, 9, 9), (7, 6, 9, 9)]);
        network(8, &links)
    }

    fn count(topo: &Topology, apart: Apart) -> usize {
        paths_apart(topo, &Igp::new(topo), (NodeId(0), NodeId(6)), &RULES, 9, apart).len()
    }

    #[test]
    fn paths_that_meet_in_a_router_or_lie_in_a_duct_are_apart_by_links_only() {
        let mut topo = bow_tie();
        assert_eq!([Apart::Links, Apart::Nodes, Apart::Risks].map(|apart| count(&topo, apart)), [3, 2, 3]);
        topo.set_risk_groups(LinkId(0), [7].into());
        topo.set_risk_groups(LinkId(6), [7].into());
        topo.set_risk_groups(LinkId(2), [8].into());
        topo.set_risk_groups(LinkId(4), [8].into());
        assert_eq!([Apart::Links, Apart::Nodes, Apart::Risks].map(|apart| count(&topo, apart)), [3, 2, 2]);
        assert!(paths_apart(&topo, &Igp::new(&topo), (NodeId(0), NodeId(99)), &RULES, 9, Apart::Nodes).is_empty());
    }

    proptest! {
        #[test]
        fn no_two_paths_have_in_common_what_they_must_not_and_each_is_proved(
            mut topo in arb_network(), risks in prop::collection::vec(prop::collection::btree_set(0u32..4, 0..2), 12),
        ) {
            for (link, risks) in topo.link_ids().collect::<Vec<_>>().into_iter().zip(risks) {
                topo.set_risk_groups(link, risks);
            }
            let igp = Igp::new(&topo);
            for (from, to) in topo.node_ids().flat_map(|from| topo.node_ids().map(move |to| (from, to))) {
                for apart in [Apart::Links, Apart::Nodes, Apart::Risks] {
                    let routes = paths_apart(&topo, &igp, (from, to), &RULES, 9, apart);
                    let mut seen = BTreeSet::new();
                    for route in &routes {
                        prop_assert_eq!(reroute(&topo, &igp, from, &route.segments), Ok(route.arcs.clone()));
                        let links = route.arcs.iter().map(|arc| (0, arc.link().0));
                        let nodes = route.arcs.iter().skip(1).map(|arc| (1, topo.tail(*arc).0));
                        let risks = route.arcs.iter().flat_map(|arc| topo.risk_groups(arc.link())).map(|risk| (2, *risk));
                        let has: BTreeSet<(u32, u32)> = match apart {
                            Apart::Links => links.collect(),
                            Apart::Nodes => links.chain(nodes).collect(),
                            Apart::Risks => links.chain(risks).collect(),
                        };
                        prop_assert!(has.iter().all(|one| seen.insert(*one)), "{:?}: {:?}", apart, routes);
                    }
                    prop_assert!(routes.windows(2).all(|pair| pair[0].cost(&topo) <= pair[1].cost(&topo)));
                    // The first path is bound by nothing.
                    let first = igp.unique_path(from, to).filter(|_| from != to && topo.is_router(to));
                    prop_assert!(first.is_none() || !routes.is_empty());
                }
            }
        }
    }
}
