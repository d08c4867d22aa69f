//! Names of hosts, connections and paths, from the addresses and marks that the kernel knows them by.

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddrV6},
};

use ipnet::Ipv6Net;
use sidestep_controller::{Controller, PairPaths};
use sidestep_model::{LinkId, NodeKind, Topology, scenario::PathKnobs, srv6};

use crate::error::LabError;

/// What people call what the kernel numbers.
#[derive(Debug, Default)]
pub struct Names {
    hosts: BTreeMap<Ipv6Addr, String>,
    paths: BTreeMap<(Ipv6Net, Ipv6Net), Vec<String>>,
}

impl Names {
    /// The names in `topology`, of paths computed under `knobs` as the lab's controller does.
    pub fn new(topology: &Topology, knobs: PathKnobs) -> Result<Self, LabError> {
        let mut names = Names::default();
        for node in topology.nodes().iter().filter(|node| node.kind == NodeKind::Host) {
            if let Some(prefix) = node.prefix {
                names.hosts.insert(srv6::host_address(prefix), node.name.clone());
            }
        }
        for pair in Controller::new(topology.clone(), knobs)?.sets() {
            let paths: Vec<_> = pair.paths.iter().map(|path| path_name(topology, path)).collect();
            for (source, destination) in both(&pair) {
                names.paths.insert((source, destination), paths.clone());
            }
        }
        Ok(names)
    }

    /// The host with this address.
    pub fn host(&self, address: Ipv6Addr) -> Option<&str> {
        self.hosts.get(&address).map(String::as_str)
    }

    /// `c1:40112-s1:7000`: the sending end first.
    pub fn connection(&self, local: SocketAddrV6, remote: SocketAddrV6) -> String {
        let end = |end: SocketAddrV6| match self.host(*end.ip()) {
            Some(host) => format!("{host}:{}", end.port()),
            None => end.to_string(),
        };
        format!("{}-{}", end(local), end(remote))
    }

    /// The path of slot `slot` from `local` to `remote`; `None` for slot zero, the default route.
    pub fn path(&self, local: Ipv6Addr, remote: Ipv6Addr, slot: u32) -> Option<&str> {
        let index = usize::try_from(slot.checked_sub(1)?).ok()?;
        let within = |net: &Ipv6Net, address: Ipv6Addr| net.contains(&address);
        let (_, paths) = self.paths.iter().find(|((from, to), _)| within(from, local) && within(to, remote))?;
        paths.get(index).map(String::as_str)
    }
}

fn both(pair: &PairPaths) -> impl Iterator<Item = (Ipv6Net, Ipv6Net)> + '_ {
    pair.sources.iter().flat_map(|source| pair.destinations.iter().map(|destination| (*source, *destination)))
}

/// The topology's name for the path where all of its named links are on it, else the controller's.
fn path_name(topology: &Topology, path: &sidestep_controller::PathInfo) -> String {
    let on_path = |link: &LinkId| path.links.contains(&topology.link(*link).name);
    let named = topology.paths().iter().find(|named| !named.links.is_empty() && named.links.iter().all(on_path));
    named.map_or_else(|| path.path.name.clone(), |named| named.name.clone())
}
