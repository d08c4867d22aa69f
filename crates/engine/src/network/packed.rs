//! What links carry and the steps of routes, in few bits: large networks are as fast as memory is.

use sidestep_proto::packet::{Flags, Packet};

use super::MAX_NANOS;

/// Bits of an event's key that name the arc; the rest is the time.
pub(crate) const ARC_BITS: u32 = 18;
pub(crate) const ARC_MASK: u64 = (1 << ARC_BITS) - 1;

/// A packet on a link, in 16 bytes: large networks are as fast as memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedPacket {
    /// When it arrives, above [`WORD_BITS`] bits of what a hop needs to know, so that the packet itself is not looked at
    /// at a hop: its length, and whether it may be marked ([`CAPABLE`]) and is ([`MARKED`]).
    arrives_and_word: u64,
    pub(crate) packet: u32,
    /// Index of the hop that it is on.
    pub(crate) hop: u32,
}

const WORD_BITS: u32 = ARC_BITS;
pub(super) const LENGTH: u32 = 0xffff;
pub(super) const CAPABLE: u32 = 1 << 16;
pub(super) const MARKED: u32 = 1 << 17;

impl PackedPacket {
    #[inline(always)]
    pub(crate) fn new(arrives: u64, word: u32, packet: u32, hop: u32) -> Self {
        PackedPacket { arrives_and_word: arrives << WORD_BITS | u64::from(word), packet, hop }
    }

    #[inline(always)]
    pub(crate) fn arrives(&self) -> u64 {
        self.arrives_and_word >> WORD_BITS
    }

    /// The same packet, which arrives at another time.
    pub(super) fn arriving(self, arrives: u64) -> Self {
        PackedPacket::new(arrives.min(MAX_NANOS), self.word(), self.packet, self.hop)
    }

    #[inline(always)]
    pub(super) fn word(&self) -> u32 {
        self.arrives_and_word as u32 & ((1 << WORD_BITS) - 1)
    }
}

/// A step of a route: the arc in its lowest [`ARC_BITS`] bits, above it whether it is the last ([`LAST`]) and whether the
/// node that it leaves has a behaviour ([`BEHAVES`]), and above that the bytes of encapsulation there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop(pub(super) u32);

pub(super) const LAST: u32 = 1 << ARC_BITS;
pub(super) const BEHAVES: u32 = 1 << (ARC_BITS + 1);
pub(super) const EXTRA_SHIFT: u32 = ARC_BITS + 2;
/// Most bytes of encapsulation.
pub(super) const MAX_EXTRA: u16 = u16::MAX >> (EXTRA_SHIFT - 16);

impl Hop {
    #[inline(always)]
    pub(crate) fn arc(self) -> usize {
        (self.0 & (LAST - 1)) as usize
    }

    #[inline(always)]
    pub(super) fn behaves(self) -> bool {
        self.0 & BEHAVES != 0
    }

    #[inline(always)]
    pub(crate) fn extra(self) -> u32 {
        self.0 >> EXTRA_SHIFT
    }

    #[inline(always)]
    pub(crate) fn is_last(self) -> bool {
        self.0 & LAST != 0
    }
}

/// What a hop needs to know of a packet; see [`PackedPacket`].
#[inline(always)]
pub(crate) fn word_of(packet: &Packet) -> u32 {
    let capable = if packet.flags.has(Flags::ECT) { CAPABLE } else { 0 };
    u32::from(packet.len) | capable
}

/// The word of a packet that a node held, whose mark lies in the packet meanwhile.
pub(crate) fn word_of_held(packet: &Packet) -> u32 {
    word_of(packet) | if packet.flags.has(Flags::CE) { MARKED } else { 0 }
}

/// Whether the word of a packet shows that it was marked.
pub(crate) fn is_marked(word: u32) -> bool {
    word & MARKED != 0
}
