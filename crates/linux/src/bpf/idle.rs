//! A program that does nothing, to measure against (`bpf/src/idle.bpf.c`).

use std::{fs::File, os::fd::AsRawFd, path::Path};

use libbpf_rs::{Link, Object};

use super::{bytecode, failed, load, open, program};
use crate::error::{LinuxError, Result};

/// A program that does nothing; while this lives, the kernel calls it wherever it would call the path changer.
#[derive(Debug)]
pub struct IdleProgram {
    _object: Object,
    _link: Link,
}

impl IdleProgram {
    /// Attaches the program to `cgroup`: the kernel calls it for the connections of the processes there and below.
    pub fn attach(cgroup: &Path) -> Result<Self> {
        const WHAT: &str = "attaching a program that does nothing";
        let object = load("idle", open("idle", bytecode!("idle"))?)?;
        let directory = File::open(cgroup).map_err(|error| LinuxError::io(WHAT, error))?;
        let link = program(&object, "sidestep_idle")?.attach_cgroup(directory.as_raw_fd());
        let link = link.map_err(|error| failed(WHAT, &error))?;
        Ok(IdleProgram { _object: object, _link: link })
    }
}
