//! Network namespaces without names: held by a file descriptor, gone with the last process that holds it.

use std::{
    fs::{self, File},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::Path,
};

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{LinuxError, Result};

/// Buckets of a namespace's table of TCP connections; with more connections than this, chains grow.
const TCP_TABLE_ENTRIES: &str = "4096";

/// A network namespace.
#[derive(Debug)]
pub struct NetNs {
    file: File,
}

impl NetNs {
    /// Makes a new namespace, with nothing in it but a loopback interface that is down.
    pub fn create() -> Result<Self> {
        on_thread(|| {
            let unshare =
                || unshare(CloneFlags::CLONE_NEWNET).map_err(|e| LinuxError::io("making a network namespace", e));
            // A namespace gives its children a table of TCP connections of their own: to list those of a small table
            // takes microseconds, of the machine's shared one half a millisecond. So this is a child of a namespace
            // made for the purpose. Kernels before 6.2 cannot, and share the table.
            unshare()?;
            if set_sysctl("ipv4/tcp_child_ehash_entries", TCP_TABLE_ENTRIES).is_ok() {
                unshare()?;
            }
            Self::current()
        })
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self> {
        let file = File::open("/proc/thread-self/ns/net")
            .map_err(|error| LinuxError::io("opening the current network namespace", error))?;
        Ok(NetNs { file })
    }

    /// Runs `work` on a thread of its own inside the namespace; sockets that it opens stay there.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Moves the calling thread into the namespace.
    pub fn enter(&self) -> Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|error| LinuxError::io("entering a network namespace", error))
    }

    /// The descriptor as a number, for a child process between fork and exec.
    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sets a sysctl below `/proc/sys/net` in the calling thread's namespace, such as `ipv6/conf/all/forwarding`.
pub fn set_sysctl(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys/net").join(name);
    fs::write(&path, value).map_err(|error| LinuxError::io(format!("setting {} to {value}", path.display()), error))
}

/// Runs `work` on a fresh thread, so that what it does to its namespaces ends with it.
fn on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
