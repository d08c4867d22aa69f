//! One congestion control for the connections of a control group, another for MPTCP's (`bpf/congestion_control.bpf.c`).

use std::{fs::File, os::fd::AsRawFd, path::Path};

use libbpf_rs::{Link, Object};
use zerocopy::{Immutable, IntoBytes};

use super::{bytecode, failed_attach, load, map, open, per_cpu_sum, program, set_constants};
use crate::error::{LinuxError, Result};

/// Which connections get which congestion control.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// For connections that are not MPTCP's; `None`: they keep what they have.
    pub tcp: Option<&'a str>,
    /// For subflows of MPTCP; `None`: as the others.
    pub mptcp: Option<&'a str>,
    /// Cookie of the network namespace whose connections they are; `None`: of all.
    pub namespace: Option<u64>,
}

/// What became of connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that keep what they have, as the kernel refused the wanted one.
    pub refused: u64,
    /// Subflows that got the congestion control of MPTCP.
    pub coupled: u64,
    /// Subflows of connections whose program has chosen another.
    pub chosen: u64,
    /// Connections of MPTCP whose other end does not speak it.
    pub fallback: u64,
}

/// Sets the congestion control of new connections while it lives.
#[derive(Debug)]
pub struct CongestionControl {
    object: Object,
    _link: Link,
}

/// `struct settings`.
#[repr(C)]
#[derive(Immutable, IntoBytes)]
struct Settings {
    tcp: [u8; 16],
    mptcp: [u8; 16],
    namespace: u64,
    needs_ecn: u64,
}

/// The congestion controls of Linux whose packets are all ECN-capable (`TCP_CONG_NEEDS_ECN`).
const NEED_ECN: [&str; 1] = ["dctcp"];

impl CongestionControl {
    /// New connections of the processes in `cgroup` and below use what is wanted, which the kernel has.
    pub fn attach(cgroup: &Path, wanted: Wanted<'_>) -> Result<Self> {
        let names = [wanted.tcp, wanted.mptcp].into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let what = || format!("setting the congestion control {names}");
        let settings = Settings {
            tcp: constant(wanted.tcp),
            mptcp: constant(wanted.mptcp),
            namespace: wanted.namespace.unwrap_or_default(),
            needs_ecn: wanted.tcp.is_some_and(|name| NEED_ECN.contains(&name)).into(),
        };
        let mut open = open("congestion", bytecode!("congestion_control"))?;
        set_constants(&mut open, settings.as_bytes())?;
        let object = load("congestion", open)?;
        let directory = File::open(cgroup).map_err(|error| LinuxError::file(what(), cgroup, error))?;
        let link = program(&object, "sidestep_cc")?.attach_cgroup(directory.as_raw_fd());
        let link = link.map_err(|error| failed_attach(what(), cgroup, &error))?;
        Ok(CongestionControl { object, _link: link })
    }

    /// What became of connections so far.
    pub fn counts(&self) -> Result<Counts> {
        let map = map(&self.object, "sidestep_given")?;
        let of = |index| per_cpu_sum(&map, index);
        Ok(Counts { refused: of(0)?, coupled: of(1)?, chosen: of(2)?, fallback: of(3)? })
    }
}

/// A name as C has it. The last byte stays the terminating zero; longer names do not exist (`TCP_CA_NAME_MAX`).
fn constant(name: Option<&str>) -> [u8; 16] {
    let mut constant = [0; 16];
    for (place, byte) in constant[..15].iter_mut().zip(name.unwrap_or_default().bytes()) {
        *place = byte;
    }
    constant
}
