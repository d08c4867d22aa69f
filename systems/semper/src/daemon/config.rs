//! The edge daemon's configuration file.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeSet, net::SocketAddr};

use serde::Deserialize;
use sidestep_balance::{BalanceMode, Balanced, PathSet};
use sidestep_control::assign_path_ids;
use sidestep_hostd::{
    MetricsConfig,
    paths::{Checker, MarkBits, Places, StaticDestination, StaticPath, is_interface_name},
};
use sidestep_net::{
    ParseError,
    document::{Document, Item},
};

use super::{EdgeProbeSettings, seed::read_seed};
use crate::daemon::balancer::MAX_PATHS;

/// The file, as TOML.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// How the edge balances.
    pub edge: EdgeSettings,
    /// How paths are probed, with `health = "probe"`.
    #[serde(default)]
    pub probe: Option<EdgeProbeSettings>,
    /// What is behind the other edges, and the paths there.
    #[serde(rename = "destination", default)]
    pub destinations: Vec<StaticDestination>,
    /// What Prometheus may read.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// Where the file names interfaces.
    #[serde(skip)]
    pub places: Places,
}

/// How an edge balances.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct EdgeSettings {
    /// The interfaces by which the site's packets come in.
    pub inside: Vec<String>,
    /// How a path is chosen by a flow's hash. Both edges must have the same.
    pub mode: BalanceMode,
    /// What shows that a path is dead.
    pub health: Health,
    /// Whether TCP flows are kept in a table, and assigned to paths in turn.
    pub stateful: bool,
    /// How many flows the table holds; those beyond go by their hash.
    pub flows: u32,
    /// Seed of the flow hash. Both edges must have the same. 0: it is [settled](EdgeConfig::settle_seed) at the start.
    #[serde(deserialize_with = "read_seed")]
    pub seed: u32,
    /// Whether another edge must choose alike, where nothing else shows that.
    pub symmetric: bool,
    /// Counts the changes of the set of paths, so that of two edges that differ it is known which has the newer one.
    pub generation: u64,
    /// Bits of the packet mark that nothing else on this router uses.
    pub mark_mask: u32,
    /// Where to listen for the other edge; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// Where the other edge listens, to which this one sends what it has; `None`: edges are not compared.
    pub peer: Option<SocketAddr>,
}

/// What shows that a path is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// The path's interface is gone, is down or has no carrier, or nothing leads to its first segment.
    #[default]
    Carrier,
    /// That, and probes that the other edge does not answer.
    Probe,
    /// Nothing: flows stay on the path that they are hashed to.
    Off,
}

/// Most flows of a table: half a gigabyte of the kernel's memory.
pub const MAX_FLOWS: u32 = 1 << 22;

impl Default for EdgeSettings {
    fn default() -> Self {
        EdgeSettings {
            inside: Vec::new(),
            mode: BalanceMode::default(),
            health: Health::default(),
            stateful: false,
            flows: 65_536,
            seed: 0,
            symmetric: false,
            generation: 0,
            mark_mask: 0x3f00_0000,
            listen: None,
            peer: None,
        }
    }
}

