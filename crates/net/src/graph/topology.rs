//! Graphs from our own topology files, and back.

use std::collections::BTreeMap;

use super::{Graph, GraphEdge, GraphLink, GraphNode};
use crate::{
    Channel, Link, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology, TopologyError, srv6,
    topology::is_on_earth,
};

/// Light in fibre, in metres per second.
const FIBRE: f64 = 2e8;
const EARTH_RADIUS_M: f64 = 6_371_000.0;
/// The defaults of topology files.
const QUEUE: QueueLimit = QueueLimit::Packets(100);
const MTU: u32 = 1500;
const LONGEST_NAME: usize = 32;

/// The properties of a graph's edges for which the file has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Transmission rate.
    pub rate: Rate,
    /// Propagation delay, where it does not follow from the positions of the ends.
    pub delay: Span,
}

/// What links without a rate are taken to have: the median of the limits that are known, or 1 Gbit/s.
pub fn usual_rate(known: impl IntoIterator<Item = Rate>) -> Rate {
    let mut known: Vec<Rate> = known.into_iter().filter(|rate| *rate != Rate::default()).collect();
    known.sort_unstable();
    known.get(known.len() / 2).copied().unwrap_or(Rate::from_mbits(1000))
}

impl Graph {
    /// The routers of a topology and the links between them; hosts, queues, losses and named paths are left out.
    ///
    /// A link whose directions are equal becomes an undirected edge; any other becomes two directed edges, or one if it has
    /// one direction.
    pub fn of(topology: &Topology, name: &str) -> Graph {
        let mut graph = Graph { name: name.into(), ..Graph::default() };
        let mut index = BTreeMap::new();
        for id in topology.node_ids().filter(|id| topology.is_router(*id)) {
            index.insert(id, graph.nodes.len());
            graph.nodes.push(GraphNode { name: topology.node(id).name.clone(), position: topology.position(id) });
        }
        for (id, link) in topology.link_ids().zip(topology.links()) {
            let (Some(&a), Some(&b)) = (index.get(&link.a), index.get(&link.b)) else { continue };
            let edge = |from, to, directed, channel: &Channel| GraphEdge {
                from,
                to,
                directed,
                weight: Some(channel.weight as f64),
                rate: Some(channel.rate),
                delay: Some(channel.delay),
            };
            let (there, back) = (edge(a, b, false, &link.ab), edge(a, b, false, &link.ba));
            let first = graph.edges.len();
            if topology.is_one_way(id) {
                graph.edges.push(edge(a, b, true, &link.ab));
            } else if there == back {
                graph.edges.push(there);
            } else {
                graph.edges.extend([edge(a, b, true, &link.ab), edge(b, a, true, &link.ba)]);
            }
            if !topology.risk_groups(id).is_empty() {
                for edge in first..graph.edges.len() {
                    graph.risk_groups.insert(edge, topology.risk_groups(id).clone());
                }
            }
        }
        graph
    }

    /// Fills in rates and delays that the file does not have; returns how many rates and how many delays those were.
    ///
    /// A delay is that of light in fibre along the great circle where both ends have a position on Earth.
    pub fn complete(&mut self, missing: &Missing) -> (usize, usize) {
        let (mut rates, mut delays) = (0, 0);
        for edge in &mut self.edges {
            if edge.rate.is_none() {
                edge.rate = Some(missing.rate);
                rates += 1;
            }
            if edge.delay.is_none() {
                let position = |node: usize| self.nodes.get(node)?.position.filter(|position| is_on_earth(*position));
                let between = position(edge.from).zip(position(edge.to));
                edge.delay = Some(between.map_or(missing.delay, |(from, to)| light(from, to)));
                delays += 1;
            }
        }
        (rates, delays)
    }

