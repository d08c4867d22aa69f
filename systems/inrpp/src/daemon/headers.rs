//! Headers of IP and TCP: what the router reads in a packet, and what it changes.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod ack;
pub mod checksum;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use siphasher::sip::SipHasher13;

pub use ack::AckTemplate;

/// TCP's number as a protocol of IP.
pub const TCP: u8 = 6;
/// UDP's number as a protocol of IP.
pub const UDP: u8 = 17;

/// TCP's flag by which a sender ends.
pub const FIN: u8 = 0x01;
/// TCP's flag by which a connection begins.
pub const SYN: u8 = 0x02;
/// TCP's flag by which a connection is broken off.
pub const RST: u8 = 0x04;
/// TCP's flag that asks the receiver to hand on what it has.
pub const PSH: u8 = 0x08;
/// TCP's flag of segments with an acknowledgement.
pub const ACK: u8 = 0x10;
/// TCP's flag of a sender that has lowered its window for such an echo.
pub const CWR: u8 = 0x80;

pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
pub(super) const TCP_HEADER: usize = 20;
pub(super) const UDP_HEADER: usize = 8;
/// Of IPv4: another fragment follows, or the fragment is not the first.
const FRAGMENT: u16 = 0x3fff;
/// Extension headers that may stand between IPv6 and TCP: hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// A packet has no more of them.
const MAX_EXTENSIONS: usize = 8;
/// A greater shift counts as this (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;

const OPTION_END: u8 = 0;
const OPTION_NONE: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_SCALE: u8 = 3;
const OPTION_TIMESTAMPS: u8 = 8;
const OPTION_MULTIPATH: u8 = 30;

/// Where the headers of a packet lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// IP's version, 4 or 6.
    pub version: u8,
    /// What follows the IP header; of IPv6 perhaps an extension header.
    pub protocol: u8,
    plain: bool,
    /// Where TCP or UDP begins, or what else follows the IP header.
    pub transport: u16,
    /// The bytes of all headers up to the payload; without a plain packet those of the IP header.
    pub len: u16,
    /// The bytes of the packet.
    pub total: u32,
}

impl Headers {
    /// The headers of an IP packet that fills the slice; `None`: it does not, or its IP header is malformed.
    ///
    /// A super-packet that is longer than its length field can say has zero there.
    pub fn parse(packet: &[u8]) -> Option<Headers> {
        match packet.first()? >> 4 {
            4 => {
                let header = packet.first_chunk::<IPV4_HEADER>()?;
                let transport = usize::from(header[0] & 15) * 4;
                let said = usize::from(u16::from_be_bytes([header[2], header[3]]));
                let whole = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT == 0;
                let fits = (IPV4_HEADER..=packet.len()).contains(&transport) && is_length(packet.len(), said);
                fits.then(|| Headers::at(packet, 4, header[9], transport, whole))
            }
            6 => {
                let header = packet.first_chunk::<IPV6_HEADER>()?;
                let said = usize::from(u16::from_be_bytes([header[4], header[5]]));
                let fits = is_length(packet.len() - IPV6_HEADER, said);
                fits.then(|| Headers::at(packet, 6, header[6], IPV6_HEADER, true))
            }
            _ => None,
        }
    }

    fn at(packet: &[u8], version: u8, protocol: u8, transport: usize, whole: bool) -> Headers {
        let behind = packet.get(transport..).unwrap_or_default();
        let len = match protocol {
            TCP => behind.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
            _ => UDP_HEADER,
        };
        let least = if protocol == TCP { TCP_HEADER } else { UDP_HEADER };
        let plain = whole && matches!(protocol, TCP | UDP) && (least..=behind.len()).contains(&len);
        let len = if plain { transport + len } else { transport };
        Headers { version, protocol, plain, transport: transport as u16, len: len as u16, total: packet.len() as u32 }
    }

    /// Whether it is TCP or UDP, with a whole header directly behind IP's, and no fragment.
    #[cfg(test)]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether it is plain TCP.
    pub fn is_tcp(&self) -> bool {
        self.plain && self.protocol == TCP
    }

    /// The bytes behind the headers.
    pub fn payload(&self) -> u32 {
        self.total.saturating_sub(u32::from(self.len))
    }

