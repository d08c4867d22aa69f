//! Networks: nodes, and links with two independent directions.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{ArcId, Bytes, LinkId, NodeId, QueueLimit, Rate, Ratio, Span};

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An end host; never forwards for others.
    Host,
    /// A router; forwards, and takes part in the IGP.
    Router,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique name, of letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Host or router.
    pub kind: NodeKind,
    /// A host's address prefix (its address is the prefix's `::1`); `None` for routers.
    pub prefix: Option<Ipv6Net>,
    /// A router's SRv6 locator, a /48 (see [`srv6`](crate::srv6)); `None` for hosts.
    pub locator: Option<Ipv6Net>,
}

/// The queue in front of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Drop-tail limit; what is being transmitted does not count.
    pub limit: QueueLimit,
    /// Occupancy from which ECN-capable packets are marked CE on arrival; `None`: never.
    pub ecn_threshold: Option<QueueLimit>,
    /// Random early detection, before the limit is reached; `None`: not.
    pub red: Option<Red>,
}

/// Random early detection (Floyd and Jacobson 1993): packets are marked, or dropped if they are not ECN-capable, at
/// random and the more the longer the average queue is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Red {
    /// Average queue from which marking begins.
    pub min: Bytes,
    /// Average queue from which every packet is hit, or (`gentle`) from which the probability rises to 1 at twice as
    /// much.
    pub max: Bytes,
    /// Probability just below `max`.
    #[serde(default = "red_probability")]
    pub probability: Ratio,
    /// Weight of a packet's view of the queue in the average.
    #[serde(default = "red_weight")]
    pub weight: Ratio,
    /// Whether the probability rises on beyond `max`, as Floyd recommends.
    #[serde(default = "red_gentle")]
    pub gentle: bool,
}

fn red_probability() -> Ratio {
    Ratio::from_ppb(100_000_000)
}

fn red_weight() -> Ratio {
    Ratio::from_ppb(2_000_000)
}

fn red_gentle() -> bool {
    true
}

/// Losses in bursts (Gilbert 1960, Elliott 1963): a good and a bad state, which a packet may change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstLoss {
    /// Probability with each packet that the good state ends.
    pub to_bad: Ratio,
    /// Probability with each packet that the bad state ends.
    pub to_good: Ratio,
    /// Probability of loss in the good state.
    #[serde(default)]
    pub in_good: Ratio,
    /// Probability of loss in the bad state.
    #[serde(default = "certain")]
    pub in_bad: Ratio,
}

fn certain() -> Ratio {
    Ratio::from_ppb(1_000_000_000)
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// Transmission rate of IP packets; zero means "not limited".
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Span,
    /// Queue and its management.
    pub queue: Queue,
    /// Probability that a packet is lost at random.
    pub loss: Ratio,
    /// Losses in bursts beside that; `None`: none.
    pub burst_loss: Option<BurstLoss>,
    /// IGP weight of this direction, from 1 to [`MAX_WEIGHT`].
    pub weight: u64,
}

/// Whether one direction of a link carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It carries packets.
    Up,
    /// It is cut: packets queued, in flight or arriving are lost.
    Down,
    /// It loses arriving packets, but delivers those that it had accepted.
    Blackhole,
}

/// A link between two nodes; several may connect the same pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Unique name.
    pub name: String,
    /// One end.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// The direction from `a` to `b`.
    pub ab: Channel,
    /// The direction from `b` to `a`.
    pub ba: Channel,
    /// Largest IP packet that it carries, in bytes.
    pub mtu: u32,
}

/// A named set of links that results are reported for, such as one of the disjoint paths of a generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// Its name in results.
    pub name: String,
    /// Its links in order.
    pub links: Vec<LinkId>,
}

/// A network of nodes and links, checked when built: ids are dense and every link's ends exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<Link>,
    paths: Vec<NamedPath>,
    by_name: BTreeMap<String, NodeId>,
    link_by_name: BTreeMap<String, LinkId>,
    path_names: BTreeSet<String>,
    positions: BTreeMap<NodeId, (f64, f64)>,
    risk_groups: BTreeMap<LinkId, BTreeSet<u32>>,
    /// Links that carry nothing from their second end to their first.
    one_way: BTreeSet<LinkId>,
    /// By node: the arcs that leave it.
    outgoing: Vec<Vec<ArcId>>,
    /// By node: those of all its links, also of the links that only lead to it.
    around: Vec<Vec<ArcId>>,
}

