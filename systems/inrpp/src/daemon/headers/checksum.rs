//! The Internet's checksum (RFC 1071).

use super::{Headers, IPV4_HEADER};

/// The sum of the big-endian words of `bytes`, of which the last may be half; add sums of parts that begin at even places,
/// and [`fold`] them.
pub fn sum(bytes: &[u8]) -> u64 {
    let (quads, rest) = bytes.as_chunks::<8>();
    let mut total = 0;
    for quad in quads {
        // 2^32 is 1 modulo 0xffff, so that halves of 32 bits can be added as they are.
        let value = u64::from_be_bytes(*quad);
        total += (value >> 32) + (value & 0xffff_ffff);
    }
    let (words, last) = rest.as_chunks::<2>();
    total += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    total + last.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// A sum as one word, with end-around carry; the checksum is its complement.
pub fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A checksum after one word of what it covers has changed (RFC 1624, equation 3).
pub fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!before) + u64::from(after))
}

/// The sum of the pseudo-header of TCP or UDP with `len` bytes of header and payload.
pub fn pseudo_header(packet: &[u8], headers: &Headers, len: usize) -> u64 {
    let addresses = if headers.version == 4 { packet.get(12..IPV4_HEADER) } else { packet.get(8..40) };
    sum(addresses.unwrap_or_default()) + u64::from(headers.protocol) + len as u64
}
