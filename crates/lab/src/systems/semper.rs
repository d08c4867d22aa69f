//! SEMPER: `sidestep mptcp-pm` opens the subflows of hosts, and `sidestep edge balance` on each edge router hashes them onto paths.

use sidestep_agent::MAX_FLOWS;
use sidestep_semper::SemperSettings;

use super::{Choice, Run, System, mptcp::differences};
use crate::{daemons::Role, edges, error::LabError, plan::Multipath};

/// Edges without a table.
pub fn stateless(run: &Run<'_>) -> Result<System, LabError> {
    with_edges(run, false)
}

/// SEMPER's reference: edges that assign the subflows of a host to paths in turn, and remember.
pub fn stateful(run: &Run<'_>) -> Result<System, LabError> {
    with_edges(run, true)
}

/// MPTCP hosts behind edges, with a table in the edges if they are `stateful`.
fn with_edges(run: &Run<'_>, stateful: bool) -> Result<System, LabError> {
    let knobs: SemperSettings = run.settings()?;
    let mptcp = knobs.mptcp(&run.settings_of("mptcp")?);
    let mut notes = differences(run, &mptcp)?;
    edges::check(&run.scenario.topology).map_err(|problem| run.refuse(problem))?;
    if stateful && knobs.table > MAX_FLOWS {
        notes.push(format!("the edges' tables hold {MAX_FLOWS} subflows"));
    }
    if stateful && knobs.idle != SemperSettings::default().idle {
        notes.push("the edges' tables have an idle time of their own, 16 minutes".into());
    }
    // Subflows are opened when the edges know where they go.
    let daemons = vec![Role::Edge(knobs, stateful), Role::PathManager(knobs.subflows)];
    let choice = Choice::EdgeLinks;
    Ok(System { mptcp: Some(mptcp), daemons, notes, choice, ..System::new(Multipath::Single) })
}
