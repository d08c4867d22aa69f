//! The key of the flow that a packet belongs to, read from its headers (`include/policy/flow_key.h`).
//!
//! Fragments are known by their addresses alone. An ICMP error has the key of the packet that it quotes.
//!
//! ```
//! use sidestep_flow_hash::flow_key::{Kind, read};
//!
//! // An IPv4 header of 20 bytes: UDP (17) from 10.0.0.1 to 10.0.0.2; then the ports 40000 and 443.
//! let mut packet = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 1, 187, 0, 8, 0, 0];
//! let view = read(&packet).unwrap();
//! assert_eq!((view.kind, view.key.source_port, view.key.destination_port), (Kind::Ports, 40_000, 443));
//!
//! // The first fragment has ports; but they do not count, as the next ones have none.
//! packet[6] = 0x20;
//! assert_eq!(read(&packet).unwrap().key.source_port, 0);
//! ```

use std::net::Ipv6Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{FlowKey, RawKey};

/// What the headers of a packet show about its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// The flow. Fields that the [kind](Self::kind) does not name are zero.
    pub key: FlowKey,
    /// What the key is made of.
    pub kind: Kind,
    /// Whether it is an ICMP error, whose key is that of the packet that it quotes.
    pub error: bool,
    /// Whether the packet is source-routed with segments left; the key's destination is then the last one.
    pub routed: bool,
    /// Where the packet itself goes.
    pub towards: Ipv6Addr,
}

/// What the key of a flow is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Addresses, ports and protocol.
    Ports,
    /// Addresses and protocol: there are no ports, or they are cut off.
    Protocol,
    /// Addresses alone: a fragment, or a packet with too many extension headers.
    Addresses,
}

/// Reads a packet that begins with its header of IPv4 or IPv6; `None` for anything else.
pub fn read(packet: &[u8]) -> Option<FlowView> {
    let v6 = packet.first()? >> 4 == 6;
    let mut view = RawView::default();
    // SAFETY: C reads no more than `len` bytes of the packet, and writes the struct that the reference is to.
    unsafe { native_flow_view(packet.as_ptr(), packet.len() as _, v6.into(), &mut view) };
    let kind = match view.kind {
        1 => Kind::Ports,
        2 => Kind::Protocol,
        3 => Kind::Addresses,
        _ => return None,
    };
    let (error, routed) = (view.error != 0, view.routed != 0);
    Some(FlowView { key: view.key.into(), kind, error, routed, towards: address(view.towards) })
}

/// `struct flow_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
struct RawView {
    key: RawKey,
    kind: u32,
    error: u32,
    routed: u32,
    offset: u32,
    towards: [u32; 4],
}

impl From<RawKey> for FlowKey {
    fn from(raw: RawKey) -> Self {
        FlowKey {
            source: address(raw.source),
            destination: address(raw.destination),
            source_port: raw.source_port as u16,
            destination_port: raw.destination_port as u16,
            protocol: raw.protocol as u8,
            flow_label: raw.flow_label,
        }
    }
}

fn address(words: [u32; 4]) -> Ipv6Addr {
    Ipv6Addr::from_bits(words.into_iter().fold(0, |bits, word| bits << 32 | u128::from(word)))
}

const _: () = assert!(size_of::<RawView>() == 80, "differs from the C struct");

