//! Networks for the tests.

use sidestep_api::{LinkCounter, UsageReport};
use sidestep_controller::{Controller, PathInfo};
use sidestep_net::{Channel, Link, NamedPath, Node, NodeKind, Queue, QueueLimit, Rate, Ratio, Span, Topology, srv6};
use sidestep_paths::PathSettings;

/// A link of a test network: 100 Mbit/s, 1 ms.
pub struct Wire {
    pub ends: (&'static str, &'static str),
    pub weight: u64,
    pub mtu: u32,
    pub mbits: u64,
}

pub const fn wire(a: &'static str, b: &'static str, weight: u64) -> Wire {
    Wire { ends: (a, b), weight, mtu: 1700, mbits: 100 }
}

pub const KNOBS: PathSettings = PathSettings { max_segments: 4, max_paths: 8, adjacency: true };

/// Hosts c1, c2 behind A and s1 behind B; between A and B the routers m1, m2, m3 side by side.
pub fn parallel() -> (Vec<&'static str>, Vec<Wire>) {
    let nodes = vec!["c1", "c2", "s1", "A", "B", "m1", "m2", "m3"];
    let access = |a, b| Wire { mtu: 1500, mbits: 1000, ..wire(a, b, 10) };
    let mut wires = vec![access("c1", "A"), access("c2", "A"), access("B", "s1")];
    for (mid, weight) in [("m1", 10), ("m2", 11), ("m3", 12)] {
        wires.extend([wire("A", mid, weight), wire(mid, "B", weight)]);
    }
    (nodes, wires)
}

/// Nodes in lower case that start with c or s are hosts, in the order given; prefixes and locators follow the name.
pub fn build(nodes: &[&str], wires: &[Wire]) -> Topology {
    let mut topology = Topology::new();
    for name in nodes {
        let host = name.starts_with(['c', 's']);
        let number = name.bytes().map(u32::from).sum();
        let number = sidestep_net::NodeId(number);
        let node = Node {
            name: (*name).into(),
            kind: if host { NodeKind::Host } else { NodeKind::Router },
            prefix: host.then(|| srv6::default_prefix(number)),
            locator: (!host).then(|| srv6::default_locator(number)),
        };
        topology.add_node(node).unwrap();
    }
    for wire in wires {
        let (a, b) = wire.ends;
        let channel = Channel {
            rate: Rate::from_mbits(wire.mbits),
            delay: Span::from_millis(1),
            queue: Queue { limit: QueueLimit::Packets(100), ecn_threshold: None, red: None },
            loss: Ratio::ZERO,
            burst_loss: None,
            weight: wire.weight,
        };
        let (a, b) = (topology.find(a).unwrap(), topology.find(b).unwrap());
        let name = format!("{}-{}", wire.ends.0, wire.ends.1);
        topology.add_link(Link { name, a, b, ab: channel, ba: channel, mtu: wire.mtu }).unwrap();
    }
    topology
}

/// The parallel network with its first path named.
pub fn topology() -> Topology {
    let (nodes, wires) = parallel();
    let mut topology = build(&nodes, &wires);
    let links = ["A-m1", "m1-B"].iter().map(|name| topology.find_link(name).unwrap()).collect();
    topology.add_path(NamedPath { name: "path-1".into(), links }).unwrap();
    topology
}

/// The paths from one router to another.
pub fn paths(controller: &Controller, from: &str, to: &str) -> Vec<PathInfo> {
    let sets = controller.sets();
    sets.into_iter().find(|set| set.from == from && set.to == to).map(|set| set.paths).unwrap_or_default()
}

/// A report at `secs` of one link's bytes.
pub fn report(node: &str, secs: u64, link: &str, tx_bytes: u64) -> UsageReport {
    let counters = vec![LinkCounter { link: link.into(), tx_bytes, down: false }];
    UsageReport { node: node.into(), at: std::time::Duration::from_secs(secs), counters }
}
