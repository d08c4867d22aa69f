//! The source addresses that paths take (map `sidestep_addrs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags};
use sidestep_linux::{
    Result,
    bpf::{failed, keys, map},
};
use zerocopy::IntoBytes;

use super::{HostPrefix, HostProgram, hash::fnv1a};

/// The source addresses that a path takes, and the one that new connections on it get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSources {
    /// Prefixes whose addresses it takes; none: it takes all addresses. Of path 0, those that no path takes.
    pub takes: Vec<IpNet>,
    /// Whether it also takes all addresses that no path names.
    pub takes_unnamed: bool,
    /// The address to which a connection on it is bound unless the application has bound it; `None`: the kernel chooses.
    pub address: Option<IpAddr>,
}

/// The paths to a destination that take an address as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathsFrom {
    /// The address.
    pub address: IpAddr,
    /// The destination.
    pub destination: IpNet,
    /// The Path IDs.
    pub paths: Vec<u32>,
    /// How many paths the destination has.
    pub of: usize,
}

/// The sources of each path, by destination and Path ID.
pub type SourcesByPath = BTreeMap<(IpNet, u32), PathSources>;

/// Most prefixes that all paths together can name.
pub const MAX_SOURCES: usize = 63;

/// The bit of addresses that no path names (`HOST_UNNAMED`).
pub(super) const UNNAMED: u64 = 1 << MAX_SOURCES;

/// What the program needs to know of all paths' sources.
#[derive(Debug, Default)]
pub(super) struct Sources {
    by_path: SourcesByPath,
    prefixes: Vec<IpNet>,
}

/// A path's sources as the program has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawSources {
    /// The prefixes that it takes, as bits; zero: all addresses.
    pub(super) takes: u64,
    /// The address to bind to, as one of IPv6; zero: none.
    pub(super) address: [u8; 16],
}

impl HostProgram {
    /// Names the sources of paths; [`set_paths`](HostProgram::set_paths) then follows them.
    ///
    /// Prefixes beyond [`MAX_SOURCES`] are left out, with a warning: paths then take fewer addresses than they could.
    pub fn name_sources(&mut self, by_path: SourcesByPath) -> Result<()> {
        let distinct: BTreeSet<_> = by_path.values().flat_map(|path| &path.takes).map(IpNet::trunc).collect();
        if distinct.len() > MAX_SOURCES {
            tracing::warn!(prefixes = distinct.len(), most = MAX_SOURCES, "too many source prefixes");
        }
        let prefixes: Vec<_> = distinct.into_iter().take(MAX_SOURCES).collect();
        let sources = Sources { by_path, prefixes };
        let map = map(&self.object, "sidestep_addrs")?;
        let failed = |error: libbpf_rs::Error| failed("writing the source prefixes of paths", &error);
        let wanted: BTreeMap<_, _> =
            sources.prefixes.iter().map(|prefix| (HostPrefix::from(*prefix).as_bytes().to_vec(), *prefix)).collect();
        let stale: Vec<_> = keys(&map)?.into_iter().filter(|key| !wanted.contains_key(key)).collect();
        for (key, prefix) in &wanted {
            map.update(key, &sources.covering(*prefix).to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        for key in stale {
            map.delete(&key).map_err(failed)?;
        }
        self.sources = sources;
        Ok(())
    }
}

impl HostProgram {
    /// The paths to each destination of an address's family that take this address as a source, as the program in the kernel
    /// decides it, for each of these addresses.
    pub fn paths_from(&self, addresses: &[IpAddr]) -> Result<Vec<PathsFrom>> {
        let map = map(&self.object, "sidestep_addrs")?;
        let mut with_paths = Vec::new();
        for destination in self.destinations()? {
            let paths = self.takes(destination)?;
            if !paths.is_empty() {
                with_paths.push((destination, paths));
            }
        }
        let mut found = Vec::new();
        for address in addresses {
            let key = HostPrefix::from(IpNet::from(*address));
            let bits = map.lookup(key.as_bytes(), MapFlags::ANY);
            let bits = bits.map_err(|error| failed("reading the source prefixes of paths", &error))?;
            let bits = bits.and_then(|bits| Some(u64::from_ne_bytes(*bits.first_chunk()?))).unwrap_or(UNNAMED);
            let takes = |(id, takes): &(u32, u64)| (*takes == 0 || takes & bits != 0).then_some(*id);
            let of_family = |(net, _): &&(IpNet, _)| net.addr().is_ipv4() == address.is_ipv4();
            found.extend(with_paths.iter().filter(of_family).map(|(destination, paths)| PathsFrom {
                address: *address,
                destination: *destination,
                paths: paths.iter().filter_map(takes).collect(),
                of: paths.len(),
            }));
        }
        Ok(found)
    }
}

impl Sources {
    /// The bits of `prefix` and of all that contain it.
    fn covering(&self, prefix: IpNet) -> u64 {
        let covers = |(_, other): &(usize, &IpNet)| other.contains(&prefix);
        self.prefixes.iter().enumerate().filter(covers).fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// A number that changes whenever the sources of the paths to a destination do.
    pub(super) fn number(&self, destination: IpNet) -> u32 {
        let of_destination = self.by_path.range((destination, 0)..=(destination, u32::MAX));
        let bytes = of_destination.flat_map(|((_, id), sources)| {
            let nets = sources.takes.iter().flat_map(|net| octets(net.addr()).into_iter().chain([net.prefix_len()]));
            id.to_be_bytes().into_iter().chain([u8::from(sources.takes_unnamed)]).chain(nets.collect::<Vec<_>>())
        });
        fnv1a(bytes)
    }

    /// The sources of a path.
    pub(super) fn of(&self, destination: IpNet, id: u32) -> RawSources {
        let Some(path) = self.by_path.get(&(destination, id)) else { return RawSources::default() };
        let named = |net: &IpNet| self.prefixes.iter().position(|prefix| *prefix == net.trunc());
        let mut takes = path.takes.iter().filter_map(named).fold(0, |bits, bit| bits | 1 << bit);
        if path.takes_unnamed && takes != 0 {
            takes |= UNNAMED;
        }
        RawSources { takes, address: path.address.map_or([0; 16], octets) }
    }
}

/// An address as one of IPv6.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_bits_of_all_prefixes_that_contain_it() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let (wide, narrow, other) = (net("2001:db8::/32"), net("2001:db8:a::/48"), net("10.0.0.0/8"));
        let paths = |takes: Vec<IpNet>, takes_unnamed| PathSources { takes, takes_unnamed, address: None };
        let to = net("fd00::/16");
        let by_path = BTreeMap::from([
            ((to, 1), paths(vec![wide], false)),
            ((to, 2), paths(vec![narrow, other], true)),
            ((to, 3), PathSources { address: Some("10.1.2.3".parse().unwrap()), ..PathSources::default() }),
        ]);
        let sources = Sources { by_path, prefixes: vec![other, wide, narrow] };
        assert_eq!([wide, narrow, other].map(|net| sources.covering(net)), [0b10, 0b110, 0b1]);
        assert_eq!((sources.of(to, 1).takes, sources.of(to, 2).takes), (0b10, 0b101 | UNNAMED));
        let third = sources.of(to, 3);
        assert_eq!((third.takes, third.address[10..].to_vec()), (0, vec![255, 255, 10, 1, 2, 3]));
        assert_eq!(sources.of(to, 4), RawSources::default(), "nothing is known of it");
    }
}
