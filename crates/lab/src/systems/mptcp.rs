//! MPTCP, as Linux has it: a subflow between each pair of the hosts' interfaces, hashed onto equal-cost paths.

use sidestep_model::scenario::{Coupling, PathManager, Scheduler};

use super::{Run, System};
use crate::{error::LabError, plan::Multipath};

/// Linux's own path manager and scheduler; each subflow has a congestion control for itself.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    let knobs = *run.mptcp();
    if knobs.path_manager != PathManager::Fullmesh {
        return Err(run.refuse("of Linux's path managers the lab has `fullmesh` alone; set path_manager=fullmesh"));
    }
    if !matches!(knobs.scheduler, Scheduler::Linux | Scheduler::MinRtt) {
        return Err(run.refuse("Linux has its own scheduler, `linux`, which also stands for `min-rtt` alone"));
    }
    let mut notes = Vec::new();
    let own = &run.scenario.tcp.congestion_control;
    let uncoupled = match knobs.congestion_control {
        Coupling::Reno => true,
        Coupling::Cubic => own == "cubic",
        Coupling::Lia | Coupling::Olia | Coupling::Balia => false,
    };
    if !uncoupled {
        notes.push(format!("Linux does not couple the subflows of MPTCP: each has {own} for itself"));
    }
    Ok(System { mptcp: Some(knobs), notes, ..System::new(Multipath::Ecmp) })
}
