//! How much traffic a network carries between many pairs at once.
//!
//! The maximum flow is a linear program, which HiGHS solves. This is the only crate that needs a solver, with its feature `highs`;
//! the maximum flow of a single pair is in `sidestep-paths`. There are six kinds of items:
//!
//! - **The input.** [`FlowNetwork`] has the arcs with capacities and weights; it is made from arcs (`new`), a topology
//!   (`of`) or a published graph (`of_net`). [`FlowModel`] sets which paths the flow may take: a single path,
//!   ECMP, segment routing, or any path.
//! - **The program.** [`FlowProgram::new`] prepares a network and a model. [`FlowProgram::solve`] computes the flow of
//!   a set of pairs; [`FlowProgram::solve_each`] solves several models, each from the solution of one before.
//! - **The result.** [`MaxFlow`] has the flow, the paths in use and the dual bound; [`MaxFlow::gap`] compares flow and
//!   bound.
//! - **Demands.** [`Forwarding`] has what [`FlowDemand`]s put on arcs along shortest paths, before and after failures;
//!   [`least_utilisation`] routes them such that the most utilised arc is utilised least.
//! - **The ceiling.** [`Ceiling`] is what a scenario's hosts can carry together at most.
//! - **Experiments.** [`Sampling`] draws pairs of routers with heavy hitters. [`in_parallel`] spreads steps over all
//!   processors; a [`Watch`] follows them and may stop them.
//!
//! ```
//! use sidestep_maxflow::{FlowArc, FlowModel, FlowNetwork, FlowProgram};
//! use sidestep_net::NodeId;
//!
//! // Two links from 0 to 1; only the first is a shortest path.
//! let arc = |capacity, weight| FlowArc { from: NodeId(0), to: NodeId(1), capacity, weight };
//! let network = FlowNetwork::new(2, vec![arc(3.0, 1), arc(4.0, 2)])?;
//! let flow = |model| FlowProgram::new(&network, model).solve(&[(NodeId(0), NodeId(1))]).map(|solved| solved.flow);
//! assert_eq!(flow(FlowModel::Ecmp)?.round(), 3.0);
//! assert_eq!(flow(FlowModel::AnyPath)?.round(), 7.0);
//! # Ok::<(), sidestep_maxflow::FlowError>(())
//! ```

mod ceiling;
mod least;
#[cfg(feature = "highs")]
mod live;
mod loads;
mod master;
mod network;
#[cfg(not(feature = "highs"))]
mod no_live;
mod pricing;
mod program;
mod sampling;
#[cfg(not(feature = "highs"))]
#[path = "no_shift.rs"]
mod shift;
#[cfg(feature = "highs")]
mod shift;
mod solved;
#[cfg(feature = "highs")]
mod solver;
mod tree;
mod watch;

pub use ceiling::Ceiling;
pub use least::{LeastUtilisation, PairPaths, Routes, least_utilisation};
pub use loads::{FlowDemand, Forwarding, Loads};
pub use network::{FlowArc, FlowError, FlowNetwork, MAX_GAP};
pub use program::{FlowModel, FlowProgram, MaxFlow, PathFlow};
pub use sampling::{Pairs, Rounding, Sampling};
pub use watch::{Unwatched, Watch, in_parallel};
