//! Maximum flow between many pairs as a linear program, solved by column generation.

#[cfg(test)]
mod tests;

use sidestep_net::NodeId;

use super::{
    master::Master,
    network::{FlowError, FlowNetwork, MAX_GAP},
    pricing::{Ends, Pricing},
    solved::Solved,
};

/// On which paths flow may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowModel {
    /// One shortest path for each pair; of equal ones, the one with the lowest arcs.
    SinglePath,
    /// All shortest paths, split evenly by every router that has several next hops (ECMP).
    Ecmp,
    /// All shortest paths, in any proportion.
    Multipath,
    /// Lists of node segments, each split by ECMP: the ratios r(l, p) of TCPPathChanger's program.
    Segments {
        /// How many segments there may be; `None`: any number.
        limit: Option<usize>,
        /// Whether a segment may end with an adjacency: the link that its router then sends over (RFC 8986, End.X).
        adjacency: bool,
    },
    /// Lists of segments, where the flow takes any of the shortest paths on each segment, in any proportion.
    SegmentPaths {
        /// How many segments there may be; `None`: any number.
        limit: Option<usize>,
        /// Whether a segment may end with an adjacency.
        adjacency: bool,
    },
    /// All paths: multi-commodity maximum flow, which no routing surpasses.
    AnyPath,
}

/// A maximum flow, with the proof that it is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MaxFlow {
    /// The sum over all pairs, in the unit of the capacities.
    pub flow: f64,
    /// The upper bound that the prices prove, by weak duality.
    pub bound: f64,
    /// The paths in use.
    pub paths: Vec<PathFlow>,
    /// By arc, the price: how much the flow would grow with its capacity.
    pub prices: Vec<f64>,
    /// How often the program was solved.
    pub rounds: usize,
    /// How many paths it had in the end.
    pub columns: usize,
}

/// A path and its flow.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFlow {
    /// Between which nodes.
    pub pair: (NodeId, NodeId),
    /// How much flows, in the unit of the capacities.
    pub rate: f64,
    /// The share of the flow on each arc, by ascending index of the arc; above 1 where segments pass it more than once.
    pub shares: Vec<(usize, f64)>,
}

/// Maximum flows over one network under one model, for any sets of pairs.
pub struct FlowProgram<'a> {
    network: &'a FlowNetwork,
    model: FlowModel,
    pricing: Pricing<'a>,
}

/// A path is worth adding if it costs less than 1 by this.
const TOLERANCE: f64 = 1e-9;
/// The most rounds; no known network needs more.
const MAX_ROUNDS: usize = 10_000;

impl<'a> FlowProgram<'a> {
    /// Prepares a program: under segment routing, it computes all shortest paths.
    pub fn new(network: &'a FlowNetwork, model: FlowModel) -> Self {
        FlowProgram { network, model, pricing: Pricing::new(network, model) }
    }

    /// The largest sum of flows between these ordered pairs, each with as much to send as there is room.
    ///
    /// Pairs without a path have no flow, and a pair that is given twice counts once. Fails on a pair of equal or
    /// unknown nodes, and if the bound is not within [`MAX_GAP`] of the flow.
    pub fn solve(&mut self, pairs: &[(NodeId, NodeId)]) -> Result<MaxFlow, FlowError> {
        let pairs = self.ends(pairs)?;
        self.solve_on(&pairs, &mut Master::new(self.network))
    }

