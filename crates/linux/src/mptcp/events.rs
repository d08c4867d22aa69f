//! What the kernel reports of MPTCP connections: their beginning and end, their subflows, addresses that the other end
//! announces.
//!
//! The kernel accepts further subflows of a connection with the userspace path manager only while a process listens here.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use tokio::io::{Interest, unix::AsyncFd};

use super::{GENERIC_HEADER, resolve};
use crate::error::{LinuxError, Result};

/// The kernel's name for an MPTCP connection in a network namespace, as long as the connection lives (RFC 8684, section
/// 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// The two ends of a subflow; addresses of IPv4 are never IPv6-mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MptcpEvent {
    /// The connection.
    pub token: Token,
    /// What happened.
    pub what: MptcpChange,
}

/// What can happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MptcpChange {
    /// It began with this subflow; further ones are not possible yet.
    Created(FirstSubflow),
    /// It is fully established: further subflows are possible.
    Established(FirstSubflow),
    /// It ended.
    Closed,
    /// The other end announces an address.
    Announced {
        /// The address's number at the other end.
        id: u8,
        /// The address.
        address: IpAddr,
        /// The port, where it is not that of the first subflow.
        port: Option<u16>,
    },
    /// The other end takes an address back.
    Removed {
        /// The address's number at the other end.
        id: u8,
    },
    /// A further subflow is established.
    SubflowEstablished(Ends),
    /// A subflow ended, or was never established.
    SubflowClosed {
        /// Its ends.
        ends: Ends,
        /// The error of its socket, as errno; zero if there was none.
        error: u8,
    },
}

/// How a connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstSubflow {
    /// The ends of its first subflow.
    pub ends: Ends,
    /// Whether the other end opened it.
    pub accepted: bool,
    /// Whether the other end forbids further subflows to this address and port of its (the flag C of RFC 8684, section
    /// 3.1).
    pub denies_first_address: bool,
}

/// What a look at the socket of events gives.
#[derive(Debug)]
pub enum Received {
    /// Events, in their order.
    Events(Vec<MptcpEvent>),
    /// Events were lost: the kernel had no room for them. None that came before is left.
    Overflow,
    /// Nothing more for now.
    Nothing,
}

/// A socket at which the kernel reports what happens to the MPTCP connections of a network namespace.
pub struct EventSocket {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
}

/// The kernel's group of events (include/uapi/linux/mptcp.h).
const EVENT_GROUP: &str = "mptcp_pm_events";
/// Longer than any datagram of events: each has one, of some hundred bytes.
const LONGEST: usize = 8 << 10;
/// More events than the kernel can keep.
const MAX_KEPT: usize = 1 << 20;

impl std::fmt::Debug for EventSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSocket").finish_non_exhaustive()
    }
}

impl EventSocket {
    /// Listens in the calling thread's network namespace; needs a Tokio runtime and CAP_NET_ADMIN.
    ///
    /// The kernel keeps at most `bytes` of events that are not read. By its count, that of a subflow takes about 800.
    pub fn open(bytes: usize) -> Result<Self> {
        let failed = |source| LinuxError::io("listening for events of MPTCP", source);
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        let family = resolve(&socket)?;
        let missing = || LinuxError::Missing {
            what: "listening for events of MPTCP".into(),
            needs: "its path manager reports none; Linux 5.12 and later do",
        };
        let group = family.group(EVENT_GROUP).ok_or_else(missing)?;
        // The kernel takes a C int.
        let bytes = bytes.min(libc::c_int::MAX as usize);
        setsockopt(&socket, RcvBufForce, &bytes).map_err(|error| failed(error.into()))?;
        socket.set_non_blocking(true).map_err(failed)?;
        // The room is made before anything comes.
        socket.add_membership(group).map_err(failed)?;
        // SAFETY: the socket keeps its descriptor, and closes it only when it is dropped.
        let socket = unsafe { AsyncFd::register(socket) }.map_err(|error| failed(error.into()))?;
        Ok(EventSocket { socket, buffer: Vec::new() })
    }

    /// Waits until there may be something to read. Nothing is lost when it is dropped.
    pub async fn readable(&self) -> Result<()> {
        let ready = self.socket.readable().await;
        ready
            .map_err(|source| LinuxError::io("waiting for events of MPTCP", source))
            .map(|mut ready| ready.retain_ready())
    }

