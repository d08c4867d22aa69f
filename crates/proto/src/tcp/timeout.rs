//! What timeouts are for.

/// Which timer of a [`Sender`](super::Sender) is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderTimeout {
    /// The SYN was not answered.
    Syn,
    /// The first segment not acknowledged is taken for lost (RFC 6298).
    Retransmission,
    /// Nothing was received for two round trips: a tail loss probe is due (RFC 8985, section 7.2). Behind the last
    /// segments of a transfer none follow whose ACKs would report their loss.
    LossProbe,
    /// Segments that may be reordered were waited for long enough (RFC 8985, section 6.2).
    Reordering,
}

/// Which timer of a [`Receiver`](super::Receiver) is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverTimeout {
    /// An ACK was delayed for long enough (RFC 5681, section 4.2).
    DelayedAck,
    /// ACKs that reported a gap were held back for long enough, and go as one (Linux's `tcp_compressed_ack_kick`).
    CompressedAck,
    /// The SYN-ACK was not answered (Linux's `reqsk_timer_handler`).
    SynAck,
}

impl SenderTimeout {
    /// The name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            SenderTimeout::Syn => "syn",
            SenderTimeout::Retransmission => "retransmission",
            SenderTimeout::LossProbe => "loss_probe",
            SenderTimeout::Reordering => "reordering",
        }
    }
}

impl ReceiverTimeout {
    /// The name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            ReceiverTimeout::DelayedAck => "delayed_ack",
            ReceiverTimeout::CompressedAck => "compressed_ack",
            ReceiverTimeout::SynAck => "syn_ack",
        }
    }
}
