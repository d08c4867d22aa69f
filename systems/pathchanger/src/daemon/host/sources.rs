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
use sidestep_hostd::{
    AgentError,
    paths::{DestinationPaths, HostPath, PathRoute, StaticDestination},
};
use sidestep_linux::netlink::{Family, Flow, Interface, InterfaceAddress, Netlink, NextHop};

use super::{HostConfig, paths_in_place::PathsInPlace};
use crate::daemon::program::{HostProgram, PathSources, SourcesByPath};

/// Most prefixes to a destination that are remembered after the host has lost them: all prefixes share 63 bits.
const MAX_LOST: usize = 8;

impl PathsInPlace {
    /// Passes to the program the sources that the paths of these sets take.
    pub(super) async fn name_sources(
        &mut self,
        netlink: &Netlink,
        program: &mut HostProgram,
        sets: &[DestinationPaths],
        hops: &BTreeMap<Ipv6Addr, NextHop>,
    ) -> Result<(), AgentError> {
        let by_path = of_sets(netlink, sets, hops, &self.sources).await?;
        for (set, path) in sets.iter().flat_map(|set| set.paths.iter().map(move |path| (set, path))) {
            let address = by_path.get(&(set.destination, path.id)).and_then(|sources| sources.address);
            if !path.sources.is_empty() && address.is_none() {
                tracing::warn!(path = path.name, destination = %set.destination, "no address of this host is among its sources");
            }
        }
        self.sources = by_path.clone();
        Ok(program.name_sources(by_path)?)
    }
}

/// The sources of the paths of these sets on this machine as it is now; of path 0, those that no path of a set takes.
///
/// Connections that have an address from `before` which the host has lost cannot go on by any path, and show nothing of one.
pub(super) async fn of_sets(
    netlink: &Netlink,
    sets: &[DestinationPaths],
    hops: &BTreeMap<Ipv6Addr, NextHop>,
    before: &SourcesByPath,
) -> Result<SourcesByPath, AgentError> {
    let interfaces = netlink.interfaces().await?;
    let (addresses, away) = present(netlink.addresses().await?, &interfaces, sets);
    let tunnels = tunnels(&interfaces);
    let mut by_path = SourcesByPath::new();
    for set in sets {
        let lost = lost(set.destination, before, &addresses);
        // Destinations that are left alone have none.
        if set.paths.is_empty() {
            let none = PathSources { takes: lost, ..PathSources::default() };
            by_path.insert((set.destination, 0), none);
            continue;
        }
        let here = Here::new(set, hops, &addresses, &tunnels);
        let mut default = netlink.source_towards(some_address(set.destination)).await?;
        if default.is_some_and(|default| here.is_foreign(default) || away.contains(&default)) {
            default = here.without_tunnels(netlink, some_address(set.destination)).await?;
        }
        let sources = here.sources(set, default);
        let is_taken = |net: &IpNet| sources.iter().flat_map(|path| &path.takes).any(|taken| taken.contains(net));
        // What no path takes is a name of its own: with it a connection is left alone.
        let mut takes = here.foreign();
        takes.extend(lost.into_iter().filter(|net| !is_taken(net)));
        by_path.insert((set.destination, 0), PathSources { takes, ..PathSources::default() });
        let of_paths = set.paths.iter().zip(sources);
        by_path.extend(of_paths.map(|(path, sources)| ((set.destination, path.id), sources)));
    }
    Ok(by_path)
}

/// The addresses with which packets can leave, and those of interfaces that carry nothing now and are no path's.
fn present(
    addresses: Vec<InterfaceAddress>,
    interfaces: &[Interface],
    sets: &[DestinationPaths],
) -> (Vec<InterfaceAddress>, BTreeSet<IpAddr>) {
    let paths = sets.iter().flat_map(|set| &set.paths);
    let used: BTreeSet<_> = paths.filter_map(HostPath::next_hop_interface).collect();
    let is_away = |one: &InterfaceAddress| {
        !used.contains(&one.interface)
            && interfaces.iter().any(|link| link.index == one.interface && !link.running && !link.loopback)
    };
    let (away, here): (Vec<_>, Vec<_>) = addresses.into_iter().partition(is_away);
    (here, away.iter().map(|one| one.address.addr()).collect())
}

