//! What `sidestep edge balance`, `where` and `stop` take.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

/// Put each flow of this site on one of several paths, by its hash
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

/// Show which path a flow takes; both edges must show the same
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

/// End the balancer of this network namespace, and remove all that it made; also what a killed one left
#[derive(Debug, Args)]
pub struct EdgeStop {
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// Where the routing tables of paths begin
    #[command(flatten)]
    pub place: EdgeNumbers,
}
