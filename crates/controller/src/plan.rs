//! The network as the controller serves it: its hosts by prefix, and the paths between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::Ipv6Net;
use sidestep_api::MAX_ITEMS;
use sidestep_control::{Access, Ends, LocatorError, Locators, Recomputed, RouterPath, access_arcs};
use sidestep_net::{ArcId, LinkId, NodeId, SettingError, Topology};
use sidestep_paths::PathSettings;
use thiserror::Error;

/// Why no paths can be computed for a network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// A limit that is out of range.
    #[error(transparent)]
    Settings(#[from] SettingError),
    /// A host without a link to a router.
    #[error("host `{0}` is not linked to any router")]
    NoAccessRouter(String),
    /// A host without an address prefix.
    #[error("host `{0}` has no prefix")]
    NoPrefix(String),
    /// A router whose SIDs cannot be made.
    #[error(transparent)]
    Locator(#[from] LocatorError),
    /// Two hosts with the same prefix.
    #[error(
        "hosts `{first}` and `{second}` have the same prefix {prefix}; for a prefix behind several routers link one host \
         to each of them"
    )]
    SamePrefix {
        /// One host.
        first: String,
        /// The other.
        second: String,
        /// Their prefix.
        prefix: Ipv6Net,
    },
    /// More hosts than fit an update.
    #[error("{0} hosts are more than the {MAX_ITEMS} that a controller serves")]
    TooManyHosts(usize),
}

/// The paths between all hosts of a network.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The network.
    pub(crate) topology: Arc<Topology>,
    /// The locators from which SIDs are made.
    pub(crate) locators: Arc<Locators>,
    /// Its hosts, by prefix.
    pub(crate) hosts: Arc<[Host]>,
    /// The paths between access routers, best first; only pairs that have any.
    pub(crate) pairs: BTreeMap<Ends, Arc<[Arc<RouterPath>]>>,
    /// The same paths, by the access router where they begin. A path of several pairs is there several times.
    pub(crate) beginning: BTreeMap<NodeId, Vec<Arc<RouterPath>>>,
    /// How much that is.
    pub(crate) sizes: Sizes,
}

/// How large a plan is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sizes {
    /// Pairs of access routers that have paths.
    pub(crate) pairs: usize,
    /// Their paths.
    pub(crate) paths: usize,
    /// Path IDs that routers must install.
    pub(crate) bindings: usize,
}

/// Makes the [`Plan`]s of a network while its links fail and recover.
pub(crate) struct Planner {
    paths: sidestep_control::Planner,
    plan: Plan,
}

/// A host and its links to the network.
pub(crate) struct Host {
    /// The host.
    pub(crate) node: NodeId,
    /// Its prefix.
    pub(crate) prefix: Ipv6Net,
    /// The arcs from the host to its access routers.
    pub(crate) arcs: Vec<ArcId>,
    /// Its access routers.
    pub(crate) access: Vec<Access>,
}

impl Plan {
    /// The plan of a network of which no path is computed yet.
    pub(crate) fn without_paths(topology: Arc<Topology>, settings: PathSettings) -> Result<Self, PlanError> {
        settings.check()?;
        let locators = Arc::new(Locators::new(&topology)?);
        let hosts = hosts(&topology)?.into();
        let (pairs, beginning, sizes) = Default::default();
        Ok(Plan { topology, locators, hosts, pairs, beginning, sizes })
    }

    /// The name of a node.
    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }
}

impl Planner {
    /// Computes the paths between all hosts of a network in which everything is up.
    pub(crate) fn new(topology: Arc<Topology>, settings: PathSettings) -> Result<Self, PlanError> {
        let plan = Plan::without_paths(topology.clone(), settings)?;
        let mut paths = sidestep_control::Planner::new(topology, settings)?;
        paths.compute_all();
        let mut planner = Planner { paths, plan };
        planner.plan();
        Ok(planner)
    }

    /// The present plan.
    pub(crate) fn current(&self) -> &Plan {
        &self.plan
    }

    /// How many ordered pairs of access routers there are.
    pub(crate) fn pair_count(&self) -> usize {
        self.paths.sets().count()
    }

    /// Makes the plan for the failure of exactly these links, after the IGP has converged.
    pub(crate) fn set_down(&mut self, down: &BTreeSet<LinkId>) -> Recomputed {
        let recomputed = self.paths.set_down(down);
        if !recomputed.changed.is_empty() {
            self.plan();
        }
        recomputed
    }

    fn plan(&mut self) {
        for left_out in self.paths.take_left_out() {
            tracing::warn!(
                from = left_out.from,
                to = left_out.to,
                path = left_out.name,
                mtu = left_out.mtu,
                "path left out: after encapsulation less than 1280 bytes fit its links"
            );
        }
        let sets = self.paths.sets().filter(|(_, paths)| !paths.is_empty());
        self.plan.pairs = sets.map(|(ends, paths)| (ends.clone(), paths.clone())).collect();
        self.plan.beginning.clear();
        for path in self.plan.pairs.values().flat_map(|paths| paths.iter()) {
            self.plan.beginning.entry(path.ingress).or_default().push(path.clone());
        }
        let bound = |paths: &Vec<Arc<RouterPath>>| paths.iter().map(|path| path.id).collect::<BTreeSet<_>>().len();
        self.plan.sizes = Sizes {
            pairs: self.plan.pairs.len(),
            paths: self.plan.pairs.values().map(|paths| paths.len()).sum(),
            bindings: self.plan.beginning.values().map(bound).sum(),
        };
    }
}

/// Refuses a network for which no plan can be made.
pub(crate) fn check(topology: &Topology, settings: PathSettings) -> Result<(), PlanError> {
    settings.check()?;
    Locators::new(topology)?;
    hosts(topology).map(drop)
}

fn hosts(topology: &Topology) -> Result<Vec<Host>, PlanError> {
    let mut hosts: BTreeMap<Ipv6Net, Host> = BTreeMap::new();
    for node in topology.node_ids().filter(|node| !topology.is_router(*node)) {
        let name = &topology.node(node).name;
        let prefix = topology.node(node).prefix.ok_or_else(|| PlanError::NoPrefix(name.clone()))?.trunc();
        let (arcs, access) = (access_arcs(topology, node), Access::of_host(topology, node));
        if arcs.is_empty() {
            return Err(PlanError::NoAccessRouter(name.clone()));
        }
        if let Some(other) = hosts.insert(prefix, Host { node, prefix, arcs, access }) {
            let first = topology.node(other.node).name.clone();
            return Err(PlanError::SamePrefix { first, second: name.clone(), prefix });
        }
    }
    if hosts.len() > MAX_ITEMS {
        return Err(PlanError::TooManyHosts(hosts.len()));
    }
    Ok(hosts.into_values().collect())
}
