//! How much traffic a network carries between many pairs at once.
//!
//! - [`FlowNetwork`]: arcs with capacities and weights, of a topology or of a published graph;
//! - [`FlowProgram`]: the maximum flow under a [`FlowModel`] (single path, ECMP, segment routing, any path), as a linear
//!   program that HiGHS solves, with a proof of the gap ([`MaxFlow::gap`]);
//! - [`Sampling`]: which pairs of routers have heavy hitters;
//! - [`in_parallel`]: work on all processors that a [`Watch`] follows and may end.
//!
//! This is the only crate that needs a solver; the maximum flow of a single pair is in `sidestep-paths`.
//!
//! ```
//! use sidestep_maxflow::{FlowArc, FlowModel, FlowNetwork, FlowProgram};
//! use sidestep_model::NodeId;
//!
//! // Two links from 0 to 1, the second of which is no shortest path.
//! let arc = |capacity, weight| FlowArc { from: NodeId(0), to: NodeId(1), capacity, weight };
//! let network = FlowNetwork::new(2, vec![arc(3.0, 1), arc(4.0, 2)])?;
//! let flow = |model| FlowProgram::new(&network, model).solve(&[(NodeId(0), NodeId(1))]).map(|solved| solved.flow);
//! assert_eq!(flow(FlowModel::Ecmp)?.round(), 3.0);
//! assert_eq!(flow(FlowModel::AnyPath)?.round(), 7.0);
//! # Ok::<(), sidestep_maxflow::FlowError>(())
//! ```

mod master;
mod network;
mod pricing;
mod program;
mod sampling;
mod tree;
mod watch;

pub use network::{FlowArc, FlowError, FlowNetwork, MAX_GAP};
pub use program::{FlowModel, FlowProgram, MaxFlow, PathFlow};
pub use sampling::{Pairs, Rounding, Sampling};
pub use watch::{Unwatched, Watch, in_parallel};
