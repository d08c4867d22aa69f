//! The experiments, a file each.

mod inrpp;
pub(crate) mod inrpp_cache;
pub(crate) mod inrpp_dumbbell;
pub(crate) mod inrpp_fig1;
pub(crate) mod inrpp_fig11;
pub(crate) mod inrpp_hierarchical;
pub(crate) mod inrpp_multihomed;
pub(crate) mod inrpp_rocketfuel;
mod inrpp_story;
pub(crate) mod inrpp_table1;
pub(crate) mod inrpp_tcp;
mod irc;
pub(crate) mod irc_fig2;
pub(crate) mod irc_fig3;
pub(crate) mod irc_fig4;
pub(crate) mod irc_fig5;
pub(crate) mod irc_fig7;
mod semper;
pub(crate) mod semper_coupling;
pub(crate) mod semper_fig3;
pub(crate) mod semper_fig4;
pub(crate) mod semper_fig5;
mod topologies;
pub(crate) mod tpc_claims;
pub(crate) mod tpc_fig5;
pub(crate) mod tpc_fig6;
pub(crate) mod tpc_fig7;
pub(crate) mod tpc_fig8;

use sidestep_results::{RunResult, SystemResult};
use sidestep_scenario::{Scenario, builder::ScenarioBuilder};

use crate::ReproError;

/// The scenario, whose mistakes are the experiment's.
fn build(scenario: &ScenarioBuilder) -> Result<Scenario, ReproError> {
    scenario.try_build().map_err(|error| ReproError::Scenario(error.to_string()))
}

/// The results of one system.
fn result_of<'r>(run: &'r RunResult, system: &str) -> Result<&'r SystemResult, ReproError> {
    run.systems.get(system).ok_or_else(|| ReproError::Missing(format!("system {system}")))
}
