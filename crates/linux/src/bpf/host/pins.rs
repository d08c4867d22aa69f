//! What outlives the agent: maps, and the program's link, as files of a BPF file system.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use libbpf_rs::{Link, OpenObject, Program, query::LinkTypeInfo};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use super::super::failed;
use crate::error::{LinuxError, Result};

/// Where the path changer's state is kept while no agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    /// A directory of a BPF file system, made where it is missing.
    pub directory: PathBuf,
    /// Whether the program goes on without an agent. If so, new connections get the last paths; else they take the default
    /// route until an agent is back.
    pub program: bool,
}

/// The agent that holds the lock of a state directory, which may already be removed.
#[derive(Debug)]
pub struct Holder(File);

const LINK: &str = "link";

impl Pins {
    /// Whether state can be kept in the directory: whether it is, or would be, on a BPF file system.
    pub fn is_possible(&self) -> Result<()> {
        let what = || format!("keeping the path changer's state in {}", self.directory.display());
        let there = self.directory.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
        let file_system = statfs(there).map_err(|error| LinuxError::io(what(), error))?;
        if file_system.filesystem_type() == BPF_FS_MAGIC {
            return Ok(());
        }
        Err(LinuxError::Missing {
            what: what(),
            needs: "it needs a BPF file system there: `mount -t bpf bpf /sys/fs/bpf`",
        })
    }

    /// Makes the directory.
    pub(super) fn make(&self) -> Result<()> {
        self.is_possible()?;
        let made = fs::create_dir_all(&self.directory);
        made.map_err(|error| LinuxError::io(format!("making {}", self.directory.display()), error))
    }

    /// The agent that works with this state, or worked.
    pub fn holder(&self) -> Result<Holder> {
        let directory = File::open(&self.directory);
        directory.map(Holder).map_err(|error| LinuxError::io(format!("opening {}", self.directory.display()), error))
    }

    /// Makes sure that no other agent works with this state as long as the lock lives.
    pub(super) fn lock(&self) -> Result<Flock<File>> {
        let what = || format!("locking {}", self.directory.display());
        let directory = File::open(&self.directory).map_err(|error| LinuxError::io(what(), error))?;
        Flock::lock(directory, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => LinuxError::io(
                format!("taking over {}", self.directory.display()),
                io::Error::other("another agent is at work with it; `sidestep agent stop` ends it"),
            ),
            error => LinuxError::io(what(), error),
        })
    }

    /// Makes an object use the maps that are pinned here; maps that are not pinned yet will be.
    pub(super) fn apply(&self, open: &mut OpenObject) -> Result<()> {
        for mut map in open.maps_mut() {
            let path = self.directory.join(map.name());
            map.set_pin_path(&path).map_err(|error| failed(format!("keeping {}", path.display()), &error))?;
        }
        Ok(())
    }

    /// The link that an earlier agent left, if it is attached to `cgroup`; a link to another group is removed.
    pub(super) fn link(&self, cgroup: &Path) -> Result<Option<Link>> {
        let path = self.directory.join(LINK);
        if !path.exists() {
            return Ok(None);
        }
        let what = || format!("taking over {}", path.display());
        let mut link = Link::open(&path).map_err(|error| failed(what(), &error))?;
        if is_attached(&link, cgroup) {
            return Ok(Some(link));
        }
        link.unpin().map_err(|error| failed(what(), &error))?;
        Ok(None)
    }

    /// Pins or unpins the link, as [`program`](Self::program) says.
    pub(super) fn keep(&self, link: &mut Link) -> Result<()> {
        let path = self.directory.join(LINK);
        let kept = match (self.program, path.exists()) {
            (true, false) => link.pin(&path),
            (false, true) => link.unpin(),
            _ => Ok(()),
        };
        kept.map_err(|error| failed(format!("keeping {}", path.display()), &error))
    }

    /// Replaces the earlier program by this one, between two packets.
    pub(super) fn replace(link: &mut Link, program: &Program<'_>) -> Result<()> {
        link.update_prog(program).map_err(|error| failed("replacing the path changer's program", &error))
    }

    /// Removes all pins; maps and programs that are in use live on until they are closed.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(LinuxError::io(format!("removing {}", self.directory.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Whether an agent has left something here.
    pub fn exist(&self) -> bool {
        self.directory.join("sidestep_config").exists()
    }
}

impl Holder {
    /// Whether no agent holds the lock any more.
    pub fn is_gone(&self) -> bool {
        self.0.try_clone().is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok())
    }
}

/// Whether `link` is attached to `cgroup`. A control group's id is its directory's inode, and zero where it is gone.
pub(super) fn is_attached(link: &Link, cgroup: &Path) -> bool {
    let id = fs::metadata(cgroup).map(|directory| directory.ino());
    let info = link.info().map(|info| info.info);
    matches!((id, info), (Ok(id), Ok(LinkTypeInfo::Cgroup(of))) if of.cgroup_id == id)
}
