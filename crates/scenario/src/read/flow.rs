//! Reading `[[flow]]`: which kind, between whom, and when.

use std::collections::{BTreeMap, BTreeSet};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use serde::{Deserialize, de::IgnoredAny};
use sidestep_net::{
    Bytes, NodeId, ParseError, Rate, Ratio, Span,
    document::{Item, OneOrMany},
    pattern,
};
use toml::de::DeValue;

use super::Reader;
use crate::{
    Arrivals, BulkFlow, CbrFlow, ClosedLoopFlow, ExecFlow, Flow, MIN_REQUEST, OpenLoopFlow, SystemSpec, TcpSettings,
    Transport,
    workload::{SizeDistribution, SizeSource},
};

/// More connections than this in a scenario are refused.
pub(super) const MAX_CONNECTIONS: u64 = 100_000;
/// More transfers than this of a flow are refused, as far as they can be expected.
pub(super) const MAX_ARRIVALS: f64 = 2_000_000.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkFile {
    name: Option<String>,
    from: Option<OneOrMany>,
    to: Option<OneOrMany>,
    pairing: Option<Pairing>,
    pairs: Option<Vec<[String; 2]>>,
    #[serde(default = "one")]
    connections: u32,
    #[serde(default)]
    start: Span,
    #[serde(default)]
    start_jitter: Span,
    stop: Option<Span>,
    size: Option<Bytes>,
    port: Option<u16>,
    system: Option<SystemSpec>,
    #[serde(rename = "tcp")]
    _tcp: Option<IgnoredAny>,
}

/// A flow whose transfers arrive at random.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoissonFile {
    name: Option<String>,
    from: Option<OneOrMany>,
    to: Option<OneOrMany>,
    pairing: Option<Pairing>,
    pairs: Option<Vec<[String; 2]>>,
    rate: Option<f64>,
    load: Option<Ratio>,
    load_of: Option<Rate>,
    #[serde(default)]
    shares: Vec<f64>,
    size: SizeSource,
    request: Option<Bytes>,
    #[serde(default)]
    start: Span,
    stop: Option<Span>,
    port: Option<u16>,
    system: Option<SystemSpec>,
    #[serde(rename = "tcp")]
    _tcp: Option<IgnoredAny>,
}

/// Users who transfer, think, and transfer again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClosedLoopFile {
    name: Option<String>,
    from: Option<OneOrMany>,
    to: Option<OneOrMany>,
    pairing: Option<Pairing>,
    pairs: Option<Vec<[String; 2]>>,
    #[serde(default = "one")]
    users: u32,
    think: Span,
    size: SizeSource,
    #[serde(default)]
    start: Span,
    stop: Option<Span>,
    port: Option<u16>,
    system: Option<SystemSpec>,
    #[serde(rename = "tcp")]
    _tcp: Option<IgnoredAny>,
}

/// Packets at a constant rate, which answer to nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CbrFile {
    name: Option<String>,
    from: Option<OneOrMany>,
    to: Option<OneOrMany>,
    pairing: Option<Pairing>,
    pairs: Option<Vec<[String; 2]>>,
    rate: Option<Rates>,
    #[serde(default = "packet")]
    packet: u16,
    on: Option<Span>,
    off: Option<Span>,
    #[serde(default)]
    random: bool,
    #[serde(default)]
    start: Span,
    stop: Option<Span>,
}

/// One rate for all pairs, or one for each.
#[derive(Deserialize)]
#[serde(untagged)]
enum Rates {
    Each(Vec<Rate>),
    All(Rate),
}

