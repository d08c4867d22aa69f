//! The INRPP router's configuration file.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod keys;
mod memory;
mod neighbour;

use std::{collections::BTreeSet, net::SocketAddr};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use sidestep_hostd::paths::is_interface_name;
use sidestep_net::{
    Bytes, ParseError, Rate, SettingError, SettingsTable, Span,
    document::{Document, Item},
    settings::ensure,
};

use crate::InrppSettings;

use self::neighbour::NeighbourTable;
pub use self::{
    keys::{KeyError, fresh_key, read_key},
    memory::{check_memory, free_memory},
    neighbour::{DEFAULT_PORT, Link, LinkRate, NeighbourConfig},
};

/// The file: this router, its neighbours and its edges.
#[derive(Clone, Debug, PartialEq)]
pub struct InrppConfig {
    /// What the router is like.
    pub settings: RouterSettings,
    /// The routers at the other ends of its links.
    pub neighbours: Vec<NeighbourConfig>,
    /// The interfaces to hosts, and to networks that know nothing of INRPP.
    pub edges: Vec<EdgeConfig>,
    /// Where Prometheus may read metrics.
    pub metrics: MetricsTable,
}

/// What the router is like: `[inrpp]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterSettings {
    /// What its hellos say; empty until [`InrppConfig::settle_name`] where the file names none.
    pub name: String,
    /// What the cache of each port holds.
    pub cache: Bytes,
    /// How long the full buffer of a port takes to drain.
    pub buffer: Span,
    /// How long packets of other protocols that wait take to drain at most.
    pub tcp_buffer: Span,
    /// Whether packets are sent around links.
    pub detours: bool,
    /// The gain of a detour's rate (α).
    pub alpha: f64,
    /// Between two probes of a detour (T_p).
    pub probe_interval: Span,
    /// Between two decisions on whether a detour is used (T_d).
    pub decision_interval: Span,
    /// What brings packets into the process.
    pub divert: DivertBy,
    /// What becomes of packets while nothing waits.
    pub idle: Idle,
    /// How long the egress waits for what detours disturb; `None`: it does not.
    #[serde(deserialize_with = "span_or_off")]
    pub resequence: Option<Span>,
    /// How many TCP connections are known at once.
    pub flows: u32,
    /// Between two hellos; a neighbour is left after three that do not come.
    pub hello: Span,
}

/// What brings what the kernel routes into the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DivertBy {
    /// Programs at tc.
    #[default]
    Filters,
    /// Routes and rules, where programs at tc are not allowed.
    Routes,
}

/// What becomes of packets while nothing waits at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// The process forwards them.
    #[default]
    Divert,
    /// The kernel forwards them, until a port has more than its link takes.
    Pass,
}

/// An interface to hosts, or to networks that know nothing of INRPP: `[[edge]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// The interface.
    pub interface: String,
    /// The capacity of its link, if packets are to wait here too.
    #[serde(default)]
    pub rate: Option<Rate>,
}

/// Whether and where Prometheus may read metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsTable {
    /// Where to listen; `None`: nowhere.
    #[serde(deserialize_with = "sidestep_hostd::metrics::address")]
    pub listen: Option<SocketAddr>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTables {
    #[serde(default)]
    inrpp: RouterSettings,
    #[serde(default)]
    metrics: MetricsTable,
    #[serde(rename = "neighbour", default)]
    neighbours: Vec<NeighbourTable>,
    #[serde(rename = "edge", default)]
    edges: Vec<EdgeConfig>,
}

/// The most neighbours, which a hello has to list, and the most edges.
pub const MAX_PORTS: usize = 250;
/// The most connections that can be known at once.
pub const MAX_FLOWS: u32 = 1 << 22;
/// What names of TUN devices begin with.
const PREFIX: &str = "inrpp-";
/// The longest name of an interface.
const MAX_INTERFACE: usize = 15;
/// The longest name of a router.
const MAX_NAME: usize = 63;

