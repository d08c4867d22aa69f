//! Packets of links as files that Wireshark and tcpdump open.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    net::Ipv6Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use etherparse::{IpNumber, Ipv6FlowLabel, Ipv6Header, TcpHeader, UdpHeader};
use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::EnhancedPacketBlock,
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};
use sidestep_net::{ArcId, Direction, LinkId, NodeId, Time, Topology, srv6};
use sidestep_proto::packet::{Flags, Kind, Packet};
use sidestep_results::WriteError;

use sidestep_engine::{Copied, FlowId};

/// A flow's ends and what its numbers stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoints {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) ports: (u16, u16),
    /// Payload of a segment.
    pub(super) mss: u16,
    /// What the connection's options take of every segment, beside the timestamps.
    pub(super) options: u16,
    /// Whether it is a subflow of MPTCP.
    pub(super) multipath: bool,
    /// Number and payload of the last one, of TCP.
    pub(super) last: Option<(u32, u16)>,
    /// The segment that was seen to say that nothing follows.
    pub(super) fin: Option<u32>,
    /// The flow of the data that the other end sends, if both do.
    pub(super) other: Option<FlowId>,
}

/// A file for each link that is watched; its interface 0 is the link from its first end, 1 from its second.
pub(super) struct Capture {
    addresses: Vec<Ipv6Addr>,
    files: Vec<(LinkId, PathBuf, PcapNgWriter<BufWriter<File>>)>,
    flows: Vec<Option<Endpoints>>,
}

/// What a window of the SYN's scale counts in: 2¹⁴ bytes, the most that RFC 7323 has.
const WINDOW_SCALE: u8 = 14;
/// Bytes of options that a TCP header has room for.
const MAX_OPTIONS: usize = 40;
/// A hop limit as the simulator, which does not count hops, has it on the whole route.
const HOP_LIMIT: u8 = 64;

impl Capture {
    /// Makes `dir` and a file for each link in it.
    pub(super) fn new(dir: &Path, topology: &Topology, links: &[LinkId]) -> Result<Self, WriteError> {
        fs::create_dir_all(dir).map_err(|source| io_error("make", dir, source))?;
        let addresses =
            topology.nodes().iter().map(|node| node.prefix.map_or(Ipv6Addr::UNSPECIFIED, srv6::host_address));
        let mut files = Vec::new();
        for link in links {
            let of = topology.link(*link);
            let path = dir.join(format!("{}.pcapng", of.name));
            let open = || -> Result<_, PcapError> {
                let mut writer = PcapNgWriter::new(BufWriter::new(File::create(&path).map_err(PcapError::IoError)?))?;
                for direction in [Direction::AToB, Direction::BToA] {
                    let arc = link.arc(direction);
                    let [from, to] = [topology.tail(arc), topology.head(arc)].map(|node| &topology.node(node).name);
                    let mut interface = InterfaceDescriptionBlock::new(DataLink::IPV6, 0);
                    interface.options = vec![
                        InterfaceDescriptionOption::IfName(format!("{from} to {to}").into()),
                        // Times are in nanoseconds.
                        InterfaceDescriptionOption::IfTsResol(9),
                    ];
                    writer.write_pcapng_block(interface)?;
                }
                Ok(writer)
            };
            let writer = open().map_err(|error| pcap_error("create", &path, error))?;
            files.push((*link, path, writer));
        }
        Ok(Capture { addresses: addresses.collect(), files, flows: Vec::new() })
    }

    /// The arcs to watch.
    pub(super) fn arcs(&self) -> Vec<ArcId> {
        let both = |link: LinkId| [Direction::AToB, Direction::BToA].map(|direction| link.arc(direction));
        self.files.iter().flat_map(|(link, ..)| both(*link)).collect()
    }

    /// Says whose packets those of a flow are.
    pub(super) fn opened(&mut self, flow: FlowId, endpoints: Endpoints) {
        let index = flow.0 as usize;
        if self.flows.len() <= index {
            self.flows.resize(index + 1, None);
        }
        self.flows[index] = Some(endpoints);
    }

