//! The signals that a sender reports to its driver.

/// The result of an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Segments newly acknowledged in order.
    pub segments: u32,
    /// Segments newly known to have arrived.
    pub delivered: u32,
    /// For how many of them the MPTCP connection may grow the window of [`Algorithm::Coupled`](super::Algorithm::Coupled).
    pub in_avoidance: u32,
    /// The other events of this ACK.
    pub signals: Signals,
}

/// The events of a connection, for drivers and path controls that react to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The events as bits, the constants of this type; other transports set them as well.
    pub bits: u16,
}

impl Signals {
    /// A round trip has ended.
    pub const ROUND: u16 = 1;
    /// The retransmission timer fired.
    pub const TIMEOUT: u16 = 2;
    /// The SYN was sent again.
    pub const SYN_TIMEOUT: u16 = 4;
    /// A loss was found, and the window reduced.
    pub const RECOVERY: u16 = 8;
    /// The last segment was acknowledged, or the connection given up.
    pub const FINISHED: u16 = 16;
    /// The window was reduced for a mark.
    pub const REDUCED: u16 = 32;
    /// The SYN was answered.
    pub const ESTABLISHED: u16 = 64;
    /// A tail loss probe was sent (RFC 8985, section 7).
    pub const PROBE: u16 = 128;
    /// The algorithm has set the slow-start threshold for a loss or a mark: once for all losses and timeouts of a window.
    pub const SHRUNK: u16 = 256;
    /// That was taken back, as nothing was lost.
    pub const UNDONE: u16 = 512;

    /// Whether there is any event for a driver; what was [shrunk](Self::shrunk) or [undone](Self::undone) is for the MPTCP
    /// connection.
    #[inline]
    pub fn any(self) -> bool {
        self.bits as u8 != 0
    }

    /// A round trip has ended.
    #[inline]
    pub fn round_ended(self) -> bool {
        self.bits & Self::ROUND != 0
    }

    /// The retransmission timer fired.
    pub fn timeout(self) -> bool {
        self.bits & Self::TIMEOUT != 0
    }

    /// The SYN was sent again.
    pub fn syn_timeout(self) -> bool {
        self.bits & Self::SYN_TIMEOUT != 0
    }

    /// A loss was found, and the window reduced.
    pub fn entered_recovery(self) -> bool {
        self.bits & Self::RECOVERY != 0
    }

    /// The window was reduced for a mark.
    pub fn reduced(self) -> bool {
        self.bits & Self::REDUCED != 0
    }

    /// The algorithm has set the slow-start threshold for a loss or a mark.
    #[inline]
    pub fn shrunk(self) -> bool {
        self.bits & Self::SHRUNK != 0
    }

    /// What was [shrunk](Self::shrunk) last was taken back.
    #[inline]
    pub fn undone(self) -> bool {
        self.bits & Self::UNDONE != 0
    }

    /// The SYN was answered.
    pub fn established(self) -> bool {
        self.bits & Self::ESTABLISHED != 0
    }

    /// The last segment was acknowledged, or the connection given up.
    pub fn finished(self) -> bool {
        self.bits & Self::FINISHED != 0
    }
}
