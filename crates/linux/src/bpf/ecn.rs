//! Congestion marks across decapsulation (`bpf/src/ecn_decap.bpf.c`).

use std::os::fd::AsFd;

use libbpf_rs::{Object, TC_INGRESS, TcHook, TcHookBuilder};

use super::{bytecode, failed, load, map, open, per_cpu_sum, program, set_constants};
use crate::{error::Result, netlink::Interface};

/// The program on the interfaces of a decapsulating router; detached when dropped.
#[derive(Debug)]
pub struct EcnDecap {
    objects: Vec<Object>,
    hooks: Vec<TcHook>,
}

/// The program for Ethernet, loaded and not attached yet: the two may need different privileges.
#[derive(Debug)]
pub struct EcnProgram(Object);

/// Our filter's handle and priority, so that we find it again and leave those of others alone.
const HANDLE: u32 = 0x5353;
const PRIORITY: u32 = 83;

impl EcnDecap {
    /// Attaches the program to the ingress of each of `interfaces`.
    pub fn attach(interfaces: &[Interface]) -> Result<Self> {
        let mut ecn = EcnDecap { objects: Vec::new(), hooks: Vec::new() };
        for ethernet in [true, false] {
            let kind: Vec<_> = interfaces.iter().filter(|interface| interface.ethernet == ethernet).collect();
            if kind.is_empty() {
                continue;
            }
            let object = load_for(if ethernet { 14 } else { 0 })?;
            for interface in kind {
                let hook = attach_one(&object, interface)?;
                ecn.hooks.push(hook);
            }
            ecn.objects.push(object);
        }
        Ok(ecn)
    }

    /// How many marks were copied inward.
    pub fn copied(&self) -> Result<u64> {
        self.objects.iter().map(|object| per_cpu_sum(&map(object, "sidestep_copied")?, 0)).sum()
    }
}

impl EcnProgram {
    /// Has the kernel verify and take in the program.
    pub fn load() -> Result<Self> {
        Ok(EcnProgram(load_for(14)?))
    }

    /// Attaches it to the ingress of an Ethernet interface.
    pub fn attach(self, interface: &Interface) -> Result<EcnDecap> {
        let hook = attach_one(&self.0, interface)?;
        Ok(EcnDecap { objects: vec![self.0], hooks: vec![hook] })
    }
}

impl Drop for EcnDecap {
    fn drop(&mut self) {
        for hook in &mut self.hooks {
            if let Err(error) = hook.detach() {
                // The interface may be gone, and the filter with it.
                tracing::debug!(%error, "detaching the ECN program");
            }
        }
    }
}

fn load_for(l2_len: u32) -> Result<Object> {
    let mut open = open("ecn_decap", bytecode!("ecn_decap"))?;
    set_constants(&mut open, &l2_len.to_ne_bytes())?;
    load("ecn_decap", open)
}

fn attach_one(object: &Object, interface: &Interface) -> Result<TcHook> {
    let program = program(object, "sidestep_ecn")?;
    let mut hook = TcHookBuilder::new(program.as_fd())
        .ifindex(interface.index as i32)
        .replace(true)
        .handle(HANDLE)
        .priority(PRIORITY)
        .hook(TC_INGRESS);
    let what = || format!("attaching the ECN program to {}", interface.name);
    hook.create().map_err(|error| failed(what(), &error))?;
    hook.attach().map_err(|error| failed(what(), &error))
}