/// Between whom a flow runs, as it is written.
struct Ends<'f> {
    from: &'f Option<OneOrMany>,
    to: &'f Option<OneOrMany>,
    pairing: Option<Pairing>,
    pairs: &'f Option<Vec<[String; 2]>>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Pairing {
    /// The i-th with the i-th; the shorter list starts again.
    #[default]
    Zip,
    /// Each with each.
    All,
    /// Each sender with one receiver, no receiver twice while there are others, and no node with itself.
    Permutation,
    /// All with the first receiver.
    Incast,
    /// Those that have a demand.
    Demands,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecFile {
    name: Option<String>,
    node: String,
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    start: Span,
    stop: Option<Span>,
    #[serde(default = "yes")]
    wait: bool,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn packet() -> u16 {
    1_000
}

impl Reader<'_> {
    /// All flows in the order of the file.
    pub(super) fn flows(&self) -> Result<Vec<Flow>, ParseError> {
        let mut flows = Vec::new();
        let mut names = BTreeSet::new();
        let mut connections = 0;
        for (index, item) in self.document.tables(self.document.root(), "flow")?.iter().enumerate() {
            let flow = match item.get_ref().get("kind").and_then(|kind| kind.get_ref().as_str()) {
                Some("bulk") => Flow::Bulk(self.bulk(item, index, &mut connections)?),
                Some("exec") => Flow::Exec(self.exec(item, index)?),
                Some("poisson") => Flow::OpenLoop(self.poisson(item, index, &mut connections)?),
                Some("list") => Flow::OpenLoop(self.list(item, index, &mut connections)?),
                Some("closed-loop") => Flow::ClosedLoop(self.closed_loop(item, index, &mut connections)?),
                Some("cbr") => Flow::Cbr(self.cbr(item, index, &mut connections)?),
                _ => {
                    let message = "a flow needs `kind = \"bulk\"`, `\"poisson\"`, `\"list\"`, `\"closed-loop\"`, `\"cbr\"` or `\"exec\"`";
                    return Err(self.document.error_at(item, "kind", message));
                }
            };
            if !super::is_name(flow.name()) {
                return Err(self.document.error_at(item, "name", "must be 1 to 64 letters, digits, `-`, `_` or `.`"));
            }
            if !names.insert(flow.name().to_owned()) {
                return Err(self.document.error_at(item, "name", format_args!("flow `{}` exists twice", flow.name())));
            }
            flows.push(flow);
        }
        let tables = self.document.tables(self.document.root(), "flow")?;
        let by_demands = |item: &Item<'_>| {
            item.get_ref().get("pairing").and_then(|pairing| pairing.get_ref().as_str()) == Some("demands")
        };
        if !self.demands.is_empty() && !tables.iter().any(by_demands) {
            let key = if self.document.root().get_ref().get("demands").is_some() { "demands" } else { "demand" };
            let message = "no flow uses the demands; add [[flow]] with kind = \"poisson\", pairing = \"demands\" and a size \
                           such as \"1 MB\" in lines below it";
            return Err(self.at(key, message));
        }
        Ok(flows)
    }

    /// Reads a bulk flow; `connections` counts those of the whole scenario.
    fn bulk(&self, item: &Item<'_>, index: usize, connections: &mut u64) -> Result<BulkFlow, ParseError> {
        let file: BulkFile = self.document.read(item, &["kind"])?;
        self.check_span(item, file.start, file.stop)?;
        let at = |key, message| Err(self.document.error_at(item, key, message));
        if file.start_jitter > file.stop.unwrap_or(self.duration) - file.start {
            return at("start_jitter", "is longer than the flow lasts");
        }
        if file.connections == 0 {
            return at("connections", "must be at least 1");
        }
        if file.size == Some(Bytes::new(0)) {
            return at("size", "must be more than nothing");
        }
        if file.port == Some(0) {
            return at("port", "must be between 1 and 65535");
        }
        // What is left of the limit bounds the pairs before any is made.
        let room = MAX_CONNECTIONS.saturating_sub(*connections) / u64::from(file.connections);
        let ends = Ends { from: &file.from, to: &file.to, pairing: file.pairing, pairs: &file.pairs };
        let pairs = self.pairs(item, &ends, room)?;
        *connections += pairs.len() as u64 * u64::from(file.connections);
        Ok(BulkFlow {
            name: file.name.unwrap_or_else(|| format!("bulk-{}", index + 1)),
            pairs,
            connections: file.connections,
            start: file.start,
            start_jitter: file.start_jitter,
            stop: file.stop,
            size: file.size,
            port: file.port,
            transport: self.transport(item, file.system)?,
        })
    }

    fn poisson(&self, item: &Item<'_>, index: usize, connections: &mut u64) -> Result<OpenLoopFlow, ParseError> {
        let file: PoissonFile = self.document.read(item, &["kind"])?;
        self.check_span(item, file.start, file.stop)?;
        let ends = Ends { from: &file.from, to: &file.to, pairing: file.pairing, pairs: &file.pairs };
        let pairs = self.pairs(item, &ends, MAX_CONNECTIONS.saturating_sub(*connections))?;
        let size = self.sizes(item, file.size)?;
        if file.request.is_some_and(|request| request < MIN_REQUEST) {
            return Err(self.document.error_at(item, "request", format_args!("must be at least {MIN_REQUEST}")));
        }
        let arrivals_of = |bits: f64| bits / (8.0 * size.mean());
        let by_demands = file.pairing == Some(Pairing::Demands);
        let (key, rate, shares) = match (file.rate, file.load, file.load_of) {
            (None, None, None) if by_demands && file.shares.is_empty() => {
                let shares: Vec<f64> = self.demands.iter().map(|demand| demand.rate).collect();
                ("pairing", arrivals_of(shares.iter().sum()), shares)
            }
            (Some(rate), None, None) if !by_demands => ("rate", rate, file.shares),
            (None, Some(load), Some(of)) if !by_demands => {
                ("load", arrivals_of(load.as_f64() * of.bits_per_sec() as f64), file.shares)
            }
            _ => {
                let message = match by_demands {
                    true => {
                        "the demands say how often and between whom; leave out `rate`, `load`, `load_of` and `shares`"
                    }
                    false => "give `rate`, in arrivals a second, or `load` and `load_of`",
                };
                return Err(self.document.error_at(item, "rate", message));
            }
        };
        let is_share = |share: &f64| share.is_finite() && *share >= 0.0;
        let right = (shares.is_empty() || shares.len() == pairs.len()) && shares.iter().all(is_share);
        if !right || (!shares.is_empty() && shares.iter().all(|share| *share == 0.0)) {
            let message = format!("must be {} numbers, as many as pairs, not negative and not all zero", pairs.len());
            return Err(self.document.error_at(item, "shares", message));
        }
        if !(rate.is_finite() && rate > 0.0) {
            return Err(self.document.error_at(item, key, "must be above zero"));
        }
        *connections += pairs.len() as u64;
        let flow = OpenLoopFlow {
            name: file.name.unwrap_or_else(|| format!("poisson-{}", index + 1)),
            pairs,
            arrivals: Arrivals::Poisson { rate, shares, size },
            request: file.request,
            start: file.start,
            stop: file.stop,
            port: file.port,
            transport: self.transport(item, file.system)?,
        };
        let expected = flow.expected(self.duration);
        if expected > MAX_ARRIVALS {
            let message = format!("about {expected:.0} transfers are more than the {MAX_ARRIVALS:.0} of a run");
            return Err(self.document.error_at(item, key, message));
        }
        Ok(flow)
    }

    fn closed_loop(&self, item: &Item<'_>, index: usize, connections: &mut u64) -> Result<ClosedLoopFlow, ParseError> {
        let file: ClosedLoopFile = self.document.read(item, &["kind"])?;
        self.check_span(item, file.start, file.stop)?;
        if file.users == 0 {
            return Err(self.document.error_at(item, "users", "must be at least 1"));
        }
        let room = MAX_CONNECTIONS.saturating_sub(*connections) / u64::from(file.users);
        let ends = Ends { from: &file.from, to: &file.to, pairing: file.pairing, pairs: &file.pairs };
        let pairs = self.pairs(item, &ends, room)?;
        *connections += pairs.len() as u64 * u64::from(file.users);
        Ok(ClosedLoopFlow {
            name: file.name.unwrap_or_else(|| format!("closed-loop-{}", index + 1)),
            pairs,
            users: file.users,
            think: file.think,
            size: self.sizes(item, file.size)?,
            start: file.start,
            stop: file.stop,
            port: file.port,
            transport: self.transport(item, file.system)?,
        })
    }

    fn cbr(&self, item: &Item<'_>, index: usize, connections: &mut u64) -> Result<CbrFlow, ParseError> {
        let file: CbrFile = self.document.read(item, &["kind"])?;
        self.check_span(item, file.start, file.stop)?;
        let at = |key, message| Err(self.document.error_at(item, key, message));
        if !(1..=60_000).contains(&file.packet) {
            return at("packet", "must be between 1 and 60000");
        }
        let bursts = match (file.on, file.off) {
            (None, None) => None,
            (Some(on), Some(off)) if on > Span::ZERO && off > Span::ZERO => Some((on, off)),
            _ => return at("on", "give both `on` and `off`, above zero, or neither"),
        };
        let ends = Ends { from: &file.from, to: &file.to, pairing: file.pairing, pairs: &file.pairs };
        let pairs = self.pairs(item, &ends, MAX_CONNECTIONS.saturating_sub(*connections))?;
        *connections += pairs.len() as u64;
        let by_demands = file.pairing == Some(Pairing::Demands);
        let rates = match file.rate {
            Some(Rates::All(rate)) if !by_demands => vec![rate; pairs.len()],
            Some(Rates::Each(rates)) if !by_demands && rates.len() == pairs.len() => rates,
            // A demand below 1 bit/s sends its first packet, and then none for longer than a run lasts.
            None if by_demands => {
                self.demands.iter().map(|demand| Rate::from_bits_per_sec(demand.rate.max(1.0) as u64)).collect()
            }
            _ => {
                let message = "give one rate, or a list with one for each pair; of `pairing = \"demands\"` none";
                return at("rate", message);
            }
        };
        if rates.contains(&Rate::default()) {
            return at("rate", "must be above zero");
        }
        Ok(CbrFlow {
            name: file.name.unwrap_or_else(|| format!("cbr-{}", index + 1)),
            pairs,
            rates,
            packet: file.packet,
            bursts,
            random: file.random,
            start: file.start,
            stop: file.stop,
        })
    }

    /// What a flow sets for its own transport: `system`, and `tcp` over the scenario's `[tcp]`.
    pub(super) fn transport(&self, item: &Item<'_>, system: Option<SystemSpec>) -> Result<Transport, ParseError> {
        let Some(own) = item.get_ref().get("tcp") else { return Ok(Transport { system, tcp: None }) };
        let mut merged = own.clone();
        let DeValue::Table(table) = merged.get_mut() else {
            return Err(self.document.error_at(item, "tcp", "must be a table of the keys of `[tcp]`"));
        };
        let all = self.document.root().get_ref().get("tcp").and_then(|tcp| tcp.get_ref().as_table());
        for (key, value) in all.into_iter().flatten() {
            if !table.contains_key(key) {
                table.insert(key.clone(), value.clone());
            }
        }
        let tcp: TcpSettings = self.document.read(&merged, &[])?;
        tcp.check().map_err(|error| self.document.error_at(own, error.setting, &error))?;
        Ok(Transport { system, tcp: Some(tcp) })
    }

    /// The sizes under `size`, also those of a file.
    fn sizes(&self, item: &Item<'_>, source: SizeSource) -> Result<SizeDistribution, ParseError> {
        let bad = |message: String| self.document.error_at(item, "size", message);
        match source {
            SizeSource::Here(sizes) => Ok(sizes),
            SizeSource::File(name) => {
                let text = self.files.text(&name).map_err(bad)?;
                SizeDistribution::from_csv(&text).map_err(|error| bad(format!("{name}, {error}")))
            }
        }
    }

    fn pairs(&self, item: &Item<'_>, file: &Ends<'_>, room: u64) -> Result<Vec<(NodeId, NodeId)>, ParseError> {
        let too_many = || {
            let message = format!("more than {MAX_CONNECTIONS} connections in all; use fewer hosts or connections");
            self.document.error_at(item, "connections", message)
        };
        let mut hint = "";
        let pairs: Vec<(NodeId, NodeId)> = match (file.pairs, file.from, file.to) {
            (Some(pairs), None, None) if file.pairing.is_none() => self.listed_pairs(item, pairs)?,
            (None, None, None) if file.pairing == Some(Pairing::Demands) => {
                if self.demands.is_empty() {
                    let message = "there are no demands; add `[demands]` with a `file`, or a `[[demand]]`";
                    return Err(self.document.error_at(item, "pairing", message));
                }
                self.demands.iter().map(|demand| (demand.from, demand.to)).collect()
            }
            (None, Some(from), Some(to)) => {
                let (from, to) = (self.hosts(item, "from", from)?, self.hosts(item, "to", to)?);
                if file.pairing.is_none() && from.len().max(to.len()) > 1 {
                    hint = ": the first of `from` is paired with the first of `to`, and so on; set `pairing`, \
                            such as to \"permutation\" or \"all\"";
                }
                match file.pairing.unwrap_or_default() {
                    Pairing::Zip => {
                        let count = from.len().max(to.len());
                        from.iter().copied().cycle().zip(to.iter().copied().cycle()).take(count).collect()
                    }
                    Pairing::All if from.len() as u64 * to.len() as u64 > room.saturating_mul(2) => {
                        return Err(too_many());
                    }
                    Pairing::All => from.iter().flat_map(|from| to.iter().map(|to| (*from, *to))).collect(),
                    Pairing::Permutation => permutation(&from, &to, self.seed),
                    Pairing::Demands => {
                        let message = "the demands say between whom; leave `from` and `to` out";
                        return Err(self.document.error_at(item, "pairing", message));
                    }
                    Pairing::Incast => {
                        let sink = to.first().copied();
                        from.iter().filter_map(|from| Some((*from, sink?))).collect()
                    }
                }
            }
            _ => {
                let message = "a flow needs `from` and `to`, or `pairs` and neither of them nor `pairing`, or `pairing = \
                               \"demands\"` alone";
                return Err(self.document.error(item.span(), message));
            }
        };
        let pairs: Vec<_> = pairs.into_iter().filter(|(from, to)| from != to).collect();
        if pairs.is_empty() {
            let message = format!("no pair of two different hosts is left{hint}");
            return Err(self.document.error_at(item, "to", message));
        }
        if pairs.len() as u64 > room { Err(too_many()) } else { Ok(pairs) }
    }

    fn listed_pairs(&self, item: &Item<'_>, pairs: &[[String; 2]]) -> Result<Vec<(NodeId, NodeId)>, ParseError> {
        let mut found = Vec::new();
        for (index, [from, to]) in pairs.iter().enumerate() {
            let host = |name| self.host(name).map_err(|message| self.document.error_in(item, "pairs", index, message));
            found.push((host(from)?, host(to)?));
        }
        Ok(found)
    }

    /// The hosts that names and patterns stand for, in the order of the list and, within a pattern, of the topology.
    fn hosts(&self, item: &Item<'_>, key: &str, names: &OneOrMany) -> Result<Vec<NodeId>, ParseError> {
        let mut hosts = Vec::new();
        for (index, name) in names.0.iter().enumerate() {
            let bad = |message: String| self.document.error_in(item, key, index, message);
            if !pattern::is_pattern(name) {
                hosts.push(self.host(name).map_err(bad)?);
                continue;
            }
            let before = hosts.len();
            hosts.extend(
                self.topology.node_ids().filter(|id| {
                    !self.topology.is_router(*id) && pattern::matches(name, &self.topology.node(*id).name)
                }),
            );
            if hosts.len() == before {
                return Err(bad(format!("no host matches `{name}`")));
            }
            if hosts.len() as u64 > MAX_CONNECTIONS {
                return Err(bad(format!("more than {MAX_CONNECTIONS} hosts")));
            }
        }
        if hosts.is_empty() { Err(self.document.error_at(item, key, "name at least one host")) } else { Ok(hosts) }
    }

    pub(super) fn host(&self, name: &str) -> Result<NodeId, String> {
        let id = self.topology.find(name).map_err(|error| error.to_string())?;
        if self.topology.is_router(id) {
            return Err(format!("`{name}` is a router; flows run between hosts"));
        }
        Ok(id)
    }

    fn exec(&self, item: &Item<'_>, index: usize) -> Result<ExecFlow, ParseError> {
        let file: ExecFile = self.document.read(item, &["kind"])?;
        self.check_span(item, file.start, file.stop)?;
        let node = self.topology.find(&file.node).map_err(|error| self.document.error_at(item, "node", error))?;
        if file.command.first().is_none_or(String::is_empty) {
            return Err(self.document.error_at(item, "command", "name a program"));
        }
        if let Some(word) = file.command.iter().position(|word| word.contains('\0')) {
            return Err(self.document.error_in(item, "command", word, "holds a NUL character"));
        }
        let variable = |key: &str| {
            key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if let Some((key, _)) = file.env.iter().find(|(key, value)| !variable(key) || value.contains('\0')) {
            let message = format!("`{key}` cannot be an environment variable, or its value holds a NUL character");
            return Err(self.document.error_at(item, "env", message));
        }
        let flow = ExecFlow {
            name: file.name.unwrap_or_else(|| format!("exec-{}", index + 1)),
            node,
            command: file.command,
            env: file.env,
            start: file.start,
            stop: file.stop,
            wait: file.wait,
        };
        self.check_placeholders(item, &flow)?;
        Ok(flow)
    }

    fn check_placeholders(&self, item: &Item<'_>, flow: &ExecFlow) -> Result<(), ParseError> {
        let check = |text: &String| {
            let hint = "; `{NAME}` is replaced by the address of node NAME, write `{{NAME}}` for the text itself";
            crate::placeholder::substitute(text, self.topology).map_err(|error| format!("{error}{hint}"))
        };
        for (index, word) in flow.command.iter().enumerate() {
            check(word).map_err(|message| self.document.error_in(item, "command", index, message))?;
        }
        for (key, value) in &flow.env {
            let env = item.get_ref().get("env").unwrap_or(item);
            check(value).map_err(|message| self.document.error_at(env, key, message))?;
        }
        Ok(())
    }

    pub(super) fn check_span(&self, item: &Item<'_>, start: Span, stop: Option<Span>) -> Result<(), ParseError> {
        self.check_within(item, "start", start)?;
        match stop {
            Some(stop) if stop <= start => Err(self.document.error_at(item, "stop", "must be after `start`")),
            Some(stop) if stop > self.duration => Err(self.document.error_at(
                item,
                "stop",
                format_args!("is after the end of the run, {}", self.duration),
            )),
            _ => Ok(()),
        }
    }
}

/// Pairs each sender with a receiver drawn from those that are left; none with itself where that can be helped.
fn permutation(from: &[NodeId], to: &[NodeId], seed: u64) -> Vec<(NodeId, NodeId)> {
    let mut random = Pcg32::seed_from_u64(seed);
    let mut left: Vec<NodeId> = Vec::new();
    let mut pairs: Vec<(NodeId, NodeId)> = Vec::new();
    for sender in from {
        if left.iter().all(|receiver| receiver == sender) {
            left = to.to_vec();
        }
        let other = |(index, receiver): (usize, &NodeId)| (receiver != sender).then_some(index);
        let others: Vec<usize> = left.iter().enumerate().filter_map(other).collect();
        let Some(count) = u32::try_from(others.len()).ok().filter(|count| *count > 0) else { continue };
        let Some(&chosen) = others.get((random.next_u32() % count) as usize) else { continue };
        pairs.push((*sender, left.swap_remove(chosen)));
    }
    pairs
}
