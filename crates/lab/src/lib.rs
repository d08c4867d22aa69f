//! The lab: a scenario's network out of namespaces and userspace wires, with real kernels, real TCP and real agents.

pub mod bench;
mod daemons;
mod doubts;
mod error;
mod generators;
mod interfaces;
mod jiffies;
mod mix;
mod moves;
mod names;
mod network;
pub mod plan;
mod processes;
mod run;
mod sampler;
mod session;
mod site;
mod system;
mod timeline;
pub mod traffic;

pub use daemons::{Daemon, Surroundings, Watch};
pub use doubts::{doubts, equal_cost};
pub use error::LabError;
pub use moves::Moves;
pub use network::Network;
pub use run::{Observer, RunOptions, run};
pub use session::now;
pub use site::{Cleaned, LabDir, clean};
pub use system::{Choice, Hash, Registry, Run, Setup, System, congestion_controls};
pub use timeline::Made;
