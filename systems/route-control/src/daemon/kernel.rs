//! Makes the kernel's rules and routes follow what was decided.
//!
//! Each egress has a routing table with the destinations and its targets. One more table has the destinations by the egress in use,
//! and the last one refuses them. All are ours alone, and rules lead there:
//!
//! ```text
//! P      fwmark of egress K    lookup table of K     probes of K
//! P      from PREFIX of K      lookup table of K     packets with a source of the provider behind K
//! P+1    the same              lookup refuse         which never leave by another egress
//! P+2    all                   lookup decision       everything else
//! ```
//!
//! Where the main table has a more specific route than a destination, all tables throw packets back to it. A move replaces the
//! routes of the decision table, each in one step.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    paths::{MarkBits, tables},
    routing::{Domain, KernelRouting, Refusal, RouteKey, Routes},
};
use sidestep_linux::{
    bpf::MAX_SLOTS,
    netlink::{Family, InnerRoute, MAIN_TABLE, Netlink, NextHop, Route, RouteRule, RoutingChange, Target},
    nftables::FlowTable,
};
use tokio::time::Instant;

use super::{
    RouteControl, RouteControlConfig, RouteControlOptions,
    ways::{Network, Ways},
};

/// Most routes of the main table within the destinations that are heeded.
const MAX_INNER: usize = 1_024;

/// Numbers of tables, rules and marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) base: u32,
    pub(super) priority: u32,
    pub(super) mask: u32,
}

impl Numbers {
    pub(super) fn of(options: &RouteControlOptions) -> Self {
        let mask = options.config.route_control.mark_mask;
        Numbers { base: options.table_base, priority: options.priority, mask }
    }

    /// The table of an egress.
    pub(super) fn table(self, egress: usize) -> u32 {
        self.base + 1 + egress as u32
    }

    /// The table with the egress in use.
    pub(super) fn decision(self) -> u32 {
        self.base + MAX_SLOTS - 1
    }

    /// The table that refuses what may leave by one egress only.
    fn refuse(self) -> u32 {
        self.base + MAX_SLOTS
    }

    /// The mark of an egress.
    pub(super) fn mark(self, egress: usize) -> u32 {
        (egress as u32 + 1) << MarkBits::new(self.mask).shift
    }

    /// Where the rules and routes are.
    pub(super) fn domain(self) -> Domain {
        Domain::tables(tables(self.base), self.priority..=self.priority.saturating_add(2))
    }

    /// The rules.
    fn rules(self, config: &RouteControlConfig, ways: &[Ways]) -> BTreeSet<RouteRule> {
        let mut rules = BTreeSet::new();
        let families: BTreeSet<_> =
            config.families().into_iter().chain(config.targets.iter().map(|target| target.family())).collect();
        let Numbers { priority, .. } = self;
        let all = RouteRule { family: Family::V4, mark: None, source: None, input: None, table: 0, priority };
        for egress in 0..config.egresses.len() {
            let marks = families.iter().map(|family| RouteRule {
                family: *family,
                mark: Some((self.mark(egress), self.mask)),
                ..all.clone()
            });
            let sources = ways.get(egress).into_iter().flat_map(|ways| &ways.sources).map(|source| RouteRule {
                family: Family::of(*source),
                source: Some(source.trunc()),
                ..all.clone()
            });
            for rule in marks.chain(sources) {
                rules.insert(RouteRule { table: self.table(egress), ..rule.clone() });
                rules.insert(RouteRule { table: self.refuse(), priority: priority + 1, ..rule });
            }
        }
        let decision = |family| RouteRule { family, table: self.decision(), priority: priority + 2, ..all.clone() };
        rules.extend(config.families().into_iter().map(decision));
        rules
    }
}

/// By family: the egress that packets take by the decision table, if the kernel has such routes.
pub(super) async fn inherited_egresses(
    netlink: &Netlink,
    config: &RouteControlConfig,
    numbers: Numbers,
) -> Result<BTreeMap<Family, usize>, AgentError> {
    let ways = Network::read(netlink, config).await?.ways(config);
    let mut found = BTreeMap::new();
    for family in config.families() {
        for (egress, ways) in ways.iter().enumerate() {
            let routes = decision_routes(config, numbers, ways, family);
            if !routes.is_empty() && netlink.missing_routes(&routes).await?.is_empty() {
                found.insert(family, egress);
                break;
            }
        }
    }
    Ok(found)
}

/// Removes rules and routes of a route controller, also those that other programs made; returns whether there were any.
pub(super) async fn remove_all(netlink: &Netlink, table_base: u32, priority: u32) -> Result<bool, AgentError> {
    let numbers = Numbers { base: table_base, priority, mask: 0 };
    let found = FlowTable::open(&super::flows::name(table_base), 0)?.remove()?;
    Ok(numbers.domain().clear(netlink).await? > 0 || found)
}

