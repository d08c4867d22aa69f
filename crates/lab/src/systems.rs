//! The systems of the lab: what a run of each needs. One file a system, and one line of `SYSTEMS`.

mod mptcp;
mod pathchanger;
mod plb;
mod prr;
mod route_control;
mod semper;
mod tcp;

use std::path::Path;

use sidestep_net::SettingsTable;
use sidestep_policy::AgentSettings;
use sidestep_proto::mptcp::{MptcpSettings, PathManager};
use sidestep_results::Doubt;
use sidestep_scenario::{Catalogue, Scenario, SystemInfo, SystemSpec, World};

use crate::{daemons::Role, error::LabError, plan::Multipath};

/// Says what a run of a system needs.
type Build = fn(&Run<'_>) -> Result<System, LabError>;

/// The systems that the lab runs, in the order in which they are listed to people.
const SYSTEMS: [(SystemInfo, Build); 10] = [
    (sidestep_tcp::TCP, tcp::single),
    (sidestep_tcp::ECMP, tcp::equal_cost),
    (sidestep_pathchanger::RANDOM, pathchanger::build),
    (sidestep_prr::PRR, prr::build),
    (sidestep_plb::PLB, plb::build),
    (sidestep_pathchanger::PATHCHANGER, pathchanger::build),
    (sidestep_mptcp::MPTCP, mptcp::build),
    (sidestep_semper::SEMPER, semper::stateless),
    (sidestep_semper::SEMPER_STATEFUL, semper::stateful),
    (sidestep_route_control::ROUTE_CONTROL, route_control::build),
];

/// The names and settings of the systems that the lab runs.
pub fn infos() -> impl Iterator<Item = SystemInfo> {
    SYSTEMS.into_iter().map(|(info, _)| info)
}

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
    pub mptcp: Option<MptcpSettings>,
    /// Whether connections take a new flow label after timeouts.
    pub rehash: bool,
    /// What its connections choose among.
    pub choice: Choice,
    /// Notes for the results: where the kernel departs from the scenario.
    pub notes: Vec<String>,
    /// Reasons to doubt what the results say of it.
    pub doubts: Vec<Doubt>,
}

/// What connections choose among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nothing.
    Nothing,
    /// Equal-cost paths.
    EqualCost,
    /// The controller's paths.
    Paths,
    /// Equal-cost paths, or interfaces, for the subflows that this path manager opens.
    Subflows(PathManager),
    /// The links between two edges.
    EdgeLinks,
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
    catalogue: &'a Catalogue,
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
            choice: if multipath == Multipath::Ecmp { Choice::EqualCost } else { Choice::Nothing },
            notes: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// What a run of `spec` needs.
    pub fn of(scenario: &Scenario, spec: &SystemSpec) -> Result<System, LabError> {
        let mut catalogue = Catalogue::default();
        catalogue.add(World::Lab, infos());
        catalogue.require(World::Lab, &spec.name).map_err(LabError::UnknownSystem)?;
        catalogue.check(scenario, spec).map_err(|error| parameter(spec, error.to_string()))?;
        let run = Run { scenario, spec, catalogue: &catalogue };
        match SYSTEMS.iter().find(|(info, _)| info.name == spec.name) {
            Some((_, build)) => build(&run),
            None => Err(run.refuse("has no line in the table of the lab's systems")),
        }
    }

    /// The path changer's settings, if agents run.
    pub fn agent(&self) -> Option<&AgentSettings> {
        self.daemons.iter().find_map(|role| if let Role::Agent(knobs) = role { Some(knobs) } else { None })
    }
}

impl Run<'_> {
    /// The system's settings, its own parameters included.
    pub fn settings<T: SettingsTable>(&self) -> Result<T, LabError> {
        self.catalogue.settings(self.scenario, self.spec).map_err(|error| parameter(self.spec, error.to_string()))
    }

    /// The settings of another system of the scenario, as the file has them.
    pub fn settings_of<T: SettingsTable>(&self, name: &str) -> Result<T, LabError> {
        let settings = self.catalogue.settings(self.scenario, &SystemSpec::plain(name));
        settings.map_err(|error| parameter(self.spec, error.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_of_the_lab_builds_or_says_what_is_missing_and_others_are_refused() {
        let text = "duration = \"1 s\"\n[topology]\ngenerator = \"dumbbell\"\n[mptcp]\npath_manager = \"fullmesh\"\n";
        let scenario = Scenario::parse(text, "test").unwrap();
        for info in infos() {
            if let Err(error) = System::of(&scenario, &SystemSpec::plain(info.name)) {
                assert!(info.name == "plb", "{error}");
            }
        }
        let refused = System::of(&scenario, &SystemSpec::plain("inrpp")).unwrap_err().to_string();
        assert!(refused.starts_with("there is no system `inrpp`; known systems: tcp, ecmp, random"), "{refused}");
    }
}