impl EdgeConfig {
    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let root = document.root();
        if root.get_ref().get("edge").is_none() {
            let message =
                "an edge needs `[edge]` with `inside = [\"eth0\"]`: the interfaces by which its site's packets come in";
            return Err(document.error(0..0, message));
        }
        let mut config: EdgeConfig = document.read(root, &[])?;
        for destination in &mut config.destinations {
            destination.prefix = destination.prefix.trunc();
        }
        config.check_settings(&document)?;
        let checker = Checker { document: &document, destinations: &config.destinations, most_paths: MAX_PATHS };
        config.places = checker.check()?;
        if config.destinations.is_empty() {
            return Err(document.error(0..0, "there is nothing to do: give a [[destination]] with paths"));
        }
        for (item, destination) in document.tables(root, "destination")?.iter().zip(&config.destinations) {
            config.check_destination(&document, item, destination)?;
        }
        config.check_probe(&document)?;
        Ok(config)
    }

    /// Puts the file's name in front of errors that are only found when the paths are resolved.
    pub fn in_file(mut self, file: &str) -> Self {
        self.places = self.places.in_file(file);
        self
    }

    /// The set of paths to a destination, as both edges have it: a path is known by its name.
    ///
    /// [`parse`](Self::parse) refuses what makes no set.
    pub fn set_of(&self, destination: &StaticDestination) -> Result<PathSet, String> {
        let EdgeSettings { mode, seed, generation, .. } = self.edge;
        PathSet::new(mode, seed, generation, &self.balanced(destination)).map_err(|error| error.to_string())
    }

    /// The identity and the weight of each path to a destination.
    pub(super) fn balanced(&self, destination: &StaticDestination) -> Vec<Balanced> {
        let name = |path: &StaticPath| path.name.clone().unwrap_or_default();
        let ids = assign_path_ids(destination.paths.iter().map(name).collect());
        let weight = |path: &StaticPath| match self.edge.mode {
            BalanceMode::Weighted => path.rate.bits_per_sec(),
            BalanceMode::Modulo | BalanceMode::Rendezvous => 1,
        };
        let balanced =
            |path: &StaticPath| Balanced { id: ids.get(&name(path)).map_or(0, |id| id.get()), weight: weight(path) };
        destination.paths.iter().map(balanced).collect()
    }

    /// Reports what the kernel's multipath routes cannot do of this.
    pub fn check_offload(&self) -> Result<(), String> {
        let settings = &self.edge;
        if settings.health == Health::Probe {
            return Err("--offload nexthops: the kernel knows no probes; set `health = \"carrier\"`".into());
        }
        let paths = self.destinations.iter().flat_map(|set| &set.paths);
        let other = paths.filter(|path| path.via.is_none()).map(|path| path.name.clone().unwrap_or_default()).next();
        if let Some(name) = other {
            return Err(format!(
                "--offload nexthops: the kernel balances over next hops alone, and `{name}` has no `via`"
            ));
        }
        if settings.mode != BalanceMode::Modulo || settings.stateful || settings.peer.is_some() {
            return Err(
                "--offload nexthops: the kernel has a hash of its own; remove `mode`, `stateful`, `listen` and `peer`"
                    .into(),
            );
        }
        if settings.seed == 0 {
            return Err(
                "--offload nexthops: 0 stands for a seed that each kernel draws; set the same `seed` at both edges"
                    .into(),
            );
        }
        Ok(())
    }

    fn check_settings(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        let edge = root.get_ref().get("edge").unwrap_or(root);
        let settings = &self.edge;
        if settings.inside.is_empty() {
            let message = "name the interfaces by which the site's packets come in: `inside = [\"eth0\"]`";
            return Err(document.error_at(edge, "inside", message));
        }
        for (index, name) in settings.inside.iter().enumerate() {
            if !is_interface_name(name) {
                return Err(document.error_in(edge, "inside", index, "this is no name that an interface can have"));
            }
            if settings.inside.iter().take(index).any(|other| other == name) {
                return Err(document.error_in(edge, "inside", index, format!("`{name}` is here a second time")));
            }
        }
        let ones = settings.mark_mask.checked_shr(settings.mark_mask.trailing_zeros()).unwrap_or(0);
        if ones == 0 || !(ones.wrapping_add(1)).is_power_of_two() && ones != u32::MAX {
            return Err(document.error_at(
                edge,
                "mark_mask",
                "mark_mask must be bits side by side, such as 0x3f000000",
            ));
        }
        if settings.flows == 0 || settings.flows > MAX_FLOWS {
            return Err(document.error_at(edge, "flows", format!("flows must be between 1 and {MAX_FLOWS}")));
        }
        if settings.listen.is_some() != settings.peer.is_some() {
            let (there, missing) = if settings.peer.is_some() { ("peer", "listen") } else { ("listen", "peer") };
            return Err(document.error_at(
                edge,
                there,
                format!("edges that are compared need `{missing}` beside `{there}`"),
            ));
        }
        Ok(())
    }

    fn check_destination(
        &self,
        document: &Document<'_>,
        item: &Item<'_>,
        destination: &StaticDestination,
    ) -> Result<(), ParseError> {
        let prefix = destination.prefix;
        if destination.paths.is_empty() {
            return Err(document.error_at(item, "path", format!("{prefix} has no path; give it one, or remove it")));
        }
        let slots = MarkBits::new(self.edge.mark_mask).slots();
        if destination.paths.len() > slots as usize {
            let message = format!("mark_mask has room for {slots} paths, and {prefix} has {}", destination.paths.len());
            return Err(document.error_at(item, "path", message));
        }
        for (item, path) in document.tables(item, "path")?.iter().zip(&destination.paths) {
            self.check_path(document, item, path)?;
        }
        self.set_of(destination).map(drop).map_err(|error| document.error_at(item, "path", error))
    }

    /// Checks what an edge wants of a path beyond what an agent wants.
    fn check_path(&self, document: &Document<'_>, item: &Item<'_>, path: &StaticPath) -> Result<(), ParseError> {
        let has = |key: &str| item.get_ref().get(key).is_some();
        if path.name.is_none() {
            let message = "a path of an edge needs a `name`: the other edge knows it by that";
            return Err(document.error_at(item, "", message));
        }
        for key in ["sources", "rtt", "mtu", "encap"] {
            if has(key) {
                return Err(document.error_at(item, key, format!("`{key}` means nothing to an edge: remove it")));
            }
        }
        match (self.edge.mode, has("rate")) {
            (BalanceMode::Weighted, false) => {
                let message = "the mode `weighted` balances by the paths' rates: give this one its `rate`";
                Err(document.error_at(item, "", message))
            }
            (BalanceMode::Modulo | BalanceMode::Rendezvous, true) => {
                let message = format!("`rate` means nothing to the mode `{}`: remove it", self.edge.mode.as_str());
                Err(document.error_at(item, "rate", message))
            }
            _ => Ok(()),
        }
    }

    /// The interfaces by which packets of paths arrive, for the table of flows.
    pub(super) fn outside(&self) -> BTreeSet<&str> {
        self.destinations.iter().flat_map(|set| &set.paths).filter_map(|path| path.dev.as_deref()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"
[edge]
inside = ["eth0"]
mode = "weighted"
[[destination]]
prefix = "10.2.0.0/16"
path = [
    { name = "blue", via = "10.0.1.1", dev = "eth1", rate = "1 Gbit/s" },
    { name = "green", via = "10.0.2.1", dev = "eth2", rate = "100 Mbit/s" },
]
"#;

    fn error(text: &str) -> String {
        EdgeConfig::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_set_is_the_same_at_both_edges_although_next_hops_and_prefixes_differ() {
        let here = EdgeConfig::parse(FILE).unwrap();
        let there = FILE.replace("10.2.0.0", "10.1.0.0").replace("10.0.1.1", "fe80::1").replace("eth1", "wan0");
        let there = EdgeConfig::parse(&there).unwrap();
        let version = |config: &EdgeConfig| config.set_of(&config.destinations[0]).unwrap().version();
        assert_eq!(version(&here), version(&there));
        let other = EdgeConfig::parse(&FILE.replace("100 Mbit/s", "200 Mbit/s")).unwrap();
        assert_ne!(version(&here).digest, version(&other).digest);
    }

    #[test]
    fn mistakes_are_reported_where_they_stand() {
        let with = |from: &str, to: &str| error(&FILE.replace(from, to));
        for (found, expected) in [
            (error("[[destination]]\nprefix = \"::/0\"\npath = []\n"), "an edge needs `[edge]`"),
            (error("[edge]\ninside = []\n"), "2:10: name the interfaces"),
            (error("[edge]\ninside = [\"eth0\"]\n"), "there is nothing to do"),
            (
                error("[edge]\ninside = [\"a\"]\n[[destination]]\nprefix = \"10.2.0.0/16\"\npath = []\n"),
                "5:8: 10.2.0.0/16 has no path; give it one, or remove it",
            ),
            (error(&format!("{FILE}{}", &FILE[FILE.find("[[").unwrap()..])), "10.2.0.0/16 is here a second time"),
            (with("via = \"10.0.2.1\", dev = \"eth2\", ", ""), "needs exactly one of `segments`, `path_id`, `via`"),
            (with("via = \"10.0.2.1\", dev = \"eth2\"", "path_id = \"fd00::b\""), "cannot be a `path_id` alone"),
            (with("inside = [\"eth0\"]", "inside = [\"eth0\", \"eth0\"]"), "3:19: `eth0` is here a second time"),
            (with("inside = [\"eth0\"]", "inside = [\"a b\"]"), "3:11: this is no name that an interface can have"),
            (with("weighted", "wheighted"), "4:8: unknown variant `wheighted`"),
            (with("name = \"blue\", ", ""), "a path of an edge needs a `name`"),
            (with("green", "blue"), "two paths of the name `blue`"),
            (with("10.0.2.1\", dev = \"eth2", "10.0.1.1\", dev = \"eth1"), "10.2.0.0/16 has this path twice"),
            (with(", rate = \"100 Mbit/s\"", ""), "balances by the paths' rates"),
            (with("100 Mbit/s", "0 bit/s"), "must be above zero"),
            (with("100 Mbit/s", "99999999999999 Gbit/s"), "is outside the range of a rate"),
            (with("mode = \"weighted\"", ""), "`rate` means nothing to the mode `modulo`"),
            (with("mode = \"weighted\"", "mode = \"weighted\"\nmark_mask = 0x5"), "must be bits side by side"),
            (
                with("mode = \"weighted\"", "mode = \"weighted\"\nmark_mask = 1"),
                "room for 1 paths, and 10.2.0.0/16 has 2",
            ),
            (with("mode = \"weighted\"", "mode = \"weighted\"\nflows = 0"), "5:9: flows must be between"),
            (with("mode = \"weighted\"", "mode = \"weighted\"\npeer = \"[::1]:1\""), "need `listen` beside `peer`"),
            (with("mode = \"weighted\"", "mode = \"weighted\"\nhelth = \"off\""), "unknown field `helth`"),
            (
                with(", rate = \"100 Mbit/s\"", ", rate = \"100 Mbit/s\", rtt = \"1 ms\""),
                "`rtt` means nothing to an edge",
            ),
        ] {
            assert!(found.contains(expected), "{found}\nis not: {expected}");
        }
        let many: Vec<_> =
            (0..33).map(|n| format!("{{ name = \"p{n}\", via = \"10.0.{n}.1\", dev = \"eth{n}\" }}")).collect();
        let text = format!(
            "[edge]\ninside = [\"in\"]\n[[destination]]\nprefix = \"10.2.0.0/16\"\npath = [{}]",
            many.join(",")
        );
        assert!(error(&text).contains("33 paths; 32 are the most"), "{}", error(&text));
        assert!(EdgeConfig::parse(&text.replace(&format!(",{}", many[32]), "")).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            drop(EdgeConfig::parse(&text));
            drop(EdgeConfig::parse(&FILE.replace("blue", &text)));
        }
    }
}
