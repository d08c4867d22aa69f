//! What the path changer costs the machine: how full its maps are, how often and for how long its programs ran.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use libbpf_rs::{AsRawLibbpf, MapCore, MapType, libbpf_sys};
use sidestep_linux::{LinuxError, Result};
use sidestep_net::Span;

use super::{Events, HostProgram};

/// How full a map is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// Its name.
    pub name: String,
    /// Entries that are in use; of a ring buffer, bytes.
    pub entries: u64,
    /// How many there can be; `None`: as many as memory holds.
    pub capacity: Option<u64>,
}

/// How often a program ran since it was loaded, while the kernel kept count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRuns {
    /// Its name.
    pub name: String,
    /// How often.
    pub runs: u64,
    /// For how long altogether.
    pub time: Span,
}

/// While it lives, the kernel counts the runs of all BPF programs of the machine, and takes their time.
#[derive(Debug)]
pub struct RunStats {
    _descriptor: OwnedFd,
}

/// The machine's own switch for counting runs.
const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl RunStats {
    /// Makes the kernel begin to count; needs CAP_SYS_ADMIN.
    pub fn enable() -> Result<Self> {
        // SAFETY: a system call without pointers, whose result is checked.
        let descriptor = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if descriptor < 0 {
            let error = std::io::Error::from_raw_os_error(-descriptor);
            return Err(LinuxError::io("counting the runs of BPF programs", error));
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(RunStats { _descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Whether the machine's administrator makes the kernel count: `sysctl kernel.bpf_stats_enabled`.
    pub fn by_sysctl() -> bool {
        fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "1")
    }
}

impl HostProgram {
    /// How full each map is; arrays are left out, as they are always full. `connections` is how many have storage, and `waiting` the value of
    /// [`HostProgram::connections`] and [`Events::waiting`].
    pub fn maps(&self, connections: u64, waiting: u64) -> Vec<MapUse> {
        let measure = |map: libbpf_rs::Map<'_>| {
            let limit = u64::from(map.max_entries());
            let (entries, capacity) = match map.map_type() {
                MapType::Array | MapType::PercpuArray => return None,
                MapType::SkStorage => (connections, None),
                MapType::RingBuf => (waiting, Some(limit)),
                // A map that changes meanwhile may show a key twice.
                _ => (map.keys().take(map.max_entries() as usize).count() as u64, Some(limit)),
            };
            Some(MapUse { name: map.name().to_string_lossy().into_owned(), entries, capacity })
        };
        self.object.maps().filter_map(measure).collect()
    }

    /// How often each program ran, while the kernel kept count.
    pub fn runs(&self) -> Result<Vec<ProgramRuns>> {
        let read = |program: libbpf_rs::Program<'_>| {
            let (runs, time) = runs_of(&program)?;
            Ok(ProgramRuns { name: program.name().to_string_lossy().into_owned(), runs, time })
        };
        self.object.progs().map(read).collect()
    }
}

impl Events<'_> {
    /// Bytes of events that wait.
    pub fn waiting(&self) -> u64 {
        // SAFETY: the ring buffer lives as long as `self`, and has the one ring that was added to it.
        unsafe {
            let ring = libbpf_sys::ring_buffer__ring(self.ring.as_libbpf_object().as_ptr(), 0);
            if ring.is_null() { 0 } else { libbpf_sys::ring__avail_data_size(ring) }
        }
    }
}

fn runs_of(program: &libbpf_rs::Program<'_>) -> Result<(u64, Span)> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes no more than `size` bytes, which are those of `info`; its pointers are null and its
    // lengths zero, so that nothing else is written.
    let error =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut info, &raw mut size) };
    if error < 0 {
        return Err(LinuxError::io("reading a program's runs", std::io::Error::from_raw_os_error(-error)));
    }
    Ok((info.run_cnt, Span::from_nanos(info.run_time_ns)))
}
