//! `sidestep reflector`.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use sidestep_command::{Outcome, announce, run_daemon, stopped_or_relieved};
use sidestep_net::Span;

use crate::reflector::{ReflectorConfig, ReflectorOptions, StampClock, run_reflector};

/// Answer the probes of edges: a session reflector of STAMP (RFC 8762)
#[derive(Debug, Args)]
pub struct ReflectorArgs {
    /// Where to listen; repeat for several [default: UDP port 862 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Most packets in a second that one source gets answers to: an IPv4 address, or a /64 of IPv6
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Most sessions that are counted at once; those that sent nothing for longest are forgotten
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub sessions: u32,
    /// How long a session is remembered that sends nothing
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub expiry: Span,
    /// How times are written
    #[arg(long, value_name = "CLOCK", default_value = "ntp")]
    pub clock: ClockName,
    /// Report to senders that this machine's clock is synchronised to UTC
    #[arg(long)]
    pub synchronised: bool,
    /// Let Prometheus read metrics at this address [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = sidestep_hostd::read_address)]
    pub metrics: Option<SocketAddr>,
}

/// A format of timestamps.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ClockName {
    /// NTP's 64 bits: what the standard has by default
    Ntp,
    /// PTP's truncated 64 bits
    Ptp,
}

/// Runs `sidestep reflector`.
pub(super) fn run(args: ReflectorArgs) -> Outcome {
    let config = ReflectorConfig {
        clock: match args.clock {
            ClockName::Ntp => StampClock::Ntp,
            ClockName::Ptp => StampClock::Ptp,
        },
        synchronised: args.synchronised,
        sessions: args.sessions as usize,
        expiry: args.expiry,
        rate: args.rate,
    };
    let options = ReflectorOptions { listen: args.listen, config, metrics: args.metrics };
    run_daemon(async || run_reflector(options, announce, stopped_or_relieved()).await)
}
