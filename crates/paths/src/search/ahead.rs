//! What it costs from the source to where a search from the destination may come.

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_model::{ArcId, NodeId};

use super::Task;
use crate::{Igp, spf::Direction};

/// A* over free links from the source, whose bound is the IGP's distance to the destination.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    known: Vec<Known>,
    /// The nodes in `known` that are reached.
    touched: Vec<NodeId>,
    /// Nodes by the least cost of a path through them.
    queue: BinaryHeap<Reverse<(u64, NodeId)>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    cost: u64,
    /// The arc by which it is reached; `None` of the source.
    arc: Option<ArcId>,
    settled: bool,
    /// Whether the way to it was retraced.
    retraced: bool,
}

const UNREACHED: Known = Known { cost: u64::MAX, arc: None, settled: false, retraced: false };

impl Ahead {
    pub(super) fn new(igp: &Igp) -> Self {
        Ahead { known: vec![UNREACHED; igp.node_count()], touched: Vec::new(), queue: BinaryHeap::new() }
    }

    pub(super) fn clear(&mut self) {
        self.touched.drain(..).for_each(|node| self.known[node.index()] = UNREACHED);
        self.queue.clear();
    }

    /// The cost to the destination, up to which all is then known; `None` where no free links lead there.
    pub(super) fn begin(&mut self, task: &mut Task<'_>) -> Option<u64> {
        self.reach(task, task.from, 0, None);
        while !self.known[task.to.index()].settled {
            let Reverse((total, _)) = self.queue.peek()?;
            self.settle(task, *total);
        }
        let total = self.known[task.to.index()].cost;
        self.settle(task, total);
        Some(total)
    }

    /// The cost from the source, if the node is settled.
    pub(super) fn cost(&self, node: NodeId) -> Option<u64> {
        Some(self.known[node.index()]).filter(|known| known.settled).map(|known| known.cost)
    }

    /// The least total cost that is not settled yet; `None` where there is nothing left.
    pub(super) fn next(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((total, _))| *total)
    }

    /// Settles all nodes on paths up to this total cost.
    pub(super) fn settle(&mut self, task: &mut Task<'_>, horizon: u64) {
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
            for near in task.taken.free(task.igp, node) {
                if task.igp.is_router(near.node) {
                    self.reach(task, near.node, cost + u64::from(near.there), Some(near.arc));
                }
            }
        }
    }

    /// Leaves the way to a node out of what [`retrace`](Self::retrace) visits.
    pub(super) fn pass(&mut self, node: NodeId) {
        self.known[node.index()].retraced = true;
    }

    /// The arcs by which a settled node was reached; those that were visited before are left out.
    pub(super) fn retrace(&mut self, igp: &Igp, mut node: NodeId, mut visit: impl FnMut(ArcId)) {
        while !std::mem::replace(&mut self.known[node.index()].retraced, true) {
            let Some(arc) = self.known[node.index()].arc else { return };
            visit(arc);
            node = igp.arc(arc).tail;
        }
    }

    fn reach(&mut self, task: &mut Task<'_>, node: NodeId, cost: u64, arc: Option<ArcId>) {
        if cost >= self.known[node.index()].cost {
            return;
        }
        // What cannot reach the destination at all is no matter.
        let Some(left) = task.spfs.of(task.igp, task.to, Direction::Toward).hop(task.igp, node) else { return };
        if self.known[node.index()].cost == u64::MAX {
            self.touched.push(node);
        }
        self.known[node.index()] = Known { cost, arc, ..UNREACHED };
        self.queue.push(Reverse((cost + left.distance, node)));
    }
}