/// Why a topology cannot be built.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TopologyError {
    /// Two nodes or two links share a name.
    #[error("{what} `{name}` exists twice; give each a name of its own")]
    Duplicate {
        /// "node" or "link".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name that no node has.
    #[error("there is no node `{0}`")]
    UnknownNode(String),
    /// A name with characters other than letters, digits, `-`, `_`, `.`, or longer than 32.
    #[error("`{0}` cannot be a name; use 1 to 32 letters, digits, `-`, `_` or `.`")]
    BadName(String),
    /// A link from a node to itself.
    #[error("link `{0}` connects a node with itself")]
    SelfLoop(String),
    /// A property outside its range.
    #[error("{what} of `{name}` {problem}")]
    BadValue {
        /// The property.
        what: &'static str,
        /// The node or link.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// More nodes or links than the address plan has numbers.
    #[error("{count} {what} are more than the {limit} that a topology can have")]
    TooLarge {
        /// "nodes" or "links".
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// The largest IGP weight of a link: the weights of a path through all nodes that there may be add up to less than 2⁶³.
pub const MAX_WEIGHT: u64 = (1 << 47) - 1;

/// Node numbers and link numbers must fit 16 bits of the address plan.
pub(crate) const MAX_ITEMS: usize = 65_000;

impl Topology {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node and returns its id.
    pub fn add_node(&mut self, node: Node) -> Result<NodeId, TopologyError> {
        check_name(&node.name)?;
        check_count("nodes", self.nodes.len())?;
        if self.by_name.contains_key(&node.name) {
            return Err(TopologyError::Duplicate { what: "node", name: node.name });
        }
        let id = NodeId(self.nodes.len() as u32);
        self.by_name.insert(node.name.clone(), id);
        self.nodes.push(node);
        self.outgoing.push(Vec::new());
        self.around.push(Vec::new());
        Ok(id)
    }

    /// Adds a link and returns its id.
    pub fn add_link(&mut self, link: Link) -> Result<LinkId, TopologyError> {
        check_name(&link.name)?;
        check_count("links", self.links.len())?;
        if self.link_by_name.contains_key(&link.name) {
            return Err(TopologyError::Duplicate { what: "link", name: link.name });
        }
        if link.a == link.b {
            return Err(TopologyError::SelfLoop(link.name));
        }
        for end in [link.a, link.b] {
            if end.index() >= self.nodes.len() {
                return Err(TopologyError::UnknownNode(format!("#{}", end.0)));
            }
        }
        let bad =
            |what, problem: &str| TopologyError::BadValue { what, name: link.name.clone(), problem: problem.into() };
        if !(1280..=65_000).contains(&link.mtu) {
            return Err(bad("mtu", "must be between 1280 (IPv6's minimum) and 65000 bytes"));
        }
        for channel in [&link.ab, &link.ba] {
            if channel.weight == 0 {
                return Err(bad("weight", "must be at least 1"));
            }
            if channel.weight > MAX_WEIGHT {
                return Err(bad("weight", &format!("must be at most {MAX_WEIGHT}")));
            }
            let room = match channel.queue.limit {
                QueueLimit::Packets(packets) => packets >= 1,
                QueueLimit::Bytes(bytes) => bytes >= Bytes::new(u64::from(link.mtu)),
            };
            if !room {
                return Err(bad("queue", "must have room for at least one packet of the link's mtu"));
            }
            if channel.queue.red.is_some_and(|red| red.min >= red.max || red.weight == Ratio::ZERO) {
                return Err(bad("red", "needs a `min` below its `max`, and a `weight` above 0 %"));
            }
        }
        let id = LinkId(self.links.len() as u32);
        for (end, direction) in [(link.a, crate::Direction::AToB), (link.b, crate::Direction::BToA)] {
            self.outgoing[end.index()].push(id.arc(direction));
            self.around[end.index()].push(id.arc(direction));
        }
        self.link_by_name.insert(link.name.clone(), id);
        self.links.push(link);
        Ok(id)
    }

    /// Names a set of links that results are reported for.
    pub fn add_path(&mut self, path: NamedPath) -> Result<(), TopologyError> {
        check_name(&path.name)?;
        if !self.path_names.insert(path.name.clone()) {
            return Err(TopologyError::Duplicate { what: "path", name: path.name });
        }
        self.paths.push(path);
        Ok(())
    }

    /// Makes a link lead from its first end to its second only; fails if one end is a host, which could not answer.
    ///
    /// Its other direction keeps an id, and a channel that nothing uses: that of the first.
    pub fn set_one_way(&mut self, link: LinkId) -> Result<(), TopologyError> {
        let Link { name, a, b, .. } = self.link(link);
        if !self.is_router(*a) || !self.is_router(*b) {
            let problem = "leaves a host that cannot send or receive; give it both directions".into();
            return Err(TopologyError::BadValue { what: "one_way", name: name.clone(), problem });
        }
        let missing = link.arc(crate::Direction::BToA);
        let tail = b.index();
        self.outgoing[tail].retain(|arc| *arc != missing);
        let of = &mut self.links[link.index()];
        of.ba = of.ab;
        self.one_way.insert(link);
        Ok(())
    }

    /// Whether a link leads from its first end to its second only.
    pub fn is_one_way(&self, link: LinkId) -> bool {
        self.one_way.contains(&link)
    }

    /// The links that lead from their first end to their second only, ascending.
    pub fn one_way_links(&self) -> impl Iterator<Item = LinkId> {
        self.one_way.iter().copied()
    }

    /// Whether packets can take this arc: the network has it, and it is no missing direction of a one-way link.
    pub fn has_arc(&self, arc: ArcId) -> bool {
        arc.index() < self.arc_count() && !(arc.direction() == crate::Direction::BToA && self.is_one_way(arc.link()))
    }

    /// Sets where a node is, in degrees of longitude and latitude; a position that is not on Earth is not kept.
    pub fn set_position(&mut self, node: NodeId, position: (f64, f64)) {
        if is_on_earth(position) {
            self.positions.insert(node, position);
        }
    }

    /// Longitude and latitude of a node in degrees; `None` where they are not known.
    pub fn position(&self, node: NodeId) -> Option<(f64, f64)> {
        self.positions.get(&node).copied()
    }

    /// Sets which shared risks a link has: links of one group fail together (SRLG, RFC 4202).
    pub fn set_risk_groups(&mut self, link: LinkId, groups: BTreeSet<u32>) {
        if groups.is_empty() {
            self.risk_groups.remove(&link);
        } else {
            self.risk_groups.insert(link, groups);
        }
    }

    /// The shared-risk groups of a link.
    pub fn risk_groups(&self, link: LinkId) -> &BTreeSet<u32> {
        static NONE: BTreeSet<u32> = BTreeSet::new();
        self.risk_groups.get(&link).unwrap_or(&NONE)
    }

    /// All nodes; a [`NodeId`] indexes this slice.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All links; a [`LinkId`] indexes this slice.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The sets of links that results are reported for.
    pub fn paths(&self) -> &[NamedPath] {
        &self.paths
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node with this id, to fill in addresses.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// The link with this id.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// Ids of all nodes in order.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Ids of all links in order.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// Number of arcs: two per link, the missing ones of one-way links included.
    pub fn arc_count(&self) -> usize {
        self.links.len() * 2
    }

    /// The arcs that leave `node`, by ascending id of their links.
    pub fn outgoing(&self, node: NodeId) -> &[ArcId] {
        &self.outgoing[node.index()]
    }

    /// The arcs of all links of `node`, seen from there, by ascending id; of one-way links that lead to it, the missing arc.
    pub fn around(&self, node: NodeId) -> &[ArcId] {
        &self.around[node.index()]
    }

    /// Where an arc begins.
    pub fn tail(&self, arc: ArcId) -> NodeId {
        let link = self.link(arc.link());
        if arc.direction() == crate::Direction::AToB { link.a } else { link.b }
    }

    /// Where an arc ends.
    pub fn head(&self, arc: ArcId) -> NodeId {
        self.tail(arc.reversed())
    }

    /// The properties of an arc.
    pub fn channel(&self, arc: ArcId) -> &Channel {
        let link = self.link(arc.link());
        if arc.direction() == crate::Direction::AToB { &link.ab } else { &link.ba }
    }

    /// The node called `name`.
    pub fn find(&self, name: &str) -> Result<NodeId, TopologyError> {
        self.by_name.get(name).copied().ok_or_else(|| TopologyError::UnknownNode(name.into()))
    }

    /// The link called `name`.
    pub fn find_link(&self, name: &str) -> Option<LinkId> {
        self.link_by_name.get(name).copied()
    }

    /// The arcs along the nodes of these names, by the first link between each two; `None` if some two have none.
    pub fn arcs_along(&self, nodes: &[&str]) -> Option<Vec<ArcId>> {
        let arc = |pair: &[&str]| {
            let (from, to) = (self.find(pair.first()?).ok()?, self.find(pair.last()?).ok()?);
            self.outgoing(from).iter().copied().find(|arc| self.head(*arc) == to)
        };
        nodes.windows(2).map(arc).collect()
    }

    /// Whether `node` is a router.
    pub fn is_router(&self, node: NodeId) -> bool {
        self.node(node).kind == NodeKind::Router
    }

    /// The router that a host hangs on: the far end of its first link to a router; `None` for routers.
    pub fn access_router(&self, host: NodeId) -> Option<NodeId> {
        if self.is_router(host) {
            return None;
        }
        self.outgoing(host).iter().map(|arc| self.head(*arc)).find(|far| self.is_router(*far))
    }

    /// The arcs from a router to its hosts; none of a host.
    pub fn host_arcs(&self, router: NodeId) -> impl Iterator<Item = ArcId> + '_ {
        let arcs = if self.is_router(router) { self.outgoing(router) } else { &[] };
        arcs.iter().copied().filter(|arc| !self.is_router(self.head(*arc)))
    }
}

/// Whether these are degrees of longitude and latitude.
pub(crate) fn is_on_earth((longitude, latitude): (f64, f64)) -> bool {
    longitude.abs() <= 180.0 && latitude.abs() <= 90.0
}

fn check_name(name: &str) -> Result<(), TopologyError> {
    let fine = (1..=32).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.starts_with('.');
    if fine { Ok(()) } else { Err(TopologyError::BadName(name.into())) }
}

fn check_count(what: &'static str, have: usize) -> Result<(), TopologyError> {
    if have < MAX_ITEMS { Ok(()) } else { Err(TopologyError::TooLarge { what, count: have + 1, limit: MAX_ITEMS }) }
}
