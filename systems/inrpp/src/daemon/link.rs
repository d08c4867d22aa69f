//! Links to neighbours: UDP, Ethernet, TCP.
//!
//! A link carries datagrams, each of which is a shim and a packet, to one neighbour and back. Nothing here waits, and nothing
//! allocates for a packet. What is to be sent lies in an [`Outbox`]; what a link does not take stays there.

mod batch;
mod ethernet;
mod outbox;
mod sockets;
mod tcp;
#[cfg(test)]
mod tests;

mod udp;

use std::{net::SocketAddr, os::fd::BorrowedFd};

use nix::errno::Errno;
use sidestep_linux::Result;
use sidestep_net::{Span, Time};

#[cfg(any(test, feature = "fuzzing"))]
pub use self::tcp::fuzz as fuzz_stream;
pub use self::{ethernet::EthernetLink, outbox::Outbox, tcp::TcpLink, udp::UdpLink};

/// Bytes of a shim.
pub const SHIM: usize = 24;
/// The longest datagram: with the headers of UDP and IP the longest packet that any network carries.
pub const MAX_DATAGRAM: usize = 65_000;

/// How many messages are received at once.
const MESSAGES: usize = 32;
/// Room for one message, which may be of many datagrams.
const ROOM: usize = 65_536;

/// Between two ends of a link by UDP or TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Our address and port; of a link-local address also the scope. The one that connects by TCP leaves its port to the kernel.
    pub local: SocketAddr,
    /// The neighbour's.
    pub remote: SocketAddr,
    /// The only interface that is used; `None`: as the kernel routes.
    pub interface: Option<String>,
}

/// A link to one neighbour.
#[derive(Debug)]
pub enum Link {
    /// By UDP, over any network.
    Udp(UdpLink),
    /// In frames of an EtherType of their own.
    Ethernet(EthernetLink),
    /// By TCP, over lossy networks.
    Tcp(TcpLink),
}

/// What became of datagrams of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub datagrams: u32,
    /// Their bytes, without the [`overhead`](Link::overhead).
    pub bytes: u64,
    /// Datagrams that the kernel refused for good, or for which there is no connection.
    pub lost: u32,
    /// Datagrams that are too long for the link.
    pub too_long: u32,
    /// Whether the neighbour's kernel answered that its process is gone.
    pub refused: bool,
    /// Why the last of those lost was.
    pub error: Option<Errno>,
}

/// What was received at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams.
    pub datagrams: u32,
    /// Their bytes, without the [`overhead`](Link::overhead).
    pub bytes: u64,
    /// Messages that were no datagrams of ours, or came from others; they are not among the datagrams.
    pub bad: u32,
    /// Whether more may wait.
    pub more: bool,
    /// Whether the neighbour's kernel answered that its process is gone.
    pub refused: bool,
    /// Why nothing was received, other than that nothing waits.
    pub error: Option<Errno>,
}

/// Room for what is received at once; one for all links. The default has none, and costs nothing.
#[derive(Debug, Default)]
pub struct ReceiveBuffers {
    bytes: Box<[u8]>,
}

impl ReceiveBuffers {
    /// Room for many messages.
    pub fn new() -> Self {
        ReceiveBuffers { bytes: vec![0; MESSAGES * ROOM].into_boxed_slice() }
    }
}

impl Link {
    /// Bytes on the wire around each datagram: headers, of Ethernet, too. An Ethernet frame's preamble and gap are not among them.
    pub fn overhead(&self) -> u32 {
        match self {
            Link::Udp(link) => link.overhead(),
            Link::Ethernet(_) => ethernet::OVERHEAD,
            Link::Tcp(link) => link.overhead(),
        }
    }

    /// For how long nothing may come while the link repeats what the network has lost.
    pub fn may_repeat_for(&self) -> Span {
        match self {
            Link::Udp(_) | Link::Ethernet(_) => Span::ZERO,
            Link::Tcp(_) => tcp::REPEATS,
        }
    }

    /// Sends what lies in the outbox. What the link does not take now stays there, and the link [is blocked](Self::is_blocked).
    pub fn send(&mut self, outbox: &mut Outbox) -> Sent {
        match self {
            Link::Udp(link) => link.send(outbox),
            Link::Ethernet(link) => link.send(outbox),
            Link::Tcp(link) => link.send(outbox),
        }
    }

    /// Calls `handle` with each datagram that has come. They lie in the buffers, and may be used until these are used again.
    pub fn receive<'b>(&mut self, buffers: &'b mut ReceiveBuffers, handle: &mut impl FnMut(&'b [u8])) -> Received {
        match self {
            Link::Udp(link) => link.receive(buffers, handle),
            Link::Ethernet(link) => link.receive(buffers, handle),
            Link::Tcp(link) => link.receive(buffers, handle),
        }
    }

    /// Whether nothing more is taken now: wait until a descriptor can be written to, and [send](Self::send).
    pub fn is_blocked(&self) -> bool {
        match self {
            Link::Udp(link) => link.is_blocked(),
            Link::Ethernet(link) => link.is_blocked(),
            Link::Tcp(link) => link.is_blocked(),
        }
    }

    /// Whether datagrams have somewhere to go: there is a connection, where the link needs one.
    #[cfg(test)]
    pub fn is_connected(&self) -> bool {
        match self {
            Link::Udp(_) | Link::Ethernet(_) => true,
            Link::Tcp(link) => link.is_connected(),
        }
    }

    /// The descriptors to wait for, each of which stands for [`receive`](Self::receive). The first can be
    /// [blocked](Self::is_blocked), the second is that of a listening TCP socket.
    pub fn fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        match self {
            Link::Udp(link) => [Some(link.fd()), None],
            Link::Ethernet(link) => [Some(link.fd()), None],
            Link::Tcp(link) => link.fds(),
        }
    }

    /// Counts how often the [descriptors](Self::fds) have changed: wait for the new ones when it has.
    #[cfg(test)]
    pub fn generation(&self) -> u32 {
        match self {
            Link::Udp(_) | Link::Ethernet(_) => 0,
            Link::Tcp(link) => link.generation(),
        }
    }

    /// Connects again where a connection is gone, and looks at the path's MTU; to be called about every second, in
    /// the network namespace in which the link was opened. `now` is of `CLOCK_MONOTONIC`.
    pub fn reconnect(&mut self, now: Time) -> Result<()> {
        match self {
            Link::Udp(link) => link.refresh(),
            Link::Ethernet(link) => link.refresh()?,
            Link::Tcp(link) => link.reconnect(now),
        }
        Ok(())
    }

    /// Forgets who the neighbour was, where the link has learnt it or is connected; to be called when its session ends.
    pub fn forget(&mut self) {
        match self {
            Link::Udp(_) => {}
            Link::Ethernet(link) => link.forget(),
            Link::Tcp(link) => link.close(),
        }
    }
}

impl Sent {
    fn took(&mut self, datagrams: usize, bytes: usize) {
        self.datagrams += datagrams as u32;
        self.bytes += bytes as u64;
    }

    fn lost(&mut self, datagrams: usize, error: Errno) {
        self.lost += datagrams as u32;
        self.error = Some(error);
    }
}

impl Received {
    fn took(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }
}