/// Prefixes that paths took from their interfaces, and of which this host has no address any more, or none that carries packets.
fn lost(destination: IpNet, before: &SourcesByPath, addresses: &[InterfaceAddress]) -> Vec<IpNet> {
    let of_destination = before.range((destination, 0)..=(destination, u32::MAX));
    let of_interfaces = of_destination.filter(|((_, id), sources)| *id == 0 || sources.takes_unnamed);
    let nets: BTreeSet<_> = of_interfaces.flat_map(|(_, sources)| &sources.takes).map(IpNet::trunc).collect();
    let is_here = |net: &IpNet| addresses.iter().any(|one| net.contains(&one.address.addr()));
    nets.into_iter().filter(|net| !is_here(net)).take(MAX_LOST).collect()
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
                // Of one that is absent nothing is known, and that is reported elsewhere.
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

/// The interfaces whose packets have no header of Ethernet: tunnels, those of WireGuard and other VPNs, and PPP.
fn tunnels(interfaces: &[Interface]) -> BTreeSet<u32> {
    interfaces.iter().filter(|one| !one.ethernet && !one.loopback).map(|one| one.index).collect()
}

/// The addresses of a host, as the paths to one destination see them.
struct Here<'a> {
    hops: &'a BTreeMap<Ipv6Addr, NextHop>,
    /// Those of the destination's family.
    all: Vec<InterfaceAddress>,
    /// Of these, the ones with which a connection may begin: they are not deprecated.
    usable: Vec<InterfaceAddress>,
    /// The interfaces of paths by a next hop.
    providers: BTreeSet<u32>,
    /// Tunnels that are no path's interface: a VPN's address is not the host's own.
    foreign: BTreeSet<u32>,
}

impl<'a> Here<'a> {
    fn new(
        set: &DestinationPaths,
        hops: &'a BTreeMap<Ipv6Addr, NextHop>,
        addresses: &[InterfaceAddress],
        tunnels: &BTreeSet<u32>,
    ) -> Self {
        let family = Family::of(set.destination);
        let all: Vec<_> = addresses.iter().filter(|one| Family::of(one.address) == family).copied().collect();
        let usable = all.iter().filter(|one| !one.deprecated).copied().collect();
        let mut here = Here { hops, all, usable, providers: BTreeSet::new(), foreign: BTreeSet::new() };
        here.providers =
            set.paths.iter().filter(|path| by_next_hop(path)).filter_map(|path| here.interface_of(path)).collect();
        let used: BTreeSet<_> = set.paths.iter().filter_map(|path| here.interface_of(path)).collect();
        here.foreign = tunnels.difference(&used).copied().collect();
        here
    }

    fn interface_of(&self, path: &HostPath) -> Option<u32> {
        let towards = || path.first_hop().and_then(|first| self.hops.get(&first)).map(|hop| hop.interface);
        path.next_hop_interface().or_else(towards)
    }

    /// The interface that has an address.
    fn home(&self, address: IpAddr) -> Option<u32> {
        self.usable.iter().find(|one| one.address.addr() == address).map(|one| one.interface)
    }

    /// Whether an address is a tunnel's that no path uses.
    fn is_foreign(&self, address: IpAddr) -> bool {
        self.home(address).is_some_and(|home| self.foreign.contains(&home))
    }

    /// The addresses of tunnels that no path uses.
    fn foreign(&self) -> Vec<IpNet> {
        let of_tunnel = self.usable.iter().filter(|one| self.foreign.contains(&one.interface));
        of_tunnel.map(|one| one.address.addr().into()).collect()
    }

    /// The address that the kernel would choose if no tunnel led everything to itself.
    async fn without_tunnels(&self, netlink: &Netlink, destination: IpAddr) -> Result<Option<IpAddr>, AgentError> {
        for interface in &self.providers {
            let flow = Flow {
                destination,
                source: None,
                mark: 0,
                input: None,
                output: Some(*interface),
                user: Some(0),
                protocol: 0,
                ports: None,
            };
            let chosen = netlink.source_of(&flow).await?.filter(|address| !self.is_foreign(*address));
            if chosen.is_some() {
                return Ok(chosen);
            }
        }
        // Without a route the kernel chooses none: the interfaces' own are what there is.
        let own = self.usable.iter().find(|one| self.providers.contains(&one.interface));
        Ok(own.map(|one| one.address.addr()))
    }

