//! Links, addresses, routes and rules of one network namespace, through rtnetlink.

mod addresses;
mod filters;
mod lookup;
mod policy;
mod present;
mod rules;
mod sids;
mod socket;
mod tables;
mod uplinks;
mod vrfs;
mod watch;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    link::{LinkAttribute, LinkMessage},
    neighbour::{NeighbourMessage, NeighbourState},
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop, RouteProtocol, RouteScope,
        RouteSeg6LocalTunnel, RouteType, RouteVia, Seg6LocalAction, Seg6LocalSrh, Seg6Mode,
    },
};
use rtnetlink::{LinkUnspec, LinkVeth, RouteMessageBuilder};

use self::socket::Socket;
pub use self::{
    addresses::InterfaceAddress,
    filters::Filter,
    lookup::{Answer, Flow, FoundRoute, table_name},
    policy::{Policy, RoutingRule, RuleLink, RuleVerdict},
    present::PresentRoute,
    rules::{LOCAL, MarkRule, RouteRule, Rule},
    sids::{BindingSids, BoundSid},
    tables::{DefaultRoute, InnerRoute},
    uplinks::{Uplink, Uplinks},
    vrfs::Vrf,
    watch::{LinkWatch, RoutingChange, RoutingWatch},
};
use crate::error::{LinuxError, Result};

/// The routing protocol number that all our routes carry, so that they are recognised (`ip route show proto 83`).
pub const PROTOCOL: u8 = 83;
/// The main routing table.
pub const MAIN_TABLE: u32 = 254;
/// The routing table with the addresses of this host (`RT_TABLE_LOCAL`), which the kernel itself fills.
pub const LOCAL_TABLE: u32 = 255;
/// The index of the loopback interface, in every namespace.
pub const LOOPBACK: u32 = 1;

/// How long to wait for memory before a route is tried again, in milliseconds.
///
/// SRv6 routes take per-CPU memory from a small reserve (`dst_cache_init` with `GFP_ATOMIC`), which many of them at
/// once exhaust; the kernel fills it up again in the background.
const MEMORY_PAUSES: [u64; 6] = [1, 4, 16, 64, 250, 1000];

/// What a kernel without SRv6 lacks.
const NEEDS_SEG6: &str = "it needs SRv6 (CONFIG_IPV6_SEG6_LWTUNNEL, Linux 4.14 or later)";

/// A netlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
}

/// A next hop: where a node sends packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The neighbour, which for IPv4 may have an IPv6 address; `None` when the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// The interface's index.
    pub interface: u32,
}

/// What a router does with a packet whose destination is one of its SIDs (RFC 8986, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidAction {
    /// `End`: go on to the next segment.
    End,
    /// `End.X`: go on to the next segment through this neighbour.
    EndX(Ipv6Addr),
    /// `End.DT6`: decapsulate and look the inner destination up in this table.
    EndDt6(u32),
    /// `End.B6.Encaps`: go on to the next segment inside an outer header with this list, first segment first.
    EndB6Encaps(Vec<Ipv6Addr>),
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To these next hops, several for ECMP.
    Via(Vec<NextHop>),
    /// To a next hop that is on the link whatever other routes contain: the kernel does not look for a route to it.
    OnLink(NextHop),
    /// To a next hop, with a segment routing header inserted: this list, first segment first, then the destination.
    Segments(Vec<Ipv6Addr>, NextHop),
    /// To a next hop, inside an IPv6 header with this list, first segment first (`H.Encaps`); the last one decapsulates.
    Encaps(Vec<Ipv6Addr>, NextHop),
    /// Nowhere: the lookup goes on with the next rule, as if this table had no route to the destination.
    Throw,
    /// Nowhere, and the sender of a packet is notified.
    Unreachable,
    /// Here, as the destination is a SID; the kernel wants the route to name some interface, and removes it with the
    /// interface, or when that goes down.
    ///
    /// On the [`LOOPBACK`] interface the route is of the type `local`: others there drop their packets.
    Sid(SidAction, u32),
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Routing table.
    pub table: u32,
    /// Destination prefix.
    pub destination: IpNet,
    /// Where it leads.
    pub target: Target,
    /// Largest packet in bytes, an inserted header included; `None`: the interface's.
    pub mtu: Option<u32>,
}

