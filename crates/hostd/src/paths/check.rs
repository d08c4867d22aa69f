//! Checks of the configuration file that its types cannot make; each mistake is reported where it stands.

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;
use sidestep_net::{
    ParseError, Rate, Span,
    document::{Document, Item},
};

use super::{
    file::{StaticDestination, StaticPath, Via},
    places::Places,
};

/// Most segments of a list of the host's own; the kernel's header has room for few more.
const MAX_SEGMENTS: usize = 16;
/// Packet sizes that a path may have, in bytes: from the least that IPv6 demands of a link (RFC 8200, section 5).
const MTU: RangeInclusive<u32> = 1280..=65_000;

/// Longest name of an interface (`IFNAMSIZ`, with its final zero).
const MAX_INTERFACE: usize = 15;
/// Longest name of a path, in bytes.
const MAX_NAME: usize = 63;

/// Checks what the types of the fields cannot: each mistake is reported at the value that has to change.
pub struct Checker<'a> {
    /// The file.
    pub document: &'a Document<'a>,
    /// Its destinations.
    pub destinations: &'a [StaticDestination],
    /// Most paths of a destination.
    pub most_paths: usize,
}

impl Checker<'_> {
    /// Checks all destinations, and notes where the file names interfaces.
    pub fn check(&self) -> Result<Places, ParseError> {
        let (document, root) = (self.document, self.document.root());
        let mut places = Places::default();
        let mut seen = Vec::new();
        for (item, destination) in document.tables(root, "destination")?.iter().zip(self.destinations) {
            let prefix = destination.prefix.trunc();
            if seen.contains(&prefix) {
                let message = format!("{prefix} is here a second time; put all of its paths into one [[destination]]");
                return Err(document.error_at(item, "prefix", message));
            }
            seen.push(prefix);
            self.check_destination(item, destination)?;
            for (item, path) in document.tables(item, "path")?.iter().zip(&destination.paths) {
                if let Some(dev) = &path.dev {
                    places.note(dev, || document.error_at(item, "dev", ""));
                }
            }
        }
        Ok(places)
    }

    fn check_destination(&self, item: &Item<'_>, destination: &StaticDestination) -> Result<(), ParseError> {
        let (document, prefix) = (self.document, destination.prefix);
        if is_mapped(prefix) {
            let message = format!("{prefix} never matches: its connections are IPv4; write it as `10.0.0.0/8`");
            return Err(document.error_at(item, "prefix", message));
        }
        if destination.paths.len() > self.most_paths {
            let (paths, most) = (destination.paths.len(), self.most_paths);
            let message = format!("{prefix} has {paths} paths; {most} are the most");
            return Err(document.error_in(item, "path", most, message));
        }
        let mut before: Vec<&StaticPath> = Vec::new();
        for (item, path) in document.tables(item, "path")?.iter().zip(&destination.paths) {
            self.check_path(item, prefix, path)?;
            self.check_alone(item, prefix, path, &before)?;
            before.push(path);
        }
        Ok(())
    }

    fn check_path(&self, item: &Item<'_>, prefix: IpNet, path: &StaticPath) -> Result<(), ParseError> {
        let at = |key: &str, message: String| Err(self.document.error_at(item, key, message));
        let kinds = [
            ("segments", path.segments.is_some()),
            ("path_id", path.path_id.is_some()),
            ("via", path.via.is_some()),
            ("plain", path.plain),
        ];
        let mut given = kinds.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        // None: the path itself is where one is missing. Several: the second is one too many.
        if let (None, second) | (Some(_), second @ Some(_)) = (given.next(), given.next()) {
            let message = format!("a path to {prefix} needs exactly one of `segments`, `path_id`, `via` and `plain`");
            return at(second.unwrap_or_default(), message);
        }
        match (prefix, path.via, path.path_id, &path.dev) {
            (_, Some(via), _, None) => {
                return at("via", format!("the path to {prefix} via {via} needs the interface: `dev = \"eth0\"`"));
            }
            (_, None, _, Some(_)) => {
                return at("dev", format!("a path to {prefix} has `dev` only beside `via`: remove it"));
            }
            (IpNet::V6(_), Some(via @ Via::Address(IpAddr::V4(_))), ..) => {
                return at("via", format!("the path to {prefix} via {via} needs a next hop with an address of IPv6"));
            }
            (IpNet::V4(_), _, Some(sid), _) => {
                let message = format!(
                    "a path to {prefix} cannot be a `path_id` alone: give `segments = [\"{sid}\", \"…\"]`, last a SID \
                     that decapsulates IPv4 (End.DT4, End.DT46 or End.DX4)"
                );
                return at("path_id", message);
            }
            _ => {}
        }
        if path.encap && path.segments.is_none() {
            return at("encap", format!("a path to {prefix} has `encap` only beside `segments`: remove it"));
        }
        if path.segments.as_ref().is_some_and(|list| !(1..=MAX_SEGMENTS).contains(&list.len())) {
            return at("segments", format!("a path to {prefix} must have 1 to {MAX_SEGMENTS} segments"));
        }
        if path.mtu.is_some_and(|mtu| !MTU.contains(&mtu)) {
            return at(
                "mtu",
                format!("the mtu of a path to {prefix} must be between {} and {}", MTU.start(), MTU.end()),
            );
        }
        self.check_words(item, prefix, path)?;
        self.check_addresses(item, prefix, path)?;
        if path.plain && path.mtu.is_some() {
            let message = format!("the plain path to {prefix} has the mtu of the host's own route: remove `mtu`");
            return at("mtu", message);
        }
        self.check_first_segment(item, prefix, path)
    }

    /// Checks names, and quantities that may be absent but not zero.
    fn check_words(&self, item: &Item<'_>, prefix: IpNet, path: &StaticPath) -> Result<(), ParseError> {
        let at = |key: &str, message: String| Err(self.document.error_at(item, key, message));
        if path.dev.as_deref().is_some_and(|dev| !is_interface_name(dev)) {
            let message = format!(
                "the name of an interface has 1 to {MAX_INTERFACE} bytes, and no space, `/` or `:`; `ip link` lists them"
            );
            return at("dev", message);
        }
        if path.name.as_deref().is_some_and(|name| !is_path_name(name)) {
            return at("name", format!("the name of a path has 1 to {MAX_NAME} bytes, and no control characters"));
        }
        let has = |key: &str| item.get_ref().get(key).is_some();
        for (key, is_zero) in [("rate", path.rate == Rate::default()), ("rtt", path.rtt == Span::ZERO)] {
            if is_zero && has(key) {
                let message =
                    format!("the {key} of a path to {prefix} must be above zero; remove it if it is not known");
                return at(key, message);
            }
        }
        Ok(())
    }

    /// Checks that segments and next hops are addresses of one machine.
    fn check_addresses(&self, item: &Item<'_>, prefix: IpNet, path: &StaticPath) -> Result<(), ParseError> {
        let what = format!("is no address of a machine, and leads nowhere; correct the path to {prefix}");
        for (index, segment) in path.segments.iter().flatten().enumerate() {
            if !is_unicast((*segment).into()) {
                return Err(self.document.error_in(item, "segments", index, format!("{segment} {what}")));
            }
        }
        let via = path.via.and_then(|via| if let Via::Address(via) = via { Some(via) } else { None });
        for (key, address) in [("path_id", path.path_id.map(IpAddr::from)), ("via", via)] {
            if let Some(address) = address.filter(|address| !is_unicast(*address)) {
                return Err(self.document.error_at(item, key, format!("{address} {what}")));
            }
        }
        Ok(())
    }

    /// Checks that no path `before` it has the same route, or its name.
    fn check_alone(
        &self,
        item: &Item<'_>,
        prefix: IpNet,
        path: &StaticPath,
        before: &[&StaticPath],
    ) -> Result<(), ParseError> {
        let way = |path: &StaticPath| (path.segments.clone(), path.encap, path.path_id, path.via, path.dev.clone());
        if before.iter().any(|other| way(other) == way(path)) {
            let kinds = ["segments", "path_id", "via", "plain"];
            let key = kinds.into_iter().find(|key| item.get_ref().get(key).is_some()).unwrap_or_default();
            let message = format!("{prefix} has this path twice: both lead the same way");
            return Err(self.document.error_at(item, key, message));
        }
        if let Some(name) = &path.name
            && before.iter().any(|other| other.name.as_ref() == Some(name))
        {
            let message = format!("{prefix} has two paths of the name `{name}`");
            return Err(self.document.error_at(item, "name", message));
        }
        Ok(())
    }

    /// The narrowest destination that has a first segment must be without paths: all share the routing tables, in which the packet
    /// with its new header is looked up, too. What has no paths is thrown back to the host's own routes.
    fn check_first_segment(&self, item: &Item<'_>, prefix: IpNet, path: &StaticPath) -> Result<(), ParseError> {
        let first = path.segments.as_ref().and_then(|list| list.first().copied()).or(path.path_id);
        let Some(first) = first else { return Ok(()) };
        let around = self.destinations.iter().filter(|other| other.prefix.contains(&IpAddr::from(first)));
        let narrowest = around.max_by_key(|other| other.prefix.prefix_len());
        let Some(StaticDestination { prefix: other, .. }) = narrowest.filter(|other| !other.paths.is_empty()) else {
            return Ok(());
        };
        let key = if path.segments.is_some() { "segments" } else { "path_id" };
        let message = format!(
            "the segment {first} of a path to {prefix} lies in {other}, whose route would catch it; give that a narrower \
             prefix, or leave the segment alone: a destination {first}/128 with path = []"
        );
        Err(self.document.error_in(item, key, 0, message))
    }
}

fn is_mapped(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(net) if net.prefix_len() >= 96 && net.network().to_ipv4_mapped().is_some())
}

/// Whether the kernel could give an interface this name (`dev_valid_name` in net/core/dev.c).
pub fn is_interface_name(name: &str) -> bool {
    (1..=MAX_INTERFACE).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/' || c == ':')
}

fn is_path_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control) && !name.trim().is_empty()
}

/// Whether an address can be that of one other machine.
fn is_unicast(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_multicast() || address.is_loopback();
    !special && !matches!(address, IpAddr::V4(v4) if v4.is_broadcast())
}
