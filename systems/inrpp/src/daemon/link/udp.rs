//! A link by UDP: many datagrams a message (`UDP_SEGMENT`, `UDP_GRO`), many messages a call.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::errno::Errno;
use sidestep_linux::{LinuxError, Result};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    Ends, Outbox, ReceiveBuffers, Received, Sent,
    batch::{ReceiveBatch, SendBatch},
    sockets::{enlarge, get_int, set_int},
};

const RECEIVE_BUFFER: usize = 16 << 20;
const SEND_BUFFER: usize = 4 << 20;
/// How often one call asks again after it was refused: the answer was to an earlier datagram, and this one may still go.
const REFUSALS: u32 = 3;

/// A connected UDP socket.
#[derive(Debug)]
pub struct UdpLink {
    socket: Socket,
    v6: bool,
    blocked: bool,
    /// Whether the kernel and the device cut messages into datagrams.
    segmentation: bool,
    /// The longest datagram that can be a segment: longer ones are sent alone, in fragments.
    max_segment: usize,
}

impl UdpLink {
    /// Opens the socket in the calling thread's network namespace.
    pub fn open(ends: &Ends) -> Result<Self> {
        let what = || format!("opening a UDP socket from {} to {}", ends.local, ends.remote);
        let failed = |error: io::Error| LinuxError::io(what(), error);
        let socket = open_socket(ends, Type::DGRAM, Protocol::UDP).map_err(failed)?;
        let v6 = ends.remote.is_ipv6();
        // Too long a datagram is cut into fragments here, by the path's MTU as far as it is known.
        let (level, name) =
            if v6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) } else { (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) };
        set_int(socket.as_fd(), level, name, libc::IP_PMTUDISC_DONT).map_err(failed)?;
        set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).map_err(failed)?;
        enlarge(socket.as_fd(), RECEIVE_BUFFER, SEND_BUFFER);
        // Of all links that have the same address and port here, connected ones get what their neighbours send.
        socket.set_reuse_port(true).map_err(failed)?;
        socket.bind(&ends.local.into()).map_err(failed)?;
        socket.connect(&ends.remote.into()).map_err(failed)?;
        let mut link = UdpLink { socket, v6, blocked: false, segmentation: true, max_segment: 0 };
        link.refresh();
        Ok(link)
    }

    /// Takes over the socket from another process, as its descriptor was passed.
    pub fn from_fd(descriptor: OwnedFd, ends: &Ends) -> Self {
        let v6 = ends.remote.is_ipv6();
        let socket = Socket::from(descriptor);
        let mut link = UdpLink { socket, v6, blocked: false, segmentation: true, max_segment: 0 };
        link.refresh();
        link
    }

    pub(super) fn overhead(&self) -> u32 {
        14 + 8 + if self.v6 { 40 } else { 20 }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Looks at the path's MTU.
    pub(super) fn refresh(&mut self) {
        let (level, name) =
            if self.v6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
        let mtu = get_int(self.socket.as_fd(), level, name).map_or(0, |mtu| usize::try_from(mtu).unwrap_or(0));
        self.max_segment = mtu.saturating_sub(if self.v6 { 48 } else { 28 });
    }

    pub(super) fn send(&mut self, outbox: &mut Outbox) -> Sent {
        let (mut sent, mut refusals) = (Sent::default(), 0);
        let mut batch = SendBatch::new();
        self.blocked = false;
        while !outbox.is_empty() && !self.blocked {
            batch.clear();
            let max_segment = if self.segmentation { self.max_segment } else { 0 };
            while !batch.is_full()
                && let Some(message) = outbox.message(batch.messages(), max_segment)
            {
                batch.add(message, false);
            }
            let error = match batch.send(self.socket.as_fd(), |message| outbox.bytes_of(message), None) {
                Ok(count) => {
                    for message in batch.messages().iter().take(count) {
                        sent.took(message.count, message.len);
                        outbox.remove(message);
                    }
                    continue;
                }
                Err(error) => error,
            };
            let Some(first) = batch.messages().first() else { break };
            match error {
                Errno::EINTR => {}
                Errno::EAGAIN => self.blocked = true,
                Errno::ECONNREFUSED if refusals < REFUSALS => (sent.refused, refusals) = (true, refusals + 1),
                Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE if first.count > 1 => {
                    self.stop_segmentation(first.segment)
                }
                Errno::EMSGSIZE => {
                    sent.too_long += first.count as u32;
                    outbox.remove(first);
                }
                error => {
                    sent.lost(first.count, error);
                    outbox.remove(first);
                }
            }
        }
        sent
    }

    pub(super) fn receive<'b>(
        &mut self,
        buffers: &'b mut ReceiveBuffers,
        handle: &mut impl FnMut(&'b [u8]),
    ) -> Received {
        ReceiveBatch::receive(self.socket.as_fd(), buffers, |message, received| {
            if message.bytes.is_empty() || message.truncated {
                received.bad += 1;
                return;
            }
            let segment = if message.segment == 0 { message.bytes.len() } else { message.segment };
            for datagram in message.bytes.chunks(segment) {
                received.took(datagram.len());
                handle(datagram);
            }
        })
    }

    /// The kernel did not cut a message: its datagrams are too long for the path, or it cannot cut for this device at all.
    fn stop_segmentation(&mut self, segment: usize) {
        self.refresh();
        if segment <= self.max_segment {
            tracing::info!("the device cuts no UDP messages: datagrams are sent one by one");
            self.segmentation = false;
        }
    }
}

/// A socket of this type that never waits, on the interface.
pub(super) fn open_socket(ends: &Ends, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(ends.remote), kind.nonblocking().cloexec(), Some(protocol))?;
    if ends.remote.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if let Some(interface) = &ends.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    Ok(socket)
}

impl Received {
    /// Notes why nothing was received.
    pub(super) fn failed(&mut self, error: Errno) {
        match error {
            Errno::EAGAIN => {}
            Errno::EINTR => self.more = true,
            Errno::ECONNREFUSED => (self.refused, self.more) = (true, true),
            error => self.error = Some(error),
        }
    }
}

#[cfg(test)]
impl UdpLink {
    /// Has the kernel cut messages, or as if the device could not.
    pub(super) fn segmentation_for_test(&mut self, on: bool) {
        self.segmentation = on;
    }
}
