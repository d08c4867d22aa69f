//! What each node of a lab must be configured with; computed from the topology, without touching the kernel.
//!
//! The plan plays the part of an IGP and of a network's base configuration: default routes by weight, and the
//! SIDs `End`, `End.X` and `End.DT6` of every router. Path IDs are not here: they come from the controller.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use sidestep_linux::netlink::SidAction;
use sidestep_net::{ArcId, LinkId, NodeId, Topology, srv6};
use sidestep_paths::{Igp, access_arcs};
use thiserror::Error;

/// Everything that one namespace needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Its node.
    pub node: NodeId,
    /// Whether it forwards.
    pub router: bool,
    /// Its interfaces, in the order of the topology's links.
    pub interfaces: Vec<InterfacePlan>,
    /// Its own address: a router's is on the loopback interface, a host's on its first.
    pub address: Ipv6Addr,
    /// Its routes.
    pub routes: Vec<RoutePlan>,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Name: the neighbour's, as a person would expect it.
    pub name: String,
    /// The arc that leaves through it.
    pub arc: ArcId,
    /// Addresses here, each with the neighbour's on the same link.
    pub addresses: Vec<(Ipv6Addr, Ipv6Addr)>,
    /// Ethernet address here.
    pub mac: [u8; 6],
    /// Ethernet address of the neighbour.
    pub peer_mac: [u8; 6],
    /// Largest packet in bytes.
    pub mtu: u32,
}

/// A route of the main table; interfaces are positions in [`NodePlan::interfaces`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Destination prefix.
    pub destination: Ipv6Net,
    /// Where it leads.
    pub target: RouteTarget,
}

/// Where a planned route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To the neighbours on these interfaces, several for ECMP.
    Interfaces(Vec<usize>),
    /// To a SID of this router.
    Sid(SidAction),
}

/// Why a topology cannot become a lab.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// A host without a router.
    #[error("host `{0}` has no link to a router; connect it, or make it a router")]
    NoAccessRouter(String),
    /// A node without any link.
    #[error("node `{0}` has no link; remove it, or connect it")]
    NoLink(String),
    /// A link of one direction: no neighbour could be resolved over it.
    #[error("link `{0}` has one direction only, which the lab cannot build; use the simulator, or leave out `one_way`")]
    OneWay(String),
    /// A router without a locator or a host without a prefix.
    #[error("node `{0}` has no address")]
    NoAddress(String),
}

/// How many of the equal-cost paths a router's routes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multipath {
    /// All paths, chosen by a hash of each connection.
    Ecmp,
    /// The first path.
    Single,
}

/// Plans every node of `topology`, in the order of their ids.
pub fn plan(topology: &Topology, igp: &Igp, multipath: Multipath) -> Result<Vec<NodePlan>, PlanError> {
    if let Some(link) = topology.one_way_links().next() {
        return Err(PlanError::OneWay(topology.link(link).name.clone()));
    }
    let planner = Planner { topology, igp, multipath };
    topology.node_ids().map(|node| planner.node(node)).collect()
}

/// Adds the routes by which packets to the own address of the node that `arcs` leave arrive over the arc's link, from
/// everywhere.
pub fn pin_links(topology: &Topology, igp: &Igp, multipath: Multipath, arcs: &[ArcId], plans: &mut [NodePlan]) {
    for arc in arcs.iter().copied() {
        let (node, next) = (topology.tail(arc), topology.head(arc));
        for plan in plans.iter_mut().filter(|plan| plan.router && plan.node != node && plan.node != next) {
            let mut towards: Vec<ArcId> = igp.next_arcs(plan.node, next).collect();
            if multipath == Multipath::Single {
                towards.truncate(1);
            }
            let out = topology.outgoing(plan.node);
            let positions: Vec<usize> =
                towards.iter().filter_map(|arc| out.iter().position(|other| other == arc)).collect();
            let destination = link_prefix(arc.link());
            if !positions.is_empty() && !plan.routes.iter().any(|route| route.destination == destination) {
                plan.routes.push(RoutePlan { destination, target: RouteTarget::Interfaces(positions) });
            }
        }
    }
}

