//! The table `[probe]` of the edge daemon's file.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use sidestep_linux::netlink::Family;
use sidestep_net::{ParseError, Span, document::Document};
use sidestep_proto::rounds::RoundsConfig;

use super::{EdgeConfig, Health};

/// How paths are probed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct EdgeProbeSettings {
    /// Addresses of this edge, one at most of each family: probes leave from them, and those of the other edge are answered there.
    pub source: Vec<IpAddr>,
    /// Addresses of the other edges, each within a destination, where these answer.
    pub target: Vec<IpAddr>,
    /// The UDP port at which edges answer. Both edges must have the same.
    pub port: u16,
    /// How often each path is probed.
    pub interval: Span,
    /// An answer that takes longer is late.
    pub timeout: Span,
    /// This number of probes in a row without an answer makes a path dead.
    pub lost: u32,
    /// This number of probes in a row with an answer makes it live again.
    pub answered: u32,
}

/// Most sockets that probe: paths times targets.
const MAX_SOCKETS: usize = 1_024;
/// Most answers or losses in a row that are waited for.
const MAX_IN_A_ROW: u32 = 10_000;

impl Default for EdgeProbeSettings {
    fn default() -> Self {
        EdgeProbeSettings {
            source: Vec::new(),
            target: Vec::new(),
            port: 8401,
            interval: Span::from_millis(100),
            timeout: Span::from_millis(300),
            lost: 3,
            answered: 30,
        }
    }
}

impl EdgeProbeSettings {
    /// What rounds of probes go by.
    pub(super) fn rounds(&self) -> RoundsConfig {
        let EdgeProbeSettings { interval, timeout, lost, answered, .. } = *self;
        RoundsConfig { interval, timeout, lost, answered }
    }

    /// The address from which a target is probed.
    pub(super) fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        self.source.iter().copied().find(|source| source.is_ipv4() == target.is_ipv4())
    }

    /// The targets within a destination, but not within a narrower one.
    pub(super) fn targets_in(&self, destination: IpNet, all: impl Iterator<Item = IpNet> + Clone) -> Vec<IpAddr> {
        let narrowest = |target: IpAddr| {
            all.clone().filter(|prefix| prefix.contains(&target)).max_by_key(|prefix| prefix.prefix_len())
        };
        self.target.iter().copied().filter(|target| narrowest(*target) == Some(destination)).collect()
    }
}

