//! The packet-level engine: hosts with flows, on a [`Network`].

mod ahead;
mod heap;
mod network;
#[cfg(test)]
mod tests;
mod world;

pub use network::{Copied, MAX_ARCS, MAX_NANOS, Network, RouteId};
pub use world::{FlowId, FlowSpec, Move, Sizes, Steering, Stopped, World};
