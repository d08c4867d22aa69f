//! What demands put on the links of a network, now and after failures, and how far they may grow.

mod series;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sidestep_maxflow::{
    FlowDemand, FlowError, FlowModel, FlowNetwork, Forwarding, LeastUtilisation, Loads, MAX_GAP, PairPaths, Routes,
    Watch, in_parallel, least_utilisation,
};
use sidestep_net::{Graph, NodeId, Rate, TrafficMatrix};
use sidestep_paths::{Igp, PathFinder, PathSettings, SegmentRules, analysis::Net};

use crate::{AdviseError, Capacities};

pub use series::{Extent, SeriesRow};

/// The options of an advice on demands.
#[derive(Clone, Copy, Debug)]
pub struct DemandOptions {
    /// How many node segments a list may have.
    pub max_segments: usize,
    /// How the controller computes the paths of MPTCP's subflows.
    pub paths: PathSettings,
    /// Rate of links without one; by default the median of the others.
    pub default_rate: Option<Rate>,
    /// Puts the source of the rates into words.
    pub say_capacities: fn(&Capacities) -> String,
}

/// What demands do to a network.
#[derive(Debug, Serialize)]
pub struct DemandAdvice {
    /// Version of the JSON.
    pub schema: u32,
    /// Name of the network.
    pub topology: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many links it has.
    pub links: usize,
    /// Where the rates of links are from.
    pub capacities: String,
    /// How many traffic matrices there are.
    pub matrices: usize,
    /// The traffic matrix that loads a link most under ECMP.
    #[serde(flatten)]
    pub worst: MatrixAdvice,
    /// Over all matrices, by way of routing; empty if there is one matrix.
    pub series: Vec<SeriesRow>,
    /// Whether the computation was stopped early.
    pub interrupted: bool,
}

/// What a traffic matrix does to a network.
#[derive(Debug, Serialize)]
pub struct MatrixAdvice {
    /// Name of the matrix.
    pub matrix: String,
    /// How many pairs have a demand.
    pub demands: usize,
    /// All demands together, in Mbit/s.
    pub total_mbps: f64,
    /// Demands of pairs that have no path.
    pub disconnected_mbps: f64,
    /// The most utilised link by way of routing.
    pub routings: Vec<Routing>,
    /// Each direction of each link, the most utilised under ECMP first.
    pub utilisation: Vec<LinkUse>,
    /// Each failure of one link, those that load another most under ECMP first.
    pub failures: Vec<Failure>,
}

/// The most utilised link under a way of routing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Routing {
    /// "igp", "ecmp", "segments", "mptcp", "any-path"; "igp-failure" and "ecmp-failure" after the worst failure.
    pub name: &'static str,
    /// Its load over its rate.
    pub utilisation: f64,
    /// What no routing on these paths undercuts; below the utilisation only if time ended the computation.
    pub bound: f64,
    /// The factor by which all demands may grow until it is full; none without a load.
    pub growth: Option<f64>,
    /// Its ends, in its direction.
    pub link: Option<[String; 2]>,
    /// The ends of the link that has failed.
    pub failed: Option<[String; 2]>,
}

/// What a direction of a link carries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkUse {
    /// Its ends, in its direction.
    pub ends: [String; 2],
    /// Its rate in Mbit/s; none if it is not limited.
    pub rate_mbps: Option<f64>,
    /// Load over rate on single shortest paths.
    pub igp: f64,
    /// Load over rate under ECMP.
    pub ecmp: f64,
    /// Its link's index among the net's links.
    #[serde(skip)]
    pub link: usize,
}

/// What the failure of a link does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The ends of the link.
    pub failed: [String; 2],
    /// The highest utilisation of a link then, on single shortest paths.
    pub igp: f64,
    /// The highest utilisation of a link then, under ECMP.
    pub ecmp: f64,
    /// The ends of the link that is most utilised under ECMP, in its direction.
    pub link: Option<[String; 2]>,
    /// The demands that lose their last path, in Mbit/s.
    pub disconnected_mbps: f64,
}

/// The network as both computations take it.
struct Ground<'a> {
    graph: &'a Graph,
    net: &'a Net,
    network: &'a FlowNetwork,
    /// By arc of the network: the net's.
    arcs: Vec<u32>,
    options: &'a DemandOptions,
    /// By pair of nodes: the paths of the controller, as arcs of the network.
    paths: PairPaths,
}

