//! `sidestep`: moves traffic around congestion, and lets its user rehearse the move first.
//!
//! Without the feature `planning` it is the program of the daemons alone.

// First: its macros are for all that follows.
#[macro_use]
mod out;

mod args;
mod commands;
mod failure;
#[cfg(feature = "planning")]
mod planning;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, LogFormat};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(cli.verbose, cli.log_format);
    let result = match cli.command {
        #[cfg(feature = "planning")]
        Command::Planning(command) => planning::run(command),
        Command::Controller(options) => commands::daemons::controller(options),
        Command::Agent(options) => commands::daemons::agent(*options),
        Command::Top(options) => commands::top::run(&options),
        Command::Router(options) => commands::daemons::router(options),
        Command::Edge(command) => commands::edge::run(command),
        Command::Doctor { config, cgroup, json } => commands::doctor::run(config.as_deref(), cgroup.as_deref(), json),
        Command::MptcpPm(options) => commands::mptcp_pm::run(*options),
        Command::Reflector(options) => commands::reflector::run(options),
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { directory } => commands::manual::man(&directory),
    };
    match result.and_then(|()| out::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Logs go to standard error; what a command is asked for goes to standard output.
fn start_logging(verbose: u8, format: LogFormat) {
    let default = match verbose {
        // A person who runs a route controller wants to see each move, and how its egresses are.
        0 => "warn,sidestep_route_control=info",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIDESTEP_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Where no process reads them, no process would read a complaint either.
    let logs = logs.with_target(false).log_internal_errors(false);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}
