//! Which ways a network offers, and which segment lists force them.
//!
//! - [`Igp`]: the shortest-path DAGs by which routers forward, with ECMP and with failed links;
//! - [`segment_list`] and [`reroute`]: from a path to the shortest list that forces it, and back;
//! - [`disjoint_paths`], [`PathFinder`]: link-disjoint paths under a limit of segments;
//! - [`PathSets`]: disjoint paths of many pairs of hosts with one access router or several ([`Ends`]), kept up to date
//!   while links fail and recover;
//! - [`paths_apart`]: the same for paths that have no router or no shared risk in common;
//! - [`max_flow_links`] and [`max_flow_rate`]: what any set of paths of a pair could reach at best;
//! - [`analysis`]: path diversity and detours of published topologies.
//!
//! # What a segment list means here
//! A list ends with `Node(exit router)`, whose SID decapsulates, and that entry counts. `Node(v)` goes on by the
//! IGP's shortest path to `v`; `Adjacency(arc)` goes by the IGP to the arc's tail, whose locator its SID carries, and
//! then over the arc. A segment forces a path only where that shortest path is unique: parallel links of equal weight
//! make it ambiguous as any other ECMP does. Lists are read on the full IGP, whatever links a path must avoid.

pub mod analysis;
mod apart;
#[cfg(test)]
mod brute_force;
mod cost;
mod disjoint;
mod ends;
mod igp;
mod max_flow;
mod path_sets;
mod route;
mod search;
mod segments;
mod spf;

pub use apart::{Apart, paths_apart};
pub use disjoint::{PathFinder, disjoint_paths};
pub use ends::{Access, Ends, access_arcs};
pub use igp::Igp;
pub use max_flow::{max_flow_links, max_flow_rate};
pub use path_sets::{Back, PathSet, PathSets, Recomputed};
pub use route::{Route, Segment, SegmentRules};
pub use segments::{RerouteError, SegmentError, reroute, segment_list};
