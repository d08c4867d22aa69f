//! Which routes there are for a flow: by the IGP, spread over equal-cost ones or not, and by SRv6.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sidestep_model::{ArcId, LinkId, NodeId, Rate, Span, Topology, scenario::PathKnobs, srv6};
use sidestep_paths::{Igp, SegmentRules, disjoint_paths};
use thiserror::Error;

use crate::engine::{Forwarding, Network, RouteId};

/// The routes of a network, made when first asked for and kept.
#[derive(Debug)]
pub struct Routing {
    igp: Arc<Igp>,
    /// Links that the IGP knows to be down.
    failed: BTreeSet<LinkId>,
    knobs: PathKnobs,
    /// By the two hosts, and whether routers use all equal-cost paths.
    plain: BTreeMap<(NodeId, NodeId, bool), Arc<EcmpPaths>>,
    /// Those of before the last convergence: where there is no route any more, packets still leave, and are lost.
    stale: BTreeMap<(NodeId, NodeId, bool), Arc<EcmpPaths>>,
    /// Between interfaces, by the arcs there.
    meshes: BTreeMap<(ArcId, ArcId), Option<Arc<EcmpPaths>>>,
    /// The routes that were made so far: a route that comes back after a failure is the one that it was.
    known: BTreeMap<Vec<ArcId>, RouteId>,
    sets: BTreeMap<(NodeId, NodeId), Vec<SrPath>>,
}

/// The equal-cost paths between two hosts.
#[derive(Clone, Debug, Default)]
pub struct EcmpPaths {
    /// The route of each, and the share of flows that routers hash onto it.
    pub routes: Vec<(RouteId, f64)>,
    /// The largest packet that all of them carry, in bytes.
    pub mtu: u32,
}

/// An SRv6 path between two hosts, as the controller gives it to them.
#[derive(Clone, Debug)]
pub struct SrPath {
    /// Its name in results.
    pub name: String,
    /// The route.
    pub route: RouteId,
    /// Its arcs between the access routers.
    pub arcs: Vec<ArcId>,
    /// The lowest rate of these; zero if none is limited.
    pub capacity: Rate,
    /// Propagation delay there and, by the IGP, back.
    pub rtt: Span,
    /// The largest packet that a host may send on it, the host's own segment list included.
    pub mtu: u32,
}

/// Two hosts between which there is no route.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("there is no route from `{from}` to `{to}`")]
pub struct NoRoute {
    /// Where it would begin.
    pub from: String,
    /// Where it would end.
    pub to: String,
}

/// Most equal-cost paths of a pair that flows are spread over.
const MAX_EQUAL: usize = 256;
/// What a host's own segment list, of a Path ID and the destination, adds to its packets (RFC 8754, section 2).
pub const HOST_SRH: u16 = 8 + 2 * 16;

impl Routing {
    /// The routes of `topology`, whose IGP is `igp`; SRv6 paths are computed under `knobs`.
    pub fn new(igp: Arc<Igp>, knobs: PathKnobs) -> Self {
        Routing {
            igp,
            failed: BTreeSet::new(),
            knobs,
            plain: BTreeMap::new(),
            stale: BTreeMap::new(),
            meshes: BTreeMap::new(),
            known: BTreeMap::new(),
            sets: BTreeMap::new(),
        }
    }

    /// The links in `failed` carry nothing any more, for routes asked for from now on.
    pub fn reconverge(&mut self, topology: &Topology, failed: &BTreeSet<LinkId>) {
        self.igp = Arc::new(Igp::without(topology, failed));
        self.failed = failed.clone();
        self.stale.append(&mut self.plain);
        self.meshes.clear();
    }

    /// The routers' forwarding tables as they are now, for packets that routers hold.
    pub fn forwarding(&self, topology: &Topology) -> Box<dyn Forwarding> {
        Fib::new(topology, self.igp.clone(), &self.failed)
    }

