//! Finds file systems of the kernel (control groups, BPF) wherever they are mounted.
//!
//! `ip netns exec` gives its command a `/sys` of its own, with neither. The init process of the machine still has them.

use std::{
    ffi::{CStr, OsString},
    fs, io,
    os::{
        fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use nix::sys::statfs::{BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC, FsType, statfs};

/// The root directory of the machine's init process, as others see it.
const INIT_ROOT: &str = "/proc/1/root";

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Control groups, version 2.
    Cgroup2,
    /// Pinned BPF objects.
    Bpf,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Cgroup2 => "cgroup2",
            Kind::Bpf => "bpf",
        }
    }

    fn magic(self) -> FsType {
        match self {
            Kind::Cgroup2 => CGROUP2_SUPER_MAGIC,
            Kind::Bpf => BPF_FS_MAGIC,
        }
    }

    /// Whether `path`, or the nearest directory above it that exists, is in such a file system.
    pub fn holds(self, path: &Path) -> bool {
        let there = path.ancestors().find(|ancestor| ancestor.exists());
        there.and_then(|there| statfs(there).ok()).is_some_and(|system| system.filesystem_type() == self.magic())
    }

    /// Where such a file system is mounted: in this mount namespace, or else in that of the init process.
    pub fn mount_point(self) -> Option<PathBuf> {
        let places = [("/", "/proc/self/mountinfo"), (INIT_ROOT, "/proc/1/mountinfo")];
        places.iter().find_map(|(root, table)| {
            let points = mount_points(&fs::read_to_string(table).ok()?, self.name());
            let mut points = points.into_iter().map(|point| below(root, &point));
            // Something else may be mounted over it.
            points.find(|point| self.holds(point))
        })
    }

    /// Where the init process has such file systems, by its own account.
    pub fn mount_points_of_init(self) -> Vec<PathBuf> {
        fs::read_to_string("/proc/1/mountinfo").map(|table| mount_points(&table, self.name())).unwrap_or_default()
    }

    /// `path`, or the same path as the init process sees it, whichever is in such a file system; `None` if neither is.
    pub fn locate(self, path: &Path) -> Option<PathBuf> {
        [path.to_path_buf(), below(INIT_ROOT, path)].into_iter().find(|path| self.holds(path))
    }
}

/// Mounts control groups where only this process sees them, as long as it lives. It takes CAP_SYS_ADMIN.
pub(crate) fn mount_cgroup2() -> io::Result<PathBuf> {
    let context = fsopen(c"cgroup2")?;
    let number = context.into_raw_fd();
    // SAFETY: the descriptor is ours, and the other arguments are null or numbers.
    let made = unsafe {
        let null = std::ptr::null::<libc::c_char>();
        libc::syscall(libc::SYS_fsconfig, number, FSCONFIG_CMD_CREATE, null, null, 0)
    };
    let mount = check(made).and_then(|_| {
        // SAFETY: a system call whose arguments are numbers.
        check(unsafe { libc::syscall(libc::SYS_fsmount, number, FSMOUNT_CLOEXEC, 0) })
    });
    // SAFETY: the context is ours, and nothing uses it any more.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    // The mount lives as long as the descriptor, which is never closed.
    mount.map(|mount| PathBuf::from(format!("/proc/self/fd/{mount}")))
}

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

fn fsopen(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a string that ends with zero.
    let opened = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    // SAFETY: the kernel has just made this descriptor for us.
    check(opened).map(|number| unsafe { OwnedFd::from_raw_fd(number) })
}

fn check(result: libc::c_long) -> io::Result<RawFd> {
    RawFd::try_from(result).ok().filter(|number| *number >= 0).ok_or_else(io::Error::last_os_error)
}

/// An absolute path, seen from another root.
fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

/// A line of a `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// What of the file system is mounted: `/` if it is all, `net:[4026531840]` if it is a namespace.
    pub(crate) root: String,
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// The kind of file system, as `mount -t` has it.
    pub(crate) kind: String,
}

/// Reads the text of a `mountinfo` (proc_pid_mountinfo(5)).
pub(crate) fn read(mountinfo: &str) -> impl Iterator<Item = Mount> {
    mountinfo.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?.to_string(), unescape(fields.next()?));
        Some(Mount { root, point, kind: system.split(' ').next()?.to_string() })
    })
}

/// Where file systems of this kind are mounted; whole ones come first.
fn mount_points(mountinfo: &str, kind: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = read(mountinfo).filter(|mount| mount.kind == kind).collect();
    found.sort_by_key(|mount| mount.root != "/");
    found.into_iter().map(|mount| mount.point).collect()
}

/// Spaces and the like are written as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HYBRID: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 25 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755
32 30 0:27 /docker/x /container rw shared:10 - cgroup2 cgroup2 rw
31 30 0:27 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
34 28 0:4 net:[4026532281] /run/netns/a\\040b rw shared:11 - nsfs nsfs rw
";

    #[test]
    fn a_hybrid_hierarchy_has_control_groups_of_version_2_elsewhere() {
        let points = mount_points(HYBRID, "cgroup2");
        assert_eq!(points, [Path::new("/sys/fs/cgroup/uni fied"), Path::new("/container")]);
        assert_eq!(mount_points(HYBRID, "bpf"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_namespace_that_has_a_name_is_mounted_at_it() {
        let named = read(HYBRID).find(|mount| mount.root == "net:[4026532281]").unwrap();
        assert_eq!((named.point.as_path(), named.kind.as_str()), (Path::new("/run/netns/a b"), "nsfs"));
    }

    proptest! {
        #[test]
        fn no_table_of_mounts_makes_the_reader_panic(text in "[\\PC\\n -]*") {
            let _ = mount_points(&text, "cgroup2");
        }
    }
}
