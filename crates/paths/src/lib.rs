//! Paths through a network, and the segment lists that force them.
//!
//! Everything here is a pure function of a [`Topology`](sidestep_net::Topology). There are three kinds of items:
//!
//! - **Functions answer one question.** [`disjoint_paths`] finds link-disjoint paths under a limit of segments, and
//!   [`paths_apart`] finds paths without a common router or shared risk. [`segment_list`] turns a path into the
//!   shortest list that forces it; [`reroute`] turns a list back into its path. [`max_flow_links`] and
//!   [`max_flow_rate`] bound what any set of paths of a pair can reach.
//! - **Types remember what they have computed.** [`Igp`] holds the shortest-path DAGs by which routers forward, with
//!   ECMP and without failed links. [`PathFinder`] finds the disjoint paths of many pairs. [`PathSets`] keeps the paths
//!   of many pairs ([`Ends`], with one access router or several) up to date while links fail and recover: `add` a pair,
//!   report the links that are down, `get` its paths.
//! - **[`analysis`] counts.** It surveys path diversity and detours of published topologies.
//!
//! ```
//! use sidestep_net::ParallelPaths;
//! use sidestep_paths::{Igp, SegmentRules, disjoint_paths, reroute};
//!
//! let topology = ParallelPaths { paths: 3, ..ParallelPaths::default() }.build()?;
//! let (from, to) = (topology.find("A")?, topology.find("B")?);
//! let igp = Igp::new(&topology);
//! let rules = SegmentRules { max_segments: 3, adjacency: true };
//! let routes = disjoint_paths(&topology, &igp, from, to, &rules, 4);
//! assert_eq!(routes.len(), 3);
//! // Each route comes with the segment list that forces it.
//! for route in &routes {
//!     assert_eq!(reroute(&topology, &igp, from, &route.segments)?, route.arcs);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a segment list means here
//! A list ends with `Node(egress router)`, whose SID decapsulates, and that entry counts. `Node(v)` follows the IGP's
//! shortest path to `v`. `Adjacency(arc)` follows the IGP to the arc's tail, whose locator its SID carries, and then
//! crosses the arc. A segment forces a path only if that shortest path is unique: parallel links of equal weight make
//! it ambiguous, as any other ECMP does. Lists are read on the full IGP, whatever links a path must avoid.

pub mod analysis;
mod apart;
#[cfg(test)]
mod brute_force;
mod cost;
mod disjoint;
mod ends;
mod hop;
mod igp;
mod max_flow;
mod path_sets;
mod route;
mod search;
mod segments;
mod settings;
mod spf;

pub use apart::{Apart, paths_apart};
pub use disjoint::{PathFinder, disjoint_paths};
pub use ends::{Access, Ends, access_arcs};
pub use igp::Igp;
pub use max_flow::{max_flow_links, max_flow_rate};
pub use path_sets::{Back, PathSet, PathSets, Recomputed};
pub use route::{Route, Segment, SegmentRules};
pub use segments::{RerouteError, SegmentError, reroute, segment_list};
pub use settings::PathSettings;
