//! The host daemon's configuration file: the policy's settings, and paths that need no controller.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use sidestep_model::{Rate, Span, scenario::AgentKnobs};
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

/// A path: exactly one of `segments`, `path_id` and `via`.
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
    /// Bandwidth.
    pub rate: Rate,
    /// Round-trip propagation time.
    pub rtt: Span,
    /// Largest packet in bytes, where less than the interface's.
    pub mtu: Option<u32>,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The text is not what it should be; the message says where.
    #[error("{0}")]
    Syntax(String),
    /// A path with none or several of the three kinds.
    #[error("a path to {0} needs exactly one of `segments`, `path_id` and `via`")]
    PathKind(IpNet),
    /// A next hop without its interface.
    #[error("the path to {0} via {1} needs the interface: `dev = \"eth0\"`")]
    NoDevice(IpNet, IpAddr),
    /// Something outside its range.
    #[error("{0}")]
    Range(String),
    /// A first segment that a destination's route would catch.
    #[error("the segment {1} of a path to {0} lies in {2}, whose route would catch it; give that a narrower prefix")]
    Loop(IpNet, Ipv6Addr, IpNet),
    /// A binding SID, which cannot say where IPv4 leaves the SRv6 domain.
    #[error(
        "a path to {0} cannot be a `path_id` alone: give `segments = [\"{1}\", \"…\"]`, last a SID that decapsulates IPv4 \
         (End.DT4, End.DT46 or End.DX4)"
    )]
    NoExit(IpNet, Ipv6Addr),
    /// A next hop that IPv6 cannot use.
    #[error("the path to {0} via {1} needs a next hop with an address of IPv6")]
    NextHopFamily(IpNet, IpAddr),
    /// A prefix of IPv4 in the clothes of IPv6.
    #[error("{0} never matches: its connections are IPv4; write it as `10.0.0.0/8`")]
    Mapped(IpNet),
    /// An interface that does not exist.
    #[error("there is no interface `{0}`; `ip link` lists those that exist")]
    NoInterface(String),
}

/// Most segments of a list of the host's own; the kernel's header has room for few more.
const MAX_SEGMENTS: usize = 16;

