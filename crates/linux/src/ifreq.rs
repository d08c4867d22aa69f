//! Requests about interfaces that take an `ifreq` (netdevice(7), linux/if_tun.h).

use std::{
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

use crate::error::{LinuxError, Result};

/// The largest packet of an interface of the calling thread's network namespace.
pub fn mtu_of(name: &str) -> Result<u32> {
    let mut request = request_for(name)?;
    let read = control_socket().and_then(|control| ask(control.as_fd(), libc::SIOCGIFMTU, &mut request));
    read.map_err(|error| LinuxError::io(format!("reading the MTU of {name}"), error))?;
    // SAFETY: the kernel has filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or(0))
}

/// An empty request about the interface `name`.
pub(crate) fn request_for(name: &str) -> Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name becomes part of a path below /proc/sys, too.
    let fits = !name.is_empty() && name.len() < request.ifr_name.len();
    if !fits || name.starts_with('.') || name.contains(['/', '%', '\0', ' ', ':']) {
        let error =
            io::Error::new(io::ErrorKind::InvalidInput, "use 1 to 15 characters without `/`, `%`, `:` or space");
        return Err(LinuxError::io(format!("naming an interface `{name}`"), error));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Makes a TUN or TAP interface with these flags (`TUNSETIFF`), down; `what` is it called in errors.
pub(crate) fn make_device(name: &str, flags: libc::c_int, what: &str) -> Result<OwnedFd> {
    let what = || format!("creating {what} {name}");
    let mut request = request_for(name)?;
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let fd = OwnedFd::from(device.map_err(|error| open_error(what(), error))?);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ask(fd.as_fd(), libc::TUNSETIFF, &mut request).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => LinuxError::io(format!("{}: the name is taken; delete that interface", what()), error),
        _ => LinuxError::new(what(), error, "the `tun` module (CONFIG_TUN)"),
    })?;
    Ok(fd)
}

/// Sets how many packets wait in an interface.
pub(crate) fn set_queue(control: &OwnedFd, name: &str, queue: u32) -> Result<()> {
    let mut request = request_for(name)?;
    // `ifr_qlen`, which libc does not name, is an int at the same place.
    request.ifr_ifru.ifru_metric = i32::try_from(queue).unwrap_or(i32::MAX);
    let set = ask(control.as_fd(), libc::SIOCSIFTXQLEN, &mut request);
    set.map_err(|error| LinuxError::io(format!("setting the queue length of {name}"), error))
}

/// A socket for requests about interfaces.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

/// One of the ioctls that read or write an `ifreq` and keep no reference to it.
pub(crate) fn ask(fd: BorrowedFd<'_>, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests that are used here take one `ifreq`, which outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(request)) };
    Errno::result(done).map(drop).map_err(io::Error::from)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "sixteen-letters-", "a/b", "tap%d", "tun%d", "a b", ".", ".."] {
            assert!(request_for(name).is_err(), "{name}");
        }
        for name in ["fifteen-letters", "inrpp-eth0.100"] {
            assert!(request_for(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_loopback_interface_has_an_mtu_and_one_that_is_not_there_has_none() {
        assert_eq!(mtu_of("lo").unwrap(), 65_536);
        assert!(mtu_of("not-there").unwrap_err().to_string().contains("reading the MTU of not-there"));
    }
}