    /// The equal-cost paths from one host to another; one of them unless `ecmp`.
    pub fn equal(
        &mut self,
        topology: &Topology,
        network: &mut Network,
        from: NodeId,
        to: NodeId,
        ecmp: bool,
    ) -> Result<Arc<EcmpPaths>, NoRoute> {
        let key = (from, to, ecmp);
        if let Some(known) = self.plain.get(&key) {
            return Ok(known.clone());
        }
        let paths = self.shortest_paths(topology, from, to, ecmp);
        if paths.is_empty() {
            if let Some(stale) = self.stale.get(&key) {
                return Ok(stale.clone());
            }
            let name = |node| topology.node(node).name.clone();
            return Err(NoRoute { from: name(from), to: name(to) });
        }
        let equal = Arc::new(self.ecmp_paths(topology, network, paths));
        self.plain.insert(key, equal.clone());
        Ok(equal)
    }

    /// The equal-cost paths from the interface that `up` leaves to the one that `down` reaches; `None` if there is none.
    pub fn between(
        &mut self,
        topology: &Topology,
        network: &mut Network,
        (up, down): (ArcId, ArcId),
        ecmp: bool,
    ) -> Option<Arc<EcmpPaths>> {
        if let Some(known) = self.meshes.get(&(up, down)) {
            return known.clone();
        }
        let (entry, egress) = (topology.head(up), topology.tail(down));
        let inner = if up == down {
            Vec::new()
        } else if entry == egress {
            vec![(Vec::new(), 1.0)]
        } else {
            self.shortest_paths(topology, entry, egress, ecmp)
        };
        // Of two hosts on one link that link is the only path.
        let whole = |(path, share): (Vec<ArcId>, f64)| ([vec![up], path, vec![down]].concat(), share);
        let paths: Vec<_> = match up == down {
            true => vec![(vec![up], 1.0)],
            false => inner.into_iter().map(whole).collect(),
        };
        let found = (!paths.is_empty()).then(|| Arc::new(self.ecmp_paths(topology, network, paths)));
        self.meshes.insert((up, down), found.clone());
        found
    }

    /// The SRv6 paths from one host to another; none where they share an access router.
    ///
    /// They are the controller's: disjoint between the access routers, under the segment limit, the exit's decapsulating
    /// SID counted. On the wire a packet grows by the host's segment list everywhere, and between the access routers by
    /// the outer header and the list that the Path ID stands for.
    pub fn paths(&mut self, topology: &Topology, network: &mut Network, from: NodeId, to: NodeId) -> &[SrPath] {
        self.sets.entry((from, to)).or_insert_with(|| {
            let access = |host: NodeId| {
                let mut arcs = topology.outgoing(host).iter().copied();
                arcs.find(|arc| topology.is_router(topology.head(*arc)))
            };
            let (Some(up), Some(down)) = (access(from), access(to)) else { return Vec::new() };
            let (entry, exit) = (topology.head(up), topology.head(down));
            let rules = SegmentRules { max_segments: self.knobs.max_segments, adjacency: self.knobs.adjacency };
            let routes = disjoint_paths(topology, &self.igp, entry, exit, &rules, self.knobs.max_paths);
            let delay = |arcs: &[ArcId]| arcs.iter().fold(Span::ZERO, |sum, arc| sum + topology.channel(*arc).delay);
            let back = self.igp.first_path(exit, entry).unwrap_or_default();
            let edges = delay(&[up, down.reversed(), down, up.reversed()]);
            let edge_mtu = [up, down].map(|arc| topology.link(arc.link()).mtu);
            let path = |(index, route): (usize, sidestep_paths::Route)| {
                let core = srv6::encap_len(route.segments.len());
                let extra = HOST_SRH + core as u16;
                let hops = [(up, HOST_SRH)].into_iter();
                let hops = hops.chain(route.arcs.iter().map(|arc| (*arc, extra)));
                let mtu = route.mtu(topology).saturating_sub(core);
                SrPath {
                    name: name(topology, &route.arcs).unwrap_or_else(|| format!("path {}", index + 1)),
                    route: network.add_route(hops.chain([(down.reversed(), HOST_SRH)])),
                    capacity: route.bottleneck(topology),
                    rtt: route.delay(topology) + delay(&back) + edges,
                    mtu: mtu.min(edge_mtu[0]).min(edge_mtu[1]),
                    arcs: route.arcs,
                }
            };
            routes.into_iter().enumerate().map(path).collect()
        })
    }

