//! Counts of disjoint paths: the most that exist, and those that iterated Dijkstra finds.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    Net, Remove, RiskGroups,
    trees::{Cost, Trees},
};

/// A set of marks that is cleared in constant time.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    stamps: Vec<u32>,
    now: u32,
}

impl Marks {
    pub(super) fn new(count: usize) -> Self {
        Marks { stamps: vec![0; count], now: 1 }
    }

    pub(super) fn clear(&mut self) {
        self.now = self.now.wrapping_add(1);
        if self.now == 0 {
            self.stamps.fill(0);
            self.now = 1;
        }
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.stamps[index as usize] == self.now
    }

    /// Marks an index; returns whether it was not marked before.
    pub(super) fn add(&mut self, index: u32) -> bool {
        std::mem::replace(&mut self.stamps[index as usize], self.now) != self.now
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.stamps[index as usize] = 0;
    }
}

/// Marks the arcs of a path as removed.
pub(super) fn remove(removed: &mut Marks, path: &[u32], directions: Remove) {
    for arc in path {
        removed.add(*arc);
        if directions == Remove::Both {
            removed.add(arc ^ 1);
        }
    }
}

/// Takes the arcs that the net does not have; no path can use them.
pub(super) fn take_missing(taken: &mut Marks, net: &Net) {
    net.missing().iter().for_each(|arc| {
        taken.add(*arc);
    });
}

/// How many more paths there can be: the arcs left at the end that has fewer.
pub(super) fn bound(net: &Net, removed: &Marks, from: u32, to: u32) -> usize {
    let open = |arc: u32| !removed.has(arc) && net.has(arc);
    let leave = net.hops(from).iter().filter(|hop| hop.head != from && open(hop.arc)).count();
    let arrive = net.hops(to).iter().filter(|hop| hop.head != to && open(hop.arc ^ 1)).count();
    leave.min(arrive)
}

/// Searches in one net, whose memory is reused.
#[derive(Clone, Debug)]
pub(super) struct Finder<'n> {
    net: &'n Net,
    /// By arc: removed, or full with flow.
    taken: Marks,
    /// By node: whether this search has it.
    seen: Marks,
    /// By node: the arc by which it was reached, and the cost.
    came: Vec<u32>,
    costs: Vec<Cost>,
    queue: Vec<u32>,
    heap: BinaryHeap<Reverse<(Cost, u32)>>,
    path: Vec<u32>,
}

impl<'n> Finder<'n> {
    pub(super) fn new(net: &'n Net) -> Self {
        let nodes = net.node_count();
        Finder {
            net,
            taken: Marks::new(net.arc_count()),
            seen: Marks::new(nodes),
            came: vec![0; nodes],
            costs: vec![0; nodes],
            queue: Vec::new(),
            heap: BinaryHeap::new(),
            path: Vec::new(),
        }
    }

    /// The most link-disjoint paths, by Edmonds and Karp's algorithm: a link carries one path, in either direction.
    pub(super) fn most(&mut self, from: u32, to: u32) -> usize {
        self.up_to(usize::MAX, from, to, None)
    }

    /// The most link-disjoint paths without a link, but no more than the limit.
    pub(super) fn up_to(&mut self, limit: usize, from: u32, to: u32, without: Option<u32>) -> usize {
        self.taken.clear();
        let most = bound(self.net, &self.taken, from, to).min(limit);
        // An arc is full if it carries a path; then its reverse has room to take that back, also one that is missing.
        let open = |net: &Net, taken: &Marks, arc: u32| {
            !taken.has(arc) && (net.has(arc) || taken.has(arc ^ 1)) && Some(arc / 2) != without
        };
        for found in 0..most {
            if !self.reach(from, to, open) {
                return found;
            }
            let mut at = to;
            while at != from {
                let arc = self.came[at as usize];
                if self.taken.has(arc ^ 1) {
                    self.taken.remove(arc ^ 1);
                } else {
                    self.taken.add(arc);
                }
                at = self.net.tail(arc);
            }
        }
        most
    }

