//! The socket of a session reflector (STAMP, RFC 8762): what comes to it, with the kernel's time and the TTL that is left.
//!
//! [`ReflectorSocket::readable`] waits until something may have come. [`ReflectorSocket::reflect`] makes a [`Reflector`] answer
//! what has come, and never waits. Answers leave from the address to which their requests came.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
};

use nix::{
    errno::Errno,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, TimestampingFlag, recvmsg, sendmsg,
        setsockopt, sockopt,
    },
};
use sidestep_proto::stamp::{Reflector, Request, SenderPacket, WallTime};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    error::{LinuxError, Result},
    monotonic_now,
    prober::{at, wall_now},
};

/// The longest packet that is answered: as much as an Ethernet frame carries, and more.
const MAX_PACKET: usize = 2_048;
/// Room for the control messages of one packet.
const CONTROL: usize = 256;

/// A UDP socket of a reflector.
#[derive(Debug)]
pub struct ReflectorSocket {
    socket: AsyncFd<Socket>,
    port: u16,
    buffer: Box<[u8; MAX_PACKET]>,
    answer: Box<[u8; MAX_PACKET]>,
    control: Box<[u8; CONTROL]>,
    /// The routing mark of answers.
    mark: u32,
}

/// What came of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reflected {
    /// Packets that came.
    pub received: u64,
    /// Answers that the kernel refused to send.
    pub unsent: u64,
    /// Packets without the kernel's time: the process's clock was read.
    pub unstamped: u64,
}

/// A packet that has come.
struct Arrived {
    from: SockaddrStorage,
    to: IpAddr,
    ttl: u8,
    stamp: Option<WallTime>,
    length: usize,
}

impl ReflectorSocket {
    /// Listens at an address; one of IPv6 gets nothing of IPv4. Needs a Tokio runtime, and `CAP_NET_BIND_SERVICE` for a port below
    /// 1024.
    pub fn listen(address: SocketAddr) -> Result<Self> {
        let failed = |error: io::Error| {
            let what = format!("listening for test packets at {address}");
            match error.raw_os_error() {
                Some(libc::EACCES) => {
                    let why = "a port below 1024 takes root or CAP_NET_BIND_SERVICE; or choose another port (--listen)";
                    LinuxError::Privilege { what, why: why.into() }
                }
                Some(libc::EADDRINUSE) => {
                    let other = "somebody else listens there; end that, or choose another port (--listen)";
                    LinuxError::io(what, io::Error::new(io::ErrorKind::AddrInUse, other))
                }
                _ => LinuxError::new(what, error, "IPv6 (CONFIG_IPV6)"),
            }
        };
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
        prepare(&socket, address).map_err(failed)?;
        let port = socket.local_addr().map_err(failed)?.as_socket().map_or(address.port(), |local| local.port());
        // SAFETY: the socket keeps its descriptor, and closes it only when it is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        let socket = socket.map_err(|error| failed(error.into()))?;
        let [buffer, answer] = [(); 2].map(|()| Box::new([0; MAX_PACKET]));
        Ok(ReflectorSocket { socket, port, buffer, answer, control: Box::new([0; CONTROL]), mark: 0 })
    }

    /// The port at which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until something may have come. Nothing is lost when it is dropped.
    pub async fn readable(&self) -> Result<()> {
        let ready = self.socket.readable().await;
        ready.map_err(|error| LinuxError::io("waiting for test packets", error)).map(|mut ready| ready.retain_ready())
    }

    /// Makes the reflector answer what has come, at most `most` packets; returns whether there may be more.
    pub fn reflect(&mut self, reflector: &mut Reflector, most: usize, counts: &mut Reflected) -> Result<bool> {
        self.reflect_by(reflector, most, counts, |_, _| Some(0))
    }

