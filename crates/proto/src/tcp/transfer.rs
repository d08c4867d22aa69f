//! What both machines of a sender keep: what is supplied, sent and acknowledged, and how far the connection is.

use sidestep_net::Time;

use crate::packet::{Flags, Kind};

/// How far a connection is with sending its segments.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    /// The first segment not acknowledged, and the first not sent.
    pub(super) una: u32,
    pub(super) next: u32,
    /// Segments below it have been supplied.
    pub(super) supplied: u32,
    /// Segments below it fit the receiver's window.
    pub(super) window_end: u32,
    pub(super) last_sent: Time,
    /// The round ends when this segment is acknowledged.
    pub(super) round_end: u32,
    /// Recovery, and the pause of growth after a mark, end when this segment is acknowledged.
    pub(super) recover: u32,
    pub(super) delivered: u32,
    pub(super) delivered_ce: u32,
    pub(super) retransmits: u32,
    pub(super) stage: Stage,
    /// Timeouts in a row.
    pub(super) backoff: u8,
    /// SYNs beyond those that the configuration has sent.
    pub(super) more_syn_retries: u8,
    pub(super) flags: u8,
}

/// How far a connection is. What it does about losses once it is established, its machine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not opened.
    Closed,
    /// The SYN is sent, and not answered.
    SynSent,
    /// The SYN was answered.
    Established,
    /// The last segment was acknowledged.
    Finished,
    /// The SYN was never answered.
    Failed,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not opened.
    Closed,
    /// The SYN is sent, and not answered.
    SynSent,
    /// No loss is known.
    Open,
    /// The window was reduced for a mark, and does not grow until a round trip later.
    Reduced,
    /// Lost segments are retransmitted.
    Recovery,
    /// The retransmission timer fired.
    Loss,
    /// The last segment was acknowledged.
    Finished,
    /// The SYN was never answered.
    Failed,
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its number.
    pub seq: u32,
    /// The kind of packet: a SYN or data.
    pub kind: Kind,
    /// Its marks.
    pub flags: Flags,
}

/// The meaning of the bits of [`Transfer::flags`].
pub(super) mod flag {
    /// ECN was negotiated.
    pub(in crate::tcp) const ECN: u8 = 1;
    /// The next new segment reports that the window was reduced.
    pub(in crate::tcp) const CWR: u8 = 2;
    /// The last supplied segment is the last of the connection.
    pub(in crate::tcp) const FIN: u8 = 4;
    /// A SYN, or the first segment of a recovery, must be sent whatever the window.
    pub(in crate::tcp) const FORCED: u8 = 8;
    /// What has no data or is sent again is ECN-capable too.
    pub(in crate::tcp) const ALL_ECT: u8 = 16;
}

impl Transfer {
    /// Of a connection that is not open yet, whose receiver has room for this many segments.
    pub(super) fn new(receive_window: u32) -> Self {
        Transfer {
            una: 0,
            next: 0,
            supplied: 0,
            window_end: receive_window,
            last_sent: Time::ZERO,
            round_end: 0,
            recover: 0,
            delivered: 0,
            delivered_ce: 0,
            retransmits: 0,
            stage: Stage::Closed,
            backoff: 0,
            more_syn_retries: 0,
            flags: 0,
        }
    }

    /// Segments sent and not acknowledged.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    /// Whether the receiver's window allows a new segment.
    #[inline]
    pub(super) fn has_new(&self) -> bool {
        self.next < self.supplied && self.next < self.window_end
    }

    /// Whether the last segment of the connection is acknowledged.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.una == self.supplied && self.flags & flag::FIN != 0
    }

    /// Whether nothing is sent any more.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Finished | Stage::Failed)
    }

    /// Whether an ACK echoes a mark.
    #[inline]
    pub(super) fn is_marked(&self, flags: Flags) -> bool {
        flags.has(Flags::ECE) && self.flags & flag::ECN != 0
    }

    /// The next new segment reports that the window was reduced (`tcp_ecn_queue_cwr`). RFC 3168 §6.1.2: on none that is
    /// sent again, as the loss of a new one reduces the window and is reported again.
    pub(super) fn announce_reduction(&mut self) {
        if self.flags & flag::ECN != 0 {
            self.flags |= flag::CWR;
        }
    }

    /// Sends the next new segment.
    #[inline(always)]
    pub(super) fn send_new(&mut self, now: Time) -> Transmit {
        let seq = self.next;
        self.next += 1;
        self.last_sent = now;
        let mut flags = Flags::when(self.flags & flag::ECN != 0, Flags::ECT);
        if self.flags & (flag::CWR | flag::FIN) != 0 {
            flags = flags.with(Flags::when(self.flags & flag::CWR != 0, Flags::CWR));
            let last = self.flags & flag::FIN != 0 && self.next == self.supplied;
            flags = flags.with(Flags::when(last, Flags::FIN));
            self.flags &= !flag::CWR;
        }
        Transmit { seq, kind: Kind::Data, flags }
    }

    /// Sends a segment again.
    pub(super) fn send_again(&mut self, now: Time, seq: u32) -> Transmit {
        self.retransmits += 1;
        self.last_sent = now;
        let last = self.flags & flag::FIN != 0 && seq + 1 == self.supplied;
        let flags = Flags::RETRANSMIT.with(Flags::when(last, Flags::FIN));
        Transmit { seq, kind: Kind::Data, flags: flags.with(self.beside_data()) }
    }

    /// Whether what is no new data is ECN-capable: not by RFC 3168 (sections 6.1.4 and 6.1.5), unless the algorithm needs it.
    #[inline]
    pub(super) fn beside_data(&self) -> Flags {
        Flags::when(self.flags & flag::ALL_ECT != 0, Flags::ECT)
    }
}
