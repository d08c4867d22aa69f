//! From a path to the shortest segment list that forces it, and back.

use sidestep_net::{ArcId, NodeId, Topology};
use thiserror::Error;

use crate::{
    Igp, Segment, SegmentRules,
    spf::{Direction, Spfs},
};

/// Why no segment list forces a path.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SegmentError {
    /// There are no arcs, and so no destination.
    #[error("a path without arcs needs no segment list")]
    Empty,
    /// An arc that the topology does not have, that is down, or that does not begin where the one before it ends.
    #[error("arc {0:?} is missing, down, or does not begin where the arc before it ends")]
    Broken(ArcId),
    /// The path leads to or through a host, which has no SID.
    #[error("node {0:?} is a host, which has no SID and forwards nothing")]
    Host(NodeId),
    /// Without an adjacency segment nothing forces this arc: it is not the only shortest path between its ends.
    #[error("no node segment forces arc {0:?}, and the rules allow no adjacency segment there")]
    NeedsAdjacency(ArcId),
    /// Even the shortest list is longer than the rules allow.
    #[error("the path needs {needed} segments, {limit} are allowed")]
    TooLong {
        /// Length of the shortest list.
        needed: usize,
        /// What the rules allow.
        limit: usize,
    },
}

/// Why a segment list does not force exactly one path.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RerouteError {
    /// The IGP has no path there.
    #[error("there is no path from node {from:?} to node {to:?}")]
    Unreachable {
        /// Where the packet is.
        from: NodeId,
        /// The router that owns the next SID.
        to: NodeId,
    },
    /// The IGP has several shortest paths there.
    #[error("node {at:?} has several equal-cost paths to node {to:?}")]
    Ambiguous {
        /// The first node with a choice.
        at: NodeId,
        /// The router that owns the next SID.
        to: NodeId,
    },
    /// A node segment for something that is not a router of the topology.
    #[error("node {0:?} is not a router and has no SID")]
    NoNodeSid(NodeId),
    /// An adjacency segment for an arc that is missing, down, or not between two routers.
    #[error("arc {0:?} has no adjacency SID: it is missing, down, or not between two routers")]
    NoAdjacencySid(ArcId),
}

/// The shortest segment list that forces exactly this path; of those equally short, one with node segments first.
///
/// The path may begin at a host, and may visit a node twice.
pub fn segment_list(
    topo: &Topology,
    igp: &Igp,
    arcs: &[ArcId],
    rules: &SegmentRules,
) -> Result<Vec<Segment>, SegmentError> {
    let stops = stops(topo, igp, arcs)?;
    list(igp, &mut Spfs::new(igp), &stops, arcs, rules, &mut Vec::new())
}

/// The shortest segment list that forces the path along these stops, which [`stops`] has checked.
///
/// The result depends on further facts, which are added to `refused`: from this node, the shortest path that ends with
/// this arc is not the only one.
pub(crate) fn list(
    igp: &Igp,
    spfs: &mut Spfs,
    stops: &[NodeId],
    arcs: &[ArcId],
    rules: &SegmentRules,
    refused: &mut Vec<(NodeId, ArcId)>,
) -> Result<Vec<Segment>, SegmentError> {
    let steps = steps(igp, spfs, arcs, stops, rules, refused)?;
    let mut at = steps[0];
    if at.needed > rules.max_segments {
        return Err(SegmentError::TooLong { needed: at.needed, limit: rules.max_segments });
    }
    let mut list = vec![at.segment];
    while at.needed > 1 {
        at = steps[at.next];
        list.push(at.segment);
    }
    Ok(list)
}

/// The path that a segment list forces, read on the full IGP.
pub fn reroute(topo: &Topology, igp: &Igp, from: NodeId, segments: &[Segment]) -> Result<Vec<ArcId>, RerouteError> {
    let mut path = Vec::new();
    let mut at = from;
    for segment in segments {
        let (to, over) = match *segment {
            Segment::Node(node) if !igp.is_router(node) => return Err(RerouteError::NoNodeSid(node)),
            Segment::Node(node) => (node, None),
            Segment::Adjacency(arc) if !has_adjacency_sid(igp, arc) => return Err(RerouteError::NoAdjacencySid(arc)),
            Segment::Adjacency(arc) => (topo.tail(arc), Some(arc)),
        };
        let shortest = igp.first_path(at, to).ok_or(RerouteError::Unreachable { from: at, to })?;
        if let Some(arc) = shortest.iter().find(|arc| igp.next_arcs(topo.tail(**arc), to).count() > 1) {
            return Err(RerouteError::Ambiguous { at: topo.tail(*arc), to });
        }
        path.extend(shortest);
        path.extend(over);
        at = over.map_or(to, |arc| topo.head(arc));
    }
    Ok(path)
}

