//! Packets for tests, written in the slowest and most obvious manner.

use proptest::prelude::*;

use super::{ACK, CWR, FIN, PSH, TCP, UDP};

/// What a packet says.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub v6: bool,
    pub udp: bool,
    pub addresses: [[u8; 16]; 2],
    pub ports: [u16; 2],
    pub class: u8,
    pub hops: u8,
    pub id: u16,
    pub dont_fragment: bool,
    /// IPv4's options, or as many bytes of IPv6's destination options.
    pub ip_options: Vec<u8>,
    pub tcp_options: Vec<u8>,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub window: u16,
    pub payload: Vec<u8>,
}

impl Spec {
    /// The packet with complete checksums.
    pub fn complete(&self) -> Vec<u8> {
        self.packet(false)
    }

    /// The packet with the sum of the pseudo-header in the place of the transport's checksum.
    pub fn partial(&self) -> Vec<u8> {
        self.packet(true)
    }

    fn packet(&self, partial: bool) -> Vec<u8> {
        let protocol = if self.udp { UDP } else { TCP };
        let mut transport = self.transport();
        let at = if self.udp { 6 } else { 16 };
        let pseudo = [self.addresses(), vec![0, protocol], (transport.len() as u32).to_be_bytes().to_vec()].concat();
        let covered = if partial { pseudo } else { [pseudo, transport.clone()].concat() };
        let sum = reference_checksum(&covered);
        let sum = if partial { !sum } else { sum };
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        [self.ip(protocol, transport.len()), transport].concat()
    }

    fn addresses(&self) -> Vec<u8> {
        let len = if self.v6 { 16 } else { 4 };
        self.addresses.iter().flat_map(|address| address[..len].to_vec()).collect()
    }

    fn ip(&self, protocol: u8, behind: usize) -> Vec<u8> {
        let options = self.ip_options.len();
        if self.v6 {
            let mut header = vec![0x60 | self.class >> 4, self.class << 4, 0x12, 0x34];
            header.extend(length(options + behind).to_be_bytes());
            header.extend([if options > 0 { 60 } else { protocol }, self.hops]);
            header.extend(self.addresses());
            header.extend(&self.ip_options);
            if options > 0 {
                (header[40], header[41]) = (protocol, (options / 8 - 1) as u8);
            }
            return header;
        }
        let mut header = vec![0x40 | (5 + options / 4) as u8, self.class];
        header.extend(length(20 + options + behind).to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend([u8::from(self.dont_fragment) << 6, 0, self.hops, protocol, 0, 0]);
        header.extend(self.addresses());
        header.extend(&self.ip_options);
        let sum = reference_checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn transport(&self) -> Vec<u8> {
        let mut header: Vec<u8> = self.ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        if self.udp {
            header.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            header.extend([0, 0]);
        } else {
            header.extend(self.sequence.to_be_bytes());
            header.extend(self.acknowledgement.to_be_bytes());
            header.extend([((5 + self.tcp_options.len() / 4) << 4) as u8, self.flags]);
            header.extend(self.window.to_be_bytes());
            header.extend([0; 4]);
            header.extend(&self.tcp_options);
        }
        [header, self.payload.clone()].concat()
    }

    /// The packets that a sender without offloads would have sent.
    pub fn segments(&self, size: usize) -> Vec<Spec> {
        let all: Vec<&[u8]> = if self.payload.is_empty() { vec![&[]] } else { self.payload.chunks(size).collect() };
        let last = all.len() - 1;
        let segment = |(at, payload): (usize, &&[u8])| {
            let mut flags = self.flags;
            if at > 0 {
                flags &= !CWR;
            }
            if at < last {
                flags &= !(FIN | PSH);
            }
            let sequence = self.sequence.wrapping_add((at * size) as u32);
            let id = self.id.wrapping_add(at as u16);
            Spec { payload: payload.to_vec(), flags, sequence, id, ..self.clone() }
        };
        all.iter().enumerate().map(segment).collect()
    }

    /// A packet of the other direction.
    pub fn reversed(&self) -> Spec {
        let ([from, to], [a, b]) = (self.addresses, self.ports);
        Spec { addresses: [to, from], ports: [b, a], ..self.clone() }
    }
}

/// The kernel writes zero for a length that does not fit.
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(0)
}

/// The checksum of RFC 1071. A sum with end-around carry is one modulo 0xffff, in which zero comes from nothing but zeroes.
pub fn reference_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    match words.sum::<u64>() {
        0 => 0xffff,
        sum => !(((sum - 1) % 0xffff + 1) as u16),
    }
}

/// Completes a partial checksum as a network card does: adds all up from where TCP or UDP begins.
pub fn finish(packet: &[u8]) -> Vec<u8> {
    let headers = super::Headers::parse(packet).unwrap().behind_extensions(packet).unwrap();
    let (at, offset) = (usize::from(headers.transport), headers.checksum_offset());
    let mut packet = packet.to_vec();
    let sum = reference_checksum(&packet[at..]);
    packet[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// TCP's or UDP's packets, with extension headers too where these may be.
pub fn any_spec(max: usize, with_extensions: bool) -> impl Strategy<Value = Spec> {
    let ip =
        (any::<bool>(), any::<[[u8; 16]; 2]>(), any::<[u16; 2]>(), any::<[u8; 2]>(), any::<(u16, bool)>(), 0..=5usize);
    let tcp = (any::<bool>(), tcp_options(), any::<[u32; 2]>(), any::<u16>(), flags());
    (ip, tcp, payload(max)).prop_map(move |(ip, tcp, payload)| {
        let (v6, addresses, ports, [class, hops], (id, dont_fragment), options) = ip;
        let (udp, tcp_options, [sequence, acknowledgement], window, flags) = tcp;
        let options = if v6 && !with_extensions { 0 } else { options };
        let ip_options = vec![1; options * 8];
        let (udp, sequence) = (udp && with_extensions, sequence);
        Spec {
            v6,
            udp,
            addresses,
            ports,
            class,
            hops,
            id,
            dont_fragment,
            ip_options,
            tcp_options,
            sequence,
            acknowledgement,
            flags,
            window,
            payload,
        }
    })
}

fn payload(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 1..=max)]
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(ACK), 2 => Just(ACK | PSH), 1 => Just(ACK | FIN), 1 => Just(ACK | CWR), 1 => any::<u8>()]
}

/// Options in any order, filled up with "no operation".
fn tcp_options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        any::<[u8; 2]>().prop_map(|[a, b]| vec![2, 4, a, b]),
        any::<u8>().prop_map(|shift| vec![3, 3, shift]),
        any::<[u8; 8]>().prop_map(|times| [vec![8, 10], times.to_vec()].concat()),
        Just(vec![30, 3, 9]),
    ];
    prop::collection::vec(option, 0..5).prop_map(|options| {
        let mut bytes: Vec<u8> = options.concat();
        bytes.resize(bytes.len().next_multiple_of(4).min(40), 1);
        bytes
    })
}