/// Computes what traffic matrices do to a whole network; there must be one.
///
/// The time of the watch ends the search for the least utilisation, which then has a bound below it.
pub fn advise_demands(
    graph: &Graph,
    net: &Net,
    matrices: &[TrafficMatrix],
    options: &DemandOptions,
    watch: &dyn Watch,
) -> Result<DemandAdvice, AdviseError> {
    let capacities = Capacities::new(graph, net, options.default_rate)?;
    let arcs = FlowNetwork::arcs_of(net);
    let paths = BTreeMap::new();
    let mut ground = Ground { graph, net, network: &capacities.network, arcs, options, paths };
    ground.paths = ground.controller_paths(matrices, watch)?;
    let flow = |error| AdviseError::flow(graph, error);
    let (worst, series, complete) = match matrices {
        [one] => (ground.matrix(one, watch).map_err(flow)?, Vec::new(), true),
        many => {
            watch.on_start("traffic matrices", many.len());
            let quiet = Quiet(watch);
            // Of thousands of matrices only the worst one's links are kept.
            let brief = |index: usize| ground.matrix(&many[index], &quiet).map(|found| (index, found.routings));
            let done = in_parallel(many.len(), watch, || (), |(), index| brief(index));
            let mut all: Vec<(usize, Vec<Routing>)> = Vec::with_capacity(many.len());
            for one in done.into_iter().flatten() {
                all.push(one.map_err(flow)?);
            }
            let complete = all.len() == many.len();
            let named: Vec<_> =
                all.iter().map(|(index, routings)| (many[*index].name.as_str(), routings.as_slice())).collect();
            let rows = series::rows(&named);
            let most = |routings: &[Routing]| {
                routings.iter().find(|routing| routing.name == "ecmp").map_or(0.0, |routing| routing.utilisation)
            };
            let worst = all.into_iter().max_by(|one, other| most(&one.1).total_cmp(&most(&other.1)));
            let (index, routings) = worst.ok_or_else(|| AdviseError::NoDemands(graph.name.clone()))?;
            let worst = ground.matrix(&many[index], &quiet).map_err(flow)?;
            (MatrixAdvice { routings, ..worst }, rows, complete)
        }
    };
    Ok(DemandAdvice {
        schema: 1,
        topology: graph.name.clone(),
        nodes: net.node_count(),
        links: net.link_count(),
        capacities: (options.say_capacities)(&capacities),
        matrices: matrices.len(),
        worst,
        series,
        interrupted: watch.stopped() || !complete,
    })
}

impl Routing {
    /// Whether no routing on these paths undercuts the utilisation, but for the solver's tolerance.
    pub fn is_proved(&self) -> bool {
        self.utilisation - self.bound <= MAX_GAP * self.utilisation
    }
}

