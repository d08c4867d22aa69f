//! Which source addresses belong to which path.
//!
//! A provider drops packets whose source address is another provider's. So a connection must begin on a path with an address
//! of that path, and later move only to paths that take this address.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use serde::Serialize;
use sidestep_linux::{
    bpf::host::{PathSources, SourcesByPath},
    netlink::{Family, InterfaceAddress, Netlink, NextHop},
};

use super::{Host, HostConfig};
use crate::{
    AgentError,
    paths::{DestinationPaths, HostPath, PathRoute, StaticDestination},
};

impl Host {
    /// Tells the program which sources the paths of these sets take.
    pub(super) async fn name_sources(
        &mut self,
        sets: &[DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<(), AgentError> {
        let addresses = self.netlink.addresses().await?;
        let mut by_path = SourcesByPath::new();
        // Destinations that are left alone have none.
        for set in sets.iter().filter(|set| !set.paths.is_empty()) {
            let default = self.netlink.source_towards(some_address(set.destination)).await?;
            for (path, sources) in set.paths.iter().zip(sources_of(set, hops, &addresses, default)) {
                if !path.sources.is_empty() && sources.address.is_none() {
                    tracing::warn!(path = path.name, destination = %set.destination, "no address of this host is among its sources");
                }
                by_path.insert((set.destination, path.id), sources);
            }
        }
        Ok(self.program.name_sources(by_path)?)
    }
}

/// What is doubtful about the source addresses of a configuration's paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum DoubtfulSources {
    /// There are paths by next hops on several interfaces, of which one names no sources.
    Assumed {
        /// The destination.
        destination: IpNet,
    },
    /// A path names sources, and none of them is an address of this host.
    NotHere {
        /// The destination.
        destination: IpNet,
        /// The path.
        path: String,
    },
    /// A path leaves by an interface that has no address of the destination's family, and names no sources.
    None {
        /// The destination.
        destination: IpNet,
        /// The path.
        path: String,
        /// The interface.
        interface: String,
    },
}

impl fmt::Display for DoubtfulSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoubtfulSources::Assumed { destination } => {
                let all = if destination.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
                write!(
                    f,
                    "a path to {destination} names no `sources`: it is taken to let through the addresses of its interface, and \
                     no other provider's; `sources = [\"{all}\"]` says that it takes all"
                )
            }
            DoubtfulSources::NotHere { destination, path } => write!(
                f,
                "no address of this host is among the `sources` of the path {path} to {destination}: no new connection begins on \
                 it with an address that its provider lets through"
            ),
            DoubtfulSources::None { destination, path, interface } => write!(
                f,
                "the path {path} to {destination} names no `sources`, and its interface {interface} has no address: connections \
                 on it keep an address of another interface, which its provider may not let through"
            ),
        }
    }
}

/// What is doubtful about the source addresses of a configuration's paths, on this machine as it is now.
///
/// Needs no privilege, but a Tokio runtime.
pub async fn doubtful_sources(config: &HostConfig) -> Result<Vec<DoubtfulSources>, AgentError> {
    let netlink = Netlink::open()?;
    let names = netlink.interfaces().await?.into_iter().map(|interface| (interface.name, interface.index)).collect();
    Ok(doubts(config, &names, &netlink.addresses().await?))
}

fn doubts(
    config: &HostConfig,
    interfaces: &BTreeMap<String, u32>,
    addresses: &[InterfaceAddress],
) -> Vec<DoubtfulSources> {
    let assumed = config.assumed_sources().into_iter().map(|destination| DoubtfulSources::Assumed { destination });
    let mut found: Vec<_> = assumed.collect();
    for StaticDestination { prefix: destination, paths } in &config.destinations {
        let is_usable =
            |one: &&InterfaceAddress| Family::of(one.address) == Family::of(*destination) && !one.deprecated;
        for path in paths {
            let (destination, name) = (*destination, path.name.clone().unwrap_or_else(|| path.description()));
            let interface = path.dev.as_ref().and_then(|dev| Some((dev, *interfaces.get(dev)?)));
            let mut usable = addresses.iter().filter(is_usable);
            let is_named = |one: &InterfaceAddress| path.sources.iter().any(|net| net.contains(&one.address.addr()));
            let doubt = match interface {
                _ if !path.sources.is_empty() => {
                    (!usable.any(is_named)).then_some(DoubtfulSources::NotHere { destination, path: name })
                }
                // Of one that is absent nothing is known, and that is said elsewhere.
                None => None,
                Some((dev, index)) => (!usable.any(|one| one.interface == index)).then(|| DoubtfulSources::None {
                    destination,
                    path: name,
                    interface: dev.clone(),
                }),
            };
            found.extend(doubt);
        }
    }
    found
}