    /// The sources of the paths of a set, in their order. `default` is the address that the kernel chooses without the agent.
    ///
    /// - A path that names its sources takes these; new connections on it get an address of the host among them.
    /// - A path by a next hop on an interface with addresses takes these, and addresses that belong to no path; the kernel then
    ///   chooses the interface's. If the kernel's choice without the agent is an address of no such interface, the host has one
    ///   of its own, which all paths take.
    /// - Other paths take all addresses, and new connections keep the one that they would have without the agent.
    /// - Addresses of tunnels that are no path's interface are taken by paths that name them, and by the host's own routes.
    fn sources(&self, set: &DestinationPaths, default: Option<IpAddr>) -> Vec<PathSources> {
        let home = default.and_then(|default| self.home(default));
        let is_providers = default.is_none() || home.is_some_and(|home| self.providers.contains(&home));
        set.paths.iter().map(|path| self.of(path, default, home, is_providers)).collect()
    }

    fn of(&self, path: &HostPath, default: Option<IpAddr>, home: Option<u32>, is_providers: bool) -> PathSources {
        let interface = self.interface_of(path);
        if !path.sources.is_empty() {
            // A file that names all addresses does not mean a VPN's.
            let names = |one: &&InterfaceAddress| {
                let mut nets = path.sources.iter().filter(|net| net.contains(&one.address.addr()));
                nets.any(|net| net.prefix_len() > 0 || !self.foreign.contains(&one.interface))
            };
            let rank = |one: &InterfaceAddress| (Some(one.interface) != interface, Some(one.address.addr()) != default);
            let address = self.usable.iter().filter(names).min_by_key(|one| rank(one)).map(|one| one.address.addr());
            return PathSources { takes: path.sources.clone(), takes_unnamed: false, address };
        }
        let of_interface = self.all.iter().filter(|one| Some(one.interface) == interface);
        let own: Vec<_> = of_interface.clone().map(|one| one.address.trunc()).collect();
        if by_next_hop(path) && is_providers && of_interface.clone().any(|one| !one.deprecated) {
            return PathSources { takes: own, takes_unnamed: true, address: None };
        }
        if path.route == PathRoute::Default {
            return PathSources::default();
        }
        // Elsewhere the kernel might choose another one.
        let address = default.filter(|_| interface.is_some() && interface != home);
        // All that is no tunnel's.
        let takes = default.filter(|_| !self.foreign().is_empty()).map(IpNet::from);
        PathSources { takes_unnamed: takes.is_some(), takes: takes.into_iter().collect(), address }
    }
}

