//! What `sidestep doctor` asks about INRPP routers.

use std::path::Path;

use sidestep_command::{Examination, Failure, Seen};
use sidestep_linux::probe::{Feature, Finding, Part};

use crate::daemon::{
    inrpp_status,
    needs::{FEATURES, INRPP, try_program},
};

/// The INRPP router.
pub struct InrppExamination;

impl Examination for InrppExamination {
    fn parts(&self) -> &[Part] {
        &[INRPP]
    }

    fn features(&self) -> &[Feature] {
        &FEATURES
    }

    fn try_programs(&self, _cgroup: Option<&Path>) -> Vec<Finding> {
        try_program().into()
    }

    fn look(&self, _config: Option<&Path>) -> Result<Seen, Failure> {
        // A user who may not ask the daemon does not see what it reports.
        let Ok(Some(status)) = inrpp_status() else { return Ok(Seen::default()) };
        Ok(Seen { doubts: status.notes, ..Seen::default() })
    }
}
