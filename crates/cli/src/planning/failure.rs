//! Errors of what only these commands use.

use sidestep_advise::AdviseError;
use sidestep_lab::LabError;
use sidestep_paths::analysis::NetError;
use sidestep_repro::{DataError, ReproError};
use sidestep_sim::SimError;
use sidestep_tournament::PlayError;

use crate::failure::Failure;

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
