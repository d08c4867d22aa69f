//! How many paths connections from each address of this host may use: one that may use one only can never move.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use ipnet::IpNet;
use serde::Serialize;
use sidestep_hostd::{
    AgentError,
    paths::{DestinationPaths, resolve_quietly},
};
use sidestep_linux::netlink::{InterfaceAddress, Netlink, block_on};

use super::{HostConfig, interfaces, paths_in_place::PathsInPlace, sources};
use crate::daemon::program::{HostProgram, Names, PathSources, PathsFrom, SourcesByPath};

/// Most addresses that are looked at: a host may have thousands.
const MAX: usize = 64;

/// The paths to a destination that connections from one address of this host may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// The source address.
    pub address: IpAddr,
    /// The destination.
    pub destination: IpNet,
    /// The names of the paths that take the address.
    pub paths: Vec<String>,
    /// How many paths the destination has.
    pub of: usize,
}

impl Reach {
    /// Whether connections from the address can never move.
    pub fn is_confined(&self) -> bool {
        self.paths.len() < 2
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reach { address, destination, paths, of } = self;
        match (paths.as_slice(), *of) {
            ([], _) => {
                write!(f, "connections from {address} to {destination} are left alone: no path takes this address")
            }
            ([only], 1) => {
                write!(
                    f,
                    "connections from {address} to {destination} can never move: `{only}` is the only path there is"
                )
            }
            ([only], _) => write!(
                f,
                "connections from {address} to {destination} can never move: provider `{only}` alone accepts this address"
            ),
            (some, all) => {
                write!(f, "connections from {address} to {destination} may use {} of {all} paths", some.len())
            }
        }
    }
}

/// How many paths connections from each address would have by a configuration, on this machine as it is now.
///
/// Needs no privilege, but a Tokio runtime.
pub async fn reaches(config: &HostConfig) -> Result<Vec<Reach>, AgentError> {
    let netlink = Netlink::open()?;
    let addresses = netlink.addresses().await?;
    let interfaces = interfaces(&netlink, config).await?;
    let sets = resolve_quietly(&config.destinations, &interfaces, &config.places);
    let by_path = sources::of_sets(&netlink, &sets, &BTreeMap::new(), &BTreeMap::new()).await?;
    Ok(reaches_of(&sets, &by_path, &addresses))
}

/// How many paths connections from each address have by what the program knows; in the calling thread's namespace.
pub fn reaches_now(program: &HostProgram, names: &Names) -> Result<Vec<Reach>, AgentError> {
    reaches_by(program, &block_on(async |netlink| netlink.addresses().await)?, |destination, id| {
        names.get(&(destination, id)).cloned()
    })
}

fn reaches_by(
    program: &HostProgram,
    addresses: &[InterfaceAddress],
    name: impl Fn(IpNet, u32) -> Option<String>,
) -> Result<Vec<Reach>, AgentError> {
    let addresses: Vec<_> = usable(addresses).collect();
    let reach = |PathsFrom { address, destination, paths, of }: PathsFrom| {
        let name = |id: &u32| name(destination, *id).unwrap_or_else(|| format!("{id:08x}"));
        Reach { address, destination, paths: paths.iter().map(name).collect(), of }
    };
    Ok(program.paths_from(&addresses)?.into_iter().map(reach).collect())
}

fn reaches_of(sets: &[DestinationPaths], by_path: &SourcesByPath, addresses: &[InterfaceAddress]) -> Vec<Reach> {
    let is_named = |address: IpAddr| by_path.values().any(|path| path.takes.iter().any(|net| net.contains(&address)));
    let takes = |sources: Option<&PathSources>, address: IpAddr| {
        sources.is_none_or(|sources| {
            sources.takes.is_empty()
                || sources.takes.iter().any(|net| net.contains(&address))
                || sources.takes_unnamed && !is_named(address)
        })
    };
    let mut found = Vec::new();
    for address in usable(addresses) {
        let of_family = |set: &&DestinationPaths| set.destination.addr().is_ipv4() == address.is_ipv4();
        for set in sets.iter().filter(of_family).filter(|set| !set.paths.is_empty()) {
            let taking = set.paths.iter().filter(|path| takes(by_path.get(&(set.destination, path.id)), address));
            let paths = taking.map(|path| path.name.clone()).collect();
            found.push(Reach { address, destination: set.destination, paths, of: set.paths.len() });
        }
    }
    found
}

/// The addresses from which connections leave the link.
fn usable(addresses: &[InterfaceAddress]) -> impl Iterator<Item = IpAddr> {
    let leaves = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    addresses.iter().filter(|one| !one.deprecated).map(|one| one.address.addr()).filter(leaves).take(MAX)
}

impl PathsInPlace {
    /// Warns of addresses from which connections can never move, each time that these change.
    pub(super) async fn note_reach(&mut self, netlink: &Netlink, program: &HostProgram) -> Result<(), AgentError> {
        let addresses = netlink.addresses().await?;
        let name = |destination, id| Some(self.path(destination, id)?.name.clone());
        let reach = reaches_by(program, &addresses, name)?;
        for one in reach.iter().filter(|one| one.is_confined() && !self.reach.contains(one)) {
            tracing::warn!("{one}");
        }
        self.reach = reach;
        Ok(())
    }

    /// What the status shows of them.
    pub(super) fn confined(&self) -> String {
        match self.reach.iter().filter(|one| one.is_confined()).count() {
            0 => String::new(),
            n => format!("; connections from {n} of {} source addresses can never move", self.reach.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Rate, Span};

    use super::*;
    use sidestep_hostd::paths::{HostPath, PathRoute};

    fn path(id: u32, name: &str) -> HostPath {
        HostPath {
            id,
            slot: id,
            name: name.into(),
            route: PathRoute::Via("192.0.2.1".parse().unwrap(), id),
            capacity: Rate::default(),
            usage: Rate::default(),
            rtt: Span::ZERO,
            mtu: None,
            sources: Vec::new(),
        }
    }

    fn address(net: &str) -> InterfaceAddress {
        InterfaceAddress { interface: 2, address: net.parse().unwrap(), deprecated: false }
    }

    fn said(paths: Vec<HostPath>, takes: &[(u32, &str)], addresses: &[&str]) -> Vec<String> {
        let destination: IpNet = "0.0.0.0/0".parse().unwrap();
        let by_path = takes.iter().map(|(id, net)| {
            let takes = vec![net.parse().unwrap()];
            ((destination, *id), PathSources { takes, takes_unnamed: true, address: None })
        });
        let addresses: Vec<_> = addresses.iter().map(|net| address(net)).collect();
        let sets = [DestinationPaths { destination, paths }];
        reaches_of(&sets, &by_path.collect(), &addresses).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_address_of_one_provider_can_never_move_and_one_of_the_hosts_own_may() {
        let paths = || vec![path(1, "blue"), path(2, "red")];
        let takes = [(1, "198.51.100.0/24"), (2, "203.0.113.0/24")];
        let addresses = ["198.51.100.10/24", "192.0.2.77/32", "127.0.0.1/8", "169.254.3.4/16", "2001:db8::1/64"];
        assert_eq!(
            said(paths(), &takes, &addresses),
            [
                "connections from 198.51.100.10 to 0.0.0.0/0 can never move: provider `blue` alone accepts this address",
                "connections from 192.0.2.77 to 0.0.0.0/0 may use 2 of 2 paths",
            ]
        );
        assert_eq!(
            said(vec![path(1, "blue")], &[], &["192.0.2.77/32"]),
            ["connections from 192.0.2.77 to 0.0.0.0/0 can never move: `blue` is the only path there is"]
        );
    }
}
