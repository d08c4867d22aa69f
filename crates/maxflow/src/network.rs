//! The network on which a maximum flow is computed.

use sidestep_net::{ArcId, Graph, NodeId, Rate, Topology};
use sidestep_paths::analysis::Net;
use thiserror::Error;

/// Directed arcs between numbered nodes, checked when built.
#[derive(Clone, Debug)]
pub struct FlowNetwork {
    nodes: usize,
    arcs: Vec<FlowArc>,
    outgoing: Vec<Vec<u32>>,
    incoming: Vec<Vec<u32>>,
    /// If some arcs have no limit: what the others carry together. A larger flow has no limit.
    limited: Option<f64>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowArc {
    /// Where it begins.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// What it carries at most: above zero, finite, in any unit that all arcs share.
    pub capacity: f64,
    /// IGP weight, at least 1.
    pub weight: u64,
}

/// Why a maximum flow cannot be computed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum FlowError {
    /// An end of an arc or of a pair that is not a node.
    #[error("there is no node {}; the network has {nodes}", node.0)]
    UnknownNode {
        /// The node.
        node: NodeId,
        /// How many there are.
        nodes: usize,
    },
    /// An arc from a node to itself.
    #[error("arc {arc} leads from node {} to itself; leave it out, as no path can use it", node.0)]
    Loop {
        /// The arc's index.
        arc: usize,
        /// Its node.
        node: NodeId,
    },
    /// A capacity that is not above zero and finite, or too far from the largest.
    #[error(
        "arc {arc} has a capacity of {capacity}; it must be above zero, finite, and no less than {MIN_SHARE:e} of the largest"
    )]
    Capacity {
        /// The arc's index.
        arc: usize,
        /// Its capacity.
        capacity: f64,
    },
    /// A flow that no link limits.
    #[error("links without a limit join a pair, so that its flow has none; give these links a rate")]
    Unlimited,
    /// A weight of zero.
    #[error("arc {arc} has a weight of 0; IGP weights are at least 1")]
    Weight {
        /// The arc's index.
        arc: usize,
    },
    /// A pair of a node with itself.
    #[error("a pair connects node {} with itself; its flow would have no limit", node.0)]
    Pair {
        /// The node.
        node: NodeId,
    },
    /// A demand that is not above zero and finite.
    #[error("a demand of {rate} is not above zero and finite")]
    Rate {
        /// Its rate.
        rate: f64,
    },
    /// More nodes or arcs than the program can hold.
    #[error("{count} {what} are too many; there may be {limit}")]
    TooLarge {
        /// "nodes" or "arcs".
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The solver failed.
    #[error("the linear program was not solved: HiGHS says {0}")]
    Solver(String),
    /// The build has no solver, and the first guess is not the optimum.
    #[error(
        "this program was built without a solver of linear programs (HiGHS); build it with the feature `maxflow`: make build"
    )]
    NoSolver,
    /// No path improves the flow any more, but duality does not prove that it is the largest.
    #[error("flow {flow} and bound {bound} are further apart than a share of {MAX_GAP:e}")]
    Unproved {
        /// The flow found.
        flow: f64,
        /// The upper bound that duality proves.
        bound: f64,
    },
}

/// The largest gap between a flow and its bound, as a share of the flow.
pub const MAX_GAP: f64 = 1e-6;

/// A capacity below this share of the largest is lost in the solver's tolerance.
const MIN_SHARE: f64 = 1e-9;
/// The most nodes under segment routing, which keeps the cost of a segment between each pair of nodes: 128 MiB.
const MAX_NODES: usize = 4096;
const MAX_ARCS: usize = 1 << 20;

impl FlowNetwork {
    /// The network of these arcs between nodes `0..nodes`; parallel arcs stay apart.
    pub fn new(nodes: usize, arcs: Vec<FlowArc>) -> Result<Self, FlowError> {
        for (what, count, limit) in [("nodes", nodes, MAX_NODES), ("arcs", arcs.len(), MAX_ARCS)] {
            if count > limit {
                return Err(FlowError::TooLarge { what, count, limit });
            }
        }
        let mut network = FlowNetwork {
            nodes,
            arcs,
            outgoing: vec![Vec::new(); nodes],
            incoming: vec![Vec::new(); nodes],
            limited: None,
        };
        let finite = network.arcs.iter().map(|arc| arc.capacity).filter(|capacity| capacity.is_finite());
        let largest = finite.fold(0.0, f64::max);
        for (index, arc) in network.arcs.iter().enumerate() {
            network.check(arc.from)?;
            network.check(arc.to)?;
            if arc.from == arc.to {
                return Err(FlowError::Loop { arc: index, node: arc.from });
            }
            // Written so that NaN fails.
            let fits = arc.capacity > 0.0 && arc.capacity.is_finite() && arc.capacity >= MIN_SHARE * largest;
            if !fits {
                return Err(FlowError::Capacity { arc: index, capacity: arc.capacity });
            }
            if arc.weight == 0 {
                return Err(FlowError::Weight { arc: index });
            }
            network.outgoing[arc.from.index()].push(index as u32);
            network.incoming[arc.to.index()].push(index as u32);
        }
        Ok(network)
    }

