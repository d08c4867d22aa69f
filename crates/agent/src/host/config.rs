//! The host daemon's configuration file: the policy's settings, and paths that need no controller.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod check;

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use sidestep_control::assign_path_ids;
use sidestep_linux::netlink::{DefaultRoute, Family, NextHop};
use sidestep_model::{
    PathId, Rate, Span,
    scenario::{AgentKnobs, ParseError, document::Document},
};
use sidestep_policy::PolicyError;
use thiserror::Error;

use self::check::Checker;
pub use self::check::{Place, Places};
use super::paths::{DestinationPaths, HostPath, PathRoute};

/// The file, as TOML.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// The path changer's settings; the keys are those of a scenario's `[agent]`.
    pub agent: AgentKnobs,
    /// Destinations with paths of their own.
    #[serde(rename = "destination")]
    pub destinations: Vec<StaticDestination>,
    /// What Prometheus may read.
    pub metrics: MetricsConfig,
    /// Where the file names interfaces.
    #[serde(skip)]
    pub places: Places,
}

/// Whether and where Prometheus may read metrics.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Where to listen; `None`: nowhere.
    #[serde(deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
    /// Whether to have the kernel count runs of BPF programs, all of the machine's.
    pub bpf_stats: bool,
}

/// A destination prefix and the paths to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticDestination {
    /// The prefix.
    pub prefix: IpNet,
    /// Its paths, at most 16.
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
}

/// What is wrong with a configuration whose text is in order.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ConfigError {
    /// A setting that the policy cannot work with.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// An interface that does not exist.
    #[error("{}there is no interface `{}`; `ip link` lists those that exist", .1, .0)]
    NoInterface(String, Place),
    /// An interface without a default route, of which a path takes the next hop.
    #[error("{}the interface `{}` has no default route for {}, so `via = \"auto\"` leads nowhere", .2, .0, .1)]
    NoGateway(String, Family, Place),
    /// A path without `segments`, `path_id`, `via` and `plain`; [`HostConfig::parse`] refuses such a file.
    #[error("a path needs `segments`, `path_id`, `via` with `dev`, or `plain = true`")]
    NoRoute,
}

impl HostConfig {
    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let mut config: HostConfig = document.read(document.root(), &[])?;
        for destination in &mut config.destinations {
            destination.prefix = destination.prefix.trunc();
        }
        let places = Checker { document: &document, config: &config }.check()?;
        config.places = places;
        Ok(config)
    }

    /// Puts the file's name in front of errors that are only found when the paths are resolved.
    pub fn in_file(mut self, file: &str) -> Self {
        self.places = self.places.in_file(file);
        self
    }

    /// What [`parse`](Self::parse) reads otherwise than it stands in the file: prefixes with host bits.
    pub fn notes(text: &str) -> Vec<ParseError> {
        let Ok(document) = Document::parse(text) else { return Vec::new() };
        let destinations = document.tables(document.root(), "destination").unwrap_or_default();
        destinations.iter().filter_map(|item| document.note_host_bits(item, "prefix")).collect()
    }

    /// The paths, with interface names looked up in `interfaces`.
    pub fn resolve(&self, interfaces: &Interfaces) -> Result<Vec<DestinationPaths>, ConfigError> {
        self.resolve_or(interfaces, Err)
    }

    /// The paths whose interface is there now; the others are left out with a warning.
    pub fn resolve_present(&self, interfaces: &Interfaces) -> Vec<DestinationPaths> {
        let leave_out = |error: ConfigError| {
            tracing::warn!(%error, "a path is left out until it is there");
            Ok(())
        };
        self.resolve_or(interfaces, leave_out).unwrap_or_default()
    }

    fn resolve_or(
        &self,
        interfaces: &Interfaces,
        missing: impl Fn(ConfigError) -> Result<(), ConfigError>,
    ) -> Result<Vec<DestinationPaths>, ConfigError> {
        let mut sets = Vec::new();
        for destination in &self.destinations {
            let ids = destination.path_ids();
            let mut paths = Vec::new();
            for path in &destination.paths {
                let Some(id) = ids.get(&path.key()) else { continue };
                match path.resolve(id.get(), Family::of(destination.prefix), interfaces, &self.places) {
                    Ok(path) => paths.push(path),
                    Err(error) => missing(error)?,
                }
            }
            sets.push(DestinationPaths { destination: destination.prefix.trunc(), paths });
        }
        Ok(sets)
    }
}

