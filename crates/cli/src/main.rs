//! `sidestep`: moves traffic around congestion, and lets its user rehearse the move first.

// First: its macros are for all that follows.
#[macro_use]
mod out;

mod args;
mod commands;
mod failure;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, LogFormat};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(cli.verbose, cli.log_format);
    let result = match cli.command {
        Command::Lab(lab) => commands::lab::run(lab),
        Command::Sim(sim) => commands::sim::run(sim),
        Command::Compare(options) => commands::compare::run(options),
        Command::Repro(repro) => commands::repro::run(repro),
        Command::Topo(topo) => commands::topo::run(topo),
        Command::Paths(paths) => commands::paths::run(paths),
        Command::Advise(options) => commands::advise::run(options),
        Command::Maxflow(options) => commands::maxflow::run(options),
        Command::Controller(options) => commands::daemons::controller(options),
        Command::Agent(options) => commands::daemons::agent(*options),
        Command::Top(options) => commands::top::run(&options),
        Command::Router(options) => commands::daemons::router(options),
        Command::Doctor { json } => commands::doctor::run(json),
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { directory } => commands::manual::man(&directory),
        Command::Bench(bench) => commands::bench::run(bench),
        Command::Traffic(traffic) => commands::traffic::run(traffic),
    };
    match result.and_then(|()| out::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Logs go to standard error; what a command is asked for goes to standard output.
fn start_logging(verbose: u8, format: LogFormat) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIDESTEP_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Where nobody reads them there is nobody to complain to either.
    let logs = logs.with_target(false).log_internal_errors(false);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}