/// The two kinds of rules and routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// An interface as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Whether frames on it begin with an Ethernet header.
    pub ethernet: bool,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether it is up and has a carrier.
    pub running: bool,
    /// Bytes sent since it was made.
    pub tx_bytes: u64,
}

impl Family {
    /// Both.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The family of the addresses in `net`.
    pub fn of(net: IpNet) -> Self {
        if net.addr().is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace; needs a Tokio runtime.
    pub fn open() -> Result<Self> {
        Ok(Netlink { socket: Socket::open(false)? })
    }

    /// Opens the socket again, in the calling thread's namespace, if it has failed. All requests fail until then.
    pub fn renew(&mut self) -> Result<()> {
        self.socket.renew()
    }

    /// All interfaces.
    pub async fn interfaces(&self) -> Result<Vec<Interface>> {
        let links = self.socket.handle.link().get().execute().try_collect::<Vec<LinkMessage>>().await;
        let links = self.socket.answered(links).map_err(|e| refused("listing interfaces", e))?;
        Ok(links.iter().map(read_interface).collect())
    }

    /// The index of the interface called `name`.
    pub async fn index_of(&self, name: &str) -> Result<u32> {
        let what = || format!("looking up interface {name}");
        let mut links = self.socket.handle.link().get().match_name(name).execute();
        match self.socket.answered(links.try_next().await).map_err(|e| refused(what(), e))? {
            Some(link) => Ok(link.header.index),
            None => Err(LinuxError::io(what(), io::Error::from_raw_os_error(libc::ENODEV))),
        }
    }

    /// Brings an interface up, with this MTU and Ethernet address.
    pub async fn bring_up(&self, interface: u32, mtu: u32, address: [u8; 6]) -> Result<()> {
        let message = LinkUnspec::new_with_index(interface).mtu(mtu).address(address.to_vec()).up().build();
        let set = self.socket.handle.link().set(message).execute().await;
        self.socket.answered(set).map_err(|e| refused(format!("bringing interface {interface} up"), e))
    }

    /// Brings the loopback interface up.
    pub async fn loopback_up(&self) -> Result<()> {
        let message = LinkUnspec::new_with_index(LOOPBACK).up().build();
        let set = self.socket.handle.link().set(message).execute().await;
        self.socket.answered(set).map_err(|e| refused("bringing the loopback interface up", e))
    }

    /// Makes two interfaces whose cable connects them, both down.
    pub async fn add_veth(&self, name: &str, peer: &str) -> Result<()> {
        let add = self.socket.handle.link().add(LinkVeth::new(name, peer).build()).execute().await;
        self.socket.answered(add).map_err(|e| refused(format!("adding the interfaces {name} and {peer}"), e))
    }

    /// Gives an interface to another namespace, and another name.
    pub async fn move_to(&self, interface: u32, name: &str, namespace: BorrowedFd<'_>) -> Result<()> {
        let message = LinkUnspec::new_with_index(interface).name(name.to_string());
        let message = message.setns_by_fd(namespace.as_raw_fd()).build();
        let set = self.socket.handle.link().set(message).execute().await;
        self.socket.answered(set).map_err(|e| refused(format!("moving interface {name} to another namespace"), e))
    }

    /// Adds an address to an interface.
    pub async fn add_address(&self, interface: u32, address: Ipv6Addr, prefix_len: u8) -> Result<()> {
        let add = self.socket.handle.address().add(interface, address.into(), prefix_len).replace().execute().await;
        self.socket.answered(add).map_err(|e| refused(format!("adding address {address}/{prefix_len}"), e))
    }

    /// Names a neighbour's Ethernet address for good, so that nothing has to be discovered.
    pub async fn add_neighbour(&self, interface: u32, neighbour: Ipv6Addr, address: [u8; 6]) -> Result<()> {
        let request = self.socket.handle.neighbours().add(interface, neighbour.into());
        let add = request.state(NeighbourState::Permanent).link_layer_address(&address).replace().execute().await;
        self.socket.answered(add).map_err(|e| refused(format!("adding neighbour {neighbour}"), e))
    }

    /// Forgets the neighbours of an interface whose Ethernet addresses are not known yet, and with them the packets that wait for
    /// these.
    ///
    /// As long as such a packet waits, up to three seconds, TCP does not send it again, by whatever route (`skb_still_in_host_queue`).
    pub async fn forget_unresolved_neighbours(&self, interface: u32) -> Result<()> {
        let handle = self.socket.handle.neighbours();
        let what = || format!("reading the neighbours of interface {interface}");
        let all = handle.get().execute().try_collect::<Vec<_>>().await;
        let all = self.socket.answered(all).map_err(|e| refused(what(), e))?;
        let waits =
            |one: &NeighbourMessage| one.header.ifindex == interface && one.header.state == NeighbourState::Incomplete;
        for neighbour in all.into_iter().filter(waits) {
            let forgotten = handle.del(neighbour).execute().await;
            self.socket
                .answered(forgotten)
                .map_err(|e| refused(format!("forgetting a neighbour of {interface}"), e))?;
        }
        Ok(())
    }

    /// Adds a route, or replaces the one for the same destination in its table.
    pub async fn add_route(&self, route: &Route) -> Result<()> {
        if matches!(route.target, Target::Throw | Target::Unreachable) {
            // For IPv6 the kernel would keep a route with a next hop, and add this one behind it.
            self.delete_route(route.table, route.destination).await?;
        }
        let mut pauses = MEMORY_PAUSES.iter();
        loop {
            let added = self.socket.handle.route().add(message_of(route)).replace().execute().await;
            match (self.socket.answered(added), pauses.next()) {
                (Err(error), Some(pause)) if error_number(&error) == Some(libc::ENOMEM) => {
                    tokio::time::sleep(Duration::from_millis(*pause)).await;
                }
                (added, _) => {
                    let what = || format!("adding a route to {} in table {}", route.destination, route.table);
                    return added.map_err(|e| refused(what(), e));
                }
            }
        }
    }

    /// Removes a route; one that is gone is fine.
    pub async fn delete_route(&self, table: u32, destination: IpNet) -> Result<()> {
        // Of any kind: for IPv4 the kernel compares it.
        let message = our_route(table, destination).scope(RouteScope::NoWhere).kind(RouteType::Unspec).build();
        let deleted = self.socket.handle.route().del(message).execute().await;
        tolerate(self.socket.answered(deleted), libc::ESRCH, || {
            format!("removing the route to {destination} from table {table}")
        })
    }

    /// The next hop to which the kernel would send a packet for `destination` now.
    pub async fn route_to(&self, destination: Ipv6Addr) -> Result<NextHop> {
        let what = || format!("looking up the route to {destination}");
        let query = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(destination, 128).build();
        let mut answers = self.socket.handle.route().get(query).execute();
        let answer = self.socket.answered(answers.try_next().await).map_err(|e| refused(what(), e))?;
        answer
            .as_ref()
            .and_then(read_next_hop)
            .ok_or_else(|| LinuxError::io(what(), io::Error::from_raw_os_error(libc::ENETUNREACH)))
    }

    #[cfg(test)]
    pub(crate) fn handle(&self) -> &rtnetlink::Handle {
        &self.socket.handle
    }
}

/// Opens a socket in the calling thread's namespace and runs `work` with it to its end.
pub fn block_on<T>(work: impl AsyncFnOnce(&Netlink) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LinuxError::io("starting a runtime", error))?;
    runtime.block_on(async {
        let netlink = Netlink::open()?;
        work(&netlink).await
    })
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        }
    }
}

