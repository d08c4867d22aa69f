//! The systems of the lab: what a run of each needs. One file a system, from the model's table of systems.

use std::path::Path;

use sidestep_policy::{AgentKnobs, PlbKnobs};
use sidestep_proto::{irc::IrcKnobs, mptcp::MptcpKnobs};
use sidestep_results::Doubt;
use sidestep_scenario::{Scenario, SemperKnobs, Settings, SystemName, SystemSpec, World};

use crate::{daemons::Role, error::LabError, plan::Multipath};

/// What a run of one system needs.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// How routers use equal-cost paths.
    pub multipath: Multipath,
    /// What routers hash to choose one of them.
    pub hash: Hash,
    /// The daemons in the order of their start.
    pub daemons: Vec<Role>,
    /// Settings of every namespace: files below `/proc/sys/net`, and what is written to them.
    pub sysctls: Vec<(&'static str, String)>,
    /// Whether connections are MPTCP's, and its settings.
    pub mptcp: Option<MptcpKnobs>,
    /// Whether connections take a new flow label after timeouts.
    pub rehash: bool,
    /// Notes for the results: where the kernel departs from the scenario.
    pub notes: Vec<String>,
    /// Reasons to doubt what the results say of it.
    pub doubts: Vec<Doubt>,
}

/// What routers hash to choose one of several equal-cost paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// Addresses and ports.
    #[default]
    Ports,
    /// Addresses and the flow label.
    FlowLabel,
}

/// What a system is built for: the scenario, and the system's settings in it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    spec: &'a SystemSpec,
    settings: &'a Settings,
}

impl System {
    /// Plain TCP, without daemons.
    pub fn new(multipath: Multipath) -> Self {
        System {
            multipath,
            hash: Hash::Ports,
            daemons: Vec::new(),
            sysctls: Vec::new(),
            mptcp: None,
            rehash: false,
            notes: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// What a run of `spec` needs.
    pub fn of(scenario: &Scenario, spec: &SystemSpec) -> Result<System, LabError> {
        spec.name.require(World::Lab).map_err(LabError::UnknownSystem)?;
        let settings = scenario.settings(spec);
        let settings = settings.map_err(|error| parameter(spec, error.to_string()))?;
        build(&Run { scenario, spec, settings: &settings })
    }

    /// The path changer's settings, if agents run.
    pub fn agent(&self) -> Option<&AgentKnobs> {
        self.daemons.iter().find_map(|role| if let Role::Agent(knobs) = role { Some(knobs) } else { None })
    }
}

impl Run<'_> {
    /// The path changer's settings, the system's own parameters included.
    pub fn agent(&self) -> &AgentKnobs {
        if let Settings::Agent(knobs) = self.settings { knobs } else { &self.scenario.knobs.agent }
    }

    /// MPTCP's settings, the system's own parameters included.
    pub fn mptcp(&self) -> &MptcpKnobs {
        if let Settings::Mptcp(knobs) = self.settings { knobs } else { &self.scenario.knobs.mptcp }
    }

    /// SEMPER's settings, the system's own parameters included.
    pub fn semper(&self) -> &SemperKnobs {
        if let Settings::Semper(knobs) = self.settings { knobs } else { &self.scenario.knobs.semper }
    }

    /// Route control's settings, the system's own parameters included.
    pub fn irc(&self) -> &IrcKnobs {
        if let Settings::Irc(knobs) = self.settings { knobs } else { &self.scenario.knobs.irc }
    }

    /// The settings of Protective Load Balancing, the system's own parameters included.
    pub fn plb(&self) -> &PlbKnobs {
        if let Settings::Plb(knobs) = self.settings { knobs } else { &self.scenario.knobs.plb }
    }

    /// An error about the system's settings.
    pub fn refuse(&self, problem: impl Into<String>) -> LabError {
        parameter(self.spec, problem.into())
    }
}

/// The congestion controls that the kernel has.
pub fn congestion_controls() -> Result<Vec<String>, LabError> {
    let path = Path::new("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = std::fs::read_to_string(path).map_err(LabError::file(path))?;
    Ok(available.split_whitespace().map(str::to_string).collect())
}

fn parameter(spec: &SystemSpec, problem: String) -> LabError {
    LabError::Parameter { system: spec.clone(), problem }
}

/// The module of a system that the lab has.
macro_rules! module {
    (lab $module:ident) => {
        mod $module;
    };
    (- $module:ident) => {};
}

/// What the module of a system builds, if the lab has it.
macro_rules! built {
    (lab $module:ident $run:ident) => {
        $module::build($run)
    };
    (- $module:ident $run:ident) => {
        match $run.spec.name.require(World::Lab) {
            Ok(()) => Err($run.refuse("has no file in the lab")),
            Err(error) => Err(LabError::UnknownSystem(error)),
        }
    };
}

macro_rules! modules {
    ($(($module:ident $variant:ident $name:literal $sim:tt $lab:tt $settings:tt $what:literal))*) => {
        $(module!($lab $module);)*

        fn build(run: &Run<'_>) -> Result<System, LabError> {
            match run.spec.name {
                $(SystemName::$variant => built!($lab $module run),)*
            }
        }
    };
}

sidestep_scenario::systems!(modules);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_that_the_table_gives_the_lab_builds_or_says_what_is_missing() {
        let text = "duration = \"1 s\"\n[topology]\ngenerator = \"dumbbell\"\n[mptcp]\npath_manager = \"fullmesh\"\n";
        let scenario = Scenario::parse(text, "test").unwrap();
        for name in SystemName::ALL {
            match System::of(&scenario, &SystemSpec::plain(name)) {
                Ok(system) => assert!(name.runs_in(World::Lab), "{name}: {system:?}"),
                Err(LabError::UnknownSystem(_)) => assert!(!name.runs_in(World::Lab), "{name}"),
                Err(error) => assert!(name == SystemName::Plb, "{error}"),
            }
        }
    }
}
