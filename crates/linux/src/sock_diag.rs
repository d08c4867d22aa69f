//! What the kernel knows of TCP connections: the sockets of a network namespace over `NETLINK_SOCK_DIAG`, and
//! `TCP_INFO` of one socket.
//!
//! A dump is cheap enough to be asked for often: it fills buffers that are kept, and reads only those attributes of an
//! answer that it reports.

mod destroy;
mod find;
mod state;

use std::{
    io,
    mem::offset_of,
    net::{IpAddr, Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd},
};

use libc::tcp_info;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NlasIterator, Parseable,
};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, INET_DIAG_INFO, INET_DIAG_MARK, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY, SockDiagMessage,
    inet::{ExtensionFlags, InetRequest, InetResponseBuffer, InetResponseHeader, SocketId, StateFlags},
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use sidestep_net::{Rate, Span};

pub use self::{
    destroy::{Ended, Unanswered},
    find::FoundSocket,
    state::TcpState,
};
use crate::error::{LinuxError, Result};

/// Asks the kernel for the TCP sockets of one network namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

/// A TCP connection as the kernel sees it at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// This end.
    pub local: SocketAddrV6,
    /// The other end.
    pub remote: SocketAddrV6,
    /// The connection's state.
    pub state: TcpState,
    /// The kernel's name for the socket (`SO_COOKIE`), never used twice.
    pub cookie: u64,
    /// The routing mark (`SO_MARK`); zero also where the caller lacks `CAP_NET_ADMIN`.
    pub mark: u32,
    /// Its congestion control and its counters.
    pub info: TcpInfo,
}

/// The part of the kernel's `TCP_INFO` that sidestep uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Slow-start threshold in packets; about 2³¹ before the first congestion.
    pub snd_ssthresh: u32,
    /// Size of a full segment's payload in bytes.
    pub mss: u32,
    /// Smoothed round-trip time in microseconds.
    pub srtt_us: u32,
    /// Sequence numbers acknowledged: bytes, and one each for the SYN that this end sent first and for its FIN.
    pub bytes_acked: u64,
    /// Payload bytes that came from the other end.
    pub bytes_received: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Retransmission timeouts since data was last acknowledged.
    pub timeouts: u8,
    /// The retransmission timeout before back-off, in microseconds.
    pub rto_us: u32,
    /// Segments retransmitted since the start.
    pub retrans_total: u32,
    /// Retransmission timeouts since the start, the SYN's included; `None` before Linux 6.7.
    pub timeouts_total: Option<u16>,
    /// Payload bytes retransmitted.
    pub bytes_retrans: u64,
    /// The last delivery rate in bytes a second (RFC draft-cheng-iccrg-delivery-rate-estimation); zero before the first.
    pub delivery_rate: u64,
    /// Whether that rate was limited by what the application gave to send.
    pub app_limited: bool,
    /// The lowest round-trip time of the last minutes in microseconds; `u32::MAX` before the first.
    pub min_rtt_us: u32,
    /// Segments delivered, the SYN included.
    pub delivered: u32,
    /// Segments delivered whose acknowledgement echoed congestion (RFC 3168, section 6.1).
    pub delivered_ce: u32,
    /// Whether both ends agreed to use ECN.
    pub ecn: bool,
}

impl SockDiag {
    /// Opens a socket in the calling thread's network namespace; the socket stays there.
    pub fn open() -> Result<Self> {
        let failed = |source| LinuxError::io("opening a sock_diag socket", source);
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        // A dump is made inside the calls that ask and read, so there is never anything to wait for.
        socket.set_non_blocking(true).map_err(failed)?;
        Ok(SockDiag { socket, buffer: vec![0; DATAGRAM_LIMIT], sequence: 0 })
    }