/// The parts of a message that identify a route of ours.
fn our_route(table: u32, destination: IpNet) -> RouteMessageBuilder<IpAddr> {
    let mut builder = RouteMessageBuilder::<IpAddr>::new().table_id(table).protocol(RouteProtocol::from(PROTOCOL));
    let message = builder.get_mut();
    message.header.address_family = Family::of(destination).into();
    message.header.destination_prefix_length = destination.prefix_len();
    message.attributes.push(RouteAttribute::Destination(destination.network().into()));
    builder
}

fn message_of(route: &Route) -> RouteMessage {
    let mut builder = our_route(route.table, route.destination);
    let family = Family::of(route.destination);
    let through = |mut builder: RouteMessageBuilder<IpAddr>, hop: NextHop| {
        builder.get_mut().attributes.extend(hop.via.map(|via| neighbour(family, via)));
        builder.output_interface(hop.interface)
    };
    builder = match &route.target {
        Target::Via(hops) => match hops.as_slice() {
            [hop] => through(builder, *hop),
            hops => builder.multipath(hops.iter().map(|hop| multipath_hop(family, hop)).collect()),
        },
        Target::OnLink(hop) => {
            builder = through(builder, *hop);
            builder.get_mut().header.flags |= RouteFlags::Onlink;
            builder
        }
        // The kernel writes each packet's own destination into the last place, which must be there and empty.
        Target::Segments(segments, hop) => {
            let list = segments.iter().copied().chain([Ipv6Addr::UNSPECIFIED]).collect();
            through(builder, *hop).output_seg6(Seg6Mode::Inline, list)
        }
        // The outer header's own lookup finds the neighbour.
        Target::Encaps(segments, hop) => {
            builder.output_interface(hop.interface).output_seg6(Seg6Mode::Encap, segments.clone())
        }
        Target::Throw => builder.kind(RouteType::Throw),
        Target::Unreachable => builder.kind(RouteType::Unreachable),
        Target::Sid(action, interface) => {
            let kind = if *interface == LOOPBACK { RouteType::Local } else { RouteType::Unicast };
            builder.encap_seg6local(sid_attributes(action)).output_interface(*interface).kind(kind)
        }
    };
    if let Some(mtu) = route.mtu {
        builder.get_mut().attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    builder.build()
}

fn multipath_hop(family: Family, hop: &NextHop) -> RouteNextHop {
    let mut next = RouteNextHop::default();
    next.interface_index = hop.interface;
    next.attributes.extend(hop.via.map(|via| neighbour(family, via)));
    next
}

/// The neighbour in a route of this family.
fn neighbour(family: Family, via: IpAddr) -> RouteAttribute {
    match (family, via) {
        (Family::V4, IpAddr::V6(via)) => RouteAttribute::Via(RouteVia::Inet6(via)),
        (_, via) => RouteAttribute::Gateway(via.into()),
    }
}

fn sid_attributes(action: &SidAction) -> Vec<RouteSeg6LocalTunnel> {
    use RouteSeg6LocalTunnel as Attribute;
    match action {
        SidAction::End => vec![Attribute::Action(Seg6LocalAction::End)],
        SidAction::EndX(neighbour) => vec![Attribute::Action(Seg6LocalAction::EndX), Attribute::Nh6(*neighbour)],
        SidAction::EndDt6(table) => vec![Attribute::Action(Seg6LocalAction::EndDt6), Attribute::Table(*table)],
        SidAction::EndB6Encaps(segments) => {
            let last = u8::try_from(segments.len().saturating_sub(1)).unwrap_or(u8::MAX);
            let mut srh = Seg6LocalSrh::default();
            srh.routing_type = 4; // RFC 8754, section 2
            srh.segments_left = last;
            srh.first_segment = last;
            srh.segments = segments.iter().rev().copied().collect(); // as in the header: last segment first
            vec![Attribute::Action(Seg6LocalAction::EndB6Encap), Attribute::Srh(srh)]
        }
    }
}

fn read_interface(link: &LinkMessage) -> Interface {
    use netlink_packet_route::link::{LinkFlags, LinkLayerType};
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        loopback: link.header.link_layer_type == LinkLayerType::Loopback,
        ethernet: link.header.link_layer_type == LinkLayerType::Ether,
        mtu: 0,
        running: link.header.flags.contains(LinkFlags::LowerUp | LinkFlags::Up),
        tx_bytes: 0,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Stats64(stats) => interface.tx_bytes = stats.tx_bytes,
            _ => {}
        }
    }
    interface
}

