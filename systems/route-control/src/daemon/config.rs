//! The route controller's configuration file.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_hostd::{
    MetricsConfig,
    paths::{MarkBits, Via, is_interface_name},
};
use sidestep_linux::{netlink::Family, probe::Egress};
use sidestep_net::{
    ParseError, Rate, Ratio, SettingsTable as _, Span,
    document::{Document, Item},
};

use super::follow::{EgressSource, one_or_more};
use crate::{Damping, FailBack, RouteControlMode, RouteControlSettings, Stability, Targets};

/// The file, as TOML.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteControlConfig {
    /// What is controlled, and how.
    pub route_control: SiteSettings,
    /// How the controller decides: the keys are those of a scenario's `[route-control]`.
    #[serde(default)]
    pub control: RouteControlSettings,
    /// The penalty of egresses that flap.
    #[serde(default)]
    pub damping: DampingSettings,
    /// The egresses in the order of preference, the primary first.
    #[serde(rename = "egress", default)]
    pub egresses: Vec<EgressConfig>,
    /// What is probed behind them.
    #[serde(rename = "target", default)]
    pub targets: Vec<TargetConfig>,
    /// What Prometheus may read.
    #[serde(default)]
    pub metrics: MetricsConfig,
}

/// What is controlled.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SiteSettings {
    /// The prefixes whose packets take the egress that was chosen.
    pub destinations: Vec<IpNet>,
    /// What moves.
    #[serde(default)]
    pub moves: Moves,
    /// This number of targets must be reachable by an egress; by default more than half of them.
    #[serde(default)]
    pub quorum: Option<u32>,
    /// Whether packets return to the primary by themselves.
    #[serde(default)]
    pub fail_back: Return,
    /// The primary must have been fine for this long before they do.
    #[serde(default)]
    pub fail_back_after: Span,
    /// Whether traffic that passes the egresses is measured; by default that is so where decisions go by throughput.
    #[serde(default)]
    pub passive: Option<bool>,
    /// Bits of the packet mark that nothing else on this router uses.
    #[serde(default = "default_mask")]
    pub mark_mask: u32,
}

/// What a move moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moves {
    /// All packets: established flows move too. For addresses of the site's own, tunnels, or one address of NAT.
    #[default]
    Aggregate,
    /// New connections only: each flow stays on its egress while that works. For a masquerade by the address of each provider.
    NewConnections,
}

/// Whether packets return to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Return {
    /// When it has recovered.
    #[default]
    Auto,
    /// Only when the egress in use is impaired.
    Never,
}

/// The penalty of egresses that flap.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct DampingSettings {
    /// Whether there is one.
    pub enabled: bool,
    /// The time in which a penalty halves.
    pub half_life: Span,
    /// From this penalty on an egress is not moved to; each flap adds 1000.
    pub suppress: f64,
    /// Below this penalty it is used again.
    pub reuse: f64,
    /// It is suppressed for no longer than this after its last flap.
    pub longest: Span,
}

/// An egress.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct EgressConfig {
    /// Its name in decisions and metrics.
    pub name: String,
    /// Its interface.
    pub dev: String,
    /// The next hop, one at most of each family, or that of the interface's default route; a link without one leads to whatever is
    /// behind it.
    #[serde(default, deserialize_with = "one_or_more")]
    pub via: Vec<Via>,
    /// Its rate, for predictions and `load`; zero: not known.
    #[serde(default)]
    pub capacity: Rate,
    /// Whether what it carries costs money; load moves nothing there.
    #[serde(default)]
    pub metered: bool,
    /// With `moves = "new-connections"`: how long after a move away flows may stay; those that are left then begin again.
    #[serde(default)]
    pub drain: Option<Span>,
    /// The prefixes that its provider lets through as sources: packets from there leave by this egress, or not at all.
    #[serde(default, deserialize_with = "one_or_more")]
    pub source: Vec<EgressSource>,
}