impl Ground<'_> {
    fn matrix(&self, matrix: &TrafficMatrix, watch: &dyn Watch) -> Result<MatrixAdvice, FlowError> {
        let demand = |demand: &sidestep_net::Demand| FlowDemand {
            from: NodeId(demand.from as u32),
            to: NodeId(demand.to as u32),
            rate: demand.rate.bits_per_sec() as f64,
        };
        let demands: Vec<FlowDemand> = matrix.demands.iter().map(demand).collect();
        let forwarding = Forwarding::new(self.network, &demands)?;
        let now = forwarding.loads();
        let (failures, worst) = self.failures(&forwarding, &now, watch);
        let mut routings = vec![self.routing("igp", &now.single), self.routing("ecmp", &now.ecmp)];
        let models = [
            (
                "segments",
                Routes::Model(FlowModel::Segments { limit: Some(self.options.max_segments), adjacency: false }),
            ),
            ("mptcp", Routes::Given(&self.paths)),
            ("any-path", Routes::Model(FlowModel::AnyPath)),
        ];
        watch.on_start("least utilisations", models.len());
        for (name, routes) in models.into_iter().take_while(|_| !watch.stopped()) {
            let LeastUtilisation { loads, bound, .. } = least_utilisation(self.network, &demands, routes, watch)?;
            routings.push(Routing { bound, ..self.routing(name, &loads) });
            watch.step();
        }
        watch.on_finish();
        routings.extend(worst);
        Ok(MatrixAdvice {
            matrix: matrix.name.clone(),
            demands: demands.len(),
            total_mbps: matrix.total() / 1e6,
            disconnected_mbps: now.disconnected / 1e6,
            routings,
            utilisation: self.utilisation(&now),
            failures,
        })
    }

    fn routing(&self, name: &'static str, loads: &[f64]) -> Routing {
        let (link, utilisation) = self.network.busiest(loads).map_or((None, 0.0), |(arc, share)| (Some(arc), share));
        let growth = (utilisation > 0.0).then(|| 1.0 / utilisation);
        let link = link.map(|arc| self.ends(arc));
        Routing { name, utilisation, bound: utilisation, growth, link, failed: None }
    }

    fn utilisation(&self, now: &Loads) -> Vec<LinkUse> {
        let used = |arc: usize| {
            let rate = self.network.limit(arc);
            let share = |loads: &[f64]| rate.map_or(0.0, |rate| loads[arc] / rate);
            LinkUse {
                ends: self.ends(arc),
                rate_mbps: rate.map(|rate| rate / 1e6),
                igp: share(&now.single),
                ecmp: share(&now.ecmp),
                link: self.link(arc),
            }
        };
        let mut all: Vec<LinkUse> = (0..self.arcs.len()).map(used).collect();
        all.sort_by(|one, other| {
            (other.ecmp, other.igp).partial_cmp(&(one.ecmp, one.igp)).unwrap_or(std::cmp::Ordering::Equal)
        });
        all
    }

    /// All failures, and the worst one by way of routing.
    fn failures(&self, forwarding: &Forwarding<'_>, now: &Loads, watch: &dyn Watch) -> (Vec<Failure>, Vec<Routing>) {
        let mut by_link: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for arc in 0..self.arcs.len() {
            by_link.entry(self.link(arc)).or_default().push(arc as u32);
        }
        watch.on_start("failures", by_link.len());
        let mut failures = Vec::with_capacity(by_link.len());
        let mut worst: [Option<Routing>; 2] = [None, None];
        for arcs in by_link.values().take_while(|_| !watch.stopped()) {
            let Some(first) = arcs.first() else { continue };
            let failed = self.ends(*first as usize);
            let after = forwarding.loads_without(arcs);
            let routings = [("igp-failure", &after.single), ("ecmp-failure", &after.ecmp)]
                .map(|(name, loads)| Routing { failed: Some(failed.clone()), ..self.routing(name, loads) });
            let [igp, ecmp] = &routings;
            failures.push(Failure {
                failed: failed.clone(),
                igp: igp.utilisation,
                ecmp: ecmp.utilisation,
                link: ecmp.link.clone(),
                disconnected_mbps: (after.disconnected - now.disconnected).max(0.0) / 1e6,
            });
            for (worst, routing) in worst.iter_mut().zip(routings) {
                if worst.as_ref().is_none_or(|worst| routing.utilisation > worst.utilisation) {
                    *worst = Some(routing);
                }
            }
            watch.step();
        }
        watch.on_finish();
        let key = |failure: &Failure| (failure.ecmp, failure.disconnected_mbps);
        failures.sort_by(|one, other| key(other).partial_cmp(&key(one)).unwrap_or(std::cmp::Ordering::Equal));
        (failures, worst.into_iter().flatten().collect())
    }

    /// The disjoint paths that the controller gives the pairs with a demand.
    fn controller_paths(&self, matrices: &[TrafficMatrix], watch: &dyn Watch) -> Result<PairPaths, AdviseError> {
        let mut graph = self.graph.clone();
        // The net's weights may be hops.
        for (edge, weight) in (0..self.net.arc_count() as u32).map(|arc| (self.net.edge(arc), self.net.weight(arc))) {
            graph.edges[edge].weight = Some(weight as f64);
        }
        let topology =
            graph.to_topology().map_err(|error| AdviseError::Topology(graph.name.clone(), error.to_string()))?;
        let by_net: BTreeMap<u32, usize> = self.arcs.iter().enumerate().map(|(arc, net)| (*net, arc)).collect();
        // Both number links alike, but a topology turns links of one direction round.
        let arc = |id: sidestep_net::ArcId| {
            let [first, second] = [2 * id.link().0, 2 * id.link().0 + 1];
            let net = if self.net.tail(first) == topology.tail(id).0 { first } else { second };
            by_net.get(&net).copied()
        };
        let pairs: BTreeSet<(NodeId, NodeId)> = matrices
            .iter()
            .flat_map(|matrix| &matrix.demands)
            .map(|demand| (NodeId(demand.from as u32), NodeId(demand.to as u32)))
            .collect();
        let pairs: Vec<(NodeId, NodeId)> = pairs.into_iter().collect();
        let PathSettings { max_segments, max_paths, adjacency } = self.options.paths;
        let igp = Igp::new(&topology);
        let finder = || PathFinder::new(&igp, SegmentRules { max_segments, adjacency });
        watch.on_start("disjoint paths", pairs.len());
        let found = in_parallel(pairs.len(), watch, finder, |finder, index| {
            let (from, to) = pairs[index];
            let routes = finder.disjoint_paths(from, to, max_paths);
            routes.iter().filter_map(|route| route.arcs.iter().map(|id| arc(*id)).collect()).collect()
        });
        Ok(pairs.iter().copied().zip(found.into_iter().map(Option::unwrap_or_default)).collect())
    }

    /// The net's link of an arc.
    fn link(&self, arc: usize) -> usize {
        self.arcs[arc] as usize / 2
    }

    fn ends(&self, arc: usize) -> [String; 2] {
        let arc = &self.network.arcs()[arc];
        [arc.from, arc.to]
            .map(|node| self.graph.nodes.get(node.index()).map_or_else(String::new, |node| node.name.clone()))
    }
}

/// A watch that only stops, for steps within a step.
struct Quiet<'a>(&'a dyn Watch);

impl Watch for Quiet<'_> {
    fn on_start(&self, _: &str, _: usize) {}

    fn step(&self) {}

    fn on_finish(&self) {}

    fn stopped(&self) -> bool {
        self.0.stopped()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}
