//! Everything of sidestep that touches the Linux kernel: namespaces, netlink, wires, BPF, sockets.
//!
//! The methods are of three kinds:
//!
//! - Constructors open or make something in the calling thread's network namespace
//!   ([`Netlink::open`](netlink::Netlink::open), [`NetNs::create`](netns::NetNs::create), [`Tap`](tap::Tap),
//!   [`Arrivals::load`](bpf::arrivals::Arrivals::load)). What they made goes with the value, unless its documentation says
//!   that it is kept.
//! - Setters change the kernel, and change nothing where it is as wanted already
//!   ([`add_route`](netlink::Netlink::add_route), [`DrawTable::replace`](nftables::DrawTable::replace)).
//! - Getters read it ([`interfaces`](netlink::Netlink::interfaces), [`counts`](bpf::congestion_control::CongestionControl::counts)).
//!   [`probe`] finds out what this kernel can do.
//!
//! Each returns a [`LinuxError`], which states what was attempted and what the user can do: get a privilege, get a kernel
//! feature, or look at the kernel's reason.
//!
//! ```no_run
//! use sidestep_linux::{netlink, netns::NetNs};
//!
//! // A namespace of its own, with a loopback interface; needs root.
//! let namespace = NetNs::create()?;
//! let names = namespace.run(|| {
//!     netlink::block_on(async |kernel| {
//!         kernel.loopback_up().await?;
//!         Ok(kernel.interfaces().await?.into_iter().map(|interface| interface.name).collect::<Vec<_>>())
//!     })
//! })?;
//! assert_eq!(names, ["lo"]);
//! # Ok::<(), sidestep_linux::LinuxError>(())
//! ```

pub mod bpf;
pub mod capabilities;
pub mod cgroup;
pub mod claim;
pub mod counters;
pub mod effect;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod ifreq;
pub mod marks;
pub mod mounts;
pub mod mptcp;
pub mod netlink;
pub mod netns;
pub mod nftables;
mod pauses;
mod privilege;
pub mod probe;
pub mod prober;
pub mod reflector;
pub mod sock_diag;
pub mod tap;
pub mod testing;
pub mod tun;
pub mod wire;

pub use error::{LinuxError, Result};
pub use ifreq::mtu_of;
pub use pauses::Pauses;

/// Exit code with which our own programs report that something of the machine is missing.
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

/// Memory that processes can still have without swapping, in bytes; `None` if the kernel does not report it.
pub fn available_memory_bytes() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// MemAvailable of `/proc/meminfo`.
fn available(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes no more than the length of `bytes`.
    let read = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(read) {
        Ok(length) if length == N => Ok(bytes),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Lets the calling thread wake on time: before others, as far as it may, and without the 50 µs by which Linux groups timers.
pub fn hurry() {
    if let Err(errno) = nix::sys::prctl::set_timerslack(1) {
        tracing::debug!("timer slack: {errno}");
    }
    // SAFETY: no memory is involved; "process 0" is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } < 0 {
        tracing::debug!("priority: {}", nix::errno::Errno::last());
    }
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
pub fn monotonic_now() -> sidestep_net::Time {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let nanos = now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64);
    sidestep_net::Time::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_machine_has_some_memory() {
        assert!(available_memory_bytes().is_some_and(|free| free > 1 << 20));
        assert_eq!(available("MemTotal: 5 kB\nMemAvailable:    16 kB\n"), Some(16_384));
        assert_eq!(available("MemAvailable: 99999999999999999999 kB"), None);
    }

    #[test]
    fn random_bytes_are_others_each_time() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }

    proptest! {
        #[test]
        fn any_text_about_memory_is_read_or_not(text in "\\PC{0,100}") {
            let _ = (available(&text), available(&format!("MemAvailable:{text}")));
        }
    }
}
