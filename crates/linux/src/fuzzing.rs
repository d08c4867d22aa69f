//! Hands bytes to everything that reads what the kernel, or another program, has written: for property tests and fuzz
//! targets.
//!
//! No bytes may make a reader panic. What can be said of the result is asserted here.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;

use crate::{bpf, marks, mptcp::MptcpInfo, netlink, nftables, sock_diag};

/// Reads bytes as an answer or a report of rtnetlink: interfaces, addresses, rules and routes.
pub fn read_routing(bytes: &[u8]) {
    netlink::fuzzing::read_report(bytes);
    let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) else { return };
    if let NetlinkPayload::InnerMessage(message) = message.payload {
        netlink::fuzzing::read_answer(&message);
    }
}

/// Reads bytes as a datagram of `sock_diag`, and as what the kernel knows of one socket.
pub fn read_sockets(bytes: &[u8]) {
    sock_diag::fuzzing::read(bytes);
    let _ = MptcpInfo::parse(bytes);
}

/// Reads bytes as a datagram of nf_tables with rules.
pub fn read_filters(bytes: &[u8]) {
    marks::fuzzing::read(bytes);
    nftables::fuzzing::read(bytes);
}

/// Reads bytes as a key or a value of each pinned map, as an event, and as what the iterators over sockets write.
pub fn read_pins(bytes: &[u8]) {
    bpf::host::fuzzing::read(bytes);
}
