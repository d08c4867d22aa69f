//! Programs that do nothing, to measure against (`bpf/idle.bpf.c`).

use std::{fs::File, os::fd::AsRawFd, path::Path};

use libbpf_rs::{Link, Object};

use super::{bytecode, failed_attach, load, open};
use crate::error::{LinuxError, Result};

/// Programs that do nothing; while this lives, the kernel calls them wherever it would call those of a daemon that moves connections.
#[derive(Debug)]
pub struct IdlePrograms {
    _object: Object,
    _links: Vec<Link>,
}

impl IdlePrograms {
    /// Attaches the programs to `cgroup`: the kernel calls them for the connections of the processes there and below.
    pub fn attach(cgroup: &Path) -> Result<Self> {
        const WHAT: &str = "attaching programs that do nothing";
        let object = load("idle", open("idle", bytecode!("idle"))?)?;
        let directory = File::open(cgroup).map_err(|error| LinuxError::io(WHAT, error))?;
        let attach = |program: libbpf_rs::ProgramMut<'_>| program.attach_cgroup(directory.as_raw_fd());
        let links = object.progs_mut().map(attach).collect::<std::result::Result<_, _>>();
        let links = links.map_err(|error| failed_attach(WHAT, cgroup, &error))?;
        Ok(IdlePrograms { _object: object, _links: links })
    }
}
