//! Multipath TCP: the kernel's path manager of a network namespace, what a path manager in userspace needs, and what the
//! kernel knows of a connection.
//!
//! [`PathManager`] sets up the kernel's own. A program that manages paths itself sets [`ManagerSetting`], listens at
//! [`EventSocket`], asks for subflows by [`SubflowRequests`], and lists those that exist by [`tcp_ends`].

mod events;
mod host;
mod requests;
mod subflows;
mod sysctl;

use std::{
    io,
    net::Ipv6Addr,
    os::fd::{AsFd, AsRawFd},
};

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NetlinkMessage,
    NlasIterator,
};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

pub use self::{
    events::{Ends, EventSocket, FirstSubflow, MptcpChange, MptcpEvent, Received, Token, read_events},
    host::{HostAddress, HostQueries},
    requests::{NewSubflow, Refusal, RefusalKind, SubflowRequests},
    subflows::{Subflow, TcpEnds, Window, tcp_ends},
    sysctl::{ManagerSetting, port_range},
};
use crate::{
    error::{LinuxError, Result},
    sock_diag::TcpInfo,
};

/// The most subflows that the kernel's path manager adds to a connection's first (`MPTCP_PM_ADDR_MAX`).
pub const MAX_FURTHER_SUBFLOWS: u32 = 8;

/// What a path manager does with an address of its host; see ip-mptcp(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Connections that the host opens get a subflow from it to each address of the other host.
    Fullmesh,
    /// The host announces it to the other end of its connections.
    Signal,
    /// The host announces it, and opens a subflow from it.
    Both,
}

/// The path manager of the network namespace in which it was opened.
#[derive(Debug)]
pub struct PathManager {
    socket: Socket,
    family: u16,
}

/// What the kernel's `MPTCP_INFO` contains about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpInfo {
    /// Subflows in addition to the first.
    pub further_subflows: u8,
    /// Whether the connection is plain TCP, because the other end or the network does not have MPTCP.
    pub fallback: bool,
    /// Payload bytes that the other end acknowledged.
    pub bytes_acked: u64,
}

impl PathManager {
    /// Opens the path manager of the calling thread's namespace.
    pub fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(refused)?;
        socket.bind_auto().map_err(refused)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(refused)?;
        let family = resolve(&socket)?.id;
        Ok(PathManager { socket, family })
    }

    /// Lets connections have `further_subflows` in addition to their first, and believe this number of `announced` addresses; at
    /// most [`MAX_FURTHER_SUBFLOWS`].
    pub fn set_limits(&self, further_subflows: u32, announced: u32) -> Result<()> {
        let attributes = vec![number(ATTR_SUBFLOWS, further_subflows), number(ATTR_RCV_ADD_ADDRS, announced)];
        self.command(CMD_SET_LIMITS, attributes)
    }

    /// Adds an address of the host's that connections may use in addition to the one that they began with.
    pub fn add_endpoint(&self, address: Ipv6Addr, endpoint: Endpoint) -> Result<()> {
        let flags: u32 = match endpoint {
            Endpoint::Fullmesh => FLAG_SUBFLOW | FLAG_FULLMESH,
            Endpoint::Signal => FLAG_SIGNAL,
            Endpoint::Both => FLAG_SIGNAL | FLAG_SUBFLOW,
        };
        let family = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        let address = [
            DefaultNla::new(ADDR_ATTR_FAMILY, family),
            DefaultNla::new(ADDR_ATTR_ADDR6, address.octets().to_vec()),
            number(ADDR_ATTR_FLAGS, flags),
        ];
        let mut bytes = vec![0; address.as_slice().buffer_len()];
        address.as_slice().emit(&mut bytes);
        self.command(CMD_ADD_ADDR, vec![DefaultNla::new(ATTR_ADDR | NLA_F_NESTED, bytes)])
    }

    fn command(&self, command: u8, attributes: Vec<DefaultNla>) -> Result<()> {
        ask(&self.socket, self.family, Request { command, attributes }, NLM_F_REQUEST | NLM_F_ACK).map(drop)
    }
}

