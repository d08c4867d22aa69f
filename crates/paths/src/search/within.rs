//! Whether a limited number of segments forces any path at all.

use std::ops::Range;

use sidestep_net::NodeId;

use super::{Refusal, Task};
use crate::{Igp, spf::Direction};

/// Breadth-first search by segments from both ends, whose memory is reused.
///
/// A list ends with the node segment of the egress router, and every segment before it ends with a router too. So a
/// list of at most k segments exists if and only if, for one choice of i below k, some node is reached by i segments
/// from the source and reaches the destination by k - i segments.
#[derive(Clone, Debug)]
pub(super) struct Within {
    ahead: Side,
    behind: Side,
    /// The nodes of a walk whose neighbours must still be looked at.
    open: Vec<NodeId>,
    /// The refusals, if they are wanted.
    pub(super) refused: Vec<Refusal>,
}

/// The nodes reached from one end.
#[derive(Clone, Debug)]
struct Side {
    /// By node: the fewest segments between the end and here; `u32::MAX` where that is not known.
    segments: Vec<u32>,
    /// By node: the number of segments with which it was last walked from.
    walked: Vec<u32>,
    /// The nodes reached, those of fewest segments first.
    reached: Vec<NodeId>,
    /// Index in `reached` of the first node of the current level, which has the most segments.
    last: usize,
    /// The number of segments of the current level.
    level: u32,
}

impl Within {
    pub(super) fn new(igp: &Igp) -> Self {
        let none = vec![u32::MAX; igp.node_count()];
        let side = Side { segments: none.clone(), walked: none, reached: Vec::new(), last: 0, level: 0 };
        Within { ahead: side.clone(), behind: side, open: Vec::new(), refused: Vec::new() }
    }

    /// Whether a list within the rules forces a path over free links. If none does and `refusals` is given, it gets the
    /// refusals of which at least one must become untrue before a list does.
    pub(super) fn any(&mut self, task: &mut Task<'_>, refusals: bool) -> bool {
        self.refused.clear();
        self.ahead.clear();
        self.behind.clear();
        self.ahead.reach(task.from);
        // The last segment is the egress router's; after an adjacency it may lead nowhere.
        self.behind.level = 1;
        if self.walk(task, task.to, Direction::Toward, refusals) {
            return true;
        }
        for _ in 1..task.rules.max_segments {
            let is_met = if self.ahead.width() <= self.behind.width() {
                self.further_ahead(task, refusals)
            } else {
                self.further_behind(task, refusals)
            };
            if is_met {
                return true;
            }
        }
        false
    }

    /// Goes one segment further from the source; returns whether that meets a node that leads to the destination.
    fn further_ahead(&mut self, task: &mut Task<'_>, refusals: bool) -> bool {
        let roots = self.ahead.advance();
        for index in roots {
            let root = self.ahead.reached[index];
            // The source may be a host, but a segment ends with a router.
            if self.walk(task, root, Direction::From, refusals) {
                return true;
            }
        }
        false
    }

    /// Goes one segment further back from the destination.
    fn further_behind(&mut self, task: &mut Task<'_>, refusals: bool) -> bool {
        let roots = self.behind.advance();
        for index in roots {
            let root = self.behind.reached[index];
            if !task.igp.is_router(root) {
                continue;
            }
            if self.walk(task, root, Direction::Toward, refusals) {
                return true;
            }
            // An adjacency segment leads to its arc's tail first.
            let free = task.taken.free(task.igp, root).filter(|near| near.comes);
            for near in free.filter(|near| task.rules.adjacency && task.igp.is_router(near.node)) {
                let is_known = self.behind.segments[near.node.index()] < self.behind.level;
                let is_walked = self.behind.walked[near.node.index()] == self.behind.level;
                if !is_known && !is_walked && self.walk(task, near.node, Direction::Toward, refusals) {
                    return true;
                }
            }
        }
        false
    }

    /// Follows the unique shortest paths to or from a root as far as they are free; returns whether that meets the
    /// other side.
    ///
    /// It stops at a node that fewer segments reach: what lies behind was found from there.
    fn walk(&mut self, task: &mut Task<'_>, root: NodeId, direction: Direction, refusals: bool) -> bool {
        let Task { igp, taken, .. } = *task;
        let (here, there) = match direction {
            Direction::From => (&mut self.ahead, &self.behind),
            Direction::Toward => (&mut self.behind, &self.ahead),
        };
        let adjacency = task.rules.adjacency && direction == Direction::From;
        let spf = task.spfs.of(igp, root, direction);
        let mut is_met = here.reach(root) && there.has(root);
        here.walked[root.index()] = here.level;
        self.open.clear();
        self.open.push(root);
        while let Some(node) = self.open.pop().filter(|_| !is_met) {
            for near in taken.free(igp, node) {
                let (arc, is_open) = match direction {
                    Direction::From => (near.arc, near.leads),
                    Direction::Toward => (near.arc.reversed(), near.comes),
                };
                // A host can only be the source.
                let is_end = direction == Direction::Toward && near.node == task.from;
                if !is_open || near.node == root || !(igp.is_router(near.node) || is_end) {
                    continue;
                }
                if spf.forces_at(igp, near.node, arc) {
                    if here.segments[near.node.index()] < here.level {
                        continue;
                    }
                    is_met |= here.reach(near.node) && there.has(near.node);
                    if igp.is_router(near.node) {
                        self.open.push(near.node);
                    }
                } else {
                    if refusals {
                        self.refused.push(Refusal { root, arc, direction });
                    }
                    if adjacency && igp.is_router(node) {
                        is_met |= here.reach(near.node) && there.has(near.node);
                    }
                }
            }
        }
        is_met
    }
}

impl Side {
    fn clear(&mut self) {
        for node in self.reached.drain(..) {
            self.segments[node.index()] = u32::MAX;
            self.walked[node.index()] = u32::MAX;
        }
        (self.last, self.level) = (0, 0);
    }

    /// Marks a node as reached with the segments of this level; returns whether it was not reached before.
    fn reach(&mut self, node: NodeId) -> bool {
        let is_new = !self.has(node);
        if is_new {
            self.segments[node.index()] = self.level;
            self.reached.push(node);
        }
        is_new
    }

    fn has(&self, node: NodeId) -> bool {
        self.segments[node.index()] != u32::MAX
    }

    /// How many nodes were reached on the current level.
    fn width(&self) -> usize {
        self.reached.len() - self.last
    }

    /// Goes to the next level; returns the range in `reached` of the nodes where its segments begin or end.
    fn advance(&mut self) -> Range<usize> {
        let roots = self.last..self.reached.len();
        self.last = roots.end;
        self.level += 1;
        roots
    }
}
