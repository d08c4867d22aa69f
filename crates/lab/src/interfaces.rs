//! Hosts that use all of their interfaces: an address for each, routes to it and from it, and MPTCP's endpoints.
//!
//! A host of the plan has one address, which is reached over any of its access routers. MPTCP's path manager opens subflows
//! between addresses, so a host that uses MPTCP gets one more for each further interface: the next of its prefix. Each
//! address, the first included, is then reached over its own interface only.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use sidestep_linux::{
    mptcp::{Endpoint, MAX_FURTHER_SUBFLOWS, PathManager},
    netlink::{self, NextHop, Route, Target},
};
use sidestep_net::{NodeId, Topology, srv6};
use sidestep_paths::Igp;
use sidestep_scenario::Scenario;

use crate::{
    error::LabError,
    mix::{RunPlan, mptcp_ends},
    network::Network,
    plan::{Multipath, NodePlan, RoutePlan, RouteTarget},
};

/// Number of the first routing table for hosts' addresses, one table for each interface; also the priority of the
/// rules.
const TABLE: u32 = 8_200;

/// A host that uses MPTCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MptcpHost {
    node: NodeId,
    endpoint: Endpoint,
    /// Interfaces that lead to a router, by their position in the host's plan, each with its address.
    addresses: Vec<(usize, Ipv6Addr)>,
}

impl MptcpHost {
    /// The addresses that have an interface of their own; empty if the host has only one interface.
    fn pinned(&self) -> &[(usize, Ipv6Addr)] {
        if self.addresses.len() > 1 { &self.addresses } else { &[] }
    }
}

/// The hosts whose MPTCP connections the kernel's path manager gives subflows in a run.
pub fn mptcp_hosts(scenario: &Scenario, mix: &RunPlan) -> Result<Vec<MptcpHost>, LabError> {
    let topology = &scenario.topology;
    let (from, to) = mptcp_ends(scenario, mix);
    let host = |node| {
        let endpoint = match (from.contains(&node), to.contains(&node)) {
            (true, false) => Endpoint::Fullmesh,
            (false, true) => Endpoint::Signal,
            (true, true) => Endpoint::Both,
            (false, false) => return None,
        };
        Some(MptcpHost { node, endpoint, addresses: addresses(topology, node) })
    };
    let hosts: Vec<MptcpHost> = topology.node_ids().filter_map(host).collect();
    let count = |node| hosts.iter().find(|host| host.node == node).map_or(1, |host| host.addresses.len());
    for (number, flow) in scenario.flows.iter().enumerate().filter(|(number, _)| mix.carried(*number).fullmesh) {
        let most = flow.pairs().iter().map(|(from, to)| count(*from) * count(*to)).max().unwrap_or(1);
        if most > 1 + MAX_FURTHER_SUBFLOWS as usize {
            let problem = format!(
                "two hosts have {most} pairs of interfaces; Linux opens {MAX_FURTHER_SUBFLOWS} subflows beside the first"
            );
            return Err(LabError::Flow { number, flow: flow.name().into(), problem });
        }
    }
    Ok(hosts)
}

/// Adds the routes by which routers reach each address of `hosts` over its interface.
pub fn add_routes(topology: &Topology, igp: &Igp, multipath: Multipath, hosts: &[MptcpHost], plans: &mut [NodePlan]) {
    for host in hosts {
        for (interface, address) in host.pinned() {
            let Some(up) = topology.outgoing(host.node).get(*interface) else { continue };
            let access = topology.head(*up);
            for plan in plans.iter_mut().filter(|plan| plan.router) {
                let arcs: Vec<_> = match plan.node == access {
                    true => vec![up.reversed()],
                    false => igp.next_arcs(plan.node, access).collect(),
                };
                let used = match multipath {
                    Multipath::Ecmp => arcs.len(),
                    Multipath::Single => 1,
                };
                let position = |arc| plan.interfaces.iter().position(|interface| interface.arc == arc);
                let positions: Vec<_> = arcs.into_iter().take(used).filter_map(position).collect();
                if !positions.is_empty() {
                    let target = RouteTarget::Interfaces(positions);
                    plan.routes.push(RoutePlan { destination: Ipv6Net::from(*address), target });
                }
            }
        }
    }
}

/// Adds the further addresses and routes of `hosts`, and registers the addresses as MPTCP endpoints.
pub fn set_up(network: &Network, hosts: &[MptcpHost]) -> Result<(), LabError> {
    for host in hosts {
        let plan = network.plan(host.node);
        network.node(host.node).run(|| {
            netlink::block_on(async |netlink| {
                for (number, (interface, address)) in host.pinned().iter().enumerate() {
                    let Some(interface) = plan.interfaces.get(*interface) else { continue };
                    let index = netlink.index_of(&interface.name).await?;
                    if number > 0 {
                        netlink.add_address(index, *address, 128).await?;
                    }
                    let table = TABLE + number as u32;
                    let via = interface.addresses.first().map(|(_, peer)| (*peer).into());
                    let target = Target::Via(vec![NextHop { via, interface: index }]);
                    let destination = Ipv6Net::default().into();
                    netlink.add_route(&Route { table, destination, target, mtu: None }).await?;
                    netlink.add_source_rule(*address, table, TABLE).await?;
                }
                Ok(())
            })?;
            let manager = PathManager::open()?;
            manager.set_limits(MAX_FURTHER_SUBFLOWS, MAX_FURTHER_SUBFLOWS)?;
            // Connections use the first address, so it need not be announced. `Fullmesh` opens subflows from it, too.
            let known = usize::from(host.endpoint != Endpoint::Fullmesh);
            for (_, address) in host.addresses.iter().skip(known) {
                manager.add_endpoint(*address, host.endpoint)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The interfaces of a host that lead to routers, the access router's first, each with an address of its prefix.
fn addresses(topology: &Topology, host: NodeId) -> Vec<(usize, Ipv6Addr)> {
    let Some(prefix) = topology.node(host).prefix else { return Vec::new() };
    let first = srv6::host_address(prefix).to_bits();
    let arcs = topology.outgoing(host).iter().enumerate();
    let interfaces = arcs.filter(|(_, arc)| topology.is_router(topology.head(**arc))).map(|(position, _)| position);
    let next = interfaces.zip(0..).map(|(position, number)| (position, Ipv6Addr::from_bits(first + number)));
    next.filter(|(_, address)| prefix.contains(address)).collect()
}