/// The address of an arc's tail on its link: routable between routers, for `End.X`; link-local towards hosts.
pub fn tail_address(topology: &Topology, arc: ArcId) -> Ipv6Addr {
    let end = 1 + u16::from(arc.0 & 1 == 1);
    if topology.is_router(topology.tail(arc)) && topology.is_router(topology.head(arc)) {
        link_address(arc.link(), end)
    } else {
        link_local(end)
    }
}

struct Planner<'a> {
    topology: &'a Topology,
    igp: &'a Igp,
    multipath: Multipath,
}

impl Planner<'_> {
    fn node(&self, node: NodeId) -> Result<NodePlan, PlanError> {
        let router = self.topology.is_router(node);
        let interfaces = self.interfaces(node);
        if interfaces.is_empty() {
            return Err(PlanError::NoLink(self.name(node)));
        }
        let (address, routes) = if router {
            (srv6::router_address(self.locator(node)?), self.router_routes(node)?)
        } else {
            (srv6::host_address(self.prefix(node)?), self.host_routes(node)?)
        };
        Ok(NodePlan { node, router, interfaces, address, routes })
    }

    fn interfaces(&self, node: NodeId) -> Vec<InterfacePlan> {
        let mut interfaces: Vec<InterfacePlan> = Vec::new();
        for &arc in self.topology.outgoing(node) {
            let name = self.interface_name(arc, &interfaces);
            interfaces.push(InterfacePlan {
                name,
                arc,
                addresses: vec![(tail_address(self.topology, arc), tail_address(self.topology, arc.reversed()))],
                mac: mac(arc),
                peer_mac: mac(arc.reversed()),
                mtu: self.topology.link(arc.link()).mtu,
            });
        }
        interfaces
    }

    /// The neighbour's name, with a number for parallel links; the link's number where that is too long for Linux.
    fn interface_name(&self, arc: ArcId, taken: &[InterfacePlan]) -> String {
        let peer = self.name(self.topology.head(arc));
        let mut name = peer.clone();
        let mut copy = 2;
        while taken.iter().any(|other| other.name == name) {
            name = format!("{peer}.{copy}");
            copy += 1;
        }
        // 15 characters, and names with a meaning of their own.
        if name.len() > 15 || matches!(name.as_str(), "lo" | "all" | "default") {
            format!("link{}", arc.link().0)
        } else {
            name
        }
    }

    fn router_routes(&self, node: NodeId) -> Result<Vec<RoutePlan>, PlanError> {
        let mut routes = self.sids(node)?;
        for other in self.topology.node_ids().filter(|other| *other != node) {
            routes.extend(self.route(node, other)?);
        }
        Ok(routes)
    }

    /// The route to another node: over the link between a host and its access router, otherwise as the IGP sets it. `None`
    /// if there is no route.
    fn route(&self, node: NodeId, other: NodeId) -> Result<Option<RoutePlan>, PlanError> {
        let is_host = |node| !self.topology.is_router(node);
        let destination = if is_host(other) { self.prefix(other)? } else { self.locator(other)? };
        if is_host(other) && self.access(other).is_empty() {
            return Err(PlanError::NoAccessRouter(self.name(other)));
        }
        let own = self.access(other).into_iter().map(ArcId::reversed).chain(self.access(node));
        let own = own.filter(|arc| self.topology.tail(*arc) == node && self.topology.head(*arc) == other);
        let mut target: Vec<ArcId> = own.collect();
        if target.is_empty() {
            target = self.igp.next_arcs(node, other).collect();
        }
        Ok((!target.is_empty()).then(|| RoutePlan { destination, target: self.towards(node, &target) }))
    }

    fn sids(&self, node: NodeId) -> Result<Vec<RoutePlan>, PlanError> {
        let locator = self.locator(node)?;
        let sid = |sid: Ipv6Addr, action| RoutePlan { destination: sid.into(), target: RouteTarget::Sid(action) };
        let mut routes = vec![
            sid(srv6::end_sid(locator), SidAction::End),
            sid(srv6::decap_sid(locator), SidAction::EndDt6(sidestep_linux::netlink::MAIN_TABLE)),
        ];
        for &arc in self.topology.outgoing(node) {
            if self.topology.is_router(self.topology.head(arc)) {
                let neighbour = tail_address(self.topology, arc.reversed());
                routes.push(sid(srv6::adjacency_sid(locator, arc.link()), SidAction::EndX(neighbour)));
            }
        }
        Ok(routes)
    }

    /// A default route to the first access router. With several access routers, also a route to each node, as the IGP
    /// sets it.
    fn host_routes(&self, node: NodeId) -> Result<Vec<RoutePlan>, PlanError> {
        let access = self.access(node);
        let first = access.first().ok_or_else(|| PlanError::NoAccessRouter(self.name(node)))?;
        let mut routes = vec![RoutePlan { destination: Ipv6Net::default(), target: self.towards(node, &[*first]) }];
        if access.len() > 1 {
            for other in self.topology.node_ids().filter(|other| *other != node) {
                routes.extend(self.route(node, other)?);
            }
        }
        Ok(routes)
    }

    fn towards(&self, node: NodeId, arcs: &[ArcId]) -> RouteTarget {
        let used = match self.multipath {
            Multipath::Ecmp => arcs,
            Multipath::Single => &arcs[..arcs.len().min(1)],
        };
        let outgoing = self.topology.outgoing(node);
        RouteTarget::Interfaces(used.iter().filter_map(|arc| outgoing.iter().position(|out| out == arc)).collect())
    }

    fn name(&self, node: NodeId) -> String {
        self.topology.node(node).name.clone()
    }

    fn locator(&self, router: NodeId) -> Result<Ipv6Net, PlanError> {
        self.topology.node(router).locator.ok_or_else(|| PlanError::NoAddress(self.name(router)))
    }

    fn prefix(&self, host: NodeId) -> Result<Ipv6Net, PlanError> {
        self.topology.node(host).prefix.ok_or_else(|| PlanError::NoAddress(self.name(host)))
    }

    /// The arcs from a host to its access routers.
    fn access(&self, node: NodeId) -> Vec<ArcId> {
        access_arcs(self.topology, node)
    }
}

