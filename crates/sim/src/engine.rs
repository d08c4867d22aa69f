//! The packet-level engine: hosts with flows, on a [`Network`].

mod ahead;
mod behaviour;
mod delays;
mod endpoint;
mod flows;
mod heap;
mod mptcp;
mod network;
mod nodes;
mod request;
mod tcp;
#[cfg(test)]
mod tests;
mod world;

pub use behaviour::{Behaviour, CacheReport, Fate, Forwarding, Leaving, Node, PacketId, Stored};
pub use endpoint::{Endpoint, Half, Outbox, Progress};
pub use flows::{FlowId, FlowSpec, Report, Segments, Sizes, TcpId, segments};
pub use network::{Balance, Copied, MAX_ARCS, MAX_NANOS, NO_FLOW, Network, RouteId};
pub use request::Event;
pub use world::{Move, Steering, Stopped, World};
