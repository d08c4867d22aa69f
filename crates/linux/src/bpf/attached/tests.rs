//! Programs of others, real ones, in the way of ours.

use std::{os::unix::process::CommandExt, process::Command};

use super::*;
use crate::{
    bpf::idle::IdlePrograms,
    cgroup::Cgroup,
    error::LinuxError,
    testing::{exclusive_program, root_or_skip},
};

const SHARED: u32 = libbpf_sys::BPF_F_ALLOW_MULTI;
const OVERRIDABLE: u32 = libbpf_sys::BPF_F_ALLOW_OVERRIDE;
const ALONE: u32 = 0;

fn alone(place: &'static str, name: &str, holder: Option<(u32, &str)>) -> Alone {
    Alone {
        id: 94,
        name: name.into(),
        place,
        group: "/sys/fs/cgroup/web".into(),
        holder: holder.map(|(process, name)| (process, name.into())),
        overridable: false,
    }
}

/// A control group with one inside; removed when dropped.
struct Groups(Cgroup, Cgroup);

impl Groups {
    fn new(name: &str) -> Self {
        let outer = Cgroup::create(&format!("sidestep-attached-{name}-{}", std::process::id())).unwrap();
        let inner = outer.child("inner").unwrap();
        Groups(outer, inner)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.0.destroy().unwrap();
    }
}

#[test]
fn a_refusal_names_the_program_its_group_and_its_holder_and_says_what_to_do() {
    let one = Others { refuse: vec![alone("connect4", "other", Some((7, "agentd")))], ..Others::default() };
    assert_eq!(
        one.refusal().unwrap(),
        "the program `other` (connect4, id 94) of /sys/fs/cgroup/web, held by agentd (process 7), is attached alone (without \
         BPF_F_ALLOW_MULTI), so that no other may be; have it attached with BPF_F_ALLOW_MULTI, or detached, or give --cgroup a \
         group that is not /sys/fs/cgroup/web nor below it"
    );
    let two = Others { refuse: vec![alone("sock_ops", "", None), alone("connect4", "b", None)], ..Others::default() };
    let said = two.refusal().unwrap();
    assert!(said.starts_with("the program 94 (sock_ops) of /sys/fs/cgroup/web and the program `b`"), "{said}");
    assert_eq!((Others::default().refusal(), two.replacement()), (None, None));
}

#[test]
fn root_beside_a_program_that_is_attached_alone_is_told_which_and_where() {
    if !root_or_skip("programs of others") {
        return;
    }
    let groups = Groups::new("alone");
    for place in ["sock_ops", "connect4", "connect6"] {
        for rule in [ALONE, OVERRIDABLE] {
            let other = exclusive_program(groups.0.path(), place, rule);
            let refused = IdlePrograms::attach(groups.0.path()).unwrap_err();
            let said = refused.to_string();
            assert!(matches!(refused, LinuxError::InTheWay { .. }) && refused.is_environment(), "{said}");
            let named = format!("refused, as the program `other` ({place}, id ");
            assert!(said.contains(&named) && said.contains(&groups.0.path().display().to_string()), "{said}");
            assert!(!said.contains("root"), "{said}");
            drop(other);
            IdlePrograms::attach(groups.0.path()).unwrap();
        }
        let other = exclusive_program(groups.0.path(), place, ALONE);
        let said = IdlePrograms::attach(groups.1.path()).unwrap_err().to_string();
        let above = format!("of {}", groups.0.path().display());
        assert!(said.contains(&above) && !said.contains("inner,") && said.contains(place), "{said}");
        drop(other);
    }
}

#[test]
fn a_program_that_may_be_overridden_is_named_where_ours_takes_its_place() {
    if !root_or_skip("programs that may be overridden") {
        return;
    }
    let groups = Groups::new("override");
    let other = exclusive_program(groups.0.path(), "connect4", OVERRIDABLE);
    let found = others(groups.1.path());
    assert_eq!(found.refuse, []);
    let said = found.replacement().unwrap();
    assert!(said.starts_with("the program `other` (connect4") && said.contains("does not act where ours do"), "{said}");
    IdlePrograms::attach(groups.1.path()).unwrap();
    drop(other);
}

#[test]
fn programs_that_share_and_those_of_groups_below_do_not_matter() {
    if !root_or_skip("programs that share") {
        return;
    }
    let groups = Groups::new("shared");
    let shares = exclusive_program(groups.0.path(), "connect4", SHARED);
    let ours = IdlePrograms::attach(groups.0.path()).unwrap();
    assert_eq!(others(groups.0.path()), Others::default());
    let below = exclusive_program(groups.1.path(), "connect6", ALONE);
    let kind = libbpf_sys::BPF_CGROUP_INET6_CONNECT;
    let effective = query_as(groups.1.path(), kind, libbpf_sys::BPF_F_QUERY_EFFECTIVE).unwrap();
    assert_eq!(effective.programs.len(), 2, "the kernel runs both there");
    assert_eq!(others(groups.0.path()), Others::default());
    drop((shares, ours, below));
}

#[test]
fn the_process_that_holds_a_program_is_found() {
    if !root_or_skip("who holds a program") {
        return;
    }
    let groups = Groups::new("holder");
    let other = exclusive_program(groups.0.path(), "connect4", ALONE);
    let descriptor = other.descriptor();
    let mut command = Command::new("sleep");
    // SAFETY: a system call without pointers, between fork and exec.
    unsafe {
        command.arg("60").pre_exec(move || {
            libc::fcntl(descriptor, libc::F_SETFD, 0);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let holder = others(groups.0.path()).refuse.remove(0).holder;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(holder, Some((child.id(), "sleep".into())));
}

#[test]
fn descriptors_of_a_process_that_is_gone_are_none() {
    assert_eq!(descriptors(u32::MAX).count(), 0);
    assert_eq!(holder_of(u32::MAX), None);
}