impl EdgeConfig {
    /// The prefixes of the destinations.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = IpNet> + Clone {
        self.destinations.iter().map(|destination| destination.prefix)
    }

    /// How paths are probed; `None` if they are not.
    pub(super) fn probing(&self) -> Option<&EdgeProbeSettings> {
        self.probe.as_ref().filter(|_| self.edge.health == Health::Probe)
    }

    pub(super) fn check_probe(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        let edge = root.get_ref().get("edge").unwrap_or(root);
        let settings = match (&self.probe, self.edge.health) {
            (None, Health::Probe) => {
                let message = "health = \"probe\" needs `[probe]` with `source` and `target`: an address of this edge, and one of the other";
                return Err(document.error_at(edge, "health", message));
            }
            (Some(_), Health::Carrier | Health::Off) => {
                let message = "`[probe]` means nothing without `health = \"probe\"` in [edge]";
                return Err(document.error_at(root, "probe", message));
            }
            (None, _) => return Ok(()),
            (Some(settings), Health::Probe) => settings,
        };
        let table = root.get_ref().get("probe").unwrap_or(root);
        let at = |key: &str, message: &str| Err(document.error_at(table, key, message));
        let times = Span::from_millis(10)..=Span::from_secs(10);
        if !times.contains(&settings.interval) {
            return at("interval", "interval must be between 10 ms and 10 s");
        }
        if !times.contains(&settings.timeout) {
            return at("timeout", "timeout must be between 10 ms and 10 s");
        }
        if !(1..=MAX_IN_A_ROW).contains(&settings.lost) {
            return at("lost", "lost must be between 1 and 10000");
        }
        if !(1..=MAX_IN_A_ROW).contains(&settings.answered) {
            return at("answered", "answered must be between 1 and 10000");
        }
        if settings.port == 0 {
            return at("port", "port must be between 1 and 65535");
        }
        self.check_addresses(document, settings)
    }

    fn check_addresses(&self, document: &Document<'_>, settings: &EdgeProbeSettings) -> Result<(), ParseError> {
        let root = document.root();
        let table = root.get_ref().get("probe").unwrap_or(root);
        for (index, source) in settings.source.iter().enumerate() {
            if settings.source.iter().take(index).any(|other| other.is_ipv4() == source.is_ipv4()) {
                let message = format!("a second address of {}: one is the most", Family::of((*source).into()));
                return Err(document.error_in(table, "source", index, message));
            }
        }
        for (index, target) in settings.target.iter().enumerate() {
            let at = |message: String| Err(document.error_in(table, "target", index, message));
            if settings.target.iter().take(index).any(|other| other == target) {
                return at(format!("{target} is here a second time"));
            }
            if !self.prefixes().any(|prefix| prefix.contains(target)) {
                return at(format!("{target} is in no destination, so that no path leads there"));
            }
            if settings.source_for(*target).is_none() {
                let family = Family::of((*target).into());
                return at(format!("`source` has no address of {family} from which to probe it"));
            }
        }
        let mut sockets = 0;
        for (item, destination) in document.tables(root, "destination")?.iter().zip(&self.destinations) {
            let targets = settings.targets_in(destination.prefix, self.prefixes());
            if targets.is_empty() {
                let message = format!("nothing in {} is probed: give [probe] a `target` there", destination.prefix);
                return Err(document.error_at(item, "prefix", message));
            }
            sockets += targets.len() * destination.paths.len();
        }
        if sockets > MAX_SOCKETS {
            let message = format!("{sockets} pairs of a path and a target; {MAX_SOCKETS} are the most");
            return Err(document.error_at(table, "target", message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"
[edge]
inside = ["eth0"]
health = "probe"
[probe]
source = ["10.1.0.1", "2001:db8:1::1"]
target = ["10.2.0.1", "2001:db8:2::1"]
interval = "50 ms"
[[destination]]
prefix = "10.2.0.0/16"
path = [
    { name = "blue", via = "10.0.1.1", dev = "eth1" },
    { name = "green", via = "10.0.2.1", dev = "eth2" },
]
[[destination]]
prefix = "2001:db8:2::/48"
path = [{ name = "blue", segments = ["fd00::1"] }]
"#;

    #[test]
    fn each_target_belongs_to_the_narrowest_destination_around_it() {
        let config = EdgeConfig::parse(FILE).unwrap();
        let settings = config.probing().unwrap();
        assert_eq!((settings.port, settings.lost, settings.rounds().interval), (8401, 3, Span::from_millis(50)));
        let targets = |destination: &str| settings.targets_in(destination.parse().unwrap(), config.prefixes());
        assert_eq!(targets("10.2.0.0/16"), ["10.2.0.1".parse::<IpAddr>().unwrap()]);
        let nested = ["10.0.0.0/8", "10.2.0.0/16"].map(|prefix| prefix.parse().unwrap());
        assert!(settings.targets_in(nested[0], nested.into_iter()).is_empty());
    }

    #[test]
    fn mistakes_are_reported_where_they_stand() {
        let with = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            EdgeConfig::parse(&FILE.replace(from, to)).unwrap_err().to_string()
        };
        for (found, expected) in [
            (with("health = \"probe\"", ""), "`[probe]` means nothing without `health = \"probe\"`"),
            (with("\"probe\"", "\"carrier\""), "`[probe]` means nothing without"),
            (with("50 ms", "1 ms"), "8:12: interval must be between 10 ms and 10 s"),
            (with("interval", "timeout = \"11 s\"\ninterval"), "timeout must be between"),
            (with("interval", "lost = 0\ninterval"), "lost must be between"),
            (with("interval", "answered = 10001\ninterval"), "answered must be between"),
            (with("interval", "port = 0\ninterval"), "port must be between"),
            (with("interval", "intervals"), "unknown field `intervals`"),
            (with("10.1.0.1", "2001:db8:1::2"), "a second address of IPv6"),
            (with("\"10.1.0.1\", ", ""), "`source` has no address of IPv4"),
            (with("10.2.0.1", "10.3.0.1"), "7:11: 10.3.0.1 is in no destination"),
            (with("\"10.2.0.1\", ", ""), "nothing in 10.2.0.0/16 is probed"),
            (with("\"10.2.0.1\", ", "\"10.2.0.1\", \"10.2.0.1\", "), "10.2.0.1 is here a second time"),
        ] {
            assert!(found.contains(expected), "{found}\nis not: {expected}");
        }
        let without = FILE.split("[probe]").next().unwrap().to_string() + &FILE[FILE.find("[[").unwrap()..];
        let found = EdgeConfig::parse(&without).unwrap_err().to_string();
        assert!(found.contains("health = \"probe\" needs `[probe]`"), "{found}");
        let targets: Vec<_> = (0..600).map(|n| format!("\"10.2.{}.{}\"", n / 250, 2 + n % 250)).collect();
        let found = with("\"10.2.0.1\"", &targets.join(","));
        assert!(found.contains("1201 pairs of a path and a target"), "{found}");
    }

    proptest! {
        #[test]
        fn any_table_is_read_or_refused(text in "\\PC{0,60}") {
            drop(EdgeConfig::parse(&FILE.replace("50 ms", &text)));
            drop(EdgeConfig::parse(&FILE.replace("10.2.0.1", &text)));
        }
    }
}
