//! The nouns of sidestep: ids, units, topologies and scenarios.
//!
//! Nothing here opens a file, a socket or a clock; the other crates build on these types. There are four kinds of
//! items:
//!
//! - **Networks.** [`Topology`] has nodes and links, checked when added (`add_…`), and is read by id or by name
//!   (`find`). The generators, such as [`ParallelPaths`], make one with `build`. [`Graph`] is a network as published
//!   files have it.
//! - **Experiments.** [`Scenario::parse`] reads a scenario file, [`Scenario::to_toml`] prints the resolved copy, and
//!   [`scenario::builder`] makes scenarios in code. [`mod@systems`] is the table of the systems that can be compared.
//! - **Units.** [`Rate`], [`Span`], [`Bytes`] and the others parse from text, such as `"100 Mbit/s"`, and print it.
//! - **Random quantities.** [`workload`] draws sizes and arrivals from random bits that the caller passes in.
//!
//! ```
//! use sidestep_model::{Rate, Scenario};
//!
//! let text = r#"
//!     duration = "10 s"
//!     [topology]
//!     generator = "parallel-paths"
//!     paths = 6
//!     rate = "20 Mbit/s"
//!     [[flow]]
//!     kind = "bulk"
//!     from = "c1"
//!     to = "s1"
//! "#;
//! let scenario = Scenario::parse(text, "six-paths")?;
//! let link = scenario.topology.find_link("A-m1").expect("the first path has this link");
//! assert_eq!(scenario.topology.link(link).ab.rate, Rate::from_mbits(20));
//! # Ok::<(), sidestep_model::scenario::ParseError>(())
//! ```

mod balance;
pub mod generate;
mod graph;
mod histogram;
mod ids;
pub mod pattern;
pub mod scenario;
pub mod srv6;
pub mod systems;
mod topology;
pub mod topology_file;
mod units;
pub mod workload;

pub use balance::BalanceMode;
pub use generate::{At, Attached, Backbone, Dumbbell, FatTree, ParallelPaths};
pub use graph::{Graph, GraphEdge, GraphLink, GraphNode, Missing, usual_rate};
pub use histogram::Histogram;
pub use ids::{ArcId, Direction, LinkId, NodeId, PathId};
pub use scenario::{Scenario, WireTimes};
pub use systems::{SystemName, World};
pub use topology::{
    BurstLoss, Channel, Link, LinkState, NamedPath, Node, NodeKind, Queue, Red, Topology, TopologyError,
};
pub use units::{Bytes, MAX_QUANTITY, QueueLimit, Rate, Ratio, Span, Time, UnitError};
