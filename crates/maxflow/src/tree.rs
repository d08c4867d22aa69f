//! Shortest paths to one destination: the DAG by which routers forward.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::network::FlowNetwork;

/// The share of a unit of flow on each arc: r(l, p) of a path p on a link l.
pub(super) type Column = Vec<(u32, f64)>;

/// The shortest-path DAG to a destination.
pub(super) struct Tree {
    /// Nodes from which it can be reached, nearest first, beginning with itself.
    order: Vec<u32>,
    /// By node: the first of its arcs in `next`, and one past the last.
    first: Vec<(u32, u32)>,
    /// Arcs on shortest paths, by node, in the order of their indices.
    next: Vec<u32>,
}

impl Tree {
    pub(super) fn new(network: &FlowNetwork, to: usize) -> Self {
        Tree::without(network, to, &[])
    }

    /// The DAG after the failure of these arcs.
    pub(super) fn without(network: &FlowNetwork, to: usize, failed: &[u32]) -> Self {
        let mut distance = vec![u64::MAX; network.node_count()];
        let mut order = Vec::new();
        let mut queue = BinaryHeap::from([Reverse((0, to as u32))]);
        while let Some(Reverse((far, node))) = queue.pop() {
            if distance[node as usize] != u64::MAX {
                continue;
            }
            distance[node as usize] = far;
            order.push(node);
            for arc in network.incoming(node as usize).iter().filter(|arc| !failed.contains(arc)) {
                let arc = network.arc(*arc);
                if distance[arc.from.index()] == u64::MAX {
                    queue.push(Reverse((far + arc.weight, arc.from.0)));
                }
            }
        }
        let mut tree = Tree { order, first: vec![(0, 0); network.node_count()], next: Vec::new() };
        for &node in &tree.order {
            let begin = tree.next.len() as u32;
            let shortest = |arc: &&u32| {
                let arc = network.arc(**arc);
                let beyond = distance[arc.to.index()];
                beyond != u64::MAX && beyond + arc.weight == distance[arc.from.index()]
            };
            let up = network.outgoing(node as usize).iter().filter(|arc| !failed.contains(arc));
            tree.next.extend(up.filter(shortest));
            tree.first[node as usize] = (begin, tree.next.len() as u32);
        }
        tree
    }

    /// The arcs on which a router forwards, each with the same share; none at the destination and where there is no
    /// path.
    pub(super) fn next(&self, node: usize) -> &[u32] {
        let (begin, end) = self.first[node];
        &self.next[begin as usize..end as usize]
    }

    /// Whether a shortest path takes this arc.
    pub(super) fn uses(&self, network: &FlowNetwork, arc: u32) -> bool {
        self.next(network.arc(arc).from.index()).contains(&arc)
    }

    /// Whether the destination can be reached from a node.
    pub(super) fn reaches(&self, node: usize) -> bool {
        !self.next(node).is_empty() || self.order.first() == Some(&(node as u32))
    }

    /// Forwards what each node has to send, in `rates`, and adds it to `loads` by arc; `rates` is zero then but at the
    /// destination. `one` sends all over the first arc, instead of the same share over each.
    pub(super) fn forward(&self, network: &FlowNetwork, one: bool, rates: &mut [f64], loads: &mut [f64]) {
        for node in self.nodes().rev() {
            let rate = std::mem::take(&mut rates[node]);
            if rate > 0.0 {
                let next = self.next(node);
                let next = if one { &next[..1] } else { next };
                let each = rate / next.len() as f64;
                for &arc in next {
                    loads[arc as usize] += each;
                    rates[network.arc(arc).to.index()] += each;
                }
            }
        }
    }

    /// All nodes but the destination from which it can be reached, nearest first.
    pub(super) fn nodes(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.order.iter().skip(1).map(|node| *node as usize)
    }

    /// By node, the price of a unit of flow that every router splits evenly (ECMP).
    pub(super) fn averages(&self, network: &FlowNetwork, prices: &[f64], costs: &mut [f64]) {
        self.costs(costs, |next, costs| {
            let sum: f64 = next.iter().map(|arc| prices[*arc as usize] + costs[network.arc(*arc).to.index()]).sum();
            sum / next.len() as f64
        });
    }

    /// By node, the price of a unit of flow on the cheapest of the shortest paths.
    pub(super) fn minima(&self, network: &FlowNetwork, prices: &[f64], costs: &mut [f64]) {
        self.costs(costs, |next, costs| {
            let over = |arc: &u32| prices[*arc as usize] + costs[network.arc(*arc).to.index()];
            next.iter().map(over).fold(f64::INFINITY, f64::min)
        });
    }

    fn costs(&self, costs: &mut [f64], cost: impl Fn(&[u32], &[f64]) -> f64) {
        costs.fill(f64::INFINITY);
        if let Some(to) = self.order.first() {
            costs[*to as usize] = 0.0;
        }
        for node in self.nodes() {
            costs[node] = cost(self.next(node), costs);
        }
    }

    /// What a unit of flow from `from` puts on each arc where every router splits evenly.
    pub(super) fn split(&self, network: &FlowNetwork, from: usize) -> Column {
        let mut share = vec![0.0; network.node_count()];
        share[from] = 1.0;
        let mut column = Column::new();
        for node in self.nodes().rev() {
            let next = self.next(node);
            if share[node] > 0.0 {
                let each = share[node] / next.len() as f64;
                for &arc in next {
                    share[network.arc(arc).to.index()] += each;
                    column.push((arc, each));
                }
            }
        }
        column
    }

    /// The path that `choose` makes, an arc at each node.
    pub(super) fn path(&self, network: &FlowNetwork, from: usize, choose: impl Fn(&[u32]) -> Option<u32>) -> Column {
        let mut column = Column::new();
        let mut node = from;
        while let Some(arc) = choose(self.next(node)) {
            column.push((arc, 1.0));
            node = network.arc(arc).to.index();
        }
        column
    }

    /// By node, the first other node that all its shortest paths pass; the destination if they have no other in common.
    /// The node itself at the destination and where there is no path.
    pub(super) fn gates(&self, network: &FlowNetwork) -> Vec<u32> {
        let mut gates: Vec<u32> = (0..network.node_count() as u32).collect();
        let mut depth = vec![0u32; network.node_count()];
        for node in self.nodes() {
            let mut heads = self.next(node).iter().map(|arc| network.arc(*arc).to.0);
            let Some(mut gate) = heads.next() else { continue };
            for mut other in heads {
                // The nearest common ancestor in the tree of gates.
                while gate != other {
                    if depth[gate as usize] >= depth[other as usize] {
                        gate = gates[gate as usize];
                    } else {
                        other = gates[other as usize];
                    }
                }
            }
            gates[node] = gate;
            depth[node] = depth[gate as usize] + 1;
        }
        gates
    }
}