/// An address in a prefix; of a prefix that has nearly all, a global one.
fn some_address(prefix: IpNet) -> IpAddr {
    match prefix {
        IpNet::V4(net) if net.prefix_len() == 0 => [192, 0, 2, 1].into(),
        IpNet::V6(net) if net.prefix_len() < 4 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        // The first may be an anycast address of routers.
        net => net.hosts().nth(1).unwrap_or_else(|| net.addr()),
    }
}

/// The sources of the paths of a set, in their order. `default` is the address that the kernel chooses without the agent.
///
/// - A path that names its sources takes these; new connections on it get an address of the host among them.
/// - A path by a next hop on an interface with addresses takes these, and addresses that belong to no path; the kernel then
///   chooses the interface's. If the kernel's choice without the agent belongs to no such interface, the host has an address
///   of its own, which all paths take.
/// - Other paths take all addresses, and new connections keep the one that they would have without the agent.
fn sources_of(
    set: &DestinationPaths,
    hops: &BTreeMap<Ipv6Addr, NextHop>,
    addresses: &[InterfaceAddress],
    default: Option<IpAddr>,
) -> Vec<PathSources> {
    let family = Family::of(set.destination);
    let usable: Vec<_> =
        addresses.iter().filter(|one| Family::of(one.address) == family && !one.deprecated).copied().collect();
    let interface_of = |path: &HostPath| match path.route {
        PathRoute::Via(_, interface) | PathRoute::OnLink(interface) => Some(interface),
        _ => path.first_hop().and_then(|first| hops.get(&first)).map(|hop| hop.interface),
    };
    let by_next_hop = |path: &HostPath| matches!(path.route, PathRoute::Via(..) | PathRoute::OnLink(_));
    let providers: BTreeSet<_> = set.paths.iter().filter(|path| by_next_hop(path)).filter_map(interface_of).collect();
    let home = addresses.iter().find(|one| Some(one.address.addr()) == default).map(|one| one.interface);
    let is_providers = home.is_some_and(|home| providers.contains(&home));
    let sources = |path: &HostPath| {
        let interface = interface_of(path);
        if !path.sources.is_empty() {
            let mut own: Vec<_> =
                usable.iter().filter(|one| path.sources.iter().any(|net| net.contains(&one.address.addr()))).collect();
            own.sort_by_key(|one| Some(one.interface) != interface);
            let address = own.first().map(|one| one.address.addr());
            return PathSources { takes: path.sources.clone(), takes_unnamed: false, address };
        }
        let own: Vec<_> =
            usable.iter().filter(|one| Some(one.interface) == interface).map(|one| one.address.trunc()).collect();
        if by_next_hop(path) && is_providers && !own.is_empty() {
            return PathSources { takes: own, takes_unnamed: true, address: None };
        }
        // Elsewhere the kernel might choose another one.
        let address = default.filter(|_| interface.is_some() && interface != home && path.route != PathRoute::Default);
        PathSources { address, ..PathSources::default() }
    };
    set.paths.iter().map(sources).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_model::{Rate, Span};

    use super::*;

    fn path(interface: u32, sources: &[&str]) -> HostPath {
        HostPath {
            id: interface,
            slot: 0,
            name: String::new(),
            route: PathRoute::Via("fe80::1".parse().unwrap(), interface),
            capacity: Rate::default(),
            usage: Rate::default(),
            rtt: Span::default(),
            mtu: None,
            sources: sources.iter().map(|net| net.parse().unwrap()).collect(),
        }
    }

    fn address(interface: u32, address: &str) -> InterfaceAddress {
        InterfaceAddress { interface, address: address.parse().unwrap(), deprecated: false }
    }

    fn sources(paths: Vec<HostPath>, addresses: &[InterfaceAddress], default: &str) -> Vec<PathSources> {
        let set = DestinationPaths { destination: "2001:db8:5::/48".parse().unwrap(), paths };
        sources_of(&set, &BTreeMap::new(), addresses, default.parse().ok())
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn a_warning_names_all_addresses_of_the_destinations_family() {
        let said = |net: &str| DoubtfulSources::Assumed { destination: net.parse().unwrap() }.to_string();
        assert!(said("10.9.0.0/24").contains("`sources = [\"0.0.0.0/0\"]`"), "{}", said("10.9.0.0/24"));
        assert!(said("2001:db8::/48").contains("`sources = [\"::/0\"]`"), "{}", said("2001:db8::/48"));
    }

    #[test]
    fn each_provider_takes_the_addresses_of_its_interface() {
        let addresses = [address(2, "2001:db8:a::5/64"), address(3, "2001:db8:b::5/64"), address(2, "192.0.2.5/24")];
        let found = sources(vec![path(2, &[]), path(3, &[])], &addresses, "2001:db8:a::5");
        let takes = |of: &str| PathSources { takes: vec![net(of)], takes_unnamed: true, address: None };
        assert_eq!(found, [takes("2001:db8:a::/64"), takes("2001:db8:b::/64")]);
    }

    #[test]
    fn an_address_of_the_hosts_own_is_taken_by_all_paths() {
        let addresses = [address(1, "2001:db8:c::5/128"), address(2, "fd03::1/64"), address(3, "fd03:0:1::1/64")];
        let found = sources(vec![path(2, &[]), path(3, &[])], &addresses, "2001:db8:c::5");
        let own = PathSources { address: "2001:db8:c::5".parse().ok(), ..PathSources::default() };
        assert_eq!(found, [own.clone(), own]);
    }

    #[test]
    fn a_path_takes_the_sources_that_it_names_and_no_others() {
        let addresses = [address(2, "2001:db8:a::5/64"), address(2, "2001:db8:b::5/64")];
        let paths = vec![path(2, &["2001:db8:a::/48"]), path(2, &["2001:db8:b::/48"]), path(2, &["2001:db8:c::/48"])];
        let found = sources(paths, &addresses, "2001:db8:a::5");
        let named = |of: &str, address: &str| PathSources {
            takes: vec![net(of)],
            takes_unnamed: false,
            address: address.parse().ok(),
        };
        assert_eq!(
            found,
            [
                named("2001:db8:a::/48", "2001:db8:a::5"),
                named("2001:db8:b::/48", "2001:db8:b::5"),
                named("2001:db8:c::/48", "none of the host's")
            ]
        );
    }

    #[test]
    fn doubtful_are_sources_that_are_not_here_and_paths_whose_interface_has_no_address() {
        let config = |paths: &str| {
            HostConfig::parse(&format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{paths}]\n")).unwrap()
        };
        let interfaces = BTreeMap::from([("a0".to_string(), 2), ("b0".to_string(), 3)]);
        let addresses = [address(2, "2001:db8:a::5/64"), address(2, "192.0.2.5/24"), address(3, "192.0.3.5/24")];
        let found = |paths: &str| {
            let doubts = doubts(&config(paths), &interfaces, &addresses);
            doubts.iter().map(ToString::to_string).map(|text| text[..40].to_string()).collect::<Vec<_>>()
        };
        let named = r#"{ name = "a", via = "fe80::1", dev = "a0", sources = ["2001:db8:a::/48"] }"#;
        let foreign = r#"{ name = "b", via = "fe80::1", dev = "b0", sources = ["2001:db8:b::/48"] }"#;
        let bare = r#"{ name = "c", via = "fe80::2", dev = "b0" }"#;
        assert_eq!(found(named), [""; 0]);
        assert_eq!(found(&format!("{named}, {foreign}")), ["no address of this host is among the `so"]);
        assert_eq!(
            found(&format!("{named}, {bare}")),
            ["a path to 2001:db8::/32 names no `source", "the path c to 2001:db8::/32 names no `so"]
        );
        assert_eq!(found(r#"{ path_id = "fd01:0:1:b:1:1::" }, { plain = true }"#), [""; 0]);
    }

    #[test]
    fn the_kernel_is_asked_about_an_address_inside_the_prefix() {
        for prefix in ["2001:db8::/32", "10.0.0.0/8", "10.9.8.7/32", "2001:db8::1/128", "10.0.0.0/31"] {
            assert!(net(prefix).contains(&some_address(net(prefix))), "{prefix}");
        }
        assert_eq!(some_address(net("::/0")), "2001:db8::1".parse::<IpAddr>().unwrap());
    }
}
