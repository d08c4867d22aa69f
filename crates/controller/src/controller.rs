//! The controller's state, and the view of it that each agent gets.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ipnet::Ipv6Net;
use serde::Serialize;
use sidestep_api::{Binding, BindingUpdate, HostIdentity, Path, PathSet, PathUpdate, UsageReport};
use sidestep_control::{Access, Ends, HostPath, RouterPath, path_usage};
use sidestep_net::{ArcId, LinkId, NodeId, PathId, Rate, Topology};
use sidestep_paths::PathSettings;
use thiserror::Error;
use tokio::sync::watch;

use crate::{
    plan::{self, Host, Plan, PlanError, Planner, Sizes},
    usage::Meter,
};

/// The paths of a network and how full they are.
///
/// Methods take `&self` and never wait, so that any number of calls can share it.
///
/// Locks are taken in the order of the fields.
pub struct Controller {
    published: watch::Sender<Arc<Snapshot>>,
    /// `None` until the first paths are computed.
    planner: Mutex<Option<Planner>>,
    /// What each router last reported.
    reported: Mutex<BTreeMap<NodeId, Reported>>,
    meter: Mutex<Meter>,
    settings: PathSettings,
}

/// What a router reported of its links.
#[derive(Default)]
struct Reported {
    /// When, by the router daemon's clock; one that goes back is that of another daemon.
    at: Duration,
    /// The links that this daemon ever reported.
    known: BTreeSet<LinkId>,
    /// Those that are down.
    down: BTreeSet<LinkId>,
}

/// The paths from one access router to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairPaths {
    /// The router where they start.
    pub from: String,
    /// The router where they end.
    pub to: String,
    /// The prefixes behind `from`.
    pub sources: Vec<Ipv6Net>,
    /// The prefixes behind `to`.
    pub destinations: Vec<Ipv6Net>,
    /// The paths, best first.
    pub paths: Vec<PathInfo>,
}

/// A path between two access routers; delays and mtu leave the hosts' own links out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathInfo {
    /// The part that agents see.
    #[serde(flatten)]
    pub path: Path,
    /// Names of its links in the order of travel.
    pub links: Vec<String>,
    /// Its segment list in the order of travel.
    pub segments: Vec<Ipv6Addr>,
}

/// The bindings of one access router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouterBindings {
    /// The router.
    pub router: String,
    /// Its bindings.
    pub bindings: Vec<Binding>,
}

/// An agent's request that makes no sense in this network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// A name that no node has.
    #[error("there is no node `{0}` in the controller's topology")]
    UnknownNode(String),
    /// Prefixes that no host has.
    #[error("no host of the controller's topology has the prefix {0}")]
    UnknownPrefix(Ipv6Net),
    /// Prefixes of several hosts.
    #[error("the prefixes belong to two hosts, `{0}` and `{1}`")]
    TwoHosts(String, String),
    /// A router where a host is expected.
    #[error("`{0}` is a router, not a host")]
    NotAHost(String),
    /// A host where a router is expected.
    #[error("`{0}` is a host, not a router")]
    NotARouter(String),
    /// A counter of a link elsewhere.
    #[error("`{link}` is not a link of `{node}`")]
    ForeignLink {
        /// The router that reports.
        node: String,
        /// The link.
        link: String,
    },
}

impl Controller {
    /// A controller for this network; every host must have a prefix and an access router, every router a locator.
    pub fn new(topology: Topology, settings: PathSettings) -> Result<Self, PlanError> {
        let controller = Self::without_paths(topology, settings)?;
        controller.compute()?;
        Ok(controller)
    }

    /// A controller that takes watchers and reports already; watchers wait until the paths are
    /// [computed](Self::compute). Refuses what [`new`](Self::new) would.
    pub fn without_paths(topology: Topology, settings: PathSettings) -> Result<Self, PlanError> {
        let plan = Plan::without_paths(Arc::new(topology), settings)?;
        let meter = Meter::new(plan.topology.arc_count());
        let snapshot = Snapshot { generation: 0, rates: meter.rates(), plan: Arc::new(plan), complete: false };
        let (planner, reported, meter) = (Mutex::default(), Mutex::default(), Mutex::new(meter));
        Ok(Controller { published: watch::Sender::new(Arc::new(snapshot)), planner, reported, meter, settings })
    }

