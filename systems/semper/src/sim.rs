//! In the simulator: MPTCP hosts behind edge routers.

mod edges;

use std::sync::Arc;

use edges::Edges;
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, Setup, System},
};

use crate::SemperSettings;

/// SEMPER: edge routers hash subflows onto paths.
#[derive(Clone, Copy, Debug)]
pub struct Semper;

/// SEMPER's reference: edge routers assign subflows to paths in turn, and remember it.
#[derive(Clone, Copy, Debug)]
pub struct SemperStateful;

impl System for Semper {
    fn info(&self) -> SystemInfo {
        crate::SEMPER
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        with_edges(context, false)
    }
}

impl System for SemperStateful {
    fn info(&self) -> SystemInfo {
        crate::SEMPER_STATEFUL
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        with_edges(context, true)
    }
}

/// MPTCP hosts behind edges, with a table in the edges if they are `stateful`.
fn with_edges(context: &Context<'_>, stateful: bool) -> Result<Setup, SimError> {
    // An edge sends the packets of the other direction back over the links of the path.
    context.needs_two_way_links()?;
    let settings: SemperSettings = context.settings()?;
    let edges = Edges::new(&context.scenario.topology, context.scenario.paths);
    let behaviour = Some(edges.behaviour(settings, stateful));
    let hosts = sidestep_mptcp::sim::hosts(context, settings.mptcp(&context.settings_of("mptcp")?));
    Ok(Setup { behaviour, edges: Some(Arc::new(edges)), ..hosts })
}
