//! A published network, or a file's, with hosts at its routers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{Builder, at_least_one, of_access, quiet};
use crate::{
    Channel, Graph, Missing, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology, TopologyError, pattern,
    topology_file::ecn_threshold, units::MAX_QUANTITY, usual_rate,
};

/// What a scenario adds to a network that it names: hosts, queues, and what its file leaves out.
///
/// The hosts at router `Bern` are `h-Bern`, `h-Bern.2`, …; where that is too long for a name, `h1`, … by the router's place.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attached {
    /// What keys of the network's file mean, as `ROLE` or `ROLE:UNIT`.
    pub map: BTreeMap<String, String>,
    /// Which part of the network is taken if no link joins all.
    pub part: Part,
    /// Hosts at each router that has some.
    pub hosts: u32,
    /// Which routers have hosts.
    pub at: At,
    /// Rate of all links between routers; `None`: the file's, and for links without one the median of the others, or
    /// 1 Gbit/s.
    pub rate: Option<Rate>,
    /// Delay of all links between routers; `None`: the file's, or that of light in fibre between the positions, or 1 ms.
    pub delay: Option<Span>,
    /// Queue of links between routers.
    pub queue: QueueLimit,
    /// Occupancy from which these mark CE; `None`, in a file `"never"`: never.
    #[serde(deserialize_with = "ecn_threshold")]
    pub ecn: Option<QueueLimit>,
    /// Random loss on these.
    pub loss: Ratio,
    /// Rate of the hosts' links; `None`: what the links of their router carry together.
    pub access_rate: Option<Rate>,
    /// Delay of the hosts' links.
    pub access_delay: Span,
    /// Queue of the hosts' links.
    pub access_queue: QueueLimit,
    /// Largest packet of links between routers; above the hosts' so that encapsulation fits.
    pub mtu: u32,
    /// Largest packet of the hosts' links.
    pub access_mtu: u32,
}

/// A part of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The whole network.
    #[default]
    All,
    /// The part with most nodes of those that no link joins.
    Largest,
}

/// Which routers of a network have hosts; routers without a link never have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// All.
    #[default]
    All,
    /// Those with at most two neighbours: where traffic enters a backbone.
    Access,
    /// Those whose names match one of these patterns.
    Named(Vec<String>),
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Rule(String),
            Names(Vec<String>),
        }
        let expected = || D::Error::custom("must be \"all\", \"access\", or a list of routers and patterns");
        match Given::deserialize(deserializer).map_err(|_| expected())? {
            Given::Rule(rule) if rule == "all" => Ok(At::All),
            Given::Rule(rule) if rule == "access" => Ok(At::Access),
            Given::Names(names) if !names.is_empty() => Ok(At::Named(names)),
            _ => Err(expected()),
        }
    }
}

impl Default for Attached {
    fn default() -> Self {
        Attached {
            map: BTreeMap::new(),
            part: Part::All,
            hosts: 1,
            at: At::All,
            rate: None,
            delay: None,
            queue: QueueLimit::Packets(100),
            ecn: None,
            loss: Ratio::ZERO,
            access_rate: None,
            access_delay: Span::from_millis(1),
            access_queue: QueueLimit::Packets(1000),
            mtu: 1700,
            access_mtu: 1500,
        }
    }
}

impl Attached {
    /// The part of a network that is taken; its nodes are the routers, in this order.
    pub fn taken(&self, graph: &Graph) -> Graph {
        if self.part == Part::Largest { graph.largest_part() } else { graph.clone() }
    }

    /// Builds the network, addresses assigned; fails where a number is out of range, or no router has hosts.
    pub fn build(&self, graph: &Graph) -> Result<Topology, TopologyError> {
        at_least_one("hosts", &graph.name, self.hosts)?;
        let mut graph = self.taken(graph);
        for edge in &mut graph.edges {
            (edge.rate, edge.delay) = (self.rate.or(edge.rate), self.delay.or(edge.delay));
        }
        let rate = usual_rate(graph.edges.iter().filter_map(|edge| edge.rate));
        graph.complete(&Missing { rate, delay: Span::from_millis(1) });
        let routers = graph.to_topology()?;
        let mut builder = Builder::default();
        for id in routers.node_ids() {
            let router = builder.node(routers.node(id).name.clone(), NodeKind::Router)?;
            if let Some(position) = routers.position(id) {
                builder.topology.set_position(router, position);
            }
        }
        for (id, link) in routers.link_ids().zip(routers.links()) {
            let [ab, ba] = [link.ab, link.ba].map(|channel| self.channel(channel));
            let link = crate::Link { ab, ba, mtu: self.mtu, ..link.clone() };
            let added = builder.topology.add_link(link)?;
            builder.topology.set_risk_groups(added, routers.risk_groups(id).clone());
            if routers.is_one_way(id) {
                builder.topology.set_one_way(added)?;
            }
        }
        let chosen: Vec<NodeId> = routers.node_ids().filter(|id| self.has_hosts(&routers, *id)).collect();
        if chosen.is_empty() {
            let problem = "matches no router that has a link".into();
            return Err(TopologyError::BadValue { what: "at", name: graph.name, problem });
        }
        for router in chosen {
            self.attach(&mut builder, &routers, router)?;
        }
        Ok(builder.finish())
    }

