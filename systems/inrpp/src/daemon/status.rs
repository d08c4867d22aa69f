//! What an operator sees of an INRPP router.

use serde::{Deserialize, Serialize};
use sidestep_hostd::{
    AgentError,
    control::{Protocol, Request},
    status::read_status,
};

/// The name by which the router of a network namespace is known: its socket, at which each connection asks for the end.
pub(super) const NAME: &str = "sidestep-inrpp";
/// What connections to [`NAME`] ask for.
pub(super) const PROTOCOL: Protocol = Protocol::Always(Request::Stop);
/// The name of the socket at which the status is given.
pub(super) const STATUS_NAME: &str = "sidestep-inrpp/status";

/// The state of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InrppStatus {
    /// Version of this format.
    pub schema: u32,
    /// What its hellos say.
    pub name: String,
    /// The number that follows from its name.
    pub id: u32,
    /// Whether nothing is diverted, and only neighbours are greeted.
    pub dry_run: bool,
    /// Whether packets are diverted now, or pass.
    pub mode: Mode,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// The ports.
    pub ports: Vec<PortStatus>,
    /// The TCP connections that pass.
    pub connections: ConnectionsStatus,
    /// The order that is restored.
    pub resequence: ResequenceStatus,
    /// Memory of packets that wait, and of connections.
    pub memory_bytes: u64,
    /// What is doubtful, in sentences.
    pub notes: Vec<String>,
}

/// Whether packets are diverted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The process forwards them.
    #[default]
    Divert,
    /// The kernel forwards them, as nothing waits.
    Pass,
}

/// An interface of the router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The interface.
    pub interface: String,
    /// Its TUN device.
    pub tun: String,
    /// What is at its other end.
    pub kind: PortKind,
    /// The neighbour's name.
    pub neighbour: Option<String>,
    /// How datagrams go to the neighbour: `udp [fd00::2]:7471`.
    pub link: Option<String>,
    /// How the neighbour is.
    pub state: PortState,
    /// The capacity that the router goes by; 0 for an edge without one.
    pub rate_mbps: f64,
    /// What waits.
    pub cache_bytes: u64,
    /// What may wait.
    pub cache_room: u64,
    /// The most that has waited.
    pub peak_bytes: u64,
    /// The core's state: `push`, `store-and-detour`, `backpressure`.
    pub pressing: String,
    /// Flows of which something waits.
    pub flows: u64,
    /// Packets that have waited.
    pub stored: u64,
    /// Packets that were sent around the link.
    pub detoured: u64,
    /// Packets of TCP that were dropped.
    pub dropped: u64,
    /// Packets of other protocols that were dropped.
    pub dropped_others: u64,
    /// Packets that the link, or the TUN device, did not take: the process came too late.
    pub lost: u64,
    /// Packets that were sent to the neighbour, or out of the edge.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that came from the neighbour.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// The detours around the link.
    pub detours: Vec<DetourStatus>,
    /// Datagrams that were not believed.
    pub refused: RefusedCounts,
    /// What the program at the interface did with packets.
    pub passed: PassedCounts,
}

/// What is at the other end of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// A router of INRPP.
    #[default]
    Neighbour,
    /// Hosts, or a network that knows nothing of INRPP.
    Edge,
}

/// How a port's neighbour is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// It sends hellos, and packets go to it.
    Alive,
    /// It sends none: the kernel forwards without it.
    #[default]
    Silent,
    /// It has said that it ends.
    Leaving,
    /// The kernel forwards what leaves here, as the port's interface is down or gone.
    Passing,
    /// There is none.
    Edge,
}

/// A detour around a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DetourStatus {
    /// The interface by which it begins.
    pub over: String,
    /// What it takes now.
    pub rate_mbps: f64,
}

/// Datagrams that were not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCounts {
    /// They are none of ours.
    pub malformed: u64,
    /// Their MAC is wrong.
    pub forged: u64,
    /// They came before, or too late.
    pub replayed: u64,
    /// They are of no session that both ends know.
    pub no_session: u64,
    /// They are of another router than the configuration has.
    pub unexpected: u64,
}

/// What the program at an interface did with packets. One that is to be cut into segments counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedCounts {
    /// Diverted to the process.
    pub diverted: u64,
    /// Passed, as the neighbour is silent.
    pub not_up: u64,
    /// Passed, as the process has given no sign of life for 100 ms.
    pub stale: u64,
    /// Passed, as there is no room for the shim.
    pub oversize: u64,
    /// Passed, as they are the router's own, or of protocols that are left alone.
    pub other: u64,
    /// Passed, as nothing waits (`idle = "pass"`).
    pub idle: u64,
}

