//! What `sidestep agent`, `sidestep top` and `sidestep router` take.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use sidestep_command::parse_interval;
use sidestep_net::{Bytes, Span};
use sidestep_policy::Reason;

use crate::daemon::RecordFile;

/// Move this host's connections away from congestion
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentArgs {
    /// What to do with an agent that is there
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// How to run one
    #[command(flatten)]
    pub run: AgentRun,
}

/// `sidestep agent …`.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// List the connections that are moved, whether or not the agent runs
    Status(AgentStatus),
    /// Explain in three sentences why a connection, or what goes to an address, did or did not move
    Explain(AgentExplain),
    /// Write a configuration from the routes of this machine, and report what was found
    Init {
        /// The file to write [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write over a file that exists
        #[arg(long, requires = "output")]
        force: bool,
    },
    /// End the agent, and remove all that it made; also what a killed one left
    Stop {
        /// Where its state is kept
        #[arg(long, value_name = "DIR", default_value = AGENT_STATE)]
        state: PathBuf,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `sidestep agent status`.
#[derive(Debug, Args)]
pub struct AgentStatus {
    /// Where its state is kept
    #[arg(long, value_name = "DIR", default_value = AGENT_STATE)]
    pub state: PathBuf,
    /// Which connections
    #[command(flatten)]
    pub filter: ConnectionFilter,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// `sidestep agent explain`.
#[derive(Debug, Args)]
pub struct AgentExplain {
    /// A connection, LOCAL:PORT-REMOTE:PORT, or one of its ends, or an address; IPv6 with a port stands in brackets
    #[arg(value_name = "CONNECTION|ADDRESS", required = true, num_args = 1..)]
    pub what: Vec<String>,
    /// Where its state is kept
    #[arg(long, value_name = "DIR", default_value = AGENT_STATE)]
    pub state: PathBuf,
    /// Print the sentences, and what they are made of, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Watch the connections that this host's agent moves
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Where the agent's state is kept
    #[arg(long, value_name = "DIR", default_value = AGENT_STATE)]
    pub state: PathBuf,
    /// Which connections
    #[command(flatten)]
    pub filter: ConnectionFilter,
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval)]
    pub interval: Span,
    /// What to sort by at first
    #[arg(long, value_name = "COLUMN", default_value = "moves")]
    pub sort: Sort,
    /// Print what is seen as JSON, an object a line, instead of drawing it
    #[arg(long)]
    pub json: bool,
}

/// What connections are sorted by; numbers begin with the largest, or the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Moves
    Moves,
    /// Signals received
    Signals,
    /// When the last decision was
    Last,
    /// Age
    Age,
    /// Path
    Path,
    /// The other end
    Remote,
}

/// Which connections are shown.
#[derive(Debug, Args)]
pub struct ConnectionFilter {
    /// Only connections to this address or prefix
    #[arg(long, value_name = "PREFIX")]
    pub to: Option<String>,
    /// Only connections on the path of this name or ID
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Only connections that have moved
    #[arg(long)]
    pub moved: bool,
    /// Only connections whose last decision was for this reason
    #[arg(long, value_name = "REASON", value_parser = Reason::ALL.map(|reason| reason.as_str()))]
    pub reason: Option<String>,
}

/// Where an agent keeps its state.
pub const AGENT_STATE: &str = "/sys/fs/bpf/sidestep";

/// How to run an agent.
#[derive(Debug, Args)]
pub struct AgentRun {
    /// Where the controller is: `unix:/PATH` or `http://[ADDRESS]:PORT`
    #[arg(long, value_name = "ENDPOINT")]
    pub controller: Option<String>,
    /// This host's name in the controller's topology [default: found by --prefix, or the host name]
    #[arg(long, value_name = "NAME", conflicts_with = "prefixes")]
    pub node: Option<String>,
    /// An address or prefix of this host by which the controller finds it; repeat for several
    #[arg(long = "prefix", value_name = "PREFIX")]
    pub prefixes: Vec<String>,
    /// The control group whose connections are moved [default: the root, which holds all]
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// Settings, and paths that need no controller
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The path of slot k goes into routing table BASE + k
    #[arg(long, value_name = "BASE", default_value_t = 8300)]
    pub table_base: u32,
    /// Priority of the rules that send marked packets to these tables
    #[arg(long, value_name = "N", default_value_t = 8300)]
    pub rule_priority: u32,
    /// Record what the path changer does, one JSON object a line, at the end of this file
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Size at which the file of --events becomes FILE.1; 0 for never
    #[arg(long, value_name = "SIZE", default_value_t = RecordFile::SIZE, requires = "events")]
    pub events_size: Bytes,
    /// How many older files FILE.1, FILE.2, … are kept
    #[arg(long, value_name = "N", default_value_t = RecordFile::KEEP, requires = "events",
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub events_keep: u32,
    /// Directory of a BPF file system where the state is kept should the agent be killed [default:
    /// /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep nothing: a killed agent's connections stay on their paths and the next agent moves them, but what they learnt and the marks that they had before are lost
    #[arg(long, conflicts_with = "state")]
    pub no_state: bool,
    /// What new connections do while a killed agent is away: default-route, or last-paths
    #[arg(long, value_name = "WHAT", default_value = "default-route", value_parser = ["default-route", "last-paths"])]
    pub when_killed: String,
    /// Leave everything in place on SIGTERM and SIGINT too, as on SIGUSR2, for the next agent to take over
    #[arg(long)]
    pub keep: bool,
    /// Move no connection: only decide, count and record what would be done; no mark, rule or route is set
    #[arg(long)]
    pub dry_run: bool,
    /// Let Prometheus read metrics at this address [default: that of the file, or nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
    /// Make the kernel count runs of BPF programs and take their time; of all of the machine's
    #[arg(long)]
    pub bpf_stats: bool,
    /// Report whether the file of --config is in order, and exit
    #[arg(long, requires = "config")]
    pub check: bool,
    /// Report it as JSON
    #[arg(long, requires = "check")]
    pub json: bool,
}

/// Install on this router what the controller's Path IDs stand for, and report how busy its links are
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
    use super::*;

    #[test]
    fn a_link_names_its_interface() {
        assert_eq!(parse_link("A-m1=eth1"), Ok(("A-m1".into(), "eth1".into())));
        assert!(parse_link("A-m1").is_err());
        assert!(parse_link("=eth1").is_err());
    }
}