    /// The directions of all links, with rates in bit/s; [`ArcId`](sidestep_net::ArcId)s index the arcs if all links have
    /// both.
    ///
    /// Hosts may be passed like routers here; a rate of zero, which is "not limited", is refused.
    pub fn of(topo: &Topology) -> Result<Self, FlowError> {
        let arc = |from, to, channel: &sidestep_net::Channel| FlowArc {
            from,
            to,
            capacity: channel.rate.bits_per_sec() as f64,
            weight: channel.weight,
        };
        let ids = (0..topo.arc_count() as u32).map(ArcId).filter(|id| topo.has_arc(*id));
        let arcs = ids.map(|id| arc(topo.tail(id), topo.head(id), topo.channel(id))).collect();
        FlowNetwork::new(topo.nodes().len(), arcs)
    }

    /// The directions of a net's links, with the rates in bit/s of the graph that it was made of; `unknown` is that of
    /// edges without one.
    ///
    /// Nodes are the net's. Arcs are in the order of the graph's edges; loops are left out. A rate of zero is no limit: the
    /// arc carries more than all that have one together.
    pub fn of_net(graph: &Graph, net: &Net, unknown: Rate) -> Result<Self, FlowError> {
        let order = FlowNetwork::arcs_of(net);
        let rate = |arc: &u32| graph.edges.get(net.edge(*arc)).and_then(|edge| edge.rate).unwrap_or(unknown);
        let rates: Vec<f64> = order.iter().map(|arc| rate(arc).bits_per_sec() as f64).collect();
        let limited: f64 = rates.iter().sum();
        let is_limited = !rates.contains(&0.0);
        let arc = |(arc, rate): (u32, &f64)| FlowArc {
            from: NodeId(net.tail(arc)),
            to: NodeId(net.tail(arc ^ 1)),
            capacity: if *rate > 0.0 { *rate } else { 2.0 * limited + 1.0 },
            weight: net.weight(arc),
        };
        let network = FlowNetwork::new(net.node_count(), order.into_iter().zip(&rates).map(arc).collect())?;
        Ok(FlowNetwork { limited: (!is_limited).then_some(limited), ..network })
    }

    /// The net's arcs in the order in which [`of_net`](FlowNetwork::of_net) takes them.
    pub fn arcs_of(net: &Net) -> Vec<u32> {
        let mut order: Vec<u32> =
            (0..net.arc_count() as u32).filter(|arc| net.has(*arc) && net.tail(*arc) != net.tail(arc ^ 1)).collect();
        order.sort_by_key(|arc| (net.edge(*arc), *arc));
        order
    }

    /// What an arc carries at most; `None` if nothing limits it.
    pub fn limit(&self, arc: usize) -> Option<f64> {
        let capacity = self.arcs.get(arc)?.capacity;
        (!self.limited.is_some_and(|limited| capacity > limited)).then_some(capacity)
    }

    /// The largest share of its capacity that an arc's load takes, and the arc; of equal ones the first. `None` if no arc
    /// with a limit has a load.
    pub fn busiest(&self, loads: &[f64]) -> Option<(usize, f64)> {
        let used = (0..self.arcs.len()).zip(loads).filter_map(|(arc, load)| Some((arc, load / self.limit(arc)?)));
        used.filter(|(_, share)| *share > 0.0).reduce(|most, next| if next.1 > most.1 { next } else { most })
    }

    /// Whether a flow is larger than the arcs with a limit let pass.
    pub fn is_unlimited(&self, flow: f64) -> bool {
        self.limited.is_some_and(|limited| flow > limited * (1.0 + MAX_GAP))
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// The arcs, in the order given.
    pub fn arcs(&self) -> &[FlowArc] {
        &self.arcs
    }

    pub(super) fn arc(&self, arc: u32) -> &FlowArc {
        &self.arcs[arc as usize]
    }

    pub(super) fn outgoing(&self, node: usize) -> &[u32] {
        &self.outgoing[node]
    }

    pub(super) fn incoming(&self, node: usize) -> &[u32] {
        &self.incoming[node]
    }

    /// Checks that a node is one of this network.
    pub(super) fn check(&self, node: NodeId) -> Result<(), FlowError> {
        if node.index() < self.nodes { Ok(()) } else { Err(FlowError::UnknownNode { node, nodes: self.nodes }) }
    }
}
