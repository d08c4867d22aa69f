//! ACKs that the router itself sends: a connection's last one, with another window.

use super::{
    ACK, FIN, Headers, IPV4_HEADER, IPV6_HEADER, OPTION_NONE, OPTION_TIMESTAMPS, RST, SYN, TCP_HEADER, checksum,
};

/// A timestamps option with two bytes of padding, as all senders write it.
const TIMESTAMPS: usize = 12;
const MAX: usize = IPV6_HEADER + TCP_HEADER + TIMESTAMPS;
/// How many routers it may pass.
const HOP_LIMIT: u8 = 64;
/// IPv4's "don't fragment". With it the identification means nothing (RFC 6864).
const DONT_FRAGMENT: u8 = 0x40;
/// The bits of the traffic class that are ECN's: pure ACKs are not ECN-capable (RFC 3168, section 6.1.4).
const ECN: u8 = 0b11;

/// The last ACK of one direction of a connection, from which the router makes others with another window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTemplate {
    bytes: [u8; MAX],
    len: u8,
    transport: u8,
}

impl AckTemplate {
    /// The bytes of the longest ACK that [`write`](Self::write) makes.
    pub const MAX_LEN: usize = MAX;

    /// The template of a plain TCP packet with an acknowledgement; none of a SYN, as its windows have no scale, nor of a reset.
    ///
    /// What it repeats are the addresses, the ports, the acknowledgement and the timestamps. Its sequence number is that behind
    /// the packet's payload: a receiver that has the payload refuses what lies before it, even in an empty segment.
    pub fn of(packet: &[u8], headers: &Headers) -> Option<AckTemplate> {
        let tcp = headers.tcp(packet).filter(|tcp| tcp[13] & (ACK | SYN | RST) == ACK)?;
        let times = headers.options(packet).find(|option| option.kind == OPTION_TIMESTAMPS);
        let times = times.and_then(|option| option.value.first_chunk::<8>().filter(|_| option.value.len() == 8));
        let transport = if headers.version == 4 { IPV4_HEADER } else { IPV6_HEADER };
        let tcp_len = TCP_HEADER + times.map_or(0, |_| TIMESTAMPS);
        let mut made = AckTemplate { bytes: [0; MAX], len: (transport + tcp_len) as u8, transport: transport as u8 };
        let (ip, behind) = made.bytes.split_at_mut_checked(transport)?;
        ip.copy_from_slice(packet.get(..transport)?);
        write_ip(ip, tcp_len)?;
        let (out, options) = behind.split_first_chunk_mut::<TCP_HEADER>()?;
        out[..12].copy_from_slice(&tcp[..12]);
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let behind = sequence.wrapping_add(headers.payload()).wrapping_add(u32::from(tcp[13] & FIN));
        out[4..8].copy_from_slice(&behind.to_be_bytes());
        (out[12], out[13]) = (((tcp_len / 4) << 4) as u8, ACK);
        let partial = checksum::fold(checksum::pseudo_header(packet, headers, tcp_len));
        out[16..18].copy_from_slice(&partial.to_be_bytes());
        if let Some((times, options)) = times.zip(options.first_chunk_mut::<TIMESTAMPS>()) {
            options[..4].copy_from_slice(&[OPTION_NONE, OPTION_NONE, OPTION_TIMESTAMPS, 10]);
            options[4..].copy_from_slice(times);
        }
        Some(made)
    }

    /// Writes the ACK with this window, unscaled as it is in the header, and with a partial checksum; returns its length, or
    /// zero where there is no room.
    pub fn write(&self, window: u16, out: &mut [u8]) -> usize {
        let len = usize::from(self.len);
        let (Some(to), Some(from)) = (out.get_mut(..len), self.bytes.get(..len)) else { return 0 };
        to.copy_from_slice(from);
        let at = usize::from(self.transport) + 14;
        if let Some(field) = to.get_mut(at..at + 2) {
            field.copy_from_slice(&window.to_be_bytes());
        }
        len
    }
}

/// Turns a packet's IP header into that of an ACK with a TCP header of so many bytes.
fn write_ip(ip: &mut [u8], tcp_len: usize) -> Option<()> {
    if let Ok(ip) = <&mut [u8; IPV6_HEADER]>::try_from(&mut *ip) {
        ip[1] &= !(ECN << 4);
        ip[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
        ip[7] = HOP_LIMIT;
        return Some(());
    }
    let ip = ip.first_chunk_mut::<IPV4_HEADER>()?;
    (ip[0], ip[1]) = (0x45, ip[1] & !ECN);
    ip[2..4].copy_from_slice(&((IPV4_HEADER + tcp_len) as u16).to_be_bytes());
    ip[4..8].copy_from_slice(&[0, 0, DONT_FRAGMENT, 0]);
    ip[8] = HOP_LIMIT;
    ip[10..12].fill(0);
    let sum = !checksum::fold(checksum::sum(ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}
