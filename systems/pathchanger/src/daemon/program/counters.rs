//! What the program counts (map `sidestep_counts`).

use libbpf_rs::{MapCore, MapFlags};
use sidestep_linux::{
    Result,
    bpf::{failed, map, per_cpu_sum},
};
use sidestep_policy::{Reason, Stay};

use super::HostProgram;

/// What the program has counted since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Connections opened here that got a path.
    pub active: u64,
    /// Connections accepted here that got a path.
    pub passive: u64,
    /// Connections to destinations without paths, left alone.
    pub untouched: u64,
    /// Connections left alone because memory was short.
    pub no_storage: u64,
    /// Events for which the ring had no room.
    pub events_lost: u64,
    /// Moves that the kernel refused.
    pub mark_refused: u64,
    /// Signals that did not move a connection, by what kept it, in the order of [`Stay`].
    pub stayed: [u64; Stay::ALL.len()],
    /// Events that the agent could not write where it records them.
    pub records_lost: u64,
    /// Moves by reason, in the order of [`Reason`].
    pub moved: [u64; Reason::ALL.len()],
    /// Connections of other network namespaces, left alone.
    pub other_netns: u64,
    /// Connections that are bound to a device or belong to a VRF, left alone.
    pub to_device: u64,
    /// Connections left alone because the application, or another program, set their mark.
    pub own_mark: u64,
    /// Connections left alone because no path takes their source address.
    pub no_source: u64,
}

impl HostCounters {
    /// What went wrong, by the name that metrics and `sidestep agent status` have for it.
    pub fn errors(&self) -> [(&'static str, u64); 4] {
        [
            ("no_storage", self.no_storage),
            ("mark_refused", self.mark_refused),
            ("events_lost", self.events_lost),
            ("records_lost", self.records_lost),
        ]
    }

    /// Moves, by the name of their reason.
    pub fn moves(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reason::ALL.iter().map(|reason| reason.as_str()).zip(self.moved)
    }

    /// Signals that did not move a connection, by the name of what kept it.
    pub fn stays(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Stay::ALL.iter().map(|stay| stay.as_str()).zip(self.stayed)
    }
}

/// Index of the first counter of stays in `enum host_counter`; that of no stay counts nothing.
const STAYED: u32 = 6;
/// Index of the first counter of moves.
const MOVED: u32 = STAYED + 1 + Stay::ALL.len() as u32;
/// Index of the counter of records that were lost.
const RECORDS_LOST: u32 = MOVED + Reason::ALL.len() as u32;
/// Index of the first counter of connections that are left alone.
const OTHER_NETNS: u32 = RECORDS_LOST + 1;

impl HostProgram {
    /// What was counted so far.
    pub fn counters(&self) -> Result<HostCounters> {
        let map = map(&self.object, "sidestep_counts")?;
        let read = |index| per_cpu_sum(&map, index);
        let mut moved = [0; Reason::ALL.len()];
        for (index, count) in (MOVED..).zip(&mut moved) {
            *count = read(index)?;
        }
        let mut stayed = [0; Stay::ALL.len()];
        for (index, count) in (STAYED + 1..).zip(&mut stayed) {
            *count = read(index)?;
        }
        Ok(HostCounters {
            active: read(0)?,
            passive: read(1)?,
            untouched: read(2)?,
            no_storage: read(3)?,
            events_lost: read(4)?,
            mark_refused: read(5)?,
            stayed,
            records_lost: read(RECORDS_LOST)?,
            moved,
            other_netns: read(OTHER_NETNS)?,
            to_device: read(OTHER_NETNS + 1)?,
            own_mark: read(OTHER_NETNS + 2)?,
            no_source: read(OTHER_NETNS + 3)?,
        })
    }

    /// Counts events that the agent could not write where it records them.
    pub fn count_lost_records(&self, lost: u64) -> Result<()> {
        if lost == 0 {
            return Ok(());
        }
        let failed = |error: libbpf_rs::Error| failed("counting lost records", &error);
        let map = map(&self.object, "sidestep_counts")?;
        let total = per_cpu_sum(&map, RECORDS_LOST)?.saturating_add(lost);
        // The program does not count these: the values of other processors are zero.
        let mut values = vec![vec![0; size_of::<u64>()]; libbpf_rs::num_possible_cpus().map_err(failed)?];
        if let Some(first) = values.first_mut() {
            first.copy_from_slice(&total.to_ne_bytes());
        }
        map.update_percpu(&RECORDS_LOST.to_ne_bytes(), &values, MapFlags::ANY).map_err(failed)
    }

    /// Counts from zero again.
    pub fn reset_counters(&mut self) -> Result<()> {
        let reset = |error: libbpf_rs::Error| failed("resetting the path changer's counters", &error);
        let map = map(&self.object, "sidestep_counts")?;
        let zeros = vec![vec![0; size_of::<u64>()]; libbpf_rs::num_possible_cpus().map_err(reset)?];
        for index in 0..map.max_entries() {
            map.update_percpu(&index.to_ne_bytes(), &zeros, MapFlags::ANY).map_err(reset)?;
        }
        Ok(())
    }
}