    /// Reads at most `most` events that have come, without waiting.
    pub fn read(&mut self, most: usize) -> Result<Received> {
        let mut events = Vec::new();
        while events.len() < most {
            self.buffer.clear();
            self.buffer.reserve(LONGEST);
            let EventSocket { socket, buffer } = self;
            let ready = socket.try_io(Interest::READABLE, |socket| socket.recv(buffer, 0));
            // Tokio may not have looked at the socket yet.
            let ready = ready.or_else(|error| match error.kind() {
                io::ErrorKind::WouldBlock => socket.get_ref().recv(buffer, 0),
                _ => Err(error),
            });
            match ready {
                Ok(_) => read_events(buffer, |event| events.push(event)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    // The kernel reports further losses only when everything was read.
                    self.drain();
                    return Ok(Received::Overflow);
                }
                Err(error) => return Err(LinuxError::io("reading events of MPTCP", error)),
            }
        }
        Ok(if events.is_empty() { Received::Nothing } else { Received::Events(events) })
    }

    fn drain(&mut self) {
        for _ in 0..MAX_KEPT {
            self.buffer.clear();
            self.buffer.reserve(LONGEST);
            if self.socket.get_ref().recv(&mut self.buffer, libc::MSG_DONTWAIT).is_err() {
                break;
            }
        }
    }
}

/// Reads the events of one datagram; what is none, or is cut short, is passed over.
pub fn read_events(mut rest: &[u8], mut handle: impl FnMut(MptcpEvent)) {
    while let Ok(message) = NetlinkBuffer::new_checked(rest) {
        // Control messages are shorter numbers than those of families.
        if message.message_type() >= FIRST_FAMILY
            && let Some(event) = read_event(message.payload())
        {
            handle(event);
        }
        let length = message.length() as usize;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// The least number of a family of generic netlink (`GENL_MIN_ID`).
const FIRST_FAMILY: u16 = 16;

/// Events and their attributes (include/uapi/linux/mptcp_pm.h and mptcp.h).
const CREATED: u8 = 1;
const ESTABLISHED: u8 = 2;
const CLOSED: u8 = 3;
const ANNOUNCED: u8 = 6;
const REMOVED: u8 = 7;
const SUB_ESTABLISHED: u8 = 10;
const SUB_CLOSED: u8 = 11;
const ATTR_TOKEN: u16 = 1;
const ATTR_REM_ID: u16 = 4;
const ATTR_SADDR4: u16 = 5;
const ATTR_SADDR6: u16 = 6;
const ATTR_DADDR4: u16 = 7;
const ATTR_DADDR6: u16 = 8;
const ATTR_SPORT: u16 = 9;
const ATTR_DPORT: u16 = 10;
const ATTR_ERROR: u16 = 12;
const ATTR_FLAGS: u16 = 13;
const ATTR_SERVER_SIDE: u16 = 18;
const FLAG_DENY_JOIN_ID0: u16 = 1;
const FLAG_SERVER_SIDE: u16 = 1 << 1;

/// The attributes of an event that are of use.
#[derive(Default)]
struct Attributes {
    token: Option<u32>,
    remote_id: Option<u8>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
    error: u8,
    flags: u16,
    server_side: bool,
}

impl Attributes {
    fn read(bytes: &[u8]) -> Self {
        let mut read = Attributes::default();
        for attribute in NlasIterator::new(bytes).flatten() {
            let value = attribute.value();
            let address4 = || value.first_chunk().map(|bytes: &[u8; 4]| IpAddr::V4(Ipv4Addr::from(*bytes)));
            let address6 = || value.first_chunk().map(|bytes: &[u8; 16]| Ipv6Addr::from(*bytes).to_canonical());
            let port = || value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
            let byte = || value.first().copied();
            match attribute.kind() {
                ATTR_TOKEN => read.token = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)),
                ATTR_REM_ID => read.remote_id = byte(),
                ATTR_SADDR4 => read.source = address4(),
                ATTR_SADDR6 => read.source = address6(),
                ATTR_DADDR4 => read.destination = address4(),
                ATTR_DADDR6 => read.destination = address6(),
                ATTR_SPORT => read.source_port = port(),
                ATTR_DPORT => read.destination_port = port(),
                ATTR_ERROR => read.error = byte().unwrap_or_default(),
                ATTR_FLAGS => read.flags = value.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes)),
                ATTR_SERVER_SIDE => read.server_side = byte().is_some_and(|byte| byte != 0),
                _ => {}
            }
        }
        read
    }

    fn ends(&self) -> Option<Ends> {
        let local = SocketAddr::new(self.source?, self.source_port?);
        let remote = SocketAddr::new(self.destination?, self.destination_port?);
        (local.is_ipv4() == remote.is_ipv4()).then_some(Ends { local, remote })
    }

    fn first(&self) -> Option<FirstSubflow> {
        Some(FirstSubflow {
            ends: self.ends()?,
            // Linux 6.18 has it among the flags as well.
            accepted: self.server_side || self.flags & FLAG_SERVER_SIDE != 0,
            denies_first_address: self.flags & FLAG_DENY_JOIN_ID0 != 0,
        })
    }
}

