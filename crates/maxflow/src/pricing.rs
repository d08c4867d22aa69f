//! The exact cheapest path at given prices of arcs, under each [`FlowModel`].

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    FlowModel,
    master::cost,
    network::FlowNetwork,
    tree::{Column, Tree},
};

/// A pair as indices of nodes.
pub(super) type Ends = (usize, usize);

/// Finds the cheapest path of each pair.
pub(super) struct Pricing<'a> {
    network: &'a FlowNetwork,
    model: FlowModel,
    /// By destination.
    trees: Vec<Option<Tree>>,
    /// The steps that a path consists of, if it may be longer than a shortest path.
    steps: Steps,
    prices: Vec<f64>,
    /// By destination: the price of a node segment from each node.
    costs: Vec<Vec<f64>>,
    /// By destination: the price of a segment from each node, if segments may end with an adjacency.
    forced: Vec<Vec<f64>>,
    /// By destination and node: the adjacency that the cheapest segment ends with.
    adjacencies: Vec<Vec<Option<u32>>>,
    /// By pair, where its path does not depend on prices.
    fixed: Vec<Column>,
    /// By source: how its cheapest paths were found.
    found: Vec<Found>,
}

/// Arcs, or segments, one after the other.
#[derive(Default)]
struct Steps {
    ends: Vec<(u32, u32)>,
    outgoing: Vec<Vec<u32>>,
}

/// How the cheapest paths from one source were found.
#[derive(Default)]
enum Found {
    #[default]
    Nothing,
    /// By node, the last step.
    Steps(Vec<Option<u32>>),
    /// By number of segments and node, where the last segment begins.
    Layers(Vec<Vec<u32>>),
}

impl<'a> Pricing<'a> {
    pub(super) fn new(network: &'a FlowNetwork, model: FlowModel) -> Self {
        let nodes = network.node_count();
        // No cheapest path visits a node twice at the end of a segment.
        let unlimited = |limit: Option<usize>| limit.filter(|limit| *limit < nodes);
        let model = match model {
            // Adjacency segments alone can force every path, and no split is cheaper than the cheapest of its paths.
            FlowModel::Segments { limit, adjacency: true } | FlowModel::SegmentPaths { limit, adjacency: true }
                if unlimited(limit).is_none() =>
            {
                FlowModel::AnyPath
            }
            FlowModel::Segments { limit, adjacency } => FlowModel::Segments { limit: unlimited(limit), adjacency },
            FlowModel::SegmentPaths { limit, adjacency } => {
                FlowModel::SegmentPaths { limit: unlimited(limit), adjacency }
            }
            other => other,
        };
        let mut pricing = Pricing {
            network,
            model,
            trees: (0..nodes).map(|_| None).collect(),
            steps: Steps::default(),
            prices: Vec::new(),
            costs: vec![Vec::new(); nodes],
            forced: vec![Vec::new(); nodes],
            adjacencies: vec![Vec::new(); nodes],
            fixed: Vec::new(),
            found: Vec::new(),
        };
        if matches!(model, FlowModel::Segments { .. } | FlowModel::SegmentPaths { .. }) {
            (0..nodes).for_each(|to| pricing.grow(to));
        }
        pricing.steps = pricing.steps();
        pricing
    }

    /// Prepares for these pairs.
    pub(super) fn begin(&mut self, pairs: &[Ends]) {
        let by_tree = matches!(self.model, FlowModel::SinglePath | FlowModel::Ecmp | FlowModel::Multipath);
        if by_tree {
            pairs.iter().for_each(|(_, to)| self.grow(*to));
        }
        let fixed = |(from, to): &Ends| {
            let Some(tree) = &self.trees[*to] else { return Column::new() };
            match self.model {
                FlowModel::SinglePath => tree.path(self.network, *from, |next| next.first().copied()),
                _ => tree.split(self.network, *from),
            }
        };
        self.fixed = match self.model {
            FlowModel::SinglePath | FlowModel::Ecmp => pairs.iter().map(fixed).collect(),
            _ => Vec::new(),
        };
        self.found = (0..self.network.node_count()).map(|_| Found::Nothing).collect();
    }

