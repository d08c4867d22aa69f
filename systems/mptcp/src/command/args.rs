//! What `sidestep mptcp-pm` takes.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use sidestep_net::Bytes;

use crate::daemon::{CongestionChoice, MptcpMode};

/// Give this host's MPTCP connections further subflows
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MptcpPmArgs {
    /// What to do with a path manager that is there
    #[command(subcommand)]
    pub command: Option<MptcpPmCommand>,
    /// How to run one
    #[command(flatten)]
    pub run: MptcpPmRun,
}

/// `sidestep mptcp-pm …`.
#[derive(Debug, Subcommand)]
pub enum MptcpPmCommand {
    /// List the MPTCP connections of this network namespace, their subflows, and the limits that were reached
    Status {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// End the path manager of this network namespace, and put back the sysctl that it, or a killed one, has set
    Stop {
        /// Where its state is kept
        #[arg(long, value_name = "DIR", default_value = MPTCP_PM_STATE)]
        state: PathBuf,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Where a path manager keeps what the next one should know.
pub const MPTCP_PM_STATE: &str = "/run/sidestep/mptcp-pm";

/// How to run a path manager.
#[derive(Debug, Args)]
pub struct MptcpPmRun {
    /// Settings, and rules for prefixes; what the command line sets wins for connections that no rule names
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Subflows of each connection, the first included [default: 32]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub subflows: Option<u32>,
    /// Between which addresses: ndiffports, fullmesh, or accept-only [default: ndiffports]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<MptcpMode>,
    /// How much a connection carries before it gets more than the first [default: 0 B]
    #[arg(long, value_name = "SIZE")]
    pub after: Option<Bytes>,
    /// Choose source ports such that subflows spread evenly over the paths of edges that hash
    #[arg(long)]
    pub stratified: bool,
    /// How the windows of subflows are coupled: off, lia, olia, or balia [default: off]
    #[arg(long, value_name = "ALGORITHM")]
    pub congestion: Option<CongestionChoice>,
    /// The control group whose connections are coupled [default: all]
    #[arg(long, value_name = "GROUP")]
    pub cgroup: Option<PathBuf>,
    /// Directory for what the next path manager should know, should this one be killed
    #[arg(long, value_name = "DIR", default_value = MPTCP_PM_STATE)]
    pub state: PathBuf,
    /// Keep nothing there
    #[arg(long, conflicts_with = "state")]
    pub no_state: bool,
    /// Do not set net.mptcp.path_manager (pm_type before Linux 6.15); it is set at the start, and put back at the end
    #[arg(long)]
    pub no_sysctl: bool,
    /// Leave the sysctl in place on SIGTERM and SIGINT too, as on SIGUSR2, for the next path manager to take over
    #[arg(long)]
    pub keep: bool,
    /// Change nothing in the kernel: only decide, count, and report what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Let Prometheus read metrics at this address [default: that of the file, or nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
    /// Report whether the file of --config is in order, and exit
    #[arg(long, requires = "config")]
    pub check: bool,
    /// Report it as JSON
    #[arg(long, requires = "check")]
    pub json: bool,
}
