//! Echo probes: ICMP (RFC 792), ICMPv6 (RFC 4443), and UDP towards an echo port (RFC 862). Formats only, no I/O.
//!
//! A probe carries a [`Payload`]: a number that only the prober knows, so that no node that cannot see the probes can answer for
//! the far end, and the probe's own number. Over UDP the payload is all; in ICMP a header is before it. `write` and `parse`
//! functions give and take bytes; [`quoted_request`] and [`Unreachable::of`] read ICMP errors that quote a probe.
//!
//! ```
//! use sidestep_proto::echo::{Family, Payload, parse_reply, write_request};
//!
//! let (family, payload) = (Family::V4, Payload { nonce: 0x1234, sequence: 70_000 });
//! let mut packet = [0; 64];
//! write_request(family, 9, &payload, &mut packet).expect("the buffer has room");
//! assert_eq!(parse_reply(family, &packet), None, "a request is no reply");
//! ```

#[cfg(test)]
mod tests;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32, U64},
};

/// Which ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// ICMP, over IPv4.
    V4,
    /// ICMPv6, over IPv6.
    V6,
}

/// What a probe carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The prober's secret.
    pub nonce: u64,
    /// The probe's number.
    pub sequence: u32,
}

/// The length of a [`Payload`] in bytes; what a probe has beyond it is zeros.
pub const PAYLOAD: usize = 12;
/// The length of the header of an ICMP echo in bytes.
pub const HEADER: usize = 8;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    kind: u8,
    code: u8,
    checksum: U16,
    identifier: U16,
    sequence: U16,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct PayloadBytes {
    nonce: U64,
    sequence: U32,
}

const _: () = assert!(size_of::<HeaderBytes>() == HEADER && size_of::<PayloadBytes>() == PAYLOAD);

impl Family {
    fn request(self) -> u8 {
        match self {
            Family::V4 => 8,
            Family::V6 => 128,
        }
    }

    fn reply(self) -> u8 {
        match self {
            Family::V4 => 0,
            Family::V6 => 129,
        }
    }
}

impl Payload {
    /// Fills `out` with the payload, and zeros behind it; `None` if it is too short.
    pub fn write(&self, out: &mut [u8]) -> Option<()> {
        let bytes = PayloadBytes { nonce: self.nonce.into(), sequence: self.sequence.into() };
        let (payload, rest) = out.split_at_mut_checked(PAYLOAD)?;
        payload.copy_from_slice(bytes.as_bytes());
        rest.fill(0);
        Some(())
    }

    /// Reads the payload at the beginning of `bytes`; `None` if they are too few.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (bytes, _) = PayloadBytes::ref_from_prefix(bytes).ok()?;
        Some(Payload { nonce: bytes.nonce.get(), sequence: bytes.sequence.get() })
    }
}

/// Fills `out` with an echo request; `None` if it is too short. The checksum of ICMPv6 is left to the kernel, which knows the
/// addresses.
pub fn write_request(family: Family, identifier: u16, payload: &Payload, out: &mut [u8]) -> Option<()> {
    payload.write(out.get_mut(HEADER..)?)?;
    let (header, _) = HeaderBytes::mut_from_prefix(out).ok()?;
    *header = HeaderBytes {
        kind: family.request(),
        code: 0,
        checksum: 0.into(),
        identifier: identifier.into(),
        sequence: (payload.sequence as u16).into(),
    };
    if family == Family::V4 {
        let checksum = !sum(out);
        HeaderBytes::mut_from_prefix(out).ok()?.0.checksum = checksum.into();
    }
    Some(())
}

/// Reads an echo reply: its identifier, and what it carries. `None` if it is something else, too short for one of ours, or, of IPv4,
/// damaged; of ICMPv6 the kernel drops what is damaged.
pub fn parse_reply(family: Family, bytes: &[u8]) -> Option<(u16, Payload)> {
    let (header, rest) = HeaderBytes::ref_from_prefix(bytes).ok()?;
    let is_reply = header.kind == family.reply() && header.code == 0;
    if !is_reply || (family == Family::V4 && sum(bytes) != u16::MAX) {
        return None;
    }
    Some((header.identifier.get(), Payload::parse(rest)?))
}

/// What is behind the header of an IPv4 packet, as a raw socket gets it; `None` if it is none.
pub fn behind_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let length = usize::from(first & 15) * 4;
    if first >> 4 != 4 || length < 20 {
        return None;
    }
    packet.get(length..)
}

/// The identifier and the number, modulo 2¹⁶, of the echo request that an ICMP error quotes; `None` if it quotes something else.
///
/// `quoted` begins behind the quoted IP header, of which an error may quote only 8 bytes more.
pub fn quoted_request(family: Family, quoted: &[u8]) -> Option<(u16, u16)> {
    let (header, _) = HeaderBytes::ref_from_prefix(quoted).ok()?;
    let is_request = header.kind == family.request() && header.code == 0;
    is_request.then(|| (header.identifier.get(), header.sequence.get()))
}

/// What an ICMP error shows about a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// A router has no path to the target, or refuses to pass the probe on: the path is to blame.
    Network,
    /// The last router finds no such host: the path works as far as there.
    Host,
    /// The target itself refuses: no process listens there. The path works.
    Port,
    /// The probe is too large for a link of the path.
    TooBig,
    /// The probe was passed on too often: it ran in circles.
    Loop,
}

impl Unreachable {
    /// By type and code of an ICMP error; `None` if it is no error, or shows nothing about the path.
    pub fn of(family: Family, kind: u8, code: u8) -> Option<Self> {
        let v4 = || match (kind, code) {
            (3, 1 | 7) => Some(Unreachable::Host),
            (3, 2 | 3) => Some(Unreachable::Port),
            (3, 4) => Some(Unreachable::TooBig),
            (3, _) => Some(Unreachable::Network),
            (11, 0) => Some(Unreachable::Loop),
            _ => None,
        };
        let v6 = || match (kind, code) {
            (1, 3) => Some(Unreachable::Host),
            (1, 4) | (4, 1) => Some(Unreachable::Port),
            (1, _) => Some(Unreachable::Network),
            (2, _) => Some(Unreachable::TooBig),
            (3, 0) => Some(Unreachable::Loop),
            _ => None,
        };
        match family {
            Family::V4 => v4(),
            Family::V6 => v6(),
        }
    }

    /// The name for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Unreachable::Network => "network",
            Unreachable::Host => "host",
            Unreachable::Port => "port",
            Unreachable::TooBig => "too-big",
            Unreachable::Loop => "loop",
        }
    }
}

/// The Internet checksum's sum (RFC 1071): of a message with its checksum it is all ones.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
        [high] => u64::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
