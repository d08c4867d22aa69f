//! The packet that the simulator carries: one cache line, for every protocol.

use sidestep_net::MaybeTime;

/// A simulated packet; its [`Kind`] decides which fields mean something.
///
/// Sequence numbers count segments from 0, not bytes: all segments of a connection carry the same payload, except those
/// that end a message.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Data: when it was sent. ACK: the time that is echoed (RFC 7323), if one is.
    pub sent: MaybeTime,
    /// Which flow it belongs to: a TCP connection, a subflow of MPTCP, or a flow of another protocol.
    pub flow: u32,
    /// For the engine: where its route continues after a detour; 0: it is on its route.
    pub cursor: u32,
    /// Data: its segment's number. ACK: the number of the first segment not received yet.
    pub seq: u32,
    /// MPTCP, on the connection's level: data: the segment's number. ACK: the first not received yet. TCP's data on a
    /// connection that carries data both ways: the first segment of the other direction not received yet.
    pub data_seq: u32,
    /// ACK: the segments that the receiver has room for, from `seq` (TCP) or `data_seq` (MPTCP) on. TCP's data on a connection
    /// that carries data both ways: likewise, from `data_seq` on.
    pub window: u32,
    /// Rate feedback from routers: the lowest rate that one on the path offers, or its echo, in kbit/s.
    pub rate: u32,
    /// For routers that give rate feedback: the sender's estimate of the round-trip time, in microseconds; zero for none.
    pub rtt: u32,
    /// ACK: SACK blocks `[from, to)` as distances from `seq`, the latest first (RFC 2018); `(0, 0)` for none. A segment that was
    /// received twice comes before them (RFC 2883): as `(distance, 0)` where it lies this far below `seq`.
    pub sack: [(u16, u16); 3],
    /// Length in bytes of the IP packet, without the encapsulation that a link may add.
    pub len: u16,
    /// Application bytes that it carries.
    pub payload: u16,
    /// Its kind.
    pub kind: Kind,
    /// Its marks.
    pub flags: Flags,
}

/// The kind of a packet.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Carries a segment, from the sender to the receiver.
    #[default]
    Data,
    /// Acknowledges, from the receiver to the sender.
    Ack,
    /// Opens a connection.
    Syn,
    /// The answer to [`Kind::Syn`].
    SynAck,
    /// The third packet of a handshake, from the sender to the receiver, where the first segment does not stand for it.
    HandshakeAck,
    /// Acknowledges the receiver's FIN, from the sender to the receiver.
    LastAck,
    /// Carries data of a constant-rate flow, which no end acknowledges.
    Cbr,
    /// A message between the protocols of two routers: a probe or a notification.
    Control,
}

/// A packet's marks, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No mark.
    pub const NONE: Flags = Flags(0);
    /// ECN-capable transport, ECT(0) (RFC 3168).
    pub const ECT: Flags = Flags(1);
    /// Congestion experienced (RFC 3168).
    pub const CE: Flags = Flags(2);
    /// ACK, and data that acknowledges: the receiver saw congestion (RFC 3168). SYN and SYN-ACK: offers, or accepts, ECN.
    pub const ECE: Flags = Flags(4);
    /// Data: the sender has reduced its window (RFC 3168).
    pub const CWR: Flags = Flags(8);
    /// Data: the last segment. ACK: that it has arrived; under Linux's profile the receiver's own FIN.
    pub const FIN: Flags = Flags(16);
    /// Data: it was sent before.
    pub const RETRANSMIT: Flags = Flags(32);
    /// Of a flow whose routers take custody of it: they store its packets, and send them around links.
    pub const CUSTODY: Flags = Flags(64);

    /// Whether all of `other` are set.
    #[inline(always)]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These marks and those of `other`.
    #[inline(always)]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These marks but those of `other`.
    #[inline(always)]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// `other` if `condition`, else none.
    #[inline(always)]
    pub const fn when(condition: bool, other: Flags) -> Flags {
        if condition { other } else { Flags::NONE }
    }
}

const _: () = assert!(size_of::<Packet>() == 64, "a packet is one cache line");
