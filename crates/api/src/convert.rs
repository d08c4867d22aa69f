//! Between the generated messages and the typed ones; what comes in is checked.

use std::{collections::BTreeSet, net::Ipv6Addr, time::Duration};

use ipnet::Ipv6Net;
use sidestep_net::{Rate, Span};
use thiserror::Error;
use tonic::Status;

use crate::{
    Binding, BindingUpdate, HostIdentity, LinkCounter, MAX_ITEMS, MAX_PATHS, MAX_SEGMENTS, Path, PathId, PathSet,
    PathUpdate, UsageReport, proto,
};

/// The most bindings of a router: each of its sets full.
const MAX_BINDINGS: usize = MAX_ITEMS * MAX_PATHS;
/// The most prefixes with which a host names itself.
const MAX_HOST_PREFIXES: usize = 64;
/// The longest name, in bytes: two node names and an id fit.
const MAX_NAME: usize = 128;
/// The mtu of a route: IPv6's minimum and maximum.
const MTU: std::ops::RangeInclusive<u32> = 1280..=65_535;

/// A message that contains something it must not.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// An address of the wrong length.
    #[error("{what} has {len} bytes, not 16")]
    Address {
        /// The field.
        what: &'static str,
        /// Its length.
        len: usize,
    },
    /// Not a prefix: too long, or with host bits set.
    #[error("{address}/{length} is not a prefix")]
    Prefix {
        /// The address.
        address: Ipv6Addr,
        /// The length in bits.
        length: u32,
    },
    /// A field that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A list with more items than allowed.
    #[error("{count} {what} are more than the {limit} allowed")]
    TooMany {
        /// The items, in the plural.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Two items of a list with the same key.
    #[error("{what} {key} occurs twice")]
    Duplicate {
        /// The kind of key.
        what: &'static str,
        /// The key.
        key: String,
    },
    /// A name that is too long or holds control characters.
    #[error("{0} is not a name of at most {MAX_NAME} printable characters")]
    Name(&'static str),
    /// An mtu that no IPv6 route can have.
    #[error("a route mtu of {0} bytes is not between 1280 and 65535")]
    Mtu(u32),
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        Status::invalid_argument(error.to_string())
    }
}

impl TryFrom<proto::PathUpdate> for PathUpdate {
    type Error = WireError;
    fn try_from(wire: proto::PathUpdate) -> Result<Self, WireError> {
        let sets: Vec<PathSet> = convert_all("path sets", wire.sets, MAX_ITEMS)?;
        all_differ("destination", sets.iter().map(|set| set.destination))?;
        Ok(PathUpdate { generation: wire.generation, sets })
    }
}

