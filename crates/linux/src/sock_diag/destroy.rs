//! Connections that wait for an answer, and how to end one (`SOCK_DESTROY`).
//!
//! A connection is ended only if it still is what was decided about: the kernel takes its cookie along, and the caller
//! reads it once more right before ([`SockDiag::look_again`]).

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{
    io,
    mem::offset_of,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use libc::tcp_info;
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator, Parseable,
};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, INET_DIAG_INFO, INET_DIAG_MARK, IPPROTO_TCP, SOCK_DESTROY, SOCK_DIAG_BY_FAMILY,
    inet::{ExtensionFlags, InetRequest, InetResponseBuffer, InetResponseHeader, SocketId, StateFlags},
};

use super::{SockDiag, TcpInfo, TcpState, malformed};
use crate::error::{LinuxError, Result};

/// A TCP connection of which something is unacknowledged and had a timeout: data, or its SYN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Its family and ends as the kernel names the socket.
    id: (u8, SocketId),
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The kernel's name for the socket (`SO_COOKIE`), never used twice.
    pub cookie: u64,
    /// The routing mark (`SO_MARK`).
    pub mark: u32,
    /// Whether its SYN is what is unacknowledged.
    pub connects: bool,
    /// What was acknowledged, delivered and received so far: it changes whenever anything arrives.
    pub progress: (u64, u32, u64),
}

/// What an attempt to end a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its application was notified (`ECONNABORTED`), and its other end too, if a reset reaches it.
    Now,
    /// It had ended by itself.
    Before,
}

/// `INET_DIAG_ULP_INFO` of include/uapi/linux/inet_diag.h: a subflow of MPTCP has it, and so has a connection under kTLS.
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_MPTCP: u16 = 3;
/// The bits of an attribute's type that show what it is.
const KIND: u16 = 0x3fff;

/// The ends of no socket.
const NO_SOCKET: SocketId = SocketId {
    source_port: 0,
    destination_port: 0,
    source_address: IpAddr::V4(Ipv4Addr::BROADCAST),
    destination_address: IpAddr::V4(Ipv4Addr::BROADCAST),
    interface_id: 0,
    cookie: [0; 8],
};

/// What a kernel lacks that ends no connections.
const NEEDS_DESTROY: &str = "ending connections needs CONFIG_INET_DIAG_DESTROY";

impl Unanswered {
    /// One of this cookie for tests of those who decide, of which this number of bytes was acknowledged; it names no socket.
    #[doc(hidden)]
    pub fn example(cookie: u64, acknowledged: u64) -> Self {
        let (local, remote) = (SocketAddr::from(([10, 9, 0, 1], 1)), SocketAddr::from(([10, 2, 0, 1], 443)));
        let id = SocketId { cookie: cookie.to_ne_bytes(), ..NO_SOCKET };
        let progress = (acknowledged, 0, 0);
        Unanswered { id: (AF_INET, id), local, remote, cookie, mark: 0, connects: false, progress }
    }
}

