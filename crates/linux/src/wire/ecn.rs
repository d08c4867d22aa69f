//! Explicit congestion notification in an Ethernet frame (RFC 3168, section 5): the low two bits of IPv4's TOS byte
//! and of IPv6's traffic class.

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_HEADER: usize = 14;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// "Congestion experienced", and, as a mask, all ECN bits.
const CE: u8 = 0b11;

/// The ECN bits of an IP packet; `None` for a frame of anything else, or of less than an IP header.
pub(super) fn ecn_of(frame: &[u8]) -> Option<u8> {
    let (ethertype, packet) = split(frame)?;
    match ethertype {
        ETHERTYPE_IPV4 if packet.len() >= IPV4_HEADER => Some(packet[1] & CE),
        ETHERTYPE_IPV6 if packet.len() >= IPV6_HEADER => Some(packet[1] >> 4 & CE),
        _ => None,
    }
}

/// Whether the sender of a packet with these ECN bits understands marks: ECT(0), ECT(1), or marked already.
pub(super) fn is_capable(ecn: u8) -> bool {
    ecn & CE != 0
}

/// Sets "congestion experienced"; leaves frames other than IP alone.
pub(super) fn mark_ce(frame: &mut [u8]) {
    if ecn_of(frame).is_none() {
        return;
    }
    let Some((header, packet)) = frame.split_at_mut_checked(ETHERNET_HEADER) else { return };
    if header.ends_with(&ETHERTYPE_IPV6) {
        packet[1] |= CE << 4;
        return;
    }
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= CE;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    let checksum = updated_checksum(u16::from_be_bytes([packet[10], packet[11]]), before, after);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The checksum after one word of what it covers has changed (RFC 1624, equation 3).
fn updated_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame's EtherType and what it carries.
fn split(frame: &[u8]) -> Option<([u8; 2], &[u8])> {
    let (header, packet) = frame.split_at_checked(ETHERNET_HEADER)?;
    Some((header.last_chunk::<2>().copied()?, packet))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0; 12], ethertype.as_slice(), packet].concat()
    }

    /// The checksum of an IPv4 header, in full (RFC 791); zero when the header's own is right.
    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
        // A sum with end-around carry is one modulo 0xffff, in which zero comes from nothing but zeroes.
        match words.sum::<u64>() {
            0 => 0xffff,
            sum => !(((sum - 1) % 0xffff + 1) as u16),
        }
    }

    #[test]
    fn only_the_two_ecn_bits_of_ipv6_change() {
        let mut packet = [0u8; IPV6_HEADER];
        packet[..2].copy_from_slice(&[0x6b, 0xa5]);
        let mut marked = frame(ETHERTYPE_IPV6, &packet);
        assert_eq!(ecn_of(&marked), Some(0b10));
        mark_ce(&mut marked);
        packet[1] = 0xb5;
        assert_eq!(marked, frame(ETHERTYPE_IPV6, &packet));
        assert_eq!(ecn_of(&marked), Some(CE));
    }

    #[test]
    fn frames_that_are_not_ip_have_no_ecn_and_stay_as_they_are() {
        for frame in [frame([0x08, 0x06], &[0xff; 28]), frame(ETHERTYPE_IPV6, &[0x60; 39]), vec![0x86; 13], vec![]] {
            let mut marked = frame.clone();
            mark_ce(&mut marked);
            assert_eq!((ecn_of(&marked), marked), (None, frame));
        }
    }

    proptest! {
        #[test]
        fn marking_keeps_the_ipv4_checksum_right(mut header in prop::array::uniform20(any::<u8>())) {
            header[10..12].fill(0);
            let right = checksum(&header);
            header[10..12].copy_from_slice(&right.to_be_bytes());
            let mut marked = frame(ETHERTYPE_IPV4, &header);
            mark_ce(&mut marked);
            prop_assert_eq!(ecn_of(&marked), Some(CE));
            prop_assert_eq!(checksum(&marked[ETHERNET_HEADER..]), 0);
        }

        #[test]
        fn no_frame_makes_the_parser_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            v6 in any::<bool>(),
        ) {
            if let Some(ethertype) = bytes.get_mut(12..14) {
                ethertype.copy_from_slice(if v6 { &ETHERTYPE_IPV6 } else { &ETHERTYPE_IPV4 });
            }
            mark_ce(&mut bytes);
        }
    }
}
