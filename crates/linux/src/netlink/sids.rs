//! What the kernel has of our binding SIDs.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use futures::TryStreamExt;
use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAttribute, RouteLwTunnelEncap, RouteMessage, RouteProtocol, RouteSeg6LocalTunnel, RouteType,
        Seg6LocalAction,
    },
};
use rtnetlink::RouteMessageBuilder;

use super::{LOOPBACK, MAIN_TABLE, PROTOCOL, Socket, read_route, refused};
use crate::error::Result;

/// Reads the binding SIDs (`End.B6.Encaps`) of ours that the kernel has in the main table.
///
/// The kernel passes over all other routes itself, so that a router with a full routing table can ask often.
#[derive(Debug)]
pub struct BindingSids {
    socket: Socket,
}

/// A binding SID as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundSid {
    /// Its segment list, first segment first.
    pub segments: Vec<Ipv6Addr>,
    /// Whether its route is a local one on the loopback interface, and so independent of every link.
    pub on_loopback: bool,
}

impl BindingSids {
    /// Opens a socket in the calling thread's namespace; needs a Tokio runtime.
    pub fn open() -> Result<Self> {
        Ok(BindingSids { socket: Socket::open(true)? })
    }

    /// Opens the socket again, in the calling thread's namespace, if it has failed.
    pub fn renew(&mut self) -> Result<()> {
        self.socket.renew()
    }

    /// All of them, by SID.
    pub async fn read(&self) -> Result<BTreeMap<Ipv6Addr, BoundSid>> {
        let mut dump = RouteMessageBuilder::<IpAddr>::new().table_id(MAIN_TABLE).build();
        dump.header.address_family = AddressFamily::Inet6;
        dump.header.protocol = RouteProtocol::from(PROTOCOL);
        // The kernel refuses a strict request that names anything beyond what it filters by.
        dump.header.scope = Default::default();
        dump.header.kind = RouteType::Unspec;
        let routes = self.socket.handle.route().get(dump).execute().try_collect::<Vec<_>>().await;
        let routes = self.socket.answered(routes).map_err(|error| refused("listing binding SIDs", error))?;
        let ours = routes.iter().filter(|route| route.header.protocol == RouteProtocol::from(PROTOCOL));
        Ok(ours.filter_map(read_binding).collect())
    }
}

/// The SID of a route, if it is a binding SID.
pub(super) fn read_binding(route: &RouteMessage) -> Option<(Ipv6Addr, BoundSid)> {
    let (MAIN_TABLE, destination) = read_route(route)? else { return None };
    let IpAddr::V6(sid) = destination.addr() else { return None };
    let has = |wanted: &dyn Fn(&RouteAttribute) -> bool| route.attributes.iter().any(wanted);
    let tunnel: Vec<&RouteSeg6LocalTunnel> = route.attributes.iter().flat_map(tunnel).collect();
    let is_binding =
        |one: &&RouteSeg6LocalTunnel| matches!(one, RouteSeg6LocalTunnel::Action(Seg6LocalAction::EndB6Encap));
    if destination.prefix_len() != 128 || !tunnel.iter().any(is_binding) {
        return None;
    }
    let segments = tunnel.iter().find_map(|one| match one {
        // In the header the last segment comes first.
        RouteSeg6LocalTunnel::Srh(srh) => Some(srh.segments.iter().rev().copied().collect()),
        _ => None,
    });
    let on_loopback = route.header.kind == RouteType::Local
        && has(&|attribute| matches!(attribute, RouteAttribute::Oif(index) if *index == LOOPBACK));
    Some((sid, BoundSid { segments: segments.unwrap_or_default(), on_loopback }))
}

/// The parts of a tunnel of SRv6 that ends here.
fn tunnel(attribute: &RouteAttribute) -> impl Iterator<Item = &RouteSeg6LocalTunnel> {
    let parts = match attribute {
        RouteAttribute::Encap(parts) => parts.as_slice(),
        _ => &[],
    };
    parts.iter().filter_map(|part| match part {
        RouteLwTunnelEncap::Seg6Local(tunnel) => Some(tunnel),
        _ => None,
    })
}