/// The TCP connections that pass a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionsStatus {
    /// Those that are known now.
    pub tracked: u64,
    /// Those that found the table full, and wait with other protocols.
    pub refused: u64,
    /// Those that are older than the router, whose windows stay as they are.
    pub unscaled: u64,
    /// Subflows of MPTCP, which wait with other protocols.
    pub multipath: u64,
    /// ACKs whose window was lowered.
    pub clamped_acks: u64,
    /// ACKs that waited, as their windows cannot be read.
    pub spaced_acks: u64,
    /// ACKs of the router's own.
    pub window_updates: u64,
    /// SYNs whose MSS was lowered.
    pub mss_clamped: u64,
}

/// The order that is restored after detours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResequenceStatus {
    /// Packets that waited for those before them.
    pub restored: u64,
    /// Packets that waited in vain.
    pub timed_out: u64,
    /// Packets that left early for want of room.
    pub overflowed: u64,
}

/// What the router of the calling thread's network namespace reports of itself; `None` if there is none.
pub fn inrpp_status() -> Result<Option<InrppStatus>, AgentError> {
    read_status(STATUS_NAME)
}

impl Mode {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Divert => "divert",
            Mode::Pass => "pass",
        }
    }
}

impl PortState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            PortState::Alive => "alive",
            PortState::Silent => "silent",
            PortState::Leaving => "leaving",
            PortState::Passing => "passing",
            PortState::Edge => "edge",
        }
    }
}

impl RefusedCounts {
    /// Each count and its name.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        let RefusedCounts { malformed, forged, replayed, no_session, unexpected } = *self;
        [
            ("malformed", malformed),
            ("forged", forged),
            ("replayed", replayed),
            ("no_session", no_session),
            ("unexpected", unexpected),
        ]
    }
}

impl PassedCounts {
    /// Each count and its name.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        let PassedCounts { diverted, not_up, stale, oversize, other, idle } = *self;
        [
            ("diverted", diverted),
            ("not_up", not_up),
            ("stale", stale),
            ("oversize", oversize),
            ("other", other),
            ("idle", idle),
        ]
    }
}

impl InrppStatus {
    /// The status in a line, for the service manager.
    pub fn line(&self) -> String {
        let alive = self.ports.iter().filter(|port| port.state == PortState::Alive).count();
        let neighbours = self.ports.iter().filter(|port| port.kind == PortKind::Neighbour).count();
        let waiting: u64 = self.ports.iter().map(|port| port.cache_bytes).sum();
        let dry = if self.dry_run { ", dry run" } else { "" };
        let waits = if waiting > 0 { format!("; {waiting} B wait") } else { String::new() };
        format!("{alive} of {neighbours} neighbours alive{waits}; mode {}{dry}", self.mode.as_str())
    }
}

#[cfg(test)]
pub(crate) fn example() -> InrppStatus {
    let port = PortStatus {
        interface: "eth1".into(),
        tun: "inrpp-eth1".into(),
        neighbour: Some("r1".into()),
        link: Some("udp [fd00::2]:7471".into()),
        state: PortState::Alive,
        rate_mbps: 10.0,
        cache_bytes: 1_000,
        cache_room: 12_500_000,
        pressing: "backpressure".into(),
        detoured: 7,
        detours: vec![DetourStatus { over: "eth2".into(), rate_mbps: 4.5 }],
        refused: RefusedCounts { forged: 2, ..RefusedCounts::default() },
        passed: PassedCounts { diverted: 9, oversize: 1, ..PassedCounts::default() },
        ..PortStatus::default()
    };
    let edge = PortStatus {
        interface: "eth0".into(),
        kind: PortKind::Edge,
        state: PortState::Edge,
        pressing: "push".into(),
        ..PortStatus::default()
    };
    InrppStatus { schema: 1, name: "r0".into(), ports: vec![port, edge], ..InrppStatus::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let status = example();
        let text = sidestep_hostd::status::to_json(&status).unwrap();
        assert_eq!(serde_json::from_str::<InrppStatus>(&text).unwrap(), status);
        for word in [r#""mode":"divert""#, r#""kind":"neighbour""#, r#""state":"alive""#, r#""state":"edge""#] {
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(status.line(), "1 of 1 neighbours alive; 1000 B wait; mode divert");
    }
}
