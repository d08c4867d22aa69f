//! Hands bytes to everything that reads what the kernel, or another program, has written: for property tests and fuzz
//! targets.
//!
//! No bytes may make a reader panic. What is known of the result is asserted here.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use sidestep_net::Time;
use sidestep_proto::{
    echo::{self, Family},
    stamp::{self, Reflector, ReflectorConfig, ReflectorPacket, Request, WallTime},
};

use crate::{marks, mptcp::MptcpInfo, netlink, nftables, sock_diag};

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

/// Reads bytes as what may come to a prober (echo replies, UDP echoes, answers of STAMP, and what ICMP errors quote), and has a
/// reflector answer them: never with more bytes than came.
///
/// # Panics
/// Panics if an answer is longer than its request, or is no answer to it.
pub fn read_probes(bytes: &[u8]) {
    for family in [Family::V4, Family::V6] {
        echo::parse_reply(family, bytes);
        echo::quoted_request(family, bytes);
    }
    if let Some(packet) = echo::behind_ipv4(bytes) {
        echo::parse_reply(Family::V4, packet);
    }
    echo::Payload::parse(bytes);
    stamp::quoted_sequence(bytes);
    ReflectorPacket::parse(bytes);
    let (from, to) = (([198, 51, 100, 7], 40_000).into(), ([192, 0, 2, 1], stamp::PORT).into());
    let request = Request { from, to, ttl: 64, received: WallTime::default(), packet: bytes };
    let mut out = vec![0; bytes.len()];
    let mut reflector = Reflector::new(ReflectorConfig::default());
    let answered = reflector.handle_request(Time::ZERO, &request, WallTime::default(), &mut out);
    assert_eq!(answered.is_ok(), bytes.len() >= stamp::LENGTH, "a packet of {} bytes", bytes.len());
    if answered.is_ok() {
        let answer = ReflectorPacket::parse(&out).map(|(answer, _)| answer.sender_sequence);
        assert_eq!(answer, stamp::quoted_sequence(bytes));
    }
}
