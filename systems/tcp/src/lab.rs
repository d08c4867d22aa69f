//! In the lab.

use sidestep_lab::{LabError, Run, Setup, System, plan::Multipath};
use sidestep_scenario::SystemInfo;

/// Plain TCP on the shortest path.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

/// TCP whose connections routers hash onto equal-cost paths.
#[derive(Clone, Copy, Debug)]
pub struct Ecmp;

impl System for Tcp {
    fn info(&self) -> SystemInfo {
        crate::TCP
    }

    fn setup(&self, _: &Run<'_>) -> Result<Setup, LabError> {
        Ok(Setup::new(Multipath::Single))
    }
}

impl System for Ecmp {
    fn info(&self) -> SystemInfo {
        crate::ECMP
    }

    fn setup(&self, _: &Run<'_>) -> Result<Setup, LabError> {
        Ok(Setup::new(Multipath::Ecmp))
    }
}
