//! Makes the kernel's rules, routes and the program's map say what the configuration says and what is there.

use sidestep_balance::ALL_LIVE;
use sidestep_hostd::{
    AgentError, paths, paths::DestinationPaths, paths::Exceptions, paths::HostPath, paths::Interfaces,
    paths::PathRoute, paths::Room, paths::StaticDestination, paths::tables, routing::Domain, routing::Drift,
    routing::Refusal, routing::RouteKey,
};
use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use sidestep_linux::{
    bpf::balance::{self, Site},
    netlink::{Family, LOCAL, MarkRule, Netlink, RouteRule},
};

use super::{
    Edge, Health,
    peer::{self, Peer},
};

/// Where an edge with these numbers has its rules and routes.
pub(super) fn domain(table_base: u32, priority: u32) -> Domain {
    Domain::tables(tables(table_base), priority..=priority)
}

/// Removes filters, rules and routes of an edge, whoever made them; returns whether there were any.
pub(super) async fn remove_all(netlink: &Netlink, table_base: u32, priority: u32) -> Result<bool, AgentError> {
    let mut found = false;
    for interface in netlink.interfaces().await? {
        found |= balance::remove(netlink, interface.index).await?;
    }
    found |= domain(table_base, priority).clear(netlink).await? > 0;
    Ok(found)
}

/// The rules and the places of routes that the kernel should have.
type Wanted = (BTreeSet<RouteRule>, BTreeSet<RouteKey>);

impl Edge {
    /// Rules and routes of paths are in place before the program names their slots; those of paths that are gone are removed
    /// after it no longer does.
    pub(super) async fn apply(&mut self) -> Result<(), AgentError> {
        let (mut sets, links) = self.present_sets().await?;
        let (wanted, refused) = self.place_all(&mut sets).await?;
        self.know(&sets, &links, &refused);
        self.refresh_probes()?;
        self.write_sites()?;
        self.tell_peer();
        self.attach_all().await?;
        if self.options.dry_run {
            return Ok(());
        }
        let (rules, routes) = &wanted;
        let prune = self.routing.prune(&self.netlink, |rule| rules.contains(rule), |key| routes.contains(key));
        Ok(prune.await?)
    }

    /// The sets of the configuration with the paths that are there now, those of the main table that win over them, and the
    /// interface of each path that has one.
    async fn present_sets(&mut self) -> Result<(Vec<DestinationPaths>, BTreeMap<u32, bool>), AgentError> {
        let links = self.netlink.interfaces().await?;
        let running = links.iter().map(|link| (link.index, link.running)).collect();
        let config = &self.options.config;
        let interfaces = Interfaces::read(&self.netlink, &links, &config.destinations).await?;
        let mut sets = paths::resolve_quietly(&config.destinations, &interfaces, &config.places);
        for path in sets.iter_mut().flat_map(|set| &mut set.paths) {
            // An edge forwards packets of others, into which no header should be inserted (RFC 8200, section 4). A Path ID alone
            // leaves no choice: its router takes no packet whose list ends with it.
            if let PathRoute::Segments(list) = &mut path.route {
                path.route = PathRoute::Encaps(std::mem::take(list));
            }
        }
        self.underlay.firsts = sets.iter().flat_map(|set| &set.paths).filter_map(HostPath::first_hop).collect();
        self.underlay.hops = paths::first_hops(&self.netlink, &self.underlay.firsts).await?;
        for set in &mut sets {
            set.paths.retain(|path| path.is_reachable(&self.underlay.hops));
        }
        self.underlay.exceptions = Exceptions::find(&self.netlink, &sets).await?;
        let left_alone = self.underlay.exceptions.sets(&sets);
        sets.extend(left_alone);
        Ok((sets, running))
    }

