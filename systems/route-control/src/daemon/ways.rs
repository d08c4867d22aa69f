//! Where packets of each egress leave, for each family, as the network has it now: the interface, the next hop, and the source of
//! probes.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_linux::{
    LinuxError,
    netlink::{Family, Interface, InterfaceAddress, Netlink, Rule, Uplink, Uplinks},
};

use super::{EgressConfig, RouteControlConfig, follow::Hop, sources};

/// What an egress has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ways {
    /// Its interface, if it is there.
    pub(super) link: Option<Interface>,
    /// The path of IPv4, and that of IPv6.
    ways: [Option<Result<Way, String>>; 2],
    /// The prefixes whose packets leave by it or not at all.
    pub(super) sources: Vec<IpNet>,
}

/// How packets of a family leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The next hop; `None`: the link leads to whatever is behind it.
    pub(super) hop: Option<IpAddr>,
    /// The source of probes; `None`: as the kernel chooses.
    pub(super) source: Option<IpAddr>,
}

/// How packets of a family leave by an egress, or why they do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayStatus {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The next hop, where the link needs one.
    pub via: Option<IpAddr>,
    /// The source of probes, where it is not left to the kernel.
    pub from: Option<IpAddr>,
    /// What is missing, so that packets of the family cannot leave by it.
    pub missing: Option<String>,
    /// Why probes of the family cannot be sent: nothing is known of the egress then.
    pub unprobed: Option<String>,
}

/// What the kernel has of what egresses follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    pub(super) interfaces: Vec<Interface>,
    pub(super) addresses: Vec<InterfaceAddress>,
    pub(super) uplinks: Uplinks,
    pub(super) rules: Vec<Rule>,
}

impl Ways {
    /// How packets of a family leave, or why they do not.
    pub(super) fn of(&self, family: Family) -> Result<Way, &str> {
        match &self.ways[place(family)] {
            Some(Ok(way)) => Ok(*way),
            Some(Err(why)) => Err(why),
            None => Err("the file has no next hop for it"),
        }
    }

    /// Whether packets of a family should leave by it.
    pub(super) fn has(&self, family: Family) -> bool {
        self.ways[place(family)].is_some()
    }

    /// Takes the paths that were there before, where they are missing now.
    pub(super) fn keep(&mut self, family: Family, before: &Ways) {
        self.ways[place(family)].clone_from(&before.ways[place(family)]);
    }
}

impl Network {
    /// Reads it; routes only if an egress follows them: a router may have all routes of the Internet.
    pub(super) async fn read(netlink: &Netlink, config: &RouteControlConfig) -> Result<Self, LinuxError> {
        let follows = config.egresses.iter().any(EgressConfig::follows);
        let follows_sources = config.egresses.iter().any(EgressConfig::follows_sources);
        Ok(Network {
            interfaces: netlink.interfaces().await?,
            addresses: netlink.ready_addresses().await?,
            uplinks: if follows { netlink.uplinks().await? } else { Uplinks::default() },
            rules: if follows_sources { netlink.rules().await? } else { Vec::new() },
        })
    }

    /// The paths of each egress.
    pub(super) fn ways(&self, config: &RouteControlConfig) -> Vec<Ways> {
        let sources = sources::of(config, self);
        let mut families = config.families();
        families.extend(config.targets.iter().map(super::TargetConfig::family));
        let all = config.egresses.iter().zip(sources);
        let ways = all.map(|(egress, sources)| {
            let link = self.link(egress).cloned();
            let way = |family| {
                let hop = egress.hop(family).filter(|_| families.contains(&family))?;
                Some(self.way(config, egress, (hop, family), &sources))
            };
            let ways = Family::ALL.map(way);
            Ways { link, ways, sources }
        });
        ways.collect()
    }

    /// The interface of an egress.
    pub(super) fn link(&self, egress: &EgressConfig) -> Option<&Interface> {
        self.interfaces.iter().find(|one| one.name == egress.dev)
    }

    fn way(
        &self,
        config: &RouteControlConfig,
        egress: &EgressConfig,
        (hop, family): (Hop, Family),
        sources: &[IpNet],
    ) -> Result<Way, String> {
        let dev = &egress.dev;
        let link = self.link(egress).ok_or_else(|| format!("there is no interface {dev}"))?;
        let hop = match hop {
            Hop::Link => None,
            Hop::Address(address) => Some(address),
            Hop::Auto => match self.default_by(link, family) {
                Some(uplink) => uplink.route.hop.via,
                // A link between two hosts, as of PPP, needs no next hop.
                None if !link.ethernet => None,
                None => return Err(format!("{dev} has no default route of {family}")),
            },
        };
        let source = self.source(config, egress, (link, family), sources);
        // A tunnel may have no address of its own, and the kernel takes another one. Behind a router that would be a stranger's.
        let needs_one = hop.is_some() || !link.ethernet && egress.hop(family) == Some(Hop::Auto);
        match source {
            None if needs_one => Err(format!("{dev} has no address of {family}")),
            source => Ok(Way { hop, source }),
        }
    }

    /// The best default route by an interface, of whichever table.
    pub(super) fn default_by(&self, link: &Interface, family: Family) -> Option<&Uplink> {
        let mut defaults = self.uplinks.defaults.iter();
        defaults.find(|one| one.route.family == family && one.route.hop.interface == link.index)
    }

    /// The address that probes leave from: one of the interface, else one of the provider's prefixes that another interface has. Where
    /// the file names no prefixes, IPv6 takes any that no other egress has: the link of a delegated prefix needs no address.
    fn source(
        &self,
        config: &RouteControlConfig,
        egress: &EgressConfig,
        (link, family): (&Interface, Family),
        sources: &[IpNet],
    ) -> Option<IpAddr> {
        let is_other = |address: &InterfaceAddress| {
            let others = || config.egresses.iter().filter(|other| other.name != egress.name);
            others().any(|other| {
                self.link(other).is_some_and(|link| link.index == address.interface)
                    || other.prefixes().any(|prefix| prefix.contains(&address.address.addr()))
            })
        };
        let rank = |one: &InterfaceAddress| {
            if one.interface == link.index {
                Some(0)
            } else if sources.iter().any(|prefix| prefix.contains(&one.address.addr())) {
                Some(1)
            } else {
                (family == Family::V6 && egress.source.is_empty() && !is_other(one)).then_some(2)
            }
        };
        let of_family = self.addresses.iter().filter(|one| Family::of(one.address) == family);
        let ranked = of_family.filter_map(|one| Some((one.deprecated, rank(one)?, one.address.addr())));
        // Of equal ones the first that the kernel lists.
        ranked.min_by_key(|(deprecated, rank, _)| (*deprecated, *rank)).map(|(_, _, address)| address)
    }
}

fn place(family: Family) -> usize {
    usize::from(family == Family::V6)
}
