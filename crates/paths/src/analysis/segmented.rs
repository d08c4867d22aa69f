//! Disjoint paths that a limited number of segments can force, counted for all limits at once.

use std::ops::Range;

use super::{
    Net, SegmentOptions,
    disjoint::{Marks, bound, remove, take_missing},
    trees::{Cost, NO_PATH, Trees},
};

/// Searches in one net, whose memory is reused.
///
/// A segment is the one shortest path between two nodes. A search goes segment by segment: from every node reached, it
/// walks the node's tree up to the arcs that are removed. It skips what lies behind a node that was reached before with
/// fewer segments at no more cost, because every part of a shortest path is a shortest path.
#[derive(Clone, Debug)]
pub(super) struct Segmented<'n> {
    net: &'n Net,
    options: SegmentOptions,
    /// By arc.
    removed: Marks,
    /// By node: whether `reached` is of this search.
    seen: Marks,
    reached: Vec<Reached>,
    labels: Vec<Label>,
}

/// The best path to a node so far.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    cost: Cost,
    segments: u32,
    label: u32,
}

/// Where a segment ends.
#[derive(Clone, Copy, Debug)]
struct Label {
    node: u32,
    cost: Cost,
    /// The label at which the segment begins.
    before: u32,
    /// The arc that the segment ends with; `None` for a node segment.
    adjacency: Option<u32>,
}

/// What a search looks for.
struct Goal<'t> {
    to: u32,
    /// Whether any path will do, at whatever cost.
    any: bool,
    /// How many segments lead to what is reached now.
    segments: u32,
    /// By node: the least cost from there.
    toward: &'t [Cost],
}

impl<'n> Segmented<'n> {
    pub(super) fn new(net: &'n Net, options: SegmentOptions) -> Self {
        Segmented {
            net,
            options,
            removed: Marks::new(net.arc_count()),
            seen: Marks::new(net.node_count()),
            reached: vec![Reached::default(); net.node_count()],
            labels: Vec::new(),
        }
    }

    /// How many paths are found by repeatedly taking the shortest within the limit and removing it; by limit, from one
    /// segment on.
    pub(super) fn counts(&mut self, trees: &Trees, from: u32, to: u32, counts: &mut [usize]) {
        counts.fill(0);
        // Groups of limits with the same paths so far, and the arcs of these paths; a stack.
        let mut open = vec![(0..counts.len(), Vec::new())];
        while let Some((limits, before)) = open.pop() {
            self.removed.clear();
            take_missing(&mut self.removed, self.net);
            remove(&mut self.removed, &before, self.options.remove);
            self.extend(trees, (from, to), limits, before, counts, &mut open);
        }
    }

    /// Adds the paths that follow the removed ones, and postpones the limits for which other paths follow.
    fn extend(
        &mut self,
        trees: &Trees,
        (from, to): (u32, u32),
        mut limits: Range<usize>,
        mut before: Vec<u32>,
        counts: &mut [usize],
        open: &mut Vec<(Range<usize>, Vec<u32>)>,
    ) {
        loop {
            let bound = bound(self.net, &self.removed, from, to);
            if bound == 0 || limits.is_empty() {
                return;
            }
            // For the last path only its existence matters.
            let found = self.search(trees, from, to, limits.end, bound == 1);
            if bound == 1 {
                let least = found.first().map_or(limits.end, |(segments, _)| *segments - 1);
                counts[least.max(limits.start)..limits.end].iter_mut().for_each(|count| *count += 1);
                return;
            }
            let mut paths: Vec<_> = Vec::new();
            for (index, (segments, label)) in found.iter().enumerate() {
                let next = found.get(index + 1).map_or(limits.end, |(segments, _)| segments - 1);
                let limits = limits.start.max(segments - 1)..next.max(limits.start);
                counts[limits.clone()].iter_mut().for_each(|count| *count += 1);
                if !limits.is_empty() {
                    paths.push((limits, self.path(trees, *label)));
                }
            }
            let Some((last, path)) = paths.pop() else { return };
            open.extend(paths.into_iter().map(|(limits, path)| (limits, [before.as_slice(), &path].concat())));
            remove(&mut self.removed, &path, self.options.remove);
            before.extend(path);
            limits = last;
        }
    }