    fn channel(&self, of_file: Channel) -> Channel {
        let queue = Queue { limit: self.queue, ecn_threshold: self.ecn, red: None };
        Channel { queue, loss: self.loss, ..of_file }
    }

    fn has_hosts(&self, routers: &Topology, id: NodeId) -> bool {
        let neighbours: BTreeSet<NodeId> = routers.around(id).iter().map(|arc| routers.head(*arc)).collect();
        let name = &routers.node(id).name;
        !neighbours.is_empty()
            && match &self.at {
                At::All => true,
                At::Access => neighbours.len() <= 2,
                At::Named(patterns) => patterns.iter().any(|pattern| pattern::matches(pattern, name)),
            }
    }

    fn attach(&self, builder: &mut Builder, routers: &Topology, router: NodeId) -> Result<(), TopologyError> {
        let rates = || routers.around(router).iter().map(|arc| routers.channel(*arc).rate.bits_per_sec());
        // A link that is not limited leaves the host's own without a limit.
        let is_limited = rates().all(|rate| rate > 0);
        let together = if is_limited { rates().fold(0, u64::saturating_add).min(MAX_QUANTITY) } else { 0 };
        let together = Rate::from_bits_per_sec(together);
        let access =
            Channel { rate: self.access_rate.unwrap_or(together), ..quiet(self.access_delay, self.access_queue) };
        let full = format!("h-{}", routers.node(router).name);
        for number in 1..=self.hosts {
            let suffix = if number == 1 { String::new() } else { format!(".{number}") };
            // The link's name holds both ends' names.
            let short = 2 * full.len() + suffix.len() < 32;
            let host = if short { format!("{full}{suffix}") } else { format!("h{}{suffix}", router.0 + 1) };
            let name = if short { format!("{host}-{}", routers.node(router).name) } else { format!("{host}-access") };
            let host = builder.node(host, NodeKind::Host)?;
            let link = crate::Link { name, a: host, b: router, ab: access, ba: access, mtu: self.access_mtu };
            builder.topology.add_link(link).map_err(of_access)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraphEdge, GraphNode};

    /// A triangle a, b, c with a stub d at c, and a node without a link; only a–b has a rate.
    fn graph() -> Graph {
        let node = |name: &str| GraphNode { name: name.into(), position: None };
        let edge = |from, to, rate| GraphEdge { from, to, directed: false, weight: None, rate, delay: None };
        Graph {
            name: "net".into(),
            nodes: ["a", "b", "c", "d", "alone"].map(node).into(),
            edges: vec![edge(0, 1, Some(Rate::from_mbits(40))), edge(1, 2, None), edge(0, 2, None), edge(2, 3, None)],
            ..Graph::default()
        }
    }

    fn hosts(attached: &Attached) -> Vec<String> {
        let topology = attached.build(&graph()).unwrap();
        let hosts = topology.node_ids().filter(|id| !topology.is_router(*id));
        hosts.map(|id| topology.node(id).name.clone()).collect()
    }

    #[test]
    fn hosts_are_where_the_rule_puts_them_and_never_at_a_router_without_a_link() {
        let at = |at| Attached { at, ..Attached::default() };
        assert_eq!(hosts(&at(At::All)), ["h-a", "h-b", "h-c", "h-d"]);
        assert_eq!(hosts(&at(At::Access)), ["h-a", "h-b", "h-d"], "c has three neighbours");
        assert_eq!(hosts(&at(At::Named(vec!["a".into(), "d*".into()]))), ["h-a", "h-d"]);
        assert_eq!(hosts(&Attached { hosts: 2, ..at(At::Named(vec!["b".into()])) }), ["h-b", "h-b.2"]);
        let none = at(At::Named(vec!["alone".into()])).build(&graph()).unwrap_err();
        assert_eq!(none.to_string(), "at of `net` matches no router that has a link");
    }

    #[test]
    fn links_have_the_files_rates_or_the_scenarios_and_a_hosts_link_carries_what_its_routers_do() {
        let rate =
            |topology: &Topology, link: &str| topology.link(topology.find_link(link).unwrap()).ab.rate.as_mbits();
        let topology = Attached::default().build(&graph()).unwrap();
        assert_eq!([rate(&topology, "a-b"), rate(&topology, "b-c"), rate(&topology, "h-c-c")], [40.0, 40.0, 120.0]);
        let set =
            Attached { rate: Some(Rate::from_mbits(10)), delay: Some(Span::from_millis(3)), ..Attached::default() };
        let topology = set.build(&graph()).unwrap();
        assert_eq!([rate(&topology, "a-b"), rate(&topology, "h-d-d")], [10.0, 10.0]);
        assert_eq!(topology.links()[0].ba.delay, Span::from_millis(3));
    }

    #[test]
    fn a_router_with_a_long_name_has_hosts_with_a_short_one() {
        let mut graph = graph();
        graph.nodes[0].name = "x".repeat(60);
        let topology = Attached { hosts: 2, ..Attached::default() }.build(&graph).unwrap();
        assert!(topology.find("h1").is_ok() && topology.find("h1.2").is_ok());
    }
}
