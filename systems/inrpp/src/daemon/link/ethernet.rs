//! A link in Ethernet frames of an EtherType of their own, without IP.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use sidestep_linux::{LinuxError, Result};

use super::{
    Outbox, ReceiveBuffers, Received, Sent,
    batch::{Address, ReceiveBatch, SendBatch},
    sockets::enlarge,
};

/// The EtherType, IEEE 802's Local Experimental Ethertype 1.
pub const ETHERTYPE: u16 = 0x88b5;
/// Before each datagram: its length, as short frames are padded.
const LENGTH: usize = 2;
pub(super) const OVERHEAD: u32 = 14 + LENGTH as u32;

const BROADCAST: [u8; 6] = [0xff; 6];
const RECEIVE_BUFFER: usize = 16 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// A packet socket on one interface.
#[derive(Debug)]
pub struct EthernetLink {
    socket: OwnedFd,
    interface: u32,
    name: String,
    /// The neighbour's address as configured.
    configured: Option<[u8; 6]>,
    /// The address that is sent to; `None`: all, until the neighbour has been received from.
    peer: Option<[u8; 6]>,
    max_datagram: usize,
    blocked: bool,
}

fn open_socket(interface: u32) -> std::result::Result<OwnedFd, Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Protocol 0: nothing is received before the socket is bound to the interface.
    // SAFETY: a system call without pointers, whose result is checked.
    let made = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    let socket = unsafe { OwnedFd::from_raw_fd(made) };
    enlarge(socket.as_fd(), RECEIVE_BUFFER, SEND_BUFFER);
    bind(socket.as_fd(), interface)?;
    Ok(socket)
}

impl EthernetLink {
    /// Opens the socket on an interface of the calling thread's network namespace. Without the neighbour's address frames go to
    /// all, until one of a neighbour comes.
    ///
    /// A `descriptor` is that of such a socket, which another process has passed.
    pub fn open(interface: &str, address: Option<[u8; 6]>, descriptor: Option<OwnedFd>) -> Result<Self> {
        let what = || format!("opening a packet socket on {interface}");
        let failed = |error: Errno| LinuxError::io(what(), error);
        let index = nix::net::if_::if_nametoindex(interface).map_err(failed)?;
        let socket = match descriptor {
            Some(descriptor) => descriptor,
            None => open_socket(index).map_err(failed)?,
        };
        let mut link = EthernetLink {
            socket,
            interface: index,
            name: interface.into(),
            configured: address,
            peer: address,
            max_datagram: 0,
            blocked: false,
        };
        link.refresh()?;
        Ok(link)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Forgets the address that was learnt.
    pub(super) fn forget(&mut self) {
        self.peer = self.configured;
    }

    /// Reads the interface's MTU.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.max_datagram = (sidestep_linux::mtu_of(&self.name)? as usize).saturating_sub(LENGTH);
        Ok(())
    }

    pub(super) fn send(&mut self, outbox: &mut Outbox) -> Sent {
        let mut sent = Sent::default();
        let mut batch = SendBatch::new();
        let to = address(self.interface, self.peer.unwrap_or(BROADCAST));
        self.blocked = false;
        while !self.blocked
            && let Some(first) = outbox.message(&[], 0)
        {
            if first.len > self.max_datagram {
                sent.too_long += 1;
                outbox.remove(&first);
                continue;
            }
            batch.clear();
            while !batch.is_full()
                && let Some(message) = outbox.message(batch.messages(), 0)
                && message.len <= self.max_datagram
            {
                batch.add(message, true);
            }
            match batch.send(self.socket.as_fd(), |message| outbox.bytes_of(message), Some(&to)) {
                Ok(count) => {
                    for message in batch.messages().iter().take(count) {
                        sent.took(1, message.len);
                        outbox.remove(message);
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.blocked = true,
                Err(error) => {
                    if error == Errno::EMSGSIZE {
                        sent.too_long += 1
                    } else {
                        sent.lost(1, error)
                    }
                    outbox.remove(&first);
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
            let [a, b, c, d, e, f, ..] = message.sender.sll_addr;
            let sender = [a, b, c, d, e, f];
            let for_us = matches!(message.sender.sll_pkttype, libc::PACKET_HOST | libc::PACKET_BROADCAST);
            let known = self.peer.is_none_or(|peer| peer == sender);
            match datagram_of(message.bytes) {
                Some(datagram) if for_us && known && !message.truncated => {
                    self.peer = Some(sender);
                    received.took(datagram.len());
                    handle(datagram);
                }
                _ => received.bad += 1,
            }
        })
    }
}

/// The datagram in a frame; `None` if the frame is shorter than it says.
fn datagram_of(frame: &[u8]) -> Option<&[u8]> {
    let (length, rest) = frame.split_first_chunk::<LENGTH>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length))).filter(|datagram| !datagram.is_empty())
}

fn address(interface: u32, address: [u8; 6]) -> Address {
    let [a, b, c, d, e, f] = address;
    Address {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETHERTYPE.to_be(),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [a, b, c, d, e, f, 0, 0],
    }
}

fn bind(socket: BorrowedFd<'_>, interface: u32) -> nix::Result<()> {
    use std::os::fd::AsRawFd;
    let own = address(interface, [0; 6]);
    // SAFETY: the kernel reads one address, which outlives the call.
    let bound =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const own).cast(), size_of::<Address>() as libc::socklen_t) };
    Errno::result(bound).map(drop)
}

#[cfg(test)]
impl EthernetLink {
    /// The address that is sent to.
    pub(super) fn peer_for_test(&self) -> Option<[u8; 6]> {
        self.peer
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_padding_of_a_frame_is_no_part_of_its_datagram() {
        assert_eq!(datagram_of(&[0, 2, 7, 8, 0, 0]), Some(&[7, 8][..]));
        assert_eq!((datagram_of(&[0, 3, 7, 8]), datagram_of(&[0, 0, 7]), datagram_of(&[1])), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_frame_is_read(frame in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(datagram) = datagram_of(&frame) {
                prop_assert_eq!(datagram, &frame[2..2 + usize::from(frame[0]) * 256 + usize::from(frame[1])]);
            }
        }
    }
}
