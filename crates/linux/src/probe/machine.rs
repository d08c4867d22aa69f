//! What can be read of the machine without a trial.

use std::{fs, io, path::Path};

use nix::sys::{statfs, wait};

use super::{Finding, Findings};
use crate::{LinuxError, capabilities::Privileges, cgroup, error::Result, mounts::Kind};

/// Where the BPF file system belongs.
const BPFFS: &str = "/sys/fs/bpf";
/// Types of the running kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's release.
pub fn kernel_release() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease");
    text.map_or_else(|_| "unknown".into(), |release| release.trim().into())
}

/// Tries what this module can.
pub fn probe(privileges: &Privileges) -> Findings {
    let root = if crate::is_root() && privileges.has(Privileges::SYS_ADMIN) {
        Finding::present()
    } else {
        Finding::Missing("this process is not root; use sudo".into())
    };
    let held = |missing: Option<String>| missing.map_or_else(Finding::present, Finding::Missing);
    vec![
        ("root", root),
        ("capabilities", held(privileges.without_bpf())),
        ("perfmon", held(privileges.without(&[Privileges::PERFMON]))),
        ("net-admin", held(privileges.without(&[Privileges::NET_ADMIN]))),
        ("cgroup2", control_groups()),
        ("btf", types()),
        ("bpffs", bpf_file_system()),
        ("reverse-path", reverse_path()),
        ("forwarding", forwarding()),
        ("multipath-seed", multipath_seed()),
        ("user-namespaces", user_namespaces()),
        ("congestion-control", congestion_controls()),
    ]
}

fn control_groups() -> Finding {
    match (Kind::Cgroup2.mount_point(), cgroup::mount_point()) {
        (Some(place), _) => Finding::Present(format!("at {}", place.display())),
        // The path of a private mount means something to the process that made it only.
        (None, Ok(_)) => {
            Finding::Present("mounted nowhere here: the agent and the lab mount them for themselves".into())
        }
        (None, Err(error)) => Finding::failed(&error),
    }
}

fn types() -> Finding {
    match fs::read(BTF) {
        // The first two bytes of BTF data (Documentation/bpf/btf.rst), in the machine's order.
        Ok(bytes) if bytes.starts_with(&0xeb9f_u16.to_ne_bytes()) => Finding::present(),
        Ok(_) => Finding::Missing(format!("{BTF} holds no BTF")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::Untried(format!("{BTF}: {error}")),
        Err(error) => Finding::Missing(format!("{BTF}: {error}; the kernel needs CONFIG_DEBUG_INFO_BTF")),
    }
}

fn bpf_file_system() -> Finding {
    match Kind::Bpf.locate(Path::new(BPFFS)) {
        Some(place) => Finding::Present(format!("at {}", place.display())),
        None => match statfs::statfs(BPFFS) {
            Ok(_) | Err(nix::Error::ENOENT) => Finding::Missing(format!("mount it: mount -t bpf bpf {BPFFS}")),
            Err(error) => Finding::Untried(format!("{BPFFS}: {error}")),
        },
    }
}

/// What the kernel has loaded: asking for others would make it load their modules.
fn congestion_controls() -> Finding {
    match fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control") {
        Ok(names) if !names.trim().is_empty() => Finding::Present(names.trim().replace(' ', ", ")),
        Ok(_) => Finding::Missing("the kernel lists none".into()),
        Err(error) => Finding::Missing(error.to_string()),
    }
}

/// Interfaces on which the kernel looks up the route back to a packet's source, and drops it if that is another interface. Where
/// `src_valid_mark` is set, it looks with the packet's mark.
fn reverse_path() -> Finding {
    let read = |interface: &str, name: &str| -> u32 {
        sysctl(&format!("ipv4/conf/{interface}/{name}")).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let names = fs::read_dir("/proc/sys/net/ipv4/conf").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut strict: Vec<_> = names
        .filter(|name| !["all", "default", "lo"].contains(&name.as_str()))
        // The kernel takes the greater of the two: 1 is strict, 2 is loose.
        .filter(|name| read(name, "rp_filter").max(read("all", "rp_filter")) == 1)
        .map(|name| {
            let marked = read(&name, "src_valid_mark").max(read("all", "src_valid_mark")) != 0;
            let marked = if marked { " (with src_valid_mark)" } else { "" };
            let whose = if read(&name, "rp_filter") == 1 { &name } else { "all" };
            format!("strict on {name}{marked}: net.ipv4.conf.{whose}.rp_filter=1")
        })
        .collect();
    strict.sort();
    if strict.is_empty() { Finding::present() } else { Finding::Missing(strict.join("; ")) }
}

/// The protocols of which the kernel forwards no packets. One that is not there has none.
fn forwarding() -> Finding {
    let settings = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];
    let off = settings.into_iter().filter(|name| sysctl(name).as_deref() == Some("0"));
    let off: Vec<_> = off.map(|name| format!("net.{}=0", name.replace('/', "."))).collect();
    if off.is_empty() { Finding::present() } else { Finding::Missing(off.join(", ")) }
}