/// Whether the tail of an arc can have an `End.X` SID for it.
fn has_adjacency_sid(igp: &Igp, arc: ArcId) -> bool {
    igp.is_up(arc) && igp.is_router(igp.arc(arc).tail) && igp.is_router(igp.arc(arc).head)
}

/// The best first segment from a stop.
#[derive(Clone, Copy)]
struct Step {
    /// Length of the shortest list for the rest of the path.
    needed: usize,
    segment: Segment,
    /// Index of the stop where the segment ends.
    next: usize,
}

/// The nodes of a path, after checking that it is one.
fn stops(topo: &Topology, igp: &Igp, arcs: &[ArcId]) -> Result<Vec<NodeId>, SegmentError> {
    let mut stops: Vec<NodeId> = Vec::with_capacity(arcs.len() + 1);
    for &id in arcs {
        if !igp.is_up(id) {
            return Err(SegmentError::Broken(id));
        }
        let (tail, head) = (topo.tail(id), topo.head(id));
        match stops.last() {
            None => stops.push(tail),
            Some(stop) if *stop == tail => {}
            Some(_) => return Err(SegmentError::Broken(id)),
        }
        if !igp.is_router(head) {
            return Err(SegmentError::Host(head));
        }
        stops.push(head);
    }
    if stops.is_empty() { Err(SegmentError::Empty) } else { Ok(stops) }
}

