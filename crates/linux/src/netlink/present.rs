//! Routes as the kernel has or reports them, and whether they are as one that is wanted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteLwTunnelEncap, RouteMessage, RouteMetric, RouteProtocol, RouteSeg6IpTunnel, RouteType,
    Seg6Mode,
};

use super::{
    LOOPBACK, Netlink, NextHop, PROTOCOL, Route, SidAction, Socket, Target, read_next_hop, read_route,
    sids::read_binding,
    tables::{dump, read_next_hops},
    tolerate,
};
use crate::error::Result;

/// A route that the kernel has, or reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentRoute {
    table: u32,
    destination: IpNet,
    message: RouteMessage,
}

impl PresentRoute {
    /// The route of a message; `None` if it is of no address family that we know.
    pub(super) fn read(message: RouteMessage) -> Option<Self> {
        let (table, destination) = read_route(&message)?;
        Some(PresentRoute { table, destination, message })
    }

    /// The table that it is in.
    pub fn table(&self) -> u32 {
        self.table
    }

    /// Where it leads to.
    pub fn destination(&self) -> IpNet {
        self.destination
    }

    /// Whether it carries [`PROTOCOL`]: a daemon of sidestep made it, or a program that borrows its number.
    pub fn is_ours(&self) -> bool {
        self.message.header.protocol == RouteProtocol::from(PROTOCOL)
    }

    /// Whether it is as [`Netlink::add_route`] makes this one, as far as the kernel reports it.
    pub fn is(&self, route: &Route) -> bool {
        (self.table, self.destination) == (route.table, route.destination)
            && self.is_ours()
            && self.leads_as(route)
            && self.carries_as_much_as(route)
    }

    fn leads_as(&self, route: &Route) -> bool {
        let message = &self.message;
        let (kind, hop, list) = (message.header.kind, read_next_hop(message), segment_list(message));
        // Of IPv4 by a neighbour with an IPv6 address only the interface is reported.
        let is_alike = |(wanted, there): (&NextHop, &NextHop)| {
            there.interface == wanted.interface && (there.via.is_none() || there.via == wanted.via)
        };
        let is_plain = !message.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::EncapType(_)));
        match &route.target {
            Target::Throw => kind == RouteType::Throw,
            Target::Unreachable => kind == RouteType::Unreachable,
            Target::Sid(action, interface) => self.is_sid(action, *interface),
            _ if kind != RouteType::Unicast => false,
            // The kernel writes each packet's own destination into the last place, which is there and empty.
            Target::Segments(segments, wanted) => {
                let whole = segments.iter().copied().chain([Ipv6Addr::UNSPECIFIED]).collect();
                hop == Some(*wanted) && list == Some((Seg6Mode::Inline, whole))
            }
            Target::Encaps(segments, wanted) => {
                hop.map(|hop| hop.interface) == Some(wanted.interface)
                    && list == Some((Seg6Mode::Encap, segments.clone()))
            }
            Target::OnLink(wanted) => hop == Some(*wanted) && is_plain,
            Target::Via(hops) => {
                let there = read_next_hops(message);
                is_plain && there.len() == hops.len() && hops.iter().zip(&there).all(is_alike)
            }
        }
    }

    /// Of other actions than binding SIDs the kernel's words are not read.
    fn is_sid(&self, action: &SidAction, interface: u32) -> bool {
        let SidAction::EndB6Encaps(segments) = action else { return true };
        let Some((sid, bound)) = read_binding(&self.message) else { return false };
        let at = read_next_hop(&self.message).map(|hop| hop.interface);
        IpAddr::V6(sid) == self.destination.addr()
            && bound.segments == *segments
            && bound.on_loopback == (interface == LOOPBACK)
            && at == Some(interface)
    }

    /// Whether packets may be as large. The kernel lowers the size itself with that of an interface.
    fn carries_as_much_as(&self, route: &Route) -> bool {
        let metrics = self.message.attributes.iter().filter_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics),
            _ => None,
        });
        let mtu = metrics.flatten().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        match (mtu, route.mtu) {
            (None, None) => true,
            (Some(mtu), Some(wanted)) => mtu <= wanted,
            _ => false,
        }
    }
}

impl Netlink {
    /// All routes that carry [`PROTOCOL`].
    pub async fn present_routes(&self) -> Result<Vec<PresentRoute>> {
        Ok(dump(&Socket::open(true)?, 0, PROTOCOL).await?.into_iter().filter_map(PresentRoute::read).collect())
    }

    /// Those of `routes` that the kernel does not have, or has otherwise.
    pub async fn missing_routes(&self, routes: &BTreeMap<(u32, IpNet), Route>) -> Result<Vec<(u32, IpNet)>> {
        let mut missing: BTreeSet<_> = routes.keys().copied().collect();
        for present in self.present_routes().await? {
            let key = (present.table, present.destination);
            if routes.get(&key).is_some_and(|route| present.is(route)) {
                missing.remove(&key);
            }
        }
        Ok(missing.into_iter().collect())
    }

    /// Removes exactly this route, and no other one to the same destination; one that is gone is fine.
    pub async fn delete_present(&self, route: &PresentRoute) -> Result<()> {
        let deleted = self.socket.handle.route().del(route.message.clone()).execute().await;
        tolerate(self.socket.answered(deleted), libc::ESRCH, || {
            format!("removing a route to {} from table {}", route.destination, route.table)
        })
    }
}

/// The segment list of a route, first segment first, and how packets get it.
fn segment_list(message: &RouteMessage) -> Option<(Seg6Mode, Vec<Ipv6Addr>)> {
    let parts = message.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::Encap(parts) => Some(parts),
        _ => None,
    });
    parts.flatten().find_map(|part| match part {
        RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Seg6(header)) => Some((header.mode, header.segments.clone())),
        _ => None,
    })
}
