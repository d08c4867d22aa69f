//! When a live connection leaves its path, and for which: the safe Rust face of `bpf/include/policy`.
//!
//! The policy is one C header, compiled for the kernel and, here, natively: what was simulated is what runs. This
//! crate owns no clock and no random source; the caller passes the time and 32 uniform bits with every call.
//!
//! [`Connection`] is the state machine of one TCP connection, [`Shared`] what connections learn together, and [`raw`] the C
//! structs as they lie in BPF maps; [`raw::Config`] is made of [`AgentKnobs`](sidestep_model::scenario::AgentKnobs).

mod config;
mod connection;
mod exp3;
pub mod flow_hash;
pub mod raw;
mod shared;

pub use config::{Path, PolicyError};
pub use connection::{Connection, Decision, Reason, Round};
pub use exp3::Exp3;
pub use raw::MAX_PATHS;
pub use shared::Shared;
