//! The host daemon's configuration file: the policy's settings, and paths that need no controller.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use sidestep_model::{
    Rate, Span,
    scenario::{
        AgentKnobs, ParseError,
        document::{Document, Item},
    },
};
use sidestep_policy::{PolicyError, raw::MAX_PATHS};
use thiserror::Error;

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
    pub via: Option<IpAddr>,
    /// The interface towards the next hop.
    pub dev: Option<String>,
    /// Whether it is the path that packets take by the host's own routes, without any segments.
    #[serde(default)]
    pub plain: bool,
    /// Bandwidth.
    pub rate: Rate,
    /// Round-trip propagation time.
    pub rtt: Span,
    /// Largest packet in bytes, where less than the interface's.
    pub mtu: Option<u32>,
}

/// What is wrong with a configuration whose text is in order.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ConfigError {
    /// A setting that the policy cannot work with.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// An interface that does not exist.
    #[error("there is no interface `{0}`; `ip link` lists those that exist")]
    NoInterface(String),
    /// A path without `segments`, `path_id`, `via` and `plain`; [`HostConfig::parse`] refuses such a file.
    #[error("a path needs `segments`, `path_id`, `via` with `dev`, or `plain = true`")]
    NoRoute,
}

/// Most segments of a list of the host's own; the kernel's header has room for few more.
const MAX_SEGMENTS: usize = 16;
/// Packet sizes that a path may have, in bytes: from the least that IPv6 demands of a link (RFC 8200, section 5).
const MTU: RangeInclusive<u32> = 1280..=65_000;

impl HostConfig {
    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let config = document.read(document.root(), &[])?;
        Checker { document: &document, config: &config }.check()?;
        Ok(config)
    }

    /// The paths, with interface names looked up in `interfaces`.
    pub fn resolve(&self, interfaces: &BTreeMap<String, u32>) -> Result<Vec<DestinationPaths>, ConfigError> {
        self.resolve_or(interfaces, Err)
    }

    /// The paths whose interface is there now; the others are left out with a warning.
    pub fn resolve_present(&self, interfaces: &BTreeMap<String, u32>) -> Vec<DestinationPaths> {
        let leave_out = |error: ConfigError| {
            tracing::warn!(%error, "a path is left out until it is there");
            Ok(())
        };
        self.resolve_or(interfaces, leave_out).unwrap_or_default()
    }

    fn resolve_or(
        &self,
        interfaces: &BTreeMap<String, u32>,
        missing: impl Fn(ConfigError) -> Result<(), ConfigError>,
    ) -> Result<Vec<DestinationPaths>, ConfigError> {
        let mut id = 0;
        let mut sets = Vec::new();
        for destination in &self.destinations {
            let mut paths = Vec::new();
            for path in &destination.paths {
                id += 1;
                match path.resolve(id, interfaces) {
                    Ok(path) => paths.push(path),
                    Err(error) => missing(error)?,
                }
            }
            sets.push(DestinationPaths { destination: destination.prefix, paths });
        }
        Ok(sets)
    }
}

fn is_mapped(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(net) if net.prefix_len() >= 96 && net.network().to_ipv4_mapped().is_some())
}

fn address<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    sidestep_metrics::read_address(&String::deserialize(input)?).map(Some).map_err(de::Error::custom)
}

/// Checks what the types of the fields cannot: each mistake is reported at the value that has to change.
struct Checker<'a> {
    document: &'a Document<'a>,
    config: &'a HostConfig,
}

