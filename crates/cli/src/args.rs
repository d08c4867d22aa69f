//! The command line.

mod agent;
mod edge;
mod mptcp_pm;
mod reflector;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::{
    agent::{
        AGENT_STATE, AgentArgs, AgentCommand, AgentExplain, AgentRun, AgentStatus, ConnectionFilter, Sort, TopArgs,
    },
    edge::{
        EdgeCommand, EdgeNumbers, EdgeRun, EdgeWhere, RouteControlArgs, RouteControlCommand, RouteControlInit,
        RouteControlNumbers, RouteControlRun,
    },
    mptcp_pm::{MptcpPmArgs, MptcpPmCommand, MptcpPmRun},
    reflector::{ClockName, ReflectorArgs},
};

/// Moves traffic around congestion, on an unmodified Linux kernel.
#[derive(Debug, Parser)]
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
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What is done before, and instead of, deployment
    #[cfg(feature = "planning")]
    #[command(flatten)]
    Planning(crate::planning::Command),
    /// Compute paths, name them, and stream them to agents
    Controller(ControllerArgs),
    /// Move this host's connections away from congestion
    Agent(Box<AgentArgs>),
    /// Watch the connections that this host's agent moves
    Top(TopArgs),
    /// Install on this router what the controller's Path IDs stand for, and report how busy its links are
    Router(RouterArgs),
    /// On a site's edge router: balance its flows over several paths, or send them over the egress that works
    #[command(subcommand)]
    Edge(EdgeCommand),
    /// Give this host's MPTCP connections further subflows
    MptcpPm(Box<MptcpPmArgs>),
    /// Answer the probes of edges: a session reflector of STAMP (RFC 8762)
    Reflector(ReflectorArgs),
    /// Try what of this machine's kernel agent, router, edge and lab need
    Doctor {
        /// A configuration of the agent: try its mark_mask, and the sources of its paths; or of route control: look at the paths of
        /// its egresses, and send some packets to its targets
        #[arg(long, value_name = "FILE")]
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

/// `sidestep router`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct RouterArgs {
    /// What to do with a router daemon that is there
    #[command(subcommand)]
    pub command: Option<RouterCommand>,
    /// How to run one
    #[command(flatten)]
    pub run: Option<RouterRun>,
}

/// `sidestep router …`.
#[derive(Debug, Subcommand)]
pub enum RouterCommand {
    /// End the router daemon of this network namespace, and remove all that it made; also what a killed one left
    Stop {
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

/// How to run a router daemon.
#[derive(Debug, Args)]
pub struct RouterRun {
    /// Where the controller is: `unix:/PATH` or `http://[ADDRESS]:PORT`
    #[arg(long, value_name = "ENDPOINT")]
    pub controller: String,
    /// This router's name in the controller's topology
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// The interface of a link of this router, which need not exist yet; repeat for each
    #[arg(long = "link", value_name = "LINK=INTERFACE", value_parser = parse_link)]
    pub links: Vec<(String, String)>,
    /// Do not copy congestion marks inward before decapsulation
    #[arg(long)]
    pub no_ecn: bool,
    /// Leave everything in place on SIGTERM and SIGINT too, as on SIGUSR2, for the next daemon to take over
    #[arg(long)]
    pub keep: bool,
    /// Let Prometheus read metrics at this address [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
}

fn parse_link(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((link, interface)) if !link.is_empty() && !interface.is_empty() => Ok((link.into(), interface.into())),
        _ => Err("write LINK=INTERFACE, such as A-m1=eth1".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_link_names_its_interface() {
        assert_eq!(parse_link("A-m1=eth1"), Ok(("A-m1".into(), "eth1".into())));
        assert!(parse_link("A-m1").is_err());
        assert!(parse_link("=eth1").is_err());
    }
}
