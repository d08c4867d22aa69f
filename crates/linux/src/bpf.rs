//! BPF programs: loaded from bytecode that is part of a library, checked by the kernel's verifier.
//!
//! A loader opens the [`bytecode!`](bytecode) that its crate's build script has compiled, [`load`]s it, and finds its
//! [`map`]s and [`program`]s by their names. The modules are loaders of programs that any lab or daemon can use.

pub mod arrivals;
pub mod attached;
pub mod congestion_control;
pub mod coupled;
pub mod idle;

use std::{io, os::fd::AsRawFd, path::Path};

use libbpf_rs::{ErrorKind, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel};

use crate::{
    error::{LinuxError, Result},
    privilege::{Deed, cause},
};

/// The most slots that a host or an edge uses, whatever room the mark has (`HOST_SLOTS`, `EDGE_SLOTS`): this number of
/// routing tables is its own. Slot 0 is the default route.
///
/// All paths of a destination can be replaced at once by others that take other slots, and several destinations that
/// overlap also have room.
pub const MAX_SLOTS: u32 = 63;

/// What a kernel lacks when a program does not load.
const NEEDS_BPF: &str = "it needs cgroup BPF with BTF (CONFIG_CGROUP_BPF, CONFIG_DEBUG_INFO_BTF, Linux 6.1 or later)";

/// Bytecode with the alignment that an ELF reader may rely on.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

/// The bytecode of `$name.bpf.c`, which the build script of the calling crate has compiled.
#[macro_export]
macro_rules! bytecode {
    ($name:literal) => {{
        static OBJECT: &$crate::bpf::Aligned<[u8]> =
            &$crate::bpf::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        &OBJECT.0
    }};
}
pub use bytecode;

/// Opens bytecode; maps and constants can be changed before [`load`].
///
/// The constants become the map `sidestep.rodata`, named after the object, so that `bpftool` shows whose it is.
pub fn open(name: &str, bytecode: &[u8]) -> Result<OpenObject> {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| tracing::debug!(target: "libbpf", "{}", text.trim_end()))));
    let opened = ObjectBuilder::default().name("sidestep").and_then(|builder| builder.open_memory(bytecode));
    opened.map_err(|error| failed(format!("opening BPF program {name}"), &error))
}

/// Sets the constants of a program, all of them together as they lie in its `.rodata`.
pub fn set_constants(open: &mut OpenObject, bytes: &[u8]) -> Result<()> {
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(bytes).map_err(|error| failed("setting up a BPF program", &error))?;
        }
    }
    Ok(())
}

/// Makes the kernel verify and load the programs of an object.
pub fn load(name: &str, open: OpenObject) -> Result<Object> {
    open.load().map_err(|error| {
        let what = format!("loading BPF program {name}");
        // libbpf-rs keeps the number for its text only.
        let access = format!("{error:#}").contains(&format!("os error {}", libc::EACCES));
        match error.kind() {
            ErrorKind::PermissionDenied => LinuxError::Privilege { what, why: cause(Deed::Load { access }) },
            _ => failed(what, &error),
        }
    })
}

/// A map of this name. A map that was taken over has the name that the kernel knows, which is empty if libbpf could not make sure
/// that the kernel takes names; it is then known by its pin.
pub fn map<'obj>(object: &'obj Object, name: &str) -> Result<libbpf_rs::Map<'obj>> {
    let is_pinned_as =
        |map: &libbpf_rs::Map<'_>| map.get_pin_path().and_then(|pin| Path::new(pin).file_name()) == Some(name.as_ref());
    object
        .maps()
        .find(|map| map.name() == name || is_pinned_as(map))
        .ok_or_else(|| LinuxError::io(format!("finding BPF map {name}"), io::Error::from(io::ErrorKind::NotFound)))
}

