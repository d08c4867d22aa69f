use proptest::prelude::*;

use super::{
    testing::{Spec, any_spec, finish, reference_checksum},
    *,
};

const KEYS: [u64; 2] = [1, 2];

fn spec() -> Spec {
    Spec {
        v6: false,
        udp: false,
        addresses: [[10; 16], [11; 16]],
        ports: [1000, 80],
        class: 0b10,
        hops: 7,
        id: 9,
        dont_fragment: true,
        ip_options: Vec::new(),
        tcp_options: Vec::new(),
        sequence: u32::MAX,
        acknowledgement: 5,
        flags: ACK | FIN,
        window: 77,
        payload: vec![1, 2, 3],
    }
}

fn syn(options: &[u8]) -> Spec {
    Spec { flags: SYN, tcp_options: options.to_vec(), payload: Vec::new(), ..spec() }
}

fn read(spec: &Spec) -> SynOptions {
    let packet = spec.complete();
    syn_options(&packet, &Headers::parse(&packet).unwrap()).unwrap()
}

#[test]
fn a_packet_that_is_longer_or_shorter_than_it_says_has_no_headers() {
    for v6 in [false, true] {
        let packet = Spec { v6, ..spec() }.complete();
        assert!(Headers::parse(&packet).is_some());
        assert_eq!(Headers::parse(&[packet.as_slice(), &[0]].concat()), None);
        assert_eq!(Headers::parse(&packet[..packet.len() - 1]), None);
    }
}

#[test]
fn a_length_of_zero_is_that_of_what_is_longer_than_a_length_can_say() {
    for (v6, field, header) in [(false, 2, 0), (true, 4, 40)] {
        let mut packet = Spec { v6, payload: vec![0; 100], ..spec() }.complete();
        packet[field..field + 2].fill(0);
        assert_eq!(Headers::parse(&packet), None);
        packet.resize(header + 65_535, 0);
        assert_eq!(Headers::parse(&packet), None);
        packet.push(0);
        assert_eq!(Headers::parse(&packet).unwrap().total, header as u32 + 65_536);
    }
}

#[test]
fn fragments_and_other_protocols_are_not_plain_and_have_no_ports() {
    let mut packet = spec().complete();
    packet[6] = 0x20;
    let headers = Headers::parse(&packet).unwrap();
    assert!(!headers.is_plain() && headers.protocol == TCP && headers.len == 20);
    assert_eq!(tcp(&packet, &headers), None);
    let other = Spec { ports: [1, 2], ..spec() };
    let mut other_packet = other.complete();
    other_packet[6] = 0x20;
    assert_eq!(flow(&packet, &headers, KEYS), flow(&other_packet, &headers, KEYS));
    assert_ne!(
        flow(&packet, &headers, KEYS),
        flow(&spec().complete(), &Headers::parse(&spec().complete()).unwrap(), KEYS)
    );
}

#[test]
fn tcp_whose_header_is_longer_than_the_packet_is_not_plain() {
    let mut packet = spec().complete();
    packet[20 + 12] = 0x60;
    assert!(!Headers::parse(&packet).unwrap().is_plain());
    packet[20 + 12] = 0x40;
    assert!(!Headers::parse(&packet).unwrap().is_plain());
}

#[test]
fn a_syn_announces_its_options_up_to_a_malformed_one() {
    let all = [2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 30, 4, 0, 1];
    let found = SynOptions { scale: Some(7), mss: Some(1460), is_multipath: true, timestamps: true };
    assert_eq!(read(&syn(&all)), found);
    assert_eq!(read(&syn(&[3, 3, 15, 0, 2, 4, 5, 180])), SynOptions { scale: Some(14), ..SynOptions::default() });
    for malformed in [[2, 0, 3, 3], [2, 1, 3, 3], [2, 5, 1, 1], [1, 1, 1, 3]] {
        assert_eq!(read(&syn(&malformed)), SynOptions::default());
    }
    let packet = spec().complete();
    assert_eq!(syn_options(&packet, &Headers::parse(&packet).unwrap()), None);
}

#[test]
fn a_template_takes_no_syn_and_no_reset_and_stays_small() {
    for flags in [SYN | ACK, RST | ACK, PSH] {
        let packet = Spec { flags, ..spec() }.complete();
        assert_eq!(AckTemplate::of(&packet, &Headers::parse(&packet).unwrap()), None);
    }
    assert!(size_of::<AckTemplate>() <= 80);
}

/// The pure ACK that the template of a packet has to make.
fn expected_ack(spec: &Spec, window: u16) -> Spec {
    let mut found = spec.tcp_options.as_slice();
    let mut tcp_options = Vec::new();
    while let [kind, rest @ ..] = found {
        match (kind, rest) {
            (0, _) => break,
            (1, rest) => found = rest,
            (8, [10, rest @ ..]) if rest.len() >= 8 => {
                tcp_options = [&[1, 1, 8, 10], &rest[..8]].concat();
                break;
            }
            (_, [len, ..]) if *len >= 2 && usize::from(*len) <= found.len() => found = &found[usize::from(*len)..],
            _ => break,
        }
    }
    let fin = u32::from(spec.flags & FIN);
    Spec {
        class: spec.class & !3,
        hops: 64,
        id: 0,
        dont_fragment: true,
        ip_options: Vec::new(),
        tcp_options,
        sequence: spec.sequence.wrapping_add(spec.payload.len() as u32).wrapping_add(fin),
        flags: ACK,
        window,
        payload: Vec::new(),
        ..spec.clone()
    }
}

