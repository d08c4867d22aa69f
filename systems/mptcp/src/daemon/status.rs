//! What an operator sees of the path manager.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};
use sidestep_linux::mptcp::ManagerSetting;

use super::{
    addresses::AddressStatus,
    config::Mode,
    congestion::{CongestionStatus, CoupledStatus},
    manager::Manager,
};

/// The path manager at one instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MptcpPmStatus {
    /// The version of this form.
    pub schema: u32,
    /// Whether nothing is done in truth.
    pub dry_run: bool,
    /// Who manages the paths of new connections: the sysctl below `net.mptcp`, and its value.
    pub setting: String,
    /// Subflows of all managed connections.
    pub subflows: u32,
    /// How often each limit began to keep a connection from more subflows.
    pub limits_reached: BTreeMap<String, u64>,
    /// Refusals of the kernel, by their meaning.
    pub refusals: BTreeMap<String, u64>,
    /// Times that events of the kernel were lost.
    pub overflows: u64,
    /// Connections left alone because there were too many.
    pub unmanaged: u64,
    /// Addresses of which the other end of a connection was notified that they are gone.
    #[serde(default)]
    pub withdrawn: u64,
    /// The congestion control of new connections.
    #[serde(default)]
    pub congestion: CongestionStatus,
    /// The host's addresses, and why subflows between all pairs do not begin from some.
    #[serde(default)]
    pub addresses: Vec<AddressStatus>,
    /// The managed connections.
    pub connections: Vec<ConnectionStatus>,
}

/// A connection at one instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// The kernel's name for it.
    pub token: u32,
    /// This end of its first subflow.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whether the other end opened it.
    pub accepted: bool,
    /// Between which addresses it gets subflows.
    pub mode: Option<Mode>,
    /// How many subflows it should have; those that it has where the other end opens them.
    pub wanted: u32,
    /// How many are established.
    pub subflows: u32,
    /// How many are in progress.
    pub joining: u32,
    /// What keeps it from more.
    pub waits_for: Option<String>,
    /// Its windows, if they are coupled.
    #[serde(default)]
    pub coupled: Option<CoupledStatus>,
}

impl MptcpPmStatus {
    /// That of a manager under this setting.
    pub(super) fn new(
        manager: &Manager,
        setting: &ManagerSetting,
        addresses: Vec<AddressStatus>,
        congestion: CongestionStatus,
        dry_run: bool,
    ) -> Self {
        let counters = manager.counters();
        let reached = counters.limited.iter().map(|(limit, n)| (limit.as_str().to_string(), *n));
        let refusals = counters.refusals.iter().map(|(kind, n)| (kind.as_str().to_string(), *n));
        let connections = manager.connections().map(|(token, connection, rule)| {
            let opened_here = !connection.first.accepted;
            let waits_for = if connection.is_kernels {
                Some("kernel's path manager".to_string())
            } else if opened_here && connection.established.is_none() {
                Some("establishment".to_string())
            } else if opened_here && connection.first.denies_first_address && connection.announced.is_empty() {
                Some("an announced address".to_string())
            } else if opened_here && rule.is_some_and(|rule| connection.bytes < rule.after.get()) {
                Some("bytes".to_string())
            } else {
                connection.limited.map(|limit| format!("limit: {}", limit.as_str()))
            };
            ConnectionStatus {
                token: token.0,
                local: connection.first.ends.local,
                remote: connection.first.ends.remote,
                accepted: !opened_here,
                mode: rule.filter(|_| opened_here).map(|rule| rule.mode),
                wanted: match rule.filter(|rule| opened_here && rule.mode == Mode::Ndiffports) {
                    Some(rule) => rule.count,
                    None => connection.ready(),
                },
                subflows: connection.ready(),
                joining: connection.joining(),
                waits_for,
                coupled: connection.coupled(),
            }
        });
        MptcpPmStatus {
            schema: 1,
            dry_run,
            setting: format!("{}={}", setting.sysctl, setting.value),
            subflows: manager.subflows(),
            limits_reached: reached.collect(),
            refusals: refusals.collect(),
            overflows: counters.overflows,
            unmanaged: counters.unmanaged,
            withdrawn: counters.withdrawn,
            congestion,
            addresses,
            connections: connections.collect(),
        }
    }
}
