//! What happened to a connection, counted as the kernel counts it.

/// Events of a half of a connection under [`Profile::Linux`](super::Profile::Linux), by the names in `/proc/net/netstat`: a receiver
/// counts `acks_compressed` and the `timeouts` of its SYN-ACK, a sender all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `TCPTimeouts`: the retransmission timer fired, or that of the SYN or SYN-ACK (`tcp_syn_ack_timeout`).
    pub timeouts: u32,
    /// `TCPLossProbes`: tail loss probes.
    pub loss_probes: u32,
    /// `TCPLossProbeRecovery`: losses that a probe repaired.
    pub loss_probe_recovery: u32,
    /// `TCPSackRecovery`: recoveries.
    pub sack_recovery: u32,
    /// `TCPLostRetransmit`: retransmissions that were lost.
    pub lost_retransmits: u32,
    /// `TCPHystartTrainDetect`: slow starts that a train of ACKs ended.
    pub hystart_train: u32,
    /// `TCPHystartDelayDetect`: slow starts that longer round trips ended.
    pub hystart_delay: u32,
    /// `TCPSpuriousRTOs`: timeouts that F-RTO found to be spurious.
    pub spurious_timeouts: u32,
    /// `TCPFullUndo`: recoveries that were spurious, known at their end.
    pub full_undo: u32,
    /// `TCPPartialUndo`: recoveries that were spurious, known before their end.
    pub partial_undo: u32,
    /// `TCPDSACKUndo`: reductions that D-SACK took back.
    pub dsack_undo: u32,
    /// `TCPLossUndo`: timeouts that were spurious.
    pub loss_undo: u32,
    /// `TCPDSACKRecv`: segments that the receiver reported it had already.
    pub dsack_received: u32,
    /// `TCPDeliveredCE`: segments whose ACK echoed a mark.
    pub delivered_ce: u32,
    /// `TCPAckCompressed`: ACKs of a gap that were not sent, as a later one reported what they would have reported.
    pub acks_compressed: u32,
}

macro_rules! names {
    ($($field:ident $name:literal)*) => {
        impl Counters {
            /// Each counter with the kernel's name for it.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u32)> {
                [$(($name, self.$field)),*].into_iter()
            }

            /// Adds another connection's.
            pub fn add(&mut self, other: &Counters) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

names! {
    timeouts "TCPTimeouts"
    loss_probes "TCPLossProbes"
    loss_probe_recovery "TCPLossProbeRecovery"
    sack_recovery "TCPSackRecovery"
    lost_retransmits "TCPLostRetransmit"
    hystart_train "TCPHystartTrainDetect"
    hystart_delay "TCPHystartDelayDetect"
    spurious_timeouts "TCPSpuriousRTOs"
    full_undo "TCPFullUndo"
    partial_undo "TCPPartialUndo"
    dsack_undo "TCPDSACKUndo"
    loss_undo "TCPLossUndo"
    dsack_received "TCPDSACKRecv"
    delivered_ce "TCPDeliveredCE"
    acks_compressed "TCPAckCompressed"
}
