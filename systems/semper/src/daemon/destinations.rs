//! The destinations with the paths that are alive: as this edge knows them, and as the program has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use ipnet::IpNet;
use sidestep_balance::ALL_LIVE;
use sidestep_hostd::{
    AgentError,
    paths::{DestinationPaths, PathRoute, StaticDestination},
};
use sidestep_linux::netlink::NextHop;

use super::{
    EdgeConfig, Health,
    path_routing::Refused,
    peer,
    probes::{Probes, Sites},
};
use crate::daemon::balancer::{Balancer, Site};

/// The destinations.
#[derive(Default)]
pub(super) struct Destinations {
    /// As this edge knows them; `None` for those without paths.
    known: Sites,
    /// The same as the program has them: paths that are dead at the other edge are dead here.
    written: Sites,
    /// Why a path is dead, by destination and name.
    dead: BTreeMap<(IpNet, String), String>,
}

/// What was found of interfaces and routes.
pub(super) struct Found<'a> {
    /// Whether an interface has a carrier.
    pub(super) running: &'a BTreeMap<u32, bool>,
    pub(super) refused: &'a Refused,
    /// The next hops to first segments.
    pub(super) hops: &'a BTreeMap<Ipv6Addr, NextHop>,
}

impl Destinations {
    /// As this edge knows them by carrier.
    pub(super) fn known(&self) -> &Sites {
        &self.known
    }

    /// As the program has them.
    pub(super) fn written(&self) -> &Sites {
        &self.written
    }

    /// How many paths are dead.
    pub(super) fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// Why a path is dead, if it is.
    pub(super) fn why_dead(&self, destination: IpNet, path: &str) -> Option<String> {
        self.dead.get(&(destination, path.to_string())).cloned()
    }

    /// Notes the destinations as they are here, and reports which paths have died and which are alive again.
    pub(super) fn know(&mut self, config: &EdgeConfig, sets: &[DestinationPaths], found: &Found<'_>) {
        let mut dead = BTreeMap::new();
        let mut wanted: Sites = BTreeMap::new();
        for destination in &config.destinations {
            let set = sets.iter().find(|set| set.destination == destination.prefix);
            let site = found.site(config, destination, set, &mut dead);
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
    pub(super) fn write(
        &mut self,
        balancer: &mut Balancer,
        probes: Option<&Probes>,
        theirs: &BTreeSet<(u8, u32)>,
    ) -> Result<(), AgentError> {
        let mut wanted = self.judged(probes);
        for (destination, site) in &mut wanted {
            let Some(site) = site else { continue };
            for (position, path) in site.set.raw().path.iter().take(site.set.count() as usize).enumerate() {
                if theirs.contains(&(peer::version(*destination), path.id)) {
                    site.live &= !(1 << position);
                }
            }
        }
        for (destination, site) in &wanted {
            if self.written.get(destination) != Some(site) {
                balancer.set_site(*destination, site.as_ref())?;
            }
        }
        let gone: Vec<_> =
            self.written.keys().filter(|destination| !wanted.contains_key(destination)).copied().collect();
        self.written = wanted;
        gone.into_iter().try_for_each(|destination| Ok(balancer.remove_site(destination)?))
    }

    /// The destinations as this edge knows them, by carrier and by probes. If both together leave no path, probes do not count.
    pub(super) fn judged(&self, probes: Option<&Probes>) -> Sites {
        let mut judged = self.known.clone();
        for (destination, site) in &mut judged {
            let (Some(site), Some(probes)) = (site, probes) else { continue };
            let live = site.live & !probes.dead(destination);
            if live != 0 {
                site.live = live;
            }
        }
        judged
    }
}

impl Found<'_> {
    /// A destination as the program has it. All its paths are in the set, those that are not there too: positions, and so the
    /// other edge's choice, do not depend on what is there here.
    fn site(
        &self,
        config: &EdgeConfig,
        destination: &StaticDestination,
        placed: Option<&DestinationPaths>,
        dead: &mut BTreeMap<(IpNet, String), String>,
    ) -> Option<Site> {
        let set = config.set_of(destination).ok()?;
        let mut site = Site { set, live: 0, slots: Vec::new(), arrives: Vec::new() };
        for (position, path) in destination.paths.iter().enumerate() {
            let name = path.name.clone().unwrap_or_default();
            let present = placed.and_then(|set| set.paths.iter().find(|other| other.name == name));
            let (mut slot, mut arrives, mut why) = (0, 0, None);
            match present {
                None => {
                    let id = destination.path_ids().get(&path.key()).map_or(0, |id| id.get());
                    let reason = self.refused.get(&(destination.prefix, id)).cloned();
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
                    let hop = || present.first_hop().and_then(|first| self.hops.get(&first)).map(|hop| hop.interface);
                    if interface.or_else(hop).is_some_and(|index| self.running.get(&index) != Some(&true)) {
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
        if config.edge.health == Health::Off {
            site.live = ALL_LIVE;
        }
        Some(site)
    }
}
