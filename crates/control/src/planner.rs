//! The path sets of a network while its links fail and recover.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sidestep_net::{ArcId, LinkId, NodeId, PathId, SettingError, Topology};
use sidestep_paths::PathSettings;
use sidestep_paths::{Access, Ends, PathSets, Recomputed, SegmentRules, access_arcs};

use crate::{HostPath, LeftOut, RouterPath, path_id, router_path};

/// The paths between the hosts of a network, for the links that are down now.
///
/// Hosts with the same access routers share their path sets. A set is computed when it is first asked for, or all sets
/// are at once by [`compute_all`](Self::compute_all). Both give the same paths; the ids differ only where the hashes of
/// two paths collide that belong to different sets: only if all are known can each of the network's paths have its own.
#[derive(Clone, Debug)]
pub struct Planner {
    topology: Arc<Topology>,
    sets: PathSets,
    /// The index of each set.
    indices: BTreeMap<Ends, usize>,
    /// The sets, by index.
    planned: Vec<Planned>,
    complete: bool,
    left_out: Vec<LeftOut>,
}

/// A path set.
#[derive(Clone, Debug, Default)]
struct Planned {
    paths: Arc<[Arc<RouterPath>]>,
    /// The arcs of each path that the set ever had.
    numbered: Vec<Vec<ArcId>>,
}

impl Planner {
    /// A planner for a network in which everything is up.
    pub fn new(topology: Arc<Topology>, settings: PathSettings) -> Result<Self, SettingError> {
        settings.check()?;
        let rules = SegmentRules { max_segments: settings.max_segments, adjacency: settings.adjacency };
        let sets = PathSets::new(&topology, rules, settings.max_paths);
        let (indices, planned, left_out) = Default::default();
        Ok(Planner { topology, sets, indices, planned, complete: false, left_out })
    }

    /// The network.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Computes the sets of all ordered pairs of hosts; no two of their paths have the same id.
    pub fn compute_all(&mut self) {
        let topology = self.topology.clone();
        let hosts = topology.node_ids().filter(|node| !topology.is_router(*node));
        let sites: BTreeSet<Vec<Access>> = hosts.map(|host| Access::of_host(&topology, host)).collect();
        for ingresses in &sites {
            for egresses in &sites {
                self.index_of(Ends { ingresses: ingresses.clone(), egresses: egresses.clone() });
            }
        }
        self.sets.release();
        self.complete = true;
        self.plan(&(0..self.planned.len()).collect::<Vec<_>>());
    }

    /// The paths from one host to another, best first; none between hosts whose only access router is the same, and none from
    /// a host to itself.
    pub fn paths(&mut self, from: NodeId, to: NodeId) -> Vec<HostPath> {
        let Some(index) = self.set_of(from, to) else { return Vec::new() };
        let (sources, destinations) = (access_arcs(&self.topology, from), access_arcs(&self.topology, to));
        let path = |path: &Arc<RouterPath>| HostPath::new(&self.topology, &sources, &destinations, path);
        self.planned.get(index).into_iter().flat_map(|set| set.paths.iter()).filter_map(path).collect()
    }

    /// The index of the set of these two hosts, as [`set_down`](Self::set_down) names it; `None` where there cannot be
    /// paths.
    pub fn set_of(&mut self, from: NodeId, to: NodeId) -> Option<usize> {
        // A host with two access routers would else have paths to itself.
        if from == to {
            return None;
        }
        let [ingresses, egresses] = [from, to].map(|host| Access::of_host(&self.topology, host));
        let known = self.planned.len();
        let index = self.index_of(Ends { ingresses, egresses })?;
        if index >= known {
            self.plan(&[index]);
        }
        Some(index)
    }

    /// Takes exactly these links as down from now on, after the IGP has converged. Links that the network does not have
    /// are ignored.
    pub fn set_down(&mut self, down: &BTreeSet<LinkId>) -> Recomputed {
        let recomputed = self.sets.set_down(&self.topology, down);
        if self.complete {
            self.sets.release();
        }
        if !recomputed.changed.is_empty() {
            self.plan(&recomputed.changed);
        }
        recomputed
    }

    /// All sets computed so far, by their index, each between its ends.
    pub fn sets(&self) -> impl Iterator<Item = (&Ends, &Arc<[Arc<RouterPath>]>)> {
        self.sets.ends().iter().zip(self.planned.iter().map(|set| &set.paths))
    }

    /// Takes the paths that were left out since the last call because packets do not fit them.
    pub fn take_left_out(&mut self) -> Vec<LeftOut> {
        std::mem::take(&mut self.left_out)
    }

    /// The index of a set, which is added if need be; `None` where no path is possible.
    fn index_of(&mut self, ends: Ends) -> Option<usize> {
        if let Some(index) = self.indices.get(&ends) {
            return Some(*index);
        }
        let leads_on = |ingress: &Access| ends.egresses.iter().any(|egress| egress.router != ingress.router);
        if !ends.ingresses.iter().any(leads_on) {
            return None;
        }
        let index = self.sets.add(&self.topology, ends.clone());
        self.indices.insert(ends, index);
        self.planned.push(Planned::default());
        Some(index)
    }

    /// Plans the sets that changed, in ascending order; if all sets are known, also those of which only an id changed.
    fn plan(&mut self, changed: &[usize]) {
        if !self.complete {
            for index in changed {
                let keys = self.keys(*index);
                self.enter(*index, &keys, &path_id::assign(keys.clone()));
            }
            return;
        }
        let keys: Vec<Vec<String>> = (0..self.planned.len()).map(|index| self.keys(index)).collect();
        let ids = path_id::assign(keys.iter().flatten().cloned().collect());
        for (index, keys) in keys.iter().enumerate() {
            let expected: Vec<PathId> = keys.iter().filter_map(|key| ids.get(key).copied()).collect();
            let has_other = |set: &Planned| set.paths.iter().any(|path| !expected.contains(&path.id));
            if changed.binary_search(&index).is_ok() || self.planned.get(index).is_some_and(has_other) {
                self.enter(index, keys, &ids);
            }
        }
    }

    /// The keys from which the ids of a set's routes are made.
    fn keys(&self, index: usize) -> Vec<String> {
        let routes = self.sets.get(index).into_iter().flat_map(|set| &set.routes);
        routes.map(|route| router_path::key(&self.topology, route)).collect()
    }

    /// Replaces the paths of a set by those of its routes, which have these keys.
    fn enter(&mut self, index: usize, keys: &[String], ids: &BTreeMap<String, PathId>) {
        let (Some(set), Some(planned)) = (self.sets.get(index), self.planned.get_mut(index)) else { return };
        let mut paths = Vec::new();
        let routes = set.routes.iter().zip(set.follows_igp.iter().copied());
        for (route, key) in routes.zip(keys) {
            let Some(id) = ids.get(key) else { continue };
            let mut path = RouterPath::new(&self.topology, set, route, *id);
            if let Some(left_out) = path.left_out(&self.topology) {
                self.left_out.push(left_out);
                continue;
            }
            let known = planned.numbered.iter().position(|arcs| *arcs == path.arcs);
            path.number = 1 + known.unwrap_or(planned.numbered.len());
            if known.is_none() {
                planned.numbered.push(path.arcs.clone());
            }
            paths.push(Arc::new(path));
        }
        planned.paths = paths.into();
    }
}