    /// Fills `sockets` again with the TCP connections of the namespace, those of IPv4 with mapped addresses; listening,
    /// waiting (`TIME_WAIT`) and half-open passive ones are left out. After an error, open another.
    ///
    /// For each family of sockets the kernel walks the namespace's whole hash table: 0.42 ms of CPU time for the initial
    /// namespace's 262,144 buckets, which others share, and 3 µs where `net.ipv4.tcp_child_ehash_entries` gave the
    /// namespace 256 of its own.
    pub fn tcp_sockets<'a>(&mut self, sockets: &'a mut Vec<TcpSocket>) -> Result<&'a [TcpSocket]> {
        sockets.clear();
        self.add_sockets(AF_INET, sockets)?;
        self.add_sockets(AF_INET6, sockets)?;
        Ok(sockets)
    }

    /// The same of IPv6 sockets alone, at half the cost.
    pub fn ipv6_sockets<'a>(&mut self, sockets: &'a mut Vec<TcpSocket>) -> Result<&'a [TcpSocket]> {
        sockets.clear();
        self.add_sockets(AF_INET6, sockets)?;
        Ok(sockets)
    }

    fn add_sockets(&mut self, family: u8, sockets: &mut Vec<TcpSocket>) -> Result<()> {
        self.dump(family, |payload| {
            sockets.extend(read_socket(payload)?);
            Ok(())
        })
    }

    /// Makes `handle` read each TCP connection of a family, as the kernel describes it.
    pub(crate) fn dump(&mut self, family: u8, handle: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.dump_with(ExtensionFlags::INFO, family, handle)
    }

    /// The same with these attributes.
    pub(crate) fn dump_with(
        &mut self,
        extensions: ExtensionFlags,
        family: u8,
        mut handle: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, extensions, self.sequence);
        self.socket.send(&request, 0).map_err(refused)?;
        loop {
            // With MSG_TRUNC the kernel returns the datagram's length, even where the buffer is shorter.
            let length = self.socket.recv(&mut &mut self.buffer[..], libc::MSG_TRUNC).map_err(refused)?;
            let datagram = self.buffer.get(..length).ok_or_else(|| malformed("a datagram is too long"))?;
            if read_datagram(datagram, self.sequence, &mut handle)? {
                return Ok(());
            }
        }
    }
}

impl TcpInfo {
    /// Reads the state of a TCP socket (`getsockopt(TCP_INFO)`).
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0u8; 512];
        let mut length = bytes.len() as libc::socklen_t;
        // SAFETY: the pointers are to locals that outlive the call, and `length` is the size of `bytes`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let known = bytes.get(..length as usize).unwrap_or(&bytes);
        Self::parse(known).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "TCP_INFO is too short"))
    }

    /// How many bytes of `struct tcp_info` are read.
    pub(crate) const NEEDED: usize = offset_of!(tcp_info, tcpi_bytes_retrans) + size_of::<u64>();

    /// How many bytes are read of one that has all that is read where it is there.
    pub(crate) const READ: usize = TIMEOUTS_AT + size_of::<u64>();

    /// Reads the kernel's `struct tcp_info`; `None` if it is shorter than what is needed of it (Linux 4.19 and later
    /// have all).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |offset: usize| Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
        let long = |offset: usize| Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
        let byte = |offset: usize| bytes.get(offset).copied();
        let backoff = u32::from(byte(offset_of!(tcp_info, tcpi_backoff))?);
        Some(TcpInfo {
            timeouts: byte(offset_of!(tcp_info, tcpi_retransmits))?,
            rto_us: word(offset_of!(tcp_info, tcpi_rto))? >> backoff.min(31),
            cwnd: word(offset_of!(tcp_info, tcpi_snd_cwnd))?,
            snd_ssthresh: word(offset_of!(tcp_info, tcpi_snd_ssthresh))?,
            mss: word(offset_of!(tcp_info, tcpi_snd_mss))?,
            srtt_us: word(offset_of!(tcp_info, tcpi_rtt))?,
            bytes_acked: long(offset_of!(tcp_info, tcpi_bytes_acked))?,
            bytes_received: long(offset_of!(tcp_info, tcpi_bytes_received))?,
            bytes_sent: long(offset_of!(tcp_info, tcpi_bytes_sent))?,
            bytes_retrans: long(offset_of!(tcp_info, tcpi_bytes_retrans))?,
            delivery_rate: long(offset_of!(tcp_info, tcpi_delivery_rate))?,
            app_limited: byte(APP_LIMITED_AT)? & 1 != 0,
            min_rtt_us: word(offset_of!(tcp_info, tcpi_min_rtt))?,
            retrans_total: word(offset_of!(tcp_info, tcpi_total_retrans))?,
            timeouts_total: bytes
                .get(TIMEOUTS_AT..)
                .and_then(|rest| rest.first_chunk())
                .map(|count| u16::from_ne_bytes(*count)),
            delivered: word(offset_of!(tcp_info, tcpi_delivered))?,
            delivered_ce: word(offset_of!(tcp_info, tcpi_delivered_ce))?,
            ecn: byte(offset_of!(tcp_info, tcpi_options))? & OPT_ECN != 0,
        })
    }
}

