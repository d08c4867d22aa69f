//! The lab: a scenario's network out of namespaces and userspace wires, with real kernels, real TCP and real daemons.

mod choice;
mod clock;
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
mod nodes;
mod options;
pub mod plan;
mod processes;
mod run;
mod sampler;
mod session;
mod site;
mod system;
mod timeline;
pub mod traffic;

pub use choice::{Choice, equal_cost};
pub use clock::now;
pub use daemons::{Daemon, Surroundings, Watch};
pub use doubts::doubts;
pub use error::LabError;
pub use moves::Moves;
pub use network::Network;
pub use options::RunOptions;
pub use processes::{Place, Process, stop_all};
pub use run::{Observer, run};
pub use site::{Cleaned, LabDir, clean};
pub use system::{Hash, Registry, Run, Setup, System, congestion_controls};
pub use timeline::Made;
