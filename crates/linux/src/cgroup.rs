//! Control groups (version 2): where programs are attached, and how a lab finds all its processes again.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{LinuxError, Result},
    mounts::{self, Kind},
};

/// Where cgroup2 is mounted on machines that have no other control groups.
const USUAL_MOUNT: &str = "/sys/fs/cgroup";

/// A control group that we made.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

/// Where the cgroup2 file system is mounted. Where it is not, this process gets a mount that no other process sees.
pub fn mount_point() -> Result<PathBuf> {
    let mounted = Kind::Cgroup2.mount_point().or_else(|| mounts::mount_cgroup2().ok());
    mounted.ok_or(LinuxError::Missing {
        what: "finding control groups version 2".into(),
        needs: "mount them: mount -t cgroup2 none /sys/fs/cgroup/unified",
    })
}

/// The directory of the control group that the user named; `None` is the root, which holds all.
///
/// A relative path begins where cgroup2 is mounted. So does what follows the place where it is usually mounted, or where the
/// init process has it, if it is elsewhere here.
/// A group that does not exist yet is no error. A directory of another file system is one, and names the right place.
pub fn find(group: Option<&Path>) -> Result<PathBuf> {
    let Some(group) = group else { return mount_point() };
    if group.is_absolute()
        && let Some(found) = Kind::Cgroup2.locate(group)
    {
        return Ok(found);
    }
    let mount = mount_point()?;
    if group.is_relative() {
        return Ok(mount.join(group));
    }
    let bases = Kind::Cgroup2.mount_points_of_init().into_iter().chain([USUAL_MOUNT.into()]);
    let within = bases.filter_map(|base| Some(mount.join(group.strip_prefix(base).ok()?)));
    if let Some(found) = within.into_iter().find(|path| path.is_dir()) {
        return Ok(found);
    }
    let problem = format!("it is no control group of version 2; these are below {}", mount.display());
    Err(LinuxError::io(format!("using {}", group.display()), io::Error::new(ErrorKind::InvalidInput, problem)))
}

/// What people call the control group of a directory: its path, without a mount that only this process has.
pub fn shown(group: &Path) -> String {
    let own = Path::new("/proc/self/fd");
    match group.strip_prefix(own) {
        Ok(within) => Path::new("/").join(within.components().skip(1).collect::<PathBuf>()).display().to_string(),
        Err(_) => group.display().to_string(),
    }
}

/// Most groups among which one is sought by its number.
const MAX_GROUPS: usize = 20_000;

/// The directory of the control group with this number, which is its inode, where cgroup2 is mounted at `mount`; `None` where
/// there is none that is seen from there.
pub fn of_number(number: u64, mount: &Path) -> Option<PathBuf> {
    let mut waiting = vec![mount.to_path_buf()];
    for _ in 0..MAX_GROUPS {
        let group = waiting.pop()?;
        if fs::metadata(&group).is_ok_and(|found| found.ino() == number) {
            return Some(group);
        }
        let entries = fs::read_dir(&group).into_iter().flatten().flatten();
        waiting.extend(entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir())).map(|one| one.path()));
    }
    None
}

impl Cgroup {
    /// Makes the group `name` below the mount point, or takes it if it exists.
    pub fn create(name: &str) -> Result<Self> {
        Self::make(mount_point()?.join(name))
    }

    /// The group at `path`, which exists.
    pub fn at(path: PathBuf) -> Self {
        Cgroup { path }
    }

    /// Makes the group `name` inside this one.
    pub fn child(&self, name: &str) -> Result<Self> {
        Self::make(self.path.join(name))
    }

    /// The group's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file into which a process writes `0` to join.
    pub fn open_procs(&self) -> Result<File> {
        let path = self.path.join("cgroup.procs");
        File::options()
            .write(true)
            .open(&path)
            .map_err(|error| LinuxError::file(format!("opening {}", path.display()), &path, error))
    }