/// `TCPI_OPT_ECN`.
const OPT_ECN: u8 = 8;

/// Where `tcpi_total_rto` is, which libc does not name: behind six numbers of 32 bits after `tcpi_bytes_retrans`.
const TIMEOUTS_AT: usize = TcpInfo::NEEDED + 24;

impl TcpInfo {
    /// The last delivery rate.
    pub fn delivery_rate(&self) -> Rate {
        Rate::from_bits_per_sec(self.delivery_rate.saturating_mul(8))
    }

    /// The lowest round-trip time of the last minutes; `None` before the first.
    pub fn min_rtt(&self) -> Option<Span> {
        (1..u32::MAX).contains(&self.min_rtt_us).then(|| Span::from_micros(self.min_rtt_us.into()))
    }

    /// The smoothed round-trip time; `None` before the first.
    pub fn srtt(&self) -> Option<Span> {
        (self.srtt_us > 0).then(|| Span::from_micros(self.srtt_us.into()))
    }

    /// The share of the payload sent that was sent again; `None` if nothing was sent.
    pub fn loss(&self) -> Option<f64> {
        (self.bytes_sent > 0).then(|| self.bytes_retrans as f64 / self.bytes_sent as f64)
    }
}

/// The byte whose lowest bit is `tcpi_delivery_rate_app_limited`, after that of the window scales.
const APP_LIMITED_AT: usize = 7;
/// The kernel never makes a dump's datagram longer (`netlink_recvmsg` in net/netlink/af_netlink.c).
const DATAGRAM_LIMIT: usize = 32 << 10;

/// The request for a dump, ready to be sent.
fn request(family: u8, extensions: ExtensionFlags, sequence: u32) -> Vec<u8> {
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions,
        states: StateFlags::ESTABLISHED
            | StateFlags::SYN_SENT
            | StateFlags::FIN_WAIT1
            | StateFlags::FIN_WAIT2
            | StateFlags::CLOSE_WAIT
            | StateFlags::LAST_ACK
            | StateFlags::CLOSING,
        socket_id: if family == AF_INET6 { SocketId::new_v6() } else { SocketId::new_v4() },
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(SockDiagMessage::InetRequest(request)));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Reads the messages of one datagram; true when the dump is complete.
fn read_datagram(mut rest: &[u8], sequence: u32, handle: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<bool> {
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|_| malformed("a message is cut short"))?;
        let (payload, length) = (message.payload(), message.length() as usize);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if message.sequence_number() != sequence {
            continue;
        }
        match message.message_type() {
            SOCK_DIAG_BY_FAMILY => handle(payload)?,
            NLMSG_DONE => return read_status(payload).map(|()| true),
            NLMSG_ERROR => read_status(payload)?,
            _ => {}
        }
    }
    Ok(false)
}

/// Reads the status that ends a dump: zero or a negated errno.
fn read_status(payload: &[u8]) -> Result<()> {
    let status = payload.first_chunk().ok_or_else(|| malformed("a status is cut short"))?;
    match i32::from_ne_bytes(*status) {
        0 => Ok(()),
        errno => Err(refused(io::Error::from_raw_os_error(errno.saturating_neg()))),
    }
}

