//! The rules of the control plane, for the controller, the lab and the simulator alike.
//!
//! - [`Planner`] computes the path sets between hosts. `paths` and `set_of` ask for a set, `compute_all` computes all
//!   of them, and `set_down` sets which links are down and returns the sets that changed.
//! - [`RouterPath`] and [`HostPath`] are the computed properties of a path, between access routers and between hosts.
//! - [`Locators`] makes the SIDs of a path.
//! - [`path_usage`] and [`initial_weight`] compute how full a path is, and the weight that a host gives it at first.
//!
//! A Path ID is a hash of the names of the path's access routers and links. So a restarted controller finds the same
//! ids.
//!
//! This crate has no socket, no clock and no thread.
//!
//! # Example
//! ```
//! use std::{collections::BTreeSet, sync::Arc};
//! use sidestep_control::Planner;
//! use sidestep_net::ParallelPaths;
//! use sidestep_paths::PathSettings;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Arc::new(ParallelPaths { paths: 3, ..ParallelPaths::default() }.build()?);
//! let (client, server) = (topology.find("c1")?, topology.find("s1")?);
//! let mut planner = Planner::new(topology.clone(), PathSettings::default())?;
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
pub use path_id::assign as assign_path_ids;
pub use planner::Planner;
pub use router_path::{LeftOut, MIN_MTU, RouterPath};
pub use sidestep_paths::{Access, Ends, Recomputed, access_arcs};
pub use sids::{LocatorError, Locators};
pub use weight::{initial_weight, path_usage, room};