/// The keys of a map. Unlike an iterator of libbpf-rs, it does not take an error for the end.
pub fn keys(map: &impl MapCore) -> Result<Vec<Vec<u8>>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut next = vec![0; map.key_size() as usize];
    // Were keys removed meanwhile, the kernel would begin again.
    while keys.len() < map.max_entries() as usize {
        let last = keys.last().map_or(std::ptr::null(), |key| key.as_ptr());
        // SAFETY: both keys are as long as the map's keys are; the first may be null.
        let status = unsafe {
            libbpf_rs::libbpf_sys::bpf_map_get_next_key(map.as_fd().as_raw_fd(), last.cast(), next.as_mut_ptr().cast())
        };
        match status {
            0 => keys.push(next.clone()),
            status if status == -libc::ENOENT => break,
            status => {
                let error = io::Error::from_raw_os_error(status.saturating_neg());
                return Err(LinuxError::io(format!("listing BPF map {}", map.name().to_string_lossy()), error));
            }
        }
    }
    Ok(keys)
}

/// Calls `visit` with the key and the value of each entry of a hash map, of which the kernel copies thousands at once.
///
/// The iterator of libbpf-rs would end at the first batch that is not full, as all of a hash map may be.
pub fn each_entry(map: &impl MapCore, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
    let (key_size, value_size) = (map.key_size() as usize, map.value_size() as usize);
    let mut room = 4096_usize.min(map.max_entries() as usize);
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    // The kernel notes its place in 32 bits.
    let (mut place, mut next) = (None::<u32>, 0_u32);
    loop {
        keys.resize(room * key_size, 0);
        values.resize(room * value_size, 0);
        let mut count = room as u32;
        // SAFETY: both buffers have room for `count` entries; the place that is read may be null.
        let status = unsafe {
            libbpf_rs::libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                place.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut).cast(),
                std::ptr::from_mut(&mut next).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        match status.saturating_neg() {
            0 | libc::ENOENT => {}
            libc::EINTR => continue,
            // A chain of the map is longer.
            libc::ENOSPC => {
                room *= 2;
                continue;
            }
            number => {
                let error = io::Error::from_raw_os_error(number);
                return Err(LinuxError::io(format!("reading BPF map {}", map.name().to_string_lossy()), error));
            }
        }
        let entries = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size));
        entries.take(count as usize).for_each(|(key, value)| visit(key, value));
        if status != 0 {
            return Ok(());
        }
        place = Some(next);
    }
}

/// The program of this name.
pub fn program<'obj>(object: &'obj Object, name: &str) -> Result<libbpf_rs::ProgramMut<'obj>> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| LinuxError::io(format!("finding BPF program {name}"), io::Error::from(io::ErrorKind::NotFound)))
}

/// Adds up the values of one entry of a per-CPU array of `u64`.
pub fn per_cpu_sum(map: &libbpf_rs::Map<'_>, index: u32) -> Result<u64> {
    let values = map
        .lookup_percpu(&index.to_ne_bytes(), libbpf_rs::MapFlags::ANY)
        .map_err(|error| failed("reading BPF counters", &error))?;
    let values = values.unwrap_or_default();
    Ok(values.iter().filter_map(|bytes| Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))).sum())
}

/// A failure of libbpf, sorted by its kind.
pub fn failed(what: impl Into<String>, error: &libbpf_rs::Error) -> LinuxError {
    let what = what.into();
    match error.kind() {
        ErrorKind::PermissionDenied => LinuxError::Privilege { what, why: cause(Deed::Request) },
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::NotFound => {
            LinuxError::Missing { what: format!("{what} ({error})"), needs: NEEDS_BPF }
        }
        _ => LinuxError::io(what, io::Error::other(format!("{error:#}"))),
    }
}

/// As [`failed`], where a program was to be attached to a control group: those of others may stand in the way.
pub fn failed_attach(what: impl Into<String>, cgroup: &Path, error: &libbpf_rs::Error) -> LinuxError {
    if error.kind() == ErrorKind::PermissionDenied
        && let Some(by) = attached::others(cgroup).refusal()
    {
        return LinuxError::InTheWay { what: what.into(), by };
    }
    failed(what, error)
}
