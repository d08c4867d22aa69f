//! Follows the network: addresses, default routes, interfaces that come, go and change, and times in which nothing ran.

use std::time::Duration;

use sidestep_hostd::AgentError;
use sidestep_linux::{monotonic_now, netlink::Family};
use tokio::time::Instant;

use super::{
    RouteControl, sources,
    ways::{Network, WayStatus, Ways},
};

/// An address or a default route may be gone for so long while it is replaced, as a client of DHCP does it. A link that is down is down.
const GRACE: Duration = Duration::from_millis(500);
/// Longer than the daemon sleeps: it looks around once a second at the least.
pub(super) const PAUSE: sidestep_net::Span = sidestep_net::Span::from_millis(1_500);

/// Why packets of a family cannot be probed, and since when a path is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    /// Logged already: why probes of the family cannot be sent.
    pub(super) unprobed: Option<String>,
    /// When the path was missed first.
    missed: Option<Instant>,
}

impl Followed {
    /// Takes note whether the path is missed `now`; returns until when it is kept.
    pub(super) fn miss(&mut self, is_missed: bool, now: Instant) -> Option<Instant> {
        self.missed = is_missed.then(|| self.missed.unwrap_or(now));
        self.missed.map(|missed| missed + GRACE)
    }
}

impl RouteControl {
    /// Reads where each egress leads now, and reports to the controller which can be used at all.
    pub(super) async fn read_links(&mut self) -> Result<(), AgentError> {
        let network = Network::read(&self.netlink, &self.options.config).await?;
        let before = self.egresses.replace(network.ways(&self.options.config));
        for egress in 0..self.egresses.ways.len() {
            self.log_ways(egress, before.get(egress));
        }
        self.log_unclaimed(&network);
        self.follow_sockets();
        self.look_at_probing();
        self.report_carriers();
        Ok(())
    }

    /// Logs where an egress leads, when that has changed.
    fn log_ways(&self, egress: usize, before: Option<&Ways>) {
        let (Some(ways), Some(of)) = (self.egresses.ways.get(egress), self.options.config.egresses.get(egress)) else {
            return;
        };
        for family in Family::ALL {
            let Ok(way) = ways.of(family) else { continue };
            if before.is_some_and(|before| before.of(family) == Ok(way)) || !self.tenure.is_at_work() && !of.follows() {
                continue;
            }
            let via = way.hop.map_or_else(|| "the link itself".to_string(), |hop| hop.to_string());
            let from = way.source.map_or_else(|| "any address".to_string(), |source| source.to_string());
            tracing::info!(egress = of.name, "{family} leaves {} by {via}, from {from}", of.dev);
        }
        if of.follows_sources() && before.is_some_and(|before| before.sources != ways.sources) {
            let sources: Vec<_> = ways.sources.iter().map(ToString::to_string).collect();
            tracing::info!(egress = of.name, "sources of {}: {}", of.name, sources.join(" "));
        }
    }

    /// Logs once which delegated prefixes belong to no egress as far as is known.
    fn log_unclaimed(&mut self, network: &Network) {
        if !self.options.config.egresses.iter().any(super::EgressConfig::follows_sources) {
            return;
        }
        for prefix in sources::unclaimed(&self.options.config, network) {
            let said = format!("delegated {prefix}");
            if self.said.insert(said) {
                tracing::warn!(
                    "{prefix} seems to be delegated, and nothing says by which provider: name it as `source` of its egress"
                );
            }
        }
    }

    /// Makes the sockets those of the addresses and interfaces that are there.
    fn follow_sockets(&mut self) {
        let given_up = self.probers.follow(&self.options.config, self.numbers(), &self.egresses);
        for (family, probe) in given_up {
            if let Some(side) = self.side_mut(family) {
                side.controller.handle_void(probe);
            }
        }
    }

    /// Sends a probe. One that the host cannot send is no loss.
    pub(super) fn send(&mut self, family: Family, probe: crate::Probe) {
        let Some(target) = self.side(family).and_then(|side| side.controller.target(probe)) else { return };
        let void = self.probers.send(target, probe);
        let Some(side) = self.side_mut(family) else { return };
        void.into_iter().for_each(|probe| side.controller.handle_void(probe));
    }

    /// Why probes of a family by an egress cannot be sent; `None` if those to some target can.
    fn why_unprobed(&self, egress: usize, family: Family) -> Option<String> {
        self.probers.why_not(&self.options.config, &self.egresses, egress, family)
    }

