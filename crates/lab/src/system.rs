//! Which parts of the lab a system needs.

use sidestep_model::{
    Scenario, World,
    scenario::{AgentKnobs, Settings, SystemName, SystemSpec},
};

use crate::{error::LabError, plan::Multipath};

/// How a system is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How routers use equally short ways.
    pub multipath: Multipath,
    /// The path changer's settings; `None`: neither controller nor agents run.
    pub agent: Option<AgentKnobs>,
}

/// The set-up of `system` under the settings of `scenario`.
pub fn setup(scenario: &Scenario, system: &SystemSpec) -> Result<Setup, LabError> {
    system.name.require(World::Lab).map_err(LabError::UnknownSystem)?;
    let settings = scenario
        .settings(system)
        .map_err(|error| LabError::Parameter { system: system.clone(), problem: error.to_string() })?;
    let multipath = if system.name == SystemName::Tcp { Multipath::Single } else { Multipath::Ecmp };
    let agent = match settings {
        Settings::Agent(knobs) => Some(knobs),
        _ => None,
    };
    Ok(Setup { multipath, agent })
}
