//! Which sources belong to which provider: the prefixes of the file, and those that `source = "auto"` finds.
//!
//! Of an egress with `auto` these are:
//!
//! - the prefixes of its interface's addresses;
//! - the sources of a default route by its interface that is for these alone (`default from PREFIX`), as OpenWrt has it;
//! - the sources of a rule whose table has a default route by its interface;
//! - delegated prefixes. Clients of DHCPv6 route one to nowhere (`unreachable PREFIX`), as far as no link has a part of it, and
//!   do not show whose it is. It counts for the egress whose addresses have most in common with it, at least the 32 bits of
//!   a provider's allocation (RFC 6177 and the registries' policies), and more than those of any other egress.

use ipnet::IpNet;
use sidestep_linux::netlink::{Family, PROTOCOL};

use super::{EgressConfig, RouteControlConfig, ways::Network};

/// The least that a delegated prefix has in common with an address of its provider, in bits.
const ALLOCATION: u32 = 32;
/// Most prefixes of an egress.
const MAX: usize = 64;

/// The sources of each egress. Prefixes that two egresses would have count for none; of their addresses each has its own.
pub(super) fn of(config: &RouteControlConfig, network: &Network) -> Vec<Vec<IpNet>> {
    let egresses = &config.egresses;
    let found: Vec<Vec<IpNet>> = egresses
        .iter()
        .map(|egress| if egress.follows_sources() { found(config, network, egress) } else { Vec::new() })
        .collect();
    let meet = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
    let mut all: Vec<Vec<IpNet>> = Vec::new();
    for (number, egress) in egresses.iter().enumerate() {
        let others = || (0..egresses.len()).filter(|other| *other != number);
        let is_taken = |prefix: &IpNet| {
            others().filter_map(|other| Some((egresses.get(other)?, found.get(other)?))).any(|(other, auto)| {
                other.prefixes().any(|one| meet(&one, prefix)) || auto.iter().any(|one| meet(one, prefix))
            })
        };
        let mut mine: Vec<IpNet> = egress.prefixes().map(|prefix| prefix.trunc()).collect();
        for prefix in found.get(number).into_iter().flatten() {
            if !is_taken(prefix) {
                mine.push(*prefix);
                continue;
            }
            // Two home routers often give the same private subnet: then the address itself distinguishes them.
            let hosts = own(network, egress).filter(|address| prefix.contains(address)).map(|one| one.addr().into());
            mine.extend(hosts.filter(|host| !others().any(|other| has(network, egresses.get(other), *host))));
        }
        mine.sort();
        mine.dedup();
        let wider = |prefix: &IpNet| mine.iter().any(|other| other != prefix && other.contains(prefix));
        all.push(mine.iter().filter(|prefix| !wider(prefix)).take(MAX).copied().collect());
    }
    all
}

/// Prefixes that are delegated, and whose egress is not known.
pub(super) fn unclaimed(config: &RouteControlConfig, network: &Network) -> Vec<IpNet> {
    let all = of(config, network);
    let claimed = |prefix: &IpNet| all.iter().flatten().any(|one| one.contains(prefix) || prefix.contains(one));
    let mut left = network.uplinks.delegated.clone();
    left.retain(|prefix| !claimed(prefix));
    left
}

/// The addresses of an egress's interface.
fn own<'a>(network: &'a Network, egress: &EgressConfig) -> impl Iterator<Item = IpNet> + 'a {
    let index = network.link(egress).map(|link| link.index);
    network.addresses.iter().filter(move |one| Some(one.interface) == index).map(|one| one.address)
}

/// Whether another egress's interface has this address.
fn has(network: &Network, egress: Option<&EgressConfig>, host: IpNet) -> bool {
    egress.is_some_and(|egress| own(network, egress).any(|one| one.addr() == host.addr()))
}

