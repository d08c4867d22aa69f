//! The controller. It computes the paths between access routers by the rules of `sidestep-control`, and streams them
//! and their SIDs to the agents. The routers report how full the links are.
//!
//! [`Controller`] has no socket and no clock; [`serve`] gives it both, by the loop that all daemons share
//! (`sidestep-hostd`). Its methods are of three kinds:
//!
//! - Inputs: `replace` takes a changed network, `set_down` the links that are down, and `record` a router's counters.
//! - `publish`, called once a second, makes the measured rates visible to agents.
//! - The others read the present state: `sets` lists the paths, and `bindings` their SIDs.
//!
//! ```
//! use std::collections::BTreeSet;
//! use sidestep_controller::Controller;
//! use sidestep_net::ParallelPaths;
//! use sidestep_paths::PathSettings;
//!
//! let topology = ParallelPaths { paths: 3, ..ParallelPaths::default() }.build()?;
//! let link = topology.find_link("A-m1").expect("the first path has this link");
//! let controller = Controller::new(topology, PathSettings::default())?;
//! assert_eq!(controller.sets()[0].paths.len(), 3);
//!
//! assert!(controller.set_down(&BTreeSet::from([link])));
//! assert_eq!(controller.sets()[0].paths.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod controller;
mod daemon;
mod metrics;
mod plan;
mod service;
mod usage;

pub use controller::{Controller, PairPaths, PathInfo, RequestError, RouterBindings};
pub use daemon::{ServeError, serve};
pub use metrics::CONTROLLER_METRICS;
pub use plan::PlanError;
