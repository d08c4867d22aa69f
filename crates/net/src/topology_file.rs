//! The `[topology]` table of a scenario, which alone is also the controller's topology file.
//!
//! Either a generator and its settings ([`ParallelPaths`](crate::ParallelPaths), [`Dumbbell`](crate::Dumbbell),
//! [`FatTree`](crate::FatTree)), or the network itself:
//!
//! ```toml
//! [topology]
//! [[topology.node]]
//! name = "c1"
//! kind = "host"               # or "router", the default
//! [[topology.node]]
//! name = "A"
//! [[topology.link]]
//! ends = ["c1", "A"]
//! rate = "100 Mbit/s"
//! delay = "1 ms"
//! [[topology.path]]           # what results are reported for
//! name = "uplink"
//! links = ["c1-A"]
//! ```
//!
//! A node may have a `prefix` (hosts) or `locator` (routers, a /48); the address plan gives one to each that has
//! none; `position = [longitude, latitude]` puts it on a map. A link may have `name` (default: `c1-A`, then `c1-A.2`), `queue` (`"100 packets"`), `ecn` (`"never"`), `red`
//! ([`Red`]), `loss` (`"0 %"`), `burst_loss` ([`BurstLoss`]), `weight` (10), `mtu` (1500), `srlg` (the
//! numbers of its shared-risk groups: `[7, 12]`),
//! `one_way = true` (packets pass from the first end to the second only),
//! and `reverse`, a table with those of them but `name`, `mtu`, `srlg` and `one_way` that differ from its second end to its first. In a file of its own nothing stands beside `[topology]`.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod read;

use std::fmt::Write as _;

pub(crate) use read::ecn_threshold;
pub use read::{places, read};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    BurstLoss, Channel, NodeId, NodeKind, ParseError, Red, Topology,
    document::{Document, Unread, list, quoted},
};

/// Reads a topology file: a `[topology]` table and nothing else. Addresses are assigned.
pub fn parse(text: &str) -> Result<Topology, ParseError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(rename = "topology")]
        _topology: IgnoredAny,
    }
    let document = Document::parse(text)?;
    let File { .. } = document.read(document.root(), &[])?;
    read(&document, &Unread)
}

/// What [`parse`] reads otherwise than it stands in the file: prefixes and locators with host bits.
pub fn notes(text: &str) -> Vec<ParseError> {
    let Ok(document) = Document::parse(text) else { return Vec::new() };
    let nodes = document.root().get_ref().get("topology").map(|topology| document.tables(topology, "node"));
    let nodes = nodes.and_then(Result::ok).unwrap_or_default();
    nodes
        .iter()
        .flat_map(|node| ["prefix", "locator"].map(|key| document.note_host_bits(node, key)))
        .flatten()
        .collect()
}

/// Prints a topology file with everything filled in; [`parse`] gives the same topology if its addresses are assigned.
pub fn print(topology: &Topology) -> String {
    let name = |id: NodeId| topology.node(id).name.as_str();
    let mut out = String::from("[topology]\nnode = [\n");
    for (id, node) in topology.node_ids().zip(topology.nodes()) {
        let kind = if node.kind == NodeKind::Host { "host" } else { "router" };
        let _ = write!(out, "  {{ name = {}, kind = \"{kind}\"", quoted(&node.name));
        for (key, net) in [("prefix", node.prefix), ("locator", node.locator)] {
            let _ = net.map(|net| write!(out, ", {key} = \"{net}\""));
        }
        if let Some((longitude, latitude)) = topology.position(id) {
            let _ = write!(out, ", position = [{longitude:?}, {latitude:?}]");
        }
        out.push_str(" },\n");
    }
    out.push_str("]\nlink = [\n");
    for (id, link) in topology.link_ids().zip(topology.links()) {
        let ends = list([name(link.a), name(link.b)]);
        let _ = write!(out, "  {{ name = {}, ends = {ends}, {}", quoted(&link.name), print_channel(&link.ab));
        if topology.is_one_way(id) {
            out.push_str(", one_way = true");
        } else if link.ba != link.ab {
            let _ = write!(out, ", reverse = {{ {} }}", print_channel(&link.ba));
        }
        if !topology.risk_groups(id).is_empty() {
            let groups: Vec<String> = topology.risk_groups(id).iter().map(u32::to_string).collect();
            let _ = write!(out, ", srlg = [{}]", groups.join(", "));
        }
        let _ = writeln!(out, ", mtu = {} }},", link.mtu);
    }
    out.push_str("]\npath = [\n");
    for path in topology.paths() {
        let links = list(path.links.iter().map(|id| topology.link(*id).name.as_str()));
        let _ = writeln!(out, "  {{ name = {}, links = {links} }},", quoted(&path.name));
    }
    out.push_str("]\n");
    out
}

fn print_channel(channel: &Channel) -> String {
    let Channel { rate, delay, queue, loss, burst_loss, weight } = channel;
    let ecn = queue.ecn_threshold.map_or("never".into(), |threshold| threshold.to_string());
    let limit = queue.limit;
    let mut out = format!(
        "rate = \"{rate}\", delay = \"{delay}\", queue = \"{limit}\", ecn = \"{ecn}\", loss = \"{loss}\", weight = {weight}"
    );
    if let Some(Red { min, max, probability, weight, gentle }) = queue.red {
        let _ = write!(
            out,
            ", red = {{ min = \"{min}\", max = \"{max}\", probability = \"{probability}\", weight = \"{weight}\", gentle = {gentle} }}"
        );
    }
    if let Some(BurstLoss { to_bad, to_good, in_good, in_bad }) = burst_loss {
        let _ = write!(
            out,
            ", burst_loss = {{ to_bad = \"{to_bad}\", to_good = \"{to_good}\", in_good = \"{in_good}\", in_bad = \"{in_bad}\" }}"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_with_host_bits_is_read_without_them_and_noted_with_its_line() {
        let text = "[topology]\nnode = [\n  { name = \"c1\", kind = \"host\", prefix = \"2001:db8:5::1/48\" },\n  \
                    { name = \"A\", locator = \"fd01:0:1::/48\" },\n]\nlink = [{ ends = [\"c1\", \"A\"], rate = \"1 Mbit/s\", \
                    delay = \"1 ms\" }]\n";
        let topology = parse(text).unwrap();
        assert_eq!(topology.nodes()[0].prefix, Some("2001:db8:5::/48".parse().unwrap()));
        let notes: Vec<_> = notes(text).into_iter().map(|note| (note.line, note.column, note.message)).collect();
        let message = "2001:db8:5::1/48 has host bits; it is read as 2001:db8:5::/48";
        assert_eq!(notes, [(3, 42, message.to_string())]);
    }
}
