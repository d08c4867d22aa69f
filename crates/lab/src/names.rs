//! Names of hosts and connections, from the addresses that the kernel knows them by.

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddrV6},
};

use sidestep_model::{NodeKind, Topology, srv6};

/// The names of hosts by their addresses.
#[derive(Debug, Default)]
pub struct Names {
    hosts: BTreeMap<Ipv6Addr, String>,
}

impl Names {
    /// The names in `topology`.
    pub fn new(topology: &Topology) -> Self {
        let mut names = Names::default();
        for node in topology.nodes().iter().filter(|node| node.kind == NodeKind::Host) {
            if let Some(prefix) = node.prefix {
                names.hosts.insert(srv6::host_address(prefix), node.name.clone());
            }
        }
        names
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
}
