//! `sidestep`: moves traffic around congestion, and lets its user rehearse the move first.
//!
//! Without the feature `planning` it is the program of the daemons alone.

// Its `println!` and the like hide those of the standard library.
#[macro_use]
extern crate sidestep_command;

mod args;
mod commands;
#[cfg(feature = "planning")]
mod planning;
mod systems;

use std::process::ExitCode;

use clap::Parser;
use sidestep_command::out;

use crate::{
    args::{Cli, Command, LogFormat},
    systems::SystemCommand,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(&cli);
    let result = match cli.command {
        #[cfg(feature = "planning")]
        Command::Planning(command) => planning::run(command).map_err(Into::into),
        Command::Controller(options) => commands::controller::run(options),
        Command::System(SystemCommand(invocation)) => invocation.run(),
        Command::Doctor { config, cgroup, json } => commands::doctor::run(config.as_deref(), cgroup.as_deref(), json),
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { directory } => commands::manual::man(&directory),
    };
    match result.and_then(|()| out::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Logs go to standard error; what a command is asked for goes to standard output.
fn start_logging(cli: &Cli) {
    let of_command = match &cli.command {
        Command::System(SystemCommand(invocation)) => invocation.logs(),
        _ => None,
    };
    let default = match cli.verbose {
        0 => ["warn"].into_iter().chain(of_command).collect::<Vec<_>>().join(","),
        1 => "info".into(),
        _ => "debug".into(),
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIDESTEP_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Where no process reads them, no process would read a complaint either.
    let logs = logs.with_target(false).log_internal_errors(false);
    // Another crate of the build may turn colours on, and logs are for files as well.
    let logs = logs.with_ansi(false);
    match cli.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}
