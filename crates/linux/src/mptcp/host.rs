//! What the kernel reports about the host's own addresses: in which state each is, and by which interface packets from it leave.
//!
//! Requests are answered at once, so that they may stand between two requests for subflows.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    route::{RouteAddress, RouteAttribute, RouteMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::{
    socket::{setsockopt, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};

use crate::error::{LinuxError, Result};

/// An address of an interface, in whatever state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostAddress {
    /// The interface's index.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// Whether it means the same on every link.
    pub global: bool,
    /// Whether new connections should not begin from it (RFC 4862, section 5.5.4).
    pub deprecated: bool,
    /// Whether it is not known yet that no other machine has it, or another one does (RFC 4862, section 5.4).
    pub tentative: bool,
    /// Whether it is a temporary address of IPv6 (RFC 8981).
    pub temporary: bool,
}

/// Asks the kernel about addresses and routes of the network namespace in which it was opened.
#[derive(Debug)]
pub struct HostQueries {
    socket: Socket,
    sequence: u32,
}

/// How long the kernel may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl HostQueries {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        let failed = |source| LinuxError::io("opening a netlink socket", source);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        let patience = TimeVal::milliseconds(PATIENCE.as_millis() as i64);
        setsockopt(&socket, ReceiveTimeout, &patience).map_err(|error| failed(error.into()))?;
        Ok(HostQueries { socket, sequence: 0 })
    }

    /// The addresses of all interfaces, of both families.
    pub fn addresses(&mut self) -> Result<Vec<HostAddress>> {
        let mut found = Vec::new();
        let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.ask(query, NLM_F_REQUEST | NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewAddress(message) = answer {
                found.extend(read_address(&message));
            }
        })
        .map_err(|error| LinuxError::io("listing addresses", error))?;
        Ok(found)
    }

    /// The interface by which a packet of a socket of this host, with this source and mark, would leave now for
    /// `destination`; `None` where no rule or route lets it leave, or the host does not have the source.
    pub fn output_interface(&mut self, source: IpAddr, destination: IpAddr, mark: u32) -> Result<Option<u32>> {
        let mut query = RouteMessage::default();
        let bits = if destination.is_ipv4() { 32 } else { 128 };
        query.header.address_family = if destination.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        (query.header.destination_prefix_length, query.header.source_prefix_length) = (bits, bits);
        query.attributes.push(RouteAttribute::Destination(route_address(destination)));
        query.attributes.push(RouteAttribute::Source(route_address(source)));
        if mark != 0 {
            query.attributes.push(RouteAttribute::Mark(mark));
        }
        let mut interface = None;
        let asked = self.ask(RouteNetlinkMessage::GetRoute(query), NLM_F_REQUEST, |answer| {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                interface = route.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                });
            }
        });
        match asked {
            Ok(()) => Ok(interface),
            // It is the kernel's word about routes: unreachable, prohibited, no such source.
            Err(error) if error.raw_os_error().is_some_and(|number| !TROUBLE.contains(&number)) => Ok(None),
            Err(error) => Err(LinuxError::io(format!("looking up the route from {source} to {destination}"), error)),
        }
    }

    /// Sends a request, and hands over each part of the answer.
    fn ask(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (flags, self.sequence);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if read_answer(&datagram, self.sequence, flags & NLM_F_DUMP == NLM_F_DUMP, &mut take)? {
                return Ok(());
            }
        }
    }
}

/// Errors of the socket, and not answers about routes.
const TROUBLE: [i32; 6] = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EPERM, libc::EBADMSG, libc::EINTR];

