//! What `sidestep edge route-control` takes.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use sidestep_command::parse_interval;
use sidestep_net::Span;

/// Have packets of this multihomed site take the egress that works, measured by probes
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RouteControlArgs {
    /// What to do instead of running
    #[command(subcommand)]
    pub command: Option<RouteControlCommand>,
    /// How to run
    #[command(flatten)]
    pub run: RouteControlRun,
}

/// What to do with a route controller that runs, or ran.
#[derive(Debug, Subcommand)]
pub enum RouteControlCommand {
    /// Show the egresses, their targets, and the last decisions with their reasons
    Status {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the same again and again, until a signal ends it
    Top {
        /// How often to look
        #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval)]
        interval: Span,
        /// Print what is seen as JSON, an object a line, instead of drawing it
        #[arg(long)]
        json: bool,
    },
    /// End the route controller of this network namespace, and remove all that it made; also what a killed one left
    Stop {
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
        /// Where tables and rules are
        #[command(flatten)]
        place: RouteControlNumbers,
    },
    /// Write a configuration from the routes, leases and firewall of this machine, and report what was found
    Init(RouteControlInit),
}

/// What `sidestep edge route-control init` writes.
#[derive(Debug, Args)]
pub struct RouteControlInit {
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write over a file that exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Probe this address by each egress, better three of different operators; without any, a terminal is asked
    #[arg(long, value_name = "ADDRESS")]
    pub target: Vec<IpAddr>,
}

/// How to run a route controller.
#[derive(Debug, Args)]
pub struct RouteControlRun {
    /// The egresses, the targets, and how to decide; read again at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only report whether the configuration is in order
    #[arg(long)]
    pub check: bool,
    /// Print what --check finds as JSON
    #[arg(long, requires = "check")]
    pub json: bool,
    /// Probe and decide, but install nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Leave everything in place on SIGTERM and SIGINT too, as on SIGUSR2, for the next daemon to take over
    #[arg(long)]
    pub keep: bool,
    /// Let Prometheus read metrics at this address; wins over the file
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
    /// Where tables and rules are
    #[command(flatten)]
    pub place: RouteControlNumbers,
}

/// Where a route controller's tables and rules are.
#[derive(Clone, Copy, Debug, Args)]
pub struct RouteControlNumbers {
    /// The routing tables are N + 1 to N + 63
    #[arg(long, value_name = "N", default_value_t = 8500)]
    pub table_base: u32,
    /// Priority of the first rules; others have N + 1 and N + 2
    #[arg(long, value_name = "N", default_value_t = 8500)]
    pub rule_priority: u32,
}
