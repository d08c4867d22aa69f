//! The packet-level engine: hosts with flows, on a [`Network`], in virtual time.
//!
//! - A [`Network`] has the links of a [`Topology`](net::Topology) and carries packets along routes.
//! - The [`World`] has the flows on it: TCP, MPTCP, or an [`Endpoint`] of your own.
//! - A [`Behaviour`] is what a node does with packets beyond carrying them on. A [`Steering`] moves flows.
//!
//! The same seed gives the same run. `examples/two_paths.rs` is a whole program:
//!
//! ```
#![doc = include_str!("../examples/two_paths.rs")]
//! ```

mod ahead;
mod behaviour;
mod closing;
mod delays;
mod endpoint;
mod flows;
mod heap;
mod lateness;
mod mptcp;
mod network;
mod nodes;
mod outage;
mod programs;
mod request;
mod steering;
mod tcp;
#[cfg(test)]
mod tests;
mod wires;
mod world;

pub use behaviour::{Behaviour, CacheReport, Counter, Fate, Forwarding, Leaving, Node, PacketId, Stored};
pub use endpoint::{Endpoint, Half, Outbox, Progress};
pub use flows::{FlowId, FlowSpec, Report, Segments, Sizes, TcpId, segments};
pub use lateness::{Lateness, WireTimes};
pub use network::{Balance, Copied, MAX_ARCS, MAX_NANOS, NO_FLOW, Network, RouteId};
pub use outage::Outage;
pub use sidestep_net as net;
pub use sidestep_proto as proto;
pub use steering::{End, Event, Move, Steering};
pub use world::{Stopped, World};