/// Whether a change is of a route of the main table within the destinations.
pub(super) fn is_inner(destinations: &[IpNet], change: &RoutingChange) -> bool {
    let RoutingChange::Route { route, .. } = change else { return false };
    route.table() == MAIN_TABLE && destinations.iter().any(|around| around.contains(&route.destination()))
}

/// The routes of a family in the decision table by an egress that leads so.
fn decision_routes(config: &RouteControlConfig, numbers: Numbers, ways: &Ways, family: Family) -> Routes {
    let Some((link, way)) = ways.link.as_ref().zip(ways.of(family).ok()) else { return BTreeMap::new() };
    let table = numbers.decision();
    let route = |destination: &IpNet| {
        let target = lead(way.hop, link.index);
        let route = Route { table, destination: *destination, target, mtu: None };
        ((table, *destination), route)
    };
    let destinations = config.route_control.destinations.iter();
    destinations.filter(|destination| Family::of(**destination) == family).map(route).collect()
}

/// Where a route by an egress leads. The kernel must not look for a path to the next hop: for IPv6 it would find our own
/// routes that throw, and refuse.
fn lead(via: Option<IpAddr>, interface: u32) -> Target {
    let hop = NextHop { via, interface };
    if via.is_some() { Target::OnLink(hop) } else { Target::Via(vec![hop]) }
}

/// The daemon's rules and routes in the kernel, and what they leave to the main table.
pub(super) struct Tables {
    pub(super) kernel: KernelRouting,
    /// What the main table has within the destinations.
    inner: Vec<InnerRoute>,
    /// When egresses whose routes were refused are tried again.
    pub(super) again: Option<Instant>,
}

impl Tables {
    /// Nothing is installed yet.
    pub(super) fn new(numbers: Numbers) -> Self {
        Tables { kernel: KernelRouting::new(numbers.domain()), inner: Vec::new(), again: None }
    }

    /// Whether routes that were refused should be tried again now.
    pub(super) fn is_due(&self) -> bool {
        self.again.is_some_and(|again| again <= Instant::now())
    }

    /// Reads what the main table has within the destinations.
    async fn read_inner(&mut self, netlink: &Netlink, destinations: &[IpNet]) -> Result<(), AgentError> {
        let inner = netlink.inner_routes(destinations).await?;
        if inner.len() > MAX_INNER && self.inner.len() <= MAX_INNER {
            tracing::warn!(
                routes = inner.len(),
                most = MAX_INNER,
                "the main table has too many routes within the destinations: only connected subnets are left alone"
            );
        }
        self.inner = inner;
        Ok(())
    }

    /// Whether the main table has other routes within the destinations than when they were read.
    async fn has_other_inner(&self, netlink: &Netlink, destinations: &[IpNet]) -> Result<bool, AgentError> {
        Ok(netlink.inner_routes(destinations).await? != self.inner)
    }

    /// The routes of one family in an egress's own table.
    fn of_egress(
        &self,
        config: &RouteControlConfig,
        numbers: Numbers,
        (egress, ways): (usize, &Ways),
        (of_family, interface): (Family, u32),
    ) -> Routes {
        let table = numbers.table(egress);
        let mut routes = self.thrown(table);
        routes.retain(|(_, destination), _| Family::of(*destination) == of_family);
        let Ok(way) = ways.of(of_family) else { return routes };
        let targets = config.targets.iter().map(|target| IpNet::from(target.address));
        let all = config.route_control.destinations.iter().copied().chain(targets);
        for destination in all.filter(|destination| Family::of(*destination) == of_family) {
            let target = lead(way.hop, interface);
            let route = Route { table, destination, target, mtu: None };
            routes.insert((table, destination), route);
        }
        routes
    }

    /// The routes that refuse what may leave by one egress only.
    fn refusals(&self, config: &RouteControlConfig, numbers: Numbers) -> Routes {
        let table = numbers.refuse();
        let mut routes = self.thrown(table);
        let targets = config.targets.iter().map(|target| IpNet::from(target.address));
        for destination in config.route_control.destinations.iter().copied().chain(targets) {
            let route = Route { table, destination, target: Target::Unreachable, mtu: None };
            routes.insert((table, destination), route);
        }
        routes
    }

    /// Routes of the main table within the destinations, to which a table leaves their packets.
    fn thrown(&self, table: u32) -> Routes {
        let all = self.inner.len() <= MAX_INNER;
        let heeded = self.inner.iter().filter(|inner| all || inner.connected).take(MAX_INNER);
        let route = |inner: &InnerRoute| {
            let destination = inner.destination;
            ((table, destination), Route { table, destination, target: Target::Throw, mtu: None })
        };
        heeded.map(route).collect()
    }
}

impl RouteControl {
    pub(super) fn numbers(&self) -> Numbers {
        Numbers::of(&self.options)
    }

