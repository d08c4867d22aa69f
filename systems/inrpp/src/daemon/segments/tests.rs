use std::io::IoSlice;

use proptest::prelude::*;

use super::*;
use crate::daemon::headers::{
    ACK, CWR, FIN, PSH,
    testing::{Spec, any_spec, finish},
};

fn gso_type(spec: &Spec) -> u8 {
    match (spec.udp, spec.v6) {
        (true, _) => GSO_UDP_L4,
        (false, true) => GSO_TCPV6,
        (false, false) => GSO_TCPV4,
    }
}

/// The super-packet that the kernel makes of it.
fn super_packet(spec: &Spec, size: u16) -> (VnetHeader, Vec<u8>) {
    let packet = spec.partial();
    let headers = Headers::parse(&packet).unwrap();
    let header = VnetHeader::single(&packet, &headers, true).unwrap();
    (VnetHeader { gso_type: gso_type(spec), gso_size: size, hdr_len: 1, ..header }, packet)
}

/// All segments of a packet with complete checksums.
fn cut_all(header: &VnetHeader, packet: &[u8]) -> Vec<Vec<u8>> {
    let cut = Cut::new(header, packet).unwrap();
    let segment = |at| {
        let mut headers = [0; MAX_HEADERS];
        let (len, payload) = cut.segment(at, &mut headers);
        let segment = [&headers[..len], payload].concat();
        assert_eq!(cut.segment_len(at), segment.len());
        if cut.partial() { finish(&segment) } else { segment }
    };
    (0..cut.segments()).map(segment).collect()
}

/// Joins packets, and returns what comes out.
fn join(joiner: &mut Joiner, packets: &[(Vec<u8>, bool)]) -> Vec<(VnetHeader, Vec<u8>)> {
    let mut joined = Vec::new();
    let mut out = |header: &VnetHeader, slices: &[IoSlice<'_>]| {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let (first, packet) = VnetHeader::split(&bytes).unwrap();
        assert_eq!(first, *header);
        joined.push((first, packet.to_vec()));
    };
    let mut batch = joiner.begin();
    for (packet, partial) in packets {
        assert!(batch.push(packet, *partial, &mut out));
    }
    batch.flush(&mut out);
    joined
}

/// How many packets come out of one flow's, one after the other.
fn expected_joins(specs: &[Spec]) -> usize {
    let mut groups: Vec<Vec<&Spec>> = Vec::new();
    let open = |spec: &Spec| !spec.payload.is_empty() && spec.flags & !(PSH | FIN) == ACK;
    for spec in specs {
        let joins = groups.last().is_some_and(|group| {
            let (first, last) = (group[0], group[group.len() - 1]);
            let follows = Spec {
                sequence: last.sequence.wrapping_add(last.payload.len() as u32),
                id: if spec.v6 || spec.dont_fragment { spec.id } else { last.id.wrapping_add(1) },
                flags: spec.flags,
                payload: spec.payload.clone(),
                ..last.clone()
            };
            let bytes: usize = group.iter().map(|spec| spec.payload.len()).sum();
            open(first)
                && open(spec)
                && last.flags & (PSH | FIN) == 0
                && last.payload.len() == first.payload.len()
                && spec.payload.len() <= first.payload.len()
                && follows == *spec
                && group.len() < 64
                && spec.partial().len() + bytes <= 65_000
        });
        if joins { groups.last_mut().unwrap().push(spec) } else { groups.push(vec![spec]) }
    }
    groups.len()
}

fn stream(len: usize) -> Spec {
    Spec {
        v6: true,
        udp: false,
        addresses: [[10; 16], [11; 16]],
        ports: [1000, 80],
        class: 0,
        hops: 64,
        id: 9,
        dont_fragment: false,
        ip_options: Vec::new(),
        tcp_options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        sequence: u32::MAX - 5,
        acknowledgement: 5,
        flags: ACK,
        window: 77,
        payload: (0..len).map(|at| at as u8).collect(),
    }
}

fn partials(specs: &[Spec]) -> Vec<(Vec<u8>, bool)> {
    specs.iter().map(|spec| (spec.partial(), true)).collect()
}

