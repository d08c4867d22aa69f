//! BPF: types of programs and maps, helpers, and our own programs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use libbpf_rs::{MapType, ProgramType};

use super::{Finding, Findings};
use crate::{
    bpf::{
        attached,
        balance::{Balancer, BalancerConfig},
        host::HostProgram,
    },
    capabilities::Privileges,
    cgroup::{self, Cgroup},
    error::Result,
};

/// The helpers that the path changer calls in a `sock_ops` program, by number (`enum bpf_func_id` of `linux/bpf.h`).
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

/// Tries what this module can; `cgroup` is where an agent's programs would be attached, `None` the root.
pub fn probe(privileges: &Privileges, cgroup: Option<&Path>) -> Findings {
    let ids = ["sock-ops", "sk-storage", "ring-buffer", "lpm-trie", "path-changer", "cgroup-attach", "balancer"];
    if let Some(why) = privileges.without_bpf() {
        return ids.map(|id| (id, Finding::Untried(why.clone()))).into();
    }
    let [program, attached] = match privileges.without_path_changer() {
        Some(why) => [(); 2].map(|()| Finding::Untried(why.clone())),
        None => path_changer(cgroup),
    };
    let maps = [MapType::SkStorage, MapType::RingBuf, MapType::LpmTrie].map(map);
    let findings = [sock_ops()].into_iter().chain(maps).chain([program, attached, balancer()]);
    ids.into_iter().zip(findings).collect()
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

/// Loads the balancer with a table of flows, which has more to verify.
fn balancer() -> Finding {
    Finding::of(Balancer::load(&BalancerConfig { mark_mask: 1, dry_run: true, flows: Some(1) }).map(drop))
}

/// Loads the path changer, and attaches it to a control group without processes; then to that of the agent, in which it
/// leaves all sockets alone, as it has no configuration, and is detached at once.
fn path_changer(cgroup: Option<&Path>) -> [Finding; 2] {
    let mut program = match HostProgram::load(None) {
        Ok(program) => program,
        Err(error) => return [(); 2].map(|()| Finding::failed(&error)),
    };
    let alone = match EmptyGroup::make() {
        Ok(group) => Finding::of(program.attach(group.0.path())),
        // A control group that cannot be made means nothing for the program: some machines mount them read-only.
        Err(error) => Finding::Present(format!("loads; not attached, {error}")),
    };
    [alone, cgroup::find(cgroup).map_or_else(|error| Finding::failed(&error), |group| attach(&mut program, &group))]
}

fn attach(program: &mut HostProgram, group: &Path) -> Finding {
    // Once ours are there the kernel's answer is another one.
    let replaced = attached::others(group).replacement();
    match program.attach(group) {
        Ok(()) => Finding::Present(replaced.unwrap_or_else(|| format!("at {}", cgroup::shown(group)))),
        Err(error) => Finding::failed(&error),
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
