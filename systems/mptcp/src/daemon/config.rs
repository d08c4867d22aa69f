//! The path manager's configuration file.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_net::{
    Bytes, ParseError, Ratio, Span,
    document::{Document, Item},
};

use super::{addresses::AddressesConfig, congestion::CongestionConfig, ports::MAX_PATHS};

/// The file, as TOML.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MptcpPmConfig {
    /// What each connection gets, unless a rule says otherwise.
    pub subflows: Wish,
    /// What connections with some hosts get.
    #[serde(rename = "rule")]
    pub rules: Vec<PrefixRule>,
    /// Which of the host's addresses subflows may begin from.
    pub addresses: AddressesConfig,
    /// How source ports are chosen.
    pub ports: PortsConfig,
    /// What all connections may have together.
    pub limits: LimitsConfig,
    /// Which congestion control new connections get.
    pub congestion: CongestionConfig,
    /// How connections are watched.
    pub watch: WatchConfig,
    /// Where Prometheus may read metrics.
    pub metrics: MetricsTable,
}

/// Which subflows a connection gets; what is left out is that of `[subflows]`, or its default there.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Wish {
    /// Between which addresses.
    pub mode: Option<Mode>,
    /// How many at most, the first included.
    pub count: Option<u32>,
    /// How much the connection carries before it gets more than the first.
    pub after: Option<Bytes>,
    /// Most subflows of all of the rule's connections, the first ones included.
    pub limit: Option<u32>,
    /// Most of these with one other host.
    pub limit_per_host: Option<u32>,
}

/// What connections with the hosts of a prefix get.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixRule {
    /// The prefix of the other end's address.
    pub prefix: IpNet,
    /// As in [`Wish`].
    pub mode: Option<Mode>,
    /// As in [`Wish`].
    pub count: Option<u32>,
    /// As in [`Wish`].
    pub after: Option<Bytes>,
    /// As in [`Wish`].
    pub limit: Option<u32>,
    /// As in [`Wish`].
    pub limit_per_host: Option<u32>,
}

/// Between which addresses a connection has subflows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All between the two addresses that it began with; their ports differ.
    #[default]
    Ndiffports,
    /// One between each address of this host and each that the other end has announced.
    Fullmesh,
    /// None but those that the other end opens.
    AcceptOnly,
}

/// How source ports are chosen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct PortsConfig {
    /// By whom.
    pub choice: PortChoice,
    /// The seed of the edges' hash; only for ports that are stratified.
    pub seed: u32,
    /// How many paths the edges have, where that is known; only for ports that are stratified.
    pub paths: Option<u32>,
    /// The share of an address's ports that subflows may take, so that new connections find some.
    pub share: Ratio,
}

/// By whom source ports are chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum PortChoice {
    /// By the kernel, about at random.
    #[default]
    Kernel,
    /// By the path manager, such that subflows spread evenly over the paths of edges that hash.
    Stratified,
}

/// What all connections may have together.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Connections that are managed; further ones are left alone.
    pub connections: u32,
    /// Subflows of all of them, the first ones included.
    pub subflows: u32,
}

/// How connections are watched.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct WatchConfig {
    /// How often the kernel's list of subflows is read.
    pub interval: Span,
    /// Timeouts in a row after which a subflow is dead, if another of its connection works.
    pub timeouts: u8,
    /// Room for events that wait to be read, by the kernel's count; set at the start only.
    pub event_buffer: Bytes,
}

/// Whether and where Prometheus may read metrics.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsTable {
    /// Where to listen; `None`: nowhere.
    #[serde(deserialize_with = "sidestep_hostd::metrics::address")]
    pub listen: Option<SocketAddr>,
}

/// What connections with some hosts get, with all defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The other end's prefix; `None` for what no other rule names.
    pub(super) prefix: Option<IpNet>,
    pub(super) mode: Mode,
    pub(super) count: u32,
    pub(super) after: Bytes,
    pub(super) limit: Option<u32>,
    pub(super) limit_per_host: Option<u32>,
}

/// Subflows of a connection where the file does not say: the paper's K.
pub const DEFAULT_COUNT: u32 = 32;
/// The most that can be asked for; the kernel counts a connection's subflows in a byte.
pub const MAX_SUBFLOWS: u32 = 128;
/// The most rules: each new connection is compared with all of them.
const MAX_RULES: usize = 1_024;
/// The most connections that can be managed.
const MAX_CONNECTIONS: u32 = 1 << 20;

impl Default for PortsConfig {
    fn default() -> Self {
        PortsConfig { choice: PortChoice::Kernel, seed: 0, paths: None, share: Ratio::from_ppb(900_000_000) }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig { connections: 65_536, subflows: 262_144 }
    }
}

