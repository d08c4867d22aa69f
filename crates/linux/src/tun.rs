//! TUN devices with super-packets.

#[cfg(test)]
mod tests;

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::errno::Errno;

use crate::{
    error::{LinuxError, Result},
    ifreq::{ask, control_socket, make_device, request_for, set_queue},
    netns::set_sysctl,
    probe::machine::sysctl,
};

/// The virtio header before each packet (`struct virtio_net_hdr`).
pub const HEADER: usize = 10;
/// Room for the longest packet that the kernel gives, with its header.
pub const MAX_READ: usize = HEADER + 65_536;

/// Offloads that the process takes: partial checksums, and super-packets of TCP and UDP (linux/if_tun.h).
const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;
/// Those of UDP, since Linux 6.2.
const UDP_OFFLOADS: libc::c_ulong = 0x20 | 0x40;

/// Below IPv6's least (RFC 8200, section 5).
const TOO_SHORT_FOR_IPV6: u32 = 1_000;
const FLAGS: libc::c_int = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// A TUN device, by which the kernel hands packets over and takes them; gone when dropped.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    index: u32,
}

impl Tun {
    /// Makes the device `name` in the calling thread's network namespace, and brings it up.
    ///
    /// `queue` packets wait to be read, those above are dropped. It has no address, forwards as the router does, and takes packets
    /// of any source.
    pub fn create(name: &str, mtu: u32, queue: u32) -> Result<Self> {
        let what = || format!("creating TUN device {name}");
        let fd = make_device(name, FLAGS, "TUN device")?;
        set_offloads(fd.as_fd()).map_err(|error| LinuxError::io(what(), error))?;
        let tun = Self::of(fd, name)?;
        let control = control_socket().map_err(|error| LinuxError::io(what(), error))?;
        tun.stop_multicast(&control, mtu)?;
        tun.adopt_settings()?;
        set_queue(&control, name, queue)?;
        tun.change_flags(&control, |flags| flags | libc::IFF_UP as libc::c_short)?;
        Ok(tun)
    }

    /// Takes over a device from another process, as its descriptor was passed; it stays as it is.
    pub fn from_fd(fd: OwnedFd, name: &str) -> Result<Self> {
        let what = || format!("taking over TUN device {name}");
        let mut request = request_for(name)?;
        ask(fd.as_fd(), libc::TUNGETIFF, &mut request).map_err(|error| LinuxError::io(what(), error))?;
        // SAFETY: the kernel has filled in this member.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        let named = request.ifr_name.iter().take_while(|letter| **letter != 0).map(|letter| *letter as u8);
        if !named.eq(name.bytes()) || flags & FLAGS != FLAGS {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is that of another device");
            return Err(LinuxError::io(what(), error));
        }
        set_offloads(fd.as_fd()).map_err(|error| LinuxError::io(what(), error))?;
        set_nonblocking(fd.as_fd()).map_err(|error| LinuxError::io(what(), error))?;
        Self::of(fd, name)
    }

