//! Paths as a configuration file has them: `[[destination]]` with its `path`s, of hosts and of edges alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use sidestep_control::assign_path_ids;
use sidestep_linux::{
    LinuxError,
    netlink::{DefaultRoute, Family, Interface, Netlink, NextHop},
};
use sidestep_net::{PathId, Rate, Span};
use thiserror::Error;

use super::{
    destination::{DestinationPaths, HostPath, PathRoute},
    places::{Place, Places},
};

/// A destination prefix and the paths to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticDestination {
    /// The prefix.
    pub prefix: IpNet,
    /// Its paths, at most 16; without any, connections are left alone.
    #[serde(rename = "path")]
    pub paths: Vec<StaticPath>,
}

/// A path: exactly one of `segments`, `path_id`, `via` and `plain`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticPath {
    /// Name for people.
    pub name: Option<String>,
    /// An SRv6 segment list, first segment first; of a path for IPv4 the last segment decapsulates.
    pub segments: Option<Vec<Ipv6Addr>>,
    /// Whether the segments go into an outer header also for IPv6, whose last segment decapsulates then (H.Encaps of RFC 8986).
    #[serde(default)]
    pub encap: bool,
    /// The binding SID of an access router.
    pub path_id: Option<Ipv6Addr>,
    /// A next hop; for IPv4 it may have an address of IPv6.
    pub via: Option<Via>,
    /// The interface towards the next hop.
    pub dev: Option<String>,
    /// Whether it is the path that packets take by the host's own routes, without any segments.
    #[serde(default)]
    pub plain: bool,
    /// Bandwidth; zero if unknown, so that what connections measure takes its place.
    #[serde(default)]
    pub rate: Rate,
    /// Round-trip propagation time; zero if unknown, so that what connections measure takes its place.
    #[serde(default)]
    pub rtt: Span,
    /// Largest packet in bytes, where less than the interface's.
    pub mtu: Option<u32>,
    /// Prefixes of the source addresses that it takes; none: those of its interface, or all.
    #[serde(default)]
    pub sources: Vec<IpNet>,
}

/// The next hop of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// `auto`: that of the interface's default route, whatever it is now.
    Auto,
    /// This address.
    Address(IpAddr),
}

/// The interfaces of a host, and the next hops of their default routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// The index of each interface, by name.
    pub indices: BTreeMap<String, u32>,
    /// The next hop of the best default route through each interface, by its index.
    pub gateways: BTreeMap<(u32, Family), NextHop>,
    /// Interfaces that are down or have no carrier, by their indices: while another path to a destination has one, paths by these
    /// are not there.
    pub down: BTreeSet<u32>,
}

/// What is wrong with a configuration whose text is in order.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ConfigError {
    /// A setting that the daemon cannot work with.
    #[error("{0}")]
    Setting(String),
    /// An interface that does not exist.
    #[error("{}there is no interface `{}`; `ip link` lists those that exist", .1, .0)]
    NoInterface(String, Place),
    /// An interface that carries nothing now.
    #[error("{}the interface `{}` is down or has no carrier", .1, .0)]
    Down(String, Place),
    /// An interface without a default route, of which a path takes the next hop.
    #[error("{}the interface `{}` has no default route for {}, so `via = \"auto\"` leads nowhere", .2, .0, .1)]
    NoGateway(String, Family, Place),
    /// A path without `segments`, `path_id`, `via` and `plain`; a [`Checker`](super::Checker) refuses such a file.
    #[error("a path needs `segments`, `path_id`, `via` with `dev`, or `plain = true`")]
    NoRoute,
}

/// The paths to `destinations`, with interface names looked up in `interfaces`; what `missing` lets pass is left out.
pub fn resolve(
    destinations: &[StaticDestination],
    interfaces: &Interfaces,
    places: &Places,
    missing: impl Fn(ConfigError) -> Result<(), ConfigError>,
) -> Result<Vec<DestinationPaths>, ConfigError> {
    let mut sets = Vec::new();
    for destination in destinations {
        let ids = destination.path_ids();
        let (mut paths, mut down) = (Vec::new(), Vec::new());
        for path in &destination.paths {
            let Some(id) = ids.get(&path.key()) else { continue };
            match (
                path.resolve(id.get(), Family::of(destination.prefix), interfaces, places),
                path.is_down(interfaces, places),
            ) {
                (Ok(path), None) => paths.push(path),
                (Ok(path), Some(error)) => down.push((path, error)),
                (Err(error), _) => missing(error)?,
            }
        }
        // Where no path has a carrier, each is as good as before.
        if paths.is_empty() {
            paths = down.into_iter().map(|(path, _)| path).collect();
        } else {
            down.into_iter().try_for_each(|(_, error)| missing(error))?;
        }
        sets.push(DestinationPaths { destination: destination.prefix.trunc(), paths });
    }
    Ok(sets)
}

/// The paths whose interface is there now; nothing is logged about the others.
pub fn resolve_quietly(
    destinations: &[StaticDestination],
    interfaces: &Interfaces,
    places: &Places,
) -> Vec<DestinationPaths> {
    resolve(destinations, interfaces, places, |_| Ok(())).unwrap_or_default()
}

/// The paths whose interface is there now; the others are left out with a warning.
pub fn resolve_present(
    destinations: &[StaticDestination],
    interfaces: &Interfaces,
    places: &Places,
) -> Vec<DestinationPaths> {
    let leave_out = |error: ConfigError| {
        tracing::warn!(%error, "a path is left out until it is there");
        Ok(())
    };
    resolve(destinations, interfaces, places, leave_out).unwrap_or_default()
}

