//! Everything of sidestep that touches the Linux kernel: namespaces, netlink, wires, BPF, sockets.

pub mod bpf;
pub mod cgroup;
mod error;
pub mod mptcp;
pub mod netlink;
pub mod netns;
pub mod probe;
pub mod sock_diag;
pub mod tap;
pub mod testing;
pub mod wire;

pub use error::{LinuxError, Result};

/// Exit code with which our own programs say that something of the machine is missing.
pub const EXIT_ENVIRONMENT: i32 = 3;

/// Whether the process has the superuser's rights.
pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// The most memory that the process has held at once, in bytes.
pub fn peak_rss_bytes() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    // Linux counts it in KiB (getrusage(2)).
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}

/// Memory that processes can still have without swapping, in bytes; `None` if the kernel does not say.
pub fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// User and system time that this process has used, in seconds.
pub fn cpu_seconds() -> f64 {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike,
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0.0, |usage| (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e-6)
}

/// The time of `CLOCK_MONOTONIC`, which the programs in the kernel go by.
pub fn monotonic_now() -> sidestep_model::Time {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let nanos = now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64);
    sidestep_model::Time::from_nanos(nanos)
}
