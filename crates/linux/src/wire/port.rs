//! Raw Ethernet frames through an interface: traffic for the benchmark and the tests.

use std::{
    net::Ipv6Addr,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, send, socket},
};

use super::ecn::ETHERNET_HEADER;
use crate::error::{LinuxError, Result};

/// A packet socket on one interface.
#[derive(Debug)]
pub(super) struct Port {
    socket: OwnedFd,
}

impl Port {
    /// A port of the interface with this index, in the calling thread's namespace.
    pub(super) fn open(interface: u32) -> Result<Self> {
        let failed = |errno: Errno| LinuxError::io(format!("opening a packet socket on interface {interface}"), errno);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).map_err(failed)?;
        let mut address = [0u8; size_of::<libc::sockaddr_ll>()];
        let head =
            [libc::AF_PACKET as u16, (libc::ETH_P_ALL as u16).to_be(), interface as u16, (interface >> 16) as u16];
        for (to, from) in address.iter_mut().zip(head.iter().flat_map(|word| word.to_ne_bytes())) {
            *to = from;
        }
        // SAFETY: the pointer is to as many readable bytes as the length shows.
        let address = unsafe { LinkAddr::from_raw(address.as_ptr().cast(), Some(address.len() as u32)) };
        bind(socket.as_raw_fd(), &address.ok_or(Errno::EINVAL).map_err(failed)?).map_err(failed)?;
        Ok(Port { socket })
    }

    /// Sends one frame; `false` if there was no room for it.
    pub(super) fn send(&self, frame: &[u8]) -> bool {
        send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).is_ok()
    }

    /// The next frame that has come in, or that others have sent, if any.
    #[cfg(test)]
    pub(super) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 2_048];
        let len = nix::sys::socket::recv(self.socket.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).ok()?;
        frame.truncate(len);
        Some(frame)
    }
}

/// An Ethernet frame to `mac` with an IPv6 packet of `len` bytes without upper-layer header.
pub(super) fn ipv6_frame(mac: [u8; 6], destination: Ipv6Addr, len: usize, ecn: u8) -> Vec<u8> {
    const NO_NEXT_HEADER: u8 = 59;
    let mut frame = vec![0; ETHERNET_HEADER + len];
    let payload = (len as u16).saturating_sub(40).to_be_bytes();
    let header = [0x60, ecn << 4, 0, 0, payload[0], payload[1], NO_NEXT_HEADER, 64];
    let source = Ipv6Addr::new(0xfd00, 0xffff, 0, 0, 0, 0, 0, 1).octets();
    let head = [&mac[..], &[2, 0, 0, 0, 0, 1, 0x86, 0xdd], &header, &source, &destination.octets()].concat();
    for (to, from) in frame.iter_mut().zip(head) {
        *to = from;
    }
    frame
}
