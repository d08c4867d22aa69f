//! The socket of a prober: its options, the kernel's timestamps, and its queue of errors.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sys::{
        socket::{
            ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
        },
        time::TimeSpec,
    },
};
use sidestep_net::Time;
use sidestep_proto::stamp::WallTime;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Method, Spec, address_of, readings};
use crate::error::{LinuxError, Result};

/// Room for the control messages of one packet: three timestamps of 16 bytes, an error with the address of its sender, and more.
const CONTROL: usize = 256;

/// A socket of one target, which never waits.
#[derive(Debug)]
pub(super) struct ProbeSocket {
    socket: Socket,
    target: SocketAddr,
    /// Given with each packet where the socket is not connected.
    towards: Option<SockAddr>,
    kind: Kind,
    /// Whether the kernel reports when probes leave.
    stamps: bool,
    /// The number of the probe that the kernel calls 0.
    first: u32,
    control: Box<[u8; CONTROL]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Udp,
    /// The kernel chooses the identifier, and sorts the answers by it.
    Ping,
    /// It gets all echo replies of its target.
    Raw,
}

/// What the kernel has for the prober.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incoming {
    /// A packet, in the buffer.
    Packet(Received),
    /// When a probe entered the queue of its device.
    Stamp { sequence: u32, at: WallTime },
    /// An ICMP error; what it quotes behind the IP and UDP headers is in the buffer.
    Error { kind: u8, code: u8, by: Option<IpAddr>, length: usize },
}

/// A packet that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) length: usize,
    /// When the process had it.
    pub(super) now: Time,
    /// The same by the clock that shows the date.
    pub(super) wall: WallTime,
    /// When the kernel had it.
    pub(super) stamp: Option<WallTime>,
}

impl ProbeSocket {
    /// Opens the socket as `spec` describes it; echo requests will have this identifier where the kernel chooses none.
    pub(super) fn open(spec: &Spec, identifier: u16) -> Result<Self> {
        let target = address_of(spec);
        let what = || format!("opening a socket for probes of {}", spec.target);
        let failed = |error: io::Error| LinuxError::io(what(), error);
        let (socket, kind) = make(spec).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        if let Some(mark) = spec.mark {
            setsockopt(&socket, sockopt::Mark, &mark).map_err(|error| failed(error.into()))?;
        }
        let pinned = match &spec.device {
            Some(device) if spec.any_return => {
                leave_by(&socket, spec.target, device).map_err(|error| on_device(&what(), device, error))?;
                true
            }
            Some(device) => {
                let bound = socket.bind_device(Some(device.as_bytes()));
                bound.map_err(|error| on_device(&what(), device, error))?;
                false
            }
            None => false,
        };
        if let Some(source) = spec.source {
            let source = SocketAddr::new(source, 0);
            socket.bind(&source.into()).map_err(|error| LinuxError::io(format!("{} from {source}", what()), error))?;
        }
        report_errors(&socket, target).map_err(failed)?;
        if kind == Kind::Raw {
            pass_echo_replies(&socket, target).map_err(failed)?;
            pass_identifier(&socket, target, identifier).map_err(failed)?;
        }
        // A connected socket gets nothing from strangers. Its route is that of its connection, though, and that goes by the device
        // for all that is received, too: a socket for answers by any device is not connected.
        if !pinned {
            socket.connect(&target.into()).map_err(failed)?;
        }
        let mut probe_socket = ProbeSocket {
            socket,
            target,
            towards: pinned.then(|| target.into()),
            kind,
            stamps: false,
            first: 0,
            control: Box::new([0; CONTROL]),
        };
        probe_socket.renumber(0);
        Ok(probe_socket)
    }

    pub(super) fn target(&self) -> IpAddr {
        self.target.ip()
    }

    /// Whether packets come with their IP header.
    pub(super) fn has_ip_header(&self) -> bool {
        self.kind == Kind::Raw && self.target.is_ipv4()
    }