    /// Whether nothing is known of an egress for a family because none of its probes can be sent.
    pub(super) fn is_unprobed(&self, family: Family, egress: usize) -> bool {
        !self.probers.have_targets(egress, family) || self.why_unprobed(egress, family).is_some()
    }

    /// How packets of each family leave by an egress.
    pub(super) fn way_statuses(&self, egress: usize) -> Vec<WayStatus> {
        let Some(ways) = self.egresses.ways.get(egress) else { return Vec::new() };
        let families = Family::ALL.into_iter().filter(|family| ways.has(*family));
        let status = |family| {
            let way = ways.of(family);
            WayStatus {
                family: family.to_string(),
                via: way.ok().and_then(|way| way.hop),
                from: way.ok().and_then(|way| way.source),
                missing: way.err().map(str::to_string),
                unprobed: self.why_unprobed(egress, family),
            }
        };
        families.map(status).collect()
    }

    /// Logs which egresses cannot be probed any more, and which can again.
    pub(super) fn look_at_probing(&mut self) {
        for egress in 0..self.egresses.followed.len() {
            for (place, family) in Family::ALL.into_iter().enumerate() {
                let why = self.why_unprobed(egress, family);
                let name = self.name(egress).to_string();
                let Some(of) = self.egresses.followed.get_mut(egress).and_then(|of| of.get_mut(place)) else {
                    continue;
                };
                match (&of.unprobed, &why) {
                    (None, Some(why)) => {
                        tracing::warn!(egress = name, %family, why, "an egress cannot be probed: nothing is known of it");
                    }
                    (Some(_), None) => tracing::warn!(egress = name, %family, "an egress can be probed again"),
                    (Some(before), Some(why)) if before != why => {
                        tracing::warn!(egress = name, %family, why, "an egress cannot be probed, for another reason now");
                    }
                    _ => {}
                }
                of.unprobed = why;
                let is_unprobed = self.is_unprobed(family, egress);
                if let Some(side) = self.side_mut(family).filter(|_| is_unprobed) {
                    side.controller.forget_health(egress);
                }
            }
        }
    }

    /// Logs once that a dead egress leads to a next hop of the file, while the network has another one for its interface.
    pub(super) async fn look_for_stale_hops(&mut self) -> Result<(), AgentError> {
        let named = |of: &super::EgressConfig| of.hops().next().is_some();
        let told = |egress: usize| self.sides.iter().filter_map(move |side| side.told_health.get(egress));
        let is_dead = |egress: usize| told(egress).any(|health| health == "dead");
        let dead: Vec<usize> = (0..self.egresses.ways.len())
            .filter(|egress| is_dead(*egress) && self.options.config.egresses.get(*egress).is_some_and(named))
            .filter(|egress| !self.said.contains(&format!("hop of {egress}")))
            .collect();
        if dead.is_empty() {
            return Ok(());
        }
        let network = Network { uplinks: self.netlink.uplinks().await?, ..Network::default() };
        for egress in dead {
            self.said.insert(format!("hop of {egress}"));
            let (Some(of), Some(link)) = (self.options.config.egresses.get(egress), self.egresses.links.get(egress))
            else {
                continue;
            };
            for (family, link) in Family::ALL.into_iter().filter_map(|family| Some((family, link.as_ref()?))) {
                let named = of.hops().find(|hop| Family::of((*hop).into()) == family);
                let there = network.default_by(link, family).and_then(|uplink| uplink.route.hop.via);
                if let (Some(named), Some(there)) = (named, there)
                    && named != there
                {
                    tracing::warn!(
                        "{} is dead, and leads to {named} as the file says, while the default route of {} leads to {there}: \
                         `via = \"auto\"` follows it",
                        of.name,
                        of.dev
                    );
                }
            }
        }
        Ok(())
    }

    /// Notices that the daemon did not run for a while, as the machine was suspended or the process stopped. What was in
    /// flight then shows nothing, but for answers that wait in the sockets.
    pub(super) fn look_for_pause(&mut self) -> Result<(), AgentError> {
        let Some(pause) = self.probers.look_for_pause() else { return Ok(()) };
        for socket in 0..self.probers.len() {
            self.take_answers(socket)?;
        }
        self.sides.iter_mut().for_each(|side| side.controller.handle_pause(monotonic_now()));
        tracing::warn!(
            seconds = (pause.as_secs_f64() * 10.0).round() / 10.0,
            "nothing ran for a while (suspended, or stopped): probes of that time do not count"
        );
        Ok(())
    }
}
