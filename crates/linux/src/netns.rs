//! Network namespaces without names: held by a file descriptor, gone with the last process that holds it.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::{fs::MetadataExt, net::UnixDatagram},
    },
    path::{Path, PathBuf},
};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{
    error::{LinuxError, Result},
    mounts,
};

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
        let file = File::open(OWN).map_err(|error| LinuxError::io("opening the current network namespace", error))?;
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

/// What distinguishes a network namespace from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetNsId {
    /// The kernel's number for it, which no other namespace gets before the machine starts again.
    pub cookie: u64,
    /// The inode of its files in `/proc`, which another may get when it is gone.
    pub inode: u32,
}

/// The calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";

impl NetNsId {
    /// That of the calling thread's namespace.
    pub fn current() -> Result<Self> {
        let what = "reading which network namespace this is";
        let inode = fs::metadata(OWN).map_err(|error| LinuxError::io(what, error))?.ino();
        let inode = u32::try_from(inode).map_err(|error| LinuxError::io(what, io::Error::other(error)))?;
        let socket = UnixDatagram::unbound().map_err(|error| LinuxError::io(what, error))?;
        let mut cookie = 0u64;
        let mut size = size_of_val(&cookie) as libc::socklen_t;
        // SAFETY: the kernel writes no more than `size` bytes, which are those of `cookie`.
        let failed = unsafe {
            let cookie = (&raw mut cookie).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, cookie, &raw mut size)
        };
        if failed != 0 {
            return Err(LinuxError::io(what, io::Error::last_os_error()));
        }
        Ok(NetNsId { cookie, inode })
    }

    /// A file by which the namespace can be entered: a name that it is mounted at, as `ip netns` does, or that of a process.
    ///
    /// `None` where there is none, or none that the caller may see.
    pub fn find(self) -> Option<PathBuf> {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let name = format!("net:[{}]", self.inode);
        let mounted = mounts::read(&table).filter(|mount| mount.root == name).map(|mount| mount.point);
        let is_number =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
        let processes = processes.filter(is_number).map(|process| process.join("ns/net"));
        mounted.chain(processes).find(|path| self.is_at(path))
    }

    fn is_at(self, path: &Path) -> bool {
        if fs::metadata(path).map(|file| file.ino()).ok() != Some(u64::from(self.inode)) {
            return false;
        }
        // The inode may be that of a later namespace. A process that may not enter it has to trust the inode.
        let entered = on_thread(|| {
            let file = File::open(path).map_err(|error| LinuxError::io("opening a network namespace", error))?;
            NetNs { file }.enter()?;
            Self::current()
        });
        entered.map_or(true, |found| found.cookie == self.cookie)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root_or_skip;

    #[test]
    fn a_namespace_is_distinguished_from_others_and_found_as_long_as_a_process_is_in_it() {
        if !root_or_skip("a network namespace") {
            return;
        }
        let own = NetNsId::current().unwrap();
        assert_eq!(NetNsId::current().unwrap(), own);
        assert!(own.find().is_some());
        // A namespace without processes has no name by which others could find it.
        let other = NetNs::create().unwrap().run(NetNsId::current).unwrap();
        assert_ne!((own.cookie, own.inode), (other.cookie, other.inode));
        assert_eq!(other.find(), None);
        assert_eq!(NetNsId { cookie: other.cookie, ..own }.find(), None, "the inode of a later namespace");
    }
}