    /// Reports to the controllers which egresses can be used at all.
    pub(super) fn report_carriers(&mut self) {
        let now = sidestep_linux::monotonic_now();
        let decides: Vec<Family> =
            self.sides.iter().filter(|side| side.follows.is_none()).map(|side| side.family).collect();
        for family in decides {
            for egress in 0..self.egresses.len() {
                let usable = self.why_unusable(egress, family).is_none();
                let Some(side) = self.side_mut(family) else { continue };
                if let Some(known) = side.usable.get_mut(egress).filter(|known| **known != usable) {
                    *known = usable;
                    side.controller.handle_carrier(now, egress, usable);
                }
            }
            self.take_decision(family);
        }
    }

    /// Why no packet of a family can leave by an egress, as far as this router knows.
    pub(super) fn why_unusable(&self, egress: usize, family: Family) -> Option<String> {
        self.egresses.why_unusable(&self.options.config, egress, family)
    }

    /// The routes that the kernel should have, by what it refuses: those of an egress's own table, or of the egress in use.
    fn wanted(&self) -> Vec<(Option<(usize, Family)>, Routes)> {
        let (config, numbers, tables) = (&self.options.config, self.numbers(), &self.tables);
        let mut wanted = vec![(None, tables.refusals(config, numbers))];
        for family in config.sides() {
            for egress in 0..self.egresses.len() {
                let Some(interface) = self.egresses.interface(config, egress, family) else { continue };
                let Some(ways) = self.egresses.ways.get(egress) else { continue };
                let routes = tables.of_egress(config, numbers, (egress, ways), (family, interface));
                wanted.push((Some((egress, family)), routes));
            }
        }
        wanted.push((None, tables.thrown(numbers.decision())));
        for (family, active) in self.all_active() {
            wanted.extend(self.steering(family, active).map(|routes| (Some((active, family)), routes)));
        }
        wanted
    }

    /// The routes of a family by the egress in use.
    fn steering(&self, family: Family, active: usize) -> Option<Routes> {
        let config = &self.options.config;
        self.egresses.interface(config, active, family)?;
        Some(decision_routes(config, self.numbers(), self.egresses.ways.get(active)?, family))
    }

    /// Makes packets take the egress in use; everything else is as it should be.
    pub(super) async fn steer(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run || !self.tenure.is_at_work() {
            return Ok(());
        }
        for (family, active) in self.all_active() {
            if let Some(routes) = self.steering(family, active) {
                self.tables.kernel.install_routes(&self.netlink, &routes).await.map_err(|refusal| refusal.error)?;
            }
        }
        Ok(())
    }

    /// Makes the kernel have all rules and routes, the new ones before any old one goes.
    pub(super) async fn apply(&mut self) -> Result<(), AgentError> {
        self.tables.read_inner(&self.netlink, &self.options.config.route_control.destinations).await?;
        if self.options.dry_run {
            return Ok(());
        }
        let mut wanted = self.wanted();
        // What the kernel refuses makes another egress the one in use, so this ends with the last egress at the latest.
        for _ in 0..=self.egresses.len() * Family::ALL.len() {
            let mut refusal = None;
            for (egress, routes) in &wanted {
                let installed = self.tables.kernel.install_routes(&self.netlink, routes).await;
                let Err(Refusal { error, .. }) = installed else { continue };
                let Some(place) = egress.filter(|_| error.is_answer() && !error.is_environment()) else {
                    return Err(error.into());
                };
                refusal = Some((place, error.to_string()));
                break;
            }
            let Some(((egress, family), why)) = refusal else { break };
            let (name, of) = (self.name(egress), family.to_string());
            tracing::warn!(egress = name, family = of, why, "the kernel takes no route by an egress, which is left");
            self.egresses.refuse(egress, family, why);
            self.report_carriers();
            wanted = self.wanted();
        }
        let rules = self.numbers().rules(&self.options.config, &self.egresses.ways);
        self.tables.kernel.install_rules(&self.netlink, rules.iter().cloned()).await?;
        self.apply_flows()?;
        let routes: BTreeSet<RouteKey> = wanted.into_iter().flat_map(|(_, routes)| routes.into_keys()).collect();
        let prune = self.tables.kernel.prune(&self.netlink, |rule| rules.contains(rule), |key| routes.contains(key));
        Ok(prune.await?)
    }

    /// Compares the kernel with what it should have; returns whether anything has to be put back or removed.
    pub(super) async fn differs(&mut self) -> Result<bool, AgentError> {
        if self.options.dry_run {
            return Ok(false);
        }
        let drift = self.tables.kernel.compare(&self.netlink).await?;
        drift.log();
        self.others.count(drift.lost());
        let flows_changed = self.forget_lost_flows()?;
        self.others.count(usize::from(flows_changed));
        let inner = self.tables.has_other_inner(&self.netlink, &self.options.config.route_control.destinations).await?;
        Ok(drift.is_any() || flows_changed || inner)
    }
}