unsafe extern "C" {
    fn native_flow_view(bytes: *const u8, length: std::ffi::c_ulong, v6: u32, view: *mut RawView);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 2);
    const PORTS: [u8; 4] = [0x9c, 0x40, 1, 187];

    /// An IPv6 packet from A to B.
    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
        packet.extend(A.octets());
        packet.extend(B.octets());
        packet.extend(payload);
        packet
    }

    /// An IPv4 packet from 10.0.0.1 to 10.0.0.2 with these flags and this offset of a fragment, and 4 bytes of options.
    fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let [high, low] = fragment.to_be_bytes();
        let mut packet = vec![0x46, 0, 0, 0, 0, 7, high, low, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1];
        packet.extend(payload);
        packet
    }

    /// An extension header of 8 bytes, of which the first names what follows.
    fn extension(next: u8, rest: [u8; 7]) -> Vec<u8> {
        [&[next][..], &rest].concat()
    }

    fn ports(view: &FlowView) -> (Kind, u16, u16, u8) {
        (view.kind, view.key.source_port, view.key.destination_port, view.key.protocol)
    }

    #[test]
    fn ports_are_found_behind_options_and_extension_headers() {
        for protocol in [6, 17, 33, 132, 136] {
            let expected = (Kind::Ports, 40_000, 443, protocol);
            assert_eq!(ports(&read(&v4(protocol, 0, &PORTS)).unwrap()), expected);
            // Hop-by-hop options, then destination options, then an authentication header of 8 bytes.
            let chain = [extension(60, [0; 7]), extension(51, [0; 7]), extension(protocol, [0; 7]), PORTS.into()];
            assert_eq!(ports(&read(&v6(0, &chain.concat())).unwrap()), expected);
        }
        let esp = read(&v6(50, &PORTS)).unwrap();
        assert_eq!(ports(&esp), (Kind::Protocol, 0, 0, 50));
        assert_eq!((esp.key.source, esp.towards), (A, B));
        // An atomic fragment is a whole packet.
        let atomic = [extension(6, [0; 7]), PORTS.into()].concat();
        assert_eq!(read(&v6(44, &atomic)).unwrap().kind, Kind::Ports);
    }

    #[test]
    fn every_fragment_of_a_packet_has_the_same_key() {
        let of_v4 = [0x2000, 0x2010, 0x0020].map(|fragment| read(&v4(17, fragment, &PORTS)).unwrap());
        // The next header of a later fragment may be anything.
        let of_v6 = [(17, 1_u16), (17, 9), (0, 16)].map(|(next, offset)| {
            let [high, low] = offset.to_be_bytes();
            read(&v6(44, &[extension(next, [0, high, low, 1, 2, 3, 4]), PORTS.into()].concat())).unwrap()
        });
        for view in of_v4.iter().chain(&of_v6) {
            assert_eq!(ports(view), (Kind::Addresses, 0, 0, 0));
        }
        assert!(of_v4.iter().all(|view| *view == of_v4[0]) && of_v6.iter().all(|view| *view == of_v6[0]));
        assert_eq!(read(&v4(17, 0x4000, &PORTS)).unwrap().kind, Kind::Ports, "not to be fragmented is no fragment");
    }

    #[test]
    fn an_icmp_error_belongs_to_the_flow_that_it_quotes() {
        let quoted = read(&v6(6, &PORTS)).unwrap().key;
        for kind in [1, 2, 3, 4] {
            let error = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &v6(6, &PORTS)].concat();
            let view = read(&v6(58, &error)).unwrap();
            assert!(view.error && view.key == quoted && view.towards == B, "{view:?}");
        }
        let quoted = read(&v4(17, 0, &PORTS)).unwrap().key;
        for (kind, is_error) in [(3, true), (11, true), (12, true), (0, false), (8, false), (13, false)] {
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &v4(17, 0, &PORTS)].concat();
            let view = read(&v4(1, 0, &message)).unwrap();
            assert_eq!((view.error, view.key == quoted), (is_error, is_error), "{kind}");
        }
        // A quoted fragment follows the fragments, and one that is cut off follows the message's own addresses.
        let about = |packet: &[u8]| read(&v4(1, 0, &[&[3, 4, 0, 0, 0, 0, 5, 0][..], packet].concat())).unwrap();
        assert_eq!(ports(&about(&v4(17, 0x2000, &PORTS))), (Kind::Addresses, 0, 0, 0));
        let cut = about(&v4(17, 0, &PORTS)[..16]);
        assert_eq!((cut.error, cut.kind, cut.key.protocol), (false, Kind::Protocol, 1));
    }

    #[test]
    fn the_last_destination_counts_of_a_packet_that_is_source_routed() {
        let last = Ipv6Addr::new(0x2001, 0xdb8, 0, 9, 0, 0, 0, 9);
        let with = |left: u8| {
            let srh = [&[6, 2, 4, left, 0, 0, 0, 0][..], &last.octets()].concat();
            read(&v6(43, &[srh, PORTS.into()].concat())).unwrap()
        };
        let (on_its_way, arrived) = (with(1), with(0));
        assert!(on_its_way.routed && on_its_way.key.destination == last && on_its_way.kind == Kind::Ports);
        assert!(!arrived.routed && arrived.key.destination == B && arrived.kind == Kind::Ports);
    }

    #[test]
    fn what_is_cut_off_is_not_read_and_too_many_headers_are_not_looked_through() {
        let whole = v6(6, &PORTS);
        for length in 0..40 {
            assert_eq!(read(&whole[..length]), None);
        }
        for length in 40..44 {
            assert_eq!(read(&whole[..length]).unwrap().kind, Kind::Protocol);
        }
        let chain = |headers: usize| {
            let mut payload: Vec<u8> = (1..headers).flat_map(|_| extension(60, [0; 7])).collect();
            payload.extend(extension(6, [0; 7]));
            payload.extend(PORTS);
            read(&v6(60, &payload)).unwrap().kind
        };
        assert_eq!((chain(6), chain(7)), (Kind::Ports, Kind::Addresses));
        assert_eq!(read(&[0x45; 19]), None);
        assert_eq!(read(&[0x44; 40]), None, "a header of 16 bytes");
        assert_eq!(read(&[0x55; 60]), None, "version 5");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm_and_alike_with_anything_behind(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            version in 0..3_usize,
        ) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = [*first, 0x45, 0x60][version];
            }
            let before = read(&bytes);
            if before.is_some_and(|view| view.kind == Kind::Ports) {
                bytes.extend([0xff; 64]);
                prop_assert_eq!(read(&bytes), before);
            }
        }
    }
}
