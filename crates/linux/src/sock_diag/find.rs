//! What the kernel knows of single connections, and of who made their sockets.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::net::SocketAddr;

use netlink_packet_core::{NlasIterator, Parseable};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, INET_DIAG_INFO, INET_DIAG_MARK,
    inet::{InetResponseBuffer, InetResponseHeader},
};

use super::{SockDiag, TcpInfo, TcpState, malformed};
use crate::error::Result;

/// A TCP connection of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSocket {
    /// This end; one of IPv4 as such, whatever the socket's family.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The connection's state.
    pub state: TcpState,
    /// The routing mark (`SO_MARK`); zero also where the caller lacks `CAP_NET_ADMIN`.
    pub mark: u32,
    /// The index of the interface, or of the VRF, that it is bound to; zero: none.
    pub interface: u32,
    /// The number of the control group whose process made it, which is the inode of the group's directory; `None` before
    /// Linux 5.7.
    pub group: Option<u64>,
    /// Its congestion control and its counters.
    pub info: TcpInfo,
}

/// `INET_DIAG_CGROUP_ID` of include/uapi/linux/inet_diag.h.
const INET_DIAG_CGROUP_ID: u16 = 21;

impl SockDiag {
    /// The connections of both families for which `wanted` is true, by this end and the other.
    pub fn find(&mut self, wanted: impl Fn(SocketAddr, SocketAddr) -> bool) -> Result<Vec<FoundSocket>> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            self.dump(family, |payload| {
                found.extend(read(payload)?.filter(|one| wanted(one.local, one.remote)));
                Ok(())
            })?;
        }
        Ok(found)
    }
}

/// Reads one socket; `None` if it has no TCP state of its own.
fn read(payload: &[u8]) -> Result<Option<FoundSocket>> {
    let header = InetResponseHeader::parse(payload).map_err(|_| malformed("a socket's header is wrong"))?;
    let (mut info, mut mark, mut group) = (None, 0, None);
    for attribute in NlasIterator::new(payload.get(size_of::<InetResponseBuffer>()..).unwrap_or_default()) {
        let attribute = attribute.map_err(|_| malformed("an attribute is cut short"))?;
        match attribute.kind() {
            INET_DIAG_INFO => info = TcpInfo::parse(attribute.value()),
            INET_DIAG_MARK => {
                let bytes = attribute.value().first_chunk();
                mark = u32::from_ne_bytes(*bytes.ok_or_else(|| malformed("a mark is cut short"))?);
            }
            INET_DIAG_CGROUP_ID => group = attribute.value().first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)),
            _ => {}
        }
    }
    let id = header.socket_id;
    Ok(info.map(|info| FoundSocket {
        local: SocketAddr::new(id.source_address.to_canonical(), id.source_port),
        remote: SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
        state: header.state.into(),
        mark,
        interface: id.interface_id,
        group,
        info,
    }))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        netns::NetNs,
        testing::{ip, root_or_skip},
    };

    #[test]
    fn a_connection_of_each_family_is_found_with_its_mark_and_its_group() {
        if !root_or_skip("finding connections") {
            return;
        }
        let node = NetNs::create().unwrap();
        let inside = || {
            ip(&node, "link set lo up");
            for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                let listener = TcpListener::bind((address, 0)).unwrap();
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::Mark, &7).unwrap();
                let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
                let ends = (canonical(client.local_addr().unwrap()), canonical(client.peer_addr().unwrap()));
                let found = SockDiag::open().unwrap().find(|local, remote| (local, remote) == ends).unwrap();
                assert_eq!(found.len(), 1, "{address}: {found:?}");
                assert_eq!((found[0].mark, found[0].interface, found[0].state), (7, 0, TcpState::Established));
                assert!(found[0].group.is_some_and(|group| group > 0), "{found:?}");
            }
            Ok(())
        };
        node.run(inside).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
