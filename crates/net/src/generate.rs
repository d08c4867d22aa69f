//! Generators of the networks that experiments use most.

mod attached;
mod backbone;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    Channel, Link, LinkId, NamedPath, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology,
    TopologyError, srv6, topology_file::ecn_threshold, units::MAX_QUANTITY,
};

pub use attached::{At, Attached, Part};
pub use backbone::Backbone;

/// Two access routers `A` and `B` with disjoint paths between them; clients `c1…` at `A`, servers `s1…` at `B`.
///
/// The routers inside path `i` are `m<i>` when `hops` is 2, else `m<i>-1`, `m<i>-2`, …; the paths are named
/// `path-1…`. All links of path `i` weigh `10 + i - 1`, which makes `path-1` the only shortest.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParallelPaths {
    /// Number of paths, at least 1.
    pub paths: u32,
    /// Links of each path, at least 1.
    pub hops: u32,
    /// Number of clients.
    pub clients: u32,
    /// Number of servers.
    pub servers: u32,
    /// Rate of a path's links.
    pub rate: Rate,
    /// Delay of each of a path's links.
    pub delay: Span,
    /// Queue of a path's links.
    pub queue: QueueLimit,
    /// Occupancy from which a path's links mark CE; `None`, in a file `"never"`: never.
    #[serde(deserialize_with = "ecn_threshold")]
    pub ecn: Option<QueueLimit>,
    /// Random loss on a path's links.
    pub loss: Ratio,
    /// Rate of the hosts' links; `None`: that of all paths together.
    pub access_rate: Option<Rate>,
    /// Delay of the hosts' links; `None`: `delay`.
    pub access_delay: Option<Span>,
    /// Queue of the hosts' links.
    pub access_queue: QueueLimit,
    /// Largest packet of a path's links; above the hosts' so that encapsulation fits.
    pub mtu: u32,
    /// Largest packet of the hosts' links.
    pub access_mtu: u32,
    /// Gives all paths one weight, so that routers spread flows over them by hash.
    pub ecmp: bool,
}

/// Hosts `l1…` at router `L` and `r1…` at router `R`, and one link between the routers, the path `bottleneck`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dumbbell {
    /// Hosts on each side.
    pub hosts: u32,
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Delay of the bottleneck.
    pub delay: Span,
    /// Queue of the bottleneck.
    pub queue: QueueLimit,
    /// Occupancy from which the bottleneck marks CE; `None`, in a file `"never"`: never.
    #[serde(deserialize_with = "ecn_threshold")]
    pub ecn: Option<QueueLimit>,
    /// Random loss on the bottleneck.
    pub loss: Ratio,
    /// Rate of the hosts' links; `None`: ten times the bottleneck's.
    pub access_rate: Option<Rate>,
    /// Delay of the hosts' links; `None`: `delay`.
    pub access_delay: Option<Span>,
    /// Queue of the hosts' links.
    pub access_queue: QueueLimit,
    /// Largest packet of the bottleneck.
    pub mtu: u32,
    /// Largest packet of the hosts' links.
    pub access_mtu: u32,
}

/// A three-level fat tree of `k`-port switches (Al-Fares et al. 2008): `k` pods, `k³/4` hosts, full bisection bandwidth.
///
/// Pod `p` has edge switches `e<p>-<i>` and aggregation switches `a<p>-<i>`, hosts are `h<p>-<i>-<j>`, the core is `core<i>`;
/// all counted from 0. All links are alike and of one weight, so there are `(k/2)²` equal paths between pods.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FatTree {
    /// Ports of a switch: even, 2 to 48.
    pub k: u32,
    /// Rate of each link.
    pub rate: Rate,
    /// Delay of each link.
    pub delay: Span,
    /// Queue of each link.
    pub queue: QueueLimit,
    /// Occupancy from which links mark CE; `None`, in a file `"never"`: never.
    #[serde(deserialize_with = "ecn_threshold")]
    pub ecn: Option<QueueLimit>,
    /// Random loss on each link.
    pub loss: Ratio,
    /// Largest packet of the links between switches.
    pub mtu: u32,
    /// Largest packet of the hosts' links.
    pub access_mtu: u32,
}

