//! Maximum flow of one pair: the optimum that its paths are compared with.

use std::collections::VecDeque;

use sidestep_net::{ArcId, NodeId, Rate, Topology};

/// The most paths without a common link that exist from one node to another; zero from a node to itself.
///
/// A link counts once, in whichever direction; hosts are ends only.
pub fn max_flow_links(topo: &Topology, from: NodeId, to: NodeId) -> usize {
    let one = |arc| u128::from(topo.has_arc(ArcId(arc)));
    let flow = edmonds_karp(topo, from, to, (0..topo.arc_count() as u32).map(one).collect());
    usize::try_from(flow).unwrap_or(usize::MAX)
}

/// The highest rate from one node to another over all paths together; zero from a node to itself.
///
/// Each direction of a link has its own rate. A flow that nothing limits is `u64::MAX` bit/s; zero means that there is
/// no path.
pub fn max_flow_rate(topo: &Topology, from: NodeId, to: NodeId) -> Rate {
    let capacity = |arc| match topo.channel(arc).rate.bits_per_sec() {
        _ if !topo.has_arc(arc) => 0,
        0 => u64::MAX.into(),
        rate => rate.into(),
    };
    let capacities = (0..topo.arc_count() as u32).map(ArcId).map(capacity).collect();
    let flow = edmonds_karp(topo, from, to, capacities);
    Rate::from_bits_per_sec(u64::try_from(flow).unwrap_or(u64::MAX))
}

/// Edmonds and Karp 1972: fill the path of fewest arcs until none has room. `room` holds the capacity of each arc.
fn edmonds_karp(topo: &Topology, from: NodeId, to: NodeId, mut room: Vec<u128>) -> u128 {
    let known = |node: NodeId| node.index() < topo.nodes().len();
    if from == to || !known(from) || !known(to) {
        return 0;
    }
    let mut flow = 0;
    while let Some(path) = roomy_path(topo, from, to, &room) {
        let more = path.iter().map(|arc| room[arc.index()]).min().unwrap_or(0);
        for arc in path {
            room[arc.index()] -= more;
            // Flow in the reverse direction would cancel.
            room[arc.reversed().index()] += more;
        }
        flow += more;
    }
    flow
}

/// A path of fewest arcs on which every arc has room, from its last arc to its first.
fn roomy_path(topo: &Topology, from: NodeId, to: NodeId, room: &[u128]) -> Option<Vec<ArcId>> {
    let mut entered: Vec<Option<ArcId>> = vec![None; topo.nodes().len()];
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        // Also over the missing arc of a one-way link: flow in the other direction can be taken back.
        for &arc in topo.around(node) {
            let head = topo.head(arc);
            if room[arc.index()] == 0 || head == from || entered[head.index()].is_some() {
                continue;
            }
            entered[head.index()] = Some(arc);
            if head == to {
                let before = |arc: &ArcId| entered[topo.tail(*arc).index()];
                return Some(std::iter::successors(Some(arc), before).collect());
            }
            if topo.is_router(head) {
                queue.push_back(head);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_net::NodeKind;

    use super::*;
    use crate::brute_force::{arb_network, build, network};

    #[test]
    fn the_greedy_choice_of_the_short_path_is_undone() {
        // Two disjoint paths, 0-1-2-3-7 and 0-4-5-6-7; the path of fewest arcs, 0-1-6-7, blocks both.
        let ends = [(0, 1), (1, 2), (2, 3), (3, 7), (0, 4), (4, 5), (5, 6), (6, 7), (1, 6)];
        let topo = build(&[NodeKind::Router; 8], &ends.map(|(a, b)| ((a, b, 1, 1), [2, 1])));
        assert_eq!(max_flow_links(&topo, NodeId(0), NodeId(7)), 2);
        // Undoing needs more room from 6 to 1 than that direction has of its own.
        assert_eq!(max_flow_rate(&topo, NodeId(0), NodeId(7)), Rate::from_bits_per_sec(4));
    }

    #[test]
    fn an_unlimited_path_has_an_unlimited_flow_and_no_path_has_none() {
        let topo = network(3, &[(0, 1, 1, 1), (0, 1, 1, 1)]);
        assert_eq!(max_flow_rate(&topo, NodeId(0), NodeId(1)).bits_per_sec(), u64::MAX);
        assert_eq!(max_flow_rate(&topo, NodeId(0), NodeId(2)), Rate::default());
        assert_eq!(max_flow_links(&topo, NodeId(0), NodeId(9)), 0);
    }

    /// The smallest of all cuts between `from` and `to`, by the capacity of an arc.
    fn min_cut(topo: &Topology, from: NodeId, to: NodeId, capacity: impl Fn(ArcId) -> u64) -> u64 {
        let on_path = |node| topo.is_router(node) || node == from || node == to;
        let sides = (0u32..1 << topo.nodes().len()).filter(|side| side >> from.0 & 1 == 1 && side >> to.0 & 1 == 0);
        let cut = |side: u32| {
            let inside = |node: NodeId| side >> node.0 & 1 == 1;
            let arcs = (0..topo.arc_count() as u32).map(ArcId).filter(|arc| {
                let (tail, head) = (topo.tail(*arc), topo.head(*arc));
                topo.has_arc(*arc) && on_path(tail) && on_path(head) && inside(tail) && !inside(head)
            });
            arcs.map(&capacity).sum::<u64>()
        };
        sides.map(cut).min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn the_flow_is_as_large_as_the_smallest_of_all_cuts(topo in arb_network()) {
            for from in topo.node_ids() {
                for to in topo.node_ids().filter(|to| *to != from) {
                    prop_assert_eq!(max_flow_links(&topo, from, to) as u64, min_cut(&topo, from, to, |_| 1));
                    let rate = |arc| topo.channel(arc).rate.bits_per_sec();
                    prop_assert_eq!(max_flow_rate(&topo, from, to).bits_per_sec(), min_cut(&topo, from, to, rate));
                }
            }
        }
    }
}