/// Reads a datagram of an answer; whether the answer is complete with it.
fn read_answer(
    mut rest: &[u8],
    sequence: u32,
    is_dump: bool,
    take: &mut impl FnMut(RouteNetlinkMessage),
) -> io::Result<bool> {
    let malformed = || io::Error::from_raw_os_error(libc::EBADMSG);
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(|_| malformed())?;
        let length = (message.header.length as usize).next_multiple_of(4).max(16);
        rest = rest.get(length..).unwrap_or_default();
        // The answer to a request that was given up may come late.
        if message.header.sequence_number != sequence {
            continue;
        }
        match message.payload {
            NetlinkPayload::Error(error) => return if error.code.is_none() { Ok(true) } else { Err(error.to_io()) },
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::InnerMessage(answer) => {
                take(answer);
                if !is_dump {
                    return Ok(true);
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

fn read_address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut address, mut local) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => address = Some(*found),
            // On a link between two hosts the other attribute is the peer's address.
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Flags(found) => flags = *found,
            _ => {}
        }
    }
    let address = local.or(address)?;
    let global = message.header.scope == AddressScope::Universe && !is_of_one_link(address);
    Some(HostAddress {
        interface: message.header.index,
        address,
        global,
        deprecated: flags.contains(AddressFlags::Deprecated),
        tentative: flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed),
        // For IPv4 the same bit means that the address is not the first of its subnet.
        temporary: address.is_ipv6() && flags.contains(AddressFlags::Secondary),
    })
}

/// Whether an address means something on one link or one machine only, whatever scope it was given.
fn is_of_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => Ipv4Addr::is_link_local(&address) || address.is_loopback(),
        IpAddr::V6(address) => Ipv6Addr::is_unicast_link_local(&address) || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::{netns::NetNs, testing::root_or_skip};

    fn ip(arguments: &str) {
        let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn the_kernel_reports_by_which_interface_a_source_leaves_and_in_which_state_an_address_is() {
        if !root_or_skip("routes of a network namespace") {
            return;
        }
        let inside = || {
            ip("link add blue type veth peer name far0");
            ip("link add green type veth peer name far1");
            for (name, n) in [("blue", 0), ("green", 1)] {
                ip(&format!("address add 10.9.{n}.1/24 dev {name}"));
                ip(&format!("address add fd09:{n}::1/64 dev {name} nodad"));
                ip(&format!("link set {name} up"));
                ip(&format!("link set far{n} up"));
            }
            ip("route add default via 10.9.0.2");
            ip("-6 route add default via fd09:0::2");
            ip("address add 10.9.1.7/24 dev green preferred_lft 0");
            let index = |name: &str| nix::net::if_::if_nametoindex(name).unwrap();
            let mut queries = HostQueries::open().unwrap();
            let addresses = queries.addresses().unwrap();
            let of = |text: &str| *addresses.iter().find(|one| one.address == text.parse::<IpAddr>().unwrap()).unwrap();
            assert_eq!((of("10.9.1.1").interface, of("10.9.1.1").deprecated), (index("green"), false));
            assert!(
                of("10.9.1.7").deprecated && !of("10.9.1.7").temporary,
                "a second address of IPv4 is not temporary"
            );
            assert!(addresses.iter().any(|one| one.address.is_ipv6() && !one.global), "link-local");
            let mut leaves = |source: &str, to: &str, mark| {
                queries.output_interface(source.parse().unwrap(), to.parse().unwrap(), mark).unwrap()
            };
            for (source, to) in [("10.9.1.1", "10.2.0.1"), ("fd09:1::1", "fd02::1")] {
                assert_eq!(leaves(source, to, 0), Some(index("blue")), "no rule for this source yet");
            }
            ip("route add default via 10.9.1.2 table 101");
            ip("-6 route add default via fd09:1::2 table 101");
            ip("rule add fwmark 7 table 101");
            ip("-6 rule add from fd09:1::/64 table 101");
            assert_eq!(leaves("10.9.1.1", "10.2.0.1", 7), Some(index("green")));
            assert_eq!(leaves("10.9.1.1", "10.2.0.1", 0), Some(index("blue")));
            assert_eq!(leaves("fd09:1::1", "fd02::1", 0), Some(index("green")));
            ip("rule add from 10.9.1.1 prohibit");
            assert_eq!(leaves("10.9.1.1", "10.2.0.1", 0), None);
            assert_eq!(leaves("10.77.0.1", "10.2.0.1", 0), None, "the host does not have this source");
            Ok(())
        };
        NetNs::create().unwrap().run(inside).unwrap();
    }

    proptest! {
        #[test]
        fn no_answer_panics_the_reader(bytes: Vec<u8>, sequence: u32, is_dump: bool) {
            let _ = read_answer(&bytes, sequence, is_dump, &mut |_| {});
        }
    }
}