    /// The shortest paths, with the share of flows on each, as routers split them evenly; the first one unless `ecmp`.
    fn shortest_paths(&self, topology: &Topology, from: NodeId, to: NodeId, ecmp: bool) -> Vec<(Vec<ArcId>, f64)> {
        if !ecmp {
            return self.igp.first_path(from, to).map(|path| (path, 1.0)).into_iter().collect();
        }
        let (mut found, mut open) = (Vec::new(), vec![(from, Vec::new(), 1.0)]);
        while let Some((here, path, share)) = open.pop() {
            if here == to {
                found.push((path, share));
                if found.len() == MAX_EQUAL {
                    break;
                }
                continue;
            }
            let arcs: Vec<ArcId> = self.igp.next_arcs(here, to).collect();
            // In reverse, as the last is taken first.
            for arc in arcs.iter().rev() {
                let mut longer: Vec<ArcId> = path.clone();
                longer.push(*arc);
                open.push((topology.head(*arc), longer, share / arcs.len() as f64));
            }
        }
        found
    }

    fn ecmp_paths(&mut self, topology: &Topology, network: &mut Network, paths: Vec<(Vec<ArcId>, f64)>) -> EcmpPaths {
        let mtu = |path: &[ArcId]| path.iter().map(|arc| topology.link(arc.link()).mtu).min().unwrap_or(0);
        let mtu = paths.iter().map(|(path, _)| mtu(path)).min().unwrap_or(0);
        let route = |(path, share): (Vec<ArcId>, f64)| {
            let route = match self.known.get(&path) {
                Some(known) => *known,
                None => {
                    let route = network.add_route(path.iter().map(|arc| (*arc, 0)));
                    self.known.insert(path, route);
                    route
                }
            };
            (route, share)
        };
        EcmpPaths { routes: paths.into_iter().map(route).collect(), mtu }
    }
}

impl EcmpPaths {
    /// The route of a flow whose key hashes to `hash`.
    pub fn pick(&self, hash: u32) -> RouteId {
        let total: f64 = self.routes.iter().map(|(_, share)| share).sum();
        let mut point = f64::from(hash) / 4_294_967_296.0 * total;
        for (route, share) in &self.routes {
            if point < *share {
                return *route;
            }
            point -= share;
        }
        self.routes[self.routes.len() - 1].0
    }

    /// The route of a flow that takes `present`: that one while it is among these, else the one that `hash` picks.
    pub fn keep_or_pick(&self, present: RouteId, hash: u32) -> RouteId {
        if self.routes.iter().any(|(route, _)| *route == present) { present } else { self.pick(hash) }
    }
}

/// Routers' forwarding tables, as the IGP fills them.
#[derive(Debug)]
struct Fib {
    igp: Arc<Igp>,
    /// By arc: where it leads.
    heads: Vec<NodeId>,
    failed: BTreeSet<LinkId>,
}

impl Fib {
    fn new(topology: &Topology, igp: Arc<Igp>, failed: &BTreeSet<LinkId>) -> Box<dyn Forwarding> {
        let heads = (0..topology.arc_count() as u32).map(|arc| topology.head(ArcId(arc))).collect();
        Box::new(Fib { igp, heads, failed: failed.clone() })
    }
}