fn read_next_hop(route: &RouteMessage) -> Option<NextHop> {
    let interface = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    Some(NextHop { via: read_gateway(&route.attributes), interface: interface? })
}

fn read_gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => read_address(address),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        _ => None,
    })
}

fn read_route(route: &RouteMessage) -> Option<(u32, IpNet)> {
    let mut table = u32::from(route.header.table);
    let mut destination = match route.header.address_family {
        AddressFamily::Inet => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Table(id) => table = *id,
            RouteAttribute::Destination(address) => destination = read_address(address)?,
            _ => {}
        }
    }
    Some((table, IpNet::new(destination, route.header.destination_prefix_length).ok()?))
}

fn read_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Turns a netlink failure into ours; SRv6 is the only optional feature that routes here need.
fn refused(what: impl Into<String>, error: rtnetlink::Error) -> LinuxError {
    match error_number(&error) {
        Some(number) => LinuxError::new(what, io::Error::from_raw_os_error(number), NEEDS_SEG6),
        None => LinuxError::io(what, io::Error::other(error.to_string())),
    }
}

fn tolerate(result: std::result::Result<(), rtnetlink::Error>, fine: i32, what: impl Fn() -> String) -> Result<()> {
    match result {
        Err(error) if error_number(&error) != Some(fine) => Err(refused(what(), error)),
        _ => Ok(()),
    }
}