    /// The headers of the same packet as if its extension headers were part of IPv6's; `None`: neither TCP nor UDP follows them.
    pub fn behind_extensions(&self, packet: &[u8]) -> Option<Headers> {
        let (mut protocol, mut at) = (self.protocol, usize::from(self.transport));
        if self.plain || self.version == 4 {
            return self.plain.then_some(*self);
        }
        for _ in 0..MAX_EXTENSIONS {
            if !EXTENSIONS.contains(&protocol) {
                break;
            }
            let [next, len] = *packet.get(at..)?.first_chunk::<2>()?;
            (protocol, at) = (next, at + (usize::from(len) + 1) * 8);
        }
        let found = Headers::at(packet, 6, protocol, at, true);
        found.plain.then_some(found)
    }

    /// Where the checksum lies, from the start of TCP or UDP.
    pub(super) fn checksum_offset(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }

    fn tcp<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8; TCP_HEADER]> {
        packet.get(usize::from(self.transport)..).filter(|_| self.is_tcp())?.first_chunk()
    }

    fn options<'a>(&self, packet: &'a [u8]) -> Options<'a> {
        let from = usize::from(self.transport) + TCP_HEADER;
        let bytes = if self.is_tcp() { packet.get(from..usize::from(self.len)) } else { None };
        Options { bytes: bytes.unwrap_or_default(), at: 0 }
    }
}

/// Whether a length field is that of so many bytes.
fn is_length(bytes: usize, said: usize) -> bool {
    bytes == said || said == 0 && bytes > usize::from(u16::MAX)
}

/// What the router reads in a TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFields {
    /// The number of the first byte, or of the SYN.
    pub sequence: u32,
    /// The number of the byte that is expected next.
    pub acknowledgement: u32,
    /// The flags, but those that RFC 9293 reserves.
    pub flags: u8,
    /// The window as it is written, without the scale.
    pub window: u16,
    /// Bytes of payload.
    pub payload: u32,
}

impl TcpFields {
    /// Whether one of these flags is set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// The TCP header of a plain packet.
pub fn tcp(packet: &[u8], headers: &Headers) -> Option<TcpFields> {
    let tcp = headers.tcp(packet)?;
    Some(TcpFields {
        sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        acknowledgement: u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]),
        flags: tcp[13],
        window: u16::from_be_bytes([tcp[14], tcp[15]]),
        payload: headers.payload(),
    })
}

/// What a SYN announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// The shift of the windows that its sender will announce, at most 14 (RFC 7323).
    pub scale: Option<u8>,
    /// The longest payload that its sender takes.
    pub mss: Option<u16>,
    /// Whether it asks for multipath TCP (RFC 8684).
    pub is_multipath: bool,
    /// Whether it asks for timestamps.
    pub timestamps: bool,
}

/// The options of a SYN, up to the first malformed one.
pub fn syn_options(packet: &[u8], headers: &Headers) -> Option<SynOptions> {
    headers.tcp(packet).filter(|tcp| tcp[13] & SYN != 0)?;
    let mut found = SynOptions::default();
    for option in headers.options(packet) {
        match (option.kind, option.value) {
            (OPTION_SCALE, [shift]) => found.scale = Some((*shift).min(MAX_SCALE)),
            (OPTION_MSS, [high, low]) => found.mss = Some(u16::from_be_bytes([*high, *low])),
            (OPTION_TIMESTAMPS, [_, _, _, _, _, _, _, _]) => found.timestamps = true,
            (OPTION_MULTIPATH, _) => found.is_multipath = true,
            _ => {}
        }
    }
    Some(found)
}

/// An option of TCP.
struct TcpOption<'a> {
    kind: u8,
    /// Where its value lies, from the first option's first byte.
    at: usize,
    value: &'a [u8],
}

/// The options of a TCP header, up to the end or the first malformed one.
struct Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Options<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        while *self.bytes.get(self.at)? == OPTION_NONE {
            self.at += 1;
        }
        let kind = *self.bytes.get(self.at)?;
        let len = usize::from(*self.bytes.get(self.at + 1).filter(|_| kind != OPTION_END)?);
        let at = self.at + 2;
        let value = self.bytes.get(at..self.at + len)?;
        self.at += len;
        Some(TcpOption { kind, at, value })
    }
}

