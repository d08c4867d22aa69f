//! The messages as typed, checked values.

use std::{net::Ipv6Addr, time::Duration};

use ipnet::Ipv6Net;
use serde::{Serialize, Serializer};
pub use sidestep_net::PathId;
use sidestep_net::{Rate, Span};

/// The most paths of a set.
pub const MAX_PATHS: usize = 16;
/// The most segments of a list.
pub const MAX_SEGMENTS: usize = 32;
/// The most sets, counters or prefixes of a message.
pub const MAX_ITEMS: usize = 8192;
/// The largest message that is sent or taken, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A path from a host to a destination prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// The path's id.
    pub id: PathId,
    /// Its name, for people.
    pub name: String,
    /// The SID that the host puts into its segment list, unless the path needs none.
    pub binding_sid: Ipv6Addr,
    /// The lowest rate of any link on the path; zero if none is limited.
    #[serde(rename = "capacity_bps", serialize_with = "bits_per_sec")]
    pub capacity: Rate,
    /// Capacity less the bandwidth that is still available on every link of the path.
    #[serde(rename = "usage_bps", serialize_with = "bits_per_sec")]
    pub usage: Rate,
    /// One-way propagation delay.
    #[serde(rename = "delay_ns", serialize_with = "nanos")]
    pub delay: Span,
    /// Propagation delay along the path, and back along the shortest path.
    #[serde(rename = "rtt_ns", serialize_with = "nanos")]
    pub rtt: Span,
    /// The mtu for the host's route over this path, in bytes, with the encapsulation that the binding SID stands for.
    pub route_mtu: u32,
    /// The mtu for a route without segments, in bytes, if the path needs none: the routers take it anyway.
    pub plain_mtu: Option<u32>,
}

/// The paths to one destination prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathSet {
    /// Where the paths lead.
    pub destination: Ipv6Net,
    /// The paths, best first, at most [`MAX_PATHS`].
    pub paths: Vec<Path>,
}

/// All path sets of a host; replaces the previous update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathUpdate {
    /// Grows with each change; starts over with the controller.
    pub generation: u64,
    /// One set for each destination prefix, at most [`MAX_ITEMS`].
    pub sets: Vec<PathSet>,
}

/// What `End.B6.Encaps` does for one binding SID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// The path.
    pub path_id: PathId,
    /// The SID that is bound.
    pub binding_sid: Ipv6Addr,
    /// The segments in the order of travel, at most [`MAX_SEGMENTS`]; the last is the egress router's `End.DT6`.
    pub segments: Vec<Ipv6Addr>,
}

/// All bindings of an access router; replaces the previous update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BindingUpdate {
    /// Grows with each change; starts over with the controller.
    pub generation: u64,
    /// One for each path that starts at the router.
    pub bindings: Vec<Binding>,
}

/// How a host names itself to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostIdentity {
    /// By its name in the controller's topology.
    Node(String),
    /// By its addresses or prefixes, which all lie in the prefix of one host of the topology.
    Prefixes(Vec<Ipv6Net>),
}

/// The byte counters of a router's outgoing links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageReport {
    /// Name of the router.
    pub node: String,
    /// When the counters were read, on any clock of the router that only goes forward.
    pub at: Duration,
    /// One for each link, at most [`MAX_ITEMS`].
    pub counters: Vec<LinkCounter>,
}

/// How much a router has sent over one of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCounter {
    /// Name of the link.
    pub link: String,
    /// Bytes since the interface was made.
    pub tx_bytes: u64,
    /// Whether the interface is down or has no carrier.
    pub down: bool,
}

// Scripts that read the JSON want numbers, not "100 Mbit/s".

fn bits_per_sec<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(rate.bits_per_sec())
}

fn nanos<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_nanos())
}