/// The best step from the first stop, and from all that its list may lead to.
///
/// Any part of a unique shortest path is itself a unique shortest path. So a later stop never needs more segments than
/// an earlier one, and the furthest stop that one segment reaches is the best.
fn steps(
    igp: &Igp,
    spfs: &mut Spfs,
    arcs: &[ArcId],
    stops: &[NodeId],
    rules: &SegmentRules,
    refused: &mut Vec<(NodeId, ArcId)>,
) -> Result<Vec<Step>, SegmentError> {
    let end = arcs.len();
    // By stop, the furthest one to which the path is the only shortest path, where that is needed.
    let mut reach = vec![None; stops.len()];
    let mut wanted = vec![false; stops.len()];
    wanted[0] = true;
    for index in 0..end {
        if !wanted[index] {
            continue;
        }
        let spf = spfs.of(igp, stops[index], Direction::From);
        let far = (index..end).find(|far| !spf.forces(igp, arcs[*far])).unwrap_or(end);
        reach[index] = Some(far);
        wanted[far] = true;
        if far < end {
            refused.push((stops[index], arcs[far]));
            wanted[far + 1] |= rules.adjacency || far == index;
        }
    }
    let arrive = Step { needed: 1, segment: Segment::Node(stops[end]), next: end };
    let mut steps = vec![arrive; stops.len()];
    for index in (0..end).rev() {
        let Some(far) = reach[index].filter(|far| *far < end) else { continue };
        let arc = arcs[far];
        let to = |segment, next: usize| Step { needed: 1 + steps[next].needed, segment, next };
        let node = (far > index).then(|| to(Segment::Node(stops[far]), far));
        let over = (rules.adjacency && has_adjacency_sid(igp, arc)).then(|| to(Segment::Adjacency(arc), far + 1));
        let best = node.into_iter().chain(over).min_by_key(|step| step.needed);
        steps[index] = best.ok_or(SegmentError::NeedsAdjacency(arc))?;
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::brute_force::{arb_network, arb_segments, expressible, network, simple_paths, walks};

    const ANY: SegmentRules = SegmentRules { max_segments: 9, adjacency: true };
    const NODES: SegmentRules = SegmentRules { max_segments: 9, adjacency: false };

    #[test]
    fn the_unique_shortest_path_needs_only_its_last_router() {
        let topo = network(3, &[(0, 1, 1, 1), (1, 2, 1, 1)]);
        let igp = Igp::new(&topo);
        let one = SegmentRules { max_segments: 1, adjacency: false };
        assert_eq!(segment_list(&topo, &igp, &[ArcId(0), ArcId(2)], &one), Ok(vec![Segment::Node(NodeId(2))]));
    }

    #[test]
    fn a_diamond_is_forced_by_a_node_in_the_middle() {
        let topo = network(4, &[(0, 1, 1, 1), (1, 3, 1, 1), (0, 2, 1, 1), (2, 3, 1, 1)]);
        let igp = Igp::new(&topo);
        let list = vec![Segment::Node(NodeId(2)), Segment::Node(NodeId(3))];
        assert_eq!(segment_list(&topo, &igp, &[ArcId(4), ArcId(6)], &ANY), Ok(list));
        let one = SegmentRules { max_segments: 1, adjacency: true };
        let error = SegmentError::TooLong { needed: 2, limit: 1 };
        assert_eq!(segment_list(&topo, &igp, &[ArcId(4), ArcId(6)], &one), Err(error));
    }

    #[test]
    fn one_of_two_parallel_links_needs_its_adjacency() {
        let topo = network(3, &[(0, 1, 1, 1), (1, 2, 1, 1), (1, 2, 1, 1)]);
        let igp = Igp::new(&topo);
        let path = [ArcId(0), ArcId(4)];
        let list = vec![Segment::Adjacency(ArcId(4)), Segment::Node(NodeId(2))];
        assert_eq!(segment_list(&topo, &igp, &path, &ANY), Ok(list));
        assert_eq!(segment_list(&topo, &igp, &path, &NODES), Err(SegmentError::NeedsAdjacency(ArcId(4))));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let topo = network(3, &[(0, 1, 1, 1), (1, 2, 1, 1)]);
        let igp = Igp::without(&topo, &[sidestep_net::LinkId(1)].into());
        assert_eq!(segment_list(&topo, &igp, &[], &ANY), Err(SegmentError::Empty));
        assert_eq!(segment_list(&topo, &igp, &[ArcId(0), ArcId(0)], &ANY), Err(SegmentError::Broken(ArcId(0))));
        assert_eq!(segment_list(&topo, &igp, &[ArcId(0), ArcId(2)], &ANY), Err(SegmentError::Broken(ArcId(2))));
        assert_eq!(segment_list(&topo, &igp, &[ArcId(99)], &ANY), Err(SegmentError::Broken(ArcId(99))));
    }

    #[test]
    fn a_list_that_means_no_single_path_is_refused_with_the_place() {
        let topo = network(6, &[(0, 1, 1, 1), (1, 2, 1, 1), (2, 4, 1, 1), (1, 3, 1, 1), (3, 4, 1, 1)]);
        let igp = Igp::new(&topo);
        let [n0, n1, n4, n5] = [0, 1, 4, 5].map(NodeId);
        let run = |segment| reroute(&topo, &igp, n0, &[segment]);
        assert_eq!(run(Segment::Node(n4)), Err(RerouteError::Ambiguous { at: n1, to: n4 }));
        assert_eq!(run(Segment::Node(n5)), Err(RerouteError::Unreachable { from: n0, to: n5 }));
        assert_eq!(run(Segment::Node(NodeId(9))), Err(RerouteError::NoNodeSid(NodeId(9))));
        assert_eq!(run(Segment::Adjacency(ArcId(99))), Err(RerouteError::NoAdjacencySid(ArcId(99))));
        assert_eq!(run(Segment::Adjacency(ArcId(6))), Ok(vec![ArcId(0), ArcId(6)]));
    }

    proptest! {
        #[test]
        fn a_list_is_as_short_as_the_shortest_of_all_lists(topo in arb_network(), max_segments in 0..4usize, adjacency: bool) {
            let igp = Igp::new(&topo);
            let rules = SegmentRules { max_segments, adjacency };
            for from in topo.node_ids() {
                let lists = expressible(&topo, from, &rules);
                for to in topo.node_ids().filter(|to| *to != from) {
                    for path in simple_paths(&topo, &Default::default(), from, to) {
                        let list = segment_list(&topo, &igp, &path, &rules);
                        prop_assert_eq!(list.as_ref().ok().map(Vec::len), lists.get(&path).copied());
                        if let Ok(list) = list {
                            prop_assert_eq!(reroute(&topo, &igp, from, &list), Ok(path));
                        }
                    }
                }
            }
        }

        #[test]
        fn a_list_re_routes_exactly_where_it_leaves_no_choice((topo, list) in arb_network().prop_flat_map(arb_segments)) {
            let igp = Igp::new(&topo);
            for from in topo.node_ids() {
                let mut walks = walks(&topo, from, &list);
                let only = if walks.len() == 1 { walks.pop() } else { None };
                prop_assert_eq!(reroute(&topo, &igp, from, &list).ok(), only);
            }
        }
    }
}