    /// The price of the cheapest path of each pair. It is infinite if there is no path, and may be infinite if the
    /// price is not below `ceiling`. `pairs` are those given to [`begin`](Pricing::begin), by their sources.
    pub(super) fn price(&mut self, prices: &[f64], pairs: &[Ends], ceiling: f64) -> Vec<f64> {
        self.prices = prices.to_vec();
        match self.model {
            FlowModel::SinglePath | FlowModel::Ecmp => self.fixed.iter().map(|column| cost(column, prices)).collect(),
            FlowModel::Multipath => {
                let mut wanted = vec![false; self.network.node_count()];
                pairs.iter().for_each(|(_, to)| wanted[*to] = true);
                self.price_segments(|to| wanted[to]);
                pairs.iter().map(|(from, to)| self.costs[*to][*from]).collect()
            }
            FlowModel::Segments { limit, adjacency } | FlowModel::SegmentPaths { limit, adjacency } => {
                self.price_segments(|_| true);
                match limit {
                    Some(limit) if adjacency => {
                        self.price_adjacencies();
                        self.by_source(pairs, |pricing, from| pricing.layers(from, &pricing.forced, limit))
                    }
                    Some(limit) => self.by_source(pairs, |pricing, from| pricing.layers(from, &pricing.costs, limit)),
                    None => {
                        let cost = |(from, to): &(u32, u32)| self.costs[*to as usize][*from as usize];
                        let costs: Vec<f64> = self.steps.ends.iter().map(cost).collect();
                        self.by_source(pairs, |pricing, from| pricing.search(from, &costs, ceiling))
                    }
                }
            }
            FlowModel::AnyPath => self.by_source(pairs, |pricing, from| pricing.search(from, prices, ceiling)),
        }
    }

    /// The cheapest path of a pair, given by its index and its ends, at the prices last given.
    pub(super) fn column(&self, index: usize, (from, to): Ends) -> Column {
        let mut column = Column::new();
        match (self.model, &self.found[from]) {
            (FlowModel::SinglePath | FlowModel::Ecmp, _) => column.clone_from(&self.fixed[index]),
            (FlowModel::Multipath, _) => column = self.cheapest(from, to),
            (_, Found::Nothing) => {}
            (_, Found::Steps(last)) => {
                let mut at = to;
                while let Some(step) = last[at] {
                    column.extend(self.step(step));
                    at = self.steps.ends[step as usize].0 as usize;
                }
            }
            (_, Found::Layers(layers)) => {
                let mut at = to;
                for begins in layers.iter().rev() {
                    let begin = begins[at] as usize;
                    column.extend(self.segment(begin, at));
                    at = begin;
                }
            }
        }
        merged(column)
    }

    fn grow(&mut self, to: usize) {
        if self.trees[to].is_none() {
            self.trees[to] = Some(Tree::new(self.network, to));
        }
    }

    /// The steps that suffice where their number is not limited.
    ///
    /// A segment whose paths all pass one node is no better than two segments that meet there, so it is left out. The
    /// steps that remain are far fewer than one segment for each pair of nodes.
    fn steps(&self) -> Steps {
        let mut steps = Steps { ends: Vec::new(), outgoing: vec![Vec::new(); self.network.node_count()] };
        match self.model {
            FlowModel::AnyPath => steps.ends.extend(self.network.arcs().iter().map(|arc| (arc.from.0, arc.to.0))),
            FlowModel::Segments { limit: None, .. } => {
                for (to, tree) in self.trees.iter().enumerate() {
                    let Some(tree) = tree else { continue };
                    let gates = tree.gates(self.network);
                    steps.ends.extend(
                        tree.nodes().filter(|node| gates[*node] as usize == to).map(|node| (node as u32, to as u32)),
                    );
                }
            }
            FlowModel::SegmentPaths { limit: None, .. } => {
                for (to, tree) in self.trees.iter().enumerate() {
                    let Some(tree) = tree else { continue };
                    let direct =
                        |node: &usize| tree.next(*node).iter().any(|arc| self.network.arc(*arc).to.index() == to);
                    steps.ends.extend(tree.nodes().filter(direct).map(|node| (node as u32, to as u32)));
                }
            }
            _ => {}
        }
        for (index, (from, _)) in steps.ends.iter().enumerate() {
            steps.outgoing[*from as usize].push(index as u32);
        }
        steps
    }

    /// Prices a segment from each node to each destination wanted.
    fn price_segments(&mut self, wanted: impl Fn(usize) -> bool) {
        let split = matches!(self.model, FlowModel::Segments { .. });
        for (to, costs) in self.costs.iter_mut().enumerate().filter(|(to, _)| wanted(*to)) {
            costs.resize(self.network.node_count(), f64::INFINITY);
            match &self.trees[to] {
                Some(tree) if split => tree.averages(self.network, &self.prices, costs),
                Some(tree) => tree.minima(self.network, &self.prices, costs),
                None => {}
            }
        }
    }

