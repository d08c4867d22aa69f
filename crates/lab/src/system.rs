//! Which parts of the lab a system needs.

use sidestep_model::scenario::{AgentKnobs, SystemName, SystemSpec};

use crate::{error::LabError, plan::Multipath};

/// How a system is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How routers use equally short ways.
    pub multipath: Multipath,
    /// The path changer's settings; `None`: neither controller nor agents run.
    pub agent: Option<AgentKnobs>,
}

/// The set-up of `system`, with the scenario's settings of the path changer as a base.
pub fn setup(system: &SystemSpec, base: &AgentKnobs) -> Result<Setup, LabError> {
    let knobs = system
        .knobs(base)
        .map_err(|error| LabError::Parameter { system: system.clone(), problem: error.to_string() })?;
    match system.name {
        SystemName::Tcp => Ok(Setup { multipath: Multipath::Single, agent: None }),
        SystemName::Ecmp => Ok(Setup { multipath: Multipath::Ecmp, agent: None }),
        SystemName::Random | SystemName::Pathchanger => Ok(Setup { multipath: Multipath::Ecmp, agent: Some(knobs) }),
        _ => Err(LabError::UnknownSystem(system.clone())),
    }
}
