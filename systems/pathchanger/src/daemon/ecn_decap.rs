//! Congestion marks across decapsulation (`bpf/ecn_decap.bpf.c`).

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    os::fd::{AsFd, BorrowedFd},
};

use libbpf_rs::{Object, TC_INGRESS, TcHook, TcHookBuilder};
use sidestep_linux::{
    Result,
    bpf::{bytecode, failed, load, map, open, per_cpu_sum, program, set_constants},
    netlink::Interface,
};

/// The program on the interfaces of a decapsulating router; detached when dropped, unless it is [left](Self::leave).
#[derive(Debug, Default)]
pub struct EcnDecap {
    /// The program for each kind of interface, by whether its frames have an Ethernet header.
    objects: BTreeMap<bool, Object>,
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
        let mut ecn = EcnDecap::default();
        interfaces.iter().try_for_each(|interface| ecn.add(interface))?;
        Ok(ecn)
    }

    /// Attaches the program to the ingress of one more interface, in the place of one that an earlier daemon left.
    pub fn add(&mut self, interface: &Interface) -> Result<()> {
        let object = match self.objects.entry(interface.ethernet) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(load_for(if interface.ethernet { 14 } else { 0 })?),
        };
        let hook = attach_one(object, interface)?;
        self.hooks.push(hook);
        Ok(())
    }

    /// Leaves the program where it is; the kernel keeps it until it is replaced or [removed](Self::remove).
    pub fn leave(mut self) {
        self.hooks.clear();
    }

    /// Removes the program from an interface where an earlier daemon left it; returns whether it was there.
    pub fn remove(interface: &Interface) -> bool {
        // Libbpf finds a filter by its place and wants no program for that.
        let mut hook = hook_at(io::stderr().as_fd(), interface);
        hook.query().is_ok() && hook.detach().is_ok()
    }

    /// How many marks were copied inward.
    pub fn copied(&self) -> Result<u64> {
        self.objects.values().map(|object| per_cpu_sum(&map(object, "sidestep_copied")?, 0)).sum()
    }
}

impl EcnProgram {
    /// Makes the kernel verify and load the program.
    pub fn load() -> Result<Self> {
        Ok(EcnProgram(load_for(14)?))
    }

    /// Attaches it to the ingress of an Ethernet interface.
    pub fn attach(self, interface: &Interface) -> Result<EcnDecap> {
        let hook = attach_one(&self.0, interface)?;
        Ok(EcnDecap { objects: BTreeMap::from([(true, self.0)]), hooks: vec![hook] })
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
    let mut hook = hook_at(program.as_fd(), interface);
    let what = || format!("attaching the ECN program to {}", interface.name);
    hook.create().map_err(|error| failed(what(), &error))?;
    hook.attach().map_err(|error| failed(what(), &error))
}

/// Our filter's place on an interface.
fn hook_at(program: BorrowedFd<'_>, interface: &Interface) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface.index as i32)
        .replace(true)
        .handle(HANDLE)
        .priority(PRIORITY)
        .hook(TC_INGRESS)
}
