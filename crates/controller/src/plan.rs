//! What follows from the topology alone: which paths there are, their ids and their SIDs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::Arc,
};

use ipnet::Ipv6Net;
use sidestep_api::{MAX_ITEMS, PathId};
use sidestep_model::{
    ArcId, LinkId, NodeId, Rate, Span, Topology,
    scenario::{KnobError, PathKnobs},
    srv6,
};
use sidestep_paths::{PathSet, PathSets, Recomputed, Route, Segment, SegmentRules};
use thiserror::Error;

use crate::path_id;

/// The smallest mtu of IPv6 (RFC 8200, section 5).
const MIN_MTU: u32 = 1280;

/// A network that paths cannot be computed for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// A limit that is out of range.
    #[error(transparent)]
    Knobs(#[from] KnobError),
    /// A host without a link to a router.
    #[error("host `{0}` is not linked to any router")]
    NoAccessRouter(String),
    /// A host without an address prefix.
    #[error("host `{0}` has no prefix")]
    NoPrefix(String),
    /// A router without a locator.
    #[error("router `{0}` has no SRv6 locator")]
    NoLocator(String),
    /// A locator that the address plan has no room in.
    #[error("the locator {locator} of router `{router}` is not a /{}", srv6::LOCATOR_BITS)]
    BadLocator {
        /// The router.
        router: String,
        /// Its locator.
        locator: Ipv6Net,
    },
    /// Two hosts with the same prefix.
    #[error("hosts `{first}` and `{second}` have the same prefix {prefix}")]
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

/// The paths between all access routers of a network.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The network.
    pub(crate) topology: Arc<Topology>,
    /// Its hosts, by prefix.
    pub(crate) hosts: Arc<[Host]>,
    /// Per source and exit router the paths, best first; only pairs that have any.
    pub(crate) pairs: BTreeMap<(NodeId, NodeId), Arc<[PlannedPath]>>,
}

/// What the [`Plan`]s of a network are made from while its links fail and recover.
pub(crate) struct Planner {
    locators: Locators,
    sets: PathSets,
    plan: Plan,
}

/// A host and how it hangs on the network.
pub(crate) struct Host {
    /// The host.
    pub(crate) node: NodeId,
    /// Its prefix.
    pub(crate) prefix: Ipv6Net,
    /// Its access router.
    pub(crate) router: NodeId,
    /// The arc from the host to that router.
    pub(crate) access: ArcId,
}

/// A path between two access routers.
pub(crate) struct PlannedPath {
    /// Its id.
    pub(crate) id: PathId,
    /// Its name.
    pub(crate) name: String,
    /// Its arcs.
    pub(crate) arcs: Vec<ArcId>,
    /// The SID at the source router that stands for it.
    pub(crate) binding_sid: Ipv6Addr,
    /// The SIDs that force it.
    pub(crate) segments: Vec<Ipv6Addr>,
    /// The lowest rate of its arcs, zero if none is limited.
    pub(crate) capacity: Rate,
    /// Its propagation delay.
    pub(crate) delay: Span,
    /// The propagation delay of the IGP's way back.
    pub(crate) delay_back: Span,
    /// The largest packet that still fits after encapsulation.
    pub(crate) mtu: u32,
}

impl Plan {
    /// The name of a node.
    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }
}

impl Planner {
    /// Computes the paths of every ordered pair of access routers in a network in which everything is up.
    pub(crate) fn new(topology: Topology, knobs: PathKnobs) -> Result<Self, PlanError> {
        knobs.check()?;
        let locators = locators(&topology)?;
        let hosts = hosts(&topology)?;
        let routers: BTreeSet<NodeId> = hosts.iter().map(|host| host.router).collect();
        let pairs = routers.iter().flat_map(|from| routers.iter().map(|to| (*from, *to)));
        let rules = SegmentRules { max_segments: knobs.max_segments, adjacency: knobs.adjacency };
        let sets = PathSets::new(&topology, pairs.filter(|(from, to)| from != to).collect(), rules, knobs.max_paths);
        let plan = Plan { topology: Arc::new(topology), hosts: hosts.into(), pairs: BTreeMap::new() };
        let mut planner = Planner { locators, sets, plan };
        planner.plan(|_| true);
        Ok(planner)
    }

    /// The present plan.
    pub(crate) fn current(&self) -> &Plan {
        &self.plan
    }

    /// How many ordered pairs of access routers there are.
    pub(crate) fn pair_count(&self) -> usize {
        self.sets.pairs().len()
    }

    /// Makes the plan for when the IGP has converged on the failure of exactly these links.
    pub(crate) fn set_down(&mut self, down: &BTreeSet<LinkId>) -> Recomputed {
        let recomputed = self.sets.set_down(&self.plan.topology, down);
        if !recomputed.changed.is_empty() {
            self.plan(|pair| recomputed.changed.binary_search(&pair).is_ok());
        }
        recomputed
    }