/// What is probed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// Its address.
    pub address: IpAddr,
    /// How it is asked.
    #[serde(default)]
    pub kind: ProbeKind,
    /// The UDP port; by default that of the kind.
    #[serde(default)]
    pub port: Option<u16>,
    /// Whether it is one's own, which may be probed as fast as one likes.
    #[serde(default)]
    pub own: bool,
    /// Most probes a second by each egress, if it is not one's own.
    #[serde(default = "default_rate")]
    pub rate: f64,
    /// The egresses by which it is probed; empty: all.
    #[serde(default)]
    pub by: Vec<String>,
}

/// How a target is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// By ICMP echo.
    #[default]
    Icmp,
    /// By UDP towards an echo service.
    Udp,
    /// By STAMP, towards a reflector such as `sidestep reflector`.
    Stamp,
}

/// Most egresses: each has a routing table and a mark.
pub const MAX_EGRESSES: usize = 15;
/// Most targets.
const MAX_TARGETS: usize = 32;
/// Targets of others get no more probes than this in a second by each egress, whatever the file says.
const MAX_RATE: f64 = 10.0;
/// The names of the egresses are at most so long, in bytes.
const MAX_NAME: usize = 63;

fn default_mask() -> u32 {
    // Bits that the programs in docs/operations.md leave alone on a router, the agent and the balancer among them.
    0x0000_00f0
}

fn default_rate() -> f64 {
    5.0
}

impl Default for DampingSettings {
    fn default() -> Self {
        DampingSettings {
            enabled: true,
            half_life: Span::from_secs(60),
            suppress: 3_000.0,
            reuse: 1_000.0,
            longest: Span::from_secs(600),
        }
    }
}

impl ProbeKind {
    /// The name in files and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Icmp => "icmp",
            ProbeKind::Udp => "udp",
            ProbeKind::Stamp => "stamp",
        }
    }
}

impl TargetConfig {
    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.address.into())
    }
}

