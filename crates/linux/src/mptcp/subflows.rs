//! The subflows of a network namespace, by sock_diag: which connection each belongs to, and how it does.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::net::SocketAddr;

use netlink_packet_core::{NlasIterator, Parseable};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, INET_DIAG_CONG, INET_DIAG_INFO,
    inet::{ExtensionFlags, InetResponseBuffer, InetResponseHeader},
};

use sidestep_coupled::{Algorithm, Path};

use super::events::{Ends, Token};
use crate::{
    error::Result,
    sock_diag::{SockDiag, TcpInfo, TcpState, malformed},
};

/// A TCP connection, and whether it is a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEnds {
    /// Its ends.
    pub ends: Ends,
    /// The connection's state.
    pub state: TcpState,
    /// What makes it a subflow; `None`: it is no part of an MPTCP connection.
    pub subflow: Option<Subflow>,
}

/// A subflow of an MPTCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// The connection.
    pub token: Token,
    /// Whether it is the connection's first.
    pub is_first: bool,
    /// Whether this end opened it.
    pub opened_here: bool,
    /// Whether further subflows are possible as far as this one knows.
    pub fully_established: bool,
    /// Timeouts since data, or the SYN, was last acknowledged.
    pub timeouts: u8,
    /// Payload bytes that the other end acknowledged, or that came from it.
    pub bytes: u64,
    /// Its congestion window.
    pub window: Window,
}

/// The congestion window of a subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// What couples it with those of the others; `None`: nothing of ours.
    pub coupling: Option<Algorithm>,
    /// The window with the round-trip time; bytes between losses are not known.
    pub path: Path,
    /// Bytes that the other end acknowledged.
    pub acked: u64,
}

/// Attributes of a socket (include/uapi/linux/inet_diag.h, mptcp.h).
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_MPTCP: u16 = 3;
const SUBFLOW_ATTR_TOKEN_LOC: u16 = 2;
const SUBFLOW_ATTR_FLAGS: u16 = 8;
const MCAP_REM: u32 = 1;
const MCAP_LOC: u32 = 1 << 1;
const JOIN_REM: u32 = 1 << 2;
const JOIN_LOC: u32 = 1 << 3;
const FULLY_ESTABLISHED: u32 = 1 << 6;

/// Lists the TCP connections of the namespace that `diag` is open in, of both families.
pub fn tcp_ends(diag: &mut SockDiag) -> Result<Vec<TcpEnds>> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        diag.dump_with(ExtensionFlags::INFO | ExtensionFlags::CONG, family, |payload| {
            found.push(read_ends(payload)?);
            Ok(())
        })?;
    }
    Ok(found)
}

/// Reads one socket of a dump.
fn read_ends(payload: &[u8]) -> Result<TcpEnds> {
    let header = InetResponseHeader::parse(payload).map_err(|_| malformed("a socket's header is wrong"))?;
    let (mut info, mut mptcp, mut coupling) = (None, None, None);
    for attribute in NlasIterator::new(payload.get(size_of::<InetResponseBuffer>()..).unwrap_or_default()) {
        let attribute = attribute.map_err(|_| malformed("an attribute is cut short"))?;
        match attribute.kind() {
            INET_DIAG_INFO => info = TcpInfo::parse(attribute.value()),
            INET_DIAG_CONG => coupling = read_name(attribute.value()),
            INET_DIAG_ULP_INFO => mptcp = read_ulp(attribute.value()),
            _ => {}
        }
    }
    let id = header.socket_id;
    let local = SocketAddr::new(id.source_address.to_canonical(), id.source_port);
    let remote = SocketAddr::new(id.destination_address.to_canonical(), id.destination_port);
    let subflow = info.zip(mptcp).map(|(info, (token, flags))| Subflow {
        token: Token(token),
        is_first: flags & (JOIN_REM | JOIN_LOC) == 0,
        opened_here: flags & (MCAP_LOC | JOIN_LOC) != 0,
        fully_established: flags & FULLY_ESTABLISHED != 0,
        timeouts: info.timeouts,
        bytes: info.bytes_acked.saturating_add(info.bytes_received),
        window: Window {
            coupling,
            path: Path {
                window: u64::from(info.cwnd) * u64::from(info.mss),
                between_losses: 0,
                rtt: info.srtt_us,
                mss: info.mss,
            },
            acked: info.bytes_acked,
        },
    });
    Ok(TcpEnds { ends: Ends { local, remote }, state: header.state.into(), subflow })
}

/// Reads the name of a congestion control that couples windows.
fn read_name(bytes: &[u8]) -> Option<Algorithm> {
    std::str::from_utf8(bytes).ok()?.trim_end_matches('\0').parse().ok()
}

/// Reads the connection's token and the subflow's flags; `None` where it is not of MPTCP, or plain TCP after all.
fn read_ulp(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut found = NlasIterator::new(bytes).flatten();
    let mptcp = found.find(|attribute| attribute.kind() & KIND == INET_ULP_INFO_MPTCP)?;
    let (mut token, mut flags) = (None, None);
    for attribute in NlasIterator::new(mptcp.value()).flatten() {
        let word = || attribute.value().first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        match attribute.kind() & KIND {
            SUBFLOW_ATTR_TOKEN_LOC => token = word(),
            SUBFLOW_ATTR_FLAGS => flags = word(),
            _ => {}
        }
    }
    let flags = flags?;
    Some((token?, flags)).filter(|(token, flags)| *token != 0 && flags & (MCAP_REM | JOIN_REM | JOIN_LOC) != 0)
}

/// The bits of an attribute's type that show what it is.
const KIND: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes: Vec<u8>) {
            let _ = read_ends(&bytes);
            read_ulp(&bytes);
        }
    }
}