/// The flow of a packet, with both directions of a connection as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What names the flow, the same for both directions; its lowest bit is zero, so that there is room for the direction.
    pub key: u64,
    /// Whether the packet goes from the greater to the lesser of both ends.
    pub reversed: bool,
}

/// The flow of a packet: SipHash-1-3 of addresses, protocol and, of a plain packet, ports.
pub fn flow(packet: &[u8], headers: &Headers, keys: [u64; 2]) -> Flow {
    let (from, to) = match headers.version {
        4 => (end(packet.get(12..16)), end(packet.get(16..20))),
        _ => (end(packet.get(8..24)), end(packet.get(24..40))),
    };
    let ports = packet.get(usize::from(headers.transport)..).filter(|_| headers.plain).and_then(<[u8]>::first_chunk);
    let [a, b, c, d] = *ports.unwrap_or(&[0; 4]);
    let (from, to) = ((from, [a, b]), (to, [c, d]));
    let reversed = to < from;
    let (first, second) = if reversed { (to, from) } else { (from, to) };
    let mut bytes = [0; 38];
    bytes[..16].copy_from_slice(&first.0);
    bytes[16..32].copy_from_slice(&second.0);
    bytes[32..34].copy_from_slice(&first.1);
    bytes[34..36].copy_from_slice(&second.1);
    bytes[36..].copy_from_slice(&[headers.version, headers.protocol]);
    Flow { key: SipHasher13::new_with_keys(keys[0], keys[1]).hash(&bytes) & !1, reversed }
}

/// An address, filled up with zeroes.
fn end(address: Option<&[u8]>) -> [u8; 16] {
    let mut end = [0; 16];
    for (to, from) in end.iter_mut().zip(address.unwrap_or_default()) {
        *to = *from;
    }
    end
}

/// Writes the window into a plain TCP packet; its checksum is `partial`, or is mended (RFC 1624).
pub fn set_window(packet: &mut [u8], headers: &Headers, window: u16, partial: bool) {
    let Some(tcp) = tcp_mut(packet, headers) else { return };
    let before = u16::from_be_bytes([tcp[14], tcp[15]]);
    tcp[14..16].copy_from_slice(&window.to_be_bytes());
    // A partial checksum covers the pseudo-header only.
    if !partial {
        let mended = checksum::updated(u16::from_be_bytes([tcp[16], tcp[17]]), before, window);
        tcp[16..18].copy_from_slice(&mended.to_be_bytes());
    }
}

/// Lowers the MSS option of a SYN to `max`; returns whether it was above. Its checksum is `partial`, or is mended.
pub fn clamp_mss(packet: &mut [u8], headers: &Headers, max: u16, partial: bool) -> bool {
    if headers.tcp(packet).is_none_or(|tcp| tcp[13] & SYN == 0) {
        return false;
    }
    let found = headers.options(packet).find(|option| option.kind == OPTION_MSS);
    let Some(TcpOption { at, value: [high, low], .. }) = found else { return false };
    let before = u16::from_be_bytes([*high, *low]);
    let at = usize::from(headers.transport) + TCP_HEADER + at;
    let Some(value) = packet.get_mut(at..at + 2).filter(|_| before > max) else { return false };
    value.copy_from_slice(&max.to_be_bytes());
    if let Some(tcp) = tcp_mut(packet, headers).filter(|_| !partial) {
        // At an odd place its bytes belong to two words of the sum: the high one to the low half.
        let odd = (at - usize::from(headers.transport)) % 2 == 1;
        let word = |value: u16| if odd { value.swap_bytes() } else { value };
        let mended = checksum::updated(u16::from_be_bytes([tcp[16], tcp[17]]), word(before), word(max));
        tcp[16..18].copy_from_slice(&mended.to_be_bytes());
    }
    true
}

fn tcp_mut<'a>(packet: &'a mut [u8], headers: &Headers) -> Option<&'a mut [u8; TCP_HEADER]> {
    packet.get_mut(usize::from(headers.transport)..).filter(|_| headers.is_tcp())?.first_chunk_mut()
}