impl From<PathUpdate> for proto::PathUpdate {
    fn from(update: PathUpdate) -> Self {
        proto::PathUpdate { generation: update.generation, sets: update.sets.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<proto::PathSet> for PathSet {
    type Error = WireError;
    fn try_from(wire: proto::PathSet) -> Result<Self, WireError> {
        let destination = wire.destination.ok_or(WireError::Missing("the destination of a path set"))?.try_into()?;
        let paths: Vec<Path> = convert_all("paths of one set", wire.paths, MAX_PATHS)?;
        all_differ("path", paths.iter().map(|path| path.id))?;
        Ok(PathSet { destination, paths })
    }
}

impl From<PathSet> for proto::PathSet {
    fn from(set: PathSet) -> Self {
        let paths = set.paths.into_iter().map(Into::into).collect();
        proto::PathSet { destination: Some(set.destination.into()), paths }
    }
}

impl TryFrom<proto::Path> for Path {
    type Error = WireError;
    fn try_from(wire: proto::Path) -> Result<Self, WireError> {
        let plain_mtu = Some(wire.plain_mtu).filter(|mtu| *mtu != 0);
        if let Some(mtu) = [Some(wire.route_mtu), plain_mtu].into_iter().flatten().find(|mtu| !MTU.contains(mtu)) {
            return Err(WireError::Mtu(mtu));
        }
        Ok(Path {
            id: path_id(wire.id)?,
            name: name("the name of a path", wire.name)?,
            binding_sid: address("a binding SID", &wire.binding_sid)?,
            capacity: Rate::from_bits_per_sec(wire.capacity_bps),
            usage: Rate::from_bits_per_sec(wire.usage_bps),
            delay: Span::from_nanos(wire.delay_ns),
            rtt: Span::from_nanos(wire.rtt_ns),
            route_mtu: wire.route_mtu,
            plain_mtu,
        })
    }
}

impl From<Path> for proto::Path {
    fn from(path: Path) -> Self {
        proto::Path {
            id: path.id.get(),
            name: path.name,
            binding_sid: path.binding_sid.octets().to_vec(),
            capacity_bps: path.capacity.bits_per_sec(),
            usage_bps: path.usage.bits_per_sec(),
            delay_ns: path.delay.as_nanos(),
            rtt_ns: path.rtt.as_nanos(),
            route_mtu: path.route_mtu,
            plain_mtu: path.plain_mtu.unwrap_or(0),
        }
    }
}

impl TryFrom<proto::BindingUpdate> for BindingUpdate {
    type Error = WireError;
    fn try_from(wire: proto::BindingUpdate) -> Result<Self, WireError> {
        let bindings: Vec<Binding> = convert_all("bindings", wire.bindings, MAX_BINDINGS)?;
        all_differ("path", bindings.iter().map(|binding| binding.path_id))?;
        all_differ("binding SID", bindings.iter().map(|binding| binding.binding_sid))?;
        Ok(BindingUpdate { generation: wire.generation, bindings })
    }
}

impl From<BindingUpdate> for proto::BindingUpdate {
    fn from(update: BindingUpdate) -> Self {
        let bindings = update.bindings.into_iter().map(Into::into).collect();
        proto::BindingUpdate { generation: update.generation, bindings }
    }
}

impl TryFrom<proto::Binding> for Binding {
    type Error = WireError;
    fn try_from(wire: proto::Binding) -> Result<Self, WireError> {
        at_most("segments of one list", wire.segments.len(), MAX_SEGMENTS)?;
        if wire.segments.is_empty() {
            return Err(WireError::Missing("the segment list of a binding"));
        }
        Ok(Binding {
            path_id: path_id(wire.path_id)?,
            binding_sid: address("a binding SID", &wire.binding_sid)?,
            segments: wire.segments.iter().map(|sid| address("a segment", sid)).collect::<Result<_, _>>()?,
        })
    }
}

impl From<Binding> for proto::Binding {
    fn from(binding: Binding) -> Self {
        proto::Binding {
            path_id: binding.path_id.get(),
            binding_sid: binding.binding_sid.octets().to_vec(),
            segments: binding.segments.iter().map(|sid| sid.octets().to_vec()).collect(),
        }
    }
}

impl TryFrom<proto::HostHello> for HostIdentity {
    type Error = WireError;
    fn try_from(wire: proto::HostHello) -> Result<Self, WireError> {
        if !wire.node.is_empty() {
            return Ok(HostIdentity::Node(name("the host's name", wire.node)?));
        }
        if wire.prefixes.is_empty() {
            return Err(WireError::Missing("the host's name or prefix"));
        }
        convert_all("prefixes of one host", wire.prefixes, MAX_HOST_PREFIXES).map(HostIdentity::Prefixes)
    }
}

impl From<HostIdentity> for proto::HostHello {
    fn from(host: HostIdentity) -> Self {
        match host {
            HostIdentity::Node(node) => proto::HostHello { node, prefixes: Vec::new() },
            HostIdentity::Prefixes(prefixes) => {
                proto::HostHello { node: String::new(), prefixes: prefixes.into_iter().map(Into::into).collect() }
            }
        }
    }
}

/// The name with which a router asks for its bindings.
pub fn router_name(hello: proto::RouterHello) -> Result<String, WireError> {
    name("the router's name", hello.node)
}

impl TryFrom<proto::UsageReport> for UsageReport {
    type Error = WireError;
    fn try_from(wire: proto::UsageReport) -> Result<Self, WireError> {
        let counters: Vec<LinkCounter> = convert_all("link counters", wire.counters, MAX_ITEMS)?;
        all_differ("link", counters.iter().map(|counter| &counter.link))?;
        Ok(UsageReport { node: name("the router's name", wire.node)?, at: Duration::from_nanos(wire.at_ns), counters })
    }
}

impl From<UsageReport> for proto::UsageReport {
    fn from(report: UsageReport) -> Self {
        // 584 years of uptime fit.
        let at_ns = u64::try_from(report.at.as_nanos()).unwrap_or(u64::MAX);
        let counters = report.counters.into_iter().map(|counter| proto::LinkCounter {
            link: counter.link,
            tx_bytes: counter.tx_bytes,
            down: counter.down,
        });
        proto::UsageReport { node: report.node, at_ns, counters: counters.collect() }
    }
}

impl TryFrom<proto::LinkCounter> for LinkCounter {
    type Error = WireError;
    fn try_from(wire: proto::LinkCounter) -> Result<Self, WireError> {
        Ok(LinkCounter { link: name("the name of a link", wire.link)?, tx_bytes: wire.tx_bytes, down: wire.down })
    }
}

impl TryFrom<proto::Prefix> for Ipv6Net {
    type Error = WireError;
    fn try_from(wire: proto::Prefix) -> Result<Self, WireError> {
        let address = address("a prefix", &wire.address)?;
        let prefix = u8::try_from(wire.length).ok().and_then(|length| Ipv6Net::new(address, length).ok());
        let prefix = prefix.ok_or(WireError::Prefix { address, length: wire.length })?;
        if prefix.network() != address {
            tracing::warn!(
                "the other side sent the prefix {prefix}, which has host bits; it is read as {}",
                prefix.trunc()
            );
        }
        Ok(prefix.trunc())
    }
}

impl From<Ipv6Net> for proto::Prefix {
    fn from(prefix: Ipv6Net) -> Self {
        proto::Prefix { address: prefix.network().octets().to_vec(), length: prefix.prefix_len().into() }
    }
}

/// A name that the other side sent: it ends in logs and on terminals.
fn name(what: &'static str, name: String) -> Result<String, WireError> {
    let fine = !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    if fine { Ok(name) } else { Err(WireError::Name(what)) }
}

fn convert_all<W, T: TryFrom<W, Error = WireError>>(
    what: &'static str,
    wire: Vec<W>,
    limit: usize,
) -> Result<Vec<T>, WireError> {
    at_most(what, wire.len(), limit)?;
    wire.into_iter().map(T::try_from).collect()
}

fn at_most(what: &'static str, count: usize, limit: usize) -> Result<(), WireError> {
    if count <= limit { Ok(()) } else { Err(WireError::TooMany { what, count, limit }) }
}

fn all_differ<K: Ord + ToString>(what: &'static str, keys: impl Iterator<Item = K>) -> Result<(), WireError> {
    let mut seen = BTreeSet::new();
    for key in keys {
        let text = key.to_string();
        if !seen.insert(key) {
            return Err(WireError::Duplicate { what, key: text });
        }
    }
    Ok(())
}

fn address(what: &'static str, bytes: &[u8]) -> Result<Ipv6Addr, WireError> {
    let octets: [u8; 16] = bytes.try_into().map_err(|_| WireError::Address { what, len: bytes.len() })?;
    Ok(Ipv6Addr::from(octets))
}

fn path_id(number: u32) -> Result<PathId, WireError> {
    PathId::new(number).ok_or(WireError::Missing("the id of a path"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wire_path(id: u32) -> proto::Path {
        proto::Path {
            id,
            name: "path-1".into(),
            binding_sid: vec![0xfd; 16],
            capacity_bps: 100_000_000,
            usage_bps: 1,
            delay_ns: 2,
            rtt_ns: 4,
            route_mtu: 1420,
            plain_mtu: if id.is_multiple_of(2) { 1500 } else { 0 },
        }
    }

    fn wire_set(paths: Vec<proto::Path>) -> proto::PathSet {
        proto::PathSet { destination: Some(proto::Prefix { address: vec![0; 16], length: 0 }), paths }
    }

    fn wire_binding(segments: usize) -> proto::Binding {
        proto::Binding { path_id: 1, binding_sid: vec![1; 16], segments: vec![vec![2; 16]; segments] }
    }

    #[test]
    fn a_full_set_survives_the_way_there_and_back() {
        let wire = proto::PathUpdate { generation: 7, sets: vec![wire_set((1..=16).map(wire_path).collect())] };
        let typed = PathUpdate::try_from(wire.clone()).unwrap();
        assert_eq!(typed.sets[0].paths.len(), 16);
        assert_eq!(proto::PathUpdate::from(typed), wire);
        let wire = proto::BindingUpdate { generation: 7, bindings: vec![wire_binding(32)] };
        assert_eq!(proto::BindingUpdate::from(BindingUpdate::try_from(wire.clone()).unwrap()), wire);
    }

    #[test]
    fn oversized_lists_are_refused() {
        let refused = |error: WireError| error.to_string();
        let set = PathSet::try_from(wire_set((1..=17).map(wire_path).collect()));
        assert_eq!(refused(set.unwrap_err()), "17 paths of one set are more than the 16 allowed");
        let binding = Binding::try_from(wire_binding(33));
        assert_eq!(refused(binding.unwrap_err()), "33 segments of one list are more than the 32 allowed");
        let counters = vec![proto::LinkCounter::default(); MAX_ITEMS + 1];
        let report = UsageReport::try_from(proto::UsageReport { node: "A".into(), at_ns: 0, counters });
        assert_eq!(refused(report.unwrap_err()), "8193 link counters are more than the 8192 allowed");
        let hello = proto::HostHello { node: String::new(), prefixes: vec![proto::Prefix::default(); 65] };
        assert_eq!(
            refused(HostIdentity::try_from(hello).unwrap_err()),
            "65 prefixes of one host are more than the 64 allowed"
        );
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        let path = |change: fn(&mut proto::Path)| {
            let mut path = wire_path(1);
            change(&mut path);
            Path::try_from(path).unwrap_err()
        };
        assert_eq!(path(|path| path.id = 0), WireError::Missing("the id of a path"));
        assert_eq!(path(|path| path.route_mtu = 1279), WireError::Mtu(1279));
        assert_eq!(path(|path| path.plain_mtu = 1278), WireError::Mtu(1278));
        assert_eq!(path(|path| path.name = "x".repeat(129)), WireError::Name("the name of a path"));
        assert_eq!(path(|path| path.name = "\u{1b}[2J".into()), WireError::Name("the name of a path"));
        assert_eq!(path(|path| path.binding_sid.truncate(15)), WireError::Address { what: "a binding SID", len: 15 });
        assert_eq!(
            PathSet::try_from(wire_set(vec![wire_path(1), wire_path(1)])).unwrap_err(),
            WireError::Duplicate { what: "path", key: "00000001".into() }
        );
        assert!(Binding::try_from(wire_binding(0)).is_err());
        assert!(PathSet::try_from(proto::PathSet::default()).is_err());
        assert!(HostIdentity::try_from(proto::HostHello::default()).is_err());
        assert!(router_name(proto::RouterHello { node: "x".repeat(1 << 20) }).is_err());
        let prefix = |address: &str, length| {
            let address = address.parse::<Ipv6Addr>().unwrap().octets().to_vec();
            Ipv6Net::try_from(proto::Prefix { address, length })
        };
        assert!(prefix("fd02::", 129).is_err() && prefix("fd02::", 300).is_err());
        assert_eq!(prefix("fd02:0:9::1", 64).unwrap().to_string(), "fd02:0:9::/64", "host bits are cut off");
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            use prost::Message;
            let _ = proto::PathUpdate::decode(bytes.as_slice()).map(PathUpdate::try_from);
            let _ = proto::BindingUpdate::decode(bytes.as_slice()).map(BindingUpdate::try_from);
            let _ = proto::HostHello::decode(bytes.as_slice()).map(HostIdentity::try_from);
            let _ = proto::UsageReport::decode(bytes.as_slice()).map(UsageReport::try_from);
        }
    }
}
