//! What is in the routing tables now.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteNextHop, RouteProtocol, RouteType};

use super::{
    Family, MAIN_TABLE, Netlink, NextHop, PROTOCOL, Socket, error_number, read_gateway, read_next_hop, read_route,
    refused,
};
use crate::error::Result;

/// A route of the main table to a part of some prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerRoute {
    /// Where it leads to.
    pub destination: IpNet,
    /// Whether the destination is on the link itself, and behind no router.
    pub connected: bool,
    /// The index of its interface, where it has a single one.
    pub interface: Option<u32>,
}

/// A default route of the table `main`, by one next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Which packets it is for.
    pub family: Family,
    /// The kernel prefers the route with the lowest.
    pub metric: u32,
    /// Where it leads.
    pub hop: NextHop,
}

impl Netlink {
    /// The default routes of the table `main`, one for each next hop.
    pub async fn default_routes(&self) -> Result<Vec<DefaultRoute>> {
        let mut found = Vec::new();
        for route in dump(&Socket::open(true)?, MAIN_TABLE, 0).await?.iter().filter(|route| is_default(route)) {
            let Some((_, destination)) = read_route(route) else { continue };
            let metric = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Priority(metric) => Some(*metric),
                _ => None,
            });
            let (family, metric) = (Family::of(destination), metric.unwrap_or_default());
            found.extend(read_next_hops(route).into_iter().map(|hop| DefaultRoute { family, metric, hop }));
        }
        Ok(found)
    }

    /// All our routes: those that carry [`PROTOCOL`].
    pub async fn own_routes(&self) -> Result<Vec<(u32, IpNet)>> {
        Ok(dump(&Socket::open(true)?, 0, PROTOCOL).await?.iter().filter_map(read_route).collect())
    }

    /// A route in one of these tables that does not carry [`PROTOCOL`].
    pub async fn foreign_route(&self, tables: RangeInclusive<u32>) -> Result<Option<(u32, IpNet)>> {
        let socket = Socket::open(true)?;
        for table in tables {
            let routes = dump(&socket, table, 0).await?;
            let mut foreign = routes.iter().filter(|route| route.header.protocol != RouteProtocol::from(PROTOCOL));
            if let Some(place) = foreign.find_map(read_route) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The destinations of all routes of a table, of both families; a default route has none.
    pub async fn table_destinations(&self, table: u32) -> Result<BTreeSet<IpNet>> {
        let routes = dump(&Socket::open(true)?, table, 0).await?;
        let of =
            |route: &RouteMessage| read_route(route).filter(|(found, _)| *found == table).map(|(_, net)| net.trunc());
        Ok(routes.iter().filter_map(of).filter(|net| net.prefix_len() > 0).collect())
    }

    /// The routes of the main table that lead to a part of one of `prefixes`, which have no host bits.
    ///
    /// Routes to a prefix itself, or to more, are left out. The order is that of the destinations.
    pub async fn inner_routes(&self, prefixes: &[IpNet]) -> Result<Vec<InnerRoute>> {
        let mut found = BTreeMap::new();
        let prefixes: BTreeSet<_> = prefixes.iter().collect();
        let lengths: BTreeSet<_> = prefixes.iter().map(|prefix| prefix.prefix_len()).collect();
        for message in dump(&Socket::open(true)?, MAIN_TABLE, 0).await? {
            let Some((MAIN_TABLE, destination)) = read_route(&message) else { continue };
            let covering = |length: &u8| IpNet::new(destination.addr(), *length).map(|net| net.trunc());
            let mut shorter = lengths.range(..destination.prefix_len());
            let is_inner = shorter.any(|length| covering(length).is_ok_and(|net| prefixes.contains(&net)));
            if prefixes.contains(&destination) || !is_inner {
                continue;
            }
            let one_link = message.header.kind == RouteType::Unicast && !message.attributes.iter().any(is_gateway);
            let interface = read_next_hop(&message).map(|hop| hop.interface);
            let connected = one_link && interface.is_some();
            let route = found.entry(destination).or_insert(InnerRoute { destination, connected, interface });
            route.connected |= connected;
        }
        Ok(found.into_values().collect())
    }
}

/// The routes of both families, of one table and one protocol where these are not zero, by a strict socket.
///
/// The kernel selects them: on a router with all routes of the Internet this saves the reading of a million.
pub(super) async fn dump(socket: &Socket, table: u32, protocol: u8) -> Result<Vec<RouteMessage>> {
    let mut all = Vec::new();
    let mut result = Ok(());
    for family in Family::ALL {
        let mut query = RouteMessage::default();
        query.header.address_family = family.into();
        query.header.protocol = RouteProtocol::from(protocol);
        if table != 0 {
            query.attributes.push(RouteAttribute::Table(table));
        }
        let routes = socket.handle.route().get(query).execute().try_collect::<Vec<_>>().await;
        match socket.answered(routes) {
            Ok(routes) => all.extend(routes),
            // There is no such table yet, or the kernel does not know the family.
            Err(error)
                if matches!(error_number(&error), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT)) => {}
            Err(error) => result = Err(refused("listing routes", error)),
        }
    }
    result.map(|()| all)
}

/// Whether a route of the table `main` is a default route to somewhere.
pub(super) fn is_default(route: &RouteMessage) -> bool {
    let in_main = read_route(route).is_some_and(|(table, _)| table == MAIN_TABLE);
    in_main && route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
}

/// The next hops of a route: of a multipath route all, else the one.
pub(super) fn read_next_hops(route: &RouteMessage) -> Vec<NextHop> {
    let multipath = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    let one = |hop: &RouteNextHop| NextHop { via: read_gateway(&hop.attributes), interface: hop.interface_index };
    match multipath {
        Some(hops) => hops.iter().map(one).collect(),
        None => read_next_hop(route).into_iter().collect(),
    }
}

fn is_gateway(attribute: &RouteAttribute) -> bool {
    matches!(attribute, RouteAttribute::Gateway(_) | RouteAttribute::Via(_))
}
