//! Names that only one process of a network namespace can have, for as long as it lives.
//!
//! A claim is a listening unix socket with an abstract name: the kernel keeps such names for each network namespace, refuses
//! one that is taken, and frees it when its process ends, however it does.

use std::{
    collections::BTreeSet,
    fs, io,
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt::PeerCredentials},
    unistd::Uid,
};

use crate::{
    capabilities::Privileges,
    error::{LinuxError, Result},
};

/// What `/proc/net/unix` shows of a socket that listens (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";

/// A name that is ours until it is dropped.
#[derive(Debug)]
pub struct Claim {
    listener: UnixListener,
}

/// Who has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its process; zero where that is in another PID namespace, or cannot be known.
    pub process: i32,
    /// Whether it may change routes. Anybody can take a name, and need not be heeded.
    pub is_privileged: bool,
}

impl Claim {
    /// Takes `name` in the calling thread's network namespace; `None` if a process has it.
    pub fn take(name: &str) -> Result<Option<Claim>> {
        match SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name)) {
            Ok(listener) => {
                let set = listener.set_nonblocking(true);
                set.map_err(|error| LinuxError::io(format!("taking the name {name}"), error))?;
                Ok(Some(Claim { listener }))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(LinuxError::io(format!("taking the name {name}"), error)),
        }
    }

    /// The names in the calling thread's network namespace that begin with `prefix`.
    pub fn names(prefix: &str) -> Result<BTreeSet<String>> {
        let path = "/proc/thread-self/net/unix";
        let sockets = fs::read_to_string(path).map_err(|error| LinuxError::io(format!("reading {path}"), error))?;
        let names = sockets.lines().filter_map(|line| line.split_once(" @"));
        // Connections that wait to be accepted have the name as well.
        let names = names.filter(|(socket, name)| name.starts_with(prefix) && socket.contains(LISTENS));
        Ok(names.map(|(_, name)| name.to_owned()).collect())
    }

    /// Forgets those who have asked whose the name is; they wait in a queue that has an end.
    pub fn forget_askers(&self) {
        while self.listener.accept().is_ok() {}
    }
}

impl Claimant {
    /// Who has `name`; `None` if no process has it any more.
    pub fn of(name: &str) -> Option<Claimant> {
        let address = UnixAddr::new_abstract(name.as_bytes()).ok()?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let asker = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
        match connect(asker.as_raw_fd(), &address) {
            Ok(()) => {}
            // The queue is full: a process has it, and does not look.
            Err(Errno::EAGAIN) => return Some(Claimant { process: 0, is_privileged: true }),
            Err(_) => return None,
        }
        let peer = getsockopt(&asker, PeerCredentials).ok()?;
        let is_one_of_us = peer.uid() == 0 || peer.uid() == Uid::effective().as_raw();
        Some(Claimant { process: peer.pid(), is_privileged: is_one_of_us || may_route(peer.pid()) })
    }
}

fn may_route(process: i32) -> bool {
    Privileges::of(&process.to_string()).has(Privileges::NET_ADMIN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::eventually;

    #[test]
    fn a_name_is_taken_once_listed_and_free_again() {
        let name = format!("sidestep/test/{}", std::process::id());
        let claim = Claim::take(&name).unwrap();
        assert!(claim.is_some());
        assert!(Claim::take(&name).unwrap().is_none());
        let own = Claimant { process: std::process::id().cast_signed(), is_privileged: true };
        assert_eq!(Claimant::of(&name), Some(own));
        // Many may ask, whether or not the owner looks.
        assert!((0..10_000).all(|_| Claimant::of(&name).is_some()));
        assert_eq!(Claim::names(&name).unwrap(), BTreeSet::from([name.clone()]));
        claim.as_ref().unwrap().forget_askers();
        assert_eq!(Claimant::of(&name), Some(own));
        drop(claim);
        // A process that another test begins has the socket as well, until it executes its program.
        let is_free = || (Claimant::of(&name), Claim::names(&name).unwrap().len()) == (None, 0);
        eventually("the name is free", Duration::from_secs(5), || is_free().then_some(()));
        assert!(Claim::take(&name).unwrap().is_some());
    }
}