impl MptcpInfo {
    /// Reads the state of an MPTCP socket (`getsockopt(MPTCP_INFO)`; Linux 6.5 and later have all of it).
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; 512];
        let known = option(socket, MPTCP_INFO, &mut bytes)?;
        let parsed = Self::parse(known);
        parsed.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "MPTCP_INFO is too short"))
    }

    /// Reads the kernel's `struct mptcp_info`; `None` if it is shorter than what is needed of it.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let flags = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
        let bytes_acked = u64::from_ne_bytes(*bytes.get(72..)?.first_chunk()?);
        Some(MptcpInfo { further_subflows: *bytes.first()?, fallback: flags & FLAG_FALLBACK != 0, bytes_acked })
    }
}

/// Reads what TCP knows of each subflow that an MPTCP socket has now (`getsockopt(MPTCP_TCPINFO)`).
pub fn subflows(socket: impl AsFd) -> io::Result<Vec<TcpInfo>> {
    let mut bytes = [0; 16 + 9 * SUBFLOW_INFO];
    // The lengths of this head and of each struct tcp_info; the kernel fills in the two between them.
    for (at, word) in [(0, 16), (12, SUBFLOW_INFO as u32)] {
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }
    Ok(tcp_infos(option(socket, MPTCP_TCPINFO, &mut bytes)?))
}

/// The infos behind a head that contains how long each is: an older kernel's are shorter.
fn tcp_infos(answer: &[u8]) -> Vec<TcpInfo> {
    let length = answer.get(12..).and_then(|rest| rest.first_chunk()).map_or(0, |length| u32::from_ne_bytes(*length));
    let infos = answer.get(16..).unwrap_or_default();
    infos.chunks_exact((length as usize).max(1)).filter_map(TcpInfo::parse).collect()
}

/// Generic netlink's own family (include/uapi/linux/genetlink.h), and the length of its header.
const CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
const GENERIC_HEADER: usize = 4;

/// The path manager's family, its commands and attributes (include/uapi/linux/mptcp_pm.h).
const FAMILY: &str = "mptcp_pm";
const CMD_ADD_ADDR: u8 = 1;
const CMD_SET_LIMITS: u8 = 5;
const ATTR_ADDR: u16 = 1;
const ATTR_RCV_ADD_ADDRS: u16 = 2;
const ATTR_SUBFLOWS: u16 = 3;
const ADDR_ATTR_FAMILY: u16 = 1;
const ADDR_ATTR_ADDR6: u16 = 4;
const ADDR_ATTR_FLAGS: u16 = 6;
const FLAG_SIGNAL: u32 = 1;
const FLAG_SUBFLOW: u32 = 1 << 1;
const FLAG_FULLMESH: u32 = 1 << 3;

/// Options of MPTCP sockets (include/uapi/linux/mptcp.h).
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const MPTCP_TCPINFO: libc::c_int = 2;
const FLAG_FALLBACK: u32 = 1;
/// As much of each struct tcp_info as [`TcpInfo`] reads, which must be a multiple of eight.
const SUBFLOW_INFO: usize = TcpInfo::READ;
const _: () = assert!(SUBFLOW_INFO.is_multiple_of(8));

/// A command to a family of generic netlink.
#[derive(Clone, Debug)]
struct Request {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Request {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Request {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// The path manager's family: its number, and those of its groups of events.
struct Family {
    id: u16,
    groups: Vec<(String, u32)>,
}

impl Family {
    fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
    }
}

/// Asks for the path manager's family, at a socket that is not connected to the kernel or is.
fn resolve(socket: &Socket) -> Result<Family> {
    let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, [FAMILY.as_bytes(), b"\0"].concat());
    let query = Request { command: CTRL_CMD_GETFAMILY, attributes: vec![name] };
    let answer = ask(socket, CTRL, query, NLM_F_REQUEST)?;
    read_family(answer.get(GENERIC_HEADER..).unwrap_or_default())
        .ok_or_else(|| refused(io::ErrorKind::InvalidData.into()))
}

fn read_family(attributes: &[u8]) -> Option<Family> {
    let (mut id, mut groups) = (None, Vec::new());
    for attribute in NlasIterator::new(attributes).flatten() {
        match attribute.kind() {
            CTRL_ATTR_FAMILY_ID => id = attribute.value().first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)),
            CTRL_ATTR_MCAST_GROUPS => {
                groups.extend(
                    NlasIterator::new(attribute.value()).flatten().filter_map(|group| read_group(group.value())),
                );
            }
            _ => {}
        }
    }
    Some(Family { id: id?, groups })
}