#[test]
fn a_super_packet_has_64_segments_and_65_000_bytes_at_most() {
    let joined = |size: usize, segments: usize| {
        let outputs = join(&mut Joiner::new(), &partials(&stream(size * segments).segments(size)));
        outputs.iter().map(|(header, packet)| Cut::new(header, packet).unwrap().segments()).collect::<Vec<_>>()
    };
    assert_eq!(joined(100, 130), [64, 64, 2]);
    assert_eq!(joined(1_428, 90), [45, 45]);
    assert_eq!(joined(40_000, 3), [1, 1, 1]);
}

#[test]
fn what_does_not_follow_keeps_its_place_in_its_flow() {
    let [a, b, c, d] = stream(400).segments(100).try_into().unwrap();
    let ack = Spec { acknowledgement: 6, payload: Vec::new(), ..d.clone() };
    let all = [a.clone(), b.clone(), ack, d, c];
    let outputs = join(&mut Joiner::new(), &partials(&all));
    assert_eq!(outputs.len(), 4);
    let cut: Vec<_> = outputs.iter().flat_map(|(header, packet)| cut_all(header, packet)).collect();
    assert_eq!(cut, all.map(|spec| spec.complete()));
}

#[test]
fn acks_of_other_flows_end_no_super_packet() {
    let segments = stream(400).segments(100);
    // Among so many ports are some whose flows share the place of the stream's.
    for port in 2_000..2_200 {
        let ack = Spec { ports: [port, 80], payload: Vec::new(), ..stream(0) };
        let all: Vec<_> = segments.iter().flat_map(|segment| [segment.clone(), ack.clone()]).collect();
        assert_eq!(join(&mut Joiner::new(), &partials(&all)).len(), 4 + 1);
    }
}

#[test]
fn packets_with_complete_checksums_go_alone() {
    let all: Vec<_> = stream(400).segments(100).iter().map(|spec| (spec.complete(), false)).collect();
    let outputs = join(&mut Joiner::new(), &all);
    assert_eq!(outputs, all.into_iter().map(|(packet, _)| (VnetHeader::default(), packet)).collect::<Vec<_>>());
}

#[test]
fn a_batch_that_is_dropped_leaves_nothing_open() {
    let mut joiner = Joiner::new();
    let packets = partials(&stream(400).segments(100));
    let mut batch = joiner.begin();
    assert!(batch.push(&packets[0].0, true, &mut |_, _| {}));
    drop(batch);
    assert_eq!(join(&mut joiner, &packets[1..]).len(), 1);
}

#[test]
fn a_batch_leaves_its_memory_to_the_next() {
    let mut joiner = Joiner::new();
    let before = joiner.payloads_address();
    for _ in 0..3 {
        join(&mut joiner, &partials(&stream(40_000).segments(1_000)));
    }
    assert_eq!(joiner.payloads_address(), before);
}

#[test]
fn a_partial_checksum_of_what_has_none_is_refused() {
    let mut fragment = stream(10).complete();
    fragment[6] = 44;
    let mut joiner = Joiner::new();
    let mut batch = joiner.begin();
    assert!(!batch.push(&fragment, true, &mut |_, _| {}));
    assert!(batch.push(&fragment, false, &mut |_, _| {}));
    assert!(!batch.push(&fragment[1..], false, &mut |_, _| {}));
}

#[test]
fn malformed_super_packets_are_refused() {
    let (good, packet) = super_packet(&stream(2_000), 100);
    assert!(Cut::new(&good, &packet).is_some());
    let bad = [
        VnetHeader { gso_size: 0, ..good },
        VnetHeader { gso_size: 1, ..good },
        VnetHeader { gso_type: GSO_TCPV4, ..good },
        VnetHeader { gso_type: GSO_UDP_L4, ..good },
        VnetHeader { gso_type: 3, ..good },
        VnetHeader { csum_start: 60, ..good },
        VnetHeader { csum_start: 20_000, ..good },
        VnetHeader { csum_offset: 6, ..good },
        VnetHeader { flags: 0, ..good },
    ];
    for header in bad {
        assert!(Cut::new(&header, &packet).is_none(), "{header:?}");
    }
    assert!(Cut::new(&good, &packet[..packet.len() - 1]).is_none());
}

#[test]
fn what_is_longer_than_a_length_can_say_is_cut_too() {
    for v6 in [false, true] {
        let spec = Spec { v6, ..stream(65_536) };
        let (header, packet) = super_packet(&spec, 1_000);
        assert_eq!(cut_all(&header, &packet), spec.segments(1_000).iter().map(Spec::complete).collect::<Vec<_>>());
        assert!(Cut::new(&VnetHeader { gso_type: GSO_NONE, ..header }, &packet).is_none());
    }
}

