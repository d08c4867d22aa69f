//! Names and addresses of nodes, and their topology as a file.

use std::{fs, path::Path};

use sidestep_net::{NodeId, Topology, srv6, topology_file};

use crate::error::LabError;

pub(crate) fn name_of(topology: &Topology, node: NodeId) -> String {
    topology.node(node).name.clone()
}

pub(crate) fn host_address(topology: &Topology, node: NodeId) -> std::net::Ipv6Addr {
    // Scenarios assign every host a prefix.
    topology.node(node).prefix.map_or(std::net::Ipv6Addr::UNSPECIFIED, srv6::host_address)
}

/// Writes the topology in the controller's format.
pub(crate) fn write_topology(topology: &Topology, path: &Path) -> Result<(), LabError> {
    fs::write(path, topology_file::print(topology)).map_err(LabError::file(path))
}