    /// Kills every process in the group and below it, and removes all these groups. A group that is gone is no error.
    pub fn destroy(&self) -> Result<()> {
        match fs::write(self.path.join("cgroup.kill"), "1") {
            Ok(()) => {}
            // If another process removes the group at the same time, the kernel returns one of these.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) => {
                return Ok(());
            }
            Err(error) => {
                return Err(LinuxError::file(format!("killing what is in {}", self.path.display()), &self.path, error));
            }
        }
        // A killed process leaves the group only when it is reaped by the kernel: wait, but not for ever.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match remove_tree(&self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(LinuxError::io(format!("removing {}", self.path.display()), error)),
            }
        }
    }

    fn make(path: PathBuf) -> Result<Self> {
        match fs::create_dir(&path) {
            Ok(()) => Ok(Cgroup { path }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Cgroup { path }),
            Err(error) => Err(LinuxError::file(format!("making the control group {}", path.display()), &path, error)),
        }
    }
}

/// Removes a group and those below it, children first; the kernel removes the files inside.
fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use nix::{
        mount::{MntFlags, MsFlags, mount, umount2},
        sched::{CloneFlags, unshare},
    };

    use super::*;
    use crate::testing::root_or_skip;

    /// Runs `test` where `/sys` is new and empty of mounts, as `ip netns exec` leaves it.
    fn with_new_sys(test: impl FnOnce() + Send + 'static) {
        let inside = move || {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
            umount2("/sys", MntFlags::MNT_DETACH).unwrap();
            mount(Some("none"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>).unwrap();
            test();
        };
        thread::spawn(inside).join().unwrap();
    }

    #[test]
    fn control_groups_are_found_where_ip_netns_exec_has_replaced_sys() {
        if !root_or_skip("control groups behind a new /sys") {
            return;
        }
        let here = mount_point().unwrap();
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
        let group = Cgroup::create(&format!("sidestep-find-{}", std::process::id())).unwrap();
        let (root, named) = (inode(&here), inode(group.path()));
        let path = group.path().to_path_buf();
        with_new_sys(move || {
            assert!(!path.exists());
            assert_eq!(inode(&mount_point().unwrap()), root);
            assert_eq!(inode(&find(Some(&path)).unwrap()), named);
            assert_eq!(inode(&find(path.file_name().map(Path::new)).unwrap()), named);
            assert_eq!(inode(&mounts::mount_cgroup2().unwrap()), root, "without any help");
        });
        group.destroy().unwrap();
    }

    #[test]
    fn a_mount_that_no_other_process_has_is_not_named() {
        assert_eq!(shown(Path::new("/proc/self/fd/4/web/x")), "/web/x");
        assert_eq!(shown(Path::new("/proc/self/fd/4")), "/");
        assert_eq!(shown(Path::new("/sys/fs/cgroup/web")), "/sys/fs/cgroup/web");
    }

    #[test]
    fn a_group_is_found_by_its_number() {
        if !root_or_skip("a control group's number") {
            return;
        }
        let group = Cgroup::create(&format!("sidestep-number-{}", std::process::id())).unwrap();
        let inner = group.child("inner").unwrap();
        let number = fs::metadata(inner.path()).unwrap().ino();
        let mount = mount_point().unwrap();
        assert_eq!(of_number(number, &mount).as_deref(), Some(inner.path()));
        group.destroy().unwrap();
        assert_eq!(of_number(number, &mount), None);
    }

    #[test]
    fn a_directory_that_is_no_control_group_is_refused_with_the_right_place() {
        if !root_or_skip("a directory that is no control group") {
            return;
        }
        let error = find(Some(Path::new("/tmp"))).unwrap_err().to_string();
        let mount = mount_point().unwrap();
        let expected = format!("using /tmp: it is no control group of version 2; these are below {}", mount.display());
        assert_eq!(error, expected);
        assert_eq!(find(None).unwrap(), mount);
        assert_eq!(find(Some(Path::new("web.slice/x"))).unwrap(), mount.join("web.slice/x"), "made later");
    }
}
