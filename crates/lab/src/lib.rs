//! The lab: a scenario's network out of namespaces and userspace wires, with real kernels, real TCP and real agents.

pub mod bench;
mod control;
mod daemons;
mod doubts;
mod edges;
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
mod slots;
mod systems;
mod timeline;
pub mod traffic;

pub use error::LabError;
pub use network::Network;
pub use run::{Observer, RunOptions, run};
pub use site::{Cleaned, clean};
pub use systems::infos;
