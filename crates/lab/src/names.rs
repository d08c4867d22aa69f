//! Names of hosts and connections, from the addresses that the kernel knows them by.

use std::net::{Ipv6Addr, SocketAddrV6};

use ipnet::Ipv6Net;
use sidestep_net::{NodeKind, Topology, srv6};

/// The names of hosts by the prefixes of their addresses.
#[derive(Debug, Default)]
pub struct Names {
    /// The longest prefixes first.
    hosts: Vec<(Ipv6Net, String)>,
}

impl Names {
    /// The names in `topology`.
    pub fn new(topology: &Topology) -> Self {
        let hosts = topology.nodes().iter().filter(|node| node.kind == NodeKind::Host);
        let mut hosts: Vec<_> = hosts.filter_map(|node| Some((node.prefix?, node.name.clone()))).collect();
        hosts.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        Names { hosts }
    }

    /// The host with this address.
    pub fn host(&self, address: Ipv6Addr) -> Option<&str> {
        self.find(address).map(|(_, host)| host)
    }

    /// `c1:40112-s1:7000`: the sending end first.
    ///
    /// Of a host's further addresses, which subflows of MPTCP have, the number is given as well: `c1#2:40113-s1:7000`.
    pub fn connection(&self, local: SocketAddrV6, remote: SocketAddrV6) -> String {
        let end = |end: SocketAddrV6| match self.find(*end.ip()) {
            Some((1, host)) => format!("{host}:{}", end.port()),
            Some((number, host)) => format!("{host}#{number}:{}", end.port()),
            None => end.to_string(),
        };
        format!("{}-{}", end(local), end(remote))
    }

    /// The host with this address, and which of its addresses that is, from 1.
    fn find(&self, address: Ipv6Addr) -> Option<(u128, &str)> {
        let (prefix, host) = self.hosts.iter().find(|(prefix, _)| prefix.contains(&address))?;
        let number = address.to_bits().checked_sub(srv6::host_address(*prefix).to_bits())?;
        Some((number.checked_add(1)?, host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_a_host_has_the_host_s_name() {
        let prefix = |text: &str| text.parse::<Ipv6Net>().unwrap();
        let hosts = [("fd02:0:1::/64", "c"), ("fd02:0:2::/64", "s"), ("fd02:0:2:0:1::/80", "inner")];
        let mut names = Names { hosts: hosts.map(|(net, name)| (prefix(net), name.to_owned())).into() };
        names.hosts.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        let end = |address: &str, port| SocketAddrV6::new(address.parse().unwrap(), port, 0, 0);
        let connection = |from, to| names.connection(end(from, 40_112), end(to, 7_000));
        assert_eq!(connection("fd02:0:1::1", "fd02:0:2::1"), "c:40112-s:7000");
        assert_eq!(connection("fd02:0:1::2", "fd02:0:2::3"), "c#2:40112-s#3:7000");
        assert_eq!(connection("fd02:0:1::1", "fd02:0:2:0:1::1"), "c:40112-inner:7000");
        assert_eq!(connection("fd02:0:9::1", "fd02:0:1::"), "[fd02:0:9::1]:40112-[fd02:0:1::]:7000");
        assert_eq!(names.host("fd02:0:1::2".parse().unwrap()), Some("c"));
    }
}
