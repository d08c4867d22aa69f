//! `sidestep edge`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use sidestep_net::Span;

use super::agent::parse_interval;

/// `sidestep edge …`.
#[derive(Debug, Subcommand)]
pub enum EdgeCommand {
    /// Put each flow of this site on one of several paths, by its hash
    Balance(EdgeRun),
    /// Have packets of this multihomed site take the egress that works, measured by probes
    #[command(args_conflicts_with_subcommands = true)]
    RouteControl(RouteControlArgs),
    /// Show which path a flow takes; both edges must show the same
    Where(EdgeWhere),
    /// Show the paths of this network namespace's edge daemon, and what they carry; of a route controller, its egresses
    Status {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// End the balancer of this network namespace, and remove all that it made; also what a killed one left
    Stop {
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
        /// Where the routing tables of paths begin
        #[command(flatten)]
        place: EdgeNumbers,
    },
}

/// How to run an edge daemon.
#[derive(Debug, Args)]
pub struct EdgeRun {
    /// The site's interfaces, the mode, the paths, and what shows that one is dead (carrier, probes); read again at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Only report whether the configuration is in order
    #[arg(long)]
    pub check: bool,
    /// Print what --check finds as JSON
    #[arg(long, requires = "check")]
    pub json: bool,
    /// Let the kernel's own multipath routes choose, instead of the program: `nexthops`
    #[arg(long, value_name = "WHAT", value_parser = ["nexthops"])]
    pub offload: Option<String>,
    /// Choose and count, but mark no packet, send no probe, and install nothing else
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
    pub place: EdgeNumbers,
}

/// Where an edge's tables and rules are.
#[derive(Clone, Copy, Debug, Args)]
pub struct EdgeNumbers {
    /// The path of slot K is in routing table N + K
    #[arg(long, value_name = "N", default_value_t = 8400)]
    pub table_base: u32,
    /// Priority of the rules
    #[arg(long, value_name = "N", default_value_t = 8400)]
    pub rule_priority: u32,
}

/// `sidestep edge where`.
#[derive(Debug, Args)]
pub struct EdgeWhere {
    /// The flow: PROTOCOL SOURCE DESTINATION, such as `tcp 10.1.0.2:40000 10.2.0.3:443`
    #[arg(required = true, num_args = 1..=3, value_name = "TUPLE")]
    pub tuple: Vec<String>,
    /// Go by this file instead of asking the daemon, as if all paths were live
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `sidestep edge route-control …`.
#[derive(Debug, Args)]
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
