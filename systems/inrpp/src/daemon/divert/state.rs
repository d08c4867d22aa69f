//! What the programs and the process share in memory: signs of life, and the mode.

use std::{
    fs, io,
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
pub(super) struct Shared {
    state: NonNull<State>,
    /// By how many nanoseconds the process's `CLOCK_MONOTONIC` is ahead of the programs'.
    ahead: i64,
}

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
        let ahead = fs::read_to_string("/proc/self/timens_offsets").map_or(0, |text| ahead(&text));
        mapped.map(|state| Shared { state, ahead }).ok_or_else(failed)
    }

    pub(super) fn beat(&self, now: Time) {
        let now = now.as_nanos();
        // Zero is no sign of life in any namespace.
        let beat = if now == 0 { 0 } else { now.saturating_add_signed(self.ahead.saturating_neg()) };
        self.state().beat.store(beat, Ordering::Release);
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
        unsafe { self.state.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nothing borrows it any more.
        unsafe { libc::munmap(self.state.as_ptr().cast(), size_of::<State>()) };
    }
}

/// The offset of `CLOCK_MONOTONIC` in the process's time namespace (time_namespaces(7)); programs of BPF have none.
fn ahead(offsets: &str) -> i64 {
    let mut words = offsets.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let offset = words.find_map(|words| match words[..] {
        ["monotonic" | "1", seconds, nanos] => {
            let (seconds, nanos) = (seconds.parse::<i64>().ok()?, nanos.parse::<i64>().ok()?);
            seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
        }
        _ => None,
    });
    offset.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        for (text, expected) in [
            ("monotonic        5000         7\nboottime           1         0\n", 5_000_000_000_007),
            ("monotonic          -2 500000000\n", -1_500_000_000),
            ("boottime 1 0\n", 0),
            ("monotonic 99999999999999 0\n", 0),
            ("monotonic x 0", 0),
            ("", 0),
        ] {
            assert_eq!(ahead(text), expected, "{text}");
        }
    }
}
