//! The properties of a path between two access routers.

use sidestep_net::{ArcId, LinkId, NodeId, PathId, Rate, Span, Topology, srv6};
use sidestep_paths::{PathSet, Route, Segment};

use crate::path_id;

/// The smallest mtu of IPv6 (RFC 8200, section 5).
pub const MIN_MTU: u32 = 1280;

/// A path between two access routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPath {
    /// Its id.
    pub id: PathId,
    /// Its number, from one on, in the order in which the paths of its pair were first computed.
    ///
    /// A path keeps its number when a failure takes other paths away.
    pub number: usize,
    /// Its name in the topology.
    pub given_name: Option<String>,
    /// The access router where it begins.
    pub ingress: NodeId,
    /// The egress router, where it ends.
    pub egress: NodeId,
    /// Its arcs.
    pub arcs: Vec<ArcId>,
    /// The segment list that forces it.
    pub segments: Vec<Segment>,
    /// The lowest rate of its arcs, zero if none is limited.
    pub capacity: Rate,
    /// Its propagation delay.
    pub delay: Span,
    /// The routers where the IGP's return path begins and ends.
    pub back: (NodeId, NodeId),
    /// The propagation delay of that return path.
    pub delay_back: Span,
    /// The largest packet that still fits after encapsulation by the access router.
    pub mtu: u32,
    /// The largest packet that fits without any segments, if the path needs none; `None` if it needs them.
    ///
    /// Routers take such a path anyway: it is the IGP's only shortest one from its access router to the destination.
    pub plain_mtu: Option<u32>,
}

/// A path that is not used because packets of IPv6's smallest mtu do not fit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The name of the router where it begins.
    pub from: String,
    /// The name of the router where it ends.
    pub to: String,
    /// Its own name.
    pub name: String,
    /// The largest packet that fits after encapsulation.
    pub mtu: u32,
}

impl RouterPath {
    pub(crate) fn new(topology: &Topology, set: &PathSet, (route, plain): (&Route, bool), id: PathId) -> Self {
        let (ingress, egress) = ends(topology, route);
        let back = set.back.as_ref();
        let arcs_back = back.into_iter().flat_map(|back| &back.arcs);
        let mtu = route.mtu(topology);
        RouterPath {
            id,
            number: 0,
            given_name: given_name(topology, &route.arcs).map(str::to_owned),
            ingress,
            egress,
            arcs: route.arcs.clone(),
            segments: route.segments.clone(),
            capacity: route.bottleneck(topology),
            delay: route.delay(topology),
            back: back.map_or((egress, ingress), |back| (back.from, back.to)),
            delay_back: arcs_back.fold(Span::ZERO, |sum, arc| sum + topology.channel(*arc).delay),
            mtu: mtu.saturating_sub(srv6::encap_len(route.segments.len())),
            plain_mtu: plain.then_some(mtu),
        }
    }

    /// A name for people: its name in the topology, or its access routers and its id.
    pub fn name(&self, topology: &Topology) -> String {
        let of = |node| &topology.node(node).name;
        let own = || format!("{}>{}#{}", of(self.ingress), of(self.egress), self.id);
        self.given_name.clone().unwrap_or_else(own)
    }

    /// The reason why it cannot be used, if it cannot.
    pub(crate) fn left_out(&self, topology: &Topology) -> Option<LeftOut> {
        let of = |node| topology.node(node).name.clone();
        let (from, to, name) = (of(self.ingress), of(self.egress), self.name(topology));
        (self.mtu < MIN_MTU).then_some(LeftOut { from, to, name, mtu: self.mtu })
    }
}

/// The key from which the id of a route is made.
pub(crate) fn key(topology: &Topology, route: &Route) -> String {
    let (ingress, egress) = ends(topology, route);
    let links = route.arcs.iter().map(|arc| topology.link(arc.link()).name.as_str());
    path_id::key(&topology.node(ingress).name, &topology.node(egress).name, links)
}

/// The routers where a route begins and ends. It has at least one arc, because no router has a path to itself.
fn ends(topology: &Topology, route: &Route) -> (NodeId, NodeId) {
    let first = route.arcs.first().map(|arc| topology.tail(*arc));
    let last = route.arcs.last().map(|arc| topology.head(*arc));
    first.zip(last).unwrap_or((NodeId(u32::MAX), NodeId(u32::MAX)))
}

/// The name of the first of the topology's paths whose links all are on this one.
fn given_name<'t>(topology: &'t Topology, arcs: &[ArcId]) -> Option<&'t str> {
    let on_path = |link: &LinkId| arcs.iter().any(|arc| arc.link() == *link);
    let mut named = topology.paths().iter();
    let named = named.find(|path| !path.links.is_empty() && path.links.iter().all(on_path))?;
    Some(&named.name)
}
