//! The packet-level engine: hosts with flows, on a [`Network`].

mod heap;
mod network;
mod world;
#[cfg(test)]
mod tests;

pub use network::{MAX_ARCS, MAX_NANOS, Network, RouteId};
pub use world::{FlowId, FlowSpec, Move, Sizes, Steering, Stopped, World};