impl HostConfig {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: HostConfig = toml::from_str(text).map_err(|error| ConfigError::Syntax(place(text, &error)))?;
        let most = config.destinations.iter().map(|d| d.paths.len()).max().unwrap_or(0);
        if most > sidestep_policy::raw::MAX_PATHS {
            return Err(ConfigError::Range(format!("a destination has {most} paths; 16 are the most")));
        }
        config.agent.check(most.max(1)).map_err(|error| ConfigError::Range(error.to_string()))?;
        for destination in &config.destinations {
            if destination.paths.is_empty() {
                return Err(ConfigError::Range(format!("{} has no path; add one or remove it", destination.prefix)));
            }
            if is_mapped(destination.prefix) {
                return Err(ConfigError::Mapped(destination.prefix));
            }
            for path in &destination.paths {
                path.check(destination.prefix)?;
                config.check_first_segment(destination.prefix, path)?;
            }
        }
        Ok(config)
    }

    /// The paths, with interface names looked up in `interfaces`.
    pub fn resolve(&self, interfaces: &BTreeMap<String, u32>) -> Result<Vec<DestinationPaths>, ConfigError> {
        self.resolve_or(interfaces, Err)
    }

    /// The same without the paths whose interface is not there.
    pub fn resolve_present(&self, interfaces: &BTreeMap<String, u32>) -> Vec<DestinationPaths> {
        let leave_out = |error: ConfigError| {
            tracing::warn!(%error, "a path is left out until it is there");
            Ok(())
        };
        self.resolve_or(interfaces, leave_out).unwrap_or_default()
    }

    /// All destinations share the tables, in which the packet with its new header is looked up, too.
    fn check_first_segment(&self, prefix: IpNet, path: &StaticPath) -> Result<(), ConfigError> {
        let first = path.segments.as_ref().and_then(|list| list.first().copied()).or(path.path_id);
        let Some(first) = first else { return Ok(()) };
        let catches = self.destinations.iter().find(|other| other.prefix.contains(&IpAddr::from(first)));
        catches.map_or(Ok(()), |other| Err(ConfigError::Loop(prefix, first, other.prefix)))
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

/// The error on one line, with the place where it is.
fn place(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', "; ");
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {line}, column {column}: {message}")
}

impl StaticPath {
    fn check(&self, prefix: IpNet) -> Result<(), ConfigError> {
        let kinds = [self.segments.is_some(), self.path_id.is_some(), self.via.is_some()];
        if kinds.iter().filter(|given| **given).count() != 1 {
            return Err(ConfigError::PathKind(prefix));
        }
        if let (Some(via), None) = (self.via, &self.dev) {
            return Err(ConfigError::NoDevice(prefix, via));
        }
        if self.segments.as_ref().is_some_and(|list| !(1..=MAX_SEGMENTS).contains(&list.len())) {
            return Err(ConfigError::Range(format!("a path to {prefix} must have 1 to {MAX_SEGMENTS} segments")));
        }
        match (prefix, self.via, self.path_id) {
            (IpNet::V6(_), Some(via), _) if via.is_ipv4() => return Err(ConfigError::NextHopFamily(prefix, via)),
            (IpNet::V4(_), _, Some(sid)) => return Err(ConfigError::NoExit(prefix, sid)),
            _ => {}
        }
        if self.mtu.is_some_and(|mtu| !(1280..=65_000).contains(&mtu)) {
            return Err(ConfigError::Range(format!("the mtu of a path to {prefix} must be between 1280 and 65000")));
        }
        Ok(())
    }

    fn resolve(&self, id: u32, interfaces: &BTreeMap<String, u32>) -> Result<HostPath, ConfigError> {
        let route = match (&self.segments, self.path_id, self.via, &self.dev) {
            (Some(segments), ..) => PathRoute::Segments(segments.clone()),
            (_, Some(sid), ..) => PathRoute::PathId(sid),
            (_, _, Some(via), Some(dev)) => {
                let index = interfaces.get(dev).ok_or_else(|| ConfigError::NoInterface(dev.clone()))?;
                PathRoute::Via(via, *index)
            }
            // `check` lets nothing else through.
            _ => return Err(ConfigError::Range("a path needs `segments`, `path_id` or `via`".into())),
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
        ]
    "#;

    #[test]
    fn a_path_is_a_next_hop_or_a_segment_list() {
        let config = HostConfig::parse(TWO_PROVIDERS).unwrap();
        let sets = config.resolve(&BTreeMap::from([("eth0".to_string(), 7)])).unwrap();
        assert_eq!(sets[0].paths[0].route, PathRoute::Via("fe80::1".parse().unwrap(), 7));
        assert_eq!(sets[0].paths[0].name, "blue");
        assert_eq!(sets[0].paths[1].route, PathRoute::Segments(vec!["fd01:0:2:e::".parse().unwrap()]));
        assert_eq!(sets[0].paths[1].id, 2);
        assert_eq!(config.resolve(&BTreeMap::new()).unwrap_err(), ConfigError::NoInterface("eth0".into()));
    }

    #[test]
    fn mistakes_are_named() {
        let path = |text: &str| {
            HostConfig::parse(&format!(
                "[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{{ {text}, rate = \"1 Mbit/s\", rtt = \"1 ms\" }}]"
            ))
        };
        assert!(matches!(path(r#"via = "fe80::1""#), Err(ConfigError::NoDevice(..))));
        assert!(matches!(path(r#"via = "fe80::1", dev = "a", path_id = "::1""#), Err(ConfigError::PathKind(_))));
        assert!(matches!(path(r#"segments = []"#), Err(ConfigError::Range(_))));
        assert!(matches!(path(r#"segments = ["2001:db8::e"]"#), Err(ConfigError::Loop(..))));
        assert!(matches!(path(r#"path_id = "2001:db8::b""#), Err(ConfigError::Loop(..))));
        assert!(matches!(path(r#"path_id = "::1", mtu = 600"#), Err(ConfigError::Range(_))));
        assert!(
            matches!(path(r#"path_id = "::1", wrong = 1"#), Err(ConfigError::Syntax(message)) if message.starts_with("line 3, column ") && message.contains("wrong"))
        );
        assert!(HostConfig::parse("[agent]\ngamma = 3.0").is_err());
        let listen = HostConfig::parse("[metrics]\nlisten = \"9435\"").unwrap_err().to_string();
        assert!(listen.starts_with("line 2, column 10: `9435` is not an address"), "{listen}");
        assert!(matches!(path(r#"via = "10.0.0.1", dev = "a""#), Err(ConfigError::NextHopFamily(..))));
    }

    #[test]
    fn what_ipv4_cannot_have_is_named() {
        let to = |prefix: &str, text: &str| {
            HostConfig::parse(&format!(
                "[[destination]]\nprefix = \"{prefix}\"\npath = [{{ {text}, rate = \"1 Mbit/s\", rtt = \"1 ms\" }}]"
            ))
        };
        for good in
            [r#"via = "10.0.0.1", dev = "a""#, r#"via = "fe80::1", dev = "a""#, r#"segments = ["fd01::e", "fd01::d4"]"#]
        {
            assert!(to("10.9.0.0/16", good).is_ok(), "{good}");
        }
        assert!(matches!(to("10.9.0.0/16", r#"path_id = "fd01::b""#), Err(ConfigError::NoExit(..))));
        let mapped = to("::ffff:10.9.0.0/112", r#"via = "fe80::1", dev = "a""#);
        assert!(matches!(mapped, Err(ConfigError::Mapped(_))));
        assert!(to("::/0", r#"via = "fe80::1", dev = "a""#).is_ok());
    }

    #[test]
    fn a_first_segment_must_not_lie_within_any_destination() {
        let path = r#"rate = "1 Mbit/s", rtt = "1 ms""#;
        let text = format!(
            "[[destination]]\nprefix = \"10.9.0.0/16\"\npath = [{{ segments = [\"fd01::e\", \"fd01::d4\"], {path} }}]\n\
             [[destination]]\nprefix = \"fd00::/8\"\npath = [{{ via = \"fe80::1\", dev = \"a\", {path} }}]"
        );
        let caught = HostConfig::parse(&text).unwrap_err();
        assert_eq!(
            caught,
            ConfigError::Loop("10.9.0.0/16".parse().unwrap(), "fd01::e".parse().unwrap(), "fd00::/8".parse().unwrap())
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = HostConfig::parse(&text);
        }
    }
}
