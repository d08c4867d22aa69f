//! The nouns of sidestep: ids, units, topologies and scenarios.
//!
//! Nothing here opens a file, a socket or a clock; the other rooms build on these types.

pub mod generate;
mod graph;
mod ids;
pub mod pattern;
pub mod scenario;
pub mod srv6;
pub mod systems;
mod topology;
pub mod topology_file;
mod units;
pub mod workload;

pub use generate::{Backbone, Dumbbell, FatTree, ParallelPaths};
pub use graph::{Graph, GraphEdge, GraphLink, GraphNode, Missing};
pub use ids::{ArcId, Direction, LinkId, NodeId, PathId};
pub use scenario::Scenario;
pub use systems::{SystemName, World};
pub use topology::{
    BurstLoss, Channel, Link, LinkState, NamedPath, Node, NodeKind, Queue, Red, Topology, TopologyError,
};
pub use units::{Bytes, MAX_QUANTITY, QueueLimit, Rate, Ratio, Span, Time, UnitError};
