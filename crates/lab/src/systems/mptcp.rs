//! MPTCP with Linux's scheduler, its subflows hashed onto equal-cost paths: many between the same two addresses, by
//! `sidestep mptcp-pm` on each host, or one between each pair of the hosts' interfaces, by the kernel's path manager.

use sidestep_proto::mptcp::{Coupling, MptcpSettings, PathManager, Scheduler, SourcePorts};

use super::{Choice, Run, System};
use crate::{daemons::Role, error::LabError, plan::Multipath};

/// Linux's own scheduler; each subflow has a congestion control for itself.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    let knobs: MptcpSettings = run.settings()?;
    let notes = differences(run, &knobs)?;
    let daemons = match knobs.path_manager {
        PathManager::Ndiffports => vec![Role::PathManager(knobs.subflows)],
        PathManager::Fullmesh => Vec::new(),
    };
    let choice = Choice::Subflows(knobs.path_manager);
    Ok(System { mptcp: Some(knobs), daemons, notes, choice, ..System::new(Multipath::Ecmp) })
}

/// In what Linux's MPTCP differs from what the settings ask for; an error where it has nothing like it.
pub fn differences(run: &Run<'_>, knobs: &MptcpSettings) -> Result<Vec<String>, LabError> {
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
    if knobs.source_ports != SourcePorts::Linux {
        notes.push("source ports of subflows are those that Linux gives".into());
    }
    Ok(notes)
}
