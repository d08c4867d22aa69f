//! The least maximum utilisation at which demands fit on the paths that a model allows: a linear program, solved by column
//! generation.
//!
//! Each demand begins on its first path. The program has a row for each arc with a limit, and columns that move shares of
//! demands to other paths; a row that keeps a demand's shares below 1 comes with its first column. So the program is as
//! large as what has to move, not as the demands.

use std::collections::BTreeMap;

use sidestep_net::NodeId;

use super::{
    FlowModel,
    loads::{FlowDemand, checked},
    master::cost,
    network::{FlowError, FlowNetwork, MAX_GAP},
    pricing::{Ends, Pricing},
    shift::{Shift, Shifted},
    tree::{Column, Tree},
    watch::Watch,
};

/// By pair of nodes: its paths, each as arcs.
pub type PairPaths = BTreeMap<(NodeId, NodeId), Vec<Vec<usize>>>;

/// On which paths demands may go.
#[derive(Clone, Copy, Debug)]
pub enum Routes<'a> {
    /// Those of a model, in any proportion.
    Model(FlowModel),
    /// These, in any proportion. A pair that has none keeps to ECMP.
    Given(&'a PairPaths),
}

/// The least maximum utilisation, with the proof that it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeastUtilisation {
    /// The largest share of its capacity that an arc carries.
    pub utilisation: f64,
    /// The lower bound that the prices prove, by duality.
    pub bound: f64,
    /// What each arc carries then, in the unit of the capacities.
    pub loads: Vec<f64>,
    /// The demands that have no path, which are left out.
    pub disconnected: f64,
    /// How often the program was solved.
    pub rounds: usize,
    /// How many paths it had in the end, those with which demands begin not counted.
    pub columns: usize,
}

/// A path is worth adding if it improves the program by this share.
const TOLERANCE: f64 = 1e-9;
/// The most rounds; no known network needs more.
const MAX_ROUNDS: usize = 10_000;

/// Demands that have a path, and the paths with which they begin.
struct Begun {
    ends: Vec<Ends>,
    rates: Vec<f64>,
    paths: Vec<Column>,
    disconnected: f64,
}

/// Where cheaper paths come from.
enum Source<'a> {
    Model(Pricing<'a>),
    /// By demand.
    Given(Vec<Vec<Column>>, Vec<usize>),
}

/// Routes demands such that the most utilised arc is utilised least.
///
/// Fails as [`Forwarding::new`](crate::Forwarding::new) does, and if the bound is not within [`MAX_GAP`] of the
/// utilisation, unless the watch has stopped it or its time is over: then the result is what was found until then.
pub fn least_utilisation(
    network: &FlowNetwork,
    demands: &[FlowDemand],
    routes: Routes<'_>,
    watch: &dyn Watch,
) -> Result<LeastUtilisation, FlowError> {
    let begun = Begun::new(network, &checked(network, demands)?, routes);
    let mut best = begun.result(network, &[]);
    let Some((_, first)) = network.busiest(&best.loads) else { return Ok(best) };
    let mut source = Source::new(network, routes, &begun.ends);
    let mut shift = Shift::new(network, &best.loads, first)?;
    let mut columns: Vec<(usize, Column)> = Vec::new();
    for round in 1..=MAX_ROUNDS {
        let (solved, Shifted { shares, prices, slack }) = shift.solve(network)?;
        shift = solved;
        let moved: Vec<(&(usize, Column), f64)> = columns.iter().zip(shares).collect();
        let now = begun.result(network, &moved);
        if now.utilisation < best.utilisation {
            best = LeastUtilisation { bound: best.bound, ..now };
        }
        let costs = source.price(&prices, &begun.ends);
        let worth: f64 = (0..network.arcs().len()).filter_map(|arc| Some(network.limit(arc)? * prices[arc])).sum();
        let needed: f64 = costs.iter().zip(&begun.rates).map(|(cost, rate)| cost * rate).sum();
        if worth > 0.0 {
            best.bound = best.bound.max(needed / worth).min(best.utilisation);
        }
        (best.rounds, best.columns) = (round, columns.len());
        let gap = best.utilisation - best.bound;
        if gap <= TOLERANCE * best.utilisation || watch.stopped() || watch.is_over() {
            break;
        }
        let worth_adding = |(index, price): (usize, &f64)| {
            let saved = begun.rates[index] / first * (cost(&begun.paths[index], &prices) - price) - slack[index];
            (saved > TOLERANCE).then_some((index, saved))
        };
        let mut added: Vec<(usize, f64)> = costs.iter().enumerate().filter_map(worth_adding).collect();
        if added.is_empty() {
            break;
        }
        added.sort_by(|one, other| other.1.total_cmp(&one.1));
        added.truncate(network.arcs().len().max(64));
        for (index, _) in added {
            let column = source.column(index, begun.ends[index]);
            shift.add(network, index, begun.rates[index], &begun.paths[index], &column)?;
            columns.push((index, column));
        }
    }
    // Written so that NaN fails.
    let is_proved = best.utilisation - best.bound <= MAX_GAP * best.utilisation;
    match is_proved || watch.stopped() || watch.is_over() {
        true => Ok(best),
        false => Err(FlowError::Unproved { flow: best.utilisation, bound: best.bound }),
    }
}

