//! Maximum flows of randomly drawn pairs under several models, for `maxflow` and `advise`.

use sidestep_maxflow::{FlowError, FlowModel, FlowNetwork, FlowProgram, Sampling, Watch, in_parallel};
use sidestep_net::{Graph, NodeId, Rate, Ratio, usual_rate};
use sidestep_paths::analysis::Net;

use crate::AdviseError;

/// A source and a destination.
pub type Pair = (NodeId, NodeId);

/// A flow in bit/s, and the gap to its dual bound as a share of it.
pub type FlowAndGap = (f64, f64);

/// The maximum flows to compute.
#[derive(Debug)]
pub struct Question<'a> {
    /// The network, with capacities in bit/s.
    pub network: &'a FlowNetwork,
    /// The routers between which pairs are drawn.
    pub nodes: &'a [NodeId],
    /// How pairs are drawn.
    pub sampling: Sampling,
    /// The shares of the pairs that send, each a separate experiment.
    pub shares: &'a [Ratio],
    /// How often pairs are drawn for each share.
    pub draws: u32,
    /// The seed of the draws.
    pub seed: u32,
    /// The models to compare.
    pub models: &'a [FlowModel],
}

/// The flows that were computed.
#[derive(Debug)]
pub struct Answer {
    /// By share, by draw and by model: flows in bit/s. Draws without pairs are left out.
    flows: Vec<Vec<Vec<f64>>>,
    /// How many programs were solved.
    pub programs: usize,
    /// The largest gap between a flow and its dual bound, as a share of the flow.
    pub gap: f64,
    /// Whether the watch stopped the computation before all was done.
    pub interrupted: bool,
}

impl Question<'_> {
    /// Solves all programs, on all processors. After an interruption, only the last draws are incomplete.
    pub fn answer(&self, watch: &dyn Watch) -> Result<Answer, FlowError> {
        let steps = self.shares.len() * self.draws as usize;
        watch.on_start("maximum flows", steps);
        let prepare = || self.models.iter().map(|model| FlowProgram::new(self.network, *model)).collect::<Vec<_>>();
        let place = |step: usize| (step / self.shares.len(), step % self.shares.len());
        let solved = in_parallel(steps, watch, prepare, |programs, step| {
            let (draw, share) = place(step);
            self.solve(programs, &self.drawn(self.shares[share], draw))
        });
        let mut answer =
            Answer { flows: vec![Vec::new(); self.shares.len()], programs: 0, gap: 0.0, interrupted: watch.stopped() };
        for (step, solved) in solved.into_iter().enumerate() {
            let Some(solved) = solved else {
                answer.interrupted = true;
                continue;
            };
            let solved = solved?;
            answer.programs += solved.len();
            answer.gap = solved.iter().map(|(_, gap)| *gap).fold(answer.gap, f64::max);
            if !solved.is_empty() {
                answer.flows[place(step).1].push(solved.into_iter().map(|(flow, _)| flow).collect());
            }
        }
        Ok(answer)
    }

    /// By set of pairs and by model; `None` where the watch stopped before.
    pub fn flows_of(&self, sets: &[Vec<Pair>], watch: &dyn Watch) -> Result<Vec<Option<Vec<FlowAndGap>>>, FlowError> {
        watch.on_start("maximum flows", sets.len());
        let prepare = || self.models.iter().map(|model| FlowProgram::new(self.network, *model)).collect::<Vec<_>>();
        let solved = in_parallel(sets.len(), watch, prepare, |programs, step| self.solve(programs, &sets[step]));
        solved.into_iter().map(Option::transpose).collect()
    }

    /// The pairs of a draw; none where the share is of none.
    pub fn drawn(&self, share: Ratio, draw: usize) -> Vec<Pair> {
        let seed = u64::from(self.seed) << 32 | draw as u64;
        self.sampling.pairs.draw(self.nodes, self.pairs(share), seed)
    }

    /// The number of pairs that a share is.
    pub fn pairs(&self, share: Ratio) -> usize {
        self.sampling.count(self.nodes.len(), share)
    }

    /// By model; empty without pairs.
    fn solve(&self, programs: &mut [FlowProgram<'_>], pairs: &[Pair]) -> Result<Vec<FlowAndGap>, FlowError> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let solved = FlowProgram::solve_each(programs, pairs)?;
        if solved.iter().any(|solved| self.network.is_unlimited(solved.flow)) {
            return Err(FlowError::Unlimited);
        }
        Ok(solved.iter().map(|solved| (solved.flow, solved.gap())).collect())
    }
}

impl Answer {
    /// By draw, the flow of a model in bit/s.
    pub fn flows(&self, share: usize, model: usize) -> Vec<f64> {
        self.flows[share].iter().map(|flows| flows[model]).collect()
    }

    /// By draw, the gain of a model over another in percent. Draws in which the other has no flow are left out.
    pub fn gains(&self, share: usize, model: usize, over: usize) -> Vec<f64> {
        let some = self.flows[share].iter().filter(|flows| flows[over] > 0.0);
        some.map(|flows| 100.0 * (flows[model] / flows[over] - 1.0)).collect()
    }
}

/// The capacities of links, and how many of them are assumed.
#[derive(Debug)]
pub struct Capacities {
    /// The network, with capacities in bit/s.
    pub network: FlowNetwork,
    /// How many links there are.
    pub links: usize,
    /// How many of them have no rate in the file.
    pub unknown: usize,
    /// The rate that is assumed for these.
    pub assumed: Rate,
    /// The source of the assumed rate.
    pub assumption: Assumption,
}

/// The source of the rate that is assumed for links without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// The caller gave it.
    Given,
    /// It is the median of the links that have one.
    Median,
    /// No link has one: it is 1 Gbit/s.
    Default,
}

impl Capacities {
    /// The net with the graph's rates; links without one have `default_rate`, or the median of the others.
    pub fn new(graph: &Graph, net: &Net, default_rate: Option<Rate>) -> Result<Self, AdviseError> {
        let rate = |link: usize| graph.edges.get(net.edge(2 * link as u32)).and_then(|edge| edge.rate);
        let known: Vec<Rate> = (0..net.link_count()).filter_map(rate).collect();
        let (links, unknown) = (net.link_count(), net.link_count() - known.len());
        let assumption = match (default_rate, known.is_empty()) {
            (Some(_), _) => Assumption::Given,
            (None, false) => Assumption::Median,
            (None, true) => Assumption::Default,
        };
        let assumed = default_rate.unwrap_or_else(|| usual_rate(known));
        let network = FlowNetwork::of_net(graph, net, assumed).map_err(|error| AdviseError::flow(graph, error))?;
        Ok(Capacities { network, links, unknown, assumed, assumption })
    }
}
