//! What outlives the agent: maps, and the program's link, as files of a BPF file system.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, OpenObject, Program, ProgramAttachType, query::LinkTypeInfo};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg},
    sys::{
        stat::{UtimensatFlags, fstatat, utimensat},
        statfs::{BPF_FS_MAGIC, statfs},
        time::TimeSpec,
    },
};
use sidestep_linux::{LinuxError, Result, bpf::failed, mounts::Kind};

use super::{
    HostConfig,
    layout::{self, RELEASE},
};

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

/// The first program's link.
const LINK: &str = "sidestep_link";
/// The names of the links' files, and of their programs. The first program sets which sockets the kernel watches, so it
/// comes first.
pub(super) const LINKS: [(&str, &str); 3] =
    [(LINK, "sidestep_host"), ("sidestep_con4", "sidestep_con4"), ("sidestep_con6", "sidestep_con6")];
/// What earlier versions called it.
const FORMER_LINK: &str = "link";
/// The map by which others see that there is a state; the first to be used, and the last to go.
const CONFIG: &str = "sidestep_config";

/// The mode of a directory that we make. The sticky bit means nothing here, as only its owner may write there: it shows
/// that the directory is ours to remove.
const OWN_DIRECTORY: u32 = 0o1755;
const STICKY: u32 = 0o1000;

/// How often, and how long apart, an agent tries to take the lock: who reads the state holds it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

impl Pins {
    /// `directory`, or the same directory as the init process sees it, whichever is on a BPF file system.
    ///
    /// A process that `ip netns exec` started has a `/sys` of its own, without the one at `/sys/fs/bpf`.
    pub fn locate(directory: PathBuf) -> PathBuf {
        Kind::Bpf.locate(&directory).unwrap_or(directory)
    }

    /// Whether state can be kept in the directory: whether it is, or would be, on a BPF file system.
    pub fn is_possible(&self) -> Result<()> {
        let what = || format!("keeping the path changer's state in {}", self.directory.display());
        let there = self.directory.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
        let file_system = statfs(there).map_err(|error| LinuxError::file(what(), there, error))?;
        if file_system.filesystem_type() == BPF_FS_MAGIC {
            return Ok(());
        }
        Err(LinuxError::Missing {
            what: what(),
            needs: "it needs a BPF file system there: `mount -t bpf bpf /sys/fs/bpf`",
        })
    }