/// Random packets of two flows: a stream's segments, of which some are lost, repeated, divided or altered.
fn any_arrivals() -> impl Strategy<Value = Vec<Spec>> {
    let change = prop_oneof![20 => Just(0u8), 2 => Just(1), 1 => 2..10u8];
    let changes = prop::collection::vec((change, any::<bool>()), 1..80);
    (any_spec(1, false), any_spec(1, false), 1..60usize, 0..60usize, changes).prop_map(
        |(one, two, size, last, changes)| {
            let len = (changes.len() - 1) * size + last.clamp(1, size);
            let of =
                |spec: &Spec| Spec { payload: vec![7; len], flags: spec.flags | ACK, ..spec.clone() }.segments(size);
            let (one, two) = (of(&one), of(&two));
            let mut arrivals = Vec::new();
            for (at, (change, second)) in changes.iter().enumerate() {
                let mut spec = if *second { two[at].clone() } else { one[at].clone() };
                match change {
                    1 => continue,
                    2 => spec.flags |= PSH,
                    3 => spec.window ^= 1,
                    4 => spec.hops ^= 1,
                    5 => spec.payload.truncate(size / 2),
                    6 => spec.id = spec.id.wrapping_add(5),
                    7 => spec.class ^= 1,
                    8 => arrivals.extend(arrivals.last().cloned()),
                    9 => {
                        let rest = spec.payload.split_off(spec.payload.len() / 2);
                        arrivals.push(spec.clone());
                        spec.sequence = spec.sequence.wrapping_add(spec.payload.len() as u32);
                        spec.payload = rest;
                    }
                    _ => {}
                }
                arrivals.push(spec);
            }
            arrivals
        },
    )
}

/// The version, addresses and ports of a packet. Two flows may have one port in common.
fn flow_of(packet: &[u8]) -> (u8, Vec<u8>) {
    let headers = Headers::parse(packet).unwrap();
    let addresses = if headers.version == 4 { 12..20 } else { 8..40 };
    (headers.version, [&packet[addresses], &packet[usize::from(headers.transport)..][..4]].concat())
}

fn of_flow<'s>(packets: &'s [Vec<u8>], flow: &Spec) -> Vec<&'s Vec<u8>> {
    let flow = flow_of(&flow.complete());
    packets.iter().filter(|packet| flow_of(packet) == flow).collect()
}

