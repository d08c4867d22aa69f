//! The IGP: shortest-path DAGs to every node, equal-cost multipath included.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    sync::OnceLock,
};

use sidestep_net::{ArcId, LinkId, NodeId, Topology};

use crate::{
    cost::{Cost, own},
    hop::Hop,
};

/// Shortest paths between all nodes of a topology, as its routers see them.
///
/// Hosts are ends only: no path leads through one. So a DAG holds routers only, and paths to or from a host are put
/// together from the host's links on request. The DAG to a router is computed when it is first needed and then kept, so
/// a large network costs only the part that is used. Threads may share an `Igp`. Ids that the topology does not have
/// are unreachable.
#[derive(Clone, Debug)]
pub struct Igp {
    arcs: Vec<Arc>,
    /// By node: its index among the routers; [`HOST`] if it does not forward.
    routers: Vec<u32>,
    /// By node: where its neighbours begin; one more than there are nodes.
    start: Vec<u32>,
    neighbours: Vec<Neighbour>,
    /// By router: the DAG to it.
    dags: Vec<OnceLock<Dag>>,
}

/// The index that stands for a host, which is not among the routers.
const HOST: u32 = u32::MAX;

/// Every router's hop towards one router.
type Dag = Box<[Hop]>;

/// What the IGP knows of an arc.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub(crate) tail: NodeId,
    pub(crate) head: NodeId,
    pub(crate) weight: u64,
    up: bool,
}

/// A link that is up, as one of its ends sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    pub(crate) node: NodeId,
    /// The arc to the neighbour; the arc from the neighbour is its reverse.
    pub(crate) arc: ArcId,
    /// Weight of the arc to the neighbour.
    pub(crate) there: u64,
    /// Weight of the arc from it.
    pub(crate) back: u64,
    /// Whether packets pass to the neighbour.
    pub(crate) leads: bool,
    /// Whether packets pass from it.
    pub(crate) comes: bool,
    /// The link's [`own`] number.
    own: u64,
}

impl Igp {
    /// The IGP of a network in which everything is up.
    pub fn new(topo: &Topology) -> Self {
        Self::without(topo, &BTreeSet::new())
    }

    /// The IGP after it has converged on the failure of some links, both directions of each.
    pub fn without(topo: &Topology, failed: &BTreeSet<LinkId>) -> Self {
        let arcs = (0..topo.arc_count() as u32).map(ArcId).map(|id| Arc {
            tail: topo.tail(id),
            head: topo.head(id),
            weight: topo.channel(id).weight,
            up: !failed.contains(&id.link()) && topo.has_arc(id),
        });
        let arcs: Vec<Arc> = arcs.collect();
        let mut start = vec![0];
        let mut neighbours = Vec::with_capacity(arcs.len());
        for node in topo.node_ids() {
            let around = topo.around(node).iter().map(|id| (id, [*id, id.reversed()].map(|id| arcs[id.index()])));
            let up = around.filter(|(_, [there, back])| there.up || back.up);
            neighbours.extend(up.map(|(id, [there, back])| Neighbour {
                node: there.head,
                arc: *id,
                there: there.weight,
                back: back.weight,
                leads: there.up,
                comes: back.up,
                own: own(id.link().0),
            }));
            start.push(neighbours.len() as u32);
        }
        let mut count = 0;
        let mut place = |id| {
            let place = if topo.is_router(id) { count } else { HOST };
            count += u32::from(place != HOST);
            place
        };
        let routers = topo.node_ids().map(&mut place).collect();
        Igp { arcs, routers, start, neighbours, dags: vec![OnceLock::new(); count as usize] }
    }

