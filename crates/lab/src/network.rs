//! The network itself: a namespace for each node, a wire for each link, and what the plan lists inside.

use std::{collections::BTreeMap, sync::Arc};

use sidestep_linux::{
    bpf::arrivals::Arrivals,
    netlink::{self, Netlink, NextHop, Route, Target},
    netns::{NetNs, set_sysctl},
    tap::Tap,
    wire::{WireHandle, WireSpec, Wires},
};
use sidestep_net::{ArcId, NodeId, Topology};
use sidestep_scenario::TcpSettings;

use crate::{
    error::LabError,
    plan::{NodePlan, RouteTarget},
};

/// Frames that may wait in a TAP for the wire: a segmentation-offload burst of a connection (64 KiB) has about 45.
const TAP_QUEUE: u32 = 256;

/// A network that exists; gone when dropped.
#[derive(Debug)]
pub struct Network {
    nodes: Vec<NetNs>,
    plans: Vec<NodePlan>,
    wires: Wires,
}

impl Network {
    /// Builds what `plans` list; frames flow at once.
    pub fn build(topology: &Topology, plans: Vec<NodePlan>, tcp: &TcpSettings, seed: u64) -> Result<Self, LabError> {
        Self::build_with(topology, plans, tcp, &[], seed)
    }

    /// Builds what `plans` list, with settings for every namespace: files below `/proc/sys/net`, and what is written to
    /// them.
    pub fn build_with(
        topology: &Topology,
        plans: Vec<NodePlan>,
        tcp: &TcpSettings,
        sysctls: &[(&'static str, String)],
        seed: u64,
    ) -> Result<Self, LabError> {
        let mut nodes = Vec::with_capacity(plans.len());
        let mut taps: BTreeMap<ArcId, Tap> = BTreeMap::new();
        let arrivals = Arc::new(Arrivals::load()?);
        for plan in &plans {
            let node = NetNs::create()?;
            taps.extend(node.run(|| configure_namespace(plan, tcp, sysctls, &arrivals))?);
            nodes.push(node);
        }
        let mut specs = Vec::with_capacity(topology.links().len());
        for (id, link) in topology.link_ids().zip(topology.links()) {
            let mut end = |direction| taps.remove(&id.arc(direction));
            let (Some(a), Some(b)) = (end(sidestep_net::Direction::AToB), end(sidestep_net::Direction::BToA)) else {
                // The plan has an interface for every arc of the topology that it was made from.
                continue;
            };
            specs.push(WireSpec { a, b, ab: link.ab, ba: link.ba, mtu: link.mtu });
        }
        let wires = Wires::start(specs, seed, wire_threads(), Some(&arrivals))?;
        Ok(Network { nodes, plans, wires })
    }

    /// The namespace of a node.
    pub fn node(&self, node: NodeId) -> &NetNs {
        &self.nodes[node.index()]
    }

    /// What a node was configured with.
    pub fn plan(&self, node: NodeId) -> &NodePlan {
        &self.plans[node.index()]
    }

    /// Observes and changes the links.
    pub fn wires(&self) -> WireHandle {
        self.wires.handle()
    }
}

/// Number of threads for the wires: one for each processor, because they also do the routers' work, and hosts need
/// little CPU time.
fn wire_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.clamp(1, 4)
}

/// Configures the namespace that the calling thread is in; returns the wire ends.
fn configure_namespace(
    plan: &NodePlan,
    tcp: &TcpSettings,
    sysctls: &[(&'static str, String)],
    arrivals: &Arrivals,
) -> sidestep_linux::Result<Vec<(ArcId, Tap)>> {
    apply_sysctls(plan, tcp)?;
    sysctls.iter().try_for_each(|(name, value)| set_sysctl(name, value))?;
    let mut taps = Vec::with_capacity(plan.interfaces.len());
    for interface in &plan.interfaces {
        taps.push((interface.arc, Tap::create(&interface.name, TAP_QUEUE)?));
    }
    netlink::block_on(async |netlink| configure(netlink, plan, arrivals).await)?;
    Ok(taps)
}

fn apply_sysctls(plan: &NodePlan, tcp: &TcpSettings) -> sidestep_linux::Result<()> {
    let forwarding = if plan.router { "1" } else { "0" };
    for (name, value) in [
        ("ipv6/conf/all/forwarding", forwarding),
        // `all` and the interface's own must both be set; an interface takes `default` when it is made.
        // Hosts need it too: the last segment arrives with its header still in place.
        ("ipv6/conf/all/seg6_enabled", "1"),
        ("ipv6/conf/default/seg6_enabled", "1"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv6/conf/default/router_solicitations", "0"),
        // Routers hash addresses and ports, so that a connection's packets stay together.
        ("ipv6/fib_multipath_hash_policy", "1"),
        ("ipv4/tcp_ecn", if tcp.ecn { "1" } else { "0" }),
        // A connection must not start with metrics that an earlier one left.
        ("ipv4/tcp_no_metrics_save", "1"),
        // A client has 28,000 ports, and each of them rests for a minute: 1,000 connections a second need them sooner.
        ("ipv4/tcp_tw_reuse", "1"),
    ] {
        set_sysctl(name, value)?;
    }
    Ok(())
}

async fn configure(netlink: &Netlink, plan: &NodePlan, arrivals: &Arrivals) -> sidestep_linux::Result<()> {
    netlink.loopback_up().await?;
    let mut indices = Vec::with_capacity(plan.interfaces.len());
    for interface in &plan.interfaces {
        let index = netlink.index_of(&interface.name).await?;
        netlink.bring_up(index, interface.mtu, interface.mac).await?;
        arrivals.attach(index)?;
        for (own, peer) in &interface.addresses {
            netlink.add_address(index, *own, 64).await?;
            netlink.add_neighbour(index, *peer, interface.peer_mac).await?;
        }
        indices.push(index);
    }
    // A host's address is on its first interface, so that the kernel chooses it as the source of packets that leave
    // there.
    let home = if plan.router { 1 } else { indices.first().copied().unwrap_or(1) };
    netlink.add_address(home, plan.address, 128).await?;
    for route in &plan.routes {
        let target = match &route.target {
            RouteTarget::Sid(action) => Target::Sid(action.clone(), indices.first().copied().unwrap_or(1)),
            RouteTarget::Interfaces(positions) => Target::Via(hops(plan, &indices, positions)),
        };
        let table = netlink::MAIN_TABLE;
        netlink.add_route(&Route { table, destination: route.destination.into(), target, mtu: None }).await?;
    }
    Ok(())
}

fn hops(plan: &NodePlan, indices: &[u32], positions: &[usize]) -> Vec<NextHop> {
    positions
        .iter()
        .filter_map(|position| {
            let (interface, index) = (plan.interfaces.get(*position)?, indices.get(*position)?);
            let via = interface.addresses.first().map(|(_, peer)| (*peer).into());
            Some(NextHop { via, interface: *index })
        })
        .collect()
}
