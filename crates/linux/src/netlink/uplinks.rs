//! What leads out of a network: default routes of all tables, and prefixes that were delegated.

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    address::AddressFlags,
    route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType},
};

use super::{
    DefaultRoute, Family, InterfaceAddress, Netlink, PROTOCOL, Socket, addresses, read_address, read_route, refused,
    tables::read_next_hops,
};
use crate::error::Result;

/// A default route of any table, by one next hop; ours are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The table that it is in.
    pub table: u32,
    /// The sources that it is for; `None`: all.
    pub source: Option<IpNet>,
    /// Where it leads, and for which packets.
    pub route: DefaultRoute,
}

/// What the routing tables contain about the egresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uplinks {
    /// The default routes, of equal ones first those that the kernel takes first.
    pub defaults: Vec<Uplink>,
    /// Prefixes of IPv6 whose packets are refused or dropped, unless a more specific route has them: a program that requests
    /// a prefix from a provider (DHCPv6-PD) routes it so, as far as no link has it.
    pub delegated: Vec<IpNet>,
}

impl Netlink {
    /// The default routes of all tables, and the prefixes that seem to be delegated. Routes with our own protocol are left out.
    pub async fn uplinks(&self) -> Result<Uplinks> {
        let socket = Socket::open(true)?;
        let mut found = Uplinks::default();
        for family in Family::ALL {
            let mut query = RouteMessage::default();
            query.header.address_family = family.into();
            let mut routes = socket.handle.route().get(query).execute();
            loop {
                match socket.answered(routes.try_next().await) {
                    Ok(Some(route)) => found.note(&route),
                    Ok(None) => break,
                    // The kernel does not know the family.
                    Err(error)
                        if matches!(super::error_number(&error), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT)) =>
                    {
                        break;
                    }
                    Err(error) => return Err(refused("listing default routes", error)),
                }
            }
        }
        found.defaults.sort_by_key(|one| (one.table != super::MAIN_TABLE, one.table, one.route.metric));
        Ok(found)
    }

    /// The addresses of global scope that packets can be sent from: those that are still tried for duplicates are left out.
    pub async fn ready_addresses(&self) -> Result<Vec<InterfaceAddress>> {
        let all = self.socket.handle.address().get().execute().try_collect::<Vec<_>>().await;
        let all = self.socket.answered(all).map_err(|e| refused("listing addresses", e))?;
        let unready = AddressFlags::Tentative | AddressFlags::Dadfailed;
        let is_ready = |flags: AddressFlags| !flags.intersects(unready) || flags.contains(AddressFlags::Optimistic);
        Ok(all
            .iter()
            .filter(|one| is_ready(addresses::flags(one)))
            .filter_map(addresses::read_interface_address)
            .collect())
    }
}

impl Uplinks {
    fn note(&mut self, route: &RouteMessage) {
        let Some((table, destination)) = read_route(route) else { return };
        match route.header.kind {
            RouteType::Unicast if is_foreign_default(route) => {
                let family = Family::of(destination);
                let (metric, source) = (metric(route), read_source(route));
                let uplink = |hop| Uplink { table, source, route: DefaultRoute { family, metric, hop } };
                self.defaults.extend(read_next_hops(route).into_iter().map(uplink));
            }
            RouteType::Unreachable | RouteType::BlackHole | RouteType::Prohibit
                if is_delegation(destination) && !is_ours(route) =>
            {
                self.delegated.push(destination);
            }
            _ => {}
        }
    }
}

/// Whether a route is a default route to somewhere that none of our daemons has made, in whichever table.
pub(super) fn is_foreign_default(route: &RouteMessage) -> bool {
    route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast && !is_ours(route)
}

/// Whether a route may be that of a delegated prefix.
pub(super) fn is_of_delegation(route: &RouteMessage) -> bool {
    let discards = matches!(route.header.kind, RouteType::Unreachable | RouteType::BlackHole | RouteType::Prohibit);
    discards && !is_ours(route) && read_route(route).is_some_and(|(_, destination)| is_delegation(destination))
}

/// Providers delegate prefixes of global addresses, not longer than a subnet and not shorter than their own (RFC 6177).
fn is_delegation(prefix: IpNet) -> bool {
    let IpNet::V6(prefix) = prefix else { return false };
    let first = prefix.addr().segments().first().copied().unwrap_or_default();
    (20..=64).contains(&prefix.prefix_len()) && !(0xfc00..=0xffff).contains(&first) && first != 0
}

fn is_ours(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::from(PROTOCOL)
}

fn metric(route: &RouteMessage) -> u32 {
    let metric = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    metric.unwrap_or_default()
}

fn read_source(route: &RouteMessage) -> Option<IpNet> {
    let is_six = route.header.address_family == AddressFamily::Inet6;
    let length = Some(route.header.source_prefix_length).filter(|length| is_six && *length > 0)?;
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Source(address) => read_address(address),
        _ => None,
    });
    IpNet::new(address?, length).ok()
}

#[cfg(test)]
mod tests {
    use super::super::NextHop;
    use crate::{
        netlink,
        netns::NetNs,
        testing::{ip, root_or_skip},
    };

    #[test]
    fn default_routes_of_all_tables_and_delegated_prefixes_are_found_and_ours_are_not() {
        if !root_or_skip("reading routes") {
            return;
        }
        let net = NetNs::create().unwrap();
        for command in [
            "link add a0 type veth peer name a1",
            "link set a0 up",
            "link set a1 up",
            "addr add 10.9.0.1/24 dev a0",
            "route add default via 10.9.0.2 metric 200",
            "route add default via 10.9.0.3 table 1000",
            "route add default dev a0 table 8501 proto 83",
            "-6 addr add 2001:db8:90::1/64 dev a0 nodad",
            "-6 route add default from 2001:db8:100::/56 via fe80::1 dev a0",
            "-6 route add unreachable 2001:db8:100::/56",
            "-6 route add unreachable 2001:db8:200::/56 proto 83",
            "-6 route add unreachable fd00:1::/48",
        ] {
            ip(&net, command);
        }
        let (uplinks, index) = net
            .run(|| netlink::block_on(async |netlink| Ok((netlink.uplinks().await?, netlink.index_of("a0").await?))))
            .unwrap();
        let found: Vec<_> = uplinks.defaults.iter().map(|one| (one.table, one.route.metric, one.source)).collect();
        let sources = Some("2001:db8:100::/56".parse().unwrap());
        assert_eq!(found, [(254, 200, None), (254, 1024, sources), (1000, 0, None)]);
        assert_eq!(uplinks.defaults[2].route.hop, NextHop { via: "10.9.0.3".parse().ok(), interface: index });
        assert_eq!(uplinks.delegated, ["2001:db8:100::/56".parse().unwrap()]);
    }

    #[test]
    fn an_address_that_is_still_tried_for_duplicates_is_not_ready() {
        if !root_or_skip("reading addresses") {
            return;
        }
        let net = NetNs::create().unwrap();
        for command in [
            "link add a0 type veth peer name a1",
            "-6 addr add 2001:db8:90::1/64 dev a0 nodad",
            "-6 addr add 2001:db8:90::2/64 dev a0",
        ] {
            ip(&net, command);
        }
        let (ready, all) = net
            .run(|| {
                netlink::block_on(async |netlink| Ok((netlink.ready_addresses().await?, netlink.addresses().await?)))
            })
            .unwrap();
        assert_eq!((ready.len(), all.len()), (1, 2));
        assert_eq!(ready[0].address, "2001:db8:90::1/64".parse().unwrap());
    }
}