    /// Whether an echo is this socket's, by its identifier: `ours`, or the one that the kernel has chosen.
    pub(super) fn is_identifier(&self, identifier: u16, ours: u16) -> bool {
        match self.kind {
            Kind::Ping => {
                let local = self.socket.local_addr().ok().and_then(|address| address.as_socket());
                local.is_some_and(|local| local.port() == identifier)
            }
            _ => identifier == ours,
        }
    }

    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        let sent = match &self.towards {
            Some(target) => self.socket.send_to(packet, target),
            None => self.socket.send(packet),
        };
        sent.map(drop)
    }

    /// Makes the kernel count timestamps from 0 again, for the probe with the number `first`: it may have counted one that was
    /// not sent.
    pub(super) fn renumber(&mut self, first: u32) {
        self.first = first;
        let off = TimestampingFlag::empty();
        let on = TimestampingFlag::from_bits_retain(
            libc::SOF_TIMESTAMPING_SOFTWARE
                | libc::SOF_TIMESTAMPING_RX_SOFTWARE
                | libc::SOF_TIMESTAMPING_TX_SCHED
                | libc::SOF_TIMESTAMPING_OPT_ID
                | libc::SOF_TIMESTAMPING_OPT_TSONLY,
        );
        let set = |flags| setsockopt(&self.socket, sockopt::Timestamping, &flags);
        self.stamps = set(off).and_then(|()| set(on)).is_ok();
    }

    /// What has come; `None` if nothing has.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Incoming>> {
        loop {
            if let Some(incoming) = self.next_error(buffer)? {
                return Ok(Some(incoming));
            }
            let mut parts = [IoSliceMut::new(buffer)];
            let control = self.control.as_mut_slice();
            match recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(control), MsgFlags::MSG_DONTWAIT)
            {
                Ok(message) => {
                    let (now, wall) = readings();
                    return Ok(Some(Incoming::Packet(Received {
                        length: message.bytes,
                        now,
                        wall,
                        stamp: software_stamp(&message),
                    })));
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                // An ICMP error for an earlier probe: it is in the queue of errors.
                Err(error) if is_of_the_path(error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next timestamp or ICMP error of the queue of errors.
    fn next_error(&mut self, buffer: &mut [u8]) -> io::Result<Option<Incoming>> {
        loop {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_ERRQUEUE;
            let mut parts = [IoSliceMut::new(buffer)];
            let control = self.control.as_mut_slice();
            let message = match recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(control), flags) {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some((error, by)) = extended_error(&message) else { continue };
            match error.ee_origin {
                libc::SO_EE_ORIGIN_TIMESTAMPING => {
                    let Some(at) = software_stamp(&message) else { continue };
                    return Ok(Some(Incoming::Stamp { sequence: self.first.wrapping_add(error.ee_data), at }));
                }
                libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => {
                    let (kind, code, length) = (error.ee_type, error.ee_code, message.bytes);
                    return Ok(Some(Incoming::Error { kind, code, by, length }));
                }
                // The kernel's own: the call that sent the probe has failed, too.
                _ => {}
            }
        }
    }
}

impl AsFd for ProbeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket for the method. ICMP goes by the kernel's own kind of socket where the process may have one, else by a raw one.
fn make(spec: &Spec) -> io::Result<(Socket, Kind)> {
    let (domain, icmp) = match spec.target {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    if spec.method != Method::Icmp {
        return Ok((Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?, Kind::Udp));
    }
    match Socket::new(domain, Type::DGRAM, Some(icmp)) {
        Ok(socket) => Ok((socket, Kind::Ping)),
        Err(_) => Ok((Socket::new(domain, Type::RAW, Some(icmp))?, Kind::Raw)),
    }
}

/// Makes packets leave by a device, and lets others come in by any.
fn leave_by(socket: &Socket, target: IpAddr, device: &str) -> io::Result<()> {
    let index = if_nametoindex(device)?.to_be() as libc::c_int;
    match target {
        IpAddr::V4(_) => set_option(socket, libc::IPPROTO_IP, libc::IP_UNICAST_IF, index),
        IpAddr::V6(_) => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF, index),
    }
}

fn on_device(what: &str, device: &str, error: io::Error) -> LinuxError {
    LinuxError::io(format!("{what} by {device}"), error)
}

fn report_errors(socket: &Socket, target: SocketAddr) -> io::Result<()> {
    match target {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &true)?,
    }
    Ok(())
}

/// Makes a raw socket receive no messages but echo replies.
fn pass_echo_replies(socket: &Socket, target: SocketAddr) -> io::Result<()> {
    /// A bit for each type that is not passed on.
    const ALL_BUT_REPLIES: u32 = !1;
    // linux/icmp.h and linux/icmpv6.h.
    const ICMP_FILTER: libc::c_int = 1;
    const ICMPV6_FILTER: libc::c_int = 1;
    match target {
        SocketAddr::V4(_) => set_option(socket, libc::SOL_RAW, ICMP_FILTER, ALL_BUT_REPLIES),
        SocketAddr::V6(_) => {
            let mut all_but_replies = [u32::MAX; 8];
            if let Some(word) = all_but_replies.get_mut(129 / 32) {
                *word &= !(1 << (129 % 32));
            }
            set_option(socket, libc::SOL_ICMPV6, ICMPV6_FILTER, all_but_replies)
        }
    }
}

/// Makes a raw socket receive no echo replies but those with this identifier: else each socket of many would be woken for the
/// answers to all.
fn pass_identifier(socket: &Socket, target: SocketAddr, identifier: u16) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let (is_it, taken, refused) = (
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, identifier.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    );
    // Packets of IPv4 come with their header, of which the low half of the first byte contains the length in words.
    let mut program = match target {
        SocketAddr::V4(_) => vec![
            step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
            step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 4),
        ],
        SocketAddr::V6(_) => vec![step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 4)],
    };
    program.extend([is_it, taken, refused]);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

