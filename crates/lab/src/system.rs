//! What a system is in the lab: what routers hash, which daemons run where, and what they report.

use std::{fmt, path::Path, sync::Arc};

use sidestep_net::{ArcId, SettingsTable};
use sidestep_proto::mptcp::MptcpSettings;
use sidestep_results::{Doubt, ReturnPath};
use sidestep_scenario::{Catalogue, Scenario, SystemInfo, SystemSpec, World};

use crate::{choice::Choice, daemons::Daemon, error::LabError, plan::Multipath};

/// A system that the lab runs.
pub trait System: Send + Sync {
    /// Its name and its settings, as scenario files have them.
    fn info(&self) -> SystemInfo;

    /// What a run of it needs; an error states what the machine or the scenario lacks.
    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError>;
}

/// The systems that can be run.
#[derive(Clone, Default)]
pub struct Registry {
    systems: Vec<Arc<dyn System>>,
}

/// What a run of one system needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How routers use equal-cost paths.
    pub multipath: Multipath,
    /// What routers hash to choose one of them.
    pub hash: Hash,
    /// The daemons in the order of their start.
    pub daemons: Vec<Daemon>,
    /// Settings of every namespace: files below `/proc/sys/net`, and what is written to them.
    pub sysctls: Vec<(&'static str, String)>,
    /// Whether connections are MPTCP's, and its settings.
    pub mptcp: Option<MptcpSettings>,
    /// Whether connections take a new flow label after timeouts.
    pub rehash: bool,
    /// What its connections choose among.
    pub choice: Option<Choice>,
    /// Links of which packets to their own addresses must arrive over the link itself: by the arc that leaves the node whose
    /// address it is.
    pub pinned: Vec<ArcId>,
    /// The paths back to who chooses an egress.
    pub returns: Vec<ReturnPath>,
    /// Notes for the results: where the kernel departs from the scenario.
    pub notes: Vec<String>,
    /// Reasons to doubt the results about it.
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

/// For what a system is set up: the scenario, and the system's settings in it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    spec: &'a SystemSpec,
    catalogue: &'a Catalogue,
}

impl Registry {
    /// No system yet.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// The same systems, and one more.
    #[must_use]
    pub fn with(mut self, system: impl System + 'static) -> Registry {
        self.systems.push(Arc::new(system));
        self
    }

    /// The names and settings of the systems, in the order in which they were added.
    pub fn infos(&self) -> impl Iterator<Item = SystemInfo> {
        self.systems.iter().map(|system| system.info())
    }

    /// What scenario files may name.
    pub fn catalogue(&self) -> Catalogue {
        let mut catalogue = Catalogue::default();
        catalogue.add(World::Lab, self.infos());
        catalogue
    }

    /// What a run of `spec` needs.
    pub fn setup(&self, scenario: &Scenario, spec: &SystemSpec) -> Result<Setup, LabError> {
        let catalogue = self.catalogue();
        catalogue.require(World::Lab, &spec.name).map_err(LabError::UnknownSystem)?;
        catalogue.check(scenario, spec).map_err(|error| parameter(spec, error.to_string()))?;
        let run = Run { scenario, spec, catalogue: &catalogue };
        match self.systems.iter().find(|system| system.info().name == spec.name) {
            Some(system) => system.setup(&run),
            None => Err(run.refuse("is not registered")),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.infos().map(|info| info.name)).finish()
    }
}

impl Setup {
    /// Plain TCP, without daemons.
    pub fn new(multipath: Multipath) -> Self {
        Setup {
            multipath,
            hash: Hash::Ports,
            daemons: Vec::new(),
            sysctls: Vec::new(),
            mptcp: None,
            rehash: false,
            choice: (multipath == Multipath::Ecmp).then(Choice::equal_cost),
            pinned: Vec::new(),
            returns: Vec::new(),
            notes: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// Whether daemons move its connections.
    pub fn is_steered(&self) -> bool {
        self.daemons.iter().any(|daemon| daemon.steers)
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

    /// An error about the system's settings, or about the system in this scenario.
    pub fn refuse(&self, problem: impl Into<String>) -> LabError {
        parameter(self.spec, problem.into())
    }

    /// An error about what the machine lacks.
    pub fn lacks(&self, problem: impl Into<String>) -> LabError {
        LabError::Machine { system: self.spec.clone(), problem: problem.into() }
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
