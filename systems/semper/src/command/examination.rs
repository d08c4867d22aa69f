//! What `sidestep doctor` asks about edges.

use std::path::Path;

use sidestep_command::{Examination, Failure, Seen, obstacles};
use sidestep_linux::probe::{Feature, Finding, Part};

use crate::daemon::{
    edge_status,
    needs::{EDGE, FEATURES, try_program},
};

/// The edge daemon.
pub struct SemperExamination;

impl Examination for SemperExamination {
    fn parts(&self) -> &[Part] {
        &[EDGE]
    }

    fn features(&self) -> &[Feature] {
        &FEATURES
    }

    fn try_programs(&self, _cgroup: Option<&Path>) -> Vec<Finding> {
        try_program().into()
    }

    fn look(&self, _config: Option<&Path>) -> Result<Seen, Failure> {
        // A user who may not ask the daemon does not see what it reports.
        let Ok(Some(status)) = edge_status() else { return Ok(Seen::default()) };
        let doubts = status.doubts.iter().map(ToString::to_string).collect();
        Ok(Seen { obstacles: obstacles(&status.overridden, &status.restored), doubts, ..Seen::default() })
    }
}
