//! For tests that need root: they are skipped without it, and say so. Nodes and cables for tests with networks of their own.

use std::{
    os::fd::AsFd,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{netlink, netns::NetNs};

/// Whether the test may run as root; otherwise prints that `what` is skipped.
///
/// # Panics
/// Panics without root if the environment says `SIDESTEP_REQUIRE_ROOT=1`, as CI does, so that no skip goes unnoticed.
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