    /// The links of the paths that [`most`](Self::most) or [`up_to`](Self::up_to) found last, ascending.
    pub(super) fn links(&self) -> Vec<u32> {
        (0..self.net.link_count() as u32)
            .filter(|link| self.taken.has(2 * link) || self.taken.has(2 * link + 1))
            .collect()
    }

    /// How many link-disjoint paths are found by repeatedly taking the shortest and removing it.
    pub(super) fn greedy(&mut self, trees: &Trees, from: u32, to: u32, directions: Remove) -> usize {
        self.taken.clear();
        take_missing(&mut self.taken, self.net);
        for found in 0.. {
            match bound(self.net, &self.taken, from, to) {
                0 => return found,
                // For the last path only its existence matters.
                1 => return found + usize::from(self.reach(from, to, |_, taken, arc| !taken.has(arc))),
                _ if !self.shortest(trees, from, to) => return found,
                _ => remove(&mut self.taken, &self.path, directions),
            }
        }
        0
    }

    /// How many risk-disjoint paths are found by repeatedly taking the shortest and removing all links of its risk
    /// groups.
    pub(super) fn greedy_risks(&mut self, trees: &Trees, from: u32, to: u32, risks: &RiskGroups) -> usize {
        self.taken.clear();
        take_missing(&mut self.taken, self.net);
        for found in 0.. {
            match bound(self.net, &self.taken, from, to) {
                0 => return found,
                1 => return found + usize::from(self.reach(from, to, |_, taken, arc| !taken.has(arc))),
                _ if !self.shortest(trees, from, to) => return found,
                _ => {
                    remove(&mut self.taken, &self.path, Remove::Both);
                    self.path.iter().for_each(|arc| risks.take(&mut self.taken, arc / 2));
                }
            }
        }
        0
    }

    /// Breadth-first search over the arcs that are `open`.
    fn reach(&mut self, from: u32, to: u32, open: impl Fn(&Net, &Marks, u32) -> bool) -> bool {
        self.seen.clear();
        self.seen.add(from);
        self.queue.clear();
        self.queue.push(from);
        let mut next = 0;
        while let Some(&node) = self.queue.get(next) {
            next += 1;
            for hop in self.net.hops(node) {
                if open(self.net, &self.taken, hop.arc) && self.seen.add(hop.head) {
                    self.came[hop.head as usize] = hop.arc;
                    if hop.head == to {
                        return true;
                    }
                    self.queue.push(hop.head);
                }
            }
        }
        false
    }

    /// Dijkstra's algorithm over the arcs that are not taken; the path is left in `path`.
    fn shortest(&mut self, trees: &Trees, from: u32, to: u32) -> bool {
        let toward = trees.toward(to);
        self.path.clear();
        self.seen.clear();
        self.seen.add(from);
        self.costs[from as usize] = 0;
        self.heap.clear();
        self.heap.push(Reverse((toward[from as usize], from)));
        while let Some(Reverse((bound, node))) = self.heap.pop() {
            if node == to {
                let mut at = to;
                while at != from {
                    self.path.push(self.came[at as usize]);
                    at = self.net.tail(self.came[at as usize]);
                }
                return true;
            }
            let cost = self.costs[node as usize];
            if bound != cost.saturating_add(toward[node as usize]) {
                continue;
            }
            for hop in self.net.hops(node).iter().filter(|hop| !self.taken.has(hop.arc)) {
                let cost = cost + trees.cost(hop.arc);
                if self.seen.add(hop.head) || cost < self.costs[hop.head as usize] {
                    self.costs[hop.head as usize] = cost;
                    self.came[hop.head as usize] = hop.arc;
                    self.heap.push(Reverse((cost.saturating_add(toward[hop.head as usize]), hop.head)));
                }
            }
        }
        false
    }
}
