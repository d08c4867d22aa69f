//! When frames arrived at the lab's wires (`bpf/arrivals.bpf.c`), which read them later.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use libbpf_rs::{Object, ProgramInput, TC_EGRESS, TcHookBuilder};

use super::{bytecode, failed, load, map, open, program};
use crate::error::{LinuxError, Result};

/// The most threads that hand frames over (`THREADS`).
pub const THREADS: usize = 8;

/// Our filter's handle, and its priority: before those of daemons, which may end a frame's path through the filters.
const HANDLE: u32 = 0x5353;
const PRIORITY: u32 = 1;

/// Where the source address is in an Ethernet header.
const SOURCE_ADDRESS: std::ops::Range<usize> = 6..12;
/// How many bits of the time a frame carries.
const BITS: u32 = 48;
/// The oldest frame, in nanoseconds: what claims to be older was not stamped.
const OLDEST: u64 = 1_000_000_000;

/// The programs, loaded. Interfaces that have them keep them, as long as they live.
#[derive(Debug)]
pub struct Arrivals {
    object: Object,
    threads: Threads,
}

/// One of the threads that hand frames over, known to the program.
#[derive(Debug)]
pub struct Entered {
    arrivals: Arc<Arrivals>,
    number: usize,
}

/// What the program and the threads share (`struct wire_threads`).
#[repr(C)]
struct Shared([SharedThread; THREADS]);

#[repr(C)]
struct SharedThread {
    task: AtomicU64,
    due: AtomicU64,
}

/// The shared memory, mapped.
#[derive(Debug)]
struct Threads(NonNull<Shared>);

// SAFETY: the memory is mapped until this is dropped, and has atomics only.
unsafe impl Send for Threads {}
// SAFETY: as above.
unsafe impl Sync for Threads {}

impl Arrivals {
    /// Makes the kernel verify and load the programs.
    pub fn load() -> Result<Self> {
        let object = load("arrivals", open("arrivals", bytecode!("arrivals"))?)?;
        let threads = Threads::map(map(&object, "sidestep_wires")?.as_fd().as_raw_fd())?;
        Ok(Arrivals { object, threads })
    }

    /// Makes the interface with this index, in the calling thread's network namespace, write into each frame when it was sent.
    pub fn attach(&self, interface: u32) -> Result<()> {
        let what = || format!("noting the times of frames of interface {interface}");
        let stamp = program(&self.object, "sidestep_stamp")?;
        let mut hook = TcHookBuilder::new(stamp.as_fd())
            .ifindex(interface as i32)
            .replace(true)
            .handle(HANDLE)
            .priority(PRIORITY)
            .hook(TC_EGRESS);
        hook.create().map_err(|error| failed(what(), &error))?;
        hook.attach().map(drop).map_err(|error| failed(what(), &error))
    }

    /// Makes the calling thread known as the one with this number, below [`THREADS`].
    pub fn enter(self: &Arc<Self>, number: usize) -> Result<Entered> {
        let what = || format!("making thread {number} of the wires known");
        if number >= THREADS {
            return Err(LinuxError::io(what(), io::Error::from(io::ErrorKind::InvalidInput)));
        }
        let mut frame = [0; 64];
        frame[0] = number as u8;
        let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
        let run = program(&self.object, "sidestep_enter")?.test_run(input).map_err(|error| failed(what(), &error))?;
        if run.return_value != 0 {
            return Err(LinuxError::io(what(), io::Error::from(io::ErrorKind::InvalidInput)));
        }
        Ok(Entered { arrivals: Arc::clone(self), number })
    }
}

impl Entered {
    /// From now on the thread hands over a frame that was due at `due`, in nanoseconds of `CLOCK_MONOTONIC`; zero: none.
    pub fn hands_over(&self, due: u64) {
        if let Some(thread) = self.thread() {
            thread.due.store(due, Ordering::Relaxed);
        }
    }

    fn thread(&self) -> Option<&SharedThread> {
        self.arrivals.threads.shared().0.get(self.number)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The kernel may give another thread the same place.
        if let Some(thread) = self.thread() {
            thread.due.store(0, Ordering::Relaxed);
            thread.task.store(0, Ordering::Relaxed);
        }
    }
}

/// How long ago a frame was sent that was read at `now`, in nanoseconds of `CLOCK_MONOTONIC`; its source address becomes
/// `address` again. Zero if it claims to come later, or to be more than a second old.
pub fn age(frame: &mut [u8], now: u64, address: [u8; 6]) -> u64 {
    let Some(source) = frame.get_mut(SOURCE_ADDRESS) else { return 0 };
    let mut stamp = [0; 8];
    stamp[2..].copy_from_slice(source);
    source.copy_from_slice(&address);
    let age = now.wrapping_sub(u64::from_be_bytes(stamp)) & ((1 << BITS) - 1);
    if age <= OLDEST { age } else { 0 }
}

impl Threads {
    fn map(table: std::os::fd::RawFd) -> Result<Self> {
        // SAFETY: a new mapping of one entry of a BPF array, at least as large as `Shared`; it is aligned to a page.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                table,
                0,
            )
        };
        let mapped = if memory == libc::MAP_FAILED { None } else { NonNull::new(memory.cast()) };
        mapped
            .map(Threads)
            .ok_or_else(|| LinuxError::io("sharing memory with a BPF program", io::Error::last_os_error()))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped in `map`, until this is dropped; all bits are values of atomics.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root_or_skip;

    #[test]
    fn a_thread_is_known_under_its_number_and_forgotten_when_it_leaves() {
        if !root_or_skip("the times of frames") {
            return;
        }
        let arrivals = Arc::new(Arrivals::load().unwrap());
        let state = |thread: &SharedThread| [&thread.task, &thread.due].map(|value| value.load(Ordering::Relaxed));
        let known =
            || arrivals.threads.shared().0.iter().map(state).map(|[task, due]| (task != 0, due)).collect::<Vec<_>>();
        let entered = arrivals.enter(2).unwrap();
        entered.hands_over(7);
        let mut expected = vec![(false, 0); THREADS];
        expected[2] = (true, 7);
        assert_eq!(known(), expected);
        drop(entered);
        assert_eq!(known(), [(false, 0); THREADS]);
    }

    #[test]
    fn a_frame_shows_how_long_ago_it_was_sent() {
        let now = (7 << BITS) + 5;
        for (stamp, expected) in [(now - 3, 3), (now, 0), (now - 6, 6), (now + 1, 0), (now - OLDEST - 1, 0)] {
            let mut frame = [&[1; 6], &stamp.to_be_bytes()[2..], &[0x86, 0xdd]].concat();
            assert_eq!(age(&mut frame, now, [2; 6]), expected, "{stamp}");
            assert_eq!(frame, [&[1; 6][..], &[2; 6], &[0x86, 0xdd]].concat());
        }
        assert_eq!(age(&mut [0; 8], now, [2; 6]), 0);
    }
}