    /// Plans the pairs that changed, and those of which an id did.
    fn plan(&mut self, changed: impl Fn(usize) -> bool) {
        let topology = self.plan.topology.clone();
        let named = named_paths(&topology);
        let mut old = std::mem::take(&mut self.plan.pairs);
        let found: Vec<Found<'_>> = (0..)
            .zip(self.sets.pairs())
            .flat_map(|(index, (from, to))| {
                let set = self.sets.get(index).into_iter();
                set.flat_map(move |set| {
                    set.routes.iter().map(move |route| Found { index, from: *from, to: *to, set, route })
                })
            })
            .collect();
        let keys: Vec<String> = found.iter().map(|found| found.key(&topology)).collect();
        let ids = path_id::assign(keys.clone());
        let with_ids: Vec<(Found<'_>, Option<PathId>)> =
            found.into_iter().zip(&keys).map(|(found, key)| (found, ids.get(key).copied())).collect();
        for pair in with_ids.chunk_by(|(one, _), (next, _)| one.index == next.index) {
            let ends = (pair[0].0.from, pair[0].0.to);
            let kept = old.remove(&ends).filter(|paths| {
                !changed(pair[0].0.index) && paths.iter().all(|path| pair.iter().any(|(_, id)| *id == Some(path.id)))
            });
            let planned = kept.unwrap_or_else(|| {
                pair.iter().filter_map(|(found, id)| found.plan(&topology, &self.locators, &named, (*id)?)).collect()
            });
            if !planned.is_empty() {
                self.plan.pairs.insert(ends, planned);
            }
        }
    }
}

type Locators = BTreeMap<NodeId, Ipv6Net>;
type Named<'a> = BTreeMap<BTreeSet<LinkId>, &'a str>;

/// A route of a pair.
struct Found<'a> {
    /// The pair's index.
    index: usize,
    from: NodeId,
    to: NodeId,
    set: &'a PathSet,
    route: &'a Route,
}

impl Found<'_> {
    fn key(&self, topology: &Topology) -> String {
        let links = self.route.arcs.iter().map(|arc| topology.link(arc.link()).name.as_str());
        path_id::key(&topology.node(self.from).name, &topology.node(self.to).name, links)
    }

    /// `None` where the encapsulation leaves less than IPv6's smallest mtu.
    fn plan(&self, topology: &Topology, locators: &Locators, named: &Named<'_>, id: PathId) -> Option<PlannedPath> {
        let (from, to) = (&topology.node(self.from).name, &topology.node(self.to).name);
        let links: BTreeSet<LinkId> = self.route.arcs.iter().map(|arc| arc.link()).collect();
        let name = named.get(&links).map_or_else(|| format!("{from}>{to}#{id}"), |name| (*name).to_owned());
        let mtu = self.route.mtu(topology).saturating_sub(srv6::encap_len(self.route.segments.len()));
        if mtu < MIN_MTU {
            tracing::warn!(
                from,
                to,
                path = name,
                mtu,
                "path left out: after encapsulation less than 1280 bytes fit its links"
            );
            return None;
        }
        let back = self.set.back.iter().flatten();
        Some(PlannedPath {
            id,
            name,
            arcs: self.route.arcs.clone(),
            binding_sid: srv6::binding_sid(*locators.get(&self.from)?, id.get()),
            segments: sids(topology, locators, &self.route.segments)?,
            capacity: self.route.bottleneck(topology),
            delay: self.route.delay(topology),
            delay_back: back.fold(Span::ZERO, |sum, arc| sum + topology.channel(*arc).delay),
            mtu,
        })
    }
}

/// The SIDs of a segment list; the last decapsulates (`End.DT6`).
fn sids(topology: &Topology, locators: &Locators, segments: &[Segment]) -> Option<Vec<Ipv6Addr>> {
    let last = segments.len().checked_sub(1)?;
    let sid = |(index, segment): (usize, &Segment)| {
        Some(match segment {
            Segment::Node(node) if index == last => srv6::decap_sid(*locators.get(node)?),
            Segment::Node(node) => srv6::end_sid(*locators.get(node)?),
            Segment::Adjacency(arc) => srv6::adjacency_sid(*locators.get(&topology.tail(*arc))?, arc.link()),
        })
    };
    segments.iter().enumerate().map(sid).collect()
}

fn locators(topology: &Topology) -> Result<Locators, PlanError> {
    let routers = topology.node_ids().filter(|node| topology.is_router(*node));
    let locator = |id| {
        let node = topology.node(id);
        let locator = node.locator.ok_or_else(|| PlanError::NoLocator(node.name.clone()))?;
        if locator.prefix_len() != srv6::LOCATOR_BITS {
            return Err(PlanError::BadLocator { router: node.name.clone(), locator });
        }
        Ok((id, locator))
    };
    routers.map(locator).collect()
}

fn hosts(topology: &Topology) -> Result<Vec<Host>, PlanError> {
    let mut hosts: BTreeMap<Ipv6Net, Host> = BTreeMap::new();
    for node in topology.node_ids().filter(|node| !topology.is_router(*node)) {
        let name = &topology.node(node).name;
        let prefix = topology.node(node).prefix.ok_or_else(|| PlanError::NoPrefix(name.clone()))?.trunc();
        let mut access = topology.outgoing(node).iter().copied().filter(|arc| topology.is_router(topology.head(*arc)));
        let access = access.next().ok_or_else(|| PlanError::NoAccessRouter(name.clone()))?;
        let host = Host { node, prefix, router: topology.head(access), access };
        if let Some(other) = hosts.insert(prefix, host) {
            let first = topology.node(other.node).name.clone();
            return Err(PlanError::SamePrefix { first, second: name.clone(), prefix });
        }
    }
    if hosts.len() > MAX_ITEMS {
        return Err(PlanError::TooManyHosts(hosts.len()));
    }
    Ok(hosts.into_values().collect())
}

fn named_paths(topology: &Topology) -> Named<'_> {
    topology.paths().iter().map(|path| (path.links.iter().copied().collect(), path.name.as_str())).collect()
}
