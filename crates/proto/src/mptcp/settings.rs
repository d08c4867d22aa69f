//! MPTCP's settings.

use serde::{Deserialize, Serialize};

use sidestep_net::{Bytes, SettingError, SettingsTable, Span, settings::ensure};

/// MPTCP's settings on every host; a system's own parameters override them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MptcpSettings {
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
    /// From the moment at which a connection is fully established until its path manager opens the second subflow.
    pub join_delay: Span,
    /// From the opening of one further subflow to that of the next.
    pub join_interval: Span,
    /// How hosts choose the source ports of subflows.
    pub source_ports: SourcePorts,
    /// How many retransmission timeouts in a row make a subflow stale, 1 to 15: it gets no data until an ACK arrives, and what
    /// it holds is sent over others.
    pub stale_after: u32,
    /// Whether the segment that blocks the receiver's window is sent over the fastest subflow with room, too.
    pub opportunistic_retransmission: bool,
    /// Whether the window of a slow subflow that blocks the receiver's window is halved, at most once in a round trip.
    pub penalisation: bool,
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
    /// One after the other; `roundrobin` in the former MPTCP Linux and SEMPER's paper.
    #[serde(alias = "roundrobin")]
    RoundRobin,
    /// All: each segment goes over every subflow.
    Redundant,
    /// Mainline Linux's: the one whose queue lasts the shortest time at its pacing rate.
    Linux,
}

/// How a host chooses the source ports of an MPTCP connection's subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourcePorts {
    /// Each at random.
    Random,
    /// The first at random, the others counting up from it.
    Consecutive,
    /// As Linux 6.x: the first subflow has an even one, the others have odd ones at random.
    Linux,
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
    /// No coupling: each subflow is CUBIC by itself, as with mainline Linux.
    Cubic,
}

impl Coupling {
    /// Its name in scenarios, and the kernel's for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Coupling::Lia => "lia",
            Coupling::Olia => "olia",
            Coupling::Balia => "balia",
            Coupling::Reno => "reno",
            Coupling::Cubic => "cubic",
        }
    }
}

impl Default for MptcpSettings {
    fn default() -> Self {
        MptcpSettings {
            path_manager: PathManager::Ndiffports,
            subflows: 8,
            scheduler: Scheduler::MinRtt,
            congestion_control: Coupling::Lia,
            receive_buffer: Bytes::new(16_000_000),
            join_delay: Span::ZERO,
            join_interval: Span::from_micros(100),
            source_ports: SourcePorts::Random,
            stale_after: 1,
            opportunistic_retransmission: false,
            penalisation: false,
        }
    }
}

impl SettingsTable for MptcpSettings {
    fn check(&self) -> Result<(), SettingError> {
        ensure((1..=64).contains(&self.subflows), "subflows", "must be between 1 and 64")?;
        let buffer = Bytes::new(2 * 60_000)..=Bytes::new(100_000_000_000);
        ensure(buffer.contains(&self.receive_buffer), "receive_buffer", "must be between 120 kB and 100 GB")?;
        ensure((1..=15).contains(&self.stale_after), "stale_after", "must be between 1 and 15")
    }
}
