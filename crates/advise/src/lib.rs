//! What a topology could gain from moving traffic to other paths, and what that takes.
//!
//! Every result is a function of its arguments. The long computations use all processors, and a
//! [`Watch`](sidestep_maxflow::Watch) follows them and may stop them. There are four kinds of items:
//!
//! - **Advice.** [`Subject::new`] selects the routers of a published graph, and [`advise`] computes their [`Advice`]:
//!   path diversity, the number of segments that is enough, the gain in throughput, and the links that pairs rely on.
//!   Methods such as [`Advice::headline`] put it into words.
//! - **Maximum flows.** [`Question::answer`] solves the programs of randomly drawn pairs under several models;
//!   [`shares`] turns the [`Answer`] into the gains of each [`Share`] of pairs.
//! - **Demands.** [`advise_demands`] computes what traffic matrices put on links, now and after each failure, and how far
//!   they may grow, as [`DemandAdvice`].
//! - **Capacities.** [`Capacities::new`] takes the rates of links from the file, and assumes one where the file has
//!   none.
//!
//! ```
//! use sidestep_advise::{Options, Subject, advise};
//! use sidestep_maxflow::{Pairs, Rounding, Sampling, Unwatched};
//! use sidestep_net::{Graph, GraphEdge, GraphNode, Ratio};
//! use sidestep_paths::analysis::{Net, NetOptions};
//!
//! // A ring of four routers.
//! let node = |name: &str| GraphNode { name: name.into(), position: None };
//! let edge = |from| GraphEdge { from, to: (from + 1) % 4, directed: false, weight: None, rate: None, delay: None };
//! let graph = Graph {
//!     name: "ring".into(),
//!     nodes: ["a", "b", "c", "d"].map(node).into(),
//!     edges: (0..4).map(edge).collect(),
//!     ..Graph::default()
//! };
//! let net = Net::new(&graph, NetOptions::default())?;
//! let options = Options {
//!     no_adjacency: false,
//!     share: Ratio::from_ppb(1_000_000_000),
//!     sampling: Sampling { pairs: Pairs::Ordered, rounding: Rounding::Ceil },
//!     draws: 1,
//!     max_draws: 100,
//!     seed: 1,
//!     default_rate: None,
//!     say_capacities: |_| String::new(),
//! };
//! let advice = advise(&Subject::new(graph, net)?, &options, &Unwatched)?;
//! // Every pair has two link-disjoint paths.
//! assert_eq!((advice.pairs, advice.most.mean), (6, 2.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod demands;
mod flows;
mod gain;
mod gains;
mod words;

use sidestep_maxflow::FlowError;
use sidestep_net::Graph;
use sidestep_paths::analysis::NetError;
use thiserror::Error;

pub use advice::{Advice, Between, Limits, Options, Paths, Relied, Subject, advise};
pub use demands::{
    DemandAdvice, DemandOptions, Extent, Failure, LinkUse, MatrixAdvice, Routing, SeriesRow, advise_demands,
};
pub use flows::{Answer, Assumption, Capacities, Pair, Question};
pub use gain::{Ended, Flow, Gained};
pub use gains::{BASES, Gain, Gains, Model, Share, models, shares};

/// Why there is no advice, or no flow.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AdviseError {
    /// Fewer than two routers.
    #[error("{0} has no two routers, so there is nothing to advise")]
    TooSmall(String),
    /// The network does not fit the analysis.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No traffic matrix was examined.
    #[error("{0}: no traffic matrix was examined")]
    NoDemands(String),
    /// The network does not fit into a topology.
    #[error("{0} does not fit into a topology: {1}")]
    Topology(String, String),
    /// No flow can be computed of the network of this name.
    #[error("{name}: {}", flow_problem(.error))]
    Flow {
        /// The network.
        name: String,
        /// What is wrong.
        error: FlowError,
    },
}

impl AdviseError {
    /// A flow that cannot be computed of `graph`.
    pub fn flow(graph: &Graph, error: FlowError) -> Self {
        AdviseError::Flow { name: graph.name.clone(), error }
    }

    /// Whether the topology or the options are the cause, not the solver.
    pub fn is_usage(&self) -> bool {
        !matches!(self, AdviseError::Flow { error: FlowError::Solver(_) | FlowError::Unproved { .. }, .. })
    }
}

fn flow_problem(error: &FlowError) -> String {
    match error {
        FlowError::Weight { .. } => "a link has weight 0, and IGP weights are at least 1; try --hops".into(),
        FlowError::Capacity { .. } => {
            "the slowest link has less than a billionth of the fastest one's rate; are all in the same unit?".into()
        }
        other => other.to_string(),
    }
}
