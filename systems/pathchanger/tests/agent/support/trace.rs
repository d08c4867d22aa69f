//! The packets of connections that leave a host, as a packet socket sees them.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{setsockopt, sockopt},
    time::TimeVal,
};

use super::{Lab, PORT};

/// How long it takes at most to read what has left.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// The packets that leave a host, in their order.
pub struct Trace(OwnedFd);

impl Trace {
    /// Listens from now on.
    pub fn start(lab: &Lab, host: &str) -> Self {
        let open = || {
            // SAFETY: a system call without pointers, whose result is checked.
            let socket =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from((libc::ETH_P_ALL as u16).to_be())) };
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: the kernel has just made this descriptor for us.
            Ok(unsafe { OwnedFd::from_raw_fd(socket) })
        };
        let socket: OwnedFd = lab.network.node(lab.id(host)).run(open).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).unwrap();
        Trace(socket)
    }

    /// The interfaces by which the packets of each connection to the server left, by the connection's port.
    pub fn interfaces(self) -> BTreeMap<u16, Vec<i32>> {
        self.read_until(&AtomicBool::new(true))
    }

    /// The interfaces by which the packets of each connection to the server leave until all is `done`, by the connection's port.
    pub fn read_until(&self, done: &AtomicBool) -> BTreeMap<u16, Vec<i32>> {
        let mut traced: BTreeMap<u16, Vec<i32>> = BTreeMap::new();
        let mut ended: Option<Instant> = None;
        loop {
            if ended.is_none() && done.load(Ordering::Relaxed) {
                ended = Some(Instant::now());
            }
            let mut packet = [0_u8; 44];
            // SAFETY: an address of zeros is a valid one.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut length = size_of_val(&from) as libc::socklen_t;
            // SAFETY: the pointers are to locals that outlive the call, and the lengths are theirs.
            let read = unsafe {
                libc::recvfrom(
                    self.0.as_raw_fd(),
                    packet.as_mut_ptr().cast(),
                    packet.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut length,
                )
            };
            // What was there when all was done has been read; connections that still send do not make this endless.
            if ended.is_some_and(|ended| read < 0 || ended.elapsed() > AFTERWARDS) {
                return traced;
            }
            let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            let is_tcp = read == 44 && packet[0] >> 4 == 6 && packet[6] == 6;
            if is_tcp && from.sll_pkttype == libc::PACKET_OUTGOING && port(42) == PORT {
                traced.entry(port(40)).or_default().push(from.sll_ifindex);
            }
        }
    }
}
