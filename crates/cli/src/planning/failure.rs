//! How these commands fail: as others do, also by errors that only they have.

use std::fmt;

use sidestep_advise::AdviseError;
use sidestep_lab::LabError;
use sidestep_linux::LinuxError;
use sidestep_paths::analysis::NetError;
use sidestep_repro::{DataError, ReproError};
use sidestep_sim::SimError;
use sidestep_tournament::PlayError;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure(sidestep_command::Failure);

/// What a command returns.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// The run failed.
    pub fn run(message: impl fmt::Display) -> Self {
        Failure(sidestep_command::Failure::run(message))
    }

    /// The command line or an input file is wrong.
    pub fn usage(message: impl fmt::Display) -> Self {
        Failure(sidestep_command::Failure::usage(message))
    }

    /// A privilege, a kernel feature or a program is missing.
    pub fn environment(message: impl fmt::Display) -> Self {
        Failure(sidestep_command::Failure::environment(message))
    }

    /// This failure, with the part of the input that it is about in front of its message.
    pub fn within(self, part: &str) -> Self {
        Failure(self.0.within(part))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<sidestep_command::Failure> for Failure {
    fn from(failure: sidestep_command::Failure) -> Self {
        Failure(failure)
    }
}

impl From<Failure> for sidestep_command::Failure {
    fn from(failure: Failure) -> Self {
        failure.0
    }
}

impl From<LinuxError> for Failure {
    fn from(error: LinuxError) -> Self {
        Failure(error.into())
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        if error.is_environment() {
            Failure::environment(error)
        } else if error.is_usage() {
            Failure::usage(error)
        } else {
            Failure::run(error)
        }
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        if error.is_usage() { Failure::usage(error) } else { Failure::run(error) }
    }
}

impl From<ReproError> for Failure {
    fn from(error: ReproError) -> Self {
        match error {
            ReproError::Unknown { .. } | ReproError::World { .. } | ReproError::Net(_) => Failure::usage(error),
            ReproError::Data(error) => error.into(),
            _ => Failure::run(error),
        }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        match error {
            DataError::NoSet { .. } | DataError::NotShipped { .. } => Failure::environment(error),
            _ => Failure::usage(error),
        }
    }
}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Self {
        Failure::usage(error)
    }
}

impl From<AdviseError> for Failure {
    fn from(error: AdviseError) -> Self {
        if error.is_usage() { Failure::usage(error) } else { Failure::run(error) }
    }
}

impl From<PlayError> for Failure {
    fn from(error: PlayError) -> Self {
        match &error {
            PlayError::Sim { problem, .. } if problem.is_usage() => Failure::usage(error),
            PlayError::NoCases => Failure::usage(error),
            _ => Failure::run(error),
        }
    }
}
