//! The paths as the program's map has them, and what connections know of it.

use std::collections::BTreeSet;

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    paths::{self, DestinationPaths, Placement, Room, Slots},
};
use sidestep_policy::PolicySettings;

use super::{
    entries::entries,
    quality::{Measured, Sockets},
};
use crate::daemon::program::HostProgram;

/// What was written into the program's map.
pub(super) struct ProgramPaths {
    /// The slot of each path as the program's map has it.
    slots: Slots,
    /// Destinations in the program's map that an earlier daemon left, until it is known whether they are wanted.
    inherited: BTreeSet<IpNet>,
    /// Whether all connections have taken note of what the map holds; those from before an earlier daemon's end may not.
    adopted: bool,
    /// What takes the place of rates and round-trip times that are not given.
    measured: Measured,
}

impl ProgramPaths {
    /// The paths that an earlier daemon left there.
    pub(super) fn inherit(program: &HostProgram) -> Result<Self, AgentError> {
        let slots = program.slots()?;
        let inherited = slots.keys().copied().collect();
        Ok(ProgramPaths { slots, inherited, adopted: false, measured: Measured::default() })
    }

    /// The slot of each path.
    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Gives each path one of `most` slots, where no socket's mark prevents that. A dry run has no marks.
    pub(super) fn place(
        &self,
        program: &HostProgram,
        sets: &[DestinationPaths],
        most: u32,
        room: Room,
        dry_run: bool,
    ) -> Result<Placement, AgentError> {
        let marked = if dry_run { Vec::new() } else { program.marked_sockets()? };
        let placement = paths::place(&self.slots, sets, most, &marked, room);
        for destination in placement.unsafe_for.iter().filter(|_| !dry_run) {
            tracing::warn!(
                %destination,
                slots = most,
                "mark_mask has no room for old and new paths at once: for a moment connections may take another path"
            );
        }
        Ok(placement)
    }

    /// Measures paths whose rate or round-trip time is not given, and passes the results to the program.
    pub(super) fn measure(
        &mut self,
        program: &mut HostProgram,
        sets: &[DestinationPaths],
        settings: &PolicySettings,
    ) -> Result<(), AgentError> {
        if !self.measured.is_due(sets) {
            return Ok(());
        }
        let destinations = sets.iter().map(|set| set.destination).collect();
        let now = Sockets::read()?.by_path(&program.connections()?, &destinations);
        self.measured.take(&now);
        for set in sets {
            self.write_set(program, set, settings);
        }
        self.adopt(program)
    }

    /// Writes the sets into the program's map, and makes connections take note of them. What an earlier daemon left stays if it
    /// `keeps_inherited`.
    pub(super) fn write(
        &mut self,
        program: &mut HostProgram,
        sets: &[DestinationPaths],
        settings: &PolicySettings,
        keeps_inherited: bool,
    ) -> Result<(), AgentError> {
        if !keeps_inherited {
            self.inherited.clear();
        }
        let mut written = self.inherited.clone();
        for set in sets {
            if self.write_set(program, set, settings) {
                written.insert(set.destination);
            }
        }
        let gone: Vec<_> = self.slots.keys().filter(|net| !written.contains(net)).copied().collect();
        for destination in gone {
            self.adopted = false;
            program.remove_paths(destination)?;
            self.slots.remove(&destination);
        }
        self.adopt(program)
    }

    /// Writes one set into the program's map; returns whether there was room for it.
    fn write_set(&mut self, program: &mut HostProgram, set: &DestinationPaths, settings: &PolicySettings) -> bool {
        self.adopted &= self.slots.get(&set.destination) == Some(&set.slots());
        let entries = entries(&self.measured.complete(set), settings);
        if let Err(error) = program.set_paths(set.destination, &entries) {
            // The map has room for 4,096 destinations.
            tracing::warn!(%error, "connections to this destination are left alone");
            return false;
        }
        self.inherited.remove(&set.destination);
        self.slots.insert(set.destination, set.slots());
        true
    }

    /// Makes connections take note of what has changed in the map.
    fn adopt(&mut self, program: &HostProgram) -> Result<(), AgentError> {
        if !self.adopted {
            // Before their routes go, and not only with their next signal: an idle connection has none.
            program.adopt_paths()?;
            self.adopted = true;
        }
        Ok(())
    }
}
