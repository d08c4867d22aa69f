//! For tests that need root: they are skipped without it, and report this. Nodes and cables for tests with networks of their own.

pub mod egresses;
mod names;

use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::{
    libbpf_sys,
    query::{LinkInfo, LinkInfoIter, LinkTypeInfo},
};

pub use self::names::assert_names_are_shown;
use crate::{netlink, netns::NetNs};

/// Whether the test may run as root; otherwise prints that `what` is skipped.
///
/// # Panics
/// Panics without root if the environment contains `SIDESTEP_REQUIRE_ROOT=1`, as CI does, so that no skip goes unnoticed.
pub fn root_or_skip(what: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("SIDESTEP_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "{what}: needs root, and SIDESTEP_REQUIRE_ROOT=1 allows no skipping");
    println!("skipped: needs root: {what}");
    false
}

/// Joins two nodes by a cable, whose ends have these names and the addresses `v4`.1 and `v4`.2, `v6`::1 and `v6`::2.
///
/// # Panics
/// Panics if that fails.
pub fn cable((near, one): (&NetNs, &str), (far, other): (&NetNs, &str), v4: &str, v6: &str) {
    let connect = || {
        netlink::block_on(async |netlink| {
            netlink.add_veth(one, "far").await?;
            netlink.move_to(netlink.index_of("far").await?, other, far.as_fd()).await
        })
    };
    near.run(connect).expect("a cable");
    for (node, name, last) in [(near, one, 1), (far, other, 2)] {
        ip(node, &format!("addr add {v4}.{last}/24 dev {name}"));
        ip(node, &format!("-6 addr add {v6}::{last}/64 dev {name} nodad"));
        ip(node, &format!("link set {name} up"));
    }
}

/// What `ip` prints in a node, or `tc` if `arguments` begin with that; `None` if it fails, and why on standard error.
///
/// # Panics
/// Panics if iproute2 is not installed.
pub fn try_ip(node: &NetNs, arguments: &str) -> Option<String> {
    let (program, arguments) = match arguments.strip_prefix("tc ") {
        Some(rest) => ("tc", rest),
        None => ("ip", arguments),
    };
    let run = || Ok(Command::new(program).args(arguments.split(' ')).output().expect("iproute2 is installed"));
    let output = node.run(run).expect("a node");
    if !output.status.success() {
        eprintln!("{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As [`try_ip`].
///
/// # Panics
/// Panics if it fails.
pub fn ip(node: &NetNs, arguments: &str) -> String {
    try_ip(node, arguments).unwrap_or_else(|| panic!("ip {arguments}"))
}

/// Waits until `check` gives something.
///
/// # Panics
/// Panics if that takes longer than `patience`.
pub fn eventually<T>(what: &str, patience: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(start.elapsed() < patience, "{what}: not within {patience:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// What others do to rules or routes of a daemon, by commands of `ip` that a semicolon separates.
#[derive(Clone, Copy, Debug)]
pub struct Damage<'a> {
    /// What is done.
    pub what: &'a str,
    /// By which commands.
    pub commands: &'a str,
    /// Whether something of the daemon's is gone then, which it counts when it is back.
    pub counts: bool,
}

/// Asserts that the rules of a node and its routes of [`PROTOCOL`](netlink::PROTOCOL) are as before within a second of each
/// damage. A comparison that no report causes comes half a minute later. `mended` is what the daemon counts.
///
/// # Panics
/// Panics if they are not.
pub fn assert_mends(node: &NetNs, mended: impl Fn() -> u64, damages: &[Damage<'_>]) {
    const LIMIT: Duration = Duration::from_secs(1);
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    let shown = |what: &str| sorted(try_ip(node, what).unwrap_or_default());
    let state =
        || ["-4 rule", "-6 rule", "-4 route show table all proto 83", "-6 route show table all proto 83"].map(shown);
    for Damage { what, commands, counts } in damages {
        let (before, count) = (state(), mended());
        commands.split("; ").for_each(|command| drop(ip(node, command)));
        let begin = Instant::now();
        loop {
            let now = state();
            let took = begin.elapsed();
            if now == before {
                println!("{what}: mended {:.0} ms later", took.as_secs_f64() * 1e3);
                break;
            }
            assert!(took < LIMIT, "{what} ({commands}): {now:#?} instead of {before:#?}");
            thread::sleep(Duration::from_millis(2));
        }
        if *counts {
            eventually("a count of what is mended", 10 * LIMIT, || (mended() > count).then_some(()));
        }
    }
}

/// A program of others that is attached to a control group; detached when dropped.
#[derive(Debug)]
pub struct OtherProgram {
    program: OwnedFd,
    group: File,
    kind: u32,
}

impl OtherProgram {
    /// The number of its descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.program.as_raw_fd()
    }
}

impl Drop for OtherProgram {
    fn drop(&mut self) {
        // SAFETY: a system call without pointers; both descriptors are open.
        let status =
            unsafe { libbpf_sys::bpf_prog_detach2(self.program.as_raw_fd(), self.group.as_raw_fd(), self.kind) };
        if status != 0 {
            eprintln!("detaching a program: {status}");
        }
    }
}

/// Attaches a program that does nothing to `cgroup` at `sock_ops`, `connect4` or `connect6`, as an agent of others would: with
/// these of the kernel's flags, none of which means alone.
///
/// # Panics
/// Panics if that fails.
pub fn exclusive_program(cgroup: &Path, place: &str, flags: u32) -> OtherProgram {
    let (program, kind) = match place {
        "sock_ops" => (libbpf_sys::BPF_PROG_TYPE_SOCK_OPS, libbpf_sys::BPF_CGROUP_SOCK_OPS),
        "connect4" => (libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, libbpf_sys::BPF_CGROUP_INET4_CONNECT),
        _ => (libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, libbpf_sys::BPF_CGROUP_INET6_CONNECT),
    };
    // r0 = 1; exit.
    let instructions: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as u64,
        expected_attach_type: kind,
        ..libbpf_sys::bpf_prog_load_opts::default()
    };
    // SAFETY: the pointers are to locals and constants that outlive the call; two instructions are there.
    let loaded = unsafe {
        libbpf_sys::bpf_prog_load(
            program,
            c"other".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as u64,
            (&raw const options).cast_mut(),
        )
    };
    assert!(loaded >= 0, "loading a program: {loaded}");
    // SAFETY: the kernel has just made this descriptor for us.
    let program = unsafe { OwnedFd::from_raw_fd(loaded) };
    let group = File::open(cgroup).expect("a control group");
    // SAFETY: a system call without pointers; both descriptors are open.
    let attached = unsafe { libbpf_sys::bpf_prog_attach(program.as_raw_fd(), group.as_raw_fd(), kind, flags) };
    assert!(attached == 0, "attaching a program: {attached}");
    OtherProgram { program, group, kind }
}

/// Detaches all programs that links attach to a control group, as a process with CAP_SYS_ADMIN may; returns how many.
pub fn detach_all(cgroup: &Path) -> usize {
    let number = std::fs::metadata(cgroup).expect("a control group").ino();
    let is_there = |link: &LinkInfo| matches!(&link.info, LinkTypeInfo::Cgroup(of) if of.cgroup_id == number);
    let detach = |link: LinkInfo| {
        // SAFETY: system calls without pointers; the descriptor is ours, and closed once.
        unsafe {
            let descriptor = libbpf_sys::bpf_link_get_fd_by_id(link.id);
            (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor))
        }
        .is_some_and(|link| {
            // SAFETY: as above.
            unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) == 0 }
        })
    };
    LinkInfoIter::default().filter(is_there).map(detach).filter(|detached| *detached).count()
}
