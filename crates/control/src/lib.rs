//! The rules of the control plane, for the controller, the lab and the simulator alike.
//!
//! - [`Planner`]: the path sets between hosts, for the links that are down;
//! - [`RouterPath`] and [`HostPath`]: what is known of a path, between access routers and between hosts;
//! - [`Locators`]: the SIDs of a path;
//! - [`path_usage`] and [`initial_weight`]: how full a path is, and the weight that a host gives it at first.
//!
//! A Path ID follows from what the path is: its access routers and its links, by name. So a restarted controller finds
//! the same ids.
//!
//! This crate has no socket, no clock and no thread.
//!
//! # Example
//! ```
//! use std::{collections::BTreeSet, sync::Arc};
//! use sidestep_control::Planner;
//! use sidestep_model::{ParallelPaths, scenario::PathKnobs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Arc::new(ParallelPaths { paths: 3, ..ParallelPaths::default() }.build()?);
//! let (client, server) = (topology.find("c1")?, topology.find("s1")?);
//! let mut planner = Planner::new(topology.clone(), PathKnobs::default())?;
//! let paths = planner.paths(client, server);
//! assert_eq!(paths.len(), 3);
//!
//! let link = paths[0].path.arcs[0].link();
//! planner.set_down(&BTreeSet::from([link]));
//! assert_eq!(planner.paths(client, server).len(), 2);
//! # Ok(())
//! # }
//! ```

mod host_path;
mod path_id;
mod planner;
mod router_path;
mod sids;
mod weight;

pub use host_path::{HOST_SRH, HostPath};
pub use planner::Planner;
pub use router_path::{LeftOut, MIN_MTU, RouterPath};
pub use sidestep_paths::{Access, Ends, Recomputed, access_arcs};
pub use sids::{LocatorError, Locators};
pub use weight::{initial_weight, path_usage};