impl RouteControlConfig {
    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let root = document.root();
        if root.get_ref().get("route_control").is_none() {
            let message =
                "this needs `[route_control]` with `destinations = [\"0.0.0.0/0\"]`: whose packets are controlled";
            return Err(document.error(0..0, message));
        }
        let mut config: RouteControlConfig = document.read(root, &[])?;
        for prefix in &mut config.route_control.destinations {
            *prefix = prefix.trunc();
        }
        config.check_settings(&document)?;
        config.check_egresses(&document)?;
        config.check_targets(&document)?;
        config.fill_control(root);
        config.check_control(&document)?;
        Ok(config)
    }

    /// Whether a file is one of a route controller.
    pub fn is_one(text: &str) -> bool {
        Document::parse(text).is_ok_and(|document| document.root().get_ref().get("route_control").is_some())
    }

    /// The egresses for a look at their paths: by whom they are probed, and else their next hops.
    pub fn probed(&self) -> Vec<Egress> {
        let bits = MarkBits::new(self.route_control.mark_mask);
        let egress = |(number, of): (u32, &EgressConfig)| {
            let targets = self.targets_of(of);
            let addresses = self.targets.iter().enumerate();
            let targets = addresses.filter(|(place, _)| targets.contains(&(*place as u32)));
            Egress {
                name: of.name.clone(),
                dev: of.dev.clone(),
                mark: Some((number + 1) << bits.shift),
                targets: targets.map(|(_, target)| target.address).chain(of.hops()).collect(),
            }
        };
        (0..).zip(&self.egresses).map(egress).collect()
    }

    /// What the controller probes, by egress, and how many of that must be reachable.
    pub fn targets(&self) -> Targets {
        let of: Vec<Vec<u32>> = self.egresses.iter().map(|egress| self.targets_of(egress)).collect();
        let fewest = of.iter().map(Vec::len).min().unwrap_or(0) as u32;
        Targets { of, quorum: self.route_control.quorum.unwrap_or(fewest / 2 + 1) }
    }

    /// The targets that an egress can probe, by their positions in the file.
    fn targets_of(&self, egress: &EgressConfig) -> Vec<u32> {
        let may = |target: &TargetConfig| {
            egress.carries(target.family()) && (target.by.is_empty() || target.by.contains(&egress.name))
        };
        (0..).zip(&self.targets).filter(|(_, target)| may(target)).map(|(number, _)| number).collect()
    }

    /// When packets return to the primary, and what flaps cost.
    pub fn stability(&self) -> Stability {
        let DampingSettings { enabled, half_life, suppress, reuse, longest } = self.damping;
        Stability {
            fail_back: match self.route_control.fail_back {
                Return::Auto => FailBack::Auto,
                Return::Never => FailBack::Never,
            },
            fail_back_after: self.route_control.fail_back_after,
            damping: enabled.then_some(Damping { half_life, suppress, reuse, longest }),
        }
    }

    /// Whether traffic that passes the egresses is measured.
    pub fn is_passive(&self) -> bool {
        self.route_control.passive.unwrap_or(self.control.mode == RouteControlMode::Predictive)
    }

    /// The families of the destinations.
    pub fn families(&self) -> BTreeSet<Family> {
        self.route_control.destinations.iter().map(|prefix| Family::of(*prefix)).collect()
    }

    fn check_settings(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        let table = root.get_ref().get("route_control").unwrap_or(root);
        let settings = &self.route_control;
        if settings.destinations.is_empty() {
            let message = "name the prefixes that are controlled: `destinations = [\"0.0.0.0/0\"]`";
            return Err(document.error_at(table, "destinations", message));
        }
        for (index, prefix) in settings.destinations.iter().enumerate() {
            if settings.destinations.iter().take(index).any(|other| other == prefix) {
                return Err(document.error_in(table, "destinations", index, format!("{prefix} is here a second time")));
            }
        }
        let ones = settings.mark_mask.checked_shr(settings.mark_mask.trailing_zeros()).unwrap_or(0);
        if ones == 0 || !ones.wrapping_add(1).is_power_of_two() && ones != u32::MAX {
            let message = "mark_mask must be bits side by side, such as 0xf0";
            return Err(document.error_at(table, "mark_mask", message));
        }
        if (ones as usize) < self.egresses.len() {
            let message = format!("mark_mask has room for {ones} egresses, and there are {}", self.egresses.len());
            return Err(document.error_at(table, "mark_mask", message));
        }
        let damping = root.get_ref().get("damping").unwrap_or(root);
        let at = |key: &str, message: &str| Err(document.error_at(damping, key, message));
        let DampingSettings { half_life, suppress, reuse, longest, .. } = self.damping;
        if half_life < Span::from_secs(1) {
            return at("half_life", "half_life must be at least 1 s");
        }
        if !(1.0..=100_000.0).contains(&reuse) {
            return at("reuse", "reuse must be between 1 and 100000");
        }
        if !(reuse..=100_000.0).contains(&suppress) {
            return at("suppress", "suppress must be between reuse and 100000");
        }
        if longest < half_life || longest > half_life * 20 {
            return at("longest", "longest must be between 1 and 20 times half_life");
        }
        if self.stability().damping.is_some_and(|damping| damping.ceiling() < damping.suppress) {
            return at(
                "longest",
                "with this `longest` no penalty ever reaches `suppress`: raise it, or lower `suppress`",
            );
        }
        Ok(())
    }

    fn check_egresses(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        if self.egresses.len() < 2 {
            let message = "there is nothing to choose: give at least two [[egress]], the primary first";
            return Err(document.error_at(root, "egress", message));
        }
        if self.egresses.len() > MAX_EGRESSES {
            return Err(document.error_in(
                root,
                "egress",
                MAX_EGRESSES,
                format!("{MAX_EGRESSES} egresses are the most"),
            ));
        }
        for family in self.families() {
            if !self.egresses.iter().any(|egress| egress.carries(family)) {
                let message = format!("destinations are of {family}, and no egress has a next hop of {family}");
                return Err(document.error_in(root, "egress", 0, message));
            }
        }
        let mut before: Vec<&EgressConfig> = Vec::new();
        for (item, egress) in document.tables(root, "egress")?.iter().zip(&self.egresses) {
            let at = |key: &str, message: String| Err(document.error_at(item, key, message));
            let name = &egress.name;
            if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
                return at("name", format!("a name has 1 to {MAX_NAME} bytes, and no control characters"));
            }
            if before.iter().any(|other| other.name == *name) {
                return at("name", format!("two egresses of the name `{name}`"));
            }
            if !is_interface_name(&egress.dev) {
                return at("dev", "this is no name that an interface can have".into());
            }
            if before.iter().any(|other| other.dev == egress.dev && other.via == egress.via) {
                return at("dev", format!("`{name}` has the interface and next hops of another egress"));
            }
            let count = |family| egress.hops().filter(|via| Family::of((*via).into()) == family).count();
            if let Some(family) = Family::ALL.into_iter().find(|family| count(*family) > 1) {
                return at("via", format!("`{name}` has two next hops of {family}: one is the most"));
            }
            if egress.via.len() > Family::ALL.len() || egress.via.iter().filter(|via| **via == Via::Auto).count() > 1 {
                return at("via", format!("`{name}` needs one next hop of each family at most: an address, or `auto`"));
            }
            if !self.families().into_iter().any(|family| egress.carries(family)) {
                let message = format!("`{name}` has no next hop of the destinations' families: add one, or `auto`");
                return at("via", message);
            }
            if egress.drain.is_some() && self.route_control.moves == Moves::Aggregate {
                return at(
                    "drain",
                    "established flows move with all others: `drain` is for `moves = \"new-connections\"`".into(),
                );
            }
            self.check_sources(document, item, egress, &before)?;
            before.push(egress);
        }
        Ok(())
    }

    fn check_sources(
        &self,
        document: &Document<'_>,
        item: &Item<'_>,
        egress: &EgressConfig,
        before: &[&EgressConfig],
    ) -> Result<(), ParseError> {
        let prefix =
            |source: &EgressSource| if let EgressSource::Prefix(prefix) = source { Some(*prefix) } else { None };
        let prefixes = egress.source.iter().enumerate().filter_map(|(index, source)| Some((index, prefix(source)?)));
        for (index, source) in prefixes {
            let overlaps = |other: IpNet| other.contains(&source) || source.contains(&other);
            if source.prefix_len() == 0 {
                let message = "a provider's prefix is not everything: name the addresses that it has given you";
                return Err(document.error_in(item, "source", index, message));
            }
            let other = before.iter().find(|other| other.prefixes().any(overlaps));
            if let Some(other) = other {
                let message = format!("{source} meets a source of `{}`: by which of the two may it leave?", other.name);
                return Err(document.error_in(item, "source", index, message));
            }
        }
        Ok(())
    }

    fn check_targets(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        if self.targets.is_empty() {
            let message = "nothing is probed: give a [[target]] with an `address` behind the egresses, better three";
            return Err(document.error_at(root, "target", message));
        }
        if self.targets.len() > MAX_TARGETS {
            return Err(document.error_in(root, "target", MAX_TARGETS, format!("{MAX_TARGETS} targets are the most")));
        }
        for (index, (item, target)) in document.tables(root, "target")?.iter().zip(&self.targets).enumerate() {
            let at = |key: &str, message: String| Err(document.error_at(item, key, message));
            let address = target.address;
            if self
                .targets
                .iter()
                .take(index)
                .any(|other| (other.address, other.kind, other.port) == (address, target.kind, target.port))
            {
                return at("address", format!("{address} is here a second time"));
            }
            if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
                return at("address", format!("{address} is no host behind an egress"));
            }
            if target.kind == ProbeKind::Icmp && target.port.is_some() {
                return at("port", "ICMP has no ports: remove `port`".into());
            }
            if target.port == Some(0) {
                return at("port", "port must not be 0".into());
            }
            if target.own && target.kind != ProbeKind::Stamp {
                return at(
                    "own",
                    "only one's own reflector (`kind = \"stamp\"`) may be probed fast: remove `own`".into(),
                );
            }
            if !(target.rate > 0.0 && target.rate <= MAX_RATE) {
                return at("rate", format!("rate must be above 0 and at most {MAX_RATE} probes a second"));
            }
            for (index, name) in target.by.iter().enumerate() {
                if !self.egresses.iter().any(|egress| egress.name == *name) {
                    return Err(document.error_in(item, "by", index, format!("there is no egress `{name}`")));
                }
            }
        }
        let table = root.get_ref().get("route_control").unwrap_or(root);
        for (index, egress) in self.egresses.iter().enumerate() {
            let targets = self.targets_of(egress).len();
            if targets == 0 {
                let message =
                    format!("no target can be probed by `{}`: give one of a family that it carries", egress.name);
                return Err(document.error_in(root, "egress", index, message));
            }
            if self.route_control.quorum.is_some_and(|quorum| quorum == 0 || quorum as usize > targets) {
                let message = format!("quorum must be between 1 and the {targets} targets of `{}`", egress.name);
                return Err(document.error_at(table, "quorum", message));
            }
        }
        Ok(())
    }

    /// Gives settings that the file leaves out the value that suits its targets: 10 ms only towards one's own reflector.
    fn fill_control(&mut self, root: &Item<'_>) {
        let control = root.get_ref().get("control").map(|control| control.get_ref());
        let has = |key: &str| control.is_some_and(|control| control.get(key).is_some());
        if self.targets.iter().all(|target| target.own) {
            return;
        }
        let (measured, interval) = (has("measurement_period"), has("probe_interval"));
        if !measured {
            let share = self.control.routing_period.as_nanos() / 10 * 8;
            self.control.measurement_period = Span::from_nanos(share / 1_000_000 * 1_000_000);
        }
        if !interval {
            let fewest = self.targets().of.iter().map(Vec::len).min().unwrap_or(1).max(1) as u64;
            self.control.probe_interval = Span::from_millis((200 / fewest).max(20));
        }
    }

    /// Load needs the rates of the egresses that may get flows for it.
    fn check_load(&self, document: &Document<'_>, table: &Item<'_>) -> Result<(), ParseError> {
        for (item, egress) in document.tables(document.root(), "egress")?.iter().zip(&self.egresses) {
            if !egress.metered && egress.capacity == Rate::ZERO {
                let message = format!("`load` needs the rate of `{}`: give its `capacity`", egress.name);
                return Err(document.error_at(item, "capacity", message));
            }
        }
        if self.egresses.iter().filter(|egress| !egress.metered).count() < 2 {
            let message = "`load` uses no egress that is metered, and needs two that are not";
            return Err(document.error_at(table, "load", message));
        }
        Ok(())
    }

    fn check_control(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        let table = root.get_ref().get("control").unwrap_or(root);
        let settings = &self.control;
        if !settings.edges.is_empty() {
            return Err(document.error_at(table, "edges", "`edges` is for the simulator: remove it"));
        }
        if !matches!(settings.mode, RouteControlMode::Practical | RouteControlMode::Predictive) {
            return Err(document.error_at(table, "mode", "an edge decides by `practical` or `predictive`"));
        }
        settings.check().map_err(|error| document.error_at(table, error.setting, &error))?;
        if settings.load > Ratio::ZERO {
            self.check_load(document, table)?;
        }
        let shortest = settings.routing_period.as_secs_f64() * (1.0 - settings.effective().decision_jitter.as_f64());
        let of_family = |family: Family| {
            let probes =
                settings.measurement_period.as_nanos() / self.control_in(family).probe_interval.as_nanos().max(1);
            let targets = self.targets_in(family).of;
            self.egresses
                .iter()
                .zip(targets)
                .map(move |(egress, targets)| (egress, targets, probes))
                .collect::<Vec<_>>()
        };
        for (egress, targets, probes) in self.sides().into_iter().flat_map(of_family) {
            let each = probes.div_ceil(targets.len().max(1) as u64);
            let rate = each as f64 / shortest;
            let of = |number: &u32| self.targets.get(*number as usize);
            // By a hair: the shortest period is a product of decimals.
            let slow = targets.iter().filter_map(of).find(|target| !target.own && rate > target.rate + 1e-6);
            if let Some(target) = slow {
                let message = format!(
                    "{} would get {rate:.1} probes a second by `{}`, and may get {}: raise probe_interval, give more targets, \
                     or raise its `rate`",
                    target.address, egress.name, target.rate
                );
                return Err(document.error_at(table, "probe_interval", message));
            }
        }
        Ok(())
    }
}