impl Checker<'_> {
    fn check(&self) -> Result<(), ParseError> {
        let root = self.document.root();
        let agent = root.get_ref().get("agent").unwrap_or(root);
        let most = self.config.destinations.iter().map(|d| d.paths.len()).max().unwrap_or(0).clamp(1, MAX_PATHS);
        let checked = self.config.agent.check(most);
        checked.map_err(|error| self.document.error_at(agent, error.knob, &error))?;
        let items = self.document.tables(root, "destination")?;
        items.iter().zip(&self.config.destinations).try_for_each(|(item, found)| self.check_destination(item, found))
    }

    fn check_destination(&self, item: &Item<'_>, destination: &StaticDestination) -> Result<(), ParseError> {
        let (document, prefix) = (self.document, destination.prefix);
        if is_mapped(prefix) {
            let message = format!("{prefix} never matches: its connections are IPv4; write it as `10.0.0.0/8`");
            return Err(document.error_at(item, "prefix", message));
        }
        if destination.paths.is_empty() {
            return Err(document.error_at(item, "path", format!("{prefix} has no path; add one or remove it")));
        }
        if destination.paths.len() > MAX_PATHS {
            let message = format!("{prefix} has {} paths; {MAX_PATHS} are the most", destination.paths.len());
            return Err(document.error_in(item, "path", MAX_PATHS, message));
        }
        let items = document.tables(item, "path")?;
        items.iter().zip(&destination.paths).try_for_each(|(item, path)| self.check_path(item, prefix, path))
    }

    fn check_path(&self, item: &Item<'_>, prefix: IpNet, path: &StaticPath) -> Result<(), ParseError> {
        let at = |key: &str, message: String| Err(self.document.error_at(item, key, message));
        let kinds = [
            ("segments", path.segments.is_some()),
            ("path_id", path.path_id.is_some()),
            ("via", path.via.is_some()),
            ("plain", path.plain),
        ];
        let mut given = kinds.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        // None: the path itself is where one is missing. Several: the second is one too many.
        if let (None, second) | (Some(_), second @ Some(_)) = (given.next(), given.next()) {
            let message = format!("a path to {prefix} needs exactly one of `segments`, `path_id`, `via` and `plain`");
            return at(second.unwrap_or_default(), message);
        }
        match (prefix, path.via, path.path_id, &path.dev) {
            (_, Some(via), _, None) => {
                return at("via", format!("the path to {prefix} via {via} needs the interface: `dev = \"eth0\"`"));
            }
            (IpNet::V6(_), Some(via @ IpAddr::V4(_)), ..) => {
                return at("via", format!("the path to {prefix} via {via} needs a next hop with an address of IPv6"));
            }
            (IpNet::V4(_), _, Some(sid), _) => {
                let message = format!(
                    "a path to {prefix} cannot be a `path_id` alone: give `segments = [\"{sid}\", \"…\"]`, last a SID \
                     that decapsulates IPv4 (End.DT4, End.DT46 or End.DX4)"
                );
                return at("path_id", message);
            }
            _ => {}
        }
        if path.segments.as_ref().is_some_and(|list| !(1..=MAX_SEGMENTS).contains(&list.len())) {
            return at("segments", format!("a path to {prefix} must have 1 to {MAX_SEGMENTS} segments"));
        }
        if path.mtu.is_some_and(|mtu| !MTU.contains(&mtu)) {
            return at(
                "mtu",
                format!("the mtu of a path to {prefix} must be between {} and {}", MTU.start(), MTU.end()),
            );
        }
        if path.plain && path.mtu.is_some() {
            let message = format!("the plain path to {prefix} has the mtu of the host's own route: remove `mtu`");
            return at("mtu", message);
        }
        self.check_first_segment(item, prefix, path)
    }

    /// A first segment must lie within no destination: all share the routing tables, in which the packet with its new
    /// header is looked up, too.
    fn check_first_segment(&self, item: &Item<'_>, prefix: IpNet, path: &StaticPath) -> Result<(), ParseError> {
        let first = path.segments.as_ref().and_then(|list| list.first().copied()).or(path.path_id);
        let Some(first) = first else { return Ok(()) };
        let catches = self.config.destinations.iter().find(|other| other.prefix.contains(&IpAddr::from(first)));
        let Some(StaticDestination { prefix: other, .. }) = catches else { return Ok(()) };
        let key = if path.segments.is_some() { "segments" } else { "path_id" };
        let message = format!(
            "the segment {first} of a path to {prefix} lies in {other}, whose route would catch it; give that a narrower \
             prefix"
        );
        Err(self.document.error_in(item, key, 0, message))
    }
}

impl StaticPath {
    fn resolve(&self, id: u32, interfaces: &BTreeMap<String, u32>) -> Result<HostPath, ConfigError> {
        let route = match (&self.segments, self.path_id, self.via, &self.dev) {
            (Some(segments), ..) => PathRoute::Segments(segments.clone()),
            (_, Some(sid), ..) => PathRoute::PathId(sid),
            (_, _, Some(via), Some(dev)) => {
                let index = interfaces.get(dev).ok_or_else(|| ConfigError::NoInterface(dev.clone()))?;
                PathRoute::Via(via, *index)
            }
            _ if self.plain => PathRoute::Default,
            _ => return Err(ConfigError::NoRoute),
        };
        Ok(HostPath {
            id,
            name: self.name.clone().unwrap_or_else(|| format!("path-{id}")),
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

    use super::*;

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
        let sets = config.resolve(&BTreeMap::from([("eth0".to_string(), 7)])).unwrap();
        assert_eq!(sets[0].paths[0].route, PathRoute::Via("fe80::1".parse().unwrap(), 7));
        assert_eq!(sets[0].paths[0].name, "blue");
        assert_eq!(sets[0].paths[1].route, PathRoute::Segments(vec!["fd01:0:2:e::".parse().unwrap()]));
        assert_eq!(sets[0].paths[1].id, 2);
        assert_eq!(sets[0].paths[2].route, PathRoute::Default);
        assert_eq!(config.resolve(&BTreeMap::new()).unwrap_err(), ConfigError::NoInterface("eth0".into()));
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
        let place = error.source_line.chars().skip(error.column - 1).collect();
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
        let path = "[[destination.path]]\nvia = \"fe80::1\"\ndev = \"a\"\nrate = \"1 Mbit/s\"\nrtt = \"1 ms\"\n";
        let crowd = format!("[[destination]]\nprefix = \"2001:db8::/32\"\n{}", path.repeat(MAX_PATHS + 1));
        assert_eq!(at(&crowd), "agent.toml:83:1: 2001:db8::/32 has 17 paths; 16 are the most");
        let narrow = format!("[agent]\nmark_mask = 1\n[[destination]]\nprefix = \"::/0\"\n{}", path.repeat(2));
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
        ] {
            let found = of_path(to, path);
            assert!(found.0.contains(what) && found.1 == place, "{path}: {found:?}");
        }
        // The items of an inline list are placed as well.
        let inline = format!("[[destination]]\nprefix = \"{to}\"\npath = [\n{{ rtt = \"1 ms\", rate = \"fast\" }}]\n");
        assert!(complaint(&inline).starts_with("agent.toml:4:24: "), "{}", complaint(&inline));
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