fn read_event(payload: &[u8]) -> Option<MptcpEvent> {
    let attributes = Attributes::read(payload.get(GENERIC_HEADER..)?);
    let what = match *payload.first()? {
        CREATED => MptcpChange::Created(attributes.first()?),
        ESTABLISHED => MptcpChange::Established(attributes.first()?),
        CLOSED => MptcpChange::Closed,
        ANNOUNCED => MptcpChange::Announced {
            id: attributes.remote_id?,
            address: attributes.destination?,
            port: attributes.destination_port.filter(|port| *port != 0),
        },
        REMOVED => MptcpChange::Removed { id: attributes.remote_id? },
        SUB_ESTABLISHED => MptcpChange::SubflowEstablished(attributes.ends()?),
        SUB_CLOSED => MptcpChange::SubflowClosed { ends: attributes.ends()?, error: attributes.error },
        _ => return None,
    };
    Some(MptcpEvent { token: Token(attributes.token?), what })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DefaultNla, Emitable};
    use proptest::prelude::*;

    use super::*;

    /// A datagram with one event.
    fn datagram(command: u8, attributes: &[DefaultNla]) -> Vec<u8> {
        let mut payload = vec![0; GENERIC_HEADER + attributes.buffer_len()];
        payload[0] = command;
        attributes.emit(&mut payload[GENERIC_HEADER..]);
        let mut bytes = Vec::new();
        bytes.extend((16 + payload.len() as u32).to_ne_bytes());
        bytes.extend(0x1du16.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(payload);
        bytes
    }

    fn all(bytes: &[u8]) -> Vec<MptcpEvent> {
        let mut events = Vec::new();
        read_events(bytes, |event| events.push(event));
        events
    }

    fn attributes() -> Vec<DefaultNla> {
        vec![
            DefaultNla::new(ATTR_TOKEN, 7u32.to_ne_bytes().to_vec()),
            DefaultNla::new(ATTR_SADDR6, "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets().to_vec()),
            DefaultNla::new(ATTR_DADDR4, vec![10, 0, 0, 2]),
            DefaultNla::new(ATTR_SPORT, 40_000u16.to_be_bytes().to_vec()),
            DefaultNla::new(ATTR_DPORT, 80u16.to_be_bytes().to_vec()),
            DefaultNla::new(ATTR_FLAGS, 1u16.to_ne_bytes().to_vec()),
        ]
    }

    #[test]
    fn an_event_reports_what_happened_to_which_connection() {
        let ends = Ends { local: "10.0.0.1:40000".parse().unwrap(), remote: "10.0.0.2:80".parse().unwrap() };
        let first = FirstSubflow { ends, accepted: false, denies_first_address: true };
        let established = datagram(ESTABLISHED, &attributes());
        assert_eq!(all(&established), [MptcpEvent { token: Token(7), what: MptcpChange::Established(first) }]);
        let mut server = attributes();
        server.push(DefaultNla::new(ATTR_SERVER_SIDE, vec![1]));
        let two = [established, datagram(CREATED, &server)].concat();
        assert_eq!(all(&two)[1].what, MptcpChange::Created(FirstSubflow { accepted: true, ..first }));
        let closed = datagram(SUB_CLOSED, &[attributes(), vec![DefaultNla::new(ATTR_ERROR, vec![110])]].concat());
        assert_eq!(all(&closed)[0].what, MptcpChange::SubflowClosed { ends, error: 110 });
        let without_ends = datagram(SUB_CLOSED, &attributes()[..2]);
        assert_eq!(all(&without_ends), []);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes: Vec<u8>) {
            all(&bytes);
        }

        #[test]
        fn no_damaged_event_panics_the_reader(command: u8, at in 0usize..100, value: u8, length in 0usize..120) {
            let mut bytes = datagram(command, &attributes());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(length);
            all(&bytes);
        }
    }
}