/// What an egress's interface and its routes show.
fn found(config: &RouteControlConfig, network: &Network, egress: &EgressConfig) -> Vec<IpNet> {
    let Some(link) = network.link(egress) else { return Vec::new() };
    let defaults = || network.uplinks.defaults.iter().filter(|one| one.route.hop.interface == link.index);
    let leads = |rule: &&sidestep_linux::netlink::Rule| {
        rule.protocol != PROTOCOL
            && !rule.inverted
            && rule.mask == 0
            && defaults().any(|one| (one.table, one.route.family) == (rule.table, rule.family))
    };
    let ruled = network.rules.iter().filter(leads).filter_map(|rule| rule.source);
    let mut found: Vec<IpNet> = own(network, egress).map(|address| address.trunc()).collect();
    found.extend(defaults().filter_map(|one| one.source).chain(ruled).map(|prefix| prefix.trunc()));
    let known = |prefix: &IpNet| network.uplinks.defaults.iter().any(|one| one.source == Some(*prefix));
    let delegated = network.uplinks.delegated.iter().filter(|prefix| !known(prefix));
    found.extend(delegated.filter(|prefix| provider(config, network, **prefix) == Some(egress.name.as_str())));
    let families = config.families();
    found.retain(|prefix| prefix.prefix_len() > 0 && families.contains(&Family::of(*prefix)));
    found
}

/// The egress whose provider has delegated a prefix, as far as that is known.
fn provider<'a>(config: &'a RouteControlConfig, network: &Network, prefix: IpNet) -> Option<&'a str> {
    let alike = |egress: &EgressConfig| own(network, egress).map(|address| common(address, prefix)).max().unwrap_or(0);
    let mut ranked: Vec<(u32, &str)> = config.egresses.iter().map(|of| (alike(of), of.name.as_str())).collect();
    ranked.sort_by_key(|(bits, _)| std::cmp::Reverse(*bits));
    let (bits, name) = *ranked.first()?;
    let next = ranked.get(1).map_or(0, |(bits, _)| *bits);
    (bits >= ALLOCATION && bits > next).then_some(name)
}

