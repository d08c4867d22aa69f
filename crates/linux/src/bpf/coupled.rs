//! Coupled congestion control of MPTCP in the kernel (`bpf/coupled.bpf.c`), under the names `lia`, `olia` and `balia`.
//!
//! What is registered holds for the whole machine. Each process that wants an algorithm holds its registration: the kernel's link
//! goes with the last of them. Connections that use an algorithm keep it for their lifetime, also after that.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use libbpf_rs::{
    ErrorKind, Link, Map, MapCore, MapFlags, Object, ProgramInput, libbpf_sys,
    query::{LinkInfoIter, LinkTypeInfo, MapInfoIter},
};
use sidestep_coupled::{Algorithm, CoupledCall};
use zerocopy::{FromBytes, IntoBytes};

use super::{bytecode, failed, load, map, open, program};
use crate::{
    capabilities::Privileges,
    error::{LinuxError, Result},
};

/// Holds an algorithm's registration.
#[derive(Debug)]
pub struct Registration {
    algorithm: Algorithm,
    how: How,
    /// Kept, so that `bpftool` shows who holds the programs.
    _object: Object,
}

/// What keeps the kernel from removing the algorithm.
#[derive(Debug)]
enum How {
    /// Ours.
    Link { _link: Link },
    /// A descriptor of another process's.
    Shared { _link: OwnedFd },
    /// It stays until the machine restarts, as before Linux 6.4 the kernel removes nothing by itself.
    Lasting,
    /// Another process holds it, and this one may not: that takes CAP_SYS_ADMIN.
    Borrowed,
}

/// The kernel's congestion controls that a process with privileges may choose.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

impl Registration {
    /// Registers an algorithm, or joins in a registration of another process of ours. Its code is replaced by this program's, for
    /// connections to come; those that exist keep the code that they have.
    pub fn new(algorithm: Algorithm) -> Result<Self> {
        let what = || format!("registering the congestion control {algorithm}");
        let mut open = open("coupled", bytecode!("coupled"))?;
        let links = has_links();
        for mut map in open.maps_mut().filter(is_struct_ops) {
            if map.name() != name(algorithm).as_str() {
                map.set_autocreate(false).map_err(|error| failed(what(), &error))?;
            } else if !links {
                map.set_map_flags(0).map_err(|error| failed(what(), &error))?;
            }
        }
        let mut object = load("coupled", open)?;
        if let Some(link) = shared(algorithm, &map(&object, &name(algorithm))?)? {
            return Ok(Registration { algorithm, how: How::Shared { _link: link }, _object: object });
        }
        match attach(&mut object, algorithm) {
            Ok(link) if links => Ok(Registration { algorithm, how: How::Link { _link: link }, _object: object }),
            Ok(mut link) => {
                // Without links of the kernel this one of libbpf would remove the algorithm while others use it.
                link.disconnect();
                Ok(Registration { algorithm, how: How::Lasting, _object: object })
            }
            // Another process was faster, or one has left it on an older kernel.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let how = match shared(algorithm, &map(&object, &name(algorithm))?)? {
                    Some(link) => How::Shared { _link: link },
                    None if !links => How::Lasting,
                    None if !Privileges::read().has(Privileges::SYS_ADMIN) => How::Borrowed,
                    None => return Err(LinuxError::InTheWay { what: what(), by: foreign(algorithm) }),
                };
                Ok(Registration { algorithm, how, _object: object })
            }
            Err(error) => Err(failed(what(), &error)),
        }
    }

    /// Which algorithm it is.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// When the algorithm is gone, if not with the last process that holds this, in a clause.
    pub fn caveat(&self) -> Option<&'static str> {
        match self.how {
            How::Link { .. } | How::Shared { .. } => None,
            How::Lasting => Some("before Linux 6.4 the kernel keeps it until the machine restarts"),
            How::Borrowed => Some("another process has registered it, and without CAP_SYS_ADMIN it goes with that"),
        }
    }
}

/// Whether the kernel has an algorithm of this name.
pub fn is_registered(algorithm: Algorithm) -> bool {
    fs::read_to_string(AVAILABLE).is_ok_and(|text| text.split_whitespace().any(|name| name == algorithm.as_str()))
}

