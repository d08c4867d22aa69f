//! How large a packet may be that gets to a target and may not be fragmented on its path.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsRawFd,
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use sidestep_net::Span;
use sidestep_proto::echo::{self, Family, Payload};
use socket2::{Domain, Protocol, Socket, Type};

use crate::monotonic_now;

/// What gets through to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Packets as large as the interface takes.
    All,
    /// Packets of `mtu` bytes at most, as a host reports, or the kernel, which was notified before.
    Reported { mtu: u32, by: Option<IpAddr> },
    /// Packets of about `mtu` bytes at most; larger ones vanish.
    Hole { mtu: u32 },
    /// No packet of any size was answered.
    Silent,
}

/// The smallest packet that is sent, and how exactly the largest one is sought.
const SMALL: u32 = 84;
const EXACT: u32 = 8;
/// So often a packet is sent before it counts as lost.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);
const SHORTEST_WAIT: Span = Span::from_millis(100);
const LONGEST_WAIT: Span = Span::from_millis(700);
/// The largest packet of IP.
const LARGEST: usize = 65_535;
const IP_PMTUDISC_PROBE: libc::c_int = 3;

/// Asks `target` by echoes that leave by `dev`, whose packets have `mtu` bytes at most.
pub fn reach(target: IpAddr, dev: &str, mark: Option<u32>, mtu: u32) -> io::Result<Reach> {
    let mut asker = Asker::open(target, dev, mark)?;
    let Some(rtt) = asker.ask(SMALL.min(mtu), LONGEST_WAIT)?.answered() else { return Ok(Reach::Silent) };
    let wait = (rtt * 4).max(SHORTEST_WAIT).min(LONGEST_WAIT);
    match asker.ask(mtu, wait)? {
        Outcome::Answered(_) => return Ok(Reach::All),
        Outcome::TooBig { mtu, by } => return Ok(Reach::Reported { mtu, by }),
        Outcome::Lost => {}
    }
    let (mut passes, mut vanishes) = (SMALL, mtu);
    while vanishes - passes > EXACT {
        let between = passes.midpoint(vanishes);
        match asker.ask(between, wait)? {
            Outcome::Answered(_) => passes = between,
            Outcome::TooBig { mtu, by } => return Ok(Reach::Reported { mtu, by }),
            Outcome::Lost => vanishes = between,
        }
    }
    Ok(Reach::Hole { mtu: passes })
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Answered(Span),
    TooBig { mtu: u32, by: Option<IpAddr> },
    Lost,
}

impl Outcome {
    fn answered(self) -> Option<Span> {
        if let Outcome::Answered(rtt) = self { Some(rtt) } else { None }
    }
}

struct Asker {
    socket: Socket,
    family: Family,
    is_raw: bool,
    nonce: u64,
    next: u32,
    buffer: Vec<u8>,
}

