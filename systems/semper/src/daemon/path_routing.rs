//! The rules and routes that lead marked packets along their paths.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    paths::{self, DestinationPaths, Exceptions, HostPath, Interfaces, MarkBits, PathRoute, Room, Slots, Underlay},
    routing::{Drift, KernelRouting, Refusal, RouteKey},
};
use sidestep_linux::netlink::{Family, LOCAL, MarkRule, Netlink, RouteRule, RoutingChange};

use super::{EdgeConfig, EdgeOptions, kernel::domain};

/// The numbers by which packets are led: tables, priority of rules, and bits of the mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) table_base: u32,
    pub(super) priority: u32,
    pub(super) mask: u32,
}

/// The slot of each path, and what leads packets with its mark. A dry run installs nothing.
pub(super) struct PathRouting {
    pub(super) numbers: Numbers,
    dry_run: bool,
    slots: Slots,
    kernel: KernelRouting,
    /// What paths depend on in the kernel's other tables.
    pub(super) underlay: Underlay,
}

/// The rules and the places of routes that the kernel should have.
pub(super) type Wanted = (BTreeSet<RouteRule>, BTreeSet<RouteKey>);

/// Why the kernel takes no route of a path, by destination and Path ID.
pub(super) type Refused = BTreeMap<(IpNet, u32), String>;

impl PathRouting {
    /// No path has a slot yet. `mask` is that of the marks which the program sets.
    pub(super) fn new(options: &EdgeOptions, mask: u32) -> Self {
        let numbers = Numbers { table_base: options.table_base, priority: options.priority, mask };
        PathRouting {
            numbers,
            dry_run: options.dry_run,
            slots: Slots::new(),
            kernel: KernelRouting::new(domain(options.table_base, options.priority)),
            underlay: Underlay::default(),
        }
    }

    /// The slot of each path.
    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Whether a change in the kernel is one after which rules or routes may not be as they should.
    pub(super) fn concerns(&self, change: &RoutingChange) -> bool {
        self.kernel.concerns(change) || self.underlay.concerns(&self.kernel, change)
    }

    /// Notes that the kernel may have none of the routes, as when it has removed them with an interface.
    pub(super) fn forget_routes(&mut self) {
        self.kernel.forget_routes();
    }

    /// Notes what the kernel lacks; returns what is new about it.
    pub(super) async fn compare(&mut self, netlink: &Netlink) -> Result<Drift, AgentError> {
        let drift = if self.dry_run { Drift::default() } else { self.kernel.compare(netlink).await? };
        drift.log();
        Ok(drift)
    }

    /// Removes the rules and routes that are not wanted.
    pub(super) async fn prune(&mut self, netlink: &Netlink, (rules, routes): &Wanted) -> Result<(), AgentError> {
        if self.dry_run {
            return Ok(());
        }
        let prune = self.kernel.prune(netlink, |rule| rules.contains(rule), |key| routes.contains(key));
        Ok(prune.await?)
    }

    /// The sets of the configuration with the paths that are there now, those of the main table that win over them, and the
    /// interface of each path that has one.
    pub(super) async fn present_sets(
        &mut self,
        netlink: &Netlink,
        config: &EdgeConfig,
    ) -> Result<(Vec<DestinationPaths>, BTreeMap<u32, bool>), AgentError> {
        let links = netlink.interfaces().await?;
        let running = links.iter().map(|link| (link.index, link.running)).collect();
        let interfaces = Interfaces::read(netlink, &links, &config.destinations).await?;
        let mut sets = paths::resolve_quietly(&config.destinations, &interfaces, &config.places);
        for path in sets.iter_mut().flat_map(|set| &mut set.paths) {
            // An edge forwards packets of others, into which no header should be inserted (RFC 8200, section 4). A Path ID alone
            // leaves no choice: its router takes no packet whose list ends with it.
            if let PathRoute::Segments(list) = &mut path.route {
                path.route = PathRoute::Encaps(std::mem::take(list));
            }
        }
        self.underlay.firsts = sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::first_hop).collect();
        self.underlay.hops = paths::first_hops(netlink, &self.underlay.firsts).await?;
        for set in &mut sets {
            set.paths.retain(|path| path.is_reachable(&self.underlay.hops));
        }
        self.underlay.exceptions = Exceptions::find(netlink, &sets).await?;
        let left_alone = self.underlay.exceptions.sets(&sets);
        sets.extend(left_alone);
        Ok((sets, running))
    }

    /// Gives each path a slot, a rule for each interface of the site, and a route. Paths that the kernel refuses, for instance
    /// because their interface is down, leave their set, and are returned with the reason.
    pub(super) async fn place_all(
        &mut self,
        netlink: &Netlink,
        config: &EdgeConfig,
        sets: &mut [DestinationPaths],
    ) -> Result<(Wanted, Refused), AgentError> {
        let mut refused = Refused::new();
        let mut wanted;
        loop {
            let placement = paths::place(&self.slots, sets, MarkBits::new(self.numbers.mask).slots(), &[], Room::Any);
            for set in sets.iter_mut() {
                *set = set.placed(&placement.slots);
            }
            wanted = paths::routes(sets, self.numbers.table_base, &self.underlay.hops);
            if self.dry_run {
                self.slots = placement.slots;
                return Ok((Wanted::default(), refused));
            }
            let Err(refusal) = self.kernel.install_routes(netlink, &wanted).await else {
                self.slots = placement.slots;
                break;
            };
            let Some(path) = paths::take_refused(sets, self.numbers.table_base, &refusal) else {
                return Err(refusal.error.into());
            };
            let Refusal { key: (_, destination), error } = refusal;
            refused.insert((destination, path.id), error.to_string());
        }
        let rules = self.rules(config, sets);
        self.kernel.install_rules(netlink, rules.iter().cloned()).await?;
        Ok(((rules, wanted.into_keys().collect()), refused))
    }

    /// A rule for each slot of a path and each interface by which its packets come.
    fn rules(&self, config: &EdgeConfig, sets: &[DestinationPaths]) -> BTreeSet<RouteRule> {
        let of =
            |(family, slot): (Family, u32)| inputs(config).map(move |input| self.rule(family, slot).for_input(input));
        paths::used_slots(sets).into_iter().flat_map(of).collect()
    }

    fn rule(&self, family: Family, slot: u32) -> MarkRule {
        let Numbers { table_base, priority, mask } = self.numbers;
        let table = table_base + slot;
        MarkRule { family, mark: slot << mask.trailing_zeros(), mask, table, priority }
    }
}

/// Interfaces by which packets with our marks come in; probes come from this router itself.
fn inputs(config: &EdgeConfig) -> impl Iterator<Item = &str> {
    let probes = config.probing().map(|_| LOCAL);
    config.edge.inside.iter().map(String::as_str).chain(probes)
}
