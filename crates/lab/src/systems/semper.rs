//! SEMPER: `sidestep mptcp-pm` opens the subflows of hosts, and `sidestep edge balance` on each edge router hashes them onto paths.

use sidestep_model::scenario::Scheduler;

use super::{Run, System, mptcp::differences};
use crate::{daemons::Role, edges, error::LabError, plan::Multipath};

/// Edges without a table.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    with_edges(run, false)
}

/// MPTCP hosts behind edges, with a table in the edges if they are `stateful`.
pub fn with_edges(run: &Run<'_>, stateful: bool) -> Result<System, LabError> {
    let knobs = *run.semper();
    if !matches!(knobs.scheduler, Scheduler::Linux | Scheduler::MinRtt) {
        return Err(run.refuse("Linux has its own scheduler, `linux`, which also stands for `min-rtt` alone"));
    }
    edges::check(&run.scenario.topology).map_err(|problem| run.refuse(problem))?;
    let mptcp = knobs.mptcp(run.mptcp());
    let notes = differences(run, &mptcp);
    // Subflows are opened when the edges know where they go.
    let daemons = vec![Role::Edge(knobs, stateful), Role::PathManager(knobs.subflows)];
    Ok(System { mptcp: Some(mptcp), daemons, notes, ..System::new(Multipath::Single) })
}