impl Default for RouterSettings {
    fn default() -> Self {
        let InrppSettings { cache, buffer, tcp_buffer, detours, alpha, probe_interval, decision_interval, .. } =
            InrppSettings::default();
        RouterSettings {
            name: String::new(),
            cache,
            buffer,
            tcp_buffer,
            detours,
            alpha,
            probe_interval,
            decision_interval,
            divert: DivertBy::default(),
            idle: Idle::default(),
            resequence: Some(Span::from_millis(20)),
            flows: 65_536,
            hello: Span::from_millis(100),
        }
    }
}

impl RouterSettings {
    /// What the core and the simulator have of these settings.
    pub fn core(&self) -> InrppSettings {
        InrppSettings {
            cache: self.cache,
            buffer: self.buffer,
            tcp_buffer: self.tcp_buffer,
            detours: self.detours,
            alpha: self.alpha,
            probe_interval: self.probe_interval,
            decision_interval: self.decision_interval,
            hosts: crate::Hosts::Unmodified,
            ..InrppSettings::default()
        }
    }

    fn check(&self) -> Result<(), SettingError> {
        self.core().check()?;
        let within =
            |span: Span, least: u64, most: u64| (Span::from_millis(least)..=Span::from_millis(most)).contains(&span);
        ensure(within(self.hello, 10, 10_000), "hello", "must be from 10 ms to 10 s")?;
        let waits = self.resequence.is_none_or(|span| within(span, 1, 1_000));
        ensure(waits, "resequence", "must be from 1 ms to 1 s, or \"off\"")?;
        let can_pass = self.divert == DivertBy::Filters || self.idle == Idle::Divert;
        ensure(
            can_pass,
            "idle",
            "must be \"divert\" with `divert = \"routes\"`: nothing sees there when a link is busy",
        )?;
        ensure((1..=MAX_FLOWS).contains(&self.flows), "flows", "must be between 1 and 4194304")
    }
}

impl InrppConfig {
    /// The interfaces that it manages.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let edges = self.edges.iter().map(|edge| edge.interface.as_str());
        self.neighbours.iter().map(|neighbour| neighbour.interface.as_str()).chain(edges)
    }

    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let root = document.root();
        let FileTables { inrpp: settings, metrics, neighbours, edges } = document.read(root, &[])?;
        let table = root.get_ref().get("inrpp").unwrap_or(root);
        settings.check().map_err(|error| document.error_at(table, error.setting, error))?;
        if table.get_ref().get("name").is_some() && !is_router_name(&settings.name) {
            return Err(document.error_at(table, "name", NAMES));
        }
        if neighbours.is_empty() && edges.is_empty() {
            let message = "there is nothing to do: give each link a [[neighbour]], or an [[edge]] where hosts are";
            return Err(document.error(0..0, message));
        }
        let mut names = Names { document: &document, routers: BTreeSet::new(), interfaces: BTreeSet::new() };
        names.routers.insert(settings.name.clone());
        let mut config = InrppConfig { settings, neighbours: Vec::new(), edges, metrics };
        for (item, table) in document.tables(root, "neighbour")?.iter().zip(neighbours) {
            names.take_interface(item, &table.interface)?;
            names.take_router(item, &table.name)?;
            config.neighbours.push(table.check().map_err(|(key, message)| document.error_at(item, key, message))?);
        }
        for (item, edge) in document.tables(root, "edge")?.iter().zip(&config.edges) {
            names.take_interface(item, &edge.interface)?;
            if edge.rate == Some(Rate::ZERO) {
                return Err(document.error_at(item, "rate", "must be above zero; without it nothing waits here"));
            }
        }
        for (key, count) in [("neighbour", config.neighbours.len()), ("edge", config.edges.len())] {
            if count > MAX_PORTS {
                return Err(
                    document.error(0..0, format!("{count} of [[{key}]] are too many; {MAX_PORTS} are the most"))
                );
            }
        }
        Ok(config)
    }

    /// Gives the router the host's name, if the file names it not.
    pub fn settle_name(&mut self, host: &str) -> Result<(), String> {
        if !self.settings.name.is_empty() {
            return Ok(());
        }
        let host = host.trim();
        if !is_router_name(host) {
            return Err(format!("the host's name `{host}` cannot be the router's: set `name` in [inrpp]. {NAMES}"));
        }
        if self.neighbours.iter().any(|neighbour| neighbour.name == host) {
            return Err(format!("the host's name `{host}` is that of a neighbour: set `name` in [inrpp]"));
        }
        self.settings.name = host.into();
        Ok(())
    }

    /// How many ports have a cache: those to neighbours, and edges with a rate.
    pub fn caches(&self) -> usize {
        self.neighbours.len() + self.edges.iter().filter(|edge| edge.rate.is_some()).count()
    }
}