    /// Takes a packet that the kernel has routed here: [`HEADER`] bytes, then the packet. `buffer` should have [`MAX_READ`] bytes.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.fd, buffer)?)
    }

    /// Hands the kernel a packet, in parts: [`HEADER`] bytes, then the packet.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(nix::sys::uio::writev(&self.fd, parts)?)
    }

    /// Brings the device up, and lets it carry packets of this length at least. It never carries shorter ones only: with too short
    /// an MTU it would lose IPv6.
    pub fn refresh(&self, mtu: u32, carried: u32) -> Result<()> {
        let control = control_socket().map_err(|error| LinuxError::io(format!("looking at {}", self.name), error))?;
        if mtu > carried {
            self.set_mtu(&control, mtu)?;
        }
        self.change_flags(&control, |flags| flags | libc::IFF_UP as libc::c_short)
    }

    /// The device's index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn of(fd: OwnedFd, name: &str) -> Result<Self> {
        let index = nix::net::if_::if_nametoindex(name);
        let index = index.map_err(|error| LinuxError::io(format!("looking up interface {name}"), error))?;
        Ok(Tun { fd, name: name.into(), index })
    }

    /// No multicast: a device of a router joins the group of all routers, and would report that to the process.
    fn stop_multicast(&self, control: &OwnedFd, mtu: u32) -> Result<()> {
        self.change_flags(control, |flags| flags & !(libc::IFF_MULTICAST as libc::c_short))?;
        // It joined when it was made, and would report that it leaves. With an MTU that is too short for IPv6 the kernel forgets
        // all that IPv6 has of it, and begins anew with the one that follows.
        self.set_mtu(control, TOO_SHORT_FOR_IPV6)?;
        self.set_mtu(control, mtu)
    }

    /// No address of its own, forwarding as the router has it, and packets from anywhere.
    fn adopt_settings(&self) -> Result<()> {
        let set = |name: &str, value: &str| set_sysctl(&name.replacen("NAME", &self.name, 1), value);
        if let Some(forwarding) = sysctl("ipv4/conf/all/forwarding") {
            set("ipv4/conf/NAME/forwarding", &forwarding)?;
        }
        // The kernel takes the greater of all's and the device's. Where all's is strict, the device's can at least be loose.
        let filter = if sysctl("ipv4/conf/all/rp_filter").as_deref() == Some("1") { "2" } else { "0" };
        set("ipv4/conf/NAME/rp_filter", filter)?;
        // A kernel, a boot, or so short an MTU may be without IPv6.
        let v6 = sysctl("ipv6/conf/all/forwarding");
        let Some(v6) = v6.filter(|_| sysctl(&format!("ipv6/conf/{}/forwarding", self.name)).is_some()) else {
            return Ok(());
        };
        let forwarding = ("forwarding", v6.as_str());
        let settings = [forwarding, ("addr_gen_mode", "1"), ("accept_ra", "0"), ("autoconf", "0"), ("accept_dad", "0")];
        settings.iter().try_for_each(|(name, value)| set(&format!("ipv6/conf/NAME/{name}"), value))
    }

    fn set_mtu(&self, control: &OwnedFd, mtu: u32) -> Result<()> {
        let mut request = request_for(&self.name)?;
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        let set = ask(control.as_fd(), libc::SIOCSIFMTU, &mut request);
        set.map_err(|error| LinuxError::io(format!("setting the MTU of {}", self.name), error))
    }

    fn change_flags(&self, control: &OwnedFd, to: impl Fn(libc::c_short) -> libc::c_short) -> Result<()> {
        let mut request = request_for(&self.name)?;
        let failed = |error: io::Error| LinuxError::io(format!("changing the flags of {}", self.name), error);
        ask(control.as_fd(), libc::SIOCGIFFLAGS, &mut request).map_err(failed)?;
        // SAFETY: the kernel has filled in this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = to(flags);
        ask(control.as_fd(), libc::SIOCSIFFLAGS, &mut request).map_err(failed)
    }
}

/// Makes such a device, and lets it go: whether there are any, with super-packets.
pub(crate) fn try_device(name: &str) -> Result<()> {
    let fd = make_device(name, FLAGS, "TUN device")?;
    let failed = |error| LinuxError::io(format!("segmentation on TUN device {name}"), error);
    set_offloads(fd.as_fd()).map_err(failed)
}

/// By device, the packets for which it had no room, as the process read too late: of `/proc/thread-self/net/dev`, which is of the
/// thread's own namespace.
pub fn dropped_of(text: &str, device: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    line.and_then(|counts| counts.split_ascii_whitespace().nth(TX_DROPPED)?.parse().ok()).unwrap_or(0)
}

/// The column of what was to be sent, and dropped.
const TX_DROPPED: usize = 11;

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asks for all offloads; those of UDP where the kernel has them.
fn set_offloads(fd: BorrowedFd<'_>) -> io::Result<()> {
    let set = |offloads: libc::c_ulong| {
        // SAFETY: the request takes a number.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) };
        Errno::result(done).map(drop)
    };
    match set(OFFLOADS | UDP_OFFLOADS) {
        Err(Errno::EINVAL) => Ok(set(OFFLOADS)?),
        done => Ok(done?),
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
