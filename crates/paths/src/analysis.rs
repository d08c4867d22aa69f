//! Analysis of a topology before anything is deployed in it: path diversity, segments needed, detours.
//!
//! - [`Net`]: a published [`Graph`](sidestep_net::Graph) in compact form, [`Net::pruned`], [`Net::access`];
//! - [`Survey`]: how many disjoint paths pairs of routers have, by maximum flow, by iterated Dijkstra, or by limit of
//!   segments;
//! - [`detours`]: which links have a detour; [`reliance`]: what pairs lose with each link.
//!
//! The papers leave some choices open. Each one that changes the numbers is an option; the defaults match the papers.

mod detours;
mod disjoint;
mod net;
mod node_disjoint;
mod reliance;
mod risk;
mod segmented;
mod survey;
#[cfg(test)]
mod tests;
mod trees;

pub use detours::{Detours, detours};
pub use net::{Net, NetError, NetOptions};
pub use reliance::{Reliance, parts, reliance};
pub use risk::RiskGroups;
pub use survey::{Counts, Remove, SegmentOptions, Survey};
