//! Which paths a connection may take, asked of the maps as the program asks them.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags};
use sidestep_linux::{
    Result,
    bpf::{failed, map},
};
use zerocopy::{FromBytes, IntoBytes};

use super::{HostPrefix, HostProgram, read_prefix, slots::HostPaths, sources::UNNAMED};

/// The paths to the destination of an address, and which of them take packets from a source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ways {
    /// The longest destination prefix that has the address.
    pub destination: IpNet,
    /// Its paths, in the order in which the program knows them; none: the prefix is left alone by name.
    pub paths: Vec<Way>,
}

/// A path, as one connection could take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The Path ID.
    pub id: u32,
    /// The slot of the mark that leads along it.
    pub slot: u32,
    /// Whether it takes packets from the source address.
    pub takes: bool,
    /// The address that new connections on it are bound to.
    pub address: Option<IpAddr>,
}

impl HostProgram {
    /// The paths to the destination of `remote`, and which of them take packets from `source`, of which all take one that is
    /// not known; `None` if no destination has the address.
    pub fn ways(&self, remote: IpAddr, source: Option<IpAddr>) -> Result<Option<Ways>> {
        self.ways_of(IpNet::from(remote.to_canonical()), source)
    }

    /// As [`ways`](Self::ways), of the longest destination that has all of a prefix: of one of the program's
    /// [destinations](Self::destinations) its own paths.
    pub fn ways_of(&self, prefix: IpNet, source: Option<IpAddr>) -> Result<Option<Ways>> {
        let look = |name, prefix: IpNet| {
            let read = map(&self.object, name)?.lookup(HostPrefix::from(prefix).as_bytes(), MapFlags::ANY);
            read.map_err(|error| failed(format!("looking {prefix} up in {name}"), &error))
        };
        let found = look("sidestep_dests", prefix)?;
        let Some(found) = found.and_then(|value| HostPaths::read_from_bytes(&value).ok()) else { return Ok(None) };
        let Some(destination) = read_prefix(found.key.as_bytes()) else { return Ok(None) };
        let bits = match source.filter(|_| found.restricted != 0) {
            None => None,
            Some(source) => {
                let named = look("sidestep_addrs", source.to_canonical().into())?;
                let bits = named.and_then(|value| Some(u64::from_ne_bytes(value.try_into().ok()?)));
                Some(bits.unwrap_or(UNNAMED))
            }
        };
        Ok(Some(Ways { destination, paths: found.ways(bits) }))
    }
}

impl HostPaths {
    /// The paths, and whether each takes an address of these bits.
    fn ways(&self, bits: Option<u64>) -> Vec<Way> {
        let of = self.path.iter().zip(self.slot).zip(self.sources.iter().zip(self.address));
        let way = |((path, slot), (takes, address)): ((&sidestep_policy::raw::Path, u8), (&u64, [u8; 16]))| Way {
            id: path.id,
            slot: slot.into(),
            takes: *takes == 0 || bits.is_none_or(|bits| takes & bits != 0),
            address: (address != [0; 16]).then(|| Ipv6Addr::from(address).to_canonical()),
        };
        of.take(self.n as usize).map(way).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sidestep_linux::testing::root_or_skip;
    use sidestep_policy::raw;

    use super::*;
    use crate::daemon::program::{PathSources, SlotPath};

    #[test]
    fn the_maps_show_which_paths_take_an_address() {
        if !root_or_skip("maps of the path changer") {
            return;
        }
        let mut program = HostProgram::load(None).unwrap();
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let takes = |of: &str, address: &str| PathSources {
            takes: vec![net(of)],
            takes_unnamed: false,
            address: address.parse().ok(),
        };
        let sources = [(1, takes("10.9.0.0/24", "10.9.0.1")), (2, takes("10.9.1.0/24", "none"))];
        let named = sources.map(|(id, sources)| ((net("10.2.0.0/16"), id), sources));
        program.name_sources(BTreeMap::from(named)).unwrap();
        let path = |id, slot| SlotPath { slot, path: raw::Path { id, ..raw::Path::default() } };
        program.set_paths(net("10.2.0.0/16"), &[path(1, 4), path(2, 7)]).unwrap();
        program.set_paths(net("10.2.3.0/24"), &[]).unwrap();
        program.set_paths(net("2001:db8::/32"), &[path(5, 1)]).unwrap();
        let ways = |to: &str, from: Option<&str>| program.ways(address(to), from.map(address)).unwrap();
        let two = |takes: [bool; 2]| Ways {
            destination: net("10.2.0.0/16"),
            paths: vec![
                Way { id: 1, slot: 4, takes: takes[0], address: Some(address("10.9.0.1")) },
                Way { id: 2, slot: 7, takes: takes[1], address: None },
            ],
        };
        assert_eq!(ways("10.2.0.1", Some("10.9.0.77")), Some(two([true, false])));
        assert_eq!(ways("::ffff:10.2.0.1", Some("::ffff:10.9.1.1")), Some(two([false, true])));
        assert_eq!(ways("10.2.0.1", Some("192.0.2.1")), Some(two([false, false])), "an address that none names");
        assert_eq!(ways("10.2.0.1", None), Some(two([true, true])), "an address that is not known yet");
        assert_eq!(ways("10.2.3.1", None), Some(Ways { destination: net("10.2.3.0/24"), paths: Vec::new() }));
        assert_eq!(ways("10.3.0.1", None), None);
        let wide = ways("2001:db8::1", Some("2001:db8:9::1")).unwrap();
        assert!(wide.paths[0].takes, "it names no sources");
    }

    #[test]
    fn a_path_takes_what_it_names_and_one_that_is_set_so_what_no_other_names() {
        if !root_or_skip("sources in a map") {
            return;
        }
        let mut program = HostProgram::load(None).unwrap();
        let (to, net) = ("10.2.0.0/16".parse().unwrap(), |text: &str| text.parse().unwrap());
        let of = |takes: &str, takes_unnamed| PathSources { takes: vec![net(takes)], takes_unnamed, address: None };
        let named = [
            ((to, 7), of("10.9.0.0/24", false)),
            ((to, 9), of("10.9.1.0/24", true)),
            ((to, 0), of("10.77.0.1/32", false)),
        ];
        program.name_sources(named.into()).unwrap();
        let path = |id, slot| SlotPath { slot, path: raw::Path { id, ..raw::Path::default() } };
        program.set_paths(to, &[path(7, 3), path(9, 1)]).unwrap();
        let by = |source: &str| {
            let ways = program.ways_of(to, Some(source.parse().unwrap())).unwrap().unwrap();
            ways.paths.iter().map(|way| way.takes).collect::<Vec<_>>()
        };
        assert_eq!(by("10.9.0.5"), [true, false]);
        assert_eq!(by("10.9.1.5"), [false, true]);
        assert_eq!(by("192.0.2.1"), [false, true], "no path names it");
        assert_eq!(by("10.77.0.1"), [false, false], "it has a name of its own");
    }
}