    /// The sum of the weights along a shortest path; `None` where there is none.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u64> {
        self.hop(from, to).map(|hop| hop.distance)
    }

    /// The arcs by which shortest paths to `to` leave `from`, ascending; none at the destination and where there is no
    /// path.
    pub fn next_arcs(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = ArcId> {
        let left = self.distance(from, to);
        let on_path = move |near: &&Neighbour| {
            left.is_some() && near.leads && self.beyond(near, to).map(|hop| hop.distance + near.there) == left
        };
        self.neighbours(from).iter().filter(on_path).map(|near| near.arc)
    }

    /// The only shortest path; `None` where there is no path, or more than one.
    pub fn unique_path(&self, from: NodeId, to: NodeId) -> Option<Vec<ArcId>> {
        self.first_path(from, to).filter(|_| self.hop(from, to).is_some_and(|hop| hop.unique))
    }

    /// The shortest path that takes the lowest arc wherever there is a choice; `None` where there is no path.
    pub fn first_path(&self, from: NodeId, to: NodeId) -> Option<Vec<ArcId>> {
        let mut path = Vec::new();
        let mut at = from;
        while at != to {
            let next = self.hop(at, to)?.next;
            path.push(next);
            at = self.arc(next).head;
        }
        self.hop(from, to).map(|_| path)
    }

    /// Where `from` stands towards `to`; `None` where there is no path.
    fn hop(&self, from: NodeId, to: NodeId) -> Option<Hop> {
        if from == to || self.is_router(from) {
            return self.router_hop(from, to);
        }
        let mut hop = Hop::UNREACHED;
        for near in self.neighbours(from).iter().filter(|near| near.leads) {
            if let Some(beyond) = self.beyond(near, to) {
                hop.offer(beyond.distance + near.there, near.arc, beyond.unique);
            }
        }
        hop.reached()
    }

    /// Where a neighbour stands towards `to`; `None` if it does not lead there.
    fn beyond(&self, near: &Neighbour, to: NodeId) -> Option<Hop> {
        let leads = near.node == to || self.is_router(near.node);
        leads.then(|| self.router_hop(near.node, to)).flatten()
    }

    /// Where `from`, a router or `to` itself, stands towards `to`. Each shortest path to a host ends with one of the
    /// host's links, so the router's paths to the other ends of these links suffice.
    fn router_hop(&self, from: NodeId, to: NodeId) -> Option<Hop> {
        let place = *self.routers.get(from.index())?;
        if from == to {
            return Some(Hop::ROOT);
        }
        if self.is_router(to) {
            return self.dag(to)?.get(place as usize)?.reached();
        }
        let mut hop = Hop::UNREACHED;
        for near in self.neighbours(to).iter().filter(|near| near.comes && self.is_router(near.node)) {
            let last = near.arc.reversed();
            if near.node == from {
                hop.offer(near.back, last, true);
            } else if let Some(before) = self.dag(near.node)?.get(place as usize)?.reached() {
                hop.offer(before.distance + near.back, before.next, before.unique);
            }
        }
        hop.reached()
    }

    /// The DAG to a router.
    fn dag(&self, to: NodeId) -> Option<&Dag> {
        let place = *self.routers.get(to.index())?;
        Some(self.dags.get(place as usize)?.get_or_init(|| self.compute(to, place)))
    }

    /// Dijkstra's algorithm over routers, from their destination.
    fn compute(&self, to: NodeId, place: u32) -> Dag {
        let mut hops = vec![Hop::UNREACHED; self.dags.len()];
        hops[place as usize] = Hop::ROOT;
        let mut queue = BinaryHeap::from([Reverse((0, to))]);
        while let Some(Reverse((distance, node))) = queue.pop() {
            let here = hops[self.routers[node.index()] as usize];
            if here.distance < distance {
                continue;
            }
            for near in self.neighbours(node).iter().filter(|near| near.comes) {
                let Some(there) = hops.get_mut(self.routers[near.node.index()] as usize) else { continue };
                // Weights are at least 1, so every tie is seen before the node itself is taken off the queue.
                let distance = distance + near.back;
                if there.offer(distance, near.arc.reversed(), here.unique) {
                    queue.push(Reverse((distance, near.node)));
                }
            }
        }
        hops.into()
    }

    /// The ends and weight of an arc of the topology.
    pub(crate) fn arc(&self, id: ArcId) -> Arc {
        self.arcs[id.index()]
    }

    /// The cost of an arc of the topology.
    pub(crate) fn cost(&self, id: ArcId) -> Cost {
        Cost::of(self.arc(id).weight, own(id.link().0))
    }

    /// The neighbours of a node over links that are up, by ascending id of the link.
    pub(crate) fn neighbours(&self, node: NodeId) -> &[Neighbour] {
        let ends = self.start.get(node.index()).zip(self.start.get(node.index() + 1));
        ends.map_or(&[], |(begin, end)| &self.neighbours[*begin as usize..*end as usize])
    }

    /// Whether the topology has this router.
    pub(crate) fn is_router(&self, node: NodeId) -> bool {
        self.routers.get(node.index()).is_some_and(|place| *place != HOST)
    }

    /// Whether packets can take this arc: the topology has it, and it is up.
    pub(crate) fn is_up(&self, id: ArcId) -> bool {
        self.arcs.get(id.index()).is_some_and(|arc| arc.up)
    }

    /// Number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.routers.len()
    }

    /// Number of links, those that are down included.
    pub(crate) fn link_count(&self) -> usize {
        self.arcs.len() / 2
    }
}