    /// The same, where `mark` has the routing mark of the answer to who sent a packet and the number of its session; no answer
    /// where it has none. A mark needs `CAP_NET_ADMIN`.
    pub fn reflect_by(
        &mut self,
        reflector: &mut Reflector,
        most: usize,
        counts: &mut Reflected,
        mark: impl Fn(IpAddr, u16) -> Option<u32>,
    ) -> Result<bool> {
        for _ in 0..most {
            let arrived = match self.receive() {
                Ok(Some(arrived)) => arrived,
                Ok(None) => return Ok(false),
                Err(error) => return Err(LinuxError::io("receiving test packets", error)),
            };
            counts.received += 1;
            counts.unstamped += u64::from(arrived.stamp.is_none());
            let Some(from) = socket_address(&arrived.from) else { continue };
            let Some(packet) = self.buffer.get(..arrived.length) else { continue };
            let session = SenderPacket::parse(packet).map_or(0, |(sender, _)| sender.session);
            let Some(mark) = mark(from.ip(), session) else { continue };
            let departs = wall_now();
            let request = Request {
                from,
                to: SocketAddr::new(arrived.to, self.port),
                ttl: arrived.ttl,
                received: arrived.stamp.unwrap_or(departs),
                packet,
            };
            let answered = reflector.handle_request(monotonic_now(), &request, departs, self.answer.as_mut_slice());
            let Some(answer) = answered.ok().and_then(|length| self.answer.get(..length)) else { continue };
            if mark != self.mark {
                let marked = setsockopt(self.socket.get_ref(), sockopt::Mark, &mark);
                marked.map_err(|error| LinuxError::io("marking answers of test packets", error))?;
                self.mark = mark;
            }
            counts.unsent += u64::from(self.send(answer, &arrived).is_err());
        }
        Ok(true)
    }

    fn receive(&mut self) -> io::Result<Option<Arrived>> {
        loop {
            let mut parts = [IoSliceMut::new(self.buffer.as_mut_slice())];
            let control = self.control.as_mut_slice();
            let fd = self.socket.get_ref().as_raw_fd();
            match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(control), MsgFlags::MSG_DONTWAIT) {
                // What is longer than the buffer is no test packet of anybody's.
                Ok(message) if message.flags.contains(MsgFlags::MSG_TRUNC) => {}
                Ok(message) => {
                    if let Some(arrived) = read(&message) {
                        return Ok(Some(arrived));
                    }
                }
                Err(Errno::EAGAIN) => {
                    // From now on `readable` waits.
                    let nothing = |_: &Socket| Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    let _ = self.socket.try_io(Interest::READABLE, nothing);
                    return Ok(None);
                }
                // An ICMP error about an answer means nothing for the next packet.
                Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends an answer from the address to which the request came.
    fn send(&self, answer: &[u8], arrived: &Arrived) -> io::Result<()> {
        let parts = [IoSlice::new(answer)];
        let (fd, flags, towards) = (self.socket.get_ref().as_raw_fd(), MsgFlags::MSG_DONTWAIT, Some(&arrived.from));
        match arrived.to {
            IpAddr::V4(own) => {
                let own = libc::in_addr { s_addr: u32::from(own).to_be() };
                let info =
                    libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: own, ipi_addr: libc::in_addr { s_addr: 0 } };
                sendmsg(fd, &parts, &[ControlMessage::Ipv4PacketInfo(&info)], flags, towards)?
            }
            IpAddr::V6(own) => {
                let own = libc::in6_addr { s6_addr: own.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: own, ipi6_ifindex: 0 };
                sendmsg(fd, &parts, &[ControlMessage::Ipv6PacketInfo(&info)], flags, towards)?
            }
        };
        Ok(())
    }
}

fn prepare(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
        setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
    }
    // Without it the process's clock is read, and the packets are counted.
    let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE;
    let _ = setsockopt(socket, sockopt::Timestamping, &flags);
    socket.bind(&address.into())
}

fn read(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<Arrived> {
    let (mut to, mut ttl, mut stamp) = (None, 255, None);
    for control in message.cmsgs().ok()? {
        match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                to = Some(IpAddr::V4(u32::from_be(info.ipi_spec_dst.s_addr).into()));
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => to = Some(IpAddr::V6(info.ipi6_addr.s6_addr.into())),
            ControlMessageOwned::Ipv4Ttl(left) | ControlMessageOwned::Ipv6HopLimit(left) => {
                ttl = u8::try_from(left).unwrap_or(u8::MAX);
            }
            ControlMessageOwned::ScmTimestampsns(stamps) => stamp = at(stamps.system),
            _ => {}
        }
    }
    Some(Arrived { from: message.address?, to: to?, ttl, stamp, length: message.bytes })
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = || address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4().or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}
