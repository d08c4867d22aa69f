//! Why a daemon stops.

use std::path::PathBuf;

use sidestep_api::{ClientError, EndpointError};
use sidestep_linux::LinuxError;
use sidestep_metrics::ListenError;
use thiserror::Error;

use crate::ConfigError;

/// Why a daemon could not start, or cannot go on.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The kernel refused something.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// The controller cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The controller's address is not one.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port of the metrics cannot be listened at.
    #[error(transparent)]
    Metrics(#[from] ListenError),
    /// A file cannot be written.
    #[error("writing {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Neither a controller nor paths of its own.
    #[error(
        "there is nothing to do: name a controller (--controller), or give paths in a configuration file (--config)"
    )]
    NothingToDo,
    /// An interface named in the options does not exist.
    #[error("there is no interface `{0}`; `ip link` lists those that exist")]
    NoInterface(String),
}

impl AgentError {
    /// Whether the error may pass without anybody changing the command line, the configuration or the machine.
    pub fn can_pass(&self) -> bool {
        match self {
            AgentError::Linux(error) => !error.is_environment(),
            AgentError::Config(error) => matches!(error, ConfigError::NoInterface(..) | ConfigError::NoGateway(..)),
            AgentError::NothingToDo | AgentError::Endpoint(_) | AgentError::Client(ClientError::Endpoint(_)) => false,
            AgentError::Client(ClientError::Controller { .. })
            | AgentError::Metrics(_)
            | AgentError::File { .. }
            | AgentError::NoInterface(_) => true,
        }
    }
}