/// The name of a port's TUN device: `inrpp-eth1`. A long name is shortened, and has a hash at its end.
pub fn tun_name(interface: &str) -> String {
    let room = MAX_INTERFACE - PREFIX.len();
    if interface.len() <= room {
        return format!("{PREFIX}{interface}");
    }
    // FNV-1a, which is the same at each start.
    let hash = interface.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let start: String = interface.chars().filter(char::is_ascii_alphanumeric).take(room - 5).collect();
    format!("{PREFIX}{start}~{:04x}", (hash >> 16) ^ (hash & 0xffff))
}

/// What names of routers are like.
const NAMES: &str = "a router's name has 1 to 63 of the characters A to Z, a to z, 0 to 9, `.`, `_` and `-`";

fn is_router_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The names that the file has given so far.
struct Names<'a, 't> {
    document: &'a Document<'t>,
    routers: BTreeSet<String>,
    /// The TUN devices of the interfaces, which differ if these do.
    interfaces: BTreeSet<String>,
}

impl Names<'_, '_> {
    fn take_interface(&mut self, item: &Item<'_>, name: &str) -> Result<(), ParseError> {
        let refused = |message: String| Err(self.document.error_at(item, "interface", message));
        if !is_interface_name(name) {
            return refused("this is no name that an interface can have".into());
        }
        if name.starts_with(PREFIX) {
            return refused(format!("`{name}` is the router's own device: name the interface of the link"));
        }
        if !self.interfaces.insert(tun_name(name)) {
            return refused(format!("`{name}` is here a second time; an interface is one port"));
        }
        Ok(())
    }

    fn take_router(&mut self, item: &Item<'_>, name: &str) -> Result<(), ParseError> {
        let refused = |message: String| Err(self.document.error_at(item, "name", message));
        if !is_router_name(name) {
            return refused(NAMES.into());
        }
        if !self.routers.insert(name.into()) {
            return refused(format!("`{name}` is here a second time; each router has a name of its own"));
        }
        Ok(())
    }
}

