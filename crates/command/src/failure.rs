//! How commands fail: one clear line, and an exit code that scripts can rely on.

use std::{fmt, process::ExitCode};

use sidestep_api::{EndpointError, chain};
use sidestep_hostd::AgentError;
use sidestep_linux::LinuxError;

/// Why a command failed, by what the user can do about it.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The run failed.
    Run = 1,
    /// Wrong usage or input.
    Usage = 2,
    /// Something of the machine is missing.
    Environment = sidestep_linux::EXIT_ENVIRONMENT as isize,
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// The run failed.
    pub fn run(message: impl fmt::Display) -> Self {
        Failure { kind: Kind::Run, message: message.to_string() }
    }

    /// The command line or an input file is wrong.
    pub fn usage(message: impl fmt::Display) -> Self {
        Failure { kind: Kind::Usage, message: message.to_string() }
    }

    /// A privilege, a kernel feature or a program is missing.
    pub fn environment(message: impl fmt::Display) -> Self {
        Failure { kind: Kind::Environment, message: message.to_string() }
    }

    /// This failure, with the part of the input that it is about in front of its message.
    pub fn within(self, part: &str) -> Self {
        Failure { message: format!("{part}: {}", self.message), ..self }
    }

    /// Prints the line and gives the exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {}", self.message);
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<LinuxError> for Failure {
    fn from(error: LinuxError) -> Self {
        if error.is_environment() { Failure::environment(error) } else { Failure::run(error) }
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        let message = chain(&error);
        match error {
            EndpointError::Syntax { .. } => Failure::usage(message),
            EndpointError::Connect { .. } | EndpointError::Listen { .. } => Failure::run(message),
        }
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        let kind = match &error {
            AgentError::Linux(error) if error.is_environment() => Kind::Environment,
            // When the daemon is started again it may find the interface, the address or the controller there.
            _ if error.can_pass() => Kind::Run,
            _ => Kind::Usage,
        };
        Failure { kind, message: chain(&error) }
    }
}
