//! Why a daemon stops.

use std::path::PathBuf;

use sidestep_api::{ClientError, EndpointError};
use sidestep_linux::LinuxError;
use thiserror::Error;

use crate::ConfigError;
use crate::{ControlError, ListenError};

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
    /// Neither a controller nor paths of its own.
    #[error(
        "there is nothing to do: name a controller (--controller), or give paths in a configuration file (--config)"
    )]
    NothingToDo,
    /// The bits of the mark are another program's, too.
    #[error("mark_mask {mask:#x} meets {with}, so connections would be routed wrongly: {advice}")]
    MarkCollision {
        /// Our bits.
        mask: u32,
        /// Whose they are.
        with: String,
        /// Which others are free.
        advice: String,
    },
    /// A number in the options is the kernel's own.
    #[error("{0}")]
    Reserved(String),
    /// Another agent of the network namespace has routing tables or bits of the mark that this one will use.
    #[error(
        "another agent (process {process}) uses some of the routing tables {first} to {last} or of the mark's bits \
         {mask:#x} in this network namespace; end it, or give this one its own --table-base, --rule-priority and `mark_mask`"
    )]
    Taken {
        /// The other agent's process.
        process: i32,
        /// The first table.
        first: u32,
        /// The last table.
        last: u32,
        /// The bits of the mark.
        mask: u32,
    },
    /// Another program uses one of the routing tables.
    #[error(
        "the routing table {table} holds a route to {destination} that is not of an agent; choose other tables (--table-base), \
         or remove it: `ip route show table {table}`, with -6 for IPv6"
    )]
    Foreign {
        /// The table.
        table: u32,
        /// The destination of the route.
        destination: ipnet::IpNet,
    },
    /// The agent's rules and routes are in another network namespace.
    #[error(
        "the agent of {state} left rules and routes in another network namespace; remove them there: \
         `nsenter --net={place} sidestep agent stop --state {state}`"
    )]
    Elsewhere {
        /// The state directory.
        state: PathBuf,
        /// A file of that namespace.
        place: PathBuf,
    },
    /// The agent did not react when its state was removed.
    #[error("the agent of {state} does not end: what it installed may stay, or come back; end its process")]
    DoesNotEnd {
        /// The state directory.
        state: PathBuf,
    },
    /// The state of an agent does not show where its rules and routes are.
    #[error(
        "the state in {state} was removed, but not what another version left: see `ip rule`, and `ip route show table all \
         proto 83`, for both families"
    )]
    Unreadable {
        /// The state directory.
        state: PathBuf,
    },
    /// Another daemon of the kind works already.
    #[error("another {kind} daemon works in this network namespace; `sidestep {kind} stop` ends it")]
    Occupied {
        /// Its kind, as its command has it.
        kind: &'static str,
    },
}

impl AgentError {
    /// Whether the error may pass without anybody changing the command line, the configuration or the machine.
    pub fn can_pass(&self) -> bool {
        match self {
            AgentError::Linux(error) => !error.is_environment(),
            AgentError::Config(error) => matches!(error, ConfigError::NoInterface(..) | ConfigError::NoGateway(..)),
            AgentError::NothingToDo
            | AgentError::Reserved(_)
            | AgentError::MarkCollision { .. }
            | AgentError::Endpoint(_)
            | AgentError::Client(ClientError::Endpoint(_)) => false,
            AgentError::Client(ClientError::Controller { .. })
            | AgentError::Metrics(_)
            | AgentError::Taken { .. }
            | AgentError::Foreign { .. }
            | AgentError::Elsewhere { .. }
            | AgentError::DoesNotEnd { .. }
            | AgentError::Unreadable { .. }
            | AgentError::Occupied { .. } => true,
        }
    }
}

impl From<ControlError> for AgentError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Occupied { kind } => AgentError::Occupied { kind },
            ControlError::Unanswered { what } => LinuxError::not_answered(what).into(),
            ControlError::Io { what, source } => LinuxError::io(what, source).into(),
        }
    }
}
