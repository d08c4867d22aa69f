//! Control groups (version 2): where the path changer attaches, and how a lab finds all its processes again.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::error::{LinuxError, Result};

/// A control group that we made.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

/// Where the cgroup2 file system is mounted.
pub fn mount_point() -> Result<PathBuf> {
    let mounts =
        fs::read_to_string("/proc/self/mounts").map_err(|error| LinuxError::io("reading /proc/self/mounts", error))?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(point))
        })
        .next()
        .ok_or(LinuxError::Missing {
            what: "finding control groups version 2".into(),
            needs: "mount them: mount -t cgroup2 none /sys/fs/cgroup/unified",
        })
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
            .map_err(|error| LinuxError::io(format!("opening {}", path.display()), error))
    }

    /// Kills every process in the group and below it, and removes all these groups. A group that is gone is no error.
    pub fn destroy(&self) -> Result<()> {
        match fs::write(self.path.join("cgroup.kill"), "1") {
            Ok(()) => {}
            // If another process removes the group at the same time, the kernel returns one of these.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) => {
                return Ok(());
            }
            Err(error) => return Err(LinuxError::io(format!("killing what is in {}", self.path.display()), error)),
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
            Err(error) => Err(LinuxError::io(format!("making the control group {}", path.display()), error)),
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