/// IGP weight of a link that sets no other.
pub const DEFAULT_WEIGHT: u64 = 10;

impl Default for ParallelPaths {
    fn default() -> Self {
        ParallelPaths {
            paths: 2,
            hops: 2,
            clients: 1,
            servers: 1,
            rate: Rate::from_mbits(100),
            delay: Span::from_millis(1),
            queue: QueueLimit::Packets(100),
            ecn: None,
            loss: Ratio::ZERO,
            access_rate: None,
            access_delay: None,
            access_queue: QueueLimit::Packets(1000),
            mtu: 1700,
            access_mtu: 1500,
            ecmp: false,
        }
    }
}

impl Default for Dumbbell {
    fn default() -> Self {
        Dumbbell {
            hosts: 1,
            rate: Rate::from_mbits(100),
            delay: Span::from_millis(1),
            queue: QueueLimit::Packets(100),
            ecn: None,
            loss: Ratio::ZERO,
            access_rate: None,
            access_delay: None,
            access_queue: QueueLimit::Packets(1000),
            mtu: 1700,
            access_mtu: 1500,
        }
    }
}

impl Default for FatTree {
    fn default() -> Self {
        FatTree {
            k: 4,
            rate: Rate::from_mbits(10_000),
            delay: Span::from_micros(1),
            queue: QueueLimit::Packets(100),
            ecn: None,
            loss: Ratio::ZERO,
            mtu: 1700,
            access_mtu: 1500,
        }
    }
}

impl ParallelPaths {
    /// Builds the network, addresses assigned; fails where a number is out of range.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        for (what, count) in [("paths", self.paths), ("hops", self.hops)] {
            at_least_one(what, "parallel-paths", count)?;
        }
        let access = Channel {
            rate: self.access_rate.unwrap_or(times(self.rate, self.paths)),
            ..quiet(self.access_delay.unwrap_or(self.delay), self.access_queue)
        };
        let mut builder = Builder::default();
        let a = builder.node("A".into(), NodeKind::Router)?;
        let b = builder.node("B".into(), NodeKind::Router)?;
        builder.hosts("c", self.clients, a, access, self.access_mtu)?;
        for path in 1..=self.paths {
            let core = Channel {
                rate: self.rate,
                loss: self.loss,
                queue: Queue { limit: self.queue, ecn_threshold: self.ecn, red: None },
                weight: DEFAULT_WEIGHT + if self.ecmp { 0 } else { u64::from(path - 1) },
                ..quiet(self.delay, self.queue)
            };
            let mut links = Vec::new();
            let mut here = a;
            for hop in 1..=self.hops {
                let next = match hop {
                    last if last == self.hops => b,
                    _ if self.hops == 2 => builder.node(format!("m{path}"), NodeKind::Router)?,
                    _ => builder.node(format!("m{path}-{hop}"), NodeKind::Router)?,
                };
                links.push(builder.link(here, next, core, self.mtu)?);
                here = next;
            }
            builder.topology.add_path(NamedPath { name: format!("path-{path}"), links })?;
        }
        builder.hosts("s", self.servers, b, access, self.access_mtu)?;
        Ok(builder.finish())
    }
}

impl Dumbbell {
    /// Builds the network, addresses assigned; fails where a number is out of range.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        at_least_one("hosts", "dumbbell", self.hosts)?;
        let access = Channel {
            rate: self.access_rate.unwrap_or(times(self.rate, 10)),
            ..quiet(self.access_delay.unwrap_or(self.delay), self.access_queue)
        };
        let bottleneck = Channel {
            rate: self.rate,
            loss: self.loss,
            queue: Queue { limit: self.queue, ecn_threshold: self.ecn, red: None },
            ..quiet(self.delay, self.queue)
        };
        let mut builder = Builder::default();
        let left = builder.node("L".into(), NodeKind::Router)?;
        let right = builder.node("R".into(), NodeKind::Router)?;
        builder.hosts("l", self.hosts, left, access, self.access_mtu)?;
        let link = builder.link(left, right, bottleneck, self.mtu)?;
        builder.topology.add_path(NamedPath { name: "bottleneck".into(), links: vec![link] })?;
        builder.hosts("r", self.hosts, right, access, self.access_mtu)?;
        Ok(builder.finish())
    }
}

