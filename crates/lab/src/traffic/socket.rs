//! The sockets of both ends of a connection: TCP or MPTCP, with what a scenario sets of them.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    cmsg_space,
    sys::{
        socket::{
            ControlMessageOwned, MsgFlags, SetSockOpt, recvmsg, setsockopt,
            sockopt::{ReceiveTimestampns, TcpCongestion},
        },
        time::TimeSpec,
    },
    time::{ClockId, clock_gettime},
};
use sidestep_linux::{
    mptcp::{self, MptcpInfo},
    sock_diag::TcpInfo,
};
use sidestep_net::Span;
use socket2::{Domain, Protocol, Socket, Type};

/// What the sockets of a flow are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Whether they use MPTCP.
    pub mptcp: bool,
    /// Name of the kernel's congestion control; `None`: the namespace's default.
    pub congestion_control: Option<String>,
    /// The largest window that they advertise, in bytes; `None`: as large as their buffer. MPTCP's is the buffer's.
    pub window: Option<u32>,
    /// Whether they take a new flow label after timeouts; `None`, and MPTCP's: the namespace's default.
    pub rehash: Option<bool>,
}

/// When a segment arrived, by `CLOCK_REALTIME`, which is the clock of the kernel's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival(TimeSpec);

impl Arrival {
    /// How long ago that was; `None` if the clock was set back since.
    pub fn age(self) -> Option<Span> {
        let since = clock_gettime(ClockId::CLOCK_REALTIME).ok()? - self.0;
        let nanos = i128::from(since.tv_sec()) * 1_000_000_000 + i128::from(since.tv_nsec());
        Some(Span::from_nanos(u64::try_from(nanos).ok()?))
    }
}

/// As recv(2), and also returns when the last segment arrived of which it read, if the kernel noted that.
///
/// It does for data that arrives while a socket is [timed](SocketOptions::time); it does not for a FIN without data.
pub fn receive(socket: &impl AsRawFd, buffer: &mut [u8], flags: MsgFlags) -> io::Result<(usize, Option<Arrival>)> {
    let mut space = cmsg_space!(TimeSpec);
    let mut pieces = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut space), flags)?;
    let arrival = |word| if let ControlMessageOwned::ScmTimestampns(at) = word { Some(Arrival(at)) } else { None };
    Ok((message.bytes, message.cmsgs()?.find_map(arrival)))
}

/// What the kernel counted for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Payload acknowledged by the other end, and perhaps a SYN and a FIN.
    pub acked: u64,
    /// Segments that were retransmitted; of MPTCP, by the subflows that still exist.
    pub retransmits: u32,
    /// Retransmission timeouts, likewise; zero where the kernel does not report them.
    pub timeouts: u16,
}

impl SocketOptions {
    /// A socket that does not block.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let protocol = if self.mptcp { Protocol::MPTCP } else { Protocol::TCP };
        let socket = Socket::new(Domain::IPV6, Type::STREAM.nonblocking().cloexec(), Some(protocol))?;
        if let Some(name) = &self.congestion_control {
            setsockopt(&socket, TcpCongestion, &name.into())?;
        }
        if let Some(rehash) = self.rehash {
            self.tune(&socket, TxRehash, &u32::from(rehash))?;
        }
        self.clamp(&socket)?;
        Ok(socket.into())
    }

    /// Makes the kernel note when segments arrive, for `receive`. It then reads the clock for each packet of the machine.
    pub fn time(&self, socket: &impl AsFd) -> io::Result<()> {
        self.tune(socket, ReceiveTimestampns, &true)
    }

    /// Limits the window of a socket.
    ///
    /// The kernel drops the limit whenever it recomputes how much its buffer can hold, so a receiver sets it again.
    pub fn clamp(&self, socket: &impl AsFd) -> io::Result<()> {
        match self.window {
            Some(window) if !self.mptcp => Ok(setsockopt(socket, WindowClamp, &window)?),
            _ => Ok(()),
        }
    }

    /// Sets an option that MPTCP may not have, and does not need.
    pub fn tune<O: SetSockOpt>(&self, socket: &impl AsFd, option: O, value: &O::Val) -> io::Result<()> {
        match setsockopt(socket, option, value) {
            Err(_) if self.mptcp => Ok(()),
            result => Ok(result?),
        }
    }

    /// What the kernel counted for a connection.
    pub fn counters(&self, socket: &impl AsFd) -> io::Result<Counters> {
        if self.mptcp {
            let acked = MptcpInfo::of(socket)?.bytes_acked;
            let subflows = mptcp::subflows(socket)?;
            let retransmits = subflows.iter().map(|subflow| subflow.retrans_total).sum();
            let timeouts = subflows.iter().filter_map(|subflow| subflow.timeouts_total).fold(0, u16::saturating_add);
            return Ok(Counters { acked, retransmits, timeouts });
        }
        let info = TcpInfo::of(socket)?;
        // The kernel counts our SYN as a byte.
        let (acked, timeouts) = (info.bytes_acked.saturating_sub(1), info.timeouts_total.unwrap_or(0));
        Ok(Counters { acked, retransmits: info.retrans_total, timeouts })
    }
}

/// Declares options of sockets that nix has no name for.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident = $level:ident, $option:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        nix::setsockopt_impl!($name, libc::$level, libc::$option, u32, nix::sys::socket::sockopt::SetStruct<'_, u32>);
    )+};
}

options! {
    /// How many unsent bytes may wait in a socket.
    NotsentLowat = IPPROTO_TCP, TCP_NOTSENT_LOWAT;
    /// How many bytes wake a reader; the end of a connection always does.
    ReceiveLowat = SOL_SOCKET, SO_RCVLOWAT;
    /// The largest window that a socket advertises.
    WindowClamp = IPPROTO_TCP, TCP_WINDOW_CLAMP;
    /// Whether a connection takes a new flow label after timeouts.
    TxRehash = SOL_SOCKET, SO_TXREHASH;
}