    /// Writes packets: their headers, and of the length that they have on the link, encapsulation included.
    pub(super) fn write(&mut self, copies: &[Copied]) -> Result<(), WriteError> {
        for copied in copies {
            let Some(Some(endpoints)) = self.flows.get_mut(copied.packet.flow as usize) else { continue };
            if copied.packet.kind == Kind::Data && copied.packet.flags.has(Flags::FIN) {
                endpoints.fin = Some(copied.packet.seq);
            }
            let endpoints = *endpoints;
            let Some(number) = self.files.iter().position(|(link, ..)| *link == copied.arc.link()) else { continue };
            let addresses = [endpoints.from, endpoints.to].map(|node| self.addresses[node.index()]);
            let other = endpoints.other.and_then(|other| self.flows.get(other.0 as usize)?.as_ref());
            let data = headers(copied.time, &copied.packet, (&endpoints, other), addresses);
            let (link, path, writer) = &mut self.files[number];
            let block = EnhancedPacketBlock {
                interface_id: u32::from(copied.arc != link.arc(Direction::AToB)),
                timestamp: Duration::from_nanos(copied.time.as_nanos()),
                original_len: u32::from(copied.packet.len) + u32::from(copied.extra),
                data: data.into(),
                options: Vec::new(),
            };
            writer.write_pcapng_block(block).map_err(|error| pcap_error("write", path, error))?;
        }
        Ok(())
    }

    /// Completes the files.
    pub(super) fn finish(self) -> Result<(), WriteError> {
        for (_, path, writer) in self.files {
            writer.into_inner().flush().map_err(|source| io_error("write", &path, source))?;
        }
        Ok(())
    }
}

/// The packet's headers as they would be: IPv6, and TCP with its options or UDP.
fn headers(
    time: Time,
    packet: &Packet,
    (of, other): (&Endpoints, Option<&Endpoints>),
    addresses: [Ipv6Addr; 2],
) -> Vec<u8> {
    let forward = matches!(packet.kind, Kind::Data | Kind::Syn | Kind::HandshakeAck | Kind::LastAck | Kind::Cbr);
    let ([source, destination], (from, to)) = match forward {
        true => (addresses, of.ports),
        false => ([addresses[1], addresses[0]], (of.ports.1, of.ports.0)),
    };
    let ecn = match (packet.flags.has(Flags::CE), packet.flags.has(Flags::ECT)) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 0,
    };
    let datagram = packet.kind == Kind::Cbr;
    let ip = Ipv6Header {
        traffic_class: ecn,
        // Path changes by flow label are not shown: the simulator moves flows, it does not relabel packets.
        flow_label: Ipv6FlowLabel::ZERO,
        payload_length: packet.len.saturating_sub(40),
        next_header: if datagram { IpNumber::UDP } else { IpNumber::TCP },
        hop_limit: HOP_LIMIT,
        source: source.octets(),
        destination: destination.octets(),
    };
    let mut bytes = ip.to_bytes().to_vec();
    if datagram {
        let udp =
            UdpHeader { source_port: from, destination_port: to, length: packet.len.saturating_sub(40), checksum: 0 };
        bytes.extend(udp.to_bytes());
        return bytes;
    }
    let mut tcp = tcp_header(time, packet, of, (from, to));
    if let Some(other) = other {
        // Data acknowledges, and ACKs lie between data.
        match packet.kind {
            Kind::Data => tcp.acknowledgment_number = other.end(packet.data_seq),
            Kind::Ack => tcp.sequence_number = other.end(packet.data_seq),
            _ => {}
        }
    }
    bytes.extend_from_slice(&tcp.to_bytes());
    bytes
}

impl Endpoints {
    /// The sequence number of a segment's first byte: a SYN counts as one, and so does the FIN after the last.
    fn byte(&self, segment: u32) -> u32 {
        let (segment, short) = match self.last {
            // What follows is a FIN of its own.
            Some((last, payload)) if segment > last => (last + 1, u32::from(self.mss - payload)),
            _ => (segment, 0),
        };
        segment.wrapping_mul(self.mss.into()).wrapping_sub(short).wrapping_add(1)
    }

    /// Where everything ends below a segment: the FIN included.
    fn end(&self, segment: u32) -> u32 {
        let own = || self.last.is_some_and(|(last, _)| segment > last + 1);
        let fin = self.fin.map_or_else(own, |fin| segment > fin);
        self.byte(segment).wrapping_add(fin.into())
    }
}

