//! What a topology could gain from moving traffic to other paths, and what that takes.
//!
//! - [`Subject`] and [`advise`]: path diversity, the segments that are enough, the gain in throughput, and the links that
//!   pairs rely on, as an [`Advice`];
//! - [`Question`] and [`Answer`]: maximum flows of drawn pairs under several models, and [`Share`]: their gains;
//! - [`Capacities`]: what links carry where their file says nothing.
//!
//! All of it is a function of its arguments. It runs on all processors, and a [`Watch`](sidestep_maxflow::Watch) follows
//! it and may end it.

mod advice;
mod flows;
mod gains;
mod words;

use sidestep_maxflow::FlowError;
use sidestep_model::Graph;
use sidestep_paths::analysis::NetError;
use thiserror::Error;

pub use advice::{Advice, Between, Flow, Limits, Options, Paths, Relied, Subject, advise};
pub use flows::{Answer, Assumption, Capacities, Question, assumed_rate};
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

    /// Whether the topology or the options are the reason, rather than the solver.
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