    /// The graph as a topology of routers, with an address for each; loops are left out.
    ///
    /// Names keep letters, digits, `-`, `_` and `.`; where two are the same then, the later ones get a number. Weights
    /// are the [whole ones](Graph::whole_weights); a weight of 0 becomes one too small to change which of two paths weighs
    /// less. An edge without a rate is not limited, and one without a delay has none. Positions that are not on Earth are
    /// left out.
    pub fn to_topology(&self) -> Result<Topology, TopologyError> {
        let mut topology = Topology::new();
        let mut names = BTreeMap::new();
        for node in &self.nodes {
            let name = unique(&node.name, &mut names);
            let id = topology.add_node(Node { name, kind: NodeKind::Router, prefix: None, locator: None })?;
            if let Some(position) = node.position {
                topology.set_position(id, position);
            }
        }
        let weights = self.weights_above_zero()?;
        let mut link_names = BTreeMap::new();
        for GraphLink { ends, edges } in self.links().into_iter().filter(|link| link.ends[0] != link.ends[1]) {
            let [mut a, mut b] = ends.map(|end| NodeId(end as u32));
            let [mut there, mut back] = edges.map(|edge| self.edges.get(edge?).zip(weights.get(edge?)));
            if there.is_none() {
                // A link of one direction leads from its first end to its second.
                ((a, b), (there, back)) = ((b, a), (back, there));
            }
            let Some(there) = there else { continue };
            let name = format!("{}-{}", topology.node(a).name, topology.node(b).name);
            let name = unique(&name, &mut link_names);
            let (ab, ba) = (channel(there), channel(back.unwrap_or(there)));
            let id = topology.add_link(Link { name, a, b, ab, ba, mtu: MTU })?;
            let groups =
                edges.iter().flatten().filter_map(|edge| self.risk_groups.get(edge)).flatten().copied().collect();
            topology.set_risk_groups(id, groups);
            if back.is_none() {
                topology.set_one_way(id)?;
            }
        }
        srv6::assign_addresses(&mut topology);
        Ok(topology)
    }

    /// The whole weights, by edge. If some are 0, all are multiplied by more than a path has links, and those become 1.
    fn weights_above_zero(&self) -> Result<Vec<u64>, TopologyError> {
        let mut weights = match self.whole_weights() {
            Ok(weights) => weights.by_edge,
            Err(error) => {
                let problem = format!("cannot be kept: {error}");
                return Err(TopologyError::BadValue { what: "weight", name: self.name.clone(), problem });
            }
        };
        if weights.contains(&0) {
            weights.iter_mut().for_each(|weight| *weight = (*weight * self.nodes.len() as u64).max(1));
        }
        Ok(weights)
    }
}

fn channel((edge, weight): (&GraphEdge, &u64)) -> Channel {
    Channel {
        rate: edge.rate.unwrap_or_default(),
        delay: edge.delay.unwrap_or_default(),
        queue: Queue { limit: QUEUE, ecn_threshold: None, red: None },
        loss: Ratio::ZERO,
        burst_loss: None,
        weight: *weight,
    }
}

/// The delay of light in fibre between two positions (longitude, latitude), along the great circle; `None` if one is not on
/// Earth.
pub fn great_circle_delay(from: (f64, f64), to: (f64, f64)) -> Option<Span> {
    (is_on_earth(from) && is_on_earth(to)).then(|| light(from, to))
}

/// A unique name with the characters that a topology file allows. `taken` maps each name to its last number.
fn unique(name: &str, taken: &mut BTreeMap<String, u32>) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let mut plain: String = name.chars().map(allowed).take(LONGEST_NAME).collect();
    if plain.is_empty() || plain.starts_with('.') {
        plain = format!("n{plain}").chars().take(LONGEST_NAME).collect();
    }
    let Some(last) = taken.get(&plain).copied() else {
        taken.insert(plain.clone(), 1);
        return plain;
    };
    for number in last + 1.. {
        let suffix = format!(".{number}");
        let other = plain.chars().take(LONGEST_NAME - suffix.len()).collect::<String>() + &suffix;
        if !taken.contains_key(&other) {
            taken.insert(plain, number);
            taken.insert(other.clone(), 1);
            return other;
        }
    }
    plain
}

/// How long light in fibre takes between two places, given in degrees of longitude and latitude.
fn light(from: (f64, f64), to: (f64, f64)) -> Span {
    let [x, y] = [to.0 - from.0, to.1 - from.1].map(|degrees| (degrees.to_radians() / 2.0).sin().powi(2));
    let haversine = y + from.1.to_radians().cos() * to.1.to_radians().cos() * x;
    let metres = 2.0 * EARTH_RADIUS_M * haversine.clamp(0.0, 1.0).sqrt().asin();
    // To microseconds, as published files have them.
    Span::from_micros((metres / FIBRE * 1e6).round() as u64)
}
