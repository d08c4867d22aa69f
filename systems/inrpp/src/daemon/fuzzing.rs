//! What fuzz targets call: any bytes, as neighbours, the kernel and other processes could send them.

use std::io::IoSlice;

use sidestep_net::Time;

use super::{
    connections::Connections,
    headers::{self, AckTemplate, Headers, TcpFields, checksum},
    link, message,
    segments::{Cut, GSO_NONE, Joiner, MAX_HEADERS, VnetHeader},
    session::Session,
    takeover::Saved,
};

/// Reads bytes as what the first one names: a datagram of a neighbour or its body, a packet, a TUN device's super-packet, packets
/// to be joined, a stream of a TCP link, or what a router hands to its successor.
pub fn read(bytes: &[u8]) {
    let Some((what, rest)) = bytes.split_first() else { return };
    // A copy of just this length, so that a look beyond its end is noticed.
    let exact = rest.to_vec().into_boxed_slice();
    match what % 6 {
        0 => message::fuzz(&exact),
        1 => read_packet(&exact),
        2 => cut_and_join(&exact),
        3 => join(&exact),
        4 => link::fuzz_stream(&exact),
        _ => read_saved(&exact),
    }
}

/// Changes a packet as the router does: only what it means to change, and no checksum that was right becomes wrong.
fn read_packet(packet: &[u8]) {
    let Some(headers) = Headers::parse(packet) else { return };
    assert!(usize::from(headers.len) <= packet.len() && headers.total as usize == packet.len());
    assert_eq!(headers::flow(packet, &headers, [1, 2]).key & 1, 0);
    if let Some(inner) = headers.behind_extensions(packet) {
        assert!(headers.len <= inner.len && usize::from(inner.len) <= packet.len());
    }
    let Some(fields) = headers::tcp(packet, &headers) else { return };
    let was_right = is_right(packet, &headers);
    let mut changed = packet.to_vec();
    headers::set_window(&mut changed, &headers, 0x1234, false);
    assert_eq!(Headers::parse(&changed), Some(headers));
    assert_eq!(headers::tcp(&changed, &headers), Some(TcpFields { window: 0x1234, ..fields }));
    let is_syn = headers::syn_options(&changed, &headers).is_some();
    assert_eq!(is_syn, fields.has(headers::SYN));
    assert!(!headers::clamp_mss(&mut changed, &headers, 1_000, false) || is_syn);
    assert!(!headers::clamp_mss(&mut changed, &headers, 1_000, false), "it is not above any more");
    assert!(!was_right || is_right(&changed, &headers));
    if let Some(template) = AckTemplate::of(packet, &headers) {
        let mut ack = [0; AckTemplate::MAX_LEN];
        let len = template.write(7, &mut ack);
        let ack = ack.get(..len).unwrap_or_default();
        let read = Headers::parse(ack).and_then(|headers| headers::tcp(ack, &headers));
        let expected = Some((fields.acknowledgement, headers::ACK, 7, 0));
        assert_eq!(read.map(|tcp| (tcp.acknowledgement, tcp.flags, tcp.window, tcp.payload)), expected);
    }
}

/// Whether the transport checksum is right.
fn is_right(packet: &[u8], headers: &Headers) -> bool {
    let behind = packet.get(usize::from(headers.transport)..).unwrap_or_default();
    checksum::fold(checksum::pseudo_header(packet, headers, behind.len()) + checksum::sum(behind)) == 0xffff
}

/// Cuts a super-packet, and joins its segments again.
fn cut_and_join(bytes: &[u8]) {
    let Some((header, packet)) = VnetHeader::split(bytes) else { return };
    let Some(cut) = Cut::new(&header, packet) else { return };
    let segment = |at| {
        let mut headers = [0; MAX_HEADERS];
        let (len, payload) = cut.segment(at, &mut headers);
        [headers.get(..len).unwrap_or_default(), payload].concat()
    };
    let segments: Vec<Vec<u8>> = (0..cut.segments()).map(segment).collect();
    let read: Vec<Headers> = segments.iter().filter_map(|segment| Headers::parse(segment)).collect();
    assert_eq!(read.len(), segments.len(), "each is a packet");
    let packets: Vec<&[u8]> = segments.iter().map(|segment| &segment[..]).collect();
    check_joined(&packets, cut.partial());
}

/// Joins packets, each of which has its length before it.
fn join(mut bytes: &[u8]) {
    let mut packets = Vec::new();
    while let Some((&[high, low], rest)) = bytes.split_first_chunk()
        && let Some((packet, rest)) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())
    {
        packets.push(packet);
        bytes = rest;
    }
    for partial in [false, true] {
        check_joined(&packets, partial);
    }
}

/// Whatever comes out of a joiner can be cut into as many segments as went in.
fn check_joined(packets: &[&[u8]], partial: bool) {
    let (mut taken, mut segments) = (0, 0);
    let mut joiner = Joiner::new();
    let mut out = |header: &VnetHeader, slices: &[IoSlice<'_>]| {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let Some((first, packet)) = VnetHeader::split(&bytes) else { panic!("no header before a packet") };
        assert_eq!(first, *header);
        let cut = Cut::new(header, packet);
        // What is passed as it came may have longer headers than a super-packet.
        assert!(cut.is_some() || header.gso_type == GSO_NONE);
        segments += cut.map_or(1, |cut| cut.segments());
    };
    let mut batch = joiner.begin();
    for packet in packets {
        taken += usize::from(batch.push(packet, partial, &mut out));
    }
    batch.flush(&mut out);
    assert_eq!(segments, taken);
}

/// Reads what a router hands to its successor, and begins with it.
fn read_saved(text: &[u8]) {
    let Ok(saved) = serde_json::from_slice::<Saved>(text) else { return };
    let mut connections = Connections::new(4);
    for row in &saved.connections {
        connections.import(Time::ZERO, row);
    }
    for session in saved.ports.iter().filter_map(|port| Some(port.neighbour.as_ref()?.session)) {
        if let Some(mut session) = Session::from_saved("us", None, None, &session) {
            let _ = session.hello(&message::About::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn the_seeds_of_the_fuzz_target_are_read() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/inrpp_packets");
        let seeds: Vec<Vec<u8>> =
            fs::read_dir(seeds).unwrap().map(|seed| fs::read(seed.unwrap().path()).unwrap()).collect();
        for what in 0..6 {
            assert!(seeds.iter().any(|seed| seed[0] == what), "{what}");
        }
        seeds.iter().for_each(|seed| read(seed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(what in 0..6_u8, bytes in vec(any::<u8>(), 0..120)) {
            read(&[&[what][..], &bytes].concat());
        }
    }
}