    /// Prices segments that may end with an adjacency: a node segment to its router, and the arc.
    fn price_adjacencies(&mut self) {
        for (to, (forced, adjacencies)) in self.forced.iter_mut().zip(&mut self.adjacencies).enumerate() {
            forced.clone_from(&self.costs[to]);
            adjacencies.clear();
            adjacencies.resize(forced.len(), None);
            for &arc in self.network.incoming(to) {
                let before = &self.costs[self.network.arc(arc).from.index()];
                for ((cheapest, adjacency), before) in forced.iter_mut().zip(adjacencies.iter_mut()).zip(before) {
                    let cost = before + self.prices[arc as usize];
                    if cost < *cheapest {
                        (*cheapest, *adjacency) = (cost, Some(arc));
                    }
                }
            }
        }
    }

    fn by_source(&mut self, pairs: &[Ends], find: impl Fn(&Self, usize) -> (Vec<f64>, Found)) -> Vec<f64> {
        let mut prices = Vec::with_capacity(pairs.len());
        for pairs in pairs.chunk_by(|one, next| one.0 == next.0) {
            let from = pairs[0].0;
            let (costs, found) = find(self, from);
            prices.extend(pairs.iter().map(|(_, to)| costs[*to]));
            self.found[from] = found;
        }
        prices
    }

    /// Dijkstra's algorithm over steps of these costs, below `ceiling`; of equally cheap paths one of fewest steps.
    fn search(&self, from: usize, costs: &[f64], ceiling: f64) -> (Vec<f64>, Found) {
        let nodes = self.network.node_count();
        let mut best = vec![(f64::INFINITY, u32::MAX); nodes];
        let mut last = vec![None; nodes];
        best[from] = (0.0, 0);
        // Non-negative floats are in the same order as their bits.
        let mut queue = BinaryHeap::from([Reverse((0, 0, from as u32))]);
        while let Some(Reverse((cost, count, node))) = queue.pop() {
            let node = node as usize;
            if (cost, count) != (best[node].0.to_bits(), best[node].1) {
                continue;
            }
            for &step in &self.steps.outgoing[node] {
                let to = self.steps.ends[step as usize].1 as usize;
                let reached = (f64::from_bits(cost) + costs[step as usize], count + 1);
                if reached < best[to] && reached.0 < ceiling {
                    best[to] = reached;
                    last[to] = Some(step);
                    queue.push(Reverse((reached.0.to_bits(), reached.1, to as u32)));
                }
            }
        }
        (best.into_iter().map(|(cost, _)| cost).collect(), Found::Steps(last))
    }

    /// The cheapest lists of up to `limit` segments of these costs, one segment longer each time.
    fn layers(&self, from: usize, costs: &[Vec<f64>], limit: usize) -> (Vec<f64>, Found) {
        let nodes = self.network.node_count();
        let mut best = vec![f64::INFINITY; nodes];
        best[from] = 0.0;
        let mut layers = Vec::new();
        for _ in 0..limit {
            let mut longer = best.clone();
            let mut begins: Vec<u32> = (0..nodes as u32).collect();
            for (to, costs) in costs.iter().enumerate() {
                for (begin, cost) in best.iter().zip(costs).map(|(before, cost)| before + cost).enumerate() {
                    if cost < longer[to] {
                        longer[to] = cost;
                        begins[to] = begin as u32;
                    }
                }
            }
            layers.push(begins);
            if longer == best {
                break;
            }
            best = longer;
        }
        (best, Found::Layers(layers))
    }

    fn step(&self, step: u32) -> Column {
        match self.model {
            FlowModel::AnyPath => vec![(step, 1.0)],
            _ => {
                let (from, to) = self.steps.ends[step as usize];
                self.segment(from as usize, to as usize)
            }
        }
    }

    fn segment(&self, from: usize, to: usize) -> Column {
        let Some(arc) = self.adjacencies[to].get(from).copied().flatten() else { return self.node_segment(from, to) };
        let mut column = self.node_segment(from, self.network.arc(arc).from.index());
        column.push((arc, 1.0));
        column
    }

    fn node_segment(&self, from: usize, to: usize) -> Column {
        match (&self.trees[to], self.model) {
            (Some(tree), FlowModel::Segments { .. }) => tree.split(self.network, from),
            _ => self.cheapest(from, to),
        }
    }

    /// The cheapest of the shortest paths.
    fn cheapest(&self, from: usize, to: usize) -> Column {
        let Some(tree) = &self.trees[to] else { return Column::new() };
        let costs = &self.costs[to];
        let over = |arc: &u32| self.prices[*arc as usize] + costs[self.network.arc(*arc).to.index()];
        tree.path(self.network, from, |next| next.iter().copied().min_by(|a, b| over(a).total_cmp(&over(b))))
    }
}

/// Each arc once: segments may share some.
fn merged(mut column: Column) -> Column {
    column.sort_by_key(|(arc, _)| *arc);
    column.dedup_by(|next, one| {
        let same = next.0 == one.0;
        if same {
            one.1 += next.1;
        }
        same
    });
    column
}