impl Begun {
    fn new(network: &FlowNetwork, demands: &[FlowDemand], routes: Routes<'_>) -> Self {
        let mut trees: BTreeMap<usize, Tree> = BTreeMap::new();
        let mut begun = Begun { ends: Vec::new(), rates: Vec::new(), paths: Vec::new(), disconnected: 0.0 };
        for FlowDemand { from, to, rate } in demands {
            let tree = trees.entry(to.index()).or_insert_with(|| Tree::new(network, to.index()));
            if !tree.reaches(from.index()) {
                begun.disconnected += rate;
                continue;
            }
            let given = match routes {
                Routes::Given(paths) => paths.get(&(*from, *to)).and_then(|paths| paths.first()),
                Routes::Model(_) => None,
            };
            let path = match (given, routes) {
                (Some(path), _) => column(path),
                (
                    None,
                    Routes::Model(FlowModel::SinglePath | FlowModel::Multipath | FlowModel::SegmentPaths { .. }),
                ) => tree.path(network, from.index(), |next| next.first().copied()),
                _ => tree.split(network, from.index()),
            };
            begun.ends.push((from.index(), to.index()));
            begun.rates.push(*rate);
            begun.paths.push(path);
        }
        begun
    }

    /// What arcs carry if shares of demands have moved to other paths. Shares that exceed 1 within the solver's tolerance
    /// are reduced.
    fn result(&self, network: &FlowNetwork, moved: &[(&(usize, Column), f64)]) -> LeastUtilisation {
        let mut away = vec![0.0; self.rates.len()];
        moved.iter().for_each(|((index, _), share)| away[*index] += share);
        let mut loads = vec![0.0; network.arcs().len()];
        let mut put = |column: &Column, rate: f64| {
            column.iter().for_each(|(arc, share)| loads[*arc as usize] += rate * share);
        };
        for (((index, column), share), rate) in moved.iter().map(|one| (*one, self.rates[one.0.0])) {
            put(column, rate * share / away[*index].max(1.0));
        }
        for ((path, rate), away) in self.paths.iter().zip(&self.rates).zip(&away) {
            put(path, rate * (1.0 - away).max(0.0));
        }
        let utilisation = network.busiest(&loads).map_or(0.0, |(_, share)| share);
        LeastUtilisation { utilisation, loads, disconnected: self.disconnected, ..LeastUtilisation::default() }
    }
}

impl<'a> Source<'a> {
    fn new(network: &'a FlowNetwork, routes: Routes<'_>, ends: &[Ends]) -> Self {
        match routes {
            Routes::Model(model) => {
                let mut pricing = Pricing::new(network, model);
                pricing.begin(ends);
                Source::Model(pricing)
            }
            Routes::Given(paths) => {
                let of = |(from, to): &Ends| {
                    let paths = paths.get(&(NodeId(*from as u32), NodeId(*to as u32)));
                    paths.map_or_else(Vec::new, |paths| paths.iter().map(|path| column(path)).collect())
                };
                Source::Given(ends.iter().map(of).collect(), vec![0; ends.len()])
            }
        }
    }

    /// By demand, the price of its cheapest path. A demand that has no other than its first has that one's price, or none.
    fn price(&mut self, prices: &[f64], ends: &[Ends]) -> Vec<f64> {
        match self {
            Source::Model(pricing) => pricing.price(prices, ends, f64::INFINITY),
            Source::Given(paths, chosen) => {
                let cheapest = |(paths, chosen): (&Vec<Column>, &mut usize)| {
                    let costs = paths.iter().map(|path| cost(path, prices)).enumerate();
                    let (index, cost) = costs.min_by(|one, other| one.1.total_cmp(&other.1))?;
                    *chosen = index;
                    Some(cost)
                };
                paths.iter().zip(chosen).map(|both| cheapest(both).unwrap_or(f64::INFINITY)).collect()
            }
        }
    }

    fn column(&self, index: usize, ends: Ends) -> Column {
        match self {
            Source::Model(pricing) => pricing.column(index, ends),
            Source::Given(paths, chosen) => paths[index][chosen[index]].clone(),
        }
    }
}

fn column(path: &[usize]) -> Column {
    path.iter().map(|arc| (*arc as u32, 1.0)).collect()
}