    /// Gives each path a slot, a rule for each interface of the site, and a route. Paths that the kernel refuses, for instance
    /// because their interface is down, leave their set, and are returned with the reason.
    async fn place_all(
        &mut self,
        sets: &mut [DestinationPaths],
    ) -> Result<(Wanted, BTreeMap<(IpNet, u32), String>), AgentError> {
        let mut refused = BTreeMap::new();
        let mut wanted;
        loop {
            let placement = paths::place(&self.slots, sets, self.most_slots(), &[], Room::Any);
            for set in sets.iter_mut() {
                *set = set.placed(&placement.slots);
            }
            wanted = paths::routes(sets, self.options.table_base, &self.underlay.hops);
            if self.options.dry_run {
                self.slots = placement.slots;
                return Ok((Wanted::default(), refused));
            }
            let Err(Refusal { key: (table, destination), error }) =
                self.routing.install_routes(&self.netlink, &wanted).await
            else {
                self.slots = placement.slots;
                break;
            };
            let leaves = |path: &HostPath| self.options.table_base + path.slot == table;
            let set = sets.iter_mut().find(|set| set.destination == destination);
            let path = set.and_then(|set| Some(set.paths.remove(set.paths.iter().position(leaves)?)));
            match path {
                // A privilege that lacks for one lacks for all.
                Some(path) if error.is_answer() && !error.is_environment() => {
                    refused.insert((destination, path.id), error.to_string());
                }
                _ => return Err(error.into()),
            }
        }
        let rules = self.rules(sets);
        self.routing.install_rules(&self.netlink, rules.iter().cloned()).await?;
        Ok(((rules, wanted.into_keys().collect()), refused))
    }

    /// A rule for each slot of a path and each interface by which its packets come.
    fn rules(&self, sets: &[DestinationPaths]) -> BTreeSet<RouteRule> {
        let slots = sets.iter().flat_map(|set| set.paths.iter().map(|path| (Family::of(set.destination), path.slot)));
        let slots: BTreeSet<_> = slots.collect();
        let of =
            |(family, slot): (Family, u32)| self.inputs().map(move |input| self.rule(family, slot).for_input(input));
        slots.into_iter().flat_map(of).collect()
    }

    /// Interfaces by which packets with our marks come in; probes come from this router itself.
    fn inputs(&self) -> impl Iterator<Item = &str> {
        let probes = self.options.config.probing().map(|_| LOCAL);
        self.knobs().inside.iter().map(String::as_str).chain(probes)
    }

    fn rule(&self, family: Family, slot: u32) -> MarkRule {
        let mask = self.loaded.mark_mask;
        let table = self.options.table_base + slot;
        MarkRule { family, mark: slot << mask.trailing_zeros(), mask, table, priority: self.options.priority }
    }

    /// Notes the destinations as they are here, and says which paths have died and which are alive again.
    fn know(
        &mut self,
        sets: &[DestinationPaths],
        running: &BTreeMap<u32, bool>,
        refused: &BTreeMap<(IpNet, u32), String>,
    ) {
        let mut dead = BTreeMap::new();
        let mut wanted: BTreeMap<IpNet, Option<Site>> = BTreeMap::new();
        for destination in &self.options.config.destinations {
            let set = sets.iter().find(|set| set.destination == destination.prefix);
            let site = self.site(destination, set, running, refused, &mut dead);
            wanted.insert(destination.prefix, site);
        }
        let inner = sets.iter().filter(|set| !wanted.contains_key(&set.destination)).map(|set| set.destination);
        let inner: Vec<_> = inner.collect();
        wanted.extend(inner.into_iter().map(|destination| (destination, None)));
        for (key, why) in dead.iter().filter(|(key, _)| !self.dead.contains_key(key)) {
            tracing::warn!(destination = %key.0, path = key.1, why, "a path is dead: its flows take the others");
        }
        for key in self.dead.keys().filter(|key| !dead.contains_key(key)) {
            tracing::info!(destination = %key.0, path = key.1, "a path is alive again");
        }
        (self.dead, self.known) = (dead, wanted);
    }