fn multipath_seed() -> Finding {
    match sysctl("ipv4/fib_multipath_hash_seed").as_deref().map(str::trim) {
        Some("0") => Finding::present(),
        Some(seed) => Finding::Present(format!(
            "{seed}: of two routers behind each other with the same seed, the second uses a part of its next hops only"
        )),
        None => Finding::Missing("there is no net.ipv4.fib_multipath_hash_seed".into()),
    }
}

fn user_namespaces() -> Finding {
    let tried = in_child(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).map_or_else(|error| error as i32, |()| 0)
    });
    match tried {
        Ok(0) => Finding::present(),
        Ok(number) => {
            let error = io::Error::from_raw_os_error(number);
            Finding::Missing(format!(
                "{error}; see the sysctl user.max_user_namespaces and the machine's security policy"
            ))
        }
        Err(error) => Finding::Untried(error.to_string()),
    }
}

/// Runs `work` in a child process and returns its number, 0 to 255.
///
/// After a fork of a process with many threads, few functions are safe to call; so `work` must not allocate.
fn in_child(work: impl FnOnce() -> i32) -> Result<i32> {
    let what = "making a process";
    // SAFETY: the child calls `work`, which makes system calls only, and ends.
    match unsafe { nix::unistd::fork() }.map_err(|error| LinuxError::io(what, error))? {
        nix::unistd::ForkResult::Child => {
            let number = work();
            // SAFETY: ends the process at once, without the parent's exit handlers.
            unsafe { libc::_exit(number) }
        }
        nix::unistd::ForkResult::Parent { child } => loop {
            match wait::waitpid(child, None) {
                Ok(wait::WaitStatus::Exited(_, number)) => return Ok(number),
                Err(nix::Error::EINTR) => {}
                Ok(_) => return Err(LinuxError::io(what, io::Error::other("the process did not end by itself"))),
                Err(error) => return Err(LinuxError::io(what, error)),
            }
        },
    }
}

/// Reads a sysctl below `/proc/sys/net`; `None` if there is none of this name.
pub fn sysctl(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?;
    Some(text.trim().into())
}

/// A finding: the setting works, and the machine's own value of `name` is `now`.
pub(super) fn present_with(name: &str, now: Option<&str>) -> Finding {
    Finding::Present(now.map_or_else(String::new, |now| format!("net.{} is {now} here", name.replace('/', "."))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_reports_what_keeps_an_edge_from_forwarding_and_from_taking_packets_by_any_path() {
        if !crate::testing::root_or_skip("settings of an edge") {
            return;
        }
        let set = |name: &str, value: &str| crate::netns::set_sysctl(name, value).unwrap();
        let look = || {
            ["all", "default"].into_iter().for_each(|of| set(&format!("ipv4/conf/{of}/rp_filter"), "0"));
            let made = crate::netlink::block_on(async |netlink| netlink.add_veth("wan", "far").await);
            made.unwrap();
            set("ipv4/ip_forward", "0");
            set("ipv6/conf/all/forwarding", "1");
            assert_eq!(forwarding(), Finding::Missing("net.ipv4.ip_forward=0".into()));
            set("ipv4/ip_forward", "1");
            assert_eq!((forwarding(), reverse_path()), (Finding::present(), Finding::present()));
            set("ipv4/conf/wan/rp_filter", "1");
            let strict = |text: &str| Finding::Missing(format!("strict on wan{text}.rp_filter=1"));
            assert_eq!(reverse_path(), strict(": net.ipv4.conf.wan"));
            set("ipv4/conf/wan/src_valid_mark", "1");
            assert_eq!(reverse_path(), strict(" (with src_valid_mark): net.ipv4.conf.wan"));
            set("ipv4/conf/wan/src_valid_mark", "0");
            set("ipv4/conf/wan/rp_filter", "0");
            set("ipv4/conf/all/rp_filter", "1");
            let Finding::Missing(all) = reverse_path() else { panic!("strict on all") };
            assert!(all.contains("strict on wan: net.ipv4.conf.all.rp_filter=1"), "{all}");
            set("ipv4/conf/wan/rp_filter", "2");
            let Finding::Missing(others) = reverse_path() else { panic!("strict on all but one") };
            assert!(!others.contains("wan"), "its own 2 counts: {others}");
            set("ipv4/conf/all/rp_filter", "2");
            assert_eq!(reverse_path(), Finding::present(), "the greater of the two counts");
            Ok(())
        };
        crate::netns::NetNs::create().unwrap().run(look).unwrap();
    }

    #[test]
    fn a_child_reports_its_number() {
        assert_eq!(in_child(|| 7).unwrap(), 7);
    }
}
