//! Frames of a link, recorded and sent by whoever has access to it.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

use sidestep_linux::netns::NetNs;

/// Headers of Ethernet, IPv4 and UDP.
const UDP_PAYLOAD: usize = 14 + 20 + 8;
/// The longest frame that is sent again.
const LONGEST: usize = 1_514;

fn socket(interface: &str) -> io::Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(interface)?;
    // SAFETY: a call without pointers.
    let raw =
        unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, i32::from(0x0003_u16.to_be())) };
    assert!(raw >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: plain data for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = 0x0003_u16.to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the kernel reads one address, which outlives the call.
    let bound = unsafe { libc::bind(raw, (&raw const address).cast(), len) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    Ok(socket)
}

/// What comes in by an interface.
pub fn record(node: &NetNs, interface: &str, span: Duration) -> Vec<Vec<u8>> {
    let socket = node.run(|| Ok(socket(interface).unwrap())).unwrap();
    let (until, mut frames) = (Instant::now() + span, Vec::new());
    let mut buffer = vec![0; 70_000];
    while Instant::now() < until && frames.len() < 400 {
        // SAFETY: plain data for which all zeroes is a value.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the kernel writes no more than the buffer and the address have room for.
        let got = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                (&raw mut from).cast(),
                &raw mut len,
            )
        };
        match usize::try_from(got) {
            Ok(got) if got <= LONGEST && from.sll_pkttype != libc::PACKET_OUTGOING => {
                frames.push(without_checksum(buffer[..got].to_vec()));
            }
            Ok(_) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    frames
}

/// Sends frames out of an interface.
pub fn send(node: &NetNs, interface: &str, frames: &[Vec<u8>]) {
    let socket = node.run(|| Ok(socket(interface).unwrap())).unwrap();
    for frame in frames {
        // SAFETY: the kernel reads the frame, which outlives the call.
        unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    }
}

/// The frame with another byte in what is behind its headers.
pub fn changed(mut frame: Vec<u8>, below: &mut impl FnMut(u32) -> u32) -> Vec<u8> {
    let start = payload(&frame);
    if frame.len() > start {
        // Mostly where the shim and the headers are.
        let at = start + below((frame.len() - start).min(90) as u32) as usize;
        frame[at] ^= 1 << below(8);
    }
    frame
}

/// The frame with other bytes behind its headers.
pub fn garbage(mut frame: Vec<u8>, below: &mut impl FnMut(u32) -> u32) -> Vec<u8> {
    let start = payload(&frame).min(frame.len());
    // Sometimes it looks like a datagram for a while.
    let start = start + below(40) as usize;
    frame.iter_mut().skip(start).for_each(|byte| *byte = below(256) as u8);
    frame
}

fn payload(frame: &[u8]) -> usize {
    if is_udp(frame) { UDP_PAYLOAD } else { 14 }
}

fn is_udp(frame: &[u8]) -> bool {
    frame.len() > UDP_PAYLOAD && frame[12..14] == [8, 0] && frame[23] == 17
}

/// The checksum of UDP may be left to the device, and is none then.
fn without_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    if is_udp(&frame) {
        frame[40..42].fill(0);
    }
    frame
}
