//! What a lab makes outside its own process, and how to find and remove it: a control group and a directory.
//!
//! Namespaces, TAPs and BPF programs have no names and no pins: the kernel removes them with the last process that
//! holds them. So the control group that holds all processes of a lab is all that there is to find after a crash.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sidestep_linux::cgroup::{self, Cgroup};

use crate::error::LabError;

/// Name of a lab's control group and directory, before the number and start time of its process.
const PREFIX: &str = "sidestep-lab.";
/// Where labs keep their sockets.
const RUN: &str = "/run/sidestep";
/// The flag of a process that is about to end (`PF_EXITING` in the kernel's `sched.h`).
const EXITING: u32 = 0x4;

/// SIGKILL in a set of signals.
const SIGKILL: u64 = 1 << 8;

/// The places of one lab; removed when dropped.
#[derive(Debug)]
pub struct LabDir {
    cgroup: Cgroup,
    directory: PathBuf,
}

/// What [`clean`] found and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// Labs whose process is gone, removed.
    pub removed: Vec<String>,
    /// Labs that run, left alone.
    pub running: Vec<String>,
}

impl LabDir {
    /// Makes the places of the calling process's lab.
    pub fn create() -> Result<Self, LabError> {
        let id = own_id()?;
        let directory = Path::new(RUN).join(&id);
        // The group comes first, because a later `clean` finds the directory by it.
        let cgroup = Cgroup::create(&id)?;
        let site = LabDir { cgroup, directory };
        let make = || fs::create_dir_all(&site.directory);
        // The second try is for when another lab ends and removes the parent directory in between.
        make().or_else(|_| make()).map_err(LabError::file(&site.directory))?;
        Ok(site)
    }

    /// The control group of all of the lab's processes.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// The directory of the lab's sockets.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for LabDir {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.cgroup, &self.directory) {
            tracing::error!(%error, "cleaning up; run `sidestep lab clean`");
        }
    }
}

/// Removes what labs whose process is gone have left: processes, control groups and directories.
pub fn clean() -> Result<Cleaned, LabError> {
    let mut cleaned = Cleaned::default();
    let mount = cgroup::mount_point()?;
    let mut names = names_in(&mount)?;
    names.extend(names_in(Path::new(RUN))?);
    names.sort();
    names.dedup();
    for name in names {
        if is_alive(&name) {
            cleaned.running.push(name);
        } else {
            remove(&Cgroup::at(mount.join(&name)), &Path::new(RUN).join(&name))?;
            cleaned.removed.push(name);
        }
    }
    Ok(cleaned)
}

fn remove(cgroup: &Cgroup, directory: &Path) -> Result<(), LabError> {
    cgroup.destroy()?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(LabError::file(directory)(error)),
        _ => {}
    }
    // The parent directory is removed with the last lab.
    let _ = fs::remove_dir(RUN);
    Ok(())
}

fn names_in(directory: &Path) -> Result<Vec<String>, LabError> {
    match fs::read_dir(directory) {
        Ok(entries) => Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| owner(name).is_some())
            .collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LabError::file(directory)(error)),
    }
}

/// Process number and start time in a lab's name; `None` if it is not one.
fn owner(name: &str) -> Option<(u32, u64)> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('.')?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

/// Whether the process that made the lab still runs. Process ids are reused, so its start time must match.
fn is_alive(name: &str) -> bool {
    // The order matters: a process that has handled its SIGKILL before the first check has begun to end by the second.
    owner(name).is_some_and(|(pid, started)| !is_doomed(pid) && start_time(pid).is_some_and(|now| now == started))
}

/// Whether a SIGKILL is pending for a process, which may be busy in the kernel or wait for a processor.
fn is_doomed(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // Signals of the thread, and of the whole process, that wait to be delivered (proc(5)).
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok()).any(|set| set & SIGKILL != 0)
}

fn own_id() -> Result<String, LabError> {
    let pid = std::process::id();
    let started = start_time(pid).ok_or_else(|| LabError::file("/proc/self/stat")(ErrorKind::InvalidData.into()))?;
    Ok(format!("{PREFIX}{pid}.{started}"))
}

/// Start time of a process in clock ticks since boot (proc(5), field 22); `None` if there is none or it has ended.
///
/// A killed lab takes half a second to end, because the kernel first removes its interfaces.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let flags: u32 = fields.nth(5)?.parse().ok()?;
    if state == "Z" || state == "X" || flags & EXITING != 0 {
        return None;
    }
    fields.nth(12)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_is_alive_as_long_as_its_process() {
        let own = own_id().unwrap();
        assert!(is_alive(&own));
        let (pid, started) = owner(&own).unwrap();
        assert!(!is_alive(&format!("{PREFIX}{pid}.{}", started + 1)), "the number was used again");
    }

    #[test]
    fn a_process_that_was_killed_is_not_alive_even_before_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let name = format!("{PREFIX}{}.{}", child.id(), start_time(child.id()).unwrap());
        let before = (is_doomed(child.id()), is_alive(&name));
        child.kill().unwrap();
        let after = is_alive(&name);
        child.wait().unwrap();
        assert_eq!((before, after), ((false, true), false));
    }

    #[test]
    fn names_that_are_not_ours_are_left_alone() {
        for name in ["sidestep-lab.", "sidestep-lab.x.1", "user.slice", "sidestep-lab.1", "sidestep-lab.1.2.3"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
