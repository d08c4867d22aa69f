//! BPF: types of programs and maps, helpers, and how programs of ours are tried.

use std::{
    fs,
    path::{Path, PathBuf},
};

use libbpf_rs::{MapType, ProgramType};

use super::{Finding, Findings};
use crate::{
    bpf::attached,
    capabilities::Privileges,
    cgroup::{self, Cgroup},
    error::Result,
};

/// The helpers that our `sock_ops` program calls, by number (`enum bpf_func_id` of `linux/bpf.h`).
const HELPERS: [(u32, &str); 9] = [
    (1, "map_lookup_elem"),
    (5, "ktime_get_ns"),
    (7, "get_prandom_u32"),
    (49, "setsockopt"),
    (59, "sock_ops_cb_flags_set"),
    (96, "tcp_sock"),
    (107, "sk_storage_get"),
    (131, "ringbuf_reserve"),
    (132, "ringbuf_submit"),
];

/// Control groups of this program: this, a dot, and the process's number.
const GROUP: &str = "sidestep-doctor";

/// Tries what this module can.
pub fn probe(privileges: &Privileges) -> Findings {
    let ids = ["sock-ops", "sk-storage", "ring-buffer", "lpm-trie"];
    if let Some(why) = privileges.without_bpf() {
        return ids.map(|id| (id, Finding::Untried(why.clone()))).into();
    }
    let maps = [MapType::SkStorage, MapType::RingBuf, MapType::LpmTrie].map(map);
    ids.into_iter().zip([sock_ops()].into_iter().chain(maps)).collect()
}

/// Tries whether a program loads.
pub fn try_program<T>(load: impl FnOnce() -> Result<T>) -> Finding {
    match Privileges::read().without_bpf() {
        Some(why) => Finding::Untried(why),
        None => Finding::of(load()),
    }
}

/// Tries whether a program loads, one that the verifier cannot harden, and can be attached to a control group without
/// processes; then whether to `cgroup`, `None` being the root, for a moment.
///
/// A program that was just loaded must leave all sockets alone: it is attached where processes are.
pub fn try_on_control_groups<T>(
    cgroup: Option<&Path>,
    load: impl FnOnce() -> Result<T>,
    mut attach: impl FnMut(&mut T, &Path) -> Result<()>,
) -> [Finding; 2] {
    let privileges = Privileges::read();
    if let Some(why) = privileges.without_bpf().or_else(|| privileges.without_unhardened_bpf()) {
        return [(); 2].map(|()| Finding::Untried(why.clone()));
    }
    let mut program = match load() {
        Ok(program) => program,
        Err(error) => return [(); 2].map(|()| Finding::failed(&error)),
    };
    let alone = match EmptyGroup::make() {
        Ok(group) => Finding::of(attach(&mut program, group.0.path())),
        // A control group that cannot be made means nothing for the program: some machines mount them read-only.
        Err(error) => Finding::Present(format!("loads; not attached, {error}")),
    };
    let group = match cgroup::find(cgroup) {
        Ok(group) => group,
        Err(error) => return [alone, Finding::failed(&error)],
    };
    // Once ours are there the kernel's answer is another one.
    let replaced = attached::others(&group).replacement();
    let there = match attach(&mut program, &group) {
        Ok(()) => Finding::Present(replaced.unwrap_or_else(|| format!("at {}", cgroup::shown(&group)))),
        Err(error) => Finding::failed(&error),
    };
    [alone, there]
}

fn sock_ops() -> Finding {
    match ProgramType::SockOps.is_supported() {
        Ok(true) => {}
        Ok(false) => return Finding::Missing("the kernel needs CONFIG_CGROUP_BPF".into()),
        Err(error) => return Finding::Untried(error.to_string()),
    }
    let lacks = |(id, _): &&(u32, &str)| !ProgramType::SockOps.is_helper_supported(*id).unwrap_or(false);
    let missing: Vec<_> = HELPERS.iter().filter(lacks).map(|(_, name)| format!("bpf_{name}")).collect();
    if missing.is_empty() { Finding::present() } else { Finding::Missing(format!("no {}", missing.join(", "))) }
}

fn map(kind: MapType) -> Finding {
    match kind.is_supported() {
        Ok(true) => Finding::present(),
        Ok(false) => Finding::Missing("the kernel does not make one".into()),
        Err(error) => Finding::Untried(error.to_string()),
    }
}

/// A control group without processes, removed when dropped.
struct EmptyGroup(Cgroup);

impl EmptyGroup {
    fn make() -> Result<Self> {
        for left in left_behind()? {
            // The group has no processes. It is no error if it is gone already.
            let _ = fs::remove_dir(left);
        }
        Ok(EmptyGroup(Cgroup::create(&format!("{GROUP}.{}", std::process::id()))?))
    }
}

impl Drop for EmptyGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(self.0.path()) {
            tracing::warn!(%error, group = %self.0.path().display(), "cannot remove a control group");
        }
    }
}

/// Groups of earlier processes that were killed while they had one.
fn left_behind() -> Result<Vec<PathBuf>> {
    let groups = fs::read_dir(cgroup::mount_point()?).into_iter().flatten().flatten();
    let is_left = |name: &str| {
        let owner = name.strip_prefix(GROUP)?.strip_prefix('.')?.parse::<u32>().ok()?;
        (!std::path::Path::new("/proc").join(owner.to_string()).exists()).then_some(())
    };
    Ok(groups
        .filter(|entry| entry.file_name().to_str().and_then(is_left).is_some())
        .map(|entry| entry.path())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root_or_skip;

    #[test]
    fn groups_of_processes_that_are_gone_are_removed_and_no_others() {
        if !root_or_skip("control groups") {
            return;
        }
        let mount = cgroup::mount_point().unwrap();
        // Beyond the greatest number of a process (PID_MAX_LIMIT).
        let dead = mount.join(format!("{GROUP}.4194305"));
        let other = mount.join(format!("{GROUP}-other.4194305"));
        for group in [&dead, &other] {
            fs::create_dir(group).unwrap();
        }
        let group = EmptyGroup::make().unwrap();
        let path = group.0.path().to_path_buf();
        let there = (dead.exists(), other.exists(), path.exists());
        fs::remove_dir(&other).unwrap();
        assert_eq!(there, (false, true, true));
        drop(group);
        assert!(!path.exists());
    }

    #[test]
    fn a_helper_that_does_not_exist_is_not_supported() {
        if root_or_skip("BPF helpers") {
            assert!(!ProgramType::SockOps.is_helper_supported(100_000).unwrap_or(false));
        }
    }
}