impl FatTree {
    /// Builds the network, addresses assigned; fails where a number is out of range.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        if !self.k.is_multiple_of(2) || !(2..=48).contains(&self.k) {
            let problem = "must be an even number from 2 to 48".into();
            return Err(TopologyError::BadValue { what: "k", name: "fat-tree".into(), problem });
        }
        let half = self.k / 2;
        let channel = Channel {
            rate: self.rate,
            loss: self.loss,
            queue: Queue { limit: self.queue, ecn_threshold: self.ecn, red: None },
            ..quiet(self.delay, self.queue)
        };
        let mut builder = Builder::default();
        let core = (0..half * half).map(|i| builder.node(format!("core{i}"), NodeKind::Router));
        let core = core.collect::<Result<Vec<_>, _>>()?;
        for pod in 0..self.k {
            let aggregation = (0..half).map(|i| builder.node(format!("a{pod}-{i}"), NodeKind::Router));
            let aggregation = aggregation.collect::<Result<Vec<_>, _>>()?;
            for (switch, above) in aggregation.iter().zip(core.chunks(half as usize)) {
                for core in above {
                    builder.link(*switch, *core, channel, self.mtu)?;
                }
            }
            for i in 0..half {
                let edge = builder.node(format!("e{pod}-{i}"), NodeKind::Router)?;
                for switch in &aggregation {
                    builder.link(edge, *switch, channel, self.mtu)?;
                }
                for j in 0..half {
                    let host = builder.node(format!("h{pod}-{i}-{j}"), NodeKind::Host)?;
                    builder.link(host, edge, channel, self.access_mtu).map_err(of_access)?;
                }
            }
        }
        Ok(builder.finish())
    }
}

/// Names for links that have none: their ends, `c1-A`, and for further ones between the same ends `c1-A.2`, ….
#[derive(Default)]
pub(crate) struct LinkNames(BTreeMap<String, u32>);

impl LinkNames {
    pub(crate) fn next(&mut self, a: &str, b: &str) -> String {
        let base = format!("{a}-{b}");
        let count = self.0.entry(base.clone()).or_default();
        *count += 1;
        if *count == 1 { base } else { format!("{base}.{count}") }
    }
}

#[derive(Default)]
struct Builder {
    topology: Topology,
    names: LinkNames,
}

impl Builder {
    fn node(&mut self, name: String, kind: NodeKind) -> Result<NodeId, TopologyError> {
        self.topology.add_node(Node { name, kind, prefix: None, locator: None })
    }

    fn link(&mut self, a: NodeId, b: NodeId, channel: Channel, mtu: u32) -> Result<LinkId, TopologyError> {
        let name = self.names.next(&self.topology.node(a).name, &self.topology.node(b).name);
        self.topology.add_link(Link { name, a, b, ab: channel, ba: channel, mtu })
    }