/// Reads one socket; `None` if it has no TCP state of its own, for instance because it only waits out its FIN.
fn read_socket(payload: &[u8]) -> Result<Option<TcpSocket>> {
    let bad_header = |_| malformed("a socket's header is wrong");
    let header = InetResponseHeader::parse(payload).map_err(bad_header)?;
    let (mut info, mut mark) = (None, 0);
    for attribute in NlasIterator::new(payload.get(size_of::<InetResponseBuffer>()..).unwrap_or_default()) {
        let attribute = attribute.map_err(|_| malformed("an attribute is cut short"))?;
        match attribute.kind() {
            INET_DIAG_INFO => {
                let parsed = TcpInfo::parse(attribute.value());
                info = Some(parsed.ok_or_else(|| malformed("the kernel's TCP_INFO is too short"))?);
            }
            INET_DIAG_MARK => {
                let bytes = attribute.value().first_chunk();
                mark = u32::from_ne_bytes(*bytes.ok_or_else(|| malformed("a mark is cut short"))?);
            }
            _ => {}
        }
    }
    let id = header.socket_id;
    Ok(info.map(|info| TcpSocket {
        local: SocketAddrV6::new(ipv6(id.source_address), id.source_port, 0, 0),
        remote: SocketAddrV6::new(ipv6(id.destination_address), id.destination_port, 0, 0),
        state: header.state.into(),
        cookie: u64::from_ne_bytes(id.cookie),
        mark,
        info,
    }))
}

fn refused(error: io::Error) -> LinuxError {
    LinuxError::io("listing TCP sockets", error)
}

pub(crate) fn malformed(problem: &'static str) -> LinuxError {
    refused(io::Error::new(io::ErrorKind::InvalidData, problem))
}

fn ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

