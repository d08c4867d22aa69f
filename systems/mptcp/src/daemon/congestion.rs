//! Coupled congestion control for the host's MPTCP connections: what of it is asked for, and the hold on the kernel.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};
use sidestep_coupled::{Algorithm, Path, alpha};
use sidestep_hostd::AgentError;
use sidestep_linux::{
    bpf::{
        congestion_control::{CongestionControl, Counts, Wanted},
        coupled::Registration,
    },
    cgroup,
    netns::NetNsId,
};

use super::{connection::Connection, manager::Manager};

/// Which congestion control new connections of MPTCP get.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct CongestionConfig {
    /// How the windows of subflows are coupled.
    pub algorithm: Choice,
    /// The control group whose connections get it; `None`: the root, which holds all.
    pub cgroup: Option<PathBuf>,
}

/// An algorithm, or none.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Subflows have the host's congestion control, each for itself.
    #[default]
    Off,
    /// LIA (RFC 6356).
    Lia,
    /// OLIA.
    Olia,
    /// BALIA.
    Balia,
}

impl Choice {
    /// The algorithm; `None`: none.
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            Choice::Off => None,
            Choice::Lia => Some(Algorithm::Lia),
            Choice::Olia => Some(Algorithm::Olia),
            Choice::Balia => Some(Algorithm::Balia),
        }
    }
}

impl FromStr for Choice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Choice::Off, Choice::Lia, Choice::Olia, Choice::Balia];
        let found = all.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is none of off, lia, olia and balia"))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm().map_or("off", Algorithm::as_str))
    }
}

/// What an operator sees of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CongestionStatus {
    /// What new connections get; `None`: what the host has.
    pub algorithm: Option<Algorithm>,
    /// The control group whose connections get it.
    pub cgroup: Option<PathBuf>,
    /// Subflows that got it so far.
    pub given: u64,
    /// Subflows of connections whose program has chosen another.
    pub chosen: u64,
    /// Connections that fell back to TCP, and keep the host's.
    pub fallbacks: u64,
    /// Subflows for which the kernel refused it.
    pub refused: u64,
}

/// The coupled subflows of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoupledStatus {
    /// How they are coupled; subflows that changed their congestion control are not counted.
    pub algorithm: Algorithm,
    /// LIA's α of all of the connection's subflows (RFC 6356): a TCP on the best path is 1.
    pub alpha: Option<f64>,
    /// Each of the connection's subflows.
    pub subflows: Vec<WindowStatus>,
}

/// The window of a subflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WindowStatus {
    /// This end.
    pub local: std::net::SocketAddr,
    /// The other end.
    pub remote: std::net::SocketAddr,
    /// Congestion window in bytes.
    pub window: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Bytes that the other end acknowledged.
    pub acked: u64,
}

/// The hold on the kernel: while it lives, new connections get the algorithm.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    config: CongestionConfig,
    held: Option<Held>,
    /// What earlier holds counted.
    before: Counts,
}

#[derive(Debug)]
struct Held {
    // In this order: nothing is given any more when the registration ends.
    control: CongestionControl,
    _registration: Registration,
    cgroup: PathBuf,
}

impl Congestion {
    /// Has new connections of the calling thread's network namespace get what the configuration asks for. After an error all is as
    /// before.
    pub(super) fn apply(&mut self, config: &CongestionConfig, dry_run: bool) -> Result<(), AgentError> {
        if *config == self.config && self.held.is_some() == config.algorithm.algorithm().is_some() {
            return Ok(());
        }
        let held = match config.algorithm.algorithm() {
            Some(algorithm) if dry_run => {
                tracing::info!(%algorithm, "would couple new connections");
                None
            }
            Some(algorithm) => Some(hold(algorithm, config)?),
            None => None,
        };
        self.before = self.counts();
        self.held = held;
        self.config = config.clone();
        match &self.held {
            Some(held) => {
                tracing::info!(algorithm = %config.algorithm, cgroup = %held.cgroup.display(), "couples new connections");
            }
            None if !dry_run => tracing::info!("new connections have the host's congestion control"),
            None => {}
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let now = self.held.as_ref().and_then(|held| held.control.counts().ok()).unwrap_or_default();
        Counts {
            refused: self.before.refused + now.refused,
            coupled: self.before.coupled + now.coupled,
            chosen: self.before.chosen + now.chosen,
            fallback: self.before.fallback + now.fallback,
        }
    }

    /// What became of connections so far.
    pub(super) fn status(&self) -> CongestionStatus {
        let counts = self.counts();
        CongestionStatus {
            algorithm: self.config.algorithm.algorithm(),
            cgroup: self.held.as_ref().map(|held| held.cgroup.clone()),
            given: counts.coupled,
            chosen: counts.chosen,
            fallbacks: counts.fallback,
            refused: counts.refused,
        }
    }
}

fn hold(algorithm: Algorithm, config: &CongestionConfig) -> Result<Held, AgentError> {
    let cgroup = cgroup::find(config.cgroup.as_deref())?;
    let registration = Registration::new(algorithm)?;
    if let Some(caveat) = registration.caveat() {
        tracing::warn!(%algorithm, "{caveat}");
    }
    let namespace = Some(NetNsId::current()?.cookie);
    let wanted = Wanted { mptcp: Some(algorithm.as_str()), namespace, tcp: None };
    Ok(Held { control: CongestionControl::attach(&cgroup, wanted)?, _registration: registration, cgroup })
}

impl Connection {
    /// Its subflows, if some of them are coupled.
    pub(super) fn coupled(&self) -> Option<CoupledStatus> {
        let algorithm = self.subflows.values().find_map(|subflow| subflow.window.coupling)?;
        Some(CoupledStatus {
            algorithm,
            alpha: self.alpha(),
            subflows: self
                .subflows
                .iter()
                .map(|(ends, subflow)| WindowStatus {
                    local: ends.local,
                    remote: ends.remote,
                    window: subflow.window.path.window,
                    rtt_us: subflow.window.path.rtt,
                    acked: subflow.window.acked,
                })
                .collect(),
        })
    }

    fn alpha(&self) -> Option<f64> {
        let paths: Vec<Path> = self.subflows.values().map(|subflow| subflow.window.path).collect();
        alpha(&paths)
    }
}

/// What the coupled subflows of all connections come to, by algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Coupled {
    /// Subflows.
    pub(super) subflows: u32,
    /// Their windows in bytes.
    pub(super) windows: u64,
    /// Bytes acknowledged on those that exist.
    pub(super) acked: u64,
    /// Sum of the connections' α, and how many have one.
    pub(super) alphas: (f64, u32),
}

impl Coupled {
    /// That of an algorithm now.
    pub(super) fn of(manager: &Manager, algorithm: Algorithm) -> Self {
        let mut sum = Coupled::default();
        for (_, connection, _) in manager.connections() {
            let mut own = connection.subflows.values().filter(|one| one.window.coupling == Some(algorithm)).peekable();
            if own.peek().is_none() {
                continue;
            }
            for subflow in own {
                sum.subflows += 1;
                sum.windows += subflow.window.path.window;
                sum.acked += subflow.window.acked;
            }
            if let Some(alpha) = connection.alpha() {
                sum.alphas = (sum.alphas.0 + alpha, sum.alphas.1 + 1);
            }
        }
        sum
    }

    /// The mean of the connections' α; 0 where there are none.
    pub(super) fn alpha(&self) -> f64 {
        if self.alphas.1 == 0 { 0.0 } else { self.alphas.0 / f64::from(self.alphas.1) }
    }
}
