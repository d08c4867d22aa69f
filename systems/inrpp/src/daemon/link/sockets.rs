//! Socket options that no library names.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};

/// Sets an option whose value is an int.
pub(super) fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads an int, which outlives the call.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    Errno::result(done).map(drop).map_err(io::Error::from)
}

/// An option whose value is an int.
pub(super) fn get_int(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, those of `value`.
    let done = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut size) };
    Errno::result(done).map(|_| value).map_err(io::Error::from)
}

/// Gives a socket large buffers, where the process may.
pub(super) fn enlarge(fd: BorrowedFd<'_>, receive: usize, send: usize) {
    let (forced, asked) =
        (setsockopt(&fd, sockopt::RcvBufForce, &receive), setsockopt(&fd, sockopt::SndBufForce, &send));
    if forced.is_err() {
        let _smaller = setsockopt(&fd, sockopt::RcvBuf, &receive);
    }
    if asked.is_err() {
        let _smaller = setsockopt(&fd, sockopt::SndBuf, &send);
    }
}