fn read_group(attributes: &[u8]) -> Option<(String, u32)> {
    let find = |kind| NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == kind);
    let name = String::from_utf8_lossy(find(CTRL_ATTR_MCAST_GRP_NAME)?.value()).trim_end_matches('\0').to_string();
    let id = u32::from_ne_bytes(*find(CTRL_ATTR_MCAST_GRP_ID)?.value().first_chunk()?);
    Some((name, id))
}

/// Sends a request.
fn send(socket: &Socket, family: u16, request: Request, flags: u16, sequence: u32) -> io::Result<()> {
    let mut message = GenlMessage::from_payload(request);
    message.set_resolved_family_id(family);
    let mut message = NetlinkMessage::from(message);
    message.header.flags = flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
}

/// Sends a request, and returns the payload of the first answer.
fn ask(socket: &Socket, family: u16, request: Request, flags: u16) -> Result<Vec<u8>> {
    send(socket, family, request, flags, 0).map_err(refused)?;
    let (answer, _) = socket.recv_from_full().map_err(refused)?;
    let malformed = || refused(io::ErrorKind::InvalidData.into());
    let answer = NetlinkBuffer::new_checked(answer.as_slice()).map_err(|_| malformed())?;
    if answer.message_type() == NLMSG_ERROR {
        let status = answer.payload().first_chunk().ok_or_else(malformed)?;
        match i32::from_ne_bytes(*status) {
            0 => {}
            errno => return Err(refused(io::Error::from_raw_os_error(errno.saturating_neg()))),
        }
    }
    Ok(answer.payload().to_vec())
}

fn refused(source: io::Error) -> LinuxError {
    if source.raw_os_error() == Some(libc::ENOENT) {
        let what = "asking for MPTCP's path manager".into();
        return LinuxError::Missing { what, needs: "it needs CONFIG_MPTCP and CONFIG_MPTCP_IPV6" };
    }
    LinuxError::new("setting up MPTCP's path manager", source, "it needs CONFIG_MPTCP and CONFIG_MPTCP_IPV6")
}

/// Reads an option of MPTCP's, as far as `bytes` has room.
fn option(socket: impl AsFd, name: libc::c_int, bytes: &mut [u8]) -> io::Result<&[u8]> {
    let mut length = bytes.len() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: both pointers are to memory that outlives the call, and `length` is the size of `bytes`.
    let result = unsafe { libc::getsockopt(socket, SOL_MPTCP, name, bytes.as_mut_ptr().cast(), &mut length) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.get(..length as usize).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_infos_of_subflows_are_as_long_as_their_head_says() {
        let answer = |length: usize, count: usize, timeouts: u16| {
            let mut one = vec![0; length];
            one.iter_mut().skip(240).zip(timeouts.to_ne_bytes()).for_each(|(at, byte)| *at = byte);
            let head = [16, count as u32, 248, length as u32].map(u32::to_ne_bytes).concat();
            [head, one.repeat(count)].concat()
        };
        let timeouts = |answer: &[u8]| tcp_infos(answer).iter().map(|info| info.timeouts_total).collect::<Vec<_>>();
        assert_eq!(timeouts(&answer(SUBFLOW_INFO, 2, 3)), [Some(3), Some(3)]);
        // Linux 6.1's do not have it.
        assert_eq!(timeouts(&answer(240, 2, 0)), [None, None]);
        for short in [answer(0, 3, 0), answer(100, 3, 0), vec![0; 12], Vec::new()] {
            assert_eq!(timeouts(&short), [], "{}", short.len());
        }
    }
}