    /// Adds `count` hosts, each with a link from it to `router`.
    fn hosts(
        &mut self,
        letter: &str,
        count: u32,
        router: NodeId,
        access: Channel,
        mtu: u32,
    ) -> Result<(), TopologyError> {
        for number in 1..=count {
            let host = self.node(format!("{letter}{number}"), NodeKind::Host)?;
            self.link(host, router, access, mtu).map_err(of_access)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Topology {
        srv6::assign_addresses(&mut self.topology);
        self.topology
    }
}

/// Names the setting of the generator that the property of a host's link comes from.
fn of_access(error: TopologyError) -> TopologyError {
    match error {
        TopologyError::BadValue { what: "mtu", name, problem } => {
            TopologyError::BadValue { what: "access_mtu", name, problem }
        }
        TopologyError::BadValue { what: "queue", name, problem } => {
            TopologyError::BadValue { what: "access_queue", name, problem }
        }
        other => other,
    }
}

/// A channel without a rate limit, marks or loss.
fn quiet(delay: Span, limit: QueueLimit) -> Channel {
    let queue = Queue { limit, ecn_threshold: None, red: None };
    Channel { rate: Rate::default(), delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: DEFAULT_WEIGHT }
}

/// Several times a rate, but no more than what is read again once it is printed.
fn times(rate: Rate, count: u32) -> Rate {
    Rate::from_bits_per_sec(rate.bits_per_sec().saturating_mul(u64::from(count)).min(MAX_QUANTITY))
}

fn at_least_one(what: &'static str, name: &str, count: u32) -> Result<(), TopologyError> {
    if count >= 1 {
        return Ok(());
    }
    Err(TopologyError::BadValue { what, name: name.into(), problem: "must be at least 1".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(topology: &Topology) -> Vec<&str> {
        topology.links().iter().map(|link| link.name.as_str()).collect()
    }

    #[test]
    fn two_hops_give_one_router_inside_each_path() {
        let topology = ParallelPaths { clients: 2, ..ParallelPaths::default() }.build().expect("it builds");
        assert_eq!(links(&topology), ["c1-A", "c2-A", "A-m1", "m1-B", "A-m2", "m2-B", "s1-B"]);
        let path = &topology.paths()[1];
        assert_eq!((path.name.as_str(), path.links.as_slice()), ("path-2", [LinkId(4), LinkId(5)].as_slice()));
        let [access, core] = [LinkId(0), LinkId(2)].map(|id| topology.link(id).clone());
        assert_eq!(
            (access.ab.rate, access.mtu, core.ab.rate, core.mtu),
            (Rate::from_mbits(200), 1500, Rate::from_mbits(100), 1700)
        );
    }

    #[test]
    fn one_hop_gives_parallel_links_and_three_give_two_routers() {
        let build = |hops| ParallelPaths { hops, ..ParallelPaths::default() }.build().expect("it builds");
        assert_eq!(links(&build(1)), ["c1-A", "A-B", "A-B.2", "s1-B"]);
        let three = build(3);
        assert_eq!(links(&three)[1..4], ["A-m1-1", "m1-1-m1-2", "m1-2-B"]);
    }

    #[test]
    fn paths_differ_in_weight_unless_they_are_for_ecmp() {
        let weights = |ecmp| {
            let topology =
                ParallelPaths { paths: 3, hops: 1, ecmp, ..ParallelPaths::default() }.build().expect("it builds");
            topology.links().iter().map(|link| (link.ab.weight, link.ba.weight)).collect::<Vec<_>>()
        };
        assert_eq!(weights(false), [(10, 10), (10, 10), (11, 11), (12, 12), (10, 10)]);
        assert_eq!(weights(true), [(10, 10); 5]);
    }

    #[test]
    fn a_fat_tree_has_as_many_links_on_each_level() {
        let topology = FatTree::default().build().expect("it builds");
        let hosts = topology.node_ids().filter(|id| !topology.is_router(*id)).count();
        assert_eq!((hosts, topology.nodes().len(), topology.links().len()), (16, 16 + 20, 3 * 16));
        let degree = |name: &str| topology.outgoing(topology.find(name).expect("it is there")).len();
        assert_eq!([degree("core3"), degree("a2-1"), degree("e0-0"), degree("h3-1-1")], [4, 4, 4, 1]);
        let refusal = FatTree { k: 5, ..FatTree::default() }.build().expect_err("odd");
        assert_eq!(refusal.to_string(), "k of `fat-tree` must be an even number from 2 to 48");
    }

    #[test]
    fn a_dumbbell_has_one_bottleneck_between_its_sides() {
        let topology = Dumbbell { hosts: 2, ..Dumbbell::default() }.build().expect("it builds");
        assert_eq!(links(&topology), ["l1-L", "l2-L", "L-R", "r1-R", "r2-R"]);
        assert_eq!(topology.paths(), [NamedPath { name: "bottleneck".into(), links: vec![LinkId(2)] }]);
        assert_eq!(topology.link(LinkId(0)).ab.rate, Rate::from_mbits(1000));
    }
}