impl Neighbour {
    /// Cost of the arc to the neighbour.
    pub(crate) fn cost_there(&self) -> Cost {
        Cost::of(self.there, self.own)
    }

    /// Cost of the arc from it.
    pub(crate) fn cost_back(&self) -> Cost {
        Cost::of(self.back, self.own)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_net::NodeKind;

    use super::*;
    use crate::brute_force::{arb_network, arb_network_with, build, network, shortest_paths};

    #[test]
    fn equal_cost_paths_are_all_next_arcs_and_no_unique_path() {
        // A diamond 0-{1,2}-3, and 4 behind 3.
        let topo = network(5, &[(0, 1, 1, 1), (1, 3, 1, 1), (0, 2, 1, 1), (2, 3, 1, 1), (3, 4, 1, 1)]);
        let igp = Igp::new(&topo);
        let [n0, n1, n4] = [0, 1, 4].map(NodeId);
        assert_eq!(igp.distance(n0, n4), Some(3));
        assert_eq!(igp.next_arcs(n0, n4).collect::<Vec<_>>(), [ArcId(0), ArcId(4)]);
        assert_eq!(igp.unique_path(n0, n4), None);
        assert_eq!(igp.first_path(n0, n4), Some(vec![ArcId(0), ArcId(2), ArcId(8)]));
        assert_eq!(igp.unique_path(n1, n4), Some(vec![ArcId(2), ArcId(8)]));
        assert_eq!(igp.unique_path(n0, n0), Some(vec![]));
    }

    #[test]
    fn parallel_links_of_equal_weight_are_ambiguous_until_one_fails() {
        let topo = network(2, &[(0, 1, 1, 1), (0, 1, 1, 1)]);
        let [n0, n1] = [0, 1].map(NodeId);
        assert_eq!(Igp::new(&topo).unique_path(n0, n1), None);
        let failed = BTreeSet::from([LinkId(0)]);
        assert_eq!(Igp::without(&topo, &failed).unique_path(n0, n1), Some(vec![ArcId(2)]));
    }

    #[test]
    fn each_direction_has_its_own_weight() {
        let topo = network(3, &[(0, 1, 1, 9), (1, 2, 1, 1), (2, 0, 1, 1)]);
        let igp = Igp::new(&topo);
        assert_eq!(igp.unique_path(NodeId(0), NodeId(1)), Some(vec![ArcId(0)]));
        assert_eq!(igp.unique_path(NodeId(1), NodeId(0)), Some(vec![ArcId(2), ArcId(4)]));
    }

    #[test]
    fn ids_that_the_topology_does_not_have_are_unreachable() {
        let igp = Igp::new(&network(2, &[(0, 1, 1, 1)]));
        assert_eq!(igp.distance(NodeId(0), NodeId(7)), None);
        assert_eq!(igp.first_path(NodeId(7), NodeId(0)), None);
        assert_eq!(igp.next_arcs(NodeId(7), NodeId(7)).count(), 0);
    }

    #[test]
    fn a_host_with_two_access_links_is_reached_over_the_nearer_and_over_both_if_they_are_equal() {
        // A ring of the routers 0 to 3; host 4 behind 1 and 3, host 5 linked to host 4 and to router 0.
        let kinds =
            [NodeKind::Router, NodeKind::Router, NodeKind::Router, NodeKind::Router, NodeKind::Host, NodeKind::Host];
        let links = [
            (0, 1, 1, 1),
            (1, 2, 1, 1),
            (2, 3, 1, 1),
            (3, 0, 1, 1),
            (1, 4, 1, 1),
            (3, 4, 1, 1),
            (4, 5, 9, 9),
            (0, 5, 1, 1),
        ];
        let topo = build(&kinds, &links.map(|link| (link, [0, 0])));
        let [n0, n1, n2, n3, n4, n5] = [0, 1, 2, 3, 4, 5].map(NodeId);
        let igp = Igp::new(&topo);
        assert_eq!(igp.next_arcs(n0, n4).collect::<Vec<_>>(), [ArcId(0), ArcId(7)]);
        assert_eq!(igp.unique_path(n0, n4), None);
        assert_eq!(igp.unique_path(n1, n4), Some(vec![ArcId(8)]));
        assert_eq!(igp.first_path(n5, n4), Some(vec![ArcId(15), ArcId(0), ArcId(8)]));
        assert_eq!(igp.distance(n2, n5), Some(3));
        // Host 4 is on no path between routers 1 and 3, though a path through it would be the shortest if 0 and 2 were
        // away.
        let igp = Igp::without(&topo, &[0, 1, 7].map(LinkId).into());
        assert_eq!(igp.distance(n1, n3), None);
        assert_eq!(igp.unique_path(n5, n4), Some(vec![ArcId(13)]));
        assert_eq!(igp.distance(n3, n5), None);
        assert_eq!(igp.unique_path(n2, n4), Some(vec![ArcId(4), ArcId(10)]));
    }

    #[test]
    fn threads_that_share_it_see_the_same_dags() {
        let ring: Vec<_> = (0..40).map(|node| (node, (node + 1) % 40, 1, 1)).collect();
        let igp = Igp::new(&network(40, &ring));
        let sum = || {
            let ends = (0..40).flat_map(|from| (0..40).map(move |to| [from, to].map(NodeId)));
            ends.filter_map(|[from, to]| igp.distance(from, to)).sum::<u64>()
        };
        let sums = std::thread::scope(|scope| [(); 4].map(|()| scope.spawn(sum)).map(|thread| thread.join().ok()));
        assert_eq!(sums, [Some(40 * 400); 4]);
    }

    /// Compares everything that the IGP reports with an enumeration of all paths.
    fn compare(topo: &Topology, failed: u16) -> Result<(), TestCaseError> {
        let failed = topo.link_ids().filter(|link| failed >> link.0 & 5 == 5).collect();
        let igp = Igp::without(topo, &failed);
        for from in topo.node_ids() {
            for to in topo.node_ids() {
                let paths = shortest_paths(topo, &failed, from, to);
                let cost = |path: &Vec<ArcId>| path.iter().map(|a| topo.channel(*a).weight).sum::<u64>();
                prop_assert_eq!(igp.distance(from, to), paths.first().map(cost));
                let next: BTreeSet<ArcId> = paths.iter().filter_map(|path| path.first().copied()).collect();
                prop_assert_eq!(igp.next_arcs(from, to).collect::<Vec<_>>(), next.into_iter().collect::<Vec<_>>());
                let only = if paths.len() == 1 { paths.first().cloned() } else { None };
                prop_assert_eq!(igp.unique_path(from, to), only);
                prop_assert_eq!(igp.first_path(from, to), paths.into_iter().min());
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn the_dags_hold_exactly_the_cheapest_of_all_paths(topo in arb_network(), failed in any::<u16>()) {
            compare(&topo, failed)?;
        }

        #[test]
        fn hosts_of_many_links_are_leaves_of_the_dags(topo in arb_network_with(5), failed in any::<u16>()) {
            compare(&topo, failed)?;
        }
    }
}
