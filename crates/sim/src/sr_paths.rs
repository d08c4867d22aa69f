//! SRv6 paths between hosts, as the controller computes them.

use std::{collections::BTreeMap, sync::Arc};

use sidestep_control::{HostPath, Planner};
use sidestep_net::{ArcId, LinkId, NodeId, Rate, SettingError, Span, Topology};
use sidestep_paths::PathSettings;

use sidestep_engine::{Network, RouteId};

/// The path sets of a network, made when first asked for.
#[derive(Debug)]
pub struct SrPaths {
    planner: Planner,
    /// Between hosts.
    known: BTreeMap<(NodeId, NodeId), Arc<[SrPath]>>,
    /// By arcs, each with the bytes of encapsulation there: a path that comes back has the route that it had.
    routes: BTreeMap<Vec<(ArcId, u16)>, RouteId>,
}

/// An SRv6 path between two hosts.
#[derive(Clone, Debug)]
pub struct SrPath {
    /// Its Path ID.
    pub id: u32,
    /// Its name in results: what the topology calls it, or its number.
    pub name: String,
    /// The route.
    pub route: RouteId,
    /// Its arcs between the access routers.
    pub arcs: Vec<ArcId>,
    /// The lowest rate of these; zero if none is limited.
    pub capacity: Rate,
    /// Propagation delay there and, by the IGP, back.
    pub rtt: Span,
    /// The largest packet that a host's TCP may send on it, without the host's own segment list.
    pub mtu: u32,
}

impl SrPaths {
    /// The path sets of `topology` under `settings`, while everything is up.
    pub fn new(topology: Arc<Topology>, settings: PathSettings) -> Result<Self, SettingError> {
        let planner = Planner::new(topology, settings)?;
        Ok(SrPaths { planner, known: BTreeMap::new(), routes: BTreeMap::new() })
    }

    /// The paths from one host to another, best first; none where their only access router is the same.
    pub fn between(&mut self, network: &mut Network, from: NodeId, to: NodeId) -> Arc<[SrPath]> {
        if let Some(known) = self.known.get(&(from, to)) {
            return known.clone();
        }
        let host_paths = self.planner.paths(from, to);
        let paths: Arc<[SrPath]> = host_paths.iter().map(|path| self.path(network, path)).collect();
        self.known.insert((from, to), paths.clone());
        paths
    }

    /// Which set two hosts have: connections with the same one learn together.
    pub fn set_of(&mut self, from: NodeId, to: NodeId) -> Option<usize> {
        self.planner.set_of(from, to)
    }

    /// Exactly these links are down from now on. Returns the sets that changed.
    pub fn set_down(&mut self, down: &std::collections::BTreeSet<LinkId>) -> Vec<usize> {
        let changed = self.planner.set_down(down).changed;
        if !changed.is_empty() {
            self.known.clear();
        }
        changed
    }

    fn path(&mut self, network: &mut Network, of: &HostPath) -> SrPath {
        let hops: Vec<(ArcId, u16)> = of.arcs().collect();
        let route = *self.routes.entry(hops).or_insert_with_key(|hops| network.add_route(hops.iter().copied()));
        let path = &of.path;
        SrPath {
            id: path.id.get(),
            name: path.given_name.clone().unwrap_or_else(|| format!("path {}", path.number)),
            route,
            arcs: path.arcs.clone(),
            capacity: path.capacity,
            rtt: of.rtt,
            mtu: of.room(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_net::ParallelPaths;

    use super::*;

    fn six_paths() -> (Arc<Topology>, Network, NodeId, NodeId) {
        let topology =
            ParallelPaths { paths: 6, delay: Span::from_millis(1), ..ParallelPaths::default() }.build().unwrap();
        let network = Network::new(&topology, 1, Span::ZERO);
        let (from, to) = (topology.find("c1").unwrap(), topology.find("s1").unwrap());
        (Arc::new(topology), network, from, to)
    }

    #[test]
    fn srv6_paths_are_the_controllers() {
        let (topology, mut network, from, to) = six_paths();
        let mut paths = SrPaths::new(topology.clone(), PathSettings::default()).unwrap();
        let found = paths.between(&mut network, from, to);
        assert_eq!(found.len(), 6);
        assert_eq!(found[0].name, "path-1");
        for path in found.iter() {
            assert_eq!(path.capacity, Rate::from_mbits(100));
            assert_eq!(path.rtt, Span::from_millis(8));
        }
        // The core's 1700 have room for the outer header. The hosts' own links carry 1500, of which their segment list
        // takes 40; the first path is the IGP's and needs none.
        let mtus: Vec<u32> = found.iter().map(|path| path.mtu).collect();
        assert_eq!(mtus, [1500, 1460, 1460, 1460, 1460, 1460]);
        assert!(paths.between(&mut network, from, from).is_empty());
    }

    #[test]
    fn a_path_that_comes_back_is_the_one_that_it_was() {
        let (topology, mut network, from, to) = six_paths();
        let mut paths = SrPaths::new(topology.clone(), PathSettings::default()).unwrap();
        let before = paths.between(&mut network, from, to);
        let gone = before[2].arcs[0].link();
        assert_eq!(paths.set_down(&[gone].into()).len(), 1, "the set that was asked for");
        let without = paths.between(&mut network, from, to);
        let ids = |paths: &[SrPath]| paths.iter().map(|path| (path.id, path.route)).collect::<Vec<_>>();
        assert_eq!(ids(&without), [&ids(&before)[..2], &ids(&before)[3..]].concat());
        assert_eq!(paths.set_down(&[].into()).len(), 1);
        assert_eq!(ids(&paths.between(&mut network, from, to)), ids(&before));
        assert!(paths.set_down(&[].into()).is_empty(), "nothing changed");
    }
}