impl Default for WatchConfig {
    fn default() -> Self {
        WatchConfig { interval: Span::from_secs(1), timeouts: 3, event_buffer: Bytes::new(8 << 20) }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Ndiffports => "ndiffports",
            Mode::Fullmesh => "fullmesh",
            Mode::AcceptOnly => "accept-only",
        })
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ndiffports" => Ok(Mode::Ndiffports),
            "fullmesh" => Ok(Mode::Fullmesh),
            "accept-only" => Ok(Mode::AcceptOnly),
            _ => Err(format!("`{text}` is none of ndiffports, fullmesh and accept-only")),
        }
    }
}

impl MptcpPmConfig {
    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let root = document.root();
        // A file that an editor or a full disk has emptied is no wish for defaults.
        if root.get_ref().as_table().is_none_or(|table| table.is_empty()) {
            return Err(document
                .error(0..0, "the file says nothing; write `[subflows]` if every setting is to have its default"));
        }
        let mut config: MptcpPmConfig = document.read(root, &[])?;
        config.rules.iter_mut().for_each(|rule| rule.prefix = rule.prefix.trunc());
        let item = |key: &str| root.get_ref().get(key).unwrap_or(root);
        let wish =
            |item: &Item<'_>, wish: &Wish| wish.check().map_err(|(key, problem)| document.error_at(item, key, problem));
        wish(item("subflows"), &config.subflows)?;
        let rules = document.tables(root, "rule")?;
        if config.rules.len() > MAX_RULES {
            return Err(
                document.error(0..0, format!("{} rules are too many; {MAX_RULES} are the most", config.rules.len()))
            );
        }
        for (index, (place, rule)) in rules.iter().zip(&config.rules).enumerate() {
            wish(place, &rule.wish())?;
            if config.rules.iter().take(index).any(|before| before.prefix == rule.prefix) {
                return Err(document.error_at(place, "prefix", format!("{} is here a second time", rule.prefix)));
            }
        }
        if let Some((key, index, problem)) = config.addresses.problem() {
            return Err(document.error_in(item("addresses"), key, index, problem));
        }
        if let Some((table, key, problem)) = config.problems().into_iter().next() {
            return Err(document.error_at(item(table), key, problem));
        }
        Ok(config)
    }

    /// What [`parse`](Self::parse) reads otherwise than it stands in the file: prefixes with host bits.
    pub fn notes(text: &str) -> Vec<ParseError> {
        let Ok(document) = Document::parse(text) else { return Vec::new() };
        let rules = document.tables(document.root(), "rule").unwrap_or_default();
        rules.iter().filter_map(|item| document.note_host_bits(item, "prefix")).collect()
    }

    /// Values outside of what can be: their table, key, and what is wrong.
    fn problems(&self) -> Vec<(&'static str, &'static str, String)> {
        let mut problems = Vec::new();
        let share = self.ports.share.ppb();
        if !(10_000_000..=1_000_000_000).contains(&share) {
            problems.push(("ports", "share", "it must be from 1 % to 100 %".into()));
        }
        match (self.ports.paths, self.ports.choice) {
            (Some(paths), _) if !(2..=MAX_PATHS).contains(&paths) => {
                problems.push(("ports", "paths", format!("it must be from 2 to {MAX_PATHS}")));
            }
            (Some(_), PortChoice::Kernel) => {
                problems.push(("ports", "paths", "it needs `choice = \"stratified\"`".into()));
            }
            _ => {}
        }
        if !(1..=MAX_CONNECTIONS).contains(&self.limits.connections) {
            problems.push(("limits", "connections", format!("it must be from 1 to {MAX_CONNECTIONS}")));
        }
        if self.limits.subflows == 0 {
            problems.push(("limits", "subflows", "it must be at least 1".into()));
        }
        if !(Span::from_millis(100)..=Span::from_secs(3_600)).contains(&self.watch.interval) {
            problems.push(("watch", "interval", "it must be from 100 ms to 60 min".into()));
        }
        if !(1..=15).contains(&self.watch.timeouts) {
            problems.push(("watch", "timeouts", "it must be from 1 to 15".into()));
        }
        if !(4_096..=1 << 30).contains(&self.watch.event_buffer.get()) {
            problems.push(("watch", "event_buffer", "it must be from 4096 B to 1 GB".into()));
        }
        problems
    }

    /// Whether some connections have subflows between all pairs of addresses.
    pub(super) fn has_fullmesh(&self) -> bool {
        self.resolve().iter().any(|rule| rule.mode == Mode::Fullmesh)
    }

    /// The rules with all defaults filled in; the last is for all that no other names.
    pub(super) fn resolve(&self) -> Vec<Rule> {
        let base = self.subflows;
        let rule = |prefix: Option<IpNet>, wish: Wish| Rule {
            prefix,
            mode: wish.mode.or(base.mode).unwrap_or_default(),
            count: wish.count.or(base.count).unwrap_or(DEFAULT_COUNT),
            after: wish.after.or(base.after).unwrap_or_default(),
            limit: wish.limit,
            limit_per_host: wish.limit_per_host.or(base.limit_per_host),
        };
        let named = self.rules.iter().map(|named| rule(Some(named.prefix), named.wish()));
        named.chain([rule(None, base)]).collect()
    }
}