impl Forwarding for Fib {
    fn route(&self, from: NodeId, to: NodeId, flow: u32) -> Option<Vec<ArcId>> {
        self.igp.distance(from, to)?;
        let (mut here, mut path) = (from, Vec::new());
        while here != to {
            let arcs: Vec<ArcId> = self.igp.next_arcs(here, to).collect();
            // Fibonacci hashing spreads the flows of a node over its equal-cost arcs.
            let hash = (flow ^ here.0.rotate_left(16)).wrapping_mul(0x9e37_79b9) >> 16;
            let arc = *arcs.get(hash as usize % arcs.len().max(1))?;
            path.push(arc);
            here = *self.heads.get(arc.index())?;
        }
        Some(path)
    }

    fn is_up(&self, arc: ArcId) -> bool {
        !self.failed.contains(&arc.link())
    }
}

/// The forwarding tables of routers once the IGP has converged on the failure of these links.
pub fn forwarding(topology: &Topology, failed: &BTreeSet<LinkId>) -> Box<dyn Forwarding> {
    Fib::new(topology, Arc::new(Igp::without(topology, failed)), failed)
}

/// The name that the topology has for the path with all of a named path's links on it.
fn name(topology: &Topology, arcs: &[ArcId]) -> Option<String> {
    let on_path = |link: &LinkId| arcs.iter().any(|arc| arc.link() == *link);
    let mut named = topology.paths().iter();
    let named = named.find(|path| !path.links.is_empty() && path.links.iter().all(on_path))?;
    Some(named.name.clone())
}

#[cfg(test)]
mod tests {
    use sidestep_model::{FatTree, ParallelPaths};

    use super::*;

    fn ends(topology: &Topology, from: &str, to: &str) -> (NodeId, NodeId) {
        (topology.find(from).unwrap(), topology.find(to).unwrap())
    }

    fn routing(topology: &Topology) -> (Routing, Network) {
        let knobs = PathKnobs::default();
        (Routing::new(Arc::new(Igp::new(topology)), knobs), Network::new(topology, 1, Span::ZERO))
    }

    #[test]
    fn hashes_spread_over_equal_cost_paths_as_routers_would() {
        let topology = FatTree { k: 4, ..FatTree::default() }.build().unwrap();
        let (mut routing, mut network) = routing(&topology);
        let (from, to) = ends(&topology, "h0-0-0", "h3-1-1");
        let equal = routing.equal(&topology, &mut network, from, to, true).unwrap();
        // Two aggregation switches, two core switches behind each.
        assert_eq!(equal.routes.iter().map(|(_, share)| *share).collect::<Vec<_>>(), [0.25; 4]);
        let picked: Vec<RouteId> = (0..4u32).map(|quarter| equal.pick(quarter << 30)).collect();
        assert_eq!(picked, equal.routes.iter().map(|(route, _)| *route).collect::<Vec<_>>());
        assert_eq!(equal.mtu, 1500);
        let (_, mut network) = self::routing(&topology);
        let one = Routing::new(Arc::new(Igp::new(&topology)), PathKnobs::default())
            .equal(&topology, &mut network, from, to, false)
            .unwrap()
            .routes
            .len();
        assert_eq!(one, 1);
    }

    #[test]
    fn srv6_paths_are_the_controllers() {
        let topology =
            ParallelPaths { paths: 6, delay: Span::from_millis(1), ..ParallelPaths::default() }.build().unwrap();
        let (mut routing, mut network) = routing(&topology);
        let (from, to) = ends(&topology, "c1", "s1");
        let paths = routing.paths(&topology, &mut network, from, to);
        assert_eq!(paths.len(), 6);
        assert_eq!(paths[0].name, "path-1");
        for path in paths {
            assert_eq!(path.capacity, Rate::from_mbits(100));
            assert_eq!(path.rtt, Span::from_millis(8));
            // 1700 less the outer header and a list of one or two segments, but the hosts' own links carry 1500.
            assert_eq!(path.mtu, 1500);
        }
        let (from, to) = ends(&topology, "c1", "c1");
        assert!(routing.paths(&topology, &mut network, from, to).is_empty());
    }
}
