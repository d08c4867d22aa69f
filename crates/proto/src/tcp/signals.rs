//! The signals that a sender reports to its driver.

/// The result of an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Segments newly acknowledged in order.
    pub segments: u32,
    /// Segments newly known to have arrived.
    pub delivered: u32,
    /// Whether [`Algorithm::Coupled`](super::Algorithm::Coupled) may grow the window for them.
    pub in_avoidance: bool,
    /// The other events of this ACK.
    pub signals: Signals,
}

/// The events of a connection, for drivers and path controls that react to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The events as bits, the constants of this type; other transports set them as well.
    pub bits: u8,
}

impl Signals {
    /// A round trip has ended.
    pub const ROUND: u8 = 1;
    /// The retransmission timer fired.
    pub const TIMEOUT: u8 = 2;
    /// The SYN was sent again.
    pub const SYN_TIMEOUT: u8 = 4;
    /// A loss was found, and the window reduced.
    pub const RECOVERY: u8 = 8;
    /// The last segment was acknowledged, or the connection given up.
    pub const FINISHED: u8 = 16;
    /// The window was reduced for a mark.
    pub const REDUCED: u8 = 32;
    /// The SYN was answered.
    pub const ESTABLISHED: u8 = 64;
    /// A tail loss probe was sent (RFC 8985, section 7).
    pub const PROBE: u8 = 128;

    /// Whether there is any event.
    #[inline]
    pub fn any(self) -> bool {
        self.bits != 0
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

    /// The SYN was answered.
    pub fn established(self) -> bool {
        self.bits & Self::ESTABLISHED != 0
    }

    /// The last segment was acknowledged, or the connection given up.
    pub fn finished(self) -> bool {
        self.bits & Self::FINISHED != 0
    }
}