impl StaticDestination {
    /// The Path ID of each path, by its key. It follows from what the path is, so it is the same after a restart and at any
    /// place in the file; where keys collide, it depends on the other paths of the destination, too.
    fn path_ids(&self) -> BTreeMap<String, PathId> {
        assign_path_ids(self.paths.iter().map(StaticPath::key).collect())
    }
}

fn address<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    sidestep_metrics::read_address(&String::deserialize(input)?).map(Some).map_err(de::Error::custom)
}

impl Interfaces {
    /// Interfaces with these names and indices, and the best of these default routes through each.
    pub fn new(indices: BTreeMap<String, u32>, mut routes: Vec<DefaultRoute>) -> Self {
        // The first of equal metric wins, as in the kernel.
        routes.sort_by_key(|route| route.metric);
        let mut gateways = BTreeMap::new();
        for route in routes {
            gateways.entry((route.hop.interface, route.family)).or_insert(route.hop);
        }
        Interfaces { indices, gateways }
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
    fn key(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some(segments) = &self.segments {
            parts.push("segments".into());
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
    fn description(&self) -> String {
        match (&self.segments, self.path_id, self.via, &self.dev) {
            (Some(segments), ..) => segments.iter().map(Ipv6Addr::to_string).collect::<Vec<_>>().join(">"),
            (_, Some(sid), ..) => sid.to_string(),
            (_, _, Some(Via::Auto), Some(dev)) => dev.clone(),
            (_, _, Some(via), Some(dev)) => format!("{via}%{dev}"),
            _ => "plain".into(),
        }
    }

    fn resolve(
        &self,
        id: u32,
        family: Family,
        interfaces: &Interfaces,
        places: &Places,
    ) -> Result<HostPath, ConfigError> {
        let route = match (&self.segments, self.path_id, self.via, &self.dev) {
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
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_policy::raw::MAX_PATHS;

    use super::*;

    const COLLIDING: [&str; 2] = ["fd01:ba67:bc81::2c89", "fd01:6dd:8bed::a400"];

    const TWO_PROVIDERS: &str = r#"
        [agent]
        gamma = 0.2
        [[destination]]
        prefix = "2001:db8::/32"
        path = [
            { name = "blue", via = "fe80::1", dev = "eth0", rate = "1 Gbit/s", rtt = "20 ms" },
            { segments = ["fd01:0:2:e::"], rate = "100 Mbit/s", rtt = "10 ms", mtu = 1400 },
            { plain = true, rate = "100 Mbit/s", rtt = "10 ms" },
        ]
    "#;

    #[test]
    fn a_path_is_a_next_hop_a_segment_list_or_the_hosts_own_route() {
        let config = HostConfig::parse(TWO_PROVIDERS).unwrap();
        let sets = config.resolve(&interfaces(&[("eth0", 7)], &[])).unwrap();
        assert_eq!(sets[0].paths[0].route, PathRoute::Via("fe80::1".parse().unwrap(), 7));
        assert_eq!(sets[0].paths[0].name, "blue");
        assert_eq!(sets[0].paths[1].route, PathRoute::Segments(vec!["fd01:0:2:e::".parse().unwrap()]));
        assert_eq!(sets[0].paths[2].route, PathRoute::Default);
        let missing = config.in_file("agent.toml").resolve(&Interfaces::default()).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "agent.toml:7:53: there is no interface `eth0`; `ip link` lists those that exist"
        );
    }

    /// Interfaces by name and index, with default routes by family, metric, next hop and interface.
    fn interfaces(indices: &[(&str, u32)], routes: &[(Family, u32, Option<&str>, u32)]) -> Interfaces {
        let route = |(family, metric, via, interface): &(Family, u32, Option<&str>, u32)| DefaultRoute {
            family: *family,
            metric: *metric,
            hop: NextHop { via: via.map(|via| via.parse().unwrap()), interface: *interface },
        };
        let indices = indices.iter().map(|(name, index)| ((*name).to_string(), *index)).collect();
        Interfaces::new(indices, routes.iter().map(route).collect())
    }

    #[test]
    fn an_automatic_next_hop_is_that_of_the_best_default_route_of_its_family() {
        let path = |dev: &str| format!("{{ via = \"auto\", dev = \"{dev}\" }}");
        let both = format!("path = [{}, {}]", path("eth0"), path("tun0"));
        let text =
            format!("[[destination]]\nprefix = \"::/0\"\n{both}\n[[destination]]\nprefix = \"0.0.0.0/0\"\n{both}");
        let config = HostConfig::parse(&text).unwrap();
        let mut routes = vec![
            (Family::V6, 1024, Some("fe80::9"), 7),
            (Family::V6, 100, Some("fe80::1"), 7),
            (Family::V4, 0, Some("10.0.0.1"), 7),
            (Family::V4, 0, None, 8),
        ];
        let found = |routes: &[_]| {
            let sets = config.resolve_present(&interfaces(&[("eth0", 7), ("tun0", 8)], routes));
            sets.into_iter().map(|set| set.paths.into_iter().map(|path| path.route).collect()).collect::<Vec<Vec<_>>>()
        };
        let via = |address: &str| PathRoute::Via(address.parse().unwrap(), 7);
        assert_eq!(found(&routes), [vec![via("fe80::1")], vec![via("10.0.0.1"), PathRoute::OnLink(8)]]);
        routes[1].2 = Some("fe80::2");
        assert_eq!(found(&routes)[0], [via("fe80::2")], "another router has taken over");
        let error = config.resolve(&interfaces(&[("eth0", 7), ("tun0", 8)], &routes)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3:63: the interface `tun0` has no default route for IPv6, so `via = \"auto\"` leads nowhere"
        );
    }

    /// The ids of the paths in a file, by name.
    fn ids_of(text: &str) -> BTreeMap<String, u32> {
        let config = HostConfig::parse(text).unwrap();
        let sets = config.resolve(&interfaces(&[("eth0", 7)], &[])).unwrap();
        sets.into_iter().flat_map(|set| set.paths).map(|path| (path.name, path.id)).collect()
    }

    #[test]
    fn a_paths_id_follows_from_what_it_is_and_not_from_its_place() {
        let ids = ids_of(TWO_PROVIDERS);
        assert_eq!(ids.keys().map(String::as_str).collect::<Vec<_>>(), ["blue", "fd01:0:2:e::", "plain"]);
        assert_eq!(ids["blue"], 0xb98c_b594, "it never changes between releases");
        let (head, list) = TWO_PROVIDERS.split_once("path = [\n").unwrap();
        let mut lines: Vec<_> = list.lines().filter(|line| line.contains('{')).collect();
        lines.reverse();
        let before =
            format!("{head}path = [{{ plain = true, rate = \"1 Mbit/s\", rtt = \"1 ms\" }}]\n[[destination]]\n");
        let before = before.replace("2001:db8::/32", "2001:db9::/32");
        let swapped = format!("{before}prefix = \"2001:db8::/32\"\npath = [{}]", lines.join("\n"));
        assert_eq!(ids_of(&swapped), ids, "another order, after another destination");
        let other = TWO_PROVIDERS.replace("blue", "green").replace("20 ms", "9 ms").replace("1 Gbit/s", "2 Gbit/s");
        assert_eq!(ids_of(&other)["green"], ids["blue"], "another name, rate and round trip");
        for (from, to) in [("fe80::1", "fe80::2"), ("[\"fd01:0:2:e::\"]", "[\"fd01:0:3:e::\"]")] {
            let changed = ids_of(&TWO_PROVIDERS.replace(from, to));
            assert_eq!(changed.values().filter(|id| !ids.values().any(|old| old == *id)).count(), 1, "{from} {to}");
        }
    }

    #[test]
    fn paths_whose_hashes_collide_get_different_ids_in_any_order() {
        // Found by search: 32-bit FNV-1a of the keys of both is the same.
        let sids = COLLIDING.map(|sid| format!("{{ path_id = \"{sid}\", rate = \"1 Mbit/s\", rtt = \"1 ms\" }}"));
        let file = |first: usize, second: usize| {
            format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{}, {}]", sids[first], sids[second])
        };
        let alone = |which: usize| {
            let text = format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{}]", sids[which]);
            ids_of(&text).into_values().next()
        };
        assert_eq!(alone(0), alone(1), "they collide");
        let ids = ids_of(&file(0, 1));
        assert_eq!(ids.values().collect::<std::collections::BTreeSet<_>>().len(), 2);
        assert_eq!(ids_of(&file(1, 0)), ids);
    }

    /// What is said of this file, with the caret.
    fn complaint(text: &str) -> String {
        HostConfig::parse(text).map(|_| ()).unwrap_err().in_file("agent.toml").to_string()
    }

    /// A file with one destination, and a path that holds `path` besides rate and round-trip time.
    fn one_path(prefix: &str, path: &str) -> String {
        format!(
            "[[destination]]\nprefix = \"{prefix}\"\n[[destination.path]]\nrate = \"1 Mbit/s\"\nrtt = \"1 ms\"\n{path}\n"
        )
    }

    /// What is said of that path, and below which text the caret is.
    #[track_caller]
    fn of_path(prefix: &str, path: &str) -> (String, String) {
        let error = HostConfig::parse(&one_path(prefix, path)).map(|_| ()).unwrap_err();
        let place = error.source_line.chars().skip(error.column - 1 - error.skipped).collect();
        (error.message, place)
    }

    #[test]
    fn a_mistake_is_shown_with_its_line_and_a_caret() {
        assert_eq!(
            complaint("[agent]\ngama = 0.2\n").lines().map(str::trim_end).collect::<Vec<_>>()[1..],
            ["  |", "2 | gama = 0.2", "  | ^"]
        );
        assert!(
            complaint("[agent]\ngama = 0.2\n").starts_with("agent.toml:2:1: unknown field `gama`, expected one of ")
        );
        assert_eq!(
            complaint("[agent]\npolicy = \"exp3\"\ngamma = 3.0\n"),
            "agent.toml:3:9: gamma must be above 0 and at most 1\n  |\n3 | gamma = 3.0\n  |         ^"
        );
        assert_eq!(
            complaint("[agent]\nsilence_backoff = { min = \"2 s\", max = \"1 s\" }\n").lines().next(),
            Some("agent.toml:2:19: silence_backoff must have a `min` that is not above its `max`")
        );
        assert!(complaint("[agent]\nrtt_guard = \"soon\"\n").starts_with("agent.toml:2:13: "), "an interval");
        assert!(complaint("agent = 3").starts_with("agent.toml:1:9: "), "a table that is none");
        assert!(complaint("[agent\n").starts_with("agent.toml:1:7: "), "not TOML");
        assert!(complaint("[metrics]\nlisten = \"9435\"").starts_with("agent.toml:2:10: `9435` is not an address"));
        assert!(complaint("[metrics]\nlisten = 1\n").starts_with("agent.toml:2:10: "));
        assert!(complaint("[[destinations]]\n").starts_with("agent.toml:1:3: unknown field `destinations`"));
    }

    #[test]
    fn a_mistake_of_a_destination_is_shown_where_it_stands() {
        let at = |text: &str| complaint(text).lines().next().unwrap_or_default().to_string();
        assert!(at("[[destination]]\nprefix = \"2001:db8::/132\"\npath = []").starts_with("agent.toml:2:10: "));
        assert!(at("[[destination]]\nprefix = \"::/0\"\n").starts_with("agent.toml:1:1: missing field `path`"));
        assert_eq!(
            at("[[destination]]\nprefix = \"2001:db8::/32\"\npath = []"),
            "agent.toml:3:8: 2001:db8::/32 has no path; add one or remove it"
        );
        assert_eq!(
            at(&one_path("::ffff:10.9.0.0/112", r#"via = "fe80::1""#)),
            "agent.toml:2:10: ::ffff:10.9.0.0/112 never matches: its connections are IPv4; write it as `10.0.0.0/8`"
        );
        let path = |n| {
            format!("[[destination.path]]\nvia = \"fe80::{n}\"\ndev = \"a\"\nrate = \"1 Mbit/s\"\nrtt = \"1 ms\"\n")
        };
        let paths = |n: usize| (1..=n).map(path).collect::<String>();
        let crowd = format!("[[destination]]\nprefix = \"2001:db8::/32\"\n{}", paths(MAX_PATHS + 1));
        assert_eq!(at(&crowd), "agent.toml:83:1: 2001:db8::/32 has 17 paths; 16 are the most");
        let narrow = format!("[agent]\nmark_mask = 1\n[[destination]]\nprefix = \"::/0\"\n{}", paths(2));
        assert_eq!(at(&narrow), "agent.toml:2:13: mark_mask has fewer values than there may be paths");
    }

    #[test]
    fn a_mistake_of_a_path_is_shown_at_the_value_that_has_to_change() {
        let to = "2001:db8::/32";
        let exactly_one = format!("a path to {to} needs exactly one of `segments`, `path_id`, `via` and `plain`");
        assert_eq!(of_path(to, r#"name = "blue""#), (exactly_one.clone(), "[[destination.path]]".into()));
        let (message, place) = of_path(to, "via = \"fe80::1\"\ndev = \"a\"\npath_id = \"::1\"");
        assert_eq!((message, place), (exactly_one, "\"fe80::1\"".into()));
        for (path, what, place) in [
            ("via = \"fe80::1\"", "needs the interface: `dev", "\"fe80::1\""),
            ("via = \"10.0.0.1\"\ndev = \"a\"", "needs a next hop with an address of IPv6", "\"10.0.0.1\""),
            ("segments = []", "must have 1 to 16 segments", "[]"),
            ("segments = [\"2001:db8::e\"]", "lies in 2001:db8::/32, whose route", "\"2001:db8::e\"]"),
            ("path_id = \"2001:db8::b\"", "lies in 2001:db8::/32, whose route", "\"2001:db8::b\""),
            ("path_id = \"::1\"\nmtu = 600", "must be between 1280 and 65000", "600"),
            ("plain = true\nmtu = 1400", "has the mtu of the host's own route", "1400"),
            ("plain = true\nvia = \"::1\"", "needs exactly one of", "true"),
            ("plain = false", "needs exactly one of", "[[destination.path]]"),
            ("path_id = \"::1\"\nwrong = 1", "unknown field `wrong`", "wrong = 1"),
            ("path_id = \"one\"", "invalid IPv6 address", "\"one\""),
            ("plain = true\ndev = \"a\"", "has `dev` only beside `via`", "\"a\""),
            ("via = \"gateway\"\ndev = \"a\"", "`gateway` is neither an IP address nor `auto`", "\"gateway\""),
            ("via = \"ff02::1\"\ndev = \"a\"", "ff02::1 is no address of a machine", "\"ff02::1\""),
            ("segments = [\"fd01::e\", \"::\"]", ":: is no address of a machine", "\"::\"]"),
            ("path_id = \"::\"", ":: is no address of a machine", "\"::\""),
            ("plain = true\nname = \"\"", "the name of a path has 1 to 63 bytes", "\"\""),
            (
                "via = \"fe80::1\"\ndev = \"abcdefghijklmnopqrstuvwxyz\"",
                "the name of an interface has 1 to 15",
                "\"abcdefghijklmnopqrstuvwxyz\"",
            ),
            ("via = \"fe80::1\"\ndev = \"a/b\"", "the name of an interface has 1 to 15", "\"a/b\""),
        ] {
            let found = of_path(to, path);
            assert!(found.0.contains(what) && found.1 == place, "{path}: {found:?}");
        }
        // The items of an inline list are placed as well.
        let inline = format!("[[destination]]\nprefix = \"{to}\"\npath = [\n{{ rtt = \"1 ms\", rate = \"fast\" }}]\n");
        assert!(complaint(&inline).starts_with("agent.toml:4:24: "), "{}", complaint(&inline));
    }

    #[test]
    fn what_is_there_twice_is_refused_at_the_second() {
        let quantities = "rate = \"1 Mbit/s\", rtt = \"1 ms\"";
        let two = |first: &str, second: &str| {
            let paths = [first, second].map(|path| format!("  {{ {path}, {quantities} }},\n")).concat();
            complaint(&format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [\n{paths}]\n"))
        };
        for (first, second, error) in [
            ("plain = true", "plain = true", "5:13: 2001:db8::/32 has this path twice: both lead the same way"),
            ("path_id = \"fd01::b\"", "path_id = \"fd01:0::b\"", "5:15: 2001:db8::/32 has this path twice"),
            ("segments = [\"fd01::e\"]", "segments = [\"fd01::e\"]", "5:16: 2001:db8::/32 has this path twice"),
            (
                "via = \"auto\", dev = \"a\"",
                "name = \"x\", via = \"auto\", dev = \"a\"",
                "5:23: 2001:db8::/32 has this",
            ),
            (
                "plain = true, name = \"x\"",
                "path_id = \"fd01::b\", name = \"x\"",
                "5:33: 2001:db8::/32 has two paths of the name `x`",
            ),
        ] {
            let found = two(first, second);
            assert!(found.starts_with(&format!("agent.toml:{error}")), "{found}");
        }
        let set = |prefix: &str| format!("[[destination]]\nprefix = \"{prefix}\"\npath = [{{ plain = true }}]\n");
        let twice = complaint(&(set("10.9.0.0/16") + &set("10.9.1.0/16")));
        assert!(twice.starts_with("agent.toml:5:10: 10.9.0.0/16 is here a second time"), "{twice}");
    }

    #[test]
    fn an_empty_file_is_refused_and_one_that_asks_for_the_defaults_is_not() {
        for empty in ["", "\n", "# nothing\n"] {
            assert!(complaint(empty).starts_with("agent.toml:1:1: the file says nothing"), "{}", complaint(empty));
        }
        assert!(HostConfig::parse("[agent]\n").is_ok());
    }

    #[test]
    fn a_path_may_leave_out_what_is_not_known_but_not_say_that_it_is_zero() {
        let text = |path: &str| format!("[[destination]]\nprefix = \"::/0\"\npath = [{{ plain = true{path} }}]\n");
        let config = HostConfig::parse(&text("")).unwrap();
        assert_eq!((config.destinations[0].paths[0].rate, config.destinations[0].paths[0].rtt), Default::default());
        for (path, error) in
            [(", rate = \"0\"", "3:32: the rate of a path"), (", rtt = \"0 ms\"", "3:31: the rtt of a path")]
        {
            assert!(complaint(&text(path)).starts_with(&format!("agent.toml:{error}")), "{}", complaint(&text(path)));
        }
    }

    #[test]
    fn a_mistake_in_a_long_line_has_a_caret_too() {
        let many =
            (1..=14).map(|n| format!("{{ path_id = \"fd01::b:{n}\", name = \"number {n}\" }}, ")).collect::<String>();
        let text = format!("[[destination]]\nprefix = \"::/0\"\npath = [{many}{{ plain = 3 }}]\n");
        let error = HostConfig::parse(&text).map(|_| ()).unwrap_err();
        assert!(error.column > 200, "{error}");
        let shown = error.to_string();
        let lines: Vec<_> = shown.lines().collect();
        let caret = lines[3].find('^').unwrap();
        assert!(lines[2][caret..].starts_with("3 }"), "{shown}");
    }

    #[test]
    fn a_prefix_with_host_bits_is_read_without_them_and_noted_with_its_line() {
        let text = one_path("2001:db8:5::1/48", "plain = true");
        let config = HostConfig::parse(&text).unwrap();
        assert_eq!(config.destinations[0].prefix.to_string(), "2001:db8:5::/48");
        let notes: Vec<_> =
            HostConfig::notes(&text).into_iter().map(|note| note.in_file("agent.toml").to_string()).collect();
        let expected = "agent.toml:2:10: 2001:db8:5::1/48 has host bits; it is read as 2001:db8:5::/48\n  |\n";
        assert!(notes.len() == 1 && notes[0].starts_with(expected), "{notes:?}");
        assert!(HostConfig::notes(TWO_PROVIDERS).is_empty() && HostConfig::notes("[").is_empty());
    }

    #[test]
    fn what_ipv4_cannot_have_is_named() {
        for good in [
            "via = \"10.0.0.1\"\ndev = \"a\"",
            "via = \"fe80::1\"\ndev = \"a\"",
            "segments = [\"fd01::e\", \"fd01::d4\"]",
        ] {
            assert!(HostConfig::parse(&one_path("10.9.0.0/16", good)).is_ok(), "{good}");
        }
        let (message, place) = of_path("10.9.0.0/16", "path_id = \"fd01::b\"");
        assert!(message.starts_with("a path to 10.9.0.0/16 cannot be a `path_id` alone"), "{message}");
        assert_eq!(place, "\"fd01::b\"");
        assert!(HostConfig::parse(&one_path("::/0", "via = \"fe80::1\"\ndev = \"a\"")).is_ok());
    }

    #[test]
    fn a_first_segment_must_not_lie_within_any_destination() {
        let path = r#"rate = "1 Mbit/s", rtt = "1 ms""#;
        let text = format!(
            "[[destination]]\nprefix = \"10.9.0.0/16\"\npath = [{{ segments = [\"fd01::e\", \"fd01::d4\"], {path} }}]\n\
             [[destination]]\nprefix = \"fd00::/8\"\npath = [{{ via = \"fe80::1\", dev = \"a\", {path} }}]"
        );
        let caught = complaint(&text);
        let what = "the segment fd01::e of a path to 10.9.0.0/16 lies in fd00::/8, whose route would catch it";
        assert!(caught.starts_with(&format!("agent.toml:3:23: {what}")), "{caught}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = HostConfig::parse(&text);
        }
    }
}
