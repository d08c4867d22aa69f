//! The packet-level simulator: scenarios in virtual time.

pub mod bench;
pub mod engine;
pub mod routing;
mod run;
pub mod sr_paths;
pub mod steering;
mod system;
mod systems;

pub use run::{Observer, RunOptions, SimError, estimate, run};
