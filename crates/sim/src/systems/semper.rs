//! SEMPER: MPTCP subflows that stateless edge routers hash onto paths.

use sidestep_scenario::Settings;

use super::mptcp;
use crate::{
    SimError,
    edges::Edges,
    system::{Context, System},
};

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    with_edges(context, false)
}

/// MPTCP hosts behind edges, with a table in the edges if they are `stateful`.
pub(super) fn with_edges(context: &Context<'_>, stateful: bool) -> Result<System, SimError> {
    let Settings::Semper(knobs) = &context.settings else { return Err(context.not_here()) };
    let edges = Edges::new(&context.scenario.topology, context.scenario.paths);
    let behaviour = Some(edges.behaviour(*knobs, stateful));
    let hosts = mptcp::hosts(context, knobs.mptcp(&context.scenario.knobs.mptcp));
    Ok(System { behaviour, edges: Some(edges), ..hosts })
}