impl SockDiag {
    /// The connections of the namespace, of both families, that have waited for an answer for a timeout at least: those
    /// that are established, and those whose SYN is not answered. Subflows of MPTCP are left out.
    pub fn unanswered(&mut self) -> Result<Vec<Unanswered>> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            self.dump(family, |payload| {
                found.extend(read(payload)?);
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// The connection as it is now; `None` if it has ended, or waits for no answer any more.
    pub fn look_again(&mut self, connection: &Unanswered) -> Result<Option<Unanswered>> {
        match self.exchange(SOCK_DIAG_BY_FAMILY, 0, &connection.id) {
            Ok(Some(payload)) => read(&payload),
            Ok(None) => Ok(None),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(asking(error)),
        }
    }

    /// Ends a connection: its application gets `ECONNABORTED` from its next call, and a reset goes to the other end.
    ///
    /// Needs `CAP_NET_ADMIN` in the namespace, and a kernel with `CONFIG_INET_DIAG_DESTROY`.
    pub fn destroy(&mut self, connection: &Unanswered) -> Result<Ended> {
        match self.exchange(SOCK_DESTROY, NLM_F_ACK, &connection.id) {
            Ok(_) => Ok(Ended::Now),
            Err(error) if is_gone(&error) => Ok(Ended::Before),
            Err(error) => {
                let what = format!("ending the connection from {} to {}", connection.local, connection.remote);
                Err(LinuxError::new(what, error, NEEDS_DESTROY))
            }
        }
    }

    /// Whether the kernel can end connections at all. It needs no privilege to ask; to end one takes `CAP_NET_ADMIN`.
    pub fn can_destroy(&mut self) -> Result<()> {
        // The kernel reports that there is no such socket only if it could end one.
        match self.exchange(SOCK_DESTROY, NLM_F_ACK, &(AF_INET, NO_SOCKET)) {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(LinuxError::new("asking whether connections can be ended", error, NEEDS_DESTROY)),
        }
    }

    /// Sends a request about one socket, and returns the answer; none to a request that has only a status.
    fn exchange(&mut self, kind: u16, flags: u16, (family, id): &(u8, SocketId)) -> io::Result<Option<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = InetRequest {
            family: *family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::all(),
            socket_id: id.clone(),
        };
        let mut payload = vec![0; request.buffer_len()];
        request.emit(&mut payload);
        self.socket.send(&frame(kind, NLM_F_REQUEST | flags, self.sequence, &payload), 0)?;
        loop {
            let length = self.socket.recv(&mut &mut self.buffer[..], libc::MSG_TRUNC)?;
            let datagram = self.buffer.get(..length).ok_or_else(invalid)?;
            if let Some(answer) = read_answer(datagram, self.sequence)? {
                return Ok(answer);
            }
        }
    }
}

/// A netlink message: libraries know no message of this type.
fn frame(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = (HEADER + payload.len()) as u32;
    let mut frame = length.to_ne_bytes().to_vec();
    frame.extend([kind, flags].map(u16::to_ne_bytes).concat());
    frame.extend([sequence, 0].map(u32::to_ne_bytes).concat());
    frame.extend(payload);
    frame
}

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// The answer to the request of this number: a payload, or nothing but that it was done. `None` if it is not among these.
fn read_answer(mut rest: &[u8], sequence: u32) -> io::Result<Option<Option<Vec<u8>>>> {
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|_| invalid())?;
        let (payload, length) = (message.payload(), message.length() as usize);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if message.sequence_number() != sequence {
            continue;
        }
        match message.message_type() {
            SOCK_DIAG_BY_FAMILY => return Ok(Some(Some(payload.to_vec()))),
            NLMSG_ERROR | NLMSG_DONE => {
                let status = payload.first_chunk().ok_or_else(invalid)?;
                return match i32::from_ne_bytes(*status) {
                    0 => Ok(Some(None)),
                    errno => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
                };
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Reads one socket; `None` if it does not wait for an answer.
fn read(payload: &[u8]) -> Result<Option<Unanswered>> {
    let header = InetResponseHeader::parse(payload).map_err(|_| malformed("a socket's header is wrong"))?;
    let state = TcpState::from(header.state);
    if !matches!(state, TcpState::Established | TcpState::SynSent) {
        return Ok(None);
    }
    let (mut info, mut mark, mut unacked) = (None, 0, 0);
    for attribute in NlasIterator::new(payload.get(size_of::<InetResponseBuffer>()..).unwrap_or_default()) {
        let attribute = attribute.map_err(|_| malformed("an attribute is cut short"))?;
        let word = |at: usize| Some(u32::from_ne_bytes(*attribute.value().get(at..)?.first_chunk()?));
        match attribute.kind() {
            INET_DIAG_INFO => {
                info = TcpInfo::parse(attribute.value());
                unacked = word(offset_of!(tcp_info, tcpi_unacked)).unwrap_or(0);
            }
            INET_DIAG_MARK => mark = word(0).ok_or_else(|| malformed("a mark is cut short"))?,
            INET_DIAG_ULP_INFO if is_subflow(attribute.value()) => return Ok(None),
            _ => {}
        }
    }
    let id = header.socket_id;
    let end = |address: IpAddr, port| SocketAddr::new(address.to_canonical(), port);
    Ok(info.filter(|info| unacked > 0 && info.timeouts > 0).map(|info| Unanswered {
        local: end(id.source_address, id.source_port),
        remote: end(id.destination_address, id.destination_port),
        cookie: u64::from_ne_bytes(id.cookie),
        id: (header.family, id),
        mark,
        connects: state == TcpState::SynSent,
        progress: (info.bytes_acked, info.delivered, info.bytes_received),
    }))
}

fn is_subflow(ulp: &[u8]) -> bool {
    NlasIterator::new(ulp).flatten().any(|attribute| attribute.kind() & KIND == INET_ULP_INFO_MPTCP)
}

/// Whether the kernel knows no such socket.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is cut short")
}

fn asking(error: io::Error) -> LinuxError {
    LinuxError::io("asking for a TCP socket", error)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{
        netns::NetNs,
        testing::{cable, eventually, ip, root_or_skip},
    };

    /// A connection to an address of the other node, which has it no more once it is open.
    fn deaf(far: &NetNs, address: &str) -> TcpStream {
        let listener = far.run(|| Ok(TcpListener::bind((address, 0)).unwrap())).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ip(far, "addr flush dev in");
        client.write_all(b"no answer").unwrap();
        client
    }

    #[test]
    fn a_connection_without_answers_is_found_and_ended_and_its_application_is_notified() {
        if !root_or_skip("ending connections") {
            return;
        }
        for address in ["10.9.0.2", "fd09:0:0:9::2", "::ffff:10.9.0.2"] {
            let [near, far] = [(); 2].map(|()| NetNs::create().unwrap());
            cable((&near, "out"), (&far, "in"), "10.9.0", "fd09:0:0:9");
            let inside = || {
                let mut client = deaf(&far, address);
                client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let mut diag = SockDiag::open().unwrap();
                diag.can_destroy().unwrap();
                let local = client.local_addr().unwrap();
                let found = eventually("a timeout", Duration::from_secs(20), || {
                    diag.unanswered().unwrap().into_iter().find(|one| one.local.port() == local.port())
                });
                assert!(found.local.ip() == local.ip().to_canonical() && !found.connects, "{found:?}");
                let mut other = found.clone();
                other.id.1.cookie = [7; 8];
                assert_eq!(diag.destroy(&other).unwrap(), Ended::Before, "a socket of another cookie is another one");
                assert_eq!(diag.look_again(&found).unwrap(), Some(found.clone()), "nothing has happened since");
                assert_eq!(diag.destroy(&found).unwrap(), Ended::Now);
                let told = client.read(&mut [0]).unwrap_err();
                assert_eq!(told.raw_os_error(), Some(libc::ECONNABORTED), "{address}: {told}");
                assert_eq!(diag.look_again(&found).unwrap(), None);
                assert_eq!(diag.destroy(&found).unwrap(), Ended::Before);
                Ok(())
            };
            near.run(inside).unwrap();
        }
    }

    #[test]
    fn a_connection_that_is_answered_waits_for_nothing() {
        if !root_or_skip("connections that are answered") {
            return;
        }
        let node = NetNs::create().unwrap();
        let inside = || {
            ip(&node, "link set lo up");
            let listener = TcpListener::bind("[::1]:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(b"x").unwrap();
            assert_eq!(SockDiag::open().unwrap().unanswered().unwrap(), []);
            Ok(())
        };
        node.run(inside).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes: Vec<u8>) {
            let _ = (read(&bytes), read_answer(&bytes, 0), is_subflow(&bytes));
        }
    }
}
