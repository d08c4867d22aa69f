//! What the programs and the process share in memory: signs of life, and the mode.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use sidestep_linux::{LinuxError, Result};
use sidestep_net::Time;

/// What becomes of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are diverted.
    Divert,
    /// They pass until a link is busy, but for those that begin or end a TCP connection.
    PassIdle,
}

/// `struct state`.
#[repr(C)]
struct State {
    beat: AtomicU64,
    mode: AtomicU32,
    unused: u32,
}

const _: () = assert!(size_of::<State>() == 16, "differs from the C struct");

/// The map's memory.
#[derive(Debug)]
pub(super) struct Shared(NonNull<State>);

// SAFETY: the memory is mapped until this is dropped, and is read and written as atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the one entry of the map with this descriptor.
    pub(super) fn map(map: BorrowedFd<'_>) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a map whose only entry is a `State`.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), size_of::<State>(), access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        let mapped = if memory == libc::MAP_FAILED { None } else { NonNull::new(memory.cast()) };
        let failed = || LinuxError::io("sharing memory with a BPF program", io::Error::last_os_error());
        mapped.map(Shared).ok_or_else(failed)
    }

    pub(super) fn beat(&self, now: Time) {
        self.state().beat.store(now.as_nanos(), Ordering::Release);
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        let mode = match mode {
            Mode::Divert => 0,
            Mode::PassIdle => 1,
        };
        self.state().mode.store(mode, Ordering::Release);
    }

    pub(super) fn mode(&self) -> Mode {
        if self.state().mode.load(Ordering::Acquire) == 1 { Mode::PassIdle } else { Mode::Divert }
    }

    fn state(&self) -> &State {
        // SAFETY: mapped in `map`, until this is dropped; all bits are values of its members.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nothing borrows it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<State>()) };
    }
}
