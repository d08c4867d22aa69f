//! Which routes there are for a flow by the IGP, spread over equal-cost ones or not.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sidestep_net::{ArcId, LinkId, NodeId, Topology};
use sidestep_paths::Igp;
use thiserror::Error;

use sidestep_engine::{Forwarding, Network, RouteId};

/// The routes of a network, made when first asked for and kept.
#[derive(Debug)]
pub struct Routing {
    igp: Arc<Igp>,
    /// Links that the IGP knows to be down.
    failed: BTreeSet<LinkId>,
    /// By the two hosts, and whether routers use all equal-cost paths.
    plain: BTreeMap<(NodeId, NodeId, bool), Arc<EcmpPaths>>,
    /// Those of before the last convergence: where there is no route any more, packets still leave, and are lost.
    stale: BTreeMap<(NodeId, NodeId, bool), Arc<EcmpPaths>>,
    /// Between interfaces, by the arcs there.
    meshes: BTreeMap<(ArcId, ArcId), Option<Arc<EcmpPaths>>>,
    /// The routes that were made so far: a route that comes back after a failure is the one that it was.
    known: BTreeMap<Vec<ArcId>, RouteId>,
}

/// The equal-cost paths between two hosts.
#[derive(Clone, Debug, Default)]
pub struct EcmpPaths {
    /// The route of each, and the share of flows that routers hash onto it.
    pub routes: Vec<(RouteId, f64)>,
    /// The largest packet that all of them carry, in bytes.
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

impl Routing {
    /// The routes of `topology`, whose IGP is `igp`.
    pub fn new(igp: Arc<Igp>) -> Self {
        Routing {
            igp,
            failed: BTreeSet::new(),
            plain: BTreeMap::new(),
            stale: BTreeMap::new(),
            meshes: BTreeMap::new(),
            known: BTreeMap::new(),
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
        Fib::boxed(topology, self.igp.clone(), &self.failed)
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

    /// The route over the links of another, in the other direction.
    pub fn backwards(&mut self, network: &mut Network, route: RouteId) -> RouteId {
        let mut path: Vec<ArcId> = network.arcs_of(route).map(ArcId::reversed).collect();
        path.reverse();
        self.route_over(network, path)
    }

    fn route_over(&mut self, network: &mut Network, path: Vec<ArcId>) -> RouteId {
        *self.known.entry(path).or_insert_with_key(|path| network.add_route(path.iter().map(|arc| (*arc, 0))))
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
        let route = |(path, share): (Vec<ArcId>, f64)| (self.route_over(network, path), share);
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
    fn boxed(topology: &Topology, igp: Arc<Igp>, failed: &BTreeSet<LinkId>) -> Box<dyn Forwarding> {
        let heads = (0..topology.arc_count() as u32).map(|arc| topology.head(ArcId(arc))).collect();
        Box::new(Fib { igp, heads, failed: failed.clone() })
    }
}

impl Forwarding for Fib {
    fn route(&self, from: NodeId, to: NodeId, mut hash: u32) -> Option<Vec<ArcId>> {
        self.igp.distance(from, to)?;
        let (mut here, mut path) = (from, Vec::new());
        while here != to {
            let arcs: Vec<ArcId> = self.igp.next_arcs(here, to).collect();
            // As a fraction, the hash names one of the arcs; what is left of it is for the next router. So all routers
            // together choose the path that `EcmpPaths::pick` chooses.
            let scaled = u64::from(hash) * arcs.len() as u64;
            let arc = *arcs.get((scaled >> 32) as usize)?;
            hash = scaled as u32;
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
    Fib::boxed(topology, Arc::new(Igp::without(topology, failed)), failed)
}

#[cfg(test)]
mod tests {
    use sidestep_net::{FatTree, Span};

    use super::*;

    fn ends(topology: &Topology, from: &str, to: &str) -> (NodeId, NodeId) {
        (topology.find(from).unwrap(), topology.find(to).unwrap())
    }

    fn routing(topology: &Topology) -> (Routing, Network) {
        (Routing::new(Arc::new(Igp::new(topology))), Network::new(topology, 1, Span::ZERO))
    }

    #[test]
    fn packets_that_routers_held_take_the_path_that_the_flow_would_begin_on() {
        let topology = FatTree { k: 8, ..FatTree::default() }.build().unwrap();
        let (mut routing, mut network) = routing(&topology);
        for (from, to) in [("h0-0-0", "h3-1-1"), ("h2-1-0", "h2-3-1"), ("h0-0-0", "h0-0-1")] {
            let (from, to) = ends(&topology, from, to);
            let equal = routing.equal(&topology, &mut network, from, to, true).unwrap();
            let tables = routing.forwarding(&topology);
            let mut taken = BTreeSet::new();
            for step in 0..1_000u32 {
                let hash = step.wrapping_mul(0x9e37_79b9);
                let path = tables.route(from, to, hash).unwrap();
                let route = routing.known[&path];
                assert_eq!(route, equal.pick(hash), "{hash:x}");
                taken.insert(route);
            }
            assert_eq!(taken.len(), equal.routes.len());
            assert_eq!(tables.route(from, to, 0), routing.igp.first_path(from, to));
        }
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
        let one = Routing::new(Arc::new(Igp::new(&topology)))
            .equal(&topology, &mut network, from, to, false)
            .unwrap()
            .routes
            .len();
        assert_eq!(one, 1);
    }
}
