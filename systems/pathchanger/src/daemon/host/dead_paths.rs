//! What becomes of dead paths and of the connections on them: paths are reported and tried, connections that are stuck end.

use sidestep_hostd::{AgentError, paths::MarkBits};

use super::{
    liveness::Liveness,
    paths_in_place::PathsInPlace,
    stuck::{Resets, Scene, Stuck},
    trial::Trials,
};
use crate::daemon::program::{HostProgram, Learnt};

/// What is known of dead paths.
#[derive(Default)]
pub(super) struct DeadPaths {
    /// Which paths have failed.
    liveness: Liveness,
    /// Trials of paths that connections leave alone.
    trials: Trials,
    /// Connections that wait on dead paths.
    stuck: Stuck,
}

impl DeadPaths {
    /// Logs which paths have died and which work again, and tries those that no connection tries.
    pub(super) fn look(
        &mut self,
        learnt: &[Learnt],
        paths: &PathsInPlace,
        program: &HostProgram,
        mark: MarkBits,
    ) -> Result<(), AgentError> {
        self.liveness.note(learnt, paths);
        self.trials.try_stranded(learnt, paths, program, mark)
    }

    /// Ends the connections that are stuck, if that is wanted; returns whether any were due.
    pub(super) fn end_stuck(&mut self, scene: &Scene<'_>) -> Result<bool, AgentError> {
        self.stuck.end_due(scene)
    }

    /// What became of stuck connections.
    pub(super) fn resets(&self) -> Resets {
        self.stuck.outcomes()
    }

    /// How many connections were ended; no more than fit.
    pub(super) fn reset_count(&self) -> u32 {
        self.stuck.resets()
    }
}