fn set_option<T: Copy>(socket: &Socket, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads the `size` bytes of `value`, which lives until the call returns.
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether an error of a call is about packets sent before, as ICMP has reported it.
fn is_of_the_path(error: Errno) -> bool {
    matches!(
        error,
        Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::ENETDOWN
            | Errno::EHOSTDOWN
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            | Errno::EMSGSIZE
            | Errno::EACCES
            | Errno::EOPNOTSUPP
            | Errno::ENONET
    )
}

fn software_stamp<S>(message: &RecvMsg<'_, '_, S>) -> Option<WallTime> {
    let stamps = message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampsns(stamps) => Some(stamps.system),
        _ => None,
    })?;
    at(stamps)
}

/// A timestamp of the kernel's; it is zero where there is none.
pub(crate) fn at(stamp: TimeSpec) -> Option<WallTime> {
    let nanos = u64::try_from(stamp.tv_sec()).ok()?.checked_mul(1_000_000_000)?;
    nanos.checked_add(u64::try_from(stamp.tv_nsec()).ok()?).filter(|nanos| *nanos > 0).map(WallTime::from_nanos)
}

fn extended_error<S>(message: &RecvMsg<'_, '_, S>) -> Option<(libc::sock_extended_err, Option<IpAddr>)> {
    message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, by) => {
            let by = by.filter(|by| i32::from(by.sin_family) == libc::AF_INET);
            Some((error, by.map(|by| IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(by.sin_addr.s_addr))))))
        }
        ControlMessageOwned::Ipv6RecvErr(error, by) => {
            let by = by.filter(|by| i32::from(by.sin6_family) == libc::AF_INET6);
            Some((error, by.map(|by| IpAddr::V6(Ipv6Addr::from(by.sin6_addr.s6_addr)))))
        }
        _ => None,
    })
}
