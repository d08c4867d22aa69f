//! TAP interfaces: an interface whose cable ends in this process.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use crate::{
    error::{LinuxError, Result},
    ifreq::{control_socket, make_device, set_queue},
};

/// A TAP interface; gone when dropped.
///
/// One `read` takes an Ethernet frame that the kernel sent; one `write` hands the kernel a frame. Neither blocks.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: String,
}

impl Tap {
    /// Makes the interface `name` in the calling thread's network namespace, down, with room for `queue` frames that
    /// wait to be read.
    ///
    /// That queue comes before the wire's own queue, and no link model knows of it. It should hold the bursts that arrive
    /// between two reads, and no more.
    pub fn create(name: &str, queue: u32) -> Result<Self> {
        let fd = make_device(name, libc::IFF_TAP | libc::IFF_NO_PI, "TAP interface")?;
        let control = control_socket();
        let control = control.map_err(|error| LinuxError::io(format!("creating TAP interface {name}"), error))?;
        set_queue(&control, name, queue)?;
        Ok(Tap { fd, name: name.into() })
    }

    /// Plugs the cable in or pulls it: the kernel reports a link that is up or down.
    pub fn set_carrier(&self, carrier: bool) -> io::Result<()> {
        let carrier = libc::c_int::from(carrier);
        // SAFETY: the request reads one int, which outlives the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), TUNSETCARRIER, std::ptr::from_ref(&carrier)) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The interface's Ethernet address.
    pub fn address(&self) -> io::Result<[u8; 6]> {
        // SAFETY: `ifreq` is plain data for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes one `ifreq`, which outlives the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has filled in this member.
        let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(std::array::from_fn(|index| data[index] as u8))
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// `_IOW('T', 226, int)` of linux/if_tun.h, which libc does not name (Linux 5.0).
const TUNSETCARRIER: libc::Ioctl = 0x4004_54e2;

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{netns::NetNs, testing::root_or_skip};

    #[test]
    fn a_tap_lives_in_the_namespace_it_was_made_in_and_goes_with_its_owner() {
        if !root_or_skip("TAP interfaces") {
            return;
        }
        let namespace = NetNs::create().unwrap();
        let index = || nix::net::if_::if_nametoindex("wire-tap").ok();
        namespace
            .run(|| {
                let tap = Tap::create("wire-tap", 100)?;
                assert!(index().is_some());
                let again = Tap::create("wire-tap", 100).unwrap_err().to_string();
                assert!(again.contains("the name is taken"), "{again}");
                drop(tap);
                assert!(index().is_none());
                Ok(())
            })
            .unwrap();
        assert!(index().is_none());
    }
}
