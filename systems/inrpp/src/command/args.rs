//! What `sidestep inrpp` takes.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use sidestep_command::parse_interval;
use sidestep_net::Span;

/// On a router: store what a link cannot take, send it around, and press back, for hosts that know nothing of it
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct InrppArgs {
    /// What to do instead of running
    #[command(subcommand)]
    pub command: Option<InrppCommand>,
    /// How to run
    #[command(flatten)]
    pub run: InrppRun,
}

/// What to do with a router that runs, or ran.
#[derive(Debug, Subcommand)]
pub enum InrppCommand {
    /// Show the ports of this network namespace's router, their neighbours, and what waits there
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
    /// End the router of this network namespace, and remove all that it made; also what a killed one left
    Stop {
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a new key, for the file that two neighbours share
    Key,
}

/// How to run a router.
#[derive(Debug, Args)]
pub struct InrppRun {
    /// The neighbours, the edges, and what the router is like; read again at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only report whether the configuration is in order
    #[arg(long, requires = "config")]
    pub check: bool,
    /// Print what --check finds as JSON
    #[arg(long, requires = "check")]
    pub json: bool,
    /// Greet the neighbours and count, but divert nothing: the kernel forwards as without a router
    #[arg(long)]
    pub dry_run: bool,
    /// Leave devices and filters in place on SIGTERM and SIGINT too, as on SIGUSR2, for the next router to take over
    #[arg(long)]
    pub keep: bool,
    /// Take the place of a router that is at work, with its devices and the packets that wait there
    #[arg(long, conflicts_with = "dry_run")]
    pub takeover: bool,
    /// Let Prometheus read metrics at this address; wins over the file
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
}