    /// Computes the paths for the first time, and publishes them; returns when that is done.
    pub fn compute(&self) -> Result<(), PlanError> {
        let mut planner = self.planner();
        if planner.is_none() {
            let mut new = Planner::new(self.snapshot().plan.topology.clone(), self.settings)?;
            // Routers may have reported meanwhile.
            new.set_down(&self.links_down());
            self.publish_plan(&new);
            *planner = Some(new);
        }
        Ok(())
    }

    /// Refuses what [`new`](Self::new) would, without computing any path.
    pub fn check(topology: &Topology, settings: PathSettings) -> Result<(), PlanError> {
        plan::check(topology, settings)
    }

    /// Takes a changed network; paths that stay keep their ids, rates are measured again.
    pub fn replace(&self, topology: Topology) -> Result<(), PlanError> {
        let new = Planner::new(Arc::new(topology), self.settings)?;
        let mut planner = self.planner();
        // The links have other numbers now: routers report again which are down.
        self.reported().clear();
        *self.meter() = Meter::new(new.current().topology.arc_count());
        self.publish_plan(&new);
        *planner = Some(new);
        Ok(())
    }

    /// Takes exactly these links as down, computes the affected paths again, and publishes the change. Returns whether
    /// any path changed.
    ///
    /// All other links are up. Rates stay as measured. Links that the network does not have are ignored.
    ///
    /// Before the first paths are computed it does nothing.
    pub fn set_down(&self, down: &BTreeSet<LinkId>) -> bool {
        self.planner().as_mut().is_some_and(|planner| self.follow_failures(planner, down))
    }

    fn follow_failures(&self, planner: &mut Planner, down: &BTreeSet<LinkId>) -> bool {
        let began = Instant::now();
        let recomputed = planner.set_down(down);
        let links = planner.current().topology.links();
        let names: Vec<&str> = down.iter().filter_map(|id| Some(links.get(id.index())?.name.as_str())).collect();
        tracing::info!(
            down = ?names,
            pairs = planner.pair_count(),
            computed = recomputed.computed,
            changed = recomputed.changed.len(),
            took = ?began.elapsed(),
            "links went down or up"
        );
        if recomputed.changed.is_empty() {
            return false;
        }
        self.publish_plan(planner);
        true
    }

    fn publish_plan(&self, planner: &Planner) {
        let plan = Arc::new(planner.current().clone());
        let meter = self.meter();
        let generation = self.published.borrow().generation + 1;
        self.published.send_replace(Arc::new(Snapshot { generation, rates: meter.rates(), plan, complete: true }));
    }

    /// Takes a router's counters, all or none; watchers see them with the next [`publish`](Self::publish).
    ///
    /// If a link went down or came up, watchers see the changed paths at once.
    pub fn record(&self, report: &UsageReport) -> Result<(), RequestError> {
        if self.take(report)? {
            self.follow_reports();
        }
        Ok(())
    }

    /// Takes a router's counters, all or none, and computes nothing; returns whether a link went down or came up.
    pub(crate) fn take(&self, report: &UsageReport) -> Result<bool, RequestError> {
        let snapshot = self.snapshot();
        let node = snapshot.router(&report.node)?;
        let arcs = snapshot.reported_arcs(report)?;
        let mut reported = self.reported();
        let before = reported.entry(node).or_default();
        if report.at < before.at {
            // Another daemon's first report. It may have been given other links.
            before.known.clear();
        }
        before.at = report.at;
        let mut down = before.known.clone();
        let mut meter = self.meter();
        for (arc, counter) in arcs.into_iter().zip(&report.counters) {
            meter.record(arc, report.at, counter.tx_bytes);
            before.known.insert(arc.link());
            // What is missing from the report although this daemon has reported it before has lost its interface.
            if counter.down {
                down.insert(arc.link())
            } else {
                down.remove(&arc.link())
            };
        }
        Ok(std::mem::replace(&mut before.down, down.clone()) != down)
    }

    /// Computes the paths for the links that are down by the last report of each router, and publishes the change.
    ///
    /// It may take long.
    pub(crate) fn follow_reports(&self) {
        // The planner first: a caller that comes after us sees all that was reported before.
        if let Some(planner) = self.planner().as_mut() {
            self.follow_failures(planner, &self.links_down());
        }
    }

    /// A link is down if either end reports it. The last report of a router holds until its next one.
    fn links_down(&self) -> BTreeSet<LinkId> {
        self.reported().values().flat_map(|router| &router.down).copied().collect()
    }

