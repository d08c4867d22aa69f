//! TAP interfaces: an interface whose cable ends in this process.

use std::{
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use crate::error::{LinuxError, Result};

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
        let what = || format!("creating TAP interface {name}");
        let mut request = request_for(name)?;
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let fd = OwnedFd::from(device.map_err(|error| open_error(what(), error))?);
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        set(&fd, libc::TUNSETIFF, &request).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => LinuxError::io(format!("{}: the name is taken; delete that interface", what()), error),
            _ => LinuxError::new(what(), error, "the `tun` module (CONFIG_TUN)"),
        })?;
        let socket = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet6,
            nix::sys::socket::SockType::Datagram,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(|error| LinuxError::io(what(), error))?;
        // `ifr_qlen`, which libc does not name, is an int at the same place.
        request.ifr_ifru.ifru_metric = queue.min(i32::MAX as u32) as libc::c_int;
        set(&socket, libc::SIOCSIFTXQLEN, &request)
            .map_err(|error| LinuxError::io(format!("setting the queue length of {name}"), error))?;
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

/// Makes a TUN interface, as daemons do that take packets from the kernel, and lets it go: whether there are such, with a header
/// that describes super-packets, and segmentation of TCP.
pub(crate) fn try_tun(name: &str) -> Result<()> {
    let what = || format!("creating TUN interface {name}");
    let mut request = request_for(name)?;
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let fd = OwnedFd::from(device.map_err(|error| open_error(what(), error))?);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    set(&fd, libc::TUNSETIFF, &request)
        .map_err(|error| LinuxError::new(what(), error, "the `tun` module (CONFIG_TUN)"))?;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: the request takes its argument by value, and keeps nothing.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
    if done < 0 {
        return Err(LinuxError::io(format!("segmentation on TUN interface {name}"), io::Error::last_os_error()));
    }
    Ok(())
}

/// `_IOW('T', 226, int)` of linux/if_tun.h, which libc does not name (Linux 5.0).
const TUNSETCARRIER: libc::Ioctl = 0x4004_54e2;

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An empty request about the interface `name`.
fn request_for(name: &str) -> Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let fits = !name.is_empty() && name.len() < request.ifr_name.len() && !name.contains(['/', '%', '\0', ' ', ':']);
    if !fits {
        let error =
            io::Error::new(io::ErrorKind::InvalidInput, "use 1 to 15 characters without `/`, `%`, `:` or space");
        return Err(LinuxError::io(format!("naming an interface `{name}`"), error));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn open_error(what: String, error: io::Error) -> LinuxError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => LinuxError::Missing {
            what,
            needs: "load the `tun` module (`modprobe tun`); in a container, also give it /dev/net/tun",
        },
        _ => LinuxError::io(format!("{what}: opening /dev/net/tun"), error),
    }
}

/// One of the ioctls that read an `ifreq` and keep no reference to it.
fn set(fd: &OwnedFd, number: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    // SAFETY: both requests that are used here read one `ifreq`, which outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_ref(request)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{netns::NetNs, testing::root_or_skip};

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "sixteen-letters-", "a/b", "tap%d", "a b"] {
            assert!(request_for(name).is_err(), "{name}");
        }
        assert!(request_for("fifteen-letters").is_ok());
    }

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