/// What fuzzing reads.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use super::*;

    /// Reads a datagram, whatever its sequence number, and one socket's `TCP_INFO`.
    pub(crate) fn read(bytes: &[u8]) {
        let sequence = bytes.get(8..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let _ = read_datagram(bytes, sequence, &mut |payload| read_socket(payload).map(drop));
        if let Some(info) = TcpInfo::parse(bytes) {
            assert!(info.loss().is_none_or(|loss| loss.is_finite() && loss >= 0.0));
            let _ = (info.delivery_rate(), info.min_rtt(), info.srtt());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Shutdown, TcpListener, TcpStream},
    };

    use nix::sys::socket::{setsockopt, sockopt};
    use proptest::prelude::*;

    use super::*;
    use crate::{netlink, netns::NetNs, testing::root_or_skip};

    /// Reads sockets into a list.
    fn into(sockets: &mut Vec<TcpSocket>) -> impl FnMut(&[u8]) -> Result<()> {
        |payload| {
            sockets.extend(read_socket(payload)?);
            Ok(())
        }
    }

    #[test]
    fn the_offsets_are_those_of_the_kernel_header() {
        // include/uapi/linux/tcp.h
        assert_eq!(offset_of!(tcp_info, tcpi_snd_mss), 16);
        assert_eq!(offset_of!(tcp_info, tcpi_rtt), 68);
        assert_eq!(offset_of!(tcp_info, tcpi_snd_ssthresh), 76);
        assert_eq!(offset_of!(tcp_info, tcpi_snd_cwnd), 80);
        assert_eq!(offset_of!(tcp_info, tcpi_total_retrans), 100);
        assert_eq!(offset_of!(tcp_info, tcpi_bytes_acked), 120);
        assert_eq!(offset_of!(tcp_info, tcpi_bytes_received), 128);
        assert_eq!(offset_of!(tcp_info, tcpi_delivered), 192);
        assert_eq!(offset_of!(tcp_info, tcpi_delivered_ce), 196);
        assert_eq!(offset_of!(tcp_info, tcpi_bytes_sent), 200);
        assert_eq!(offset_of!(tcp_info, tcpi_bytes_retrans), 208);
        assert_eq!(offset_of!(tcp_info, tcpi_min_rtt), 148);
        assert_eq!(offset_of!(tcp_info, tcpi_delivery_rate), 160);
    }

    #[test]
    fn a_tcp_info_shorter_than_needed_is_refused() {
        assert_eq!(TcpInfo::NEEDED, 216);
        assert_eq!(TcpInfo::parse(&[0; 216]), Some(TcpInfo::default()));
        assert_eq!(TcpInfo::parse(&[0; 215]), None);
    }

    #[test]
    fn a_dump_shows_both_ends_of_a_connection_with_mark_and_counters() {
        if !root_or_skip("a dump of TCP sockets") {
            return;
        }
        in_namespace(|| {
            let mut diag = SockDiag::open().unwrap();
            let mut sockets = Vec::new();
            let _listener = TcpListener::bind("[::1]:0").unwrap();
            assert_eq!(diag.tcp_sockets(&mut sockets).unwrap(), [], "a listener is left out");
            let (mut client, mut server) = connection();
            setsockopt(&client, sockopt::Mark, &0x51de).unwrap();
            client.write_all(&[0; 100_000]).unwrap();
            server.read_exact(&mut [0; 100_000]).unwrap();

            let info = TcpInfo::of(&client).unwrap();
            assert_eq!(info.bytes_acked, 100_001, "the bytes, and one for the SYN");
            assert_eq!((info.bytes_sent, info.retrans_total, info.delivered_ce), (100_000, 0, 0));
            assert!(info.cwnd >= 10 && info.mss > 1_000 && info.delivered > 1, "{info:?}");
            assert!(info.delivery_rate > 10_000 && info.min_rtt().is_some() && info.loss() == Some(0.0), "{info:?}");

            let sockets = diag.tcp_sockets(&mut sockets).unwrap();
            assert_eq!(sockets.len(), 2);
            let local = |stream: &TcpStream| stream.local_addr().unwrap().to_string();
            let seen = |end: &TcpStream| *sockets.iter().find(|one| one.local.to_string() == local(end)).unwrap();
            let (at_client, at_server) = (seen(&client), seen(&server));
            assert_eq!((at_client.info, at_client.mark, at_client.state), (info, 0x51de, TcpState::Established));
            assert_eq!((at_server.remote, at_server.mark), (at_client.local, 0));
            assert_eq!(Ok(at_client.cookie), nix::sys::socket::getsockopt(&client, Cookie));
        });
    }

    #[test]
    fn a_dump_has_sockets_of_each_family_once_and_reports_mapped_addresses_alike() {
        if !root_or_skip("a dump of IPv4 sockets") {
            return;
        }
        in_namespace(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let open = |address: &str| {
                let mut client = TcpStream::connect((address.parse::<IpAddr>().unwrap(), port)).unwrap();
                let mut server = listener.accept().unwrap().0;
                client.write_all(&[0; 50_000]).unwrap();
                server.read_exact(&mut [0; 50_000]).unwrap();
                (client, server)
            };
            // A socket of IPv4, and one of IPv6 that uses IPv4.
            let ends = ["127.0.0.1", "::ffff:127.0.0.1"].map(open);
            let mut sockets = Vec::new();
            let sockets = SockDiag::open().unwrap().tcp_sockets(&mut sockets).unwrap();
            assert_eq!(sockets.len(), 4);
            for (client, _) in &ends {
                let local = client.local_addr().unwrap();
                let canonical = |address: SocketAddrV6| (address.ip().to_canonical(), address.port());
                let seen: Vec<_> = sockets
                    .iter()
                    .filter(|one| canonical(one.local) == (local.ip().to_canonical(), local.port()))
                    .filter(|one| one.remote.port() == port)
                    .collect();
                assert_eq!(seen.len(), 1, "{sockets:?}");
                assert_eq!(seen[0].local.ip().to_ipv4_mapped(), Some(std::net::Ipv4Addr::LOCALHOST));
                assert!(seen[0].info.delivery_rate > 0 && seen[0].info.srtt().is_some(), "{:?}", seen[0]);
                assert_eq!(seen[0].info.loss(), Some(0.0));
            }
            let mut of_ipv6 = Vec::new();
            assert_eq!(SockDiag::open().unwrap().ipv6_sockets(&mut of_ipv6).unwrap().len(), 1);
        });
    }

    #[test]
    fn a_dump_longer_than_one_datagram_is_read_to_its_end() {
        if !root_or_skip("a long dump of TCP sockets") {
            return;
        }
        in_namespace(|| {
            let mut diag = SockDiag::open().unwrap();
            let mut sockets = Vec::new();
            let open: Vec<_> = (0..200).map(|_| connection()).collect();
            assert_eq!(diag.tcp_sockets(&mut sockets).unwrap().len(), 400);
            for (client, _) in &open {
                client.shutdown(Shutdown::Write).unwrap();
            }
            let (mut closed, mut waiting) = (0, 0);
            for socket in diag.tcp_sockets(&mut sockets).unwrap() {
                match socket.state {
                    // Which of the two depends on whether the FIN's acknowledgement was delayed.
                    TcpState::FinWait1 | TcpState::FinWait2 => closed += 1,
                    TcpState::CloseWait => waiting += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((closed, waiting), (200, 200));
            drop(open);
        });
    }

    #[test]
    fn a_refusal_is_an_error_and_not_an_empty_list() {
        let refusal = frame(NLMSG_ERROR, 1, &(-libc::EPERM).to_ne_bytes());
        let error = read_datagram(&refusal, 1, &mut into(&mut Vec::new())).unwrap_err();
        assert!(matches!(error, LinuxError::Privilege { .. }), "{error}");
        let failed_dump = frame(NLMSG_DONE, 1, &(-libc::EINVAL).to_ne_bytes());
        assert!(read_datagram(&failed_dump, 1, &mut into(&mut Vec::new())).is_err());
        assert!(!read_datagram(&failed_dump, 2, &mut into(&mut Vec::new())).unwrap(), "the end of another dump");
        assert!(read_datagram(&frame(NLMSG_DONE, 1, &[0; 4]), 1, &mut into(&mut Vec::new())).unwrap());
    }

    proptest! {
        #[test]
        fn no_datagram_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            crate::fuzzing::read_sockets(&bytes);
        }

        #[test]
        fn no_damage_to_a_socket_makes_the_reader_panic(
            damage in prop::collection::vec((0usize..400, any::<u8>()), 0..4),
            length in 0usize..=400,
        ) {
            let mut datagram = frame(SOCK_DIAG_BY_FAMILY, 1, &a_socket());
            for (place, value) in damage {
                if let Some(byte) = datagram.get_mut(place) {
                    *byte = value;
                }
            }
            datagram.truncate(length);
            crate::fuzzing::read_sockets(&datagram);
        }
    }

    #[test]
    fn an_undamaged_socket_is_read() {
        let mut sockets = Vec::new();
        assert!(!read_datagram(&frame(SOCK_DIAG_BY_FAMILY, 1, &a_socket()), 1, &mut into(&mut sockets)).unwrap());
        assert_eq!((sockets[0].mark, sockets[0].info.cwnd), (7, 0x0101_0101));
    }

    /// The payload of a socket with a mark of 7 and a `TCP_INFO` full of ones.
    fn a_socket() -> Vec<u8> {
        let mut payload = vec![0; size_of::<InetResponseBuffer>()];
        payload[0] = AF_INET6;
        payload.extend([8u16, INET_DIAG_MARK].map(u16::to_ne_bytes).concat());
        payload.extend(7u32.to_ne_bytes());
        payload.extend([4 + 248u16, INET_DIAG_INFO].map(u16::to_ne_bytes).concat());
        payload.extend([1; 248]);
        payload
    }

    fn frame(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (16 + payload.len() as u32).to_ne_bytes().to_vec();
        frame.extend([kind, 0].map(u16::to_ne_bytes).concat());
        frame.extend([sequence, 0].map(u32::to_ne_bytes).concat());
        frame.extend(payload);
        frame
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn in_namespace(test: impl FnOnce() + Send) {
        let namespace = NetNs::create().unwrap();
        let inside = || {
            netlink::block_on(async |netlink| netlink.loopback_up().await)?;
            test();
            Ok(())
        };
        namespace.run(inside).unwrap();
    }

    #[derive(Clone, Copy)]
    struct Cookie;
    nix::getsockopt_impl!(Cookie, libc::SOL_SOCKET, libc::SO_COOKIE, u64, nix::sys::socket::sockopt::GetStruct<u64>);
}