    /// Publishes the present rates; to be called once a second. Returns whether they changed.
    pub fn publish(&self) -> bool {
        let mut meter = self.meter();
        meter.tick();
        let rates = meter.rates();
        self.published.send_if_modified(|current| {
            let changed = current.rates != rates;
            if changed {
                let (plan, complete) = (current.plan.clone(), current.complete);
                *current = Arc::new(Snapshot { generation: current.generation + 1, plan, rates, complete });
            }
            changed
        })
    }

    /// All paths, by the names of the access routers.
    pub fn sets(&self) -> Vec<PairPaths> {
        let snapshot = self.snapshot();
        let plan = &snapshot.plan;
        let behind = |access: &[Access]| {
            plan.hosts.iter().filter(|host| host.access == access).map(|host| host.prefix).collect()
        };
        let names = |access: &[Access]| {
            let names: Vec<&str> = access.iter().map(|access| plan.name(access.router)).collect();
            names.join(",")
        };
        let mut sets: Vec<PairPaths> = plan
            .pairs
            .iter()
            .map(|(Ends { ingresses, egresses }, paths)| PairPaths {
                from: names(ingresses),
                to: names(egresses),
                sources: behind(ingresses),
                destinations: behind(egresses),
                paths: paths.iter().filter_map(|path| snapshot.path_info(path)).collect(),
            })
            .collect();
        sets.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
        sets
    }

    /// The bindings of all access routers, by their names.
    pub fn bindings(&self) -> Vec<RouterBindings> {
        let snapshot = self.snapshot();
        let access = snapshot.plan.hosts.iter().flat_map(|host| &host.access);
        let mut routers: Vec<NodeId> = access.map(|access| access.router).collect();
        routers.sort_by_key(|router| snapshot.plan.name(*router));
        routers.dedup();
        let bindings = |router| RouterBindings {
            router: snapshot.plan.name(router).into(),
            bindings: snapshot.bindings_of(router),
        };
        routers.into_iter().map(bindings).collect()
    }

    /// A channel with the present state and each later one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.published.subscribe()
    }

    /// Number of the present state.
    pub(crate) fn version(&self) -> u64 {
        self.snapshot().generation
    }

    /// How many watchers there are.
    pub(crate) fn watchers(&self) -> usize {
        self.published.receiver_count()
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.published.borrow().clone()
    }

    /// What matters now, in one line.
    pub fn status(&self) -> String {
        let snapshot = self.snapshot();
        if !snapshot.is_complete() {
            return format!("computing paths between {} hosts", snapshot.plan.hosts.len());
        }
        let Sizes { pairs, paths, .. } = snapshot.sizes();
        let (watchers, down) = (self.watchers(), self.links_down().len());
        format!("{paths} paths of {pairs} pairs; {watchers} agents and routers connected; {down} links down")
    }

    fn planner(&self) -> MutexGuard<'_, Option<Planner>> {
        self.planner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reported(&self) -> MutexGuard<'_, BTreeMap<NodeId, Reported>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        // No code that holds the lock panics half-way through a change.
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A consistent state of the controller.
pub(crate) struct Snapshot {
    generation: u64,
    plan: Arc<Plan>,
    /// The rate on each arc, by arc id.
    rates: Vec<Rate>,
    /// Whether the plan has its paths.
    complete: bool,
}

