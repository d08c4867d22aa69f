use proptest::prelude::*;

use super::*;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn request(family: Family, payload: &Payload, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; length];
    write_request(family, 0xabcd, payload, &mut bytes).unwrap();
    bytes
}

/// What a host answers: the same with another type, and the checksum that goes with it.
fn reply(family: Family, payload: &Payload, length: usize) -> Vec<u8> {
    let mut bytes = request(family, payload, length);
    bytes[0] = family.reply();
    if family == Family::V4 {
        bytes[2..4].fill(0);
        let checksum = !sum(&bytes);
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

#[test]
fn a_request_of_icmp_is_as_ping_sends_it() {
    // By tcpdump: `ping -c 1 -s 12 -p 00`, identifier 0xabcd, sequence number 1; its checksum is that of RFC 1071 by hand.
    let bytes = request(Family::V4, &Payload { nonce: 0, sequence: 1 }, HEADER + PAYLOAD);
    let checksum = !(0x0800_u16 + 0xabcd + 1 + 1);
    assert_eq!(bytes[..8], [[8, 0], checksum.to_be_bytes(), [0xab, 0xcd], [0, 1]].concat());
    assert_eq!(request(Family::V6, &Payload::default(), 64)[..4], [128, 0, 0, 0], "the kernel sums it up");
}

#[test]
fn errors_show_whether_the_path_is_to_blame() {
    use Unreachable::{Host, Loop, Network, Port, TooBig};
    let v4 = [(3, 0, Network), (3, 1, Host), (3, 3, Port), (3, 4, TooBig), (3, 13, Network), (11, 0, Loop)];
    let v6 = [(1, 0, Network), (1, 3, Host), (1, 4, Port), (2, 0, TooBig), (3, 0, Loop)];
    for (family, cases) in [(Family::V4, &v4[..]), (Family::V6, &v6[..])] {
        for (kind, code, expected) in cases {
            assert_eq!(Unreachable::of(family, *kind, *code), Some(*expected), "{family:?} {kind} {code}");
        }
        assert_eq!(Unreachable::of(family, family.reply(), 0), None);
        assert_eq!(Unreachable::of(family, family.request(), 0), None);
    }
    assert_eq!(Unreachable::of(Family::V4, 11, 1), None, "a fragment that came too late shows nothing");
}

#[test]
fn an_error_may_quote_no_more_than_eight_bytes() {
    for family in FAMILIES {
        let bytes = request(family, &Payload { nonce: 1, sequence: 0x1_2345 }, 64);
        assert_eq!(quoted_request(family, &bytes[..8]), Some((0xabcd, 0x2345)));
        assert_eq!(quoted_request(family, &bytes[..7]), None);
        assert_eq!(quoted_request(family, &reply(family, &Payload::default(), 64)), None);
    }
}

proptest! {
    #[test]
    fn a_reply_gives_back_what_the_request_carried(
        nonce: u64, sequence: u32, length in HEADER + PAYLOAD..200, v6: bool,
    ) {
        let (family, payload) = (FAMILIES[usize::from(v6)], Payload { nonce, sequence });
        prop_assert_eq!(parse_reply(family, &reply(family, &payload, length)), Some((0xabcd, payload)));
        prop_assert_eq!(parse_reply(family, &request(family, &payload, length)), None);
    }

    #[test]
    fn a_damaged_reply_over_ipv4_is_none(nonce: u64, sequence: u32, length in HEADER + PAYLOAD..100, at: usize, bit in 0_u8..8) {
        let mut bytes = reply(Family::V4, &Payload { nonce, sequence }, length);
        let at = at % length;
        bytes[at] ^= 1_u8 << bit;
        prop_assert_eq!(parse_reply(Family::V4, &bytes), None);
    }

    #[test]
    fn no_bytes_break_a_parser(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind: u8, code: u8) {
        for family in FAMILIES {
            parse_reply(family, &bytes);
            quoted_request(family, &bytes);
            Unreachable::of(family, kind, code);
            let mut out = bytes.clone();
            prop_assert_eq!(
                write_request(family, 1, &Payload::default(), &mut out).is_some(), bytes.len() >= HEADER + PAYLOAD
            );
        }
        prop_assert_eq!(Payload::parse(&bytes).is_some(), bytes.len() >= PAYLOAD);
        if let Some(rest) = behind_ipv4(&bytes) {
            prop_assert!(bytes.len() - rest.len() >= 20 && bytes.len() - rest.len() <= 60);
        }
    }
}
