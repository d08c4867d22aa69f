//! Reading a `[topology]` table.

use std::{collections::BTreeSet, num::NonZeroU64};

use ipnet::Ipv6Net;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};

use crate::{
    Attached, BurstLoss, Channel, Dumbbell, FatTree, Files, Graph, GraphNode, Link, NamedPath, Node, NodeId, NodeKind,
    ParallelPaths, ParseError, Queue, QueueLimit, Rate, Ratio, Red, Span, Topology, TopologyError,
    document::{Document, Item},
    generate::{DEFAULT_WEIGHT, LinkNames},
    srv6,
    topology::is_on_earth,
};

/// Reads the `topology` table of a document, or the network that it names.
pub fn read(document: &Document<'_>, files: &dyn Files) -> Result<Topology, ParseError> {
    let item = document.root().get_ref().get("topology").unwrap_or(document.root());
    if let Some((network, graph, attached)) = named(document, item, files)? {
        return attached.build(&graph).map_err(|error| match item.get_ref().as_str() {
            Some(_) => document.error(network.span(), error),
            None => place(document, item, &error),
        });
    }
    match item.get_ref().get("generator") {
        None => read_inline(document, item),
        Some(generator) => {
            let built = match generator.get_ref().as_str() {
                Some("parallel-paths") => document.read::<ParallelPaths>(item, &["generator"])?.build(),
                Some("dumbbell") => document.read::<Dumbbell>(item, &["generator"])?.build(),
                Some("fat-tree") => document.read::<FatTree>(item, &["generator"])?.build(),
                _ => {
                    let message =
                        "there is no such generator; known generators: \"parallel-paths\", \"dumbbell\", \"fat-tree\"";
                    return Err(document.error(generator.span(), message));
                }
            };
            built.map_err(|error| place(document, item, &error))
        }
    }
}

/// The network that is published, or in a file of its own, if a table names one: where it does, and what is added.
fn named<'d>(
    document: &Document<'_>,
    item: &'d Item<'d>,
    files: &dyn Files,
) -> Result<Option<(&'d Item<'d>, Graph, Attached)>, ParseError> {
    let (network, attached) = match item.get_ref().get("network") {
        _ if item.get_ref().is_str() => (item, Attached::default()),
        None => return Ok(None),
        Some(network) => (network, document.read(item, &["network"])?),
    };
    let Some(name) = network.get_ref().as_str() else {
        let message = "must be the name of a published network, such as \"Abilene\", or a file";
        return Err(document.error(network.span(), message));
    };
    let graph = files.network(name, &attached.map).map_err(|problem| document.error(network.span(), problem))?;
    Ok(Some((network, graph, attached)))
}

/// The places between which files say what is sent, as a graph without edges: the nodes of the network that a document names, in
/// the order of its file; or else the hosts, and behind them the routers, in the order of `topology`, which is the document's.
/// With them the node of each.
pub fn places(
    document: &Document<'_>,
    topology: &Topology,
    files: &dyn Files,
) -> Result<(Graph, Vec<NodeId>), ParseError> {
    let item = document.root().get_ref().get("topology").unwrap_or(document.root());
    if let Some((_, graph, attached)) = named(document, item, files)? {
        let graph = attached.taken(&graph);
        let nodes = topology.node_ids().take(graph.nodes.len()).collect();
        return Ok((Graph { edges: Vec::new(), ..graph }, nodes));
    }
    let of = |routers: bool| topology.node_ids().filter(move |id| topology.is_router(*id) == routers);
    let ids: Vec<NodeId> = of(false).chain(of(true)).collect();
    let node = |id: &NodeId| GraphNode { name: topology.node(*id).name.clone(), position: None };
    Ok((Graph { nodes: ids.iter().map(node).collect(), ..Graph::default() }, ids))
}