proptest! {
    #[test]
    fn sums_are_those_of_the_reference(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(!checksum::fold(checksum::sum(&bytes)), reference_checksum(&bytes));
    }

    #[test]
    fn fields_are_those_that_were_written(spec in any_spec(100, false)) {
        let packet = spec.complete();
        let headers = Headers::parse(&packet).unwrap();
        prop_assert!(headers.is_tcp());
        prop_assert_eq!(usize::from(headers.len) + spec.payload.len(), packet.len());
        let Spec { sequence, acknowledgement, flags, window, .. } = spec;
        let fields = TcpFields { sequence, acknowledgement, flags, window, payload: spec.payload.len() as u32 };
        prop_assert_eq!(tcp(&packet, &headers), Some(fields));
    }

    #[test]
    fn headers_behind_extensions_are_those_that_were_written(spec in any_spec(100, true)) {
        let packet = spec.complete();
        let headers = Headers::parse(&packet).unwrap();
        prop_assert_eq!(headers.is_plain(), !spec.v6 || spec.ip_options.is_empty());
        let behind = headers.behind_extensions(&packet).unwrap();
        prop_assert_eq!(behind.protocol == UDP, spec.udp);
        prop_assert_eq!(behind.payload() as usize, spec.payload.len());
    }

    #[test]
    fn both_directions_are_one_flow_and_others_are_not(spec in any_spec(10, false), port in any::<u16>()) {
        let of = |spec: &Spec| {
            let packet = spec.complete();
            flow(&packet, &Headers::parse(&packet).unwrap(), KEYS)
        };
        let (there, back) = (of(&spec), of(&spec.reversed()));
        prop_assert_eq!(there.key, back.key);
        prop_assert_eq!(there.key & 1, 0);
        prop_assert_ne!(there.reversed, back.reversed);
        let other = Spec { ports: [port, spec.ports[1]], ..spec.clone() };
        prop_assert_eq!(of(&other).key == there.key, port == spec.ports[0]);
    }

    #[test]
    fn a_packet_with_another_window_is_as_if_written_with_it(spec in any_spec(100, false), window in any::<u16>()) {
        let other = Spec { window, ..spec.clone() };
        let (mut complete, mut partial) = (spec.complete(), spec.partial());
        let headers = Headers::parse(&complete).unwrap();
        set_window(&mut complete, &headers, window, false);
        set_window(&mut partial, &headers, window, true);
        prop_assert_eq!(complete, other.complete());
        prop_assert_eq!(finish(&partial), other.complete());
    }

    #[test]
    fn a_lowered_mss_is_as_if_written_so(spec in any_spec(10, false), before in any::<u16>(), max in any::<u16>(), odd in any::<bool>()) {
        let options = |mss: u16| {
            let [high, low] = mss.to_be_bytes();
            if odd { vec![1, 2, 4, high, low, 1, 1, 1] } else { vec![2, 4, high, low] }
        };
        let spec = Spec { flags: spec.flags | SYN, tcp_options: options(before), ..spec };
        let other = Spec { tcp_options: options(before.min(max)), ..spec.clone() };
        let (mut complete, mut partial) = (spec.complete(), spec.partial());
        let headers = Headers::parse(&complete).unwrap();
        prop_assert_eq!(clamp_mss(&mut complete, &headers, max, false), before > max);
        prop_assert_eq!(clamp_mss(&mut partial, &headers, max, true), before > max);
        prop_assert_eq!(complete, other.complete());
        prop_assert_eq!(finish(&partial), other.complete());
    }

    #[test]
    fn a_template_writes_the_last_ack_with_another_window(spec in any_spec(100, false), window in any::<u16>()) {
        let packet = spec.complete();
        let template = AckTemplate::of(&packet, &Headers::parse(&packet).unwrap());
        prop_assert_eq!(template.is_some(), spec.flags & (ACK | SYN | RST) == ACK);
        if let Some(template) = template {
            let mut out = [0; AckTemplate::MAX_LEN];
            let len = template.write(window, &mut out);
            prop_assert_eq!(finish(&out[..len]), expected_ack(&spec, window).complete());
            prop_assert_eq!(template.write(window, &mut out[..len - 1]), 0);
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(
        mut packet in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..140),
            any_spec(50, true).prop_map(|spec| spec.complete()),
        ],
        (at, byte) in (0..140usize, any::<u8>()),
        len in 0..200usize,
        fits in any::<bool>(),
    ) {
        packet.truncate(len);
        if let Some(place) = packet.get_mut(at) {
            *place = byte;
        }
        if fits && packet.len() >= 40 {
            // So that more than a few get past the length.
            let (field, len) = if packet[0] >> 4 == 4 { (2, packet.len()) } else { (4, packet.len() - 40) };
            packet[field..field + 2].copy_from_slice(&(len as u16).to_be_bytes());
        }
        let Some(headers) = Headers::parse(&packet) else { return Ok(()) };
        prop_assert!(headers.transport <= headers.len && u32::from(headers.len) <= headers.total);
        headers.behind_extensions(&packet);
        flow(&packet, &headers, KEYS);
        AckTemplate::of(&packet, &headers);
        prop_assert_eq!(tcp(&packet, &headers).is_some(), headers.is_tcp());
        syn_options(&packet, &headers);
        set_window(&mut packet, &headers, 5, false);
        clamp_mss(&mut packet, &headers, 5, false);
        // Headers of another packet.
        packet.truncate(packet.len() / 2);
        tcp(&packet, &headers);
        set_window(&mut packet, &headers, 5, false);
        clamp_mss(&mut packet, &headers, 5, false);
        syn_options(&packet, &headers);
        AckTemplate::of(&packet, &headers);
        flow(&packet, &headers, KEYS);
    }
}