    /// Makes the directory, and those above it, where they are missing.
    pub(super) fn make(&self) -> Result<()> {
        self.is_possible()?;
        let missing: Vec<_> = self.directory.ancestors().take_while(|directory| !directory.exists()).collect();
        for directory in missing.into_iter().rev() {
            match DirBuilder::new().mode(OWN_DIRECTORY).create(directory) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(LinuxError::file(format!("making {}", directory.display()), directory, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The agent that works with this state, or worked.
    pub fn holder(&self) -> Result<Holder> {
        let directory = File::open(&self.directory);
        let what = || format!("opening {}", self.directory.display());
        directory.map(Holder).map_err(|error| LinuxError::file(what(), &self.directory, error))
    }

    /// Makes sure that no other agent works with this state as long as the lock lives.
    pub(super) fn lock(&self) -> Result<Flock<File>> {
        let what = || format!("locking {}", self.directory.display());
        let opened = File::open(&self.directory);
        let mut directory = opened.map_err(|error| LinuxError::file(what(), &self.directory, error))?;
        for _ in 1..LOCK_TRIES {
            match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
                Err((back, Errno::EWOULDBLOCK)) => directory = back,
                other => return other.map_err(|(_, error)| LinuxError::io(what(), error)),
            }
            thread::sleep(LOCK_PAUSE);
        }
        Flock::lock(directory, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => LinuxError::io(
                format!("taking over {}", self.directory.display()),
                io::Error::other("another agent is at work with it; `sidestep agent stop` ends it"),
            ),
            error => LinuxError::io(what(), error),
        })
    }

    /// Whether the maps that are pinned here are of the kind and size of the object's; maps that are missing fit.
    pub(super) fn fit(&self, open: &OpenObject) -> bool {
        open.maps().all(|map| {
            // What is no map, or cannot be read, is found out when it is used.
            let Ok(pinned) = MapHandle::from_pinned_path(self.directory.join(map.name())) else { return true };
            (pinned.map_type(), pinned.key_size(), pinned.value_size())
                == (map.map_type(), map.key_size(), map.value_size())
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

    /// The link in the file `pin` that an earlier agent left, if it is attached to `cgroup`; a link to another group is removed.
    pub(super) fn link(&self, pin: &str, cgroup: &Path) -> Result<Option<Link>> {
        self.rename_former_link()?;
        let path = self.directory.join(pin);
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

    /// Pins the link in the file `pin`, or unpins it, as [`program`](Self::program) requires.
    pub(super) fn keep(&self, pin: &str, link: &mut Link) -> Result<()> {
        let path = self.directory.join(pin);
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

    /// Removes our pins; maps and programs that are in use live on until they are closed.
    ///
    /// Only what has one of our names goes, and the directory only if one of us made it and nothing else is in it.
    pub fn remove(&self) -> Result<()> {
        self.rename_former_link()?;
        let maps = super::map_names()?;
        let maps = maps.iter().map(String::as_str).filter(|name| *name != CONFIG);
        for name in LINKS.map(|(pin, _)| pin).into_iter().chain([RELEASE]).chain(maps).chain([CONFIG]) {
            let path = self.directory.join(name);
            tolerate(fs::remove_file(&path), &[ErrorKind::NotFound], || format!("removing {}", path.display()))?;
        }
        self.remove_directories()
    }

    /// Removes the pins of the programs, which act no longer unless an agent is at work.
    pub(super) fn unlink_programs(&self) -> Result<()> {
        self.rename_former_link()?;
        LINKS.iter().try_for_each(|(pin, _)| {
            let path = self.directory.join(pin);
            tolerate(fs::remove_file(&path), &[ErrorKind::NotFound], || format!("removing {}", path.display()))
        })
    }

    fn remove_directories(&self) -> Result<()> {
        // The root of a BPF file system is always sticky: it is another device than the directory above it.
        let device = |directory: &Path| fs::symlink_metadata(directory).map(|found| found.dev()).ok();
        let is_ours = |directory: &&Path| {
            fs::symlink_metadata(directory)
                .is_ok_and(|found| found.is_dir() && found.permissions().mode() & STICKY != 0)
                && directory.parent().and_then(device) == device(directory)
        };
        for directory in self.directory.ancestors().take_while(is_ours) {
            match fs::remove_dir(directory) {
                // Pins of another program are there, or the directory above is not ours. An empty directory does no harm.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy | ErrorKind::PermissionDenied
                    ) =>
                {
                    break;
                }
                removed => {
                    tolerate(removed, &[ErrorKind::NotFound], || format!("removing {}", directory.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Gives the link of an earlier version the name that it has now. Something else of that name is left alone.
    fn rename_former_link(&self) -> Result<()> {
        let (former, path) = (self.directory.join(FORMER_LINK), self.directory.join(LINK));
        if !self.exist() || path.exists() || !former.exists() {
            return Ok(());
        }
        let info = Link::open(&former).and_then(|link| link.info()).map(|info| info.info);
        if matches!(info, Ok(LinkTypeInfo::Cgroup(of)) if matches!(of.attach_type, ProgramAttachType::CgroupSockOps)) {
            tolerate(fs::rename(&former, &path), &[ErrorKind::NotFound], || format!("renaming {}", former.display()))?;
        }
        Ok(())
    }

    /// Whether an agent has left something here.
    pub fn exist(&self) -> bool {
        self.directory.join(CONFIG).exists()
    }

    /// The configuration that an agent has left, read without loading anything; `None` if there is none.
    ///
    /// Of another version's only those settings are there that show where its marks, rules and routes are.
    pub fn config(&self) -> Option<HostConfig> {
        if !layout::fits(self).is_ok_and(|fits| fits) {
            return layout::place_of(self);
        }
        let map = MapHandle::from_pinned_path(self.directory.join(CONFIG)).ok()?;
        // A lookup fills as many bytes as the map's values have.
        let fits = (map.key_size(), map.value_size()) == (4, u32::try_from(size_of::<HostConfig>()).ok()?);
        let bytes = fits.then(|| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten())?;
        HostConfig::read(&bytes?)
    }

    /// Notes that the agent is at work now, for [`last_seen`](Self::last_seen).
    pub fn touch(&self) -> Result<()> {
        let path = self.directory.join(CONFIG);
        let now = TimeSpec::UTIME_NOW;
        let touched = utimensat(AT_FDCWD, &path, &now, &now, UtimensatFlags::NoFollowSymlink);
        touched.map_err(|error| LinuxError::io(format!("touching {}", path.display()), error))
    }

    /// How long ago an agent was at work; `None` if that is not known.
    pub fn last_seen(&self) -> Option<Duration> {
        let touched = fs::metadata(self.directory.join(CONFIG)).and_then(|pin| pin.modified()).ok()?;
        SystemTime::now().duration_since(touched).ok()
    }
}

impl Holder {
    /// Whether no agent holds the lock any more.
    pub fn is_gone(&self) -> bool {
        // A shared lock, as others may look at the same time.
        self.0.try_clone().is_ok_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_ok())
    }
}

fn tolerate(result: io::Result<()>, fine: &[ErrorKind], what: impl Fn() -> String) -> Result<()> {
    match result {
        Err(error) if !fine.contains(&error.kind()) => Err(LinuxError::io(what(), error)),
        _ => Ok(()),
    }
}

/// Whether the directory has no state any more.
pub(super) fn is_empty(directory: &File) -> bool {
    fstatat(directory, CONFIG, AtFlags::AT_SYMLINK_NOFOLLOW) == Err(Errno::ENOENT)
}

/// Whether `link` is attached to `cgroup`. A control group's id is its directory's inode, and zero where it is gone.
pub(super) fn is_attached(link: &Link, cgroup: &Path) -> bool {
    let id = fs::metadata(cgroup).map(|directory| directory.ino());
    let info = link.info().map(|info| info.info);
    matches!((id, info), (Ok(id), Ok(LinkTypeInfo::Cgroup(of))) if of.cgroup_id == id)
}