    /// Writes the destinations into the program's map where they have changed. A path that is dead at the other edge is dead
    /// here, so that both choose alike.
    pub(super) fn write_sites(&mut self) -> Result<(), AgentError> {
        let theirs = self.peer.as_ref().map(Peer::dead).filter(|_| self.knobs().health != Health::Off);
        let theirs = theirs.unwrap_or_default();
        let mut wanted = self.judged();
        for (destination, site) in &mut wanted {
            let Some(site) = site else { continue };
            for (position, path) in site.set.raw().path.iter().take(site.set.count() as usize).enumerate() {
                if theirs.contains(&(peer::version(*destination), path.id)) {
                    site.live &= !(1 << position);
                }
            }
        }
        for (destination, site) in &wanted {
            if self.sites.get(destination) != Some(site) {
                self.balancer.set_site(*destination, site.as_ref())?;
            }
        }
        let gone: Vec<_> = self.sites.keys().filter(|destination| !wanted.contains_key(destination)).copied().collect();
        self.sites = wanted;
        gone.into_iter().try_for_each(|destination| Ok(self.balancer.remove_site(destination)?))
    }

    /// The destinations as this edge knows them, by carrier and by probes. If both together leave no path, probes do not count.
    pub(super) fn judged(&self) -> BTreeMap<IpNet, Option<Site>> {
        let mut judged = self.known.clone();
        for (destination, site) in &mut judged {
            let (Some(site), Some(probes)) = (site, &self.probes) else { continue };
            let live = site.live & !probes.dead(destination);
            if live != 0 {
                site.live = live;
            }
        }
        judged
    }

    /// A destination as the program has it. All its paths are in the set, those that are not there too: positions, and so the
    /// other edge's choice, do not depend on what is there here.
    fn site(
        &self,
        destination: &StaticDestination,
        placed: Option<&DestinationPaths>,
        running: &BTreeMap<u32, bool>,
        refused: &BTreeMap<(IpNet, u32), String>,
        dead: &mut BTreeMap<(IpNet, String), String>,
    ) -> Option<Site> {
        let set = self.options.config.set_of(destination).ok()?;
        let mut site = Site { set, live: 0, slots: Vec::new(), arrives: Vec::new() };
        for (position, path) in destination.paths.iter().enumerate() {
            let name = path.name.clone().unwrap_or_default();
            let present = placed.and_then(|set| set.paths.iter().find(|other| other.name == name));
            let (mut slot, mut arrives, mut why) = (0, 0, None);
            match present {
                None => {
                    let id = destination.path_ids().get(&path.key()).map_or(0, |id| id.get());
                    let reason = refused.get(&(destination.prefix, id)).cloned();
                    why = Some(
                        reason.unwrap_or_else(|| "its interface or a route to its first segment is missing".into()),
                    );
                }
                Some(present) => {
                    slot = u8::try_from(present.slot).unwrap_or_default();
                    let interface = match &present.route {
                        PathRoute::Via(_, index) | PathRoute::OnLink(index) => Some(*index),
                        _ => None,
                    };
                    arrives = interface.unwrap_or(0);
                    let hop = || {
                        present.first_hop().and_then(|first| self.underlay.hops.get(&first)).map(|hop| hop.interface)
                    };
                    if interface.or_else(hop).is_some_and(|index| running.get(&index) != Some(&true)) {
                        why = Some("its interface is down or has no carrier".into());
                    }
                }
            }
            site.live |= u32::from(why.is_none()) << position;
            site.slots.push(slot);
            site.arrives.push(arrives);
            if let Some(why) = why {
                dead.insert((destination.prefix, name), why);
            }
        }
        if self.knobs().health == Health::Off {
            site.live = ALL_LIVE;
        }
        Some(site)
    }

    /// Compares the kernel with what it should have; returns whether anything has to be put back or removed, or a path begins
    /// with another hop than before.
    pub(super) async fn differs(&mut self) -> Result<bool, AgentError> {
        let drift = if self.options.dry_run { Drift::default() } else { self.routing.compare(&self.netlink).await? };
        drift.log();
        self.mended += drift.lost() as u64;
        Ok(drift.is_any() || self.underlay.has_changed(&self.netlink).await?)
    }
}
