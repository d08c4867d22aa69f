//! Why a lab cannot be built or run.

use std::path::PathBuf;

use sidestep_linux::{LinuxError, wire::WireError};
use sidestep_results::WriteError;
use sidestep_scenario::{Place, SystemError, SystemSpec};
use thiserror::Error;

use crate::plan::PlanError;

/// Why a lab could not be built, or its run failed.
#[derive(Debug, Error)]
pub enum LabError {
    /// The kernel refused something.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// The topology cannot become a lab.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Results cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file of the lab's own cannot be written or read.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The wires ended.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A system that the lab does not have.
    #[error(transparent)]
    UnknownSystem(SystemError),
    /// A parameter that the system does not have.
    #[error("system `{system}`: {problem}")]
    Parameter {
        /// The system.
        system: SystemSpec,
        /// What is wrong.
        problem: String,
    },
    /// A flow that the lab cannot have.
    #[error("flow `{flow}`: {problem}")]
    Flow {
        /// Its number in the scenario.
        number: usize,
        /// Its name.
        flow: String,
        /// Why not.
        problem: String,
    },
    /// The machine lacks what a system needs.
    #[error("`{system}`: {problem}")]
    Machine {
        /// The system.
        system: SystemSpec,
        /// What is missing.
        problem: String,
    },
    /// A program that a scenario wants is not installed.
    #[error("flow `{flow}` needs the program `{program}`, which is not installed or not in PATH")]
    NoProgram {
        /// The flow.
        flow: String,
        /// The program.
        program: String,
    },
    /// A congestion control that the kernel does not have.
    #[error("this kernel does not have the congestion control `{name}`; it has: {available}")]
    CongestionControl {
        /// The name.
        name: String,
        /// Those that it has.
        available: String,
    },
    /// The kernel has the congestion control, but did not let connections use it.
    #[error("the kernel refused the congestion control `{name}` to {connections} connections")]
    CongestionControlRefused {
        /// The name.
        name: String,
        /// How many connections were refused.
        connections: u64,
    },
    /// One of the lab's processes ended or did not begin.
    #[error("{name} {problem}; its last words: {words}")]
    Process {
        /// What it is, and where.
        name: String,
        /// What happened.
        problem: String,
        /// The end of its log.
        words: String,
        /// Whether the process reported that the machine lacks something.
        environment: bool,
    },
    /// A limit on open files.
    #[error("{needed} open files are needed and {allowed} are allowed; raise the limit: ulimit -n {needed}")]
    Descriptors {
        /// How many are needed.
        needed: u64,
        /// How many are allowed.
        allowed: u64,
    },
    /// The user stopped the run.
    #[error("interrupted; everything was cleaned up")]
    Interrupted,
}

impl LabError {
    /// Whether the machine lacks something, as opposed to a run that failed.
    pub fn is_environment(&self) -> bool {
        match self {
            LabError::Linux(error) => error.is_environment(),
            LabError::NoProgram { .. }
            | LabError::CongestionControl { .. }
            | LabError::Machine { .. }
            | LabError::Descriptors { .. } => true,
            LabError::Process { environment, .. } => *environment,
            _ => false,
        }
    }

    /// Whether the scenario or the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            LabError::Plan(_) | LabError::UnknownSystem(_) | LabError::Parameter { .. } | LabError::Flow { .. }
        )
    }

    /// The place in the scenario file that the error is about, if it is about one.
    pub fn place(&self) -> Option<Place> {
        if let LabError::Flow { number, .. } = self { Some(Place::Flow(*number)) } else { None }
    }

    /// Puts a file before an error of the operating system.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { path, source }
    }
}
