//! Networks: ids, units, topologies, published graphs, SRv6 addresses, and the documents that hold them.
//!
//! Nothing here opens a file, a socket or a clock; the other crates build on these types. There are these kinds
//! of items:
//!
//! - **Networks.** [`Topology`] has nodes and links, checked when added (`add_…`), and is read by id or by name
//!   (`find`). The generators, such as [`ParallelPaths`], make one with `build`. [`Graph`] is a network as published
//!   files have it.
//! - **Documents.** [`Document`](document::Document) is TOML text whose errors name line and column; [`topology_file`] reads and
//!   prints networks. [`settings`] has what tables of settings have in common.
//! - **Units.** [`Rate`], [`Span`], [`Bytes`] and the others parse from text, such as `"100 Mbit/s"`, and print it.
//!
//! ```
//! use sidestep_net::{ParallelPaths, Rate};
//!
//! let topology = ParallelPaths { paths: 6, rate: Rate::from_mbits(20), ..ParallelPaths::default() }.build()?;
//! let link = topology.find_link("A-m1").expect("the first path has this link");
//! assert_eq!((topology.paths().len(), topology.link(link).ab.rate), (6, Rate::from_mbits(20)));
//! # Ok::<(), sidestep_net::TopologyError>(())
//! ```

mod demands;
pub mod document;
pub mod generate;
mod graph;
mod histogram;
mod ids;
pub mod pattern;
pub mod settings;
pub mod srv6;
mod topology;
pub mod topology_file;
mod units;
mod weights;

pub use demands::{Demand, ListedTransfer, TrafficMatrix};
pub use document::{Files, ParseError};
pub use generate::{At, Attached, Backbone, Dumbbell, FatTree, ParallelPaths, Part};
pub use graph::{
    Graph, GraphEdge, GraphLink, GraphNode, Missing, WeightError, WholeWeights, great_circle_delay, usual_rate,
};
pub use histogram::Histogram;
pub use ids::{ArcId, Direction, LinkId, NodeId, PathId};
pub use settings::{SettingError, SettingsTable};
pub use topology::{
    BurstLoss, Channel, Link, LinkState, MAX_WEIGHT, NamedPath, Node, NodeKind, Queue, Red, Topology, TopologyError,
};
pub use units::{Bytes, MAX_QUANTITY, MaybeTime, QueueLimit, Rate, Ratio, Span, Time, UnitError};
pub use weights::InitialName;
