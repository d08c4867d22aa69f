//! Sockets that belong to a control group which their user is not in.
//!
//! A socket belongs to the group of the process that made it, for good. So a child that shares our table of
//! descriptors joins the group, enters the namespace, makes the socket and ends; the socket stays with us.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, clone},
    sys::{
        socket::{Backlog, SockaddrStorage, bind, setsockopt, sockopt},
        time::TimeVal,
        wait::waitpid,
    },
};
use sidestep_linux::{cgroup::Cgroup, netns::NetNs};

use super::PATIENCE;

/// Makes a TCP socket of this family; no call on it takes longer than [`PATIENCE`].
pub fn socket_in(cgroup: &Cgroup, namespace: &NetNs, family: libc::c_int) -> OwnedFd {
    socket_of(cgroup, namespace, family, libc::IPPROTO_TCP)
}

/// Makes a UDP socket of IPv6; no call on it takes longer than [`PATIENCE`].
pub fn datagram_socket_in(cgroup: &Cgroup, namespace: &NetNs) -> OwnedFd {
    make(cgroup, namespace, libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP)
}

/// Makes a stream socket of this family and protocol; no call on it takes longer than [`PATIENCE`].
pub fn socket_of(cgroup: &Cgroup, namespace: &NetNs, family: libc::c_int, protocol: libc::c_int) -> OwnedFd {
    make(cgroup, namespace, family, libc::SOCK_STREAM, protocol)
}

fn make(cgroup: &Cgroup, namespace: &NetNs, family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> OwnedFd {
    let procs = cgroup.open_procs().unwrap();
    let (read, write) = nix::unistd::pipe().unwrap();
    let (procs_fd, namespace_fd, write_fd) = (procs.as_raw_fd(), namespace.raw_fd(), write.as_raw_fd());
    let child = || {
        // SAFETY: only system calls, as is required in the child of a process with threads; the descriptors are
        // open until `waitpid` returns, and the pointers are to constants and to a local.
        unsafe {
            if libc::write(procs_fd, c"0".as_ptr().cast(), 1) != 1 {
                return 1;
            }
            if libc::setns(namespace_fd, libc::CLONE_NEWNET) != 0 {
                return 2;
            }
            let socket = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
            libc::write(write_fd, (&raw const socket).cast(), 4);
            if socket < 0 { 3 } else { 0 }
        }
    };
    let mut stack = vec![0; 64 << 10];
    // SAFETY: the child has a copy of our memory, this stack included, and shares nothing but the descriptors.
    let child = unsafe { clone(Box::new(child), &mut stack, CloneFlags::CLONE_FILES, Some(libc::SIGCHLD)) }.unwrap();
    let ended = waitpid(child, None).unwrap();
    assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
    let mut number = [0; 4];
    assert_eq!(nix::unistd::read(&read, &mut number), Ok(4));
    // SAFETY: the child made the descriptor for us in the table that we share, and no other code knows of it.
    let socket = unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(number)) };
    let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(&socket, sockopt::SendTimeout, &patience).unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience).unwrap();
    socket
}

/// Connects a socket.
pub fn connect(socket: OwnedFd, to: impl Into<SocketAddr>) -> io::Result<TcpStream> {
    let to = SockaddrStorage::from(to.into());
    // A signal ends the call and not the connection, for which the next call waits (`__inet_stream_connect`).
    while let Err(error) = nix::sys::socket::connect(socket.as_raw_fd(), &to) {
        match error {
            Errno::EINTR => {}
            Errno::EISCONN => break,
            _ => return Err(error.into()),
        }
    }
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Listens with a socket.
pub fn listen(socket: OwnedFd, at: impl Into<SocketAddr>) -> TcpListener {
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at.into())).unwrap();
    nix::sys::socket::listen(&socket, Backlog::new(16).unwrap()).unwrap();
    TcpListener::from(socket)
}
