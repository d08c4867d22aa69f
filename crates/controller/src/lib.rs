//! The controller: computes the paths between access routers by the rules of `sidestep-control`, streams them and their
//! SIDs to the agents, and learns from the routers how full the paths are.
//!
//! [`Controller`] has no socket and no clock; [`serve`] gives it both.

mod controller;
mod metrics;
mod plan;
mod service;
mod usage;

pub use controller::{Controller, PairPaths, PathInfo, RequestError, RouterBindings};
pub use metrics::CONTROLLER_METRICS;
pub use plan::PlanError;
pub use service::serve;
