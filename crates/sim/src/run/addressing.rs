//! By what routers tell flows from one another: addresses, ports, and hashes of both.

use std::{collections::BTreeMap, net::Ipv6Addr};

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_flow_hash::{FlowKey, Symmetry, hash};
use sidestep_net::{Node, NodeId, Topology, srv6};
use sidestep_proto::mptcp::HostPorts;

use crate::system::Setup;

/// TCP's number among IP's protocols.
const TCP: u8 = 6;

/// The addresses of nodes, the ports that hosts have given, and from where hashes begin.
pub(super) struct Addressing {
    /// By node: the address that flows from there have.
    addresses: Vec<Ipv6Addr>,
    /// From which routers' hashes begin.
    hash_seed: u32,
    /// The source ports that hosts have given to subflows of MPTCP.
    ports: BTreeMap<NodeId, HostPorts>,
    random: Pcg32,
}

impl Addressing {
    /// Nothing is given yet; `chance` is the run's.
    pub(super) fn new(topology: &Topology, chance: u64) -> Self {
        let address = |node: &Node| node.prefix.map_or(Ipv6Addr::UNSPECIFIED, srv6::host_address);
        Addressing {
            addresses: topology.nodes().iter().map(address).collect(),
            hash_seed: (chance ^ (chance >> 32)) as u32,
            ports: BTreeMap::new(),
            random: Pcg32::new(chance, u64::MAX / 2),
        }
    }

    /// From which routers' hashes begin.
    pub(super) fn hash_seed(&self) -> u32 {
        self.hash_seed
    }

    /// What routers hash of a connection between two hosts.
    pub(super) fn key(&self, (from, to): (NodeId, NodeId), ports: (u16, u16), protocol: u8) -> FlowKey {
        let address = |node: NodeId| self.addresses.get(node.index()).copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        FlowKey {
            source: address(from),
            destination: address(to),
            source_port: ports.0,
            destination_port: ports.1,
            protocol,
            flow_label: 0,
        }
    }

    /// The hash by which routers choose for a flow, and for what comes back.
    pub(super) fn hashes(&self, key: &FlowKey) -> (u32, u32) {
        let directed = |key: &FlowKey| hash(key, self.hash_seed, Symmetry::Directed);
        (directed(key), directed(&key.reversed()))
    }

    /// The hash by which edges choose for a flow, the same in both directions.
    pub(super) fn edge_hash(&self, key: &FlowKey) -> u32 {
        hash(key, self.hash_seed, Symmetry::Symmetric).max(1)
    }

    /// What routers hash of each flow of a connection, and the ports that it takes from its host. Subflows of MPTCP have the
    /// source ports that their host draws; where it has too few left there are fewer subflows.
    pub(super) fn take_keys(
        &mut self,
        system: &Setup,
        ends: (NodeId, NodeId),
        ports: (u16, u16),
        subflows: usize,
    ) -> (Vec<FlowKey>, Vec<u16>) {
        let key = self.key(ends, ports, TCP);
        let Some(settings) = system.subflows() else { return (vec![key], Vec::new()) };
        let host = self.ports.entry(ends.0).or_default();
        let random = &mut self.random;
        let drawn = host.take(settings.source_ports, subflows, (ends.1, ports.1), &mut || random.next_u32());
        let keys: Vec<FlowKey> = drawn.iter().map(|port| FlowKey { source_port: *port, ..key }).collect();
        (if keys.is_empty() { vec![key] } else { keys }, drawn)
    }

    /// The ports that a connection took from a host are free again.
    pub(super) fn release(&mut self, host: NodeId, taken: &[u16]) {
        if let Some(host) = self.ports.get_mut(&host) {
            taken.iter().for_each(|port| host.release(*port));
        }
    }
}