/// What the verifier makes of the programs, without registering anything: an error if the kernel refuses them.
pub fn check() -> Result<()> {
    let mut open = open("coupled", bytecode!("coupled"))?;
    if !has_links() {
        for mut map in open.maps_mut().filter(is_struct_ops) {
            map.set_map_flags(0).map_err(|error| failed("checking coupled congestion control", &error))?;
        }
    }
    load("coupled", open).map(drop)
}

fn name(algorithm: Algorithm) -> String {
    format!("sidestep_{algorithm}")
}

fn foreign(algorithm: Algorithm) -> String {
    format!(
        "a congestion control with the name `{algorithm}` that is not ours is registered; have its program unregister it"
    )
}

fn is_struct_ops(map: &libbpf_rs::OpenMapMut<'_>) -> bool {
    map.map_type() == libbpf_rs::MapType::StructOps
}

fn attach(object: &mut Object, algorithm: Algorithm) -> libbpf_rs::Result<Link> {
    let found = object.maps_mut().find(|map| map.name() == name(algorithm).as_str());
    found.ok_or_else(|| libbpf_rs::Error::from(io::Error::from(io::ErrorKind::NotFound)))?.attach_struct_ops()
}

/// A registration of another process of ours, now with the code of `code`.
fn shared(algorithm: Algorithm, code: &Map<'_>) -> Result<Option<OwnedFd>> {
    // The kernel cuts names.
    let cut: String = name(algorithm).chars().take(15).collect();
    let ours: Vec<u32> =
        MapInfoIter::default().filter(|map| map.name.to_string_lossy() == cut).map(|map| map.id).collect();
    for info in LinkInfoIter::default() {
        let LinkTypeInfo::StructOps(of) = info.info else { continue };
        if !ours.contains(&of.map_id) {
            continue;
        }
        // SAFETY: a system call without pointers, whose result is checked.
        let descriptor = unsafe { libbpf_sys::bpf_link_get_fd_by_id(info.id) };
        if descriptor < 0 {
            continue;
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: both descriptors are open; no options are passed.
        let status =
            unsafe { libbpf_sys::bpf_link_update(descriptor.as_raw_fd(), code.as_fd().as_raw_fd(), std::ptr::null()) };
        if status < 0 {
            tracing::warn!(%algorithm, error = %io::Error::from_raw_os_error(-status), "the registered code stays as it is");
        }
        return Ok(Some(descriptor));
    }
    Ok(None)
}

/// Whether the kernel has links for what it registers (Linux 6.4), so that it removes that with its last holder.
pub fn has_links() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|char: char| !char.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 4)
}

/// How many computations the kernel makes in one run (`COUPLED_CALLS`).
pub const COUPLED_CALLS: usize = 1_000;

/// The header as the kernel runs it (`bpf/coupled_parity.bpf.c`), for tests that compare it with the native build.
#[derive(Debug)]
pub struct CoupledParity {
    object: Object,
}

impl CoupledParity {
    /// Makes the kernel verify and load the program.
    pub fn load() -> Result<Self> {
        Ok(CoupledParity { object: load("coupled_parity", open("coupled_parity", bytecode!("coupled_parity"))?)? })
    }

    /// Makes the kernel compute all calls.
    pub fn compute(&self, calls: &mut [CoupledCall; COUPLED_CALLS]) -> Result<()> {
        let table = map(&self.object, "coupled_calls")?;
        let (keys, count): (Vec<u8>, _) =
            ((0..COUPLED_CALLS as u32).flat_map(u32::to_ne_bytes).collect(), COUPLED_CALLS as u32);
        let any = MapFlags::ANY;
        let written = table.update_batch(&keys, calls.as_bytes(), count, any, any);
        written.map_err(|error| failed("handing the kernel windows to couple", &error))?;
        let run = program(&self.object, "coupled_parity")?.test_run(ProgramInput::default());
        run.map_err(|error| failed("coupling windows in the kernel", &error))?;
        let answers = table.lookup_batch(count, any, any);
        let answers = answers.map_err(|error| failed("reading coupled windows", &error))?;
        for (call, (_, answer)) in calls.iter_mut().zip(answers) {
            *call = CoupledCall::read_from_bytes(&answer).unwrap_or_default();
        }
        Ok(())
    }
}