/// Reads an ECN threshold: a queue size or `never`.
pub(crate) fn ecn_threshold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<QueueLimit>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "never" => Ok(None),
        text => text.parse().map(Some).map_err(D::Error::custom),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InlineFile {
    #[serde(rename = "node")]
    _node: IgnoredAny,
    #[serde(rename = "link", default)]
    _link: IgnoredAny,
    #[serde(rename = "path", default)]
    _path: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    name: String,
    #[serde(default)]
    kind: KindFile,
    prefix: Option<Ipv6Net>,
    locator: Option<Ipv6Net>,
    position: Option<(f64, f64)>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindFile {
    Host,
    #[default]
    Router,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    name: Option<String>,
    ends: [String; 2],
    rate: Rate,
    delay: Span,
    #[serde(default = "default_queue")]
    queue: QueueLimit,
    #[serde(default)]
    ecn: Ecn,
    red: Option<Red>,
    #[serde(default)]
    loss: Ratio,
    burst_loss: Option<BurstLoss>,
    weight: Option<NonZeroU64>,
    #[serde(default = "default_mtu")]
    mtu: u32,
    #[serde(default)]
    srlg: BTreeSet<u32>,
    #[serde(default)]
    one_way: bool,
    #[serde(default)]
    reverse: ReverseFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReverseFile {
    rate: Option<Rate>,
    delay: Option<Span>,
    queue: Option<QueueLimit>,
    ecn: Option<Ecn>,
    red: Option<Red>,
    loss: Option<Ratio>,
    burst_loss: Option<BurstLoss>,
    weight: Option<NonZeroU64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Ecn(#[serde(deserialize_with = "ecn_threshold")] Option<QueueLimit>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathFile {
    name: String,
    links: Vec<String>,
}

fn default_queue() -> QueueLimit {
    QueueLimit::Packets(100)
}

fn default_mtu() -> u32 {
    1500
}

impl LinkFile {
    fn channels(&self) -> (Channel, Channel) {
        let ab = Channel {
            rate: self.rate,
            delay: self.delay,
            queue: Queue { limit: self.queue, ecn_threshold: self.ecn.0, red: self.red },
            loss: self.loss,
            burst_loss: self.burst_loss,
            weight: self.weight.map_or(DEFAULT_WEIGHT, NonZeroU64::get),
        };
        let reverse = &self.reverse;
        let ba = Channel {
            rate: reverse.rate.unwrap_or(ab.rate),
            delay: reverse.delay.unwrap_or(ab.delay),
            queue: Queue {
                limit: reverse.queue.unwrap_or(ab.queue.limit),
                ecn_threshold: reverse.ecn.unwrap_or(self.ecn).0,
                red: reverse.red.or(self.red),
            },
            loss: reverse.loss.unwrap_or(ab.loss),
            burst_loss: reverse.burst_loss.or(self.burst_loss),
            weight: reverse.weight.map_or(ab.weight, NonZeroU64::get),
        };
        (ab, ba)
    }
}

fn read_inline(document: &Document<'_>, item: &Item<'_>) -> Result<Topology, ParseError> {
    let InlineFile { .. } = document.read(item, &[])?;
    let mut topology = Topology::new();
    for node in document.tables(item, "node")? {
        read_node(document, node, &mut topology)?;
    }
    let mut names = LinkNames::default();
    for link in document.tables(item, "link")? {
        read_link(document, link, &mut topology, &mut names)?;
    }
    for path in document.tables(item, "path")? {
        read_path(document, path, &mut topology)?;
    }
    srv6::assign_addresses(&mut topology);
    check_addresses(document, item, &topology)?;
    Ok(topology)
}

fn read_node(document: &Document<'_>, item: &Item<'_>, topology: &mut Topology) -> Result<(), ParseError> {
    let file: NodeFile = document.read(item, &[])?;
    let kind = match file.kind {
        KindFile::Host => NodeKind::Host,
        KindFile::Router => NodeKind::Router,
    };
    if kind == NodeKind::Router && file.prefix.is_some() {
        return Err(document.error_at(item, "prefix", "a router has a `locator`; only hosts have a `prefix`"));
    }
    if kind == NodeKind::Host && file.locator.is_some() {
        return Err(document.error_at(item, "locator", "a host has a `prefix`; only routers have a `locator`"));
    }
    if file.locator.is_some_and(|net| net.prefix_len() != srv6::LOCATOR_BITS) {
        return Err(document.error_at(item, "locator", "a locator must be a /48"));
    }
    // The host itself is `::1` of its prefix.
    if file.prefix.is_some_and(|net| net.prefix_len() > 126) {
        return Err(document.error_at(item, "prefix", "a host's prefix must be a /126 or shorter"));
    }
    let (prefix, locator) = (file.prefix.map(|net| net.trunc()), file.locator.map(|net| net.trunc()));
    if file.position.is_some_and(|position| !is_on_earth(position)) {
        let message = "a position is a longitude from -180 to 180 and a latitude from -90 to 90, in degrees";
        return Err(document.error_at(item, "position", message));
    }
    let added = topology.add_node(Node { name: file.name, kind, prefix, locator });
    let id = added.map_err(|error| place(document, item, &error))?;
    if let Some(position) = file.position {
        topology.set_position(id, position);
    }
    Ok(())
}

fn read_link(
    document: &Document<'_>,
    item: &Item<'_>,
    topology: &mut Topology,
    names: &mut LinkNames,
) -> Result<(), ParseError> {
    let mut file: LinkFile = document.read(item, &[])?;
    let (ab, ba) = file.channels();
    let mut ends = file
        .ends
        .iter()
        .enumerate()
        .map(|(index, name)| topology.find(name).map_err(|error| document.error_in(item, "ends", index, error)));
    let (Some(a), Some(b)) = (ends.next().transpose()?, ends.next().transpose()?) else {
        return Err(document.error_at(item, "ends", "a link has two ends"));
    };
    let name = file.name.take().unwrap_or_else(|| names.next(&file.ends[0], &file.ends[1]));
    let added = topology.add_link(Link { name, a, b, ab, ba, mtu: file.mtu });
    let id = added.map_err(|error| place(document, item, &error))?;
    topology.set_risk_groups(id, file.srlg);
    if file.one_way {
        if has(item, "reverse") {
            return Err(document.error_at(item, "reverse", "a link that is `one_way` has no reverse"));
        }
        topology.set_one_way(id).map_err(|error| place(document, item, &error))?;
    }
    Ok(())
}

fn read_path(document: &Document<'_>, item: &Item<'_>, topology: &mut Topology) -> Result<(), ParseError> {
    let file: PathFile = document.read(item, &[])?;
    let mut links = Vec::new();
    for (index, name) in file.links.iter().enumerate() {
        let unknown = || document.error_in(item, "links", index, format_args!("there is no link `{name}`"));
        links.push(topology.find_link(name).ok_or_else(unknown)?);
    }
    if links.is_empty() {
        return Err(document.error_at(item, "links", "a path needs at least one link"));
    }
    let added = topology.add_path(NamedPath { name: file.name, links });
    added.map_err(|error| place(document, item, &error))
}

/// Refuses overlapping prefixes and locators: packets for one node would reach another.
fn check_addresses(document: &Document<'_>, item: &Item<'_>, topology: &Topology) -> Result<(), ParseError> {
    let mut nets: Vec<(Ipv6Net, usize)> = Vec::new();
    for (index, node) in topology.nodes().iter().enumerate() {
        nets.extend([node.prefix, node.locator].into_iter().flatten().map(|net| (net, index)));
    }
    // In this order a net that contains others stands right before the first of them.
    nets.sort_by_key(|(net, _)| (net.network(), net.prefix_len()));
    for pair in nets.windows(2) {
        let &[(wide, first), (net, second)] = pair else { continue };
        if wide.contains(&net) {
            let name = |index: usize| topology.nodes().get(index).map_or("", |node| node.name.as_str());
            let message = format!("{net} of `{}` lies within {wide} of `{}`", name(second), name(first));
            return Err(at_address(document, item, [first.max(second), first.min(second)], message));
        }
    }
    Ok(())
}

/// An error at the first of `nodes` whose address stands in the file, and was not given by the plan.
fn at_address(document: &Document<'_>, item: &Item<'_>, nodes: [usize; 2], message: String) -> ParseError {
    let written = nodes.iter().filter_map(|index| item.get_ref().get("node")?.get_ref().get(*index)).find_map(|node| {
        let key = ["prefix", "locator"].into_iter().find(|key| has(node, key))?;
        Some((node, key))
    });
    let (node, key) = written.unwrap_or((item, "node"));
    document.error_at(node, key, message)
}

fn has(item: &Item<'_>, key: &str) -> bool {
    item.get_ref().get(key).is_some()
}

/// The error at the key that it is about.
fn place(document: &Document<'_>, item: &Item<'_>, error: &TopologyError) -> ParseError {
    let key = match error {
        TopologyError::Duplicate { .. } | TopologyError::BadName(_) => "name",
        TopologyError::UnknownNode(_) | TopologyError::SelfLoop(_) => "ends",
        TopologyError::BadValue { what, .. } => what,
        TopologyError::TooLarge { .. } => "",
    };
    match item.get_ref().get("reverse") {
        Some(reverse) if !has(item, key) => document.error_at(reverse, key, error),
        _ => document.error_at(item, key, error),
    }
}