/// The rule for a connection with this host: that of the longest prefix. The last of `rules` is for all.
pub(super) fn rule_for(rules: &[Rule], remote: IpAddr) -> usize {
    let named = rules.iter().enumerate().filter_map(|(index, rule)| Some((rule.prefix?, index)));
    let best = named.filter(|(prefix, _)| prefix.contains(&remote)).max_by_key(|(prefix, _)| prefix.prefix_len());
    best.map_or(rules.len().saturating_sub(1), |(_, index)| index)
}

impl PrefixRule {
    fn wish(&self) -> Wish {
        Wish {
            mode: self.mode,
            count: self.count,
            after: self.after,
            limit: self.limit,
            limit_per_host: self.limit_per_host,
        }
    }
}

impl Wish {
    /// The key of a value that cannot be, and what is wrong with it.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.count.is_some_and(|count| !(1..=MAX_SUBFLOWS).contains(&count)) {
            return Err(("count", format!("it must be from 1 to {MAX_SUBFLOWS}")));
        }
        for (key, limit) in [("limit", self.limit), ("limit_per_host", self.limit_per_host)] {
            if limit == Some(0) {
                return Err((
                    key,
                    "it must be at least 1; for no further subflows write `mode = \"accept-only\"`".into(),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"
        [subflows]
        count = 16
        limit_per_host = 400

        [[rule]]
        prefix = "2001:db8::/32"
        mode = "fullmesh"

        [[rule]]
        prefix = "2001:db8:7::/48"
        count = 4
        after = "100 kB"
        limit = 64

        [ports]
        choice = "stratified"
        seed = 7
    "#;

    #[test]
    fn a_rule_takes_what_it_leaves_out_from_the_table_for_all_and_the_longest_prefix_wins() {
        let rules = MptcpPmConfig::parse(FILE).unwrap().resolve();
        let of = |address: &str| rules[rule_for(&rules, address.parse().unwrap())];
        let wide = of("2001:db8::1");
        assert_eq!((wide.mode, wide.count, wide.limit, wide.limit_per_host), (Mode::Fullmesh, 16, None, Some(400)));
        let narrow = of("2001:db8:7::1");
        assert_eq!((narrow.mode, narrow.count, narrow.limit), (Mode::Ndiffports, 4, Some(64)));
        assert_eq!(narrow.after, Bytes::new(100_000));
        let other = of("10.0.0.1");
        assert_eq!((other.prefix, other.mode, other.count), (None, Mode::Ndiffports, 16));
        let defaults = MptcpPmConfig::default().resolve();
        assert_eq!((defaults.len(), defaults[0].count, defaults[0].mode), (1, 32, Mode::Ndiffports));
    }

    #[test]
    fn a_mistake_is_shown_where_it_stands() {
        let message = |text: &str| MptcpPmConfig::parse(text).unwrap_err().to_string();
        assert!(message("").contains("the file says nothing"));
        let wrong = message("[subflows]\ncount = 500\n");
        assert!(wrong.starts_with("2:9: it must be from 1 to 128") && wrong.contains('^'), "{wrong}");
        assert!(message("[subflows]\nmode = \"backup\"\n").starts_with("2:8: "));
        assert!(message("[subflow]\ncount = 3\n").contains("subflow"));
        let twice = "[[rule]]\nprefix = \"10.0.0.0/8\"\n[[rule]]\nprefix = \"10.1.0.0/8\"\n";
        assert!(message(twice).starts_with("4:10: 10.0.0.0/8 is here a second time"), "{}", message(twice));
        assert!(message("[ports]\nshare = \"0.1 %\"\n").starts_with("2:9: it must be from 1 % to 100 %"));
        assert!(message("[ports]\npaths = 33\n").starts_with("2:9: it must be from 2 to 32"));
        assert!(message("[ports]\npaths = 8\n").starts_with("2:9: it needs `choice = \"stratified\"`"));
        assert!(MptcpPmConfig::parse("[ports]\npaths = 8\nchoice = \"stratified\"\n").is_ok());
        let named = message("[addresses]\nexclude = [\"docker*\", \"a/b\"]\n");
        assert!(named.starts_with("2:23: `a/b` is neither a name of interfaces"), "{named}");
        assert!(message("[addresses]\npaths = \"edge\"\n").starts_with("2:9: "));
        assert!(message("[watch]\ninterval = \"1 ms\"\n").starts_with("2:12: "));
        assert!(message("[watch]\ntimeouts = 0\n").starts_with("2:12: "));
        assert!(message("[[rule]]\nprefix = \"::/0\"\nlimit = 0\n").starts_with("3:9: it must be at least 1"));
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text: String) {
            let _ = MptcpPmConfig::parse(&text);
        }
    }
}
