//! The programs that are attached to control groups: ours, and those of others that stand in our way.
//!
//! A group has one rule for each kind of program: several together (`BPF_F_ALLOW_MULTI`, as ours are), one that groups
//! below may replace (`BPF_F_ALLOW_OVERRIDE`), or one alone. Where one of another rule is attached, the kernel refuses ours
//! with `EPERM`, whichever process asks (`hierarchy_allows_attach` and `__cgroup_bpf_attach` in kernel/bpf/cgroup.c).

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{
    fmt,
    fs::{self, File},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use libbpf_rs::libbpf_sys;

use crate::{cgroup::shown, privilege::and};

/// Where our programs are attached, with the kernel's number and name for it.
const PLACES: [(u32, &str); 3] = [
    (libbpf_sys::BPF_CGROUP_SOCK_OPS, "sock_ops"),
    (libbpf_sys::BPF_CGROUP_INET4_CONNECT, "connect4"),
    (libbpf_sys::BPF_CGROUP_INET6_CONNECT, "connect6"),
];

/// Most programs of a group that are looked at.
const MAX: usize = 64;
/// Most processes that are searched for one that holds a program.
const MAX_PROCESSES: usize = 32_768;

/// The program that a group has for itself at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alone {
    /// The kernel's number for the program.
    pub id: u32,
    /// Its name; empty where it has none, or the caller may not ask.
    pub name: String,
    /// Where it is attached: `sock_ops`, `connect4` or `connect6`.
    pub place: &'static str,
    /// The control group's directory.
    pub group: PathBuf,
    /// The process that holds it, and its name; `None` where none was found.
    pub holder: Option<(u32, String)>,
    /// Whether groups below may have others in its place.
    pub overridable: bool,
}

/// What programs of others mean for ours in one control group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// They keep ours from being attached.
    pub refuse: Vec<Alone>,
    /// They do not act in the group any more once ours are attached.
    pub replaced: Vec<Alone>,
}

/// What programs of others mean for ours in `cgroup`; nothing where the caller may not ask.
///
/// Groups above are seen as far up as the file system is mounted.
pub fn others(cgroup: &Path) -> Others {
    let mut others = Others::default();
    for (kind, place) in PLACES {
        for (depth, group) in cgroup.ancestors().enumerate() {
            let Ok(found) = query(group, kind) else { break };
            let Some(id) = found.programs.first() else { continue };
            if found.rule & libbpf_sys::BPF_F_ALLOW_MULTI != 0 {
                break;
            }
            let overridable = found.rule & libbpf_sys::BPF_F_ALLOW_OVERRIDE != 0;
            let alone = Alone {
                id: *id,
                name: name_of(*id).unwrap_or_default(),
                place,
                group: group.into(),
                holder: holder_of(*id),
                overridable,
            };
            // In the group itself nothing joins one of another rule.
            let list = if overridable && depth > 0 { &mut others.replaced } else { &mut others.refuse };
            list.push(alone);
            break;
        }
    }
    others
}

impl Others {
    /// What keeps our programs from being attached and what to do, in a clause; `None` if nothing that is seen does.
    pub fn refusal(&self) -> Option<String> {
        let first = self.refuse.first()?;
        let programs: Vec<_> = self.refuse.iter().map(Alone::to_string).collect();
        let [is, it] = if programs.len() == 1 { ["is", "it"] } else { ["are", "them"] };
        Some(format!(
            "{} {is} attached alone (without BPF_F_ALLOW_MULTI), so that no other may be; have {it} attached with \
             BPF_F_ALLOW_MULTI, or detached, or give --cgroup a group that is not {} nor below it",
            and(&programs),
            shown(&first.group)
        ))
    }

    /// What becomes of programs of others, in a sentence; `None` if nothing does.
    pub fn replacement(&self) -> Option<String> {
        let programs: Vec<_> = self.replaced.iter().map(Alone::to_string).collect();
        (!programs.is_empty()).then(|| {
            format!(
                "{}, which groups below may override, does not act where ours do (BPF_F_ALLOW_OVERRIDE)",
                and(&programs)
            )
        })
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alone { id, name, place, group, holder, .. } = self;
        match name.is_empty() {
            true => write!(f, "the program {id} ({place}) of {}", shown(group))?,
            false => write!(f, "the program `{name}` ({place}, id {id}) of {}", shown(group))?,
        }
        match holder {
            Some((process, name)) => write!(f, ", held by {name} (process {process}),"),
            None => Ok(()),
        }
    }
}

/// What is attached to a group itself.
struct Found {
    programs: Vec<u32>,
    rule: u32,
}

fn query(group: &Path, kind: u32) -> io::Result<Found> {
    query_as(group, kind, 0)
}

fn query_as(group: &Path, kind: u32, flags: u32) -> io::Result<Found> {
    let directory = File::open(group)?;
    let mut programs = vec![0; MAX];
    let (mut rule, mut count) = (0, programs.len() as u32);
    // SAFETY: the kernel writes at most `count` numbers, for which there is room; the descriptor is open.
    let status = unsafe {
        let (rule, count) = (&raw mut rule, &raw mut count);
        libbpf_sys::bpf_prog_query(directory.as_raw_fd(), kind, flags, rule, programs.as_mut_ptr(), count)
    };
    // With more programs than fit, the first of them are there.
    if status < 0 && status != -libc::ENOSPC {
        return Err(io::Error::from_raw_os_error(status.saturating_neg()));
    }
    programs.truncate(count as usize);
    Ok(Found { programs, rule })
}

fn name_of(id: u32) -> Option<String> {
    // SAFETY: a system call without pointers, whose result is checked.
    let descriptor = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the kernel writes no more than `length` bytes, which are those of `info`.
    let status =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(descriptor.as_raw_fd(), (&raw mut info).cast(), &raw mut length) };
    let name = info.name.into_iter().take_while(|byte| *byte != 0);
    (status == 0).then(|| name.map(|byte| byte as u8 as char).filter(char::is_ascii_graphic).collect())
}

/// A process that holds the program, or a link to it, by what the kernel reports about its descriptors.
fn holder_of(id: u32) -> Option<(u32, String)> {
    let line = format!("prog_id:\t{id}");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |process: &u32| {
        // Ours is no other's.
        *process != std::process::id()
            && descriptors(*process).any(|info| info.lines().any(|one| one.trim_end() == line))
    };
    let process = numbers.take(MAX_PROCESSES).find(holds)?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some((process, name.trim().chars().filter(|char| !char.is_control()).collect()))
}

/// What the kernel reports about each BPF descriptor of a process.
fn descriptors(process: u32) -> impl Iterator<Item = String> {
    let all = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let is_bpf = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("anon_inode:bpf"))
    };
    all.filter(is_bpf).filter_map(move |entry| {
        fs::read_to_string(Path::new("/proc").join(process.to_string()).join("fdinfo").join(entry.file_name())).ok()
    })
}

#[cfg(test)]
mod tests;