    /// The cheapest paths for limits up to `most`: each with the limit from which on it is the cheapest, and its label.
    ///
    /// If `any` path will do, only one with the fewest segments.
    fn search(&mut self, trees: &Trees, from: u32, to: u32, most: usize, any: bool) -> Vec<(usize, u32)> {
        let mut goal = Goal { to, any, segments: 0, toward: trees.toward(to) };
        self.seen.clear();
        self.labels.clear();
        self.label(Label { node: from, cost: 0, before: 0, adjacency: None }, 0);
        let mut found = Vec::new();
        let mut frontier = 0..1;
        for segments in 1..=most as u32 {
            goal.segments = segments;
            for index in frontier.clone() {
                let best = self.reached[self.labels[index].node as usize];
                // Not if a better path here was found with as many segments.
                if best.label == index as u32 || best.segments == segments {
                    self.walk(trees, index as u32, &goal);
                }
            }
            let end = self.reached[to as usize];
            if self.seen.has(to) && end.segments == segments {
                found.push((segments as usize, end.label));
                if any {
                    break;
                }
            }
            frontier = frontier.end..self.labels.len();
        }
        found
    }

    /// Walks the tree of a label's node as far as it leads to something new.
    fn walk(&mut self, trees: &Trees, before: u32, goal: &Goal<'_>) {
        let Label { node: root, cost, .. } = self.labels[before as usize];
        let entries = &trees.tree(root).entries;
        let mut index = 0;
        while let Some(entry) = entries.get(index) {
            let goes_on = index == 0 || {
                let free = !self.removed.has(entry.arc) && (entry.unique || !self.options.unique);
                free && self.reach(Label { node: entry.node, cost: cost + entry.cost, before, adjacency: None }, goal)
            };
            if goes_on && self.options.adjacency {
                for hop in self.net.hops(entry.node).iter().filter(|hop| hop.head != entry.node) {
                    let cost = cost + entry.cost + trees.cost(hop.arc);
                    if !self.removed.has(hop.arc) {
                        self.reach(Label { node: hop.head, cost, before, adjacency: Some(hop.arc) }, goal);
                    }
                }
            }
            index = if goes_on { index + 1 } else { entry.skip as usize };
        }
    }

    /// Ends the segment at a node if that is new or better; returns whether to walk on behind it.
    fn reach(&mut self, label: Label, goal: &Goal<'_>) -> bool {
        let left = goal.toward[label.node as usize];
        if left == NO_PATH {
            return false;
        }
        if !goal.any && self.seen.has(goal.to) && label.cost + left >= self.reached[goal.to as usize].cost {
            return false;
        }
        let best = self.reached[label.node as usize];
        if self.seen.has(label.node) && (goal.any || best.cost <= label.cost) {
            // A node reached within this very segment is walked from only in the next one.
            return best.segments == goal.segments;
        }
        self.label(label, goal.segments);
        true
    }

    fn label(&mut self, label: Label, segments: u32) {
        self.seen.add(label.node);
        self.reached[label.node as usize] = Reached { cost: label.cost, segments, label: self.labels.len() as u32 };
        self.labels.push(label);
    }

    /// The arcs that lead to a label.
    fn path(&self, trees: &Trees, mut label: u32) -> Vec<u32> {
        let mut path = Vec::new();
        while label != 0 {
            let Label { node, before, adjacency, .. } = self.labels[label as usize];
            path.extend(adjacency);
            let end = adjacency.map_or(node, |arc| self.net.tail(arc));
            let entries = &trees.tree(self.labels[before as usize].node).entries;
            let last = entries.iter().position(|entry| entry.node == end).unwrap_or(0);
            let passed = entries.iter().enumerate().take(last + 1).skip(1);
            path.extend(passed.filter(|(_, entry)| entry.skip as usize > last).map(|(_, entry)| entry.arc));
            label = before;
        }
        path
    }
}
