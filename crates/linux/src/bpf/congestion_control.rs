//! One congestion control for all connections of a control group (`bpf/congestion_control.bpf.c`).

use std::{fs::File, os::fd::AsRawFd, path::Path};

use libbpf_rs::{Link, Object};

use super::{bytecode, failed_attach, load, map, open, per_cpu_sum, program, set_constants};
use crate::error::{LinuxError, Result};

/// Sets the congestion control of new connections while it lives.
#[derive(Debug)]
pub struct CongestionControl {
    object: Object,
    _link: Link,
}

impl CongestionControl {
    /// New connections of the processes in `cgroup` and below use `name`, which the kernel has.
    pub fn attach(cgroup: &Path, name: &str) -> Result<Self> {
        let what = || format!("setting the congestion control {name}");
        let mut constant = [0; 16];
        // The last byte stays the terminating zero; longer names do not exist (TCP_CA_NAME_MAX).
        for (place, byte) in constant[..15].iter_mut().zip(name.bytes()) {
            *place = byte;
        }
        let mut open = open("congestion", bytecode!("congestion_control"))?;
        set_constants(&mut open, &constant)?;
        let object = load("congestion", open)?;
        let directory = File::open(cgroup).map_err(|error| LinuxError::file(what(), cgroup, error))?;
        let link = program(&object, "sidestep_cc")?.attach_cgroup(directory.as_raw_fd());
        let link = link.map_err(|error| failed_attach(what(), cgroup, &error))?;
        Ok(CongestionControl { object, _link: link })
    }

    /// How many connections use the machine's default because the kernel refused the chosen one.
    pub fn refused(&self) -> Result<u64> {
        per_cpu_sum(&map(&self.object, "sidestep_denied")?, 0)
    }
}
