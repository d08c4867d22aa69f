//! What the kernel would do with a packet: its own answer, for any mark, source, user, and interface.

use std::{fmt, net::IpAddr};

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::RouteMessageBuilder;

use super::{
    Family, MAIN_TABLE, Netlink, NextHop, PROTOCOL, Socket, error_number, read_address, read_next_hop, read_route,
    refused,
    tables::{dump, read_next_hops},
};
use crate::error::Result;

/// A packet that the kernel is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Where it goes.
    pub destination: IpAddr,
    /// Where it comes from; `None`: the kernel is still to choose.
    pub source: Option<IpAddr>,
    /// Its mark.
    pub mark: u32,
    /// The index of the interface by which it comes in; `None`: it is a socket's of this host.
    pub input: Option<u32>,
    /// The index of the interface to which its socket is bound.
    pub output: Option<u32>,
    /// The user whose socket it is.
    pub user: Option<u32>,
    /// The protocol above IP; zero: any.
    pub protocol: u8,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
}

/// What the kernel does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It leaves.
    Leaves {
        /// By this next hop.
        hop: NextHop,
        /// Which this table names.
        table: u32,
    },
    /// It is for this host itself, according to this table.
    Local {
        /// The table.
        table: u32,
    },
    /// It is refused or dropped, with this error.
    Refused(i32),
}

/// A route as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRoute {
    /// The table that it is in.
    pub table: u32,
    /// Which packets it is for.
    pub destination: IpNet,
    /// What it does: nothing is printed of `unicast`.
    pub kind: &'static str,
    /// The kernel prefers the route with the lowest, among those to the same destination.
    pub metric: u32,
    /// The routing protocol that made it.
    pub made_by: u8,
    /// Where it leads.
    pub hops: Vec<NextHop>,
    /// Whether it puts something around packets or into them, such as a header of segments.
    pub encapsulates: bool,
}

impl Flow {
    /// The family of its addresses.
    pub fn family(&self) -> Family {
        if self.destination.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl Answer {
    /// The interface by which the packet leaves.
    pub fn interface(&self) -> Option<u32> {
        match self {
            Answer::Leaves { hop, .. } => Some(hop.interface),
            _ => None,
        }
    }
}

impl Netlink {
    /// What the kernel would do with a packet now.
    pub async fn look_up(&self, flow: &Flow) -> Result<Answer> {
        match self.ask(flow, RouteFlags::LookupTable).await? {
            Err(number) => Ok(Answer::Refused(number)),
            Ok(route) => Ok(read_answer(&route)),
        }
    }

    /// The route by which the kernel would send a packet now; `None` where it has none, or one that refuses.
    pub async fn route_of(&self, flow: &Flow) -> Result<Option<FoundRoute>> {
        let found = self.ask(flow, RouteFlags::LookupTable | RouteFlags::FibMatch).await?;
        Ok(found.ok().as_ref().and_then(read_found))
    }

    /// The source address that the kernel would choose for a packet that has none yet; `None` where it has no route.
    pub async fn source_of(&self, flow: &Flow) -> Result<Option<IpAddr>> {
        let answer = self.ask(flow, RouteFlags::LookupTable).await?.ok();
        Ok(answer.iter().flat_map(|answer| &answer.attributes).find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => read_address(address),
            _ => None,
        }))
    }

    /// The routes of one table.
    pub async fn routes_in(&self, table: u32) -> Result<Vec<FoundRoute>> {
        Ok(dump(&Socket::open(true)?, table, 0).await?.iter().filter_map(read_found).collect())
    }

    /// All our routes: those that carry [`PROTOCOL`].
    pub async fn own_routes_found(&self) -> Result<Vec<FoundRoute>> {
        Ok(dump(&Socket::open(true)?, 0, PROTOCOL).await?.iter().filter_map(read_found).collect())
    }

    /// The kernel's answer, or the error that stands for one.
    async fn ask(&self, flow: &Flow, flags: RouteFlags) -> Result<std::result::Result<RouteMessage, i32>> {
        let what = || format!("looking up the route to {}", flow.destination);
        let asked = self.socket.handle.route().get(question(flow, flags)).execute().try_next().await;
        match self.socket.answered(asked) {
            Ok(Some(answer)) => Ok(Ok(answer)),
            Ok(None) => Ok(Err(libc::ENETUNREACH)),
            Err(error) => match error_number(&error) {
                Some(number) if number != libc::EPERM => Ok(Err(number)),
                _ => Err(refused(what(), error)),
            },
        }
    }
}