    /// The flows of several programs for the same pairs, by program.
    ///
    /// A program whose model allows all paths of an earlier program's model starts from the earlier solution, which
    /// saves most of the work. So give the programs with fewer paths first.
    pub fn solve_each(programs: &mut [Self], pairs: &[(NodeId, NodeId)]) -> Result<Vec<MaxFlow>, FlowError> {
        let mut solved: Vec<(FlowModel, Master<'_>)> = Vec::new();
        let mut flows = Vec::with_capacity(programs.len());
        for program in programs {
            let pairs = program.ends(pairs)?;
            let usable = |(model, master): &(FlowModel, Master<'_>)| {
                model.within(program.model) && master.is_on(program.network) && !master.columns().is_empty()
            };
            let mut master = match solved.iter().rposition(usable) {
                Some(before) => solved.swap_remove(before).1,
                None => Master::new(program.network),
            };
            flows.push(program.solve_on(&pairs, &mut master)?);
            solved.push((program.model, master));
        }
        Ok(flows)
    }

    /// Adds paths until none improves the flow.
    fn solve_on(&mut self, pairs: &[Ends], master: &mut Master<'a>) -> Result<MaxFlow, FlowError> {
        self.pricing.begin(pairs);
        let mut best = MaxFlow { bound: f64::INFINITY, ..MaxFlow::default() };
        for round in 0..MAX_ROUNDS {
            let ceiling = if master.columns().is_empty() { f64::INFINITY } else { 1.0 - TOLERANCE };
            let costs = self.pricing.price(&master.solved().prices, pairs, ceiling);
            best.improve(self.network, master.solved(), &costs, ceiling, round);
            let added = self.cheapest(&costs, ceiling);
            let done = added.is_empty() && (master.solved().best || master.columns().is_empty());
            if done || best.gap() <= TOLERANCE {
                break;
            }
            for index in added {
                master.add(index, self.pricing.column(index, pairs[index]));
            }
            master.solve()?;
        }
        best.columns = master.columns().len();
        best.paths = paths(master, pairs);
        best.proved()
    }

    /// The pairs by source, each once.
    fn ends(&self, pairs: &[(NodeId, NodeId)]) -> Result<Vec<Ends>, FlowError> {
        let mut ends = Vec::with_capacity(pairs.len());
        for (from, to) in pairs {
            self.network.check(*from)?;
            self.network.check(*to)?;
            if from == to {
                return Err(FlowError::Pair { node: *from });
            }
            ends.push((from.index(), to.index()));
        }
        ends.sort_unstable();
        ends.dedup();
        Ok(ends)
    }

    /// The pairs whose paths cost less than `limit`, the cheapest first, no more than the program digests at a time.
    fn cheapest(&self, costs: &[f64], limit: f64) -> Vec<usize> {
        let mut cheap: Vec<usize> = (0..costs.len()).filter(|index| costs[*index] < limit).collect();
        cheap.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
        cheap.truncate(self.network.arcs().len().max(64));
        cheap
    }
}

impl FlowModel {
    /// Whether each path of this model is one of the other's too.
    fn within(self, other: FlowModel) -> bool {
        use FlowModel::{AnyPath, Ecmp, Multipath, SegmentPaths, Segments, SinglePath};
        // `None`, no limit, counts as the largest limit.
        let shorter =
            |one: Option<usize>, other: Option<usize>| other.is_none_or(|other| one.is_some_and(|one| one <= other));
        match (self, other) {
            (Segments { limit, adjacency }, Segments { limit: more, adjacency: forced })
            | (SegmentPaths { limit, adjacency }, SegmentPaths { limit: more, adjacency: forced }) => {
                shorter(limit, more) && adjacency <= forced
            }
            (Ecmp, Segments { limit, .. }) | (SinglePath | Multipath, SegmentPaths { limit, .. }) => limit != Some(0),
            (SinglePath, Multipath) | (SinglePath | Multipath | SegmentPaths { .. }, AnyPath) => true,
            _ => self == other,
        }
    }
}

impl MaxFlow {
    /// How far the bound is above the flow, as a share of the flow; 0 without flow.
    pub fn gap(&self) -> f64 {
        if self.bound > 0.0 { (self.bound - self.flow).max(0.0) / self.flow } else { 0.0 }
    }

    /// Records what a round proved: a flow, and a bound. Prices at which no path costs less than 1 solve the dual
    /// program. If the cheapest path costs less, dividing the prices by its price makes them a solution.
    fn improve(&mut self, network: &FlowNetwork, solved: &Solved, costs: &[f64], ceiling: f64, round: usize) {
        let worth: f64 = network.arcs().iter().zip(&solved.prices).map(|(arc, price)| arc.capacity * price).sum();
        let cheapest = costs.iter().copied().fold(f64::INFINITY, f64::min);
        // Prices beyond the ceiling are unknown. The first round has no ceiling: there, no price means no path at all.
        self.bound = self.bound.min(worth / cheapest.min(ceiling).min(1.0));
        if cheapest.min(ceiling) == f64::INFINITY {
            self.bound = 0.0;
        }
        // Not `sum`, which returns -0.0 for no terms.
        self.flow = solved.rates.iter().fold(0.0, |sum, rate| sum + rate);
        self.prices.clone_from(&solved.prices);
        self.rounds = round;
    }

    fn proved(self) -> Result<Self, FlowError> {
        // Written so that NaN fails.
        match self.gap() <= MAX_GAP {
            true => Ok(self),
            false => Err(FlowError::Unproved { flow: self.flow, bound: self.bound }),
        }
    }
}

/// The paths with flow, by pairs.
fn paths(master: &Master<'_>, pairs: &[Ends]) -> Vec<PathFlow> {
    let mut paths: Vec<PathFlow> = master
        .columns()
        .iter()
        .zip(master.owners())
        // Columns that came after the last solution have no rate.
        .zip(&master.solved().rates)
        .filter(|(_, rate)| **rate > 0.0)
        .map(|((column, owner), rate)| {
            let (from, to) = pairs[*owner];
            let shares = column.iter().map(|(arc, share)| (*arc as usize, *share)).collect();
            PathFlow { pair: (NodeId(from as u32), NodeId(to as u32)), rate: *rate, shares }
        })
        .collect();
    paths.sort_by_key(|path| path.pair);
    paths
}
