//! SEMPER's settings: its edge routers, and the MPTCP of its hosts.

use serde::{Deserialize, Serialize};
use sidestep_balance::BalanceMode;

use sidestep_net::{Bytes, SettingError, SettingsTable, Span, settings::ensure};
use sidestep_proto::mptcp::{Coupling, MptcpSettings, PathManager, Scheduler, SourcePorts};

/// SEMPER's settings on edge routers and hosts; a system's own parameters override them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SemperSettings {
    /// How the edge chooses a path by a subflow's hash.
    pub mode: BalanceMode,
    /// Whether the edge leaves out paths whose first link has no carrier; else it is blind to failures.
    pub aware: bool,
    /// How many subflows a connection has, 1 to 64.
    pub subflows: u32,
    /// Which subflow gets the next segment.
    pub scheduler: Scheduler,
    /// How the subflows' windows are coupled.
    pub congestion_control: Coupling,
    /// How hosts choose the source ports of subflows.
    pub source_ports: SourcePorts,
    /// What the receiver has room for, on the connection's level.
    pub receive_buffer: Bytes,
    /// The most subflows in the table of a stateful edge, 1 to 16,777,216.
    pub table: u32,
    /// A subflow leaves that table when nothing of it was seen for this time.
    pub idle: Span,
}

/// What the paper's hosts and edges have.
impl Default for SemperSettings {
    fn default() -> Self {
        SemperSettings {
            mode: BalanceMode::Modulo,
            aware: true,
            subflows: 32,
            scheduler: Scheduler::MinRtt,
            congestion_control: Coupling::Olia,
            source_ports: SourcePorts::Random,
            receive_buffer: Bytes::new(16_000_000),
            table: 65_536,
            idle: Span::from_secs(300),
        }
    }
}

impl SemperSettings {
    /// The settings of the hosts' MPTCP: these, and those of `[mptcp]` that SEMPER does not name.
    pub fn mptcp(&self, base: &MptcpSettings) -> MptcpSettings {
        MptcpSettings {
            path_manager: PathManager::Ndiffports,
            subflows: self.subflows,
            scheduler: self.scheduler,
            congestion_control: self.congestion_control,
            source_ports: self.source_ports,
            receive_buffer: self.receive_buffer,
            ..*base
        }
    }
}

impl SettingsTable for SemperSettings {
    fn check(&self) -> Result<(), SettingError> {
        self.mptcp(&MptcpSettings::default()).check()?;
        ensure((1..=1 << 24).contains(&self.table), "table", "must be between 1 and 16777216")?;
        ensure(self.idle >= Span::from_secs(1), "idle", "must be at least 1 s")
    }
}
