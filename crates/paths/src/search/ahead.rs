//! Costs from the source to the nodes that a search from the destination may visit.

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_net::{ArcId, NodeId};

use super::Task;
use crate::{Igp, cost::Cost, spf::Direction};

/// A* over free links from the source, whose bound is the IGP's distance to the destination.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    known: Vec<Known>,
    /// The nodes in `known` that are reached.
    touched: Vec<NodeId>,
    /// Nodes by the least cost of a path through them.
    queue: BinaryHeap<Reverse<(Cost, NodeId)>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    cost: Cost,
    /// The arc by which it is reached; `None` of the source.
    arc: Option<ArcId>,
    settled: bool,
}

const UNREACHED: Known = Known { cost: Cost::MAX, arc: None, settled: false };

impl Ahead {
    pub(super) fn new(igp: &Igp) -> Self {
        Ahead { known: vec![UNREACHED; igp.node_count()], touched: Vec::new(), queue: BinaryHeap::new() }
    }

    pub(super) fn clear(&mut self) {
        self.touched.drain(..).for_each(|node| self.known[node.index()] = UNREACHED);
        self.queue.clear();
    }

    /// Settles the destination and returns its cost, up to which all costs are then known; `None` where no free links
    /// lead there.
    pub(super) fn begin(&mut self, task: &mut Task<'_>) -> Option<Cost> {
        self.reach(task, task.from, Cost::ZERO, None);
        while !self.known[task.to.index()].settled {
            let Reverse((total, _)) = self.queue.peek()?;
            self.settle(task, *total);
        }
        let total = self.known[task.to.index()].cost;
        self.settle(task, total);
        Some(total)
    }

    /// The cheapest path to a settled node.
    pub(super) fn path(&self, igp: &Igp, node: NodeId) -> Vec<ArcId> {
        let arc = |node: NodeId| self.known[node.index()].arc;
        let mut path: Vec<ArcId> = std::iter::successors(arc(node), |last| arc(igp.arc(*last).tail)).collect();
        path.reverse();
        path
    }

    /// The cost from the source, if the node is settled.
    pub(super) fn cost(&self, node: NodeId) -> Option<Cost> {
        Some(self.known[node.index()]).filter(|known| known.settled).map(|known| known.cost)
    }

    /// The least total cost that is not settled yet; `None` where there is nothing left.
    pub(super) fn next(&self) -> Option<Cost> {
        self.queue.peek().map(|Reverse((total, _))| *total)
    }

    /// Settles all nodes on paths up to this total cost.
    pub(super) fn settle(&mut self, task: &mut Task<'_>, horizon: Cost) {
        while let Some(Reverse((total, node))) =
            self.queue.peek().copied().filter(|Reverse((total, _))| *total <= horizon)
        {
            self.queue.pop();
            let here = &mut self.known[node.index()];
            if std::mem::replace(&mut here.settled, true) {
                continue;
            }
            let cost = here.cost;
            debug_assert!(total >= cost);
            for near in task.taken.free(task.igp, node).filter(|near| near.leads) {
                if task.igp.is_router(near.node) {
                    self.reach(task, near.node, cost + near.cost_there(), Some(near.arc));
                }
            }
        }
    }

    fn reach(&mut self, task: &mut Task<'_>, node: NodeId, cost: Cost, arc: Option<ArcId>) {
        if cost >= self.known[node.index()].cost {
            return;
        }
        // A node that cannot reach the destination does not matter.
        let Some(left) = task.spfs.of(task.igp, task.to, Direction::Toward).hop(task.igp, node) else { return };
        if self.known[node.index()].cost == Cost::MAX {
            self.touched.push(node);
        }
        self.known[node.index()] = Known { cost, arc, ..UNREACHED };
        self.queue.push(Reverse((cost + Cost::at_least(left.distance), node)));
    }
}