/// Whether packets of a path leave by a next hop that the file names.
fn by_next_hop(path: &HostPath) -> bool {
    matches!(path.route, PathRoute::Via(..) | PathRoute::OnLink(_))
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Rate, Span};

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
        // Interfaces from 9 on are tunnels.
        Here::new(&set, &BTreeMap::new(), addresses, &(9..20).collect()).sources(&set, default.parse().ok())
    }

    #[test]
    fn addresses_of_interfaces_that_carry_nothing_are_away_unless_a_path_is_there() {
        let link = |index, running| Interface {
            index,
            name: format!("eth{index}"),
            loopback: index == 9,
            ethernet: index != 9,
            mtu: 1500,
            running,
            tx_bytes: 0,
        };
        let links = [link(1, true), link(2, false), link(3, false), link(9, false)];
        let all: Vec<_> = (1..=3).chain([9]).map(|index| address(index, &format!("2001:db8:{index}::5/64"))).collect();
        let sets = [DestinationPaths { destination: net("::/0"), paths: vec![path(1, &[]), path(3, &[])] }];
        let (here, away) = present(all, &links, &sets);
        assert_eq!(here.iter().map(|one| one.interface).collect::<Vec<_>>(), [1, 3, 9]);
        assert_eq!(away, BTreeSet::from(["2001:db8:2::5".parse().unwrap()]));
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
        // The route by which the kernel would choose is gone.
        assert_eq!(sources(vec![path(3, &[])], &addresses, "no route"), [takes("2001:db8:b::/64")]);
    }

    #[test]
    fn an_address_of_the_hosts_own_is_taken_by_all_paths() {
        let addresses = [address(1, "2001:db8:c::5/128"), address(2, "fd03::1/64"), address(3, "fd03:0:1::1/64")];
        let found = sources(vec![path(2, &[]), path(3, &[])], &addresses, "2001:db8:c::5");
        let own = PathSources { address: "2001:db8:c::5".parse().ok(), ..PathSources::default() };
        assert_eq!(found, [own.clone(), own]);
    }

    #[test]
    fn an_address_of_a_tunnel_is_a_paths_only_where_the_path_leaves_by_it_or_names_it() {
        let addresses =
            [address(9, "2001:db8:77::1/64"), address(2, "2001:db8:a::5/64"), address(3, "2001:db8:b::5/64")];
        let set = |paths| DestinationPaths { destination: net("2001:db8:5::/48"), paths };
        let hops = BTreeMap::new();
        let two = set(vec![path(2, &["::/0"]), path(3, &["2001:db8:77::/48"])]);
        let here = Here::new(&two, &hops, &addresses, &[9].into());
        assert!(
            here.is_foreign("2001:db8:77::1".parse().unwrap()) && !here.is_foreign("2001:db8:a::5".parse().unwrap())
        );
        assert_eq!(here.foreign(), [net("2001:db8:77::1/128")]);
        let given: Vec<_> = here.sources(&two, None).into_iter().map(|one| one.address).collect();
        assert_eq!(given, ["2001:db8:a::5".parse().ok(), "2001:db8:77::1".parse().ok()]);
        let by_tunnel = set(vec![path(2, &[]), path(9, &[])]);
        assert_eq!(Here::new(&by_tunnel, &hops, &addresses, &[9].into()).foreign(), []);
        // Beside an address of the host's own, a tunnel's is taken by none.
        let addresses = [&addresses[..], &[address(1, "2001:db8:c::5/128")]].concat();
        let found = sources(vec![path(2, &[])], &addresses, "2001:db8:c::5");
        let own = "2001:db8:c::5";
        assert_eq!(
            found,
            [PathSources { takes: vec![net("2001:db8:c::5/128")], takes_unnamed: true, address: own.parse().ok() }]
        );
    }

    #[test]
    fn no_path_takes_a_prefix_that_the_host_has_lost_with_its_interface() {
        let destination = net("2001:db8:5::/48");
        let of = |takes: &[&str], takes_unnamed| PathSources {
            takes: takes.iter().map(|one| net(one)).collect(),
            takes_unnamed,
            address: None,
        };
        let before = SourcesByPath::from([
            ((destination, 0), of(&["2001:db8:e::/64"], false)),
            ((destination, 1), of(&["2001:db8:a::/64"], true)),
            ((destination, 2), of(&["2001:db8:b::/64"], true)),
            // Of what the file names the owner decides.
            ((destination, 3), of(&["2001:db8:c::/64"], false)),
            ((net("2001:db8:6::/48"), 1), of(&["2001:db8:d::/64"], true)),
        ]);
        let now = [address(3, "2001:db8:b::5/64")];
        assert_eq!(lost(destination, &before, &now), [net("2001:db8:a::/64"), net("2001:db8:e::/64")]);
        // It has moved to another interface.
        let now = [address(1, "2001:db8:a::5/128"), address(3, "2001:db8:b::5/64")];
        assert_eq!(lost(destination, &before, &now), [net("2001:db8:e::/64")]);
    }

    #[test]
    fn a_deprecated_address_is_still_its_paths_and_begins_nothing() {
        let old = InterfaceAddress { deprecated: true, ..address(2, "2001:db8:1::5/64") };
        let addresses = [address(2, "2001:db8:a::5/64"), old, address(3, "2001:db8:b::5/64")];
        let found = sources(vec![path(2, &[]), path(3, &[])], &addresses, "2001:db8:a::5");
        assert_eq!(found[0].takes, [net("2001:db8:a::/64"), net("2001:db8:1::/64")]);
        let named = sources(vec![path(2, &["2001:db8:1::/64"])], &addresses, "2001:db8:a::5");
        assert_eq!(named[0].address, None);
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