impl Asker {
    fn open(target: IpAddr, dev: &str, mark: Option<u32>) -> io::Result<Self> {
        let (domain, protocol, family) = match target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, Family::V4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, Family::V6),
        };
        let ping = Socket::new(domain, Type::DGRAM, Some(protocol));
        let is_raw = ping.is_err();
        let socket = ping.or_else(|_| Socket::new(domain, Type::RAW, Some(protocol)))?;
        socket.bind_device(Some(dev.as_bytes()))?;
        if let Some(mark) = mark {
            setsockopt(&socket, sockopt::Mark, &mark)?;
        }
        // Nothing is fragmented, and what the kernel has learnt of the path keeps nothing back.
        let (level, name) = match family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        };
        set_option(&socket, level, name, IP_PMTUDISC_PROBE)?;
        match family {
            Family::V4 => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
            Family::V6 => {
                set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
                setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            }
        }
        socket.set_nonblocking(true)?;
        socket.connect(&SocketAddr::new(target, 0).into())?;
        // Unique enough: what other processes ask is for their sockets, or has another secret.
        let nonce = monotonic_now().as_nanos() ^ u64::from(std::process::id()) << 40;
        Ok(Asker { socket, family, is_raw, nonce, next: 0, buffer: vec![0; LARGEST] })
    }

    /// Sends a packet of this number of bytes, IP's header included, until it is answered or refused, a few times at most.
    fn ask(&mut self, bytes: u32, wait: Span) -> io::Result<Outcome> {
        let header = match self.family {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        let length = (bytes as usize).clamp(header + echo::HEADER + echo::PAYLOAD, LARGEST) - header;
        let first = self.next;
        for _ in 0..TRIES {
            let payload = Payload { nonce: self.nonce, sequence: self.next };
            self.next += 1;
            let mut packet = vec![0; length];
            if echo::write_request(self.family, self.nonce as u16, &payload, &mut packet).is_none() {
                return Ok(Outcome::Lost);
            }
            let began = monotonic_now();
            match self.socket.send(&packet) {
                Ok(_) => {}
                // What an earlier packet met is in the queue of errors.
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                Err(error) if error.raw_os_error().is_some_and(is_of_the_path) => {}
                Err(error) => return Err(error),
            }
            while monotonic_now().since(began) < wait {
                if let Some(mtu) = self.too_big(bytes)? {
                    return Ok(Outcome::TooBig { mtu: mtu.0, by: mtu.1 });
                }
                if self.is_answered(first)? {
                    return Ok(Outcome::Answered(monotonic_now().since(began)));
                }
                thread::sleep(PAUSE);
            }
        }
        Ok(Outcome::Lost)
    }

    /// Whether an answer to a packet from `first` on has come.
    fn is_answered(&mut self, first: u32) -> io::Result<bool> {
        loop {
            let length = match nix::sys::socket::recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT)
            {
                Ok(length) => length,
                Err(Errno::EAGAIN) => return Ok(false),
                Err(error) if error == Errno::EINTR || error == Errno::EMSGSIZE || is_of_the_path(error as i32) => {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let bytes = self.buffer.get(..length).unwrap_or_default();
            let bytes = if self.is_raw && self.family == Family::V4 { echo::behind_ipv4(bytes) } else { Some(bytes) };
            let answer = bytes.and_then(|bytes| echo::parse_reply(self.family, bytes));
            if answer.is_some_and(|(_, answer)| answer.nonce == self.nonce && answer.sequence >= first) {
                return Ok(true);
            }
        }
    }

    /// What the queue of errors contains about a size less than `bytes`.
    fn too_big(&mut self, bytes: u32) -> io::Result<Option<(u32, Option<IpAddr>)>> {
        let mut control = [0; 256];
        loop {
            let mut parts = [io::IoSliceMut::new(&mut self.buffer)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_ERRQUEUE;
            let read =
                recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(control.as_mut_slice()), flags);
            let message = match read {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let found = message.cmsgs()?.find_map(|one| match one {
                ControlMessageOwned::Ipv4RecvErr(error, by) => {
                    Some((error, by.map(|by| IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(by.sin_addr.s_addr))))))
                }
                ControlMessageOwned::Ipv6RecvErr(error, by) => {
                    Some((error, by.map(|by| IpAddr::V6(Ipv6Addr::from(by.sin6_addr.s6_addr)))))
                }
                _ => None,
            });
            let Some((error, by)) = found else { continue };
            let is_icmp = matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            if error.ee_errno == libc::EMSGSIZE as u32 && error.ee_info > 0 && error.ee_info < bytes {
                return Ok(Some((error.ee_info, by.filter(|by| is_icmp && !by.is_unspecified()))));
            }
        }
    }
}

/// Whether an error of a call is about the path, or about a packet sent before.
fn is_of_the_path(number: i32) -> bool {
    [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::ENETDOWN,
        libc::EPROTO,
        libc::EACCES,
    ]
    .contains(&number)
}

fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads the `size` bytes of `value`, which lives until the call returns.
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
