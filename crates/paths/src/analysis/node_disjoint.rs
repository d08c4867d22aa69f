//! The most paths without a common node.

use super::{Net, disjoint::Marks};

/// Where a search is: a node, entered but not yet passed through (even), or about to be left (odd).
type Place = u32;

/// Edmonds and Karp's algorithm in one net, with nodes that carry one path each; its memory is reused.
#[derive(Clone, Debug)]
pub(super) struct NodeFinder<'n> {
    net: &'n Net,
    /// By arc: whether it carries a path.
    arcs: Marks,
    /// By node: whether a path goes through it.
    nodes: Marks,
    seen: Marks,
    came: Vec<Step>,
    queue: Vec<Place>,
}

/// How a place was reached: from where, and by which arc, or through the node.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    from: Place,
    arc: Option<u32>,
}

impl<'n> NodeFinder<'n> {
    pub(super) fn new(net: &'n Net) -> Self {
        let nodes = net.node_count();
        NodeFinder {
            net,
            arcs: Marks::new(net.arc_count()),
            nodes: Marks::new(nodes),
            seen: Marks::new(2 * nodes),
            came: vec![Step::default(); 2 * nodes],
            queue: Vec::new(),
        }
    }

    /// The most paths that have no node in common but their ends.
    pub(super) fn most(&mut self, from: u32, to: u32) -> usize {
        self.arcs.clear();
        self.nodes.clear();
        let mut found = 0;
        while self.reach(2 * from + 1, 2 * to) {
            self.add_path(2 * from + 1, 2 * to);
            found += 1;
        }
        found
    }

    /// Breadth-first search over what is free, and back over what carries a path.
    fn reach(&mut self, from: Place, to: Place) -> bool {
        self.seen.clear();
        self.seen.add(from);
        self.queue.clear();
        self.queue.push(from);
        let mut next = 0;
        while let Some(&place) = self.queue.get(next) {
            next += 1;
            let (node, leaves) = (place / 2, place % 2 == 1);
            if self.nodes.has(node) == leaves {
                self.step(place, place ^ 1, None);
            }
            for hop in self.net.hops(node) {
                if leaves && !self.arcs.has(hop.arc) && self.net.has(hop.arc) {
                    self.step(place, 2 * hop.head, Some(hop.arc));
                } else if !leaves && self.arcs.has(hop.arc ^ 1) {
                    self.step(place, 2 * hop.head + 1, Some(hop.arc ^ 1));
                }
            }
            if self.seen.has(to) {
                return true;
            }
        }
        false
    }

    fn step(&mut self, from: Place, to: Place, arc: Option<u32>) {
        if self.seen.add(to) {
            self.came[to as usize] = Step { from, arc };
            self.queue.push(to);
        }
    }

    /// Adds the path that was found, and takes back what it goes over backwards.
    fn add_path(&mut self, from: Place, mut at: Place) {
        while at != from {
            let step = self.came[at as usize];
            let forwards = match step.arc {
                Some(_) => at.is_multiple_of(2),
                None => at % 2 == 1,
            };
            let (marks, index) = match step.arc {
                Some(arc) => (&mut self.arcs, arc),
                None => (&mut self.nodes, at / 2),
            };
            if forwards {
                marks.add(index);
            } else {
                marks.remove(index);
            }
            at = step.from;
        }
    }
}