impl Snapshot {
    /// Whether the paths are computed. Watchers get nothing before that: they would take no paths for all there are.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether another state has the very same plan.
    pub(crate) fn has_plan_of(&self, other: &Snapshot) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan)
    }

    /// How large the plan is.
    pub(crate) fn sizes(&self) -> Sizes {
        self.plan.sizes
    }

    /// The update for a host.
    pub(crate) fn path_update(&self, host: &HostIdentity) -> Result<PathUpdate, RequestError> {
        let source = self.host(host)?;
        let plan = &self.plan;
        let set = |destination: &Host| {
            let ends = Ends { ingresses: source.access.clone(), egresses: destination.access.clone() };
            let paths = plan.pairs.get(&ends)?;
            let paths = paths.iter().filter_map(|path| self.host_path(source, destination, path)).collect();
            Some(PathSet { destination: destination.prefix, paths })
        };
        // A host with two access routers would else have paths to itself.
        let others = plan.hosts.iter().filter(|destination| destination.node != source.node);
        Ok(PathUpdate { generation: self.generation, sets: others.filter_map(set).collect() })
    }

    /// The update for an access router.
    pub(crate) fn binding_update(&self, router: &str) -> Result<BindingUpdate, RequestError> {
        Ok(BindingUpdate { generation: self.generation, bindings: self.bindings_of(self.router(router)?) })
    }

    fn host(&self, identity: &HostIdentity) -> Result<&Host, RequestError> {
        let plan = &self.plan;
        match identity {
            HostIdentity::Node(name) => {
                let node = plan.topology.find(name).map_err(|_| RequestError::UnknownNode(name.clone()))?;
                plan.hosts.iter().find(|host| host.node == node).ok_or_else(|| RequestError::NotAHost(name.clone()))
            }
            HostIdentity::Prefixes(prefixes) => {
                let mut found: Option<&Host> = None;
                for prefix in prefixes {
                    let host = self.host_with(*prefix)?;
                    match found {
                        Some(other) if other.node != host.node => {
                            let name = |host: &Host| plan.name(host.node).to_owned();
                            return Err(RequestError::TwoHosts(name(other), name(host)));
                        }
                        _ => found = Some(host),
                    }
                }
                found.ok_or_else(|| RequestError::UnknownNode(String::new()))
            }
        }
    }

    /// The host with the longest prefix that contains this one.
    fn host_with(&self, prefix: Ipv6Net) -> Result<&Host, RequestError> {
        let candidates = self.plan.hosts.iter().filter(|host| host.prefix.contains(&prefix));
        candidates.max_by_key(|host| host.prefix.prefix_len()).ok_or(RequestError::UnknownPrefix(prefix))
    }

    fn router(&self, name: &str) -> Result<NodeId, RequestError> {
        let topology = &self.plan.topology;
        let node = topology.find(name).map_err(|_| RequestError::UnknownNode(name.into()))?;
        if topology.is_router(node) { Ok(node) } else { Err(RequestError::NotARouter(name.into())) }
    }

    /// The arc of each counter: out of the reporting router, over the link named.
    fn reported_arcs(&self, report: &UsageReport) -> Result<Vec<ArcId>, RequestError> {
        let topology = &self.plan.topology;
        let node = self.router(&report.node)?;
        let named = |arc: &ArcId| (topology.link(arc.link()).name.as_str(), *arc);
        let outgoing: BTreeMap<&str, ArcId> = topology.outgoing(node).iter().map(named).collect();
        let arc = |link: &str| {
            let foreign = || RequestError::ForeignLink { node: report.node.clone(), link: link.into() };
            outgoing.get(link).copied().ok_or_else(foreign)
        };
        report.counters.iter().map(|counter| arc(&counter.link)).collect()
    }

    /// Each path once, even if several sets have it.
    fn bindings_of(&self, router: NodeId) -> Vec<Binding> {
        let paths = self.plan.beginning.get(&router).into_iter().flatten();
        let bound: BTreeMap<PathId, &RouterPath> = paths.map(|path| (path.id, path.as_ref())).collect();
        let binding = |path: &RouterPath| {
            let Plan { topology, locators, .. } = &*self.plan;
            let segments = locators.segments(topology, path)?;
            Some(Binding { path_id: path.id, binding_sid: locators.binding_sid(path)?, segments })
        };
        bound.into_values().filter_map(binding).collect()
    }

    /// The path between two routers as agents see it; `None` for a path of another network.
    fn router_path(&self, path: &RouterPath) -> Option<Path> {
        let topology = &self.plan.topology;
        let rate = |arc: ArcId| self.rates.get(arc.index()).copied().unwrap_or_default();
        Some(Path {
            id: path.id,
            name: path.name(topology),
            binding_sid: self.plan.locators.binding_sid(path)?,
            capacity: path.capacity,
            usage: path_usage(topology, &path.arcs, rate),
            delay: path.delay,
            rtt: path.delay + path.delay_back,
            route_mtu: path.mtu,
            plain_mtu: path.plain_mtu,
        })
    }

    /// The path between two hosts as agents see it: their own links add delay and limit the mtu.
    fn host_path(&self, source: &Host, destination: &Host, path: &Arc<RouterPath>) -> Option<Path> {
        let HostPath { delay, rtt, mtu, plain_mtu, .. } =
            HostPath::new(&self.plan.topology, &source.arcs, &destination.arcs, path)?;
        Some(Path { delay, rtt, route_mtu: mtu, plain_mtu, ..self.router_path(path)? })
    }

    fn path_info(&self, path: &RouterPath) -> Option<PathInfo> {
        let Plan { topology, locators, .. } = &*self.plan;
        let links = path.arcs.iter().map(|arc| topology.link(arc.link()).name.clone()).collect();
        Some(PathInfo { path: self.router_path(path)?, links, segments: locators.segments(topology, path)? })
    }
}
