//! The path changer: a controller, a daemon on every router, an agent on every host.

use sidestep_policy::{AgentSettings, PolicyName};

use super::{Choice, Run, System};
use crate::{daemons::Role, error::LabError, plan::Multipath};

/// The agents have the paths before the first connection opens.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    let knobs: AgentSettings = run.settings()?;
    let fits = knobs.check_max_paths(run.scenario.paths.max_paths);
    fits.map_err(|problem| run.refuse(problem.to_string()))?;
    let choice = if knobs.policy == PolicyName::Static { Choice::Nothing } else { Choice::Paths };
    let daemons = vec![Role::Controller, Role::Router, Role::Agent(knobs)];
    Ok(System { daemons, choice, ..System::new(Multipath::Ecmp) })
}
