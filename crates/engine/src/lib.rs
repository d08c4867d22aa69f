//! The packet-level engine: hosts with flows, on a [`Network`].

mod ahead;
mod behaviour;
mod closing;
mod delays;
mod endpoint;
mod flows;
mod heap;
mod mptcp;
mod network;
mod nodes;
mod programs;
mod request;
mod steering;
mod tcp;
#[cfg(test)]
mod tests;
mod wires;
mod world;

pub use behaviour::{Behaviour, CacheReport, Fate, Forwarding, Leaving, Node, PacketId, Stored};
pub use endpoint::{Endpoint, Half, Outbox, Progress};
pub use flows::{FlowId, FlowSpec, Report, Segments, Sizes, TcpId, segments};
pub use network::{Balance, Copied, MAX_ARCS, MAX_NANOS, NO_FLOW, Network, RouteId};
pub use steering::{End, Event, Move, Steering};
pub use world::{Stopped, World};
