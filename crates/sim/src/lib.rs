//! The packet-level simulator: scenarios in virtual time.
//!
//! - [`run()`] runs a scenario under systems and seeds, and leaves the results that the lab leaves; [`estimate()`] says
//!   beforehand how much memory a run takes.
//! - [`engine`] carries packets: a [`Network`](engine::Network) of links, the [`World`](engine::World) with the flows on it, and
//!   the [`Behaviour`](engine::Behaviour) of nodes that decide. It knows no scenario.
//! - [`routing`] has the IGP's routes, [`sr_paths`] the controller's path sets, [`steering`] what moves flows.
//! - [`system`] says what a system is; a [`Registry`](system::Registry) has those that can be run.
//! - [`bench`](mod@bench) has the networks that the simulator's speed is measured on.
//!
//! # Example
//! ```
//! use sidestep_scenario::builder::{ScenarioBuilder, bulk};
//! use sidestep_sim::{RunOptions, run};
//!
//! let scenario = ScenarioBuilder::new("2 s").parallel_paths(2).flow(bulk("c1", "s1").with("connections", 4)).build();
//! let options = RunOptions::once(sidestep_systems::simulator(), scenario, vec!["tcp".parse()?, "pathchanger".parse()?]);
//! let (result, interrupted) = run(&options, &())?;
//! assert!(!interrupted && result.systems.get("pathchanger").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bench;
pub mod routing;
mod run;
pub mod sr_paths;
pub mod steering;
pub mod system;

pub use sidestep_engine as engine;
pub use sidestep_net as net;
pub use sidestep_paths as paths;
pub use sidestep_proto as proto;
pub use sidestep_results as results;
pub use sidestep_scenario as scenario;

pub use run::{Observer, RunOptions, SimError, estimate, resume, run, tcp_counters};
