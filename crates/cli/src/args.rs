//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::systems::SystemCommand;

/// Moves traffic around congestion, on an unmodified Linux kernel.
#[derive(Parser)]
#[command(name = "sidestep", version, propagate_version = true)]
pub struct Cli {
    /// Print more: -v what is done, -vv every detail (or set SIDESTEP_LOG)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// How logs are written to standard error
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", env = "SIDESTEP_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// What is done before, and instead of, deployment
    #[cfg(feature = "planning")]
    #[command(flatten)]
    Planning(crate::planning::Command),
    /// Compute paths, name them, and stream them to agents
    Controller(ControllerArgs),
    /// What the daemons of systems do
    #[command(flatten)]
    System(SystemCommand),
    /// Try what of this machine's kernel agent, router, edge and lab need
    Doctor {
        // What it says depends on the systems.
        #[arg(long, value_name = "FILE", help = crate::commands::doctor::config_help())]
        config: Option<PathBuf>,
        /// The control group that the agent will use: its programs are attached there for a moment [default: the root]
        #[arg(long, value_name = "DIR")]
        cgroup: Option<PathBuf>,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what a shell needs to complete command lines: sidestep completions bash > FILE
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// The directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// How logs are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

/// A shell that can complete our command lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// `sidestep controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The network, as a TOML file with a `[topology]` table
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// Where to listen: `unix:/PATH` or `tcp:[ADDRESS]:PORT`
    #[arg(long, value_name = "ENDPOINT", default_value = "unix:/run/sidestep/controller.sock")]
    pub listen: String,
    /// Most SIDs in a segment list, the egress router's included
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub max_segments: usize,
    /// Most paths between two access routers
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub max_paths: usize,
    /// Do not use adjacency segments (End.X)
    #[arg(long)]
    pub no_adjacency: bool,
    /// Let Prometheus read metrics at this address [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
    /// Print the paths and Path IDs, and exit
    #[arg(long)]
    pub show: bool,
    /// Print them as JSON
    #[arg(long, requires = "show")]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
