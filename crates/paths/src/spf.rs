//! Shortest paths to or from one node, computed only as far as they are asked for.

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_net::{ArcId, NodeId};

use crate::{Igp, hop::Hop, igp::Neighbour};

/// The direction in which the paths lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// To the root, as routers forward.
    Toward,
    /// From the root.
    From,
}

/// Dijkstra's algorithm from a root, which stops and goes on.
#[derive(Clone, Debug)]
pub(crate) struct Spf {
    root: NodeId,
    direction: Direction,
    hops: Vec<Hop>,
    /// The nodes in `hops` that are not unreached.
    touched: Vec<NodeId>,
    queue: BinaryHeap<Reverse<(u64, NodeId)>>,
    /// The hops of nodes up to this distance are final, because weights are at least 1: every predecessor is nearer.
    radius: u64,
}

/// A cache of the [`Spf`]s of a network, bounded by the memory that they may take.
#[derive(Clone, Debug)]
pub(crate) struct Spfs {
    /// By root and direction: the index in `made`.
    index: Vec<[Option<u32>; 2]>,
    made: Vec<Spf>,
    /// How many of those made are in use.
    used: usize,
    limit: usize,
}

/// How many hops all [`Spf`]s together may hold: 256 MiB. Tests set it so low that searches restart.
const MAX_HOPS: usize = if cfg!(test) { 1 } else { 1 << 24 };

impl Spf {
    /// Paths to or from a node of the network.
    pub(crate) fn new(igp: &Igp, root: NodeId, direction: Direction) -> Self {
        let mut spf = Spf {
            root,
            direction,
            hops: vec![Hop::UNREACHED; igp.node_count()],
            touched: Vec::new(),
            queue: BinaryHeap::new(),
            radius: 0,
        };
        spf.restart(root, direction);
        spf
    }

    /// Forgets all, and begins at another root.
    fn restart(&mut self, root: NodeId, direction: Direction) {
        self.touched.drain(..).for_each(|node| self.hops[node.index()] = Hop::UNREACHED);
        self.queue.clear();
        (self.root, self.direction, self.radius) = (root, direction, 0);
        self.hops[root.index()] = Hop::ROOT;
        self.touched.push(root);
        self.queue.push(Reverse((0, root)));
    }

    /// Where a node of the network stands; `None` where there is no path.
    pub(crate) fn hop(&mut self, igp: &Igp, node: NodeId) -> Option<Hop> {
        while self.hops[node.index()].distance > self.radius && self.step(igp) {}
        self.hops[node.index()].reached()
    }

    /// Whether `arc` begins (or, from the root, ends) the only shortest path at its end away from the root.
    pub(crate) fn forces(&mut self, igp: &Igp, arc: ArcId) -> bool {
        let end = self.far_end(igp, arc);
        self.forces_at(igp, end, arc)
    }

    /// Whether `arc` begins (or, from the root, ends) the only shortest path of `end`, its end away from the root.
    pub(crate) fn forces_at(&mut self, igp: &Igp, end: NodeId, arc: ArcId) -> bool {
        self.hop(igp, end).is_some_and(|hop| hop.unique && hop.next == arc)
    }

    /// The arcs of one path that proves that `arc` does not force its own path: it is shorter, or it is as short and
    /// avoids the arc. Beyond the arc the rest must be unique.
    pub(crate) fn witness(&mut self, igp: &Igp, arc: ArcId, mut visit: impl FnMut(ArcId)) {
        let end = self.far_end(igp, arc);
        let Some(hop) = self.hop(igp, end) else { return };
        let mut at = end;
        if hop.next == arc {
            let other = igp.neighbours(end).iter().find(|near| {
                let Some((step, weight)) = self.back_step(near) else { return false };
                let beyond = self.hops[near.node.index()].distance;
                let passes = near.node == self.root || igp.is_router(near.node);
                step != arc && passes && beyond.checked_add(weight) == Some(hop.distance)
            });
            let Some(other) = other else { return };
            visit(self.back_step(other).map_or(arc, |(step, _)| step));
            at = other.node;
        }
        while at != self.root {
            let next = self.hops[at.index()].next;
            visit(next);
            at = self.near_end(igp, next);
        }
    }

    /// Settles the next node; returns false where there is none left.
    fn step(&mut self, igp: &Igp) -> bool {
        let Some(Reverse((distance, node))) = self.queue.pop() else {
            self.radius = u64::MAX;
            return false;
        };
        self.radius = distance;
        let here = self.hops[node.index()];
        if here.distance < distance || (node != self.root && !igp.is_router(node)) {
            return true;
        }
        for near in igp.neighbours(node) {
            let (arc, weight, is_open) = match self.direction {
                Direction::Toward => (near.arc.reversed(), near.back, near.comes),
                Direction::From => (near.arc, near.there, near.leads),
            };
            if !is_open {
                continue;
            }
            let distance = distance + weight;
            let there = &mut self.hops[near.node.index()];
            if !there.is_reached() {
                self.touched.push(near.node);
            }
            // Weights are at least 1, so every tie is seen before the node itself is taken off the queue.
            if there.offer(distance, arc, here.unique) {
                self.queue.push(Reverse((distance, near.node)));
            }
        }
        true
    }

    /// The arc between a node and its neighbour on a path between the node and the root, and its weight; `None` if the
    /// link has no such direction.
    fn back_step(&self, near: &Neighbour) -> Option<(ArcId, u64)> {
        match self.direction {
            Direction::Toward => near.leads.then_some((near.arc, near.there)),
            Direction::From => near.comes.then_some((near.arc.reversed(), near.back)),
        }
    }

    fn far_end(&self, igp: &Igp, arc: ArcId) -> NodeId {
        if self.direction == Direction::Toward { igp.arc(arc).tail } else { igp.arc(arc).head }
    }

    fn near_end(&self, igp: &Igp, arc: ArcId) -> NodeId {
        if self.direction == Direction::Toward { igp.arc(arc).head } else { igp.arc(arc).tail }
    }
}

impl Spfs {
    pub(crate) fn new(igp: &Igp) -> Self {
        let nodes = igp.node_count();
        let limit = (MAX_HOPS / nodes.max(1)).max(4);
        Spfs { index: vec![[None; 2]; nodes], made: Vec::new(), used: 0, limit }
    }

    /// The paths to or from a node of the network.
    pub(crate) fn of(&mut self, igp: &Igp, root: NodeId, direction: Direction) -> &mut Spf {
        let column = usize::from(direction == Direction::From);
        let known = self.index[root.index()][column];
        let index = known.map_or_else(|| self.begin(igp, root, direction), |index| index as usize);
        &mut self.made[index]
    }

    fn begin(&mut self, igp: &Igp, root: NodeId, direction: Direction) -> usize {
        if self.used == self.limit {
            self.index.fill([None; 2]);
            self.used = 0;
        }
        let index = self.used;
        match self.made.get_mut(index) {
            Some(spf) => spf.restart(root, direction),
            None => self.made.push(Spf::new(igp, root, direction)),
        }
        self.index[root.index()][usize::from(direction == Direction::From)] = Some(index as u32);
        self.used += 1;
        index
    }
}