/// The leading bits that two prefixes of IPv6 have in common.
fn common(one: IpNet, other: IpNet) -> u32 {
    match (one, other) {
        (IpNet::V6(one), IpNet::V6(other)) => (one.addr().to_bits() ^ other.network().to_bits()).leading_zeros(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use sidestep_linux::netlink::{DefaultRoute, Interface, InterfaceAddress, NextHop, Rule, Uplink, Uplinks};

    use super::*;

    fn config(sources: [&str; 2]) -> RouteControlConfig {
        let egress = |name: &str, source: &str| {
            format!("[[egress]]\nname = \"{name}\"\ndev = \"{name}\"\nvia = \"auto\"\nsource = {source}\n")
        };
        let head = "[route_control]\ndestinations = [\"0.0.0.0/0\", \"::/0\"]\n[[target]]\naddress = \"9.9.9.9\"\n";
        RouteControlConfig::parse(&format!("{head}{}{}", egress("a", sources[0]), egress("b", sources[1]))).unwrap()
    }

    /// Two interfaces, `a` and `b`, with these addresses, and prefixes that are routed to nowhere.
    fn network(addresses: &[(u32, &str)], delegated: &[&str]) -> Network {
        let interface = |(index, name): (u32, &str)| Interface {
            index,
            name: name.into(),
            loopback: false,
            ethernet: true,
            mtu: 1500,
            running: true,
            tx_bytes: 0,
        };
        let address = |(interface, address): &(u32, &str)| InterfaceAddress {
            interface: *interface,
            address: address.parse().unwrap(),
            deprecated: false,
        };
        let delegated = delegated.iter().map(|prefix| prefix.parse().unwrap()).collect();
        Network {
            interfaces: [(1, "a"), (2, "b")].map(interface).to_vec(),
            addresses: addresses.iter().map(address).collect(),
            uplinks: Uplinks { defaults: Vec::new(), delegated },
            rules: Vec::new(),
        }
    }

    fn texts(found: &[IpNet]) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    const AUTO: [&str; 2] = ["\"auto\"", "[\"auto\"]"];

    #[test]
    fn prefixes_of_the_interface_are_its_sources_and_a_subnet_that_both_have_counts_by_the_address() {
        let network = network(&[(1, "192.168.1.10/24"), (2, "192.168.1.20/24"), (1, "2600:1:0:7::5/64")], &[]);
        let found = of(&config(AUTO), &network);
        assert_eq!(texts(&found[0]), ["192.168.1.10/32", "2600:1:0:7::/64"]);
        assert_eq!(texts(&found[1]), ["192.168.1.20/32"]);
        // What the file names for one is not the other's, and two have not the same address.
        let found = of(&config(["\"auto\"", "[\"192.168.1.0/24\"]"]), &network);
        assert_eq!(texts(&found[1]), ["192.168.1.0/24"]);
        assert_eq!(texts(&found[0]), ["192.168.1.10/32", "2600:1:0:7::/64"]);
        let same = self::network(&[(1, "10.0.0.2/24"), (2, "10.0.0.2/24")], &[]);
        assert_eq!(of(&config(AUTO), &same), [Vec::new(), Vec::new()]);
    }

    #[test]
    fn a_delegated_prefix_is_of_the_provider_whose_allocation_it_is_in_or_of_none() {
        let addresses = [(1, "2600:1:0:7::5/64"), (2, "2a00:2:0:7::5/64")];
        let apart = network(&addresses, &["2600:1:aa00::/56", "2a00:2:bb00::/56", "2400:3::/48"]);
        let found = of(&config(AUTO), &apart);
        assert!(texts(&found[0]).contains(&"2600:1:aa00::/56".into()), "{found:?}");
        assert!(texts(&found[1]).contains(&"2a00:2:bb00::/56".into()), "{found:?}");
        assert_eq!(texts(&unclaimed(&config(AUTO), &apart)), ["2400:3::/48"]);
        // Two lines of one provider have as many bits in common with it.
        let alike = network(&[(1, "2600:1:0:7::5/64"), (2, "2600:1:0:8::5/64")], &["2600:1:aa00::/56"]);
        assert_eq!(texts(&unclaimed(&config(AUTO), &alike)), ["2600:1:aa00::/56"]);
        let named = config(["\"auto\"", "[\"auto\", \"2600:1:aa00::/56\"]"]);
        assert!(unclaimed(&named, &alike).is_empty());
    }

    #[test]
    fn a_route_or_a_rule_for_a_prefix_says_whose_it_is() {
        let mut network = network(&[(1, "2600:1:0:7::5/64"), (2, "2600:1:0:8::5/64")], &["2600:1:aa00::/56"]);
        let uplink = |table, interface, source: Option<&str>| Uplink {
            table,
            source: source.map(|source| source.parse().unwrap()),
            route: DefaultRoute {
                family: Family::V6,
                metric: 0,
                hop: NextHop { via: "fe80::1".parse().ok(), interface },
            },
        };
        network.uplinks.defaults = vec![uplink(254, 2, Some("2600:1:aa00::/56")), uplink(1001, 1, None)];
        network.rules = vec![Rule {
            family: Family::V6,
            priority: 5,
            table: 1001,
            mark: 0,
            mask: 0,
            inverted: false,
            input: None,
            source: Some("2600:1:bb00::/56".parse().unwrap()),
            is_special: false,
            protocol: 0,
        }];
        let found = of(&config(AUTO), &network);
        assert_eq!(texts(&found[0]), ["2600:1:0:7::/64", "2600:1:bb00::/56"]);
        assert_eq!(texts(&found[1]), ["2600:1:0:8::/64", "2600:1:aa00::/56"]);
        assert!(unclaimed(&config(AUTO), &network).is_empty());
    }
}