/// Whether any path takes its next hop from a default route, whichever program makes that.
pub fn follow_the_network(destinations: &[StaticDestination]) -> bool {
    destinations.iter().flat_map(|destination| &destination.paths).any(|path| path.via == Some(Via::Auto))
}

impl StaticDestination {
    /// The Path ID of each path, by its key. It follows from what the path is, so it is the same after a restart and at any
    /// place in the file; where keys collide, it depends on the other paths of the destination, too.
    pub fn path_ids(&self) -> BTreeMap<String, PathId> {
        assign_path_ids(self.paths.iter().map(StaticPath::key).collect())
    }
}

impl Interfaces {
    /// Interfaces with these names and indices, and the first of these default routes through each.
    pub fn new(indices: BTreeMap<String, u32>, routes: impl IntoIterator<Item = DefaultRoute>) -> Self {
        let mut gateways = BTreeMap::new();
        for route in routes {
            gateways.entry((route.hop.interface, route.family)).or_insert(route.hop);
        }
        Interfaces { indices, gateways, down: BTreeSet::new() }
    }
}

impl Interfaces {
    /// These links, and the default routes of all tables, those of the table main first, if any of the paths follows one: on a
    /// router with all routes of the Internet it takes long to read them.
    pub async fn read(
        netlink: &Netlink,
        links: &[Interface],
        destinations: &[StaticDestination],
    ) -> Result<Self, LinuxError> {
        let uplinks = if follow_the_network(destinations) { netlink.uplinks().await?.defaults } else { Vec::new() };
        let indices = links.iter().map(|link| (link.name.clone(), link.index)).collect();
        Ok(Interfaces::new(indices, uplinks.into_iter().map(|uplink| uplink.route)))
    }
}

impl From<IpAddr> for Via {
    fn from(address: IpAddr) -> Self {
        Via::Address(address)
    }
}

impl From<Ipv6Addr> for Via {
    fn from(address: Ipv6Addr) -> Self {
        Via::Address(address.into())
    }
}

impl FromStr for Via {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Via::Auto);
        }
        let wrong = |_| format!("`{text}` is neither an IP address nor `auto`");
        text.parse().map(Via::Address).map_err(wrong)
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Via::Auto => f.write_str("auto"),
            Via::Address(address) => address.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Via {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(de::Error::custom)
    }
}

impl StaticPath {
    /// What makes it this path and no other: how packets are put on it. Neither its name nor its rate does.
    pub fn key(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some(segments) = &self.segments {
            parts.push(if self.encap { "encap" } else { "segments" }.into());
            parts.extend(segments.iter().map(Ipv6Addr::to_string));
        } else if let Some(sid) = self.path_id {
            parts.extend(["path_id".into(), sid.to_string()]);
        } else if let Some(via) = self.via {
            parts.extend(["via".into(), via.to_string()]);
            parts.extend(self.dev.clone());
        } else {
            parts.push("plain".into());
        }
        parts.join("\0")
    }

    /// A name for a path that was given none.
    pub fn description(&self) -> String {
        match (&self.segments, self.path_id, self.via, &self.dev) {
            (Some(segments), ..) => segments.iter().map(Ipv6Addr::to_string).collect::<Vec<_>>().join(">"),
            (_, Some(sid), ..) => sid.to_string(),
            (_, _, Some(Via::Auto), Some(dev)) => dev.clone(),
            (_, _, Some(via), Some(dev)) => format!("{via}%{dev}"),
            _ => "plain".into(),
        }
    }

    /// Whether it leaves by an interface that carries nothing now.
    fn is_down(&self, interfaces: &Interfaces, places: &Places) -> Option<ConfigError> {
        let dev = self.via.and(self.dev.as_ref())?;
        let index = interfaces.indices.get(dev)?;
        interfaces.down.contains(index).then(|| ConfigError::Down(dev.clone(), places.of(dev)))
    }

    fn resolve(
        &self,
        id: u32,
        family: Family,
        interfaces: &Interfaces,
        places: &Places,
    ) -> Result<HostPath, ConfigError> {
        let route = match (&self.segments, self.path_id, self.via, &self.dev) {
            (Some(segments), ..) if self.encap => PathRoute::Encaps(segments.clone()),
            (Some(segments), ..) => PathRoute::Segments(segments.clone()),
            (_, Some(sid), ..) => PathRoute::PathId(sid),
            (_, _, Some(via), Some(dev)) => {
                let place = || places.of(dev);
                let index =
                    interfaces.indices.get(dev).ok_or_else(|| ConfigError::NoInterface(dev.clone(), place()))?;
                let gateway = || interfaces.gateways.get(&(*index, family)).copied();
                match via {
                    Via::Address(via) => PathRoute::Via(via, *index),
                    Via::Auto => match gateway() {
                        Some(NextHop { via: Some(via), .. }) => PathRoute::Via(via, *index),
                        Some(NextHop { via: None, .. }) => PathRoute::OnLink(*index),
                        None => return Err(ConfigError::NoGateway(dev.clone(), family, place())),
                    },
                }
            }
            _ if self.plain => PathRoute::Default,
            _ => return Err(ConfigError::NoRoute),
        };
        Ok(HostPath {
            id,
            slot: 0,
            name: self.name.clone().unwrap_or_else(|| self.description()),
            route,
            capacity: self.rate,
            usage: Rate::default(),
            rtt: self.rtt,
            mtu: self.mtu,
            sources: self.sources.clone(),
        })
    }
}