/// The prefix of the addresses of a link between routers.
pub fn link_prefix(link: LinkId) -> Ipv6Net {
    Ipv6Net::new_assert(link_address(link, 0), 64)
}

/// `fd03:0:<link>::1` and `::2`. Link numbers are below 65,000 (`Topology` refuses more).
fn link_address(link: LinkId, end: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd03, 0, link.0 as u16, 0, 0, 0, 0, end)
}

fn link_local(end: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, end)
}

/// A locally administered address that names the arc.
fn mac(arc: ArcId) -> [u8; 6] {
    let [a, b, c, d] = arc.0.to_be_bytes();
    [0x02, 0x55, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Bytes, Channel, Link, Node, NodeKind, Queue, QueueLimit, Rate, Ratio, Span};

    use super::*;

    /// A network of these links, named after their ends and with this weight; nodes in lower case are hosts.
    fn network(links: &[(&str, &str, u64)]) -> Topology {
        let mut topology = Topology::new();
        for (a, b, weight) in links {
            let queue = Queue { limit: QueueLimit::Bytes(Bytes::new(100_000)), ecn_threshold: None, red: None };
            let (rate, delay) = (Rate::from_mbits(100), Span::from_millis(1));
            let channel = Channel { rate, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: *weight };
            let [a, b] = [a, b].map(|name| node(&mut topology, name));
            let name = format!("link-{}", topology.links().len());
            topology.add_link(Link { name, a, b, ab: channel, ba: channel, mtu: 1500 }).unwrap();
        }
        srv6::assign_addresses(&mut topology);
        topology
    }

    fn node(topology: &mut Topology, name: &str) -> NodeId {
        let kind = if name.starts_with(|c: char| c.is_ascii_lowercase()) { NodeKind::Host } else { NodeKind::Router };
        if let Ok(id) = topology.find(name) {
            return id;
        }
        topology.add_node(Node { name: name.into(), kind, prefix: None, locator: None }).unwrap()
    }

    fn planned(topology: &Topology, multipath: Multipath) -> Vec<NodePlan> {
        plan(topology, &Igp::new(topology), multipath).unwrap()
    }

    fn names(plan: &NodePlan) -> Vec<&str> {
        plan.interfaces.iter().map(|interface| interface.name.as_str()).collect()
    }

    /// The names of the interfaces that `plan` uses towards `destination`.
    fn next_hops(plan: &NodePlan, destination: Ipv6Net) -> Vec<&str> {
        let mut routes = plan.routes.iter().filter(|route| route.destination == destination);
        let route = routes.next().unwrap();
        assert_eq!(routes.next(), None, "a destination has one route");
        let RouteTarget::Interfaces(positions) = &route.target else { panic!("{route:?} does not lead out") };
        positions.iter().map(|position| plan.interfaces[*position].name.as_str()).collect()
    }

    fn sid(plan: &NodePlan, sid: Ipv6Addr) -> Option<&SidAction> {
        let route = plan.routes.iter().find(|route| route.destination == Ipv6Net::from(sid))?;
        if let RouteTarget::Sid(action) = &route.target { Some(action) } else { None }
    }

    #[test]
    fn an_interface_is_called_what_a_person_would_expect() {
        let long = "A-router-with-a-long-name";
        let topology =
            network(&[("h", "A", 1), ("A", "B", 1), ("A", "B", 1), ("A", "B", 1), ("A", long, 1), ("A", "lo", 1)]);
        let plans = planned(&topology, Multipath::Ecmp);
        assert_eq!(names(&plans[0]), ["A"]);
        assert_eq!(names(&plans[1]), ["h", "B", "B.2", "B.3", "link4", "link5"]);
        assert_eq!(names(&plans[2]), ["A", "A.2", "A.3"]);
        assert!(plans.iter().flat_map(names).all(|name| name.len() <= 15));
    }

    #[test]
    fn the_two_ends_of_a_link_know_each_other() {
        let topology = network(&[("h", "A", 1), ("A", "B", 1)]);
        let plans = planned(&topology, Multipath::Ecmp);
        for (near, far) in
            [(&plans[0].interfaces[0], &plans[1].interfaces[0]), (&plans[1].interfaces[1], &plans[2].interfaces[0])]
        {
            assert_eq!(near.arc, far.arc.reversed());
            assert_eq!((near.mac, near.peer_mac), (far.peer_mac, far.mac));
            let swapped = |(own, peer): (Ipv6Addr, Ipv6Addr)| (peer, own);
            assert_eq!(near.addresses[0], swapped(far.addresses[0]));
        }
        assert!(plans[0].interfaces[0].addresses[0].0.is_unicast_link_local());
        assert!(!plans[2].interfaces[0].addresses[0].0.is_unicast_link_local(), "End.X needs a routable neighbour");
        let macs: std::collections::BTreeSet<_> =
            plans.iter().flat_map(|plan| &plan.interfaces).map(|interface| interface.mac).collect();
        assert_eq!(macs.len(), 4);
    }

    #[test]
    fn traffic_takes_all_shortest_ways_or_the_first() {
        let diamond =
            [("h", "A", 1), ("A", "B", 1), ("A", "C", 1), ("B", "D", 1), ("C", "D", 1), ("A", "D", 3), ("D", "s", 1)];
        let topology = network(&diamond);
        let server = topology.node(topology.find("s").unwrap()).prefix.unwrap();
        let locator = topology.node(topology.find("D").unwrap()).locator.unwrap();
        for (multipath, expected) in [(Multipath::Ecmp, &["B", "C"][..]), (Multipath::Single, &["B"])] {
            let plans = planned(&topology, multipath);
            assert_eq!(next_hops(&plans[1], server), expected);
            assert_eq!(next_hops(&plans[1], locator), expected);
            assert_eq!(next_hops(&plans[0], Ipv6Net::default()), ["A"]);
        }
    }

    #[test]
    fn parallel_links_are_ways_of_their_own() {
        let topology = network(&[("h", "A", 1), ("A", "B", 1), ("A", "B", 1), ("B", "s", 1)]);
        let plans = planned(&topology, Multipath::Ecmp);
        let server = topology.node(topology.find("s").unwrap()).prefix.unwrap();
        assert_eq!(next_hops(&plans[1], server), ["B", "B.2"]);
        let locator = topology.node(NodeId(1)).locator.unwrap();
        let neighbours = [1, 2].map(|link| sid(&plans[1], srv6::adjacency_sid(locator, LinkId(link))).unwrap());
        let expected = [1, 2].map(|link| SidAction::EndX(format!("fd03:0:{link}::2").parse().unwrap()));
        assert_eq!(neighbours, [&expected[0], &expected[1]]);
    }

    #[test]
    fn a_host_with_two_access_routers_uses_and_is_reached_by_both() {
        let topology = network(&[("h", "A", 1), ("h", "B", 2), ("A", "Z", 2), ("B", "Z", 1), ("Z", "s", 1)]);
        let plan_of = |plans: &[NodePlan], name| plans[topology.find(name).unwrap().index()].clone();
        let host = topology.node(NodeId(0)).prefix.unwrap();
        let server = topology.node(topology.find("s").unwrap()).prefix.unwrap();
        for (multipath, both) in [(Multipath::Ecmp, &["A", "B"][..]), (Multipath::Single, &["A"])] {
            let plans = planned(&topology, multipath);
            assert_eq!(names(&plans[0]), ["A", "B"]);
            assert_eq!(next_hops(&plans[0], Ipv6Net::default()), ["A"]);
            assert_eq!(next_hops(&plans[0], server), both);
            assert_eq!(next_hops(&plan_of(&plans, "Z"), host), both);
            // The host reaches an access router's binding SIDs over the link between the two. So does the router the
            // host.
            let locator = |name| topology.node(topology.find(name).unwrap()).locator.unwrap();
            assert_eq!(["A", "B"].map(|name| next_hops(&plans[0], locator(name)) == [name]), [true; 2]);
            assert_eq!(["A", "B"].map(|name| next_hops(&plan_of(&plans, name), host) == ["h"]), [true; 2]);
            assert_eq!(plan_of(&plans, "s").routes.len(), 1);
        }
    }

    #[test]
    fn every_router_has_its_sids_and_no_host_has_any() {
        let topology = network(&[("h", "A", 1), ("A", "B", 1), ("B", "s", 1)]);
        let plans = planned(&topology, Multipath::Ecmp);
        for (index, neighbour) in [(1, "fd03:0:1::2"), (2, "fd03:0:1::1")] {
            let locator = topology.nodes()[index].locator.unwrap();
            assert_eq!(sid(&plans[index], srv6::end_sid(locator)), Some(&SidAction::End));
            assert_eq!(sid(&plans[index], srv6::decap_sid(locator)), Some(&SidAction::EndDt6(254)));
            let adjacency = SidAction::EndX(neighbour.parse().unwrap());
            assert_eq!(sid(&plans[index], srv6::adjacency_sid(locator, LinkId(1))), Some(&adjacency));
            // Links to hosts have no adjacency segment: a host is reached by its address.
            let sids = plans[index].routes.iter().filter(|route| matches!(route.target, RouteTarget::Sid(_)));
            assert_eq!(sids.count(), 3);
            assert_eq!(plans[index].address, srv6::router_address(locator));
        }
        assert_eq!(plans[0].routes.len(), 1);
        assert_eq!(plans[0].address, srv6::host_address(topology.nodes()[0].prefix.unwrap()));
        assert_eq!(plans.iter().map(|plan| plan.router).collect::<Vec<_>>(), [false, true, true, false]);
    }

    #[test]
    fn what_cannot_be_reached_has_no_route() {
        let topology = network(&[("h", "A", 1), ("B", "s", 1)]);
        let plans = planned(&topology, Multipath::Ecmp);
        let server = topology.node(topology.find("s").unwrap()).prefix.unwrap();
        assert!(plans[1].routes.iter().all(|route| route.destination != server));
    }

    #[test]
    fn topologies_that_cannot_become_a_lab_are_refused_by_name() {
        let refusal =
            |topology: &Topology| plan(topology, &Igp::new(topology), Multipath::Ecmp).unwrap_err().to_string();
        let mut lonely = network(&[("h", "A", 1)]);
        node(&mut lonely, "B");
        srv6::assign_addresses(&mut lonely);
        assert_eq!(refusal(&lonely), "node `B` has no link; remove it, or connect it");
        let mut one_way = network(&[("h", "A", 1), ("A", "B", 1)]);
        one_way.set_one_way(sidestep_net::LinkId(1)).unwrap();
        assert!(refusal(&one_way).starts_with("link `link-1` has one direction only, which the lab cannot build"));
        let pair = network(&[("h", "A", 1), ("h2", "h3", 1)]);
        assert!(refusal(&pair).ends_with("has no link to a router; connect it, or make it a router"));
        let mut nameless = network(&[("h", "A", 1)]);
        nameless.node_mut(NodeId(1)).locator = None;
        assert_eq!(refusal(&nameless), "node `A` has no address");
    }
}
