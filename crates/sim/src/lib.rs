//! The packet-level simulator: scenarios in virtual time.
//!
//! - [`run()`] runs a scenario under systems and seeds, and leaves the results that the lab leaves; [`estimate()`] says
//!   beforehand how much memory a run takes.
//! - [`engine`] carries packets: a [`Network`](engine::Network) of links, the [`World`](engine::World) with the flows on it, and
//!   the [`Behaviour`](engine::Behaviour) of nodes that decide. It knows no scenario.
//! - [`routing`] has the IGP's routes, [`sr_paths`] the controller's path sets, [`steering`] what moves flows.
//! - `edges` has what edge routers do that spread flows over paths.
//! - A system is a file in `systems`, made a module by the table of systems.
//! - [`bench`](mod@bench) has the networks that the simulator's speed is measured on.
//!
//! # Example
//! ```
//! use sidestep_scenario::builder::{ScenarioBuilder, bulk};
//! use sidestep_sim::{RunOptions, run};
//!
//! let scenario = ScenarioBuilder::new("2 s").parallel_paths(2).flow(bulk("c1", "s1").with("connections", 4)).build();
//! let options = RunOptions::once(scenario, vec!["tcp".parse()?, "pathchanger".parse()?]);
//! let (result, interrupted) = run(&options, &())?;
//! assert!(!interrupted && result.systems.get("pathchanger").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bench;
mod edges;
pub mod routing;
mod run;
pub mod sr_paths;
pub mod steering;
mod system;
mod systems;

pub use run::{Observer, RunOptions, SimError, estimate, resume, run, tcp_counters};