/// A packet with its identification as it would be cut: where it must not be fragmented, this means nothing.
fn without_id(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

proptest! {
    #[test]
    fn segments_are_the_packets_of_a_sender_without_offloads(spec in any_spec(4_000, true), size in 4..2_000u16) {
        let (header, packet) = super_packet(&spec, size);
        let expected: Vec<_> = spec.segments(size.into()).iter().map(Spec::complete).collect();
        prop_assert_eq!(Cut::new(&header, &packet).unwrap().segments(), expected.len());
        prop_assert_eq!(cut_all(&header, &packet), expected);
    }

    #[test]
    fn a_single_packet_stays_as_it_is(spec in any_spec(100, true)) {
        let header = super_packet(&spec, 1).0;
        let header = VnetHeader { gso_type: GSO_NONE, gso_size: 0, ..header };
        prop_assert_eq!(cut_all(&header, &spec.partial()), vec![spec.complete()]);
        prop_assert_eq!(cut_all(&VnetHeader::default(), &spec.complete()), vec![spec.complete()]);
    }

    #[test]
    fn what_is_joined_and_cut_again_is_what_has_come(arrivals in any_arrivals()) {
        let outputs = join(&mut Joiner::new(), &partials(&arrivals));
        let cut: Vec<_> =
            outputs.iter().flat_map(|(header, packet)| cut_all(header, packet)).map(|packet| without_id(&packet)).collect();
        let sent: Vec<_> = arrivals.iter().map(|spec| without_id(&spec.complete())).collect();
        prop_assert_eq!(cut.len(), sent.len());
        for spec in &arrivals {
            prop_assert_eq!(of_flow(&cut, spec), of_flow(&sent, spec));
        }
    }

    #[test]
    fn as_much_is_joined_as_the_reference_joins(arrivals in any_arrivals()) {
        let port = arrivals.first().map(|spec| spec.ports[0]);
        let one: Vec<_> = arrivals.into_iter().filter(|spec| Some(spec.ports[0]) == port).collect();
        prop_assert_eq!(join(&mut Joiner::new(), &partials(&one)).len(), expected_joins(&one));
    }

    #[test]
    fn any_part_of_a_super_packet_is_joined_and_cut_again(spec in any_spec(3_000, false), size in 40..400u16, part: u128) {
        let spec = Spec { flags: spec.flags & (PSH | FIN | CWR) | ACK, ..spec };
        let all = spec.segments(size.into());
        let some: Vec<_> = all.into_iter().enumerate().filter(|(at, _)| part >> at & 1 == 1).map(|(_, spec)| spec).collect();
        let outputs = join(&mut Joiner::new(), &partials(&some));
        let cut: Vec<_> = outputs.iter().flat_map(|(header, packet)| cut_all(header, packet)).collect();
        prop_assert_eq!(cut, some.iter().map(Spec::complete).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_cutting_or_joining_panic(
        spec in any_spec(300, true),
        bytes in prop::collection::vec((0..400usize, any::<u8>()), 0..4),
        len in 0..500usize,
        header in any::<[u8; VnetHeader::LEN]>(),
        (ours, kept) in (any::<bool>(), 0..5u8),
    ) {
        let (mut given, mut packet) = super_packet(&spec, u16::from(header[0]));
        packet.truncate(len);
        for (at, byte) in bytes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        let (random, _) = VnetHeader::split(&header).unwrap();
        match kept {
            0 => given.csum_start = random.csum_start,
            1 => given.gso_type = random.gso_type,
            2 => given.csum_offset = random.csum_offset,
            _ => {}
        }
        let header = if ours { given } else { random };
        if let Some(cut) = Cut::new(&header, &packet) {
            let mut payload = 0;
            for at in 0..cut.segments() + 2 {
                let mut headers = [0; MAX_HEADERS];
                let (len, bytes) = cut.segment(at, &mut headers);
                prop_assert_eq!(at < cut.segments(), len > 0);
                let segment = [&headers[..len], bytes].concat();
                prop_assert!(len == 0 || Headers::parse(&segment).is_some());
                payload += bytes.len();
            }
            prop_assert_eq!(payload, cut_payload(&cut, &packet));
        }
        let mut joiner = Joiner::new();
        let mut batch = joiner.begin();
        for _ in 0..3 {
            batch.push(&packet, ours, &mut |_, _| {});
        }
        batch.flush(&mut |_, _| {});
    }
}

fn cut_payload(cut: &Cut<'_>, packet: &[u8]) -> usize {
    let mut headers = [0; MAX_HEADERS];
    packet.len() - cut.segment(0, &mut headers).0
}

/// The nanoseconds that a run takes: the least of many, as others use the machine too.
fn fastest(mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let began = std::time::Instant::now();
        (0..100).for_each(|_| run());
        began.elapsed().as_nanos()
    };
    (0..300).map(time).min().unwrap() as f64 / 100.0
}

#[test]
#[ignore = "measures"]
fn what_cutting_and_joining_costs() {
    for v6 in [false, true] {
        let (size, segments) = (1_428, 45);
        let spec = Spec { v6, ..stream(size * segments) };
        let (header, packet) = super_packet(&spec, size as u16);
        let cutting = fastest(|| {
            let cut = Cut::new(&header, std::hint::black_box(&packet)).unwrap();
            for at in 0..cut.segments() {
                let mut headers = [0; MAX_HEADERS];
                std::hint::black_box(cut.segment(at, &mut headers));
                std::hint::black_box(&headers);
            }
        });
        let packets = partials(&spec.segments(size));
        let mut joiner = Joiner::new();
        let mut joining = |packets: &[(Vec<u8>, bool)]| {
            let mut batch = joiner.begin();
            let mut out = |_: &VnetHeader, slices: &[IoSlice<'_>]| {
                std::hint::black_box(slices);
            };
            for (packet, partial) in packets {
                batch.push(std::hint::black_box(packet), *partial, &mut out);
            }
            batch.flush(&mut out);
        };
        let all = fastest(|| joining(&packets));
        let single = fastest(|| joining(&packets[..1]));
        let (cutting, all) = (cutting / segments as f64, all / segments as f64);
        println!("v6 {v6}: {cutting:.1} ns a segment to cut, {all:.1} to join, {single:.1} for a batch of one");
    }
}