fn tcp_header(time: Time, packet: &Packet, of: &Endpoints, ports: (u16, u16)) -> TcpHeader {
    let syn = matches!(packet.kind, Kind::Syn | Kind::SynAck);
    let acknowledges = matches!(packet.kind, Kind::Ack | Kind::SynAck);
    let data = packet.kind == Kind::Data;
    let sequence = match packet.kind {
        Kind::Data => of.byte(packet.seq),
        Kind::LastAck => of.byte(packet.seq).wrapping_add(1),
        _ => u32::from(!syn),
    };
    let mut tcp = TcpHeader::new(ports.0, ports.1, sequence, 0);
    tcp.syn = syn;
    tcp.ack = packet.kind != Kind::Syn;
    tcp.acknowledgment_number = match packet.kind {
        // What carries a FIN has that of the other end.
        Kind::Ack if packet.flags.has(Flags::FIN) => of.byte(packet.seq).wrapping_add(1),
        Kind::Ack => of.end(packet.seq),
        Kind::LastAck => 2,
        Kind::Syn => 0,
        _ => 1,
    };
    tcp.fin = packet.flags.has(Flags::FIN);
    tcp.psh = data;
    tcp.ece = packet.flags.has(Flags::ECE);
    tcp.cwr = packet.flags.has(Flags::CWR);
    let window = u64::from(if acknowledges { packet.window } else { u32::MAX }) * u64::from(of.mss);
    tcp.window_size = (if syn { window } else { window >> WINDOW_SCALE }).min(u16::MAX.into()) as u16;
    // Cannot fail: 20 bytes of a SYN; or 12 of timestamps and either 28 of three blocks, or 12 of one and 12 of MPTCP's ACK.
    let _ = tcp.set_options_raw(&options(time, packet, of));
    tcp
}

fn options(time: Time, packet: &Packet, of: &Endpoints) -> Vec<u8> {
    let syn = matches!(packet.kind, Kind::Syn | Kind::SynAck);
    let acknowledges = matches!(packet.kind, Kind::Ack | Kind::SynAck);
    // Microseconds: RFC 7323 leaves the unit to the sender.
    let micros = |time: Option<Time>| time.map_or(0, |time| (time.as_nanos() / 1_000) as u32);
    let sent = packet.sent.get();
    let (value, echo) = if acknowledges { (Some(time), sent) } else { (sent, None) };
    let mut options = Vec::with_capacity(MAX_OPTIONS);
    if syn {
        options.extend([2, 4]);
        options.extend((of.mss + of.options).to_be_bytes());
        options.extend([4, 2]);
    } else {
        options.extend([1, 1]);
    }
    options.extend([8, 10]);
    options.extend(micros(value).to_be_bytes());
    options.extend(micros(echo).to_be_bytes());
    if syn {
        options.extend([1, 3, 3, WINDOW_SCALE]);
    }
    let blocks: Vec<_> = packet.sack.iter().filter(|block| **block != (0, 0) && acknowledges).collect();
    if !blocks.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (from, to) in blocks {
            for edge in [from, to] {
                options.extend(of.byte(packet.seq + u32::from(*edge)).to_be_bytes());
            }
        }
    }
    if of.multipath && !syn {
        // Data sequence signal (RFC 8684, section 3.3): an ACK of 8 bytes, or an ACK and a mapping of 4 with a checksum.
        let data_byte = packet.data_seq.wrapping_mul(of.mss.into()).wrapping_add(1);
        if acknowledges {
            options.extend([30, 12, 0x20, 0x03]);
            options.extend(u64::from(data_byte).to_be_bytes());
        } else {
            options.extend([30, 20, 0x20, 0x05]);
            for number in [1, data_byte, of.byte(packet.seq)] {
                options.extend(number.to_be_bytes());
            }
            options.extend(packet.payload.to_be_bytes());
            options.extend([0, 0]);
        }
    }
    options
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> WriteError {
    WriteError::Io { action, path: path.to_owned(), source }
}

fn pcap_error(action: &'static str, path: &Path, error: PcapError) -> WriteError {
    let source = match error {
        PcapError::IoError(source) => source,
        other => io::Error::other(other),
    };
    io_error(action, path, source)
}