/// Reads `"off"` or a span.
fn span_or_off<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Span>, D::Error> {
    match String::deserialize(input)?.as_str() {
        "off" => Ok(None),
        span => span.parse().map(Some).map_err(|error| D::Error::custom(format!("{error}, or `off`"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"
[inrpp]
name = "r0"
cache = "1 MB"
resequence = "off"
[metrics]
listen = "127.0.0.1:9441"
[[neighbour]]
name = "r1"
interface = "eth1"
rate = "10 Mbit/s"
remote = "fd00::2"
key_file = "/etc/sidestep/inrpp/r1.key"
[[neighbour]]
name = "r2"
interface = "eth2"
rate = "auto"
link = "tcp"
local = "10.0.0.1"
remote = "10.0.0.2:9000"
listen = true
key_file = "none"
border = true
[[neighbour]]
name = "r3"
interface = "eth3"
rate = "1 Gbit/s"
link = "ethernet"
key_file = "none"
[[edge]]
interface = "eth0"
[[edge]]
interface = "eth4"
rate = "40 Mbit/s"
"#;

    fn error(text: &str) -> String {
        InrppConfig::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_with_the_defaults_of_the_simulator() {
        let config = InrppConfig::parse(FILE).unwrap();
        assert_eq!((config.settings.name.as_str(), config.settings.cache), ("r0", Bytes::new(1_000_000)));
        assert_eq!((config.settings.resequence, config.settings.idle), (None, Idle::Divert));
        assert_eq!(config.settings.core().buffer, InrppSettings::default().buffer);
        let [one, two, three] = &config.neighbours[..] else { panic!("{config:?}") };
        assert_eq!(one.link, Link::Udp { local: None, remote: "[fd00::2]:7471".parse().unwrap() });
        assert_eq!(one.key_file, Some("/etc/sidestep/inrpp/r1.key".into()));
        let (local, remote) = (Some("10.0.0.1:7471".parse().unwrap()), "10.0.0.2:9000".parse().unwrap());
        assert_eq!(two.link, Link::Tcp { local, remote, listen: true });
        assert_eq!((two.rate, two.key_file.as_ref(), two.border), (LinkRate::Auto, None, true));
        assert_eq!(
            (three.link, three.rate),
            (Link::Ethernet { remote: None }, LinkRate::Fixed(Rate::from_mbits(1_000)))
        );
        assert_eq!(config.edges[1].rate, Some(Rate::from_mbits(40)));
        assert_eq!(config.caches(), 4);
        assert_eq!(InrppConfig::parse("[[edge]]\ninterface = \"e\"").unwrap().settings, RouterSettings::default());
    }

    #[test]
    fn mistakes_are_reported_where_they_stand() {
        let with = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            error(&FILE.replacen(from, to, 1))
        };
        for (found, expected) in [
            (error(""), "there is nothing to do"),
            (error("[inrpp]\n"), "there is nothing to do"),
            (with("cache = \"1 MB\"", "cache = \"1 B\""), "4:9: cache must be between 1500 B"),
            (with("cache", "cash"), "4:1: unknown field `cash`"),
            (with("name = \"r0\"", "name = \"\""), "3:8: a router's name has"),
            (with("name = \"r0\"", "name = \"r0\"\nalpha = 0.6"), "4:9: alpha must be above 0"),
            (with("name = \"r0\"", "name = \"r0\"\nhello = \"1 ms\""), "4:9: hello must be from 10 ms"),
            (with("name = \"r0\"", "name = \"r0\"\nflows = 0"), "4:9: flows must be between"),
            (with("name = \"r0\"", "name = \"r0\"\nidle = \"drop\""), "4:8: unknown variant `drop`"),
            (with("name = \"r0\"", "name = \"r0\"\ndivert = \"nft\""), "4:10: unknown variant `nft`"),
            (
                with("name = \"r0\"", "name = \"r0\"\nidle = \"pass\"\ndivert = \"routes\""),
                "4:8: idle must be \"divert\" with `divert = \"routes\"`",
            ),
            (
                with("name = \"r0\"", "name = \"r0\"\nprobe_interval = \"1 s\""),
                "decision_interval must be at least five",
            ),
            (with("\"off\"", "\"2 s\""), "5:14: resequence must be from 1 ms to 1 s"),
            (with("\"off\"", "\"on\""), "5:14: "),
            (with("listen = \"127.0.0.1:9441\"", "listen = \"here\""), "7:10: "),
            (with("listen = \"127.0.0.1:9441\"", "bpf_stats = true"), "unknown field `bpf_stats`"),
            (with("name = \"r1\"", "name = \"r0\""), "9:8: `r0` is here a second time"),
            (with("name = \"r2\"", "name = \"r1\""), "15:8: `r1` is here a second time"),
            (with("name = \"r1\"", "name = \"r 1\""), "9:8: a router's name has"),
            (with("\"eth1\"", "\"e/th1\""), "10:13: this is no name that an interface can have"),
            (with("\"eth1\"", "\"inrpp-eth1\""), "10:13: `inrpp-eth1` is the router's own device"),
            (with("\"eth2\"", "\"eth1\""), "16:13: `eth1` is here a second time"),
            (with("\"eth0\"", "\"eth1\""), "31:13: `eth1` is here a second time"),
            (with("\"10 Mbit/s\"", "\"0 bit/s\""), "11:8: must be above zero"),
            (with("\"10 Mbit/s\"", "\"fast\""), "11:8: "),
            (with("rate = \"10 Mbit/s\"\n", ""), "8:1: give the link's capacity: `rate = \"1 Gbit/s\"`"),
            (with("\"40 Mbit/s\"", "\"0 bit/s\""), "34:8: must be above zero"),
            (with("remote = \"fd00::2\"\n", ""), "8:1: a link over UDP or TCP needs `remote`"),
            (with("\"fd00::2\"", "\"fd00::2:7471]\""), "12:10: `fd00::2:7471]` is no address"),
            (with("\"fd00::2\"", "\"fe80::2%eth1\""), "12:10: leave out `%eth1`"),
            (with("\"fd00::2\"", "\"[fd00::2]:0\""), "12:10: the port must be above 0"),
            (with("\"fd00::2\"", "\"ff02::1\""), "12:10: `ff02::1` is not the address of one router"),
            (with("\"10.0.0.1\"", "\"fd00::1\""), "19:9: `local` and `remote` must be of the same family"),
            (with("\"10.0.0.1\"", "\"10.0.0.2:9000\""), "19:9: `local` and `remote` are the same"),
            (with("listen = true\n", ""), "14:1: say which end accepts the connection"),
            (with("link = \"tcp\"", "link = \"udp\""), "21:10: `listen` belongs to `link = \"tcp\"`"),
            (with("link = \"tcp\"", "link = \"quic\""), "18:8: unknown variant `quic`"),
            (with("link = \"ethernet\"", "link = \"ethernet\"\nlocal = \"10.0.0.1\""), "29:9: `local` means nothing"),
            (
                with("link = \"ethernet\"", "link = \"ethernet\"\nremote = \"10.0.0.1\""),
                "29:10: `10.0.0.1` is no Ethernet",
            ),
            (with("link = \"ethernet\"", "link = \"ethernet\"\nremote = \"ff:ff:ff:ff:ff:ff\""), "29:10: "),
            (with("key_file = \"/etc/sidestep/inrpp/r1.key\"\n", ""), "8:1: name the file of the key"),
            (with("\"/etc/sidestep/inrpp/r1.key\"", "\"r1.key\""), "13:12: write the whole path"),
            (with("border = true", "boarder = true"), "unknown field `boarder`"),
        ] {
            assert!(found.contains(expected), "{found}\nis not: {expected}");
        }
        let edges: String = (0..251).map(|n| format!("[[edge]]\ninterface = \"e{n}\"\n")).collect();
        assert!(error(&edges).contains("251 of [[edge]] are too many"));
    }

    #[test]
    fn a_router_without_a_name_has_that_of_its_host_if_that_is_one() {
        let file = FILE.replace("name = \"r0\"\n", "");
        let mut config = InrppConfig::parse(&file).unwrap();
        assert!(config.settle_name("r 1").unwrap_err().contains("set `name` in [inrpp]"));
        assert!(config.settle_name("r2\n").unwrap_err().contains("that of a neighbour"));
        config.settle_name("gate.example\n").unwrap();
        config.settle_name("another").unwrap();
        assert_eq!(config.settings.name, "gate.example");
    }

    #[test]
    fn devices_of_interfaces_have_names_that_fit() {
        assert_eq!(tun_name("eth0"), "inrpp-eth0");
        assert_eq!(tun_name("enp0s31f6"), "inrpp-enp0s31f6");
        let (one, other) = (tun_name("enp129s0f0np0"), tun_name("enp129s0f0np1"));
        assert!(one.len() <= MAX_INTERFACE && one.starts_with("inrpp-enp1~") && one != other, "{one} {other}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}", at in 0..FILE.len()) {
            drop(InrppConfig::parse(&text));
            drop(InrppConfig::parse(&FILE.replace("eth1", &text)));
            drop(InrppConfig::parse(&FILE.replace("fd00::2", &text)));
            let (before, after) = FILE.split_at(at);
            drop(InrppConfig::parse(&format!("{before}{text}{after}")));
        }

        #[test]
        fn every_name_of_an_interface_gives_a_name_of_an_interface(name in "\\PC{1,15}") {
            prop_assume!(is_interface_name(&name));
            prop_assert!(is_interface_name(&tun_name(&name)));
        }
    }
}
