//! All shortest paths of a net, one for each pair of nodes.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Net, NetError};
use crate::cost::own;

/// More nodes than this are refused: the paths take 48 bytes for each pair of nodes.
pub(super) const MAX_NODES: usize = 4096;

/// What a path costs: the weights of its links, and in the lower 32 bits what breaks ties.
pub(super) type Cost = u128;

/// The cost where there is no path.
pub(super) const NO_PATH: Cost = Cost::MAX;

/// Shortest-path trees from every node, each in depth-first order.
///
/// A link's cost is its weight plus a small amount of its own, which breaks ties consistently. So there is exactly one
/// shortest path between two nodes, and every part of a shortest path is a shortest path.
#[derive(Clone, Debug)]
pub(super) struct Trees {
    nodes: usize,
    /// By arc.
    costs: Vec<Cost>,
    trees: Vec<Tree>,
    /// By destination, then by node: the cost from there, or [`NO_PATH`].
    toward: Vec<Cost>,
}

/// The nodes that one node reaches.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// Itself first; each node before those behind it.
    pub(super) entries: Vec<Entry>,
}

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) node: u32,
    /// The arc by which it is reached; meaningless for the first entry.
    pub(super) arc: u32,
    /// Index of the first later entry that is not below this one in the tree.
    pub(super) skip: u32,
    /// Whether no other path there has the same weight.
    pub(super) unique: bool,
    /// Cost of the path there.
    pub(super) cost: Cost,
}

/// What Dijkstra's algorithm knows of a node.
#[derive(Clone, Copy)]
struct Known {
    cost: Cost,
    arc: u32,
    done: bool,
}

impl Trees {
    pub(super) fn new(net: &Net) -> Result<Trees, NetError> {
        let nodes = net.node_count();
        if nodes > MAX_NODES {
            return Err(NetError::TooLarge { nodes, limit: MAX_NODES });
        }
        // The amounts added along a path must sum to less than one unit of weight.
        let bits = 32 + nodes.leading_zeros() - usize::BITS;
        let cost = |arc| (Cost::from(net.weight(arc)) << 32) + Cost::from((own(arc / 2) >> (64 - bits)).max(1));
        let costs: Vec<Cost> = (0..net.arc_count() as u32).map(cost).collect();
        let mut made = Trees { nodes, costs, trees: Vec::new(), toward: vec![NO_PATH; nodes * nodes] };
        let mut search = Search { known: Vec::new(), queue: BinaryHeap::new(), children: Vec::new() };
        for root in 0..nodes as u32 {
            search.run(net, &made.costs, root);
            let tree = search.tree(net, root);
            for entry in &tree.entries {
                made.toward[entry.node as usize * nodes + root as usize] = entry.cost;
            }
            made.trees.push(tree);
        }
        Ok(made)
    }

    pub(super) fn tree(&self, root: u32) -> &Tree {
        &self.trees[root as usize]
    }

    /// By node: the cost from there to `to`, or [`NO_PATH`].
    pub(super) fn toward(&self, to: u32) -> &[Cost] {
        &self.toward[to as usize * self.nodes..][..self.nodes]
    }

    pub(super) fn cost(&self, arc: u32) -> Cost {
        self.costs[arc as usize]
    }
}

/// Reused from root to root.
struct Search {
    known: Vec<Known>,
    queue: BinaryHeap<Reverse<(Cost, u32)>>,
    /// The nodes that are reached, by parent.
    children: Vec<(u32, u32)>,
}

impl Search {
    /// Dijkstra's algorithm.
    fn run(&mut self, net: &Net, costs: &[Cost], root: u32) {
        self.known.clear();
        self.known.resize(net.node_count(), Known { cost: NO_PATH, arc: u32::MAX, done: false });
        self.known[root as usize].cost = 0;
        self.queue.push(Reverse((0, root)));
        while let Some(Reverse((cost, node))) = self.queue.pop() {
            let here = &mut self.known[node as usize];
            if std::mem::replace(&mut here.done, true) {
                continue;
            }
            for hop in net.hops(node).iter().filter(|hop| net.has(hop.arc)) {
                let cost = cost + costs[hop.arc as usize];
                let there = &mut self.known[hop.head as usize];
                if cost < there.cost {
                    *there = Known { cost, arc: hop.arc, done: false };
                    self.queue.push(Reverse((cost, hop.head)));
                }
            }
        }
    }

    /// The tree of what was found.
    fn tree(&mut self, net: &Net, root: u32) -> Tree {
        let reached = |(_, known): &(usize, &Known)| known.done && known.arc != u32::MAX;
        self.children.clear();
        let parents =
            self.known.iter().enumerate().filter(reached).map(|(node, known)| (net.tail(known.arc), node as u32));
        self.children.extend(parents);
        self.children.sort_unstable();
        let mut tree = Tree { entries: Vec::with_capacity(self.children.len() + 1) };
        // The nodes still to be written, and the entries still to be closed.
        let mut stack = vec![(root, true)];
        let mut open: Vec<u32> = Vec::new();
        while let Some((node, opens)) = stack.pop() {
            if !opens {
                let index = open.pop().unwrap_or(0);
                tree.entries[index as usize].skip = tree.entries.len() as u32;
                continue;
            }
            let parent = open.last().map(|index| tree.entries[*index as usize]);
            let known = self.known[node as usize];
            let unique = parent.is_none_or(|parent| parent.unique && self.has_one_parent(net, node));
            open.push(tree.entries.len() as u32);
            tree.entries.push(Entry { node, arc: known.arc, skip: 0, unique, cost: known.cost });
            stack.push((node, false));
            let from = self.children.partition_point(|(parent, _)| *parent < node);
            let behind = self.children[from..].iter().take_while(|(parent, _)| *parent == node);
            stack.extend(behind.map(|(_, child)| (*child, true)));
        }
        tree
    }

    /// Whether only one arc that enters the node is on a shortest path, by weight alone.
    fn has_one_parent(&self, net: &Net, node: u32) -> bool {
        let weight = self.known[node as usize].cost >> 32;
        let on_path = |arc: u32| {
            let before = self.known[net.tail(arc) as usize].cost;
            net.has(arc) && before != NO_PATH && (before >> 32) + Cost::from(net.weight(arc)) == weight
        };
        net.hops(node).iter().filter(|hop| on_path(hop.arc ^ 1)).count() == 1
    }
}