fn error_number(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.code.map(|code| code.get().abs()),
        _ => None,
    }
}

/// What fuzzing reads.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use netlink_packet_route::RouteNetlinkMessage as Message;

    use super::*;

    /// Reads a report of a change.
    pub(crate) fn read_report(bytes: &[u8]) {
        let _ = watch::read_change(bytes);
    }

    /// Hands a message to each reader that such messages have.
    pub(crate) fn read_answer(message: &Message) {
        match message {
            Message::NewLink(link) => drop(read_interface(link)),
            Message::NewAddress(address) => {
                let read = addresses::read_interface_address(address);
                assert!(read.is_none_or(|read| read.address.prefix_len() <= read.address.max_prefix_len()));
            }
            Message::NewRule(rule) => {
                assert!(!rules::read(rule).to_string().is_empty());
                assert!(!policy::read(rule).to_string().is_empty());
            }
            Message::NewRoute(route) => {
                let hops = tables::read_next_hops(route);
                let is_multipath = |one: &RouteAttribute| matches!(one, RouteAttribute::MultiPath(_));
                assert!(hops.len() <= 1 || route.attributes.iter().any(is_multipath));
                let (binding, read) = (sids::read_binding(route), read_route(route));
                assert!(binding.is_none_or(|(sid, _)| read.is_some_and(|(_, net)| net.addr() == IpAddr::V6(sid))));
                let is_in_main = read.is_some_and(|(table, _)| table == MAIN_TABLE);
                assert!(is_in_main || !tables::is_default(route));
                let found = lookup::read_found(route);
                assert!(found.is_none_or(|found| !found.describe(|_| String::new()).is_empty()));
            }
            _ => {}
        }
    }
}
