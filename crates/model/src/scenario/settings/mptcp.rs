//! MPTCP's settings.

use serde::{Deserialize, Serialize};

use super::SettingsTable;
use crate::{
    Bytes,
    scenario::{KnobError, PathKnobs, knobs::ensure},
};

/// MPTCP's settings on every host; a system's own parameters override them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MptcpKnobs {
    /// Which subflows a connection has.
    pub path_manager: PathManager,
    /// How many subflows `ndiffports` opens, 1 to 64.
    pub subflows: u32,
    /// Which subflow gets the next segment.
    pub scheduler: Scheduler,
    /// How the subflows' windows are coupled.
    pub congestion_control: Coupling,
    /// What the receiver has room for, on the connection's level.
    pub receive_buffer: Bytes,
}

/// Which subflows an MPTCP connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathManager {
    /// Several between one pair of addresses, on different ports.
    Ndiffports,
    /// One between each pair of interfaces.
    Fullmesh,
}

/// Which MPTCP subflow gets the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The one with the shortest round-trip time.
    MinRtt,
    /// One after the other.
    RoundRobin,
    /// All: each segment goes over every subflow.
    Redundant,
}

/// How the windows of MPTCP subflows are coupled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// LIA (RFC 6356).
    Lia,
    /// OLIA (draft-khalili-mptcp-congestion-control).
    Olia,
    /// BALIA (draft-walid-mptcp-congestion-control).
    Balia,
    /// No coupling: each subflow is NewReno by itself.
    Reno,
}

impl Default for MptcpKnobs {
    fn default() -> Self {
        MptcpKnobs {
            path_manager: PathManager::Ndiffports,
            subflows: 8,
            scheduler: Scheduler::MinRtt,
            congestion_control: Coupling::Lia,
            receive_buffer: Bytes::new(16_000_000),
        }
    }
}

impl SettingsTable for MptcpKnobs {
    fn check_table(&self, _: &PathKnobs) -> Result<(), KnobError> {
        ensure((1..=64).contains(&self.subflows), "subflows", "must be between 1 and 64")?;
        let buffer = Bytes::new(2 * 60_000)..=Bytes::new(100_000_000_000);
        ensure(buffer.contains(&self.receive_buffer), "receive_buffer", "must be between 120 kB and 100 GB")
    }
}
