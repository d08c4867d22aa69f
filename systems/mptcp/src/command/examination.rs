//! What `sidestep doctor` asks about the path manager.

use std::path::Path;

use sidestep_command::Examination;
use sidestep_linux::probe::{Feature, Finding, Part};

use crate::daemon::needs::{FEATURES, PATH_MANAGER, try_program};

/// The path manager for MPTCP.
pub struct PathManagerExamination;

impl Examination for PathManagerExamination {
    fn parts(&self) -> &[Part] {
        &[PATH_MANAGER]
    }

    fn features(&self) -> &[Feature] {
        &FEATURES
    }

    fn try_programs(&self, _cgroup: Option<&Path>) -> Vec<Finding> {
        try_program().into()
    }
}