fn question(flow: &Flow, flags: RouteFlags) -> RouteMessage {
    let mut message = RouteMessageBuilder::<IpAddr>::new().build();
    let bits = if flow.destination.is_ipv4() { 32 } else { 128 };
    message.header.address_family = flow.family().into();
    message.header.destination_prefix_length = bits;
    message.header.protocol = RouteProtocol::Unspec;
    message.header.table = 0;
    message.header.kind = RouteType::Unspec;
    message.header.scope = netlink_packet_route::route::RouteScope::Universe;
    message.header.flags = flags;
    message.attributes.push(RouteAttribute::Destination(flow.destination.into()));
    if let Some(source) = flow.source {
        message.header.source_prefix_length = bits;
        message.attributes.push(RouteAttribute::Source(source.into()));
    }
    message.attributes.extend(flow.input.map(RouteAttribute::Iif));
    message.attributes.extend(flow.output.map(RouteAttribute::Oif));
    message.attributes.extend((flow.mark != 0).then_some(RouteAttribute::Mark(flow.mark)));
    message.attributes.extend(flow.user.map(RouteAttribute::Uid));
    if flow.protocol != 0 {
        message.attributes.push(RouteAttribute::IpProto(flow.protocol));
    }
    if let Some((source, destination)) = flow.ports {
        message.attributes.extend([RouteAttribute::Sport(source), RouteAttribute::Dport(destination)]);
    }
    message
}

fn read_answer(route: &RouteMessage) -> Answer {
    let table = read_route(route).map_or(0, |(table, _)| table);
    match (route.header.kind, read_next_hop(route)) {
        (RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast, _) => {
            Answer::Local { table }
        }
        (RouteType::BlackHole, _) => Answer::Refused(libc::EINVAL),
        (RouteType::Unreachable, _) => Answer::Refused(libc::EHOSTUNREACH),
        (RouteType::Prohibit, _) => Answer::Refused(libc::EACCES),
        // Of IPv4 with an interface and no route the kernel takes all for neighbours.
        (_, Some(_)) if table == 0 => Answer::Refused(libc::ENETUNREACH),
        (_, Some(hop)) => Answer::Leaves { hop, table },
        (_, None) => Answer::Refused(libc::ENETUNREACH),
    }
}

pub(super) fn read_found(route: &RouteMessage) -> Option<FoundRoute> {
    let (table, destination) = read_route(route)?;
    let metric = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let kind = match route.header.kind {
        RouteType::Unicast => "",
        RouteType::Local => "local",
        RouteType::Broadcast => "broadcast",
        RouteType::Anycast => "anycast",
        RouteType::Multicast => "multicast",
        RouteType::BlackHole => "blackhole",
        RouteType::Unreachable => "unreachable",
        RouteType::Prohibit => "prohibit",
        RouteType::Throw => "throw",
        _ => "other",
    };
    Some(FoundRoute {
        table,
        destination,
        kind,
        metric: metric.unwrap_or_default(),
        made_by: route.header.protocol.into(),
        hops: read_next_hops(route),
        encapsulates: route.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::EncapType(_))),
    })
}

impl FoundRoute {
    /// Whether a daemon of sidestep made it.
    pub fn is_ours(&self) -> bool {
        self.made_by == PROTOCOL
    }

    /// As `ip route` prints it, with names of interfaces.
    pub fn describe(&self, name: impl Fn(u32) -> String) -> String {
        let mut text = if self.kind.is_empty() { String::new() } else { format!("{} ", self.kind) };
        text += &if self.destination.prefix_len() == 0 { "default".into() } else { self.destination.to_string() };
        for hop in &self.hops {
            text += &hop.via.map_or_else(String::new, |via| format!(" via {via}"));
            text += &format!(" dev {}", name(hop.interface));
        }
        if self.metric > 0 {
            text += &format!(" metric {}", self.metric);
        }
        text
    }
}

impl fmt::Display for Answer {
    /// In words, after "packets".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Leaves { hop, .. } => write!(f, "leave by interface {}", hop.interface),
            Answer::Local { .. } => f.write_str("are taken for this host's own"),
            Answer::Refused(libc::EACCES) => f.write_str("are refused (prohibit)"),
            Answer::Refused(libc::EINVAL) => f.write_str("are dropped (blackhole)"),
            Answer::Refused(_) => f.write_str("are refused (unreachable)"),
        }
    }
}

/// The name of a table, as `ip route` knows it.
pub fn table_name(table: u32) -> String {
    match table {
        255 => "local".into(),
        MAIN_TABLE => "main".into(),
        253 => "default".into(),
        other => other.to_string(),
    }
}
