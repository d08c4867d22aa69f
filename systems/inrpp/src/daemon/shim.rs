//! The shim before each packet between neighbours.
//!
//! 24 bytes, in network order: version (high nibble) and kind (low nibble) in a byte, flags in the next, two zero bytes; the low
//! 32 bits of the sequence number; the router that a detoured packet has to reach (0: none); four zero bytes; the MAC. Zero bytes
//! and flags without a meaning are refused, so that each shim has one form only.

use crate::RouterId;

/// What follows a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A complete IP packet.
    Data,
    /// A [`Hello`](super::message::Hello).
    Hello,
    /// A [`Probe`](super::message::Probe).
    Probe,
    /// A [`Grant`](super::message::Grant).
    Grant,
}

/// What a shim says of its packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The transport checksum is that of the pseudo-header only.
    pub partial: bool,
    /// It has been on a detour.
    pub detoured: bool,
    /// Its flow has been on detours lately, so that the egress restores the order.
    pub disturbed: bool,
}

/// The shim of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// What follows.
    pub kind: Kind,
    /// What it says of its packet.
    pub flags: Flags,
    /// The low 32 bits of the sequence number, or of a hello's number.
    pub sequence: u32,
    /// The router that a detoured packet has to reach.
    pub next: Option<RouterId>,
    /// The proof that a neighbour sends it; [`Session`](super::session::Session) computes and checks it.
    pub mac: u64,
}

/// The version of this format.
const VERSION: u8 = 1;
const PARTIAL: u8 = 1;
const DETOURED: u8 = 2;
const DISTURBED: u8 = 4;

impl Kind {
    fn from_nibble(nibble: u8) -> Option<Kind> {
        Some(match nibble {
            0 => Kind::Data,
            1 => Kind::Hello,
            2 => Kind::Probe,
            3 => Kind::Grant,
            _ => return None,
        })
    }
}

impl Flags {
    fn from_byte(byte: u8) -> Option<Flags> {
        let has = |bit| byte & bit != 0;
        let known = byte & !(PARTIAL | DETOURED | DISTURBED) == 0;
        known.then(|| Flags { partial: has(PARTIAL), detoured: has(DETOURED), disturbed: has(DISTURBED) })
    }

    fn byte(self) -> u8 {
        let bit = |is: bool, bit| if is { bit } else { 0 };
        bit(self.partial, PARTIAL) | bit(self.detoured, DETOURED) | bit(self.disturbed, DISTURBED)
    }
}

impl Shim {
    /// The length of a shim in bytes.
    pub const LEN: usize = 24;
    /// The length in bytes of what the MAC covers of a shim: all before it.
    pub const COVERED: usize = 16;

    /// The shim of a datagram and what follows it; `None` if it has none of this version.
    pub fn read(datagram: &[u8]) -> Option<(Shim, &[u8])> {
        let (&[first, flags, 0, 0], rest) = datagram.split_first_chunk()? else { return None };
        let (&sequence, rest) = rest.split_first_chunk()?;
        let (&next, rest) = rest.split_first_chunk()?;
        let (&[0, 0, 0, 0], rest) = rest.split_first_chunk()? else { return None };
        let (&mac, packet) = rest.split_first_chunk()?;
        if first >> 4 != VERSION {
            return None;
        }
        let next = u32::from_be_bytes(next);
        let shim = Shim {
            kind: Kind::from_nibble(first & 0xf)?,
            flags: Flags::from_byte(flags)?,
            sequence: u32::from_be_bytes(sequence),
            next: (next != 0).then_some(RouterId(next)),
            mac: u64::from_be_bytes(mac),
        };
        Some((shim, packet))
    }

    /// Writes the shim.
    pub fn write(&self, into: &mut [u8; Self::LEN]) {
        into[..Self::COVERED].copy_from_slice(&self.covered());
        into[Self::COVERED..].copy_from_slice(&self.mac.to_be_bytes());
    }

    /// What the MAC covers of the shim.
    pub fn covered(&self) -> [u8; Self::COVERED] {
        let mut bytes = [0; Self::COVERED];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.flags.byte();
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.next.map_or(0, |RouterId(id)| id).to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_kind() -> impl Strategy<Value = Kind> {
        (0..4u8).prop_map(|nibble| Kind::from_nibble(nibble).unwrap())
    }

    fn any_flags() -> impl Strategy<Value = Flags> {
        any::<(bool, bool, bool)>().prop_map(|(partial, detoured, disturbed)| Flags { partial, detoured, disturbed })
    }

    fn any_shim() -> impl Strategy<Value = Shim> {
        let next = any::<u32>().prop_map(|id| (id != 0).then_some(RouterId(id)));
        (any_kind(), any_flags(), any::<u32>(), next, any::<u64>())
            .prop_map(|(kind, flags, sequence, next, mac)| Shim { kind, flags, sequence, next, mac })
    }

    #[test]
    fn the_layout_is_that_of_the_description() {
        let flags = Flags { partial: true, detoured: false, disturbed: true };
        let shim = Shim { kind: Kind::Grant, flags, sequence: 0x0102_0304, next: Some(RouterId(0x0506_0708)), mac: 9 };
        let mut bytes = [0xff; Shim::LEN];
        shim.write(&mut bytes);
        assert_eq!(bytes, [0x13, 5, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(shim in any_shim(), packet in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = [0xff; Shim::LEN];
            shim.write(&mut bytes);
            let datagram = [&bytes[..], &packet].concat();
            prop_assert_eq!(Shim::read(&datagram), Some((shim, &packet[..])));
        }

        #[test]
        fn what_any_bytes_are_read_as_is_written_as_they_were(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40),
            first in 0x0e..0x16u8, flags in 0..10u8, is_sparse in any::<bool>(),
        ) {
            if is_sparse && bytes.len() > 15 {
                (bytes[0], bytes[1]) = (first, flags);
                bytes[2..4].fill(0);
                bytes[12..16].fill(0);
            }
            if let Some((shim, packet)) = Shim::read(&bytes) {
                let mut again = [0; Shim::LEN];
                shim.write(&mut again);
                prop_assert_eq!([&again[..], packet].concat(), bytes);
            }
        }

        #[test]
        fn what_is_too_short_is_refused(shim in any_shim(), len in 0..Shim::LEN) {
            let mut bytes = [0; Shim::LEN];
            shim.write(&mut bytes);
            prop_assert_eq!(Shim::read(&bytes[..len]), None);
        }

        #[test]
        fn bytes_without_a_meaning_are_zero(shim in any_shim(), at in prop::sample::select(vec![2usize, 3, 12, 13, 14, 15]), bit in 0..8u32) {
            let mut bytes = [0; Shim::LEN];
            shim.write(&mut bytes);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Shim::read(&bytes), None);
        }
    }
}
