//! Segments of a flow as one super-packet, as the kernel's generic receive offload makes them.

use std::io::IoSlice;

use zerocopy::IntoBytes;

use super::{GSO_TCPV4, GSO_TCPV6, VnetHeader};
use crate::daemon::headers::{self, ACK, FIN, Headers, IPV4_HEADER, IPV6_HEADER, PSH, TCP_HEADER, TcpFields, checksum};

/// Flows of which a super-packet can be open at once.
const FLOWS: usize = 16;
/// Segments of a super-packet, at most.
const MAX_SEGMENTS: usize = 64;
/// Bytes of a super-packet, at most.
const MAX_BYTES: usize = 65_000;
/// The headers of plain TCP: IPv4's and TCP's with all options.
const MAX_TCP_HEADERS: usize = 120;
/// Of IPv4: "don't fragment".
const DONT_FRAGMENT: u8 = 0x40;
const NONE: u32 = u32::MAX;
/// The bits of each header that all segments of a super-packet share: all but length, identification and checksum, ...
const IPV4_MASK: [u8; IPV4_HEADER] = masked([2, 3, 4, 5, 10, 11]);
const IPV6_MASK: [u8; IPV6_HEADER] = masked([4, 5]);
/// ... and all but sequence number, flags and checksum.
const TCP_MASK: [u8; TCP_HEADER] = masked([4, 5, 6, 7, 13, 16, 17]);

/// What joins segments, with memory that it keeps from one batch to the next.
#[derive(Debug)]
pub struct Joiner {
    open: [Open; FLOWS],
    payloads: Vec<Payload<'static>>,
}

/// A payload, and the place of the next one of its flow.
#[derive(Clone, Copy, Debug)]
struct Payload<'a> {
    bytes: &'a [u8],
    next: u32,
}

/// A super-packet that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Those of the first segment.
    bytes: [u8; MAX_TCP_HEADERS],
    headers: Headers,
    /// Its segments; none: nothing is open.
    count: u16,
    /// The payload of the first.
    size: u32,
    /// The bytes of all, with the headers.
    total: u32,
    /// The sequence number that follows.
    next: u32,
    /// The places of the first and the last payload.
    first: u32,
    last: u32,
}

impl Default for Joiner {
    /// A joiner without memory, which costs nothing until it is used.
    fn default() -> Joiner {
        let headers = Headers::default();
        let bytes = [0; MAX_TCP_HEADERS];
        let open = Open { bytes, headers, count: 0, size: 0, total: 0, next: 0, first: NONE, last: NONE };
        Joiner { open: [open; FLOWS], payloads: Vec::new() }
    }
}

impl Joiner {
    /// A joiner with nothing open.
    pub fn new() -> Joiner {
        Joiner { payloads: Vec::with_capacity(FLOWS * MAX_SEGMENTS), ..Joiner::default() }
    }

    /// Begins a batch of packets, which lie in buffers that stay as they are until it is flushed.
    pub fn begin<'a>(&mut self) -> Batch<'_, 'a> {
        let payloads = std::mem::take(&mut self.payloads);
        Batch { joiner: self, payloads }
    }

    #[cfg(test)]
    pub(super) fn payloads_address(&self) -> usize {
        self.payloads.as_ptr().addr()
    }
}

/// A batch of packets that are joined as they come.
///
/// What it hands out is ready to be written to a TUN device: the first slice is the virtio header, and the packet follows.
/// [`flush`](Self::flush) it: what is open is lost otherwise.
#[derive(Debug)]
pub struct Batch<'j, 'a> {
    joiner: &'j mut Joiner,
    payloads: Vec<Payload<'a>>,
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        for open in &mut self.joiner.open {
            open.count = 0;
        }
        self.payloads.clear();
        // The same memory with another lifetime: the standard library collects in place.
        let empty = std::mem::take(&mut self.payloads).into_iter().map(|_| Payload { bytes: &[], next: NONE });
        self.joiner.payloads = empty.collect();
    }
}

impl<'a> Batch<'_, 'a> {
    /// Takes a packet, whose checksum may be `partial`; hands on what is complete. Returns false, and drops the packet, if it
    /// is no IP packet, or has no checksum that could be partial.
    ///
    /// Packets of a flow stay in order. Joined are segments of plain TCP with partial checksums that follow each other with
    /// like headers; complete ones would have to be verified first.
    pub fn push(&mut self, packet: &'a [u8], partial: bool, out: &mut impl FnMut(&VnetHeader, &[IoSlice<'_>])) -> bool {
        let Some(headers) = Headers::parse(packet) else { return false };
        let Some(fields) = headers::tcp(packet, &headers) else { return pass(packet, &headers, partial, out) };
        let at = slot(packet, &headers);
        let Some(open) = self.joiner.open.get_mut(at) else { return false };
        let size = headers.payload();
        let joinable = partial && size > 0 && fields.flags & !(PSH | FIN) == ACK && packet.len() <= MAX_BYTES;
        let ends = fields.has(PSH | FIN);
        if open.count > 0 {
            if joinable && open.takes(packet, &headers, &fields) {
                let ends = ends || size < open.size || usize::from(open.count) + 1 == MAX_SEGMENTS;
                self.append(at, packet, &headers, &fields);
                if ends {
                    self.close(at, out);
                }
                return true;
            }
            // Another flow's may stay open if this packet needs no place.
            if joinable && !ends || open.is_same_flow(packet, &headers) {
                self.close(at, out);
            }
        }
        if !joinable || ends {
            return pass(packet, &headers, partial, out);
        }
        self.begin_super_packet(at, packet, &headers, &fields);
        true
    }

    /// Hands on all that is open.
    pub fn flush(mut self, out: &mut impl FnMut(&VnetHeader, &[IoSlice<'_>])) {
        for at in 0..FLOWS {
            self.close(at, out);
        }
    }

    fn begin_super_packet(&mut self, at: usize, packet: &'a [u8], headers: &Headers, fields: &TcpFields) {
        if self.joiner.open.iter().all(|open| open.count == 0) {
            self.payloads.clear();
        }
        let place = self.keep(packet, headers);
        let Some(open) = self.joiner.open.get_mut(at) else { return };
        let len = usize::from(headers.len);
        if let (Some(to), Some(from)) = (open.bytes.get_mut(..len), packet.get(..len)) {
            to.copy_from_slice(from);
        }
        open.headers = *headers;
        (open.count, open.size, open.total) = (1, headers.payload(), headers.total);
        open.next = fields.sequence.wrapping_add(fields.payload);
        (open.first, open.last) = (place, place);
    }

    fn append(&mut self, at: usize, packet: &'a [u8], headers: &Headers, fields: &TcpFields) {
        let place = self.keep(packet, headers);
        let Some(open) = self.joiner.open.get_mut(at) else { return };
        if let Some(last) = self.payloads.get_mut(open.last as usize) {
            last.next = place;
        }
        open.last = place;
        open.count += 1;
        open.total += fields.payload;
        open.next = open.next.wrapping_add(fields.payload);
        if let Some(flags) = open.bytes.get_mut(usize::from(headers.transport) + 13) {
            *flags |= fields.flags;
        }
    }

    fn keep(&mut self, packet: &'a [u8], headers: &Headers) -> u32 {
        let bytes = packet.get(usize::from(headers.len)..).unwrap_or_default();
        self.payloads.push(Payload { bytes, next: NONE });
        (self.payloads.len() - 1) as u32
    }

    fn close(&mut self, at: usize, out: &mut impl FnMut(&VnetHeader, &[IoSlice<'_>])) {
        let Some(open) = self.joiner.open.get_mut(at).filter(|open| open.count > 0) else { return };
        let header = open.finish();
        open.count = 0;
        let mut slices = [IoSlice::new(&[]); MAX_SEGMENTS + 2];
        let [first, second, rest @ ..] = &mut slices;
        *first = IoSlice::new(header.as_bytes());
        *second = IoSlice::new(open.bytes.get(..usize::from(open.headers.len)).unwrap_or_default());
        let (mut place, mut used) = (open.first, 2);
        for slice in rest {
            let Some(payload) = self.payloads.get(place as usize) else { break };
            *slice = IoSlice::new(payload.bytes);
            (place, used) = (payload.next, used + 1);
        }
        out(&header, slices.get(..used).unwrap_or_default());
    }
}

impl Open {
    /// Whether a packet follows the segments with like headers.
    fn takes(&self, packet: &[u8], headers: &Headers, fields: &TcpFields) -> bool {
        fields.sequence == self.next
            && fields.payload <= self.size
            && self.total as usize + fields.payload as usize <= MAX_BYTES
            && self.has_like_headers(packet, headers)
    }

    fn has_like_headers(&self, packet: &[u8], headers: &Headers) -> bool {
        let (len, at) = (usize::from(headers.len), usize::from(headers.transport));
        if (headers.version, headers.len, headers.transport)
            != (self.headers.version, self.headers.len, self.headers.transport)
        {
            return false;
        }
        let (Some(ours), Some(theirs)) = (self.bytes.get(..len), packet.get(..len)) else { return false };
        let (header, ip) = match headers.version {
            4 => (IPV4_HEADER, is_alike(ours, theirs, IPV4_MASK) && self.has_like_id(ours, theirs)),
            _ => (IPV6_HEADER, is_alike(ours, theirs, IPV6_MASK)),
        };
        let options = at == header || ours.get(header..at) == theirs.get(header..at);
        let (Some(ours), Some(theirs)) = (ours.get(at..), theirs.get(at..)) else { return false };
        ip && options && is_alike(ours, theirs, TCP_MASK) && ours.get(TCP_HEADER..) == theirs.get(TCP_HEADER..)
    }

    /// Whether IPv4's identification follows. Where a packet must not be fragmented, it means nothing (RFC 6864).
    fn has_like_id(&self, ours: &[u8], theirs: &[u8]) -> bool {
        let (Some(ours), Some(theirs)) = (ours.first_chunk::<8>(), theirs.first_chunk::<8>()) else { return false };
        let id = |header: &[u8; 8]| u16::from_be_bytes([header[4], header[5]]);
        theirs[6] & DONT_FRAGMENT != 0 || id(theirs) == id(ours).wrapping_add(self.count)
    }

    fn is_same_flow(&self, packet: &[u8], headers: &Headers) -> bool {
        let addresses = if headers.version == 4 { 12..20 } else { 8..40 };
        let ports = |bytes: &'_ [u8], headers: &Headers| -> Option<[u8; 4]> {
            bytes.get(usize::from(headers.transport)..)?.first_chunk().copied()
        };
        self.headers.version == headers.version
            && self.bytes.get(addresses.clone()) == packet.get(addresses)
            && ports(&self.bytes, &self.headers) == ports(packet, headers)
    }

    /// Mends the headers for all segments, and makes the virtio header.
    fn finish(&mut self) -> VnetHeader {
        let mut header = VnetHeader::partial(&self.headers);
        if self.count < 2 {
            return header;
        }
        header.gso_type = if self.headers.version == 4 { GSO_TCPV4 } else { GSO_TCPV6 };
        header.gso_size = self.size as u16;
        let (at, total) = (usize::from(self.headers.transport), self.total);
        let field =
            |bytes: &[u8], at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map(u16::from_be_bytes);
        let write = |bytes: &mut [u8], at: usize, value: u16| {
            if let Some(field) = bytes.get_mut(at..at + 2) {
                field.copy_from_slice(&value.to_be_bytes());
            }
        };
        if self.headers.version == 4 {
            let (length, sum) = (field(&self.bytes, 2).unwrap_or(0), field(&self.bytes, 10).unwrap_or(0));
            write(&mut self.bytes, 2, total as u16);
            write(&mut self.bytes, 10, checksum::updated(sum, length, total as u16));
        } else {
            write(&mut self.bytes, 4, (total as usize - IPV6_HEADER) as u16);
        }
        // A partial checksum is the sum of the pseudo-header, in which the length is.
        let sum = field(&self.bytes, at + 16).unwrap_or(0);
        let lengths = u64::from(!(self.headers.total as u16 - at as u16)) + u64::from(total - at as u32);
        write(&mut self.bytes, at + 16, checksum::fold(u64::from(sum) + lengths));
        header
    }
}

/// All bits but those of these bytes.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
const fn masked<const N: usize, const M: usize>(without: [usize; M]) -> [u8; N] {
    let mut mask = [0xff; N];
    let mut at = 0;
    while at < M {
        mask[without[at]] = 0;
        at += 1;
    }
    mask
}

/// Whether both begin with the same bits, as far as the mask goes. Without a call or a branch a byte, unlike comparing slices.
fn is_alike<const N: usize>(ours: &[u8], theirs: &[u8], mask: [u8; N]) -> bool {
    let (Some(ours), Some(theirs)) = (ours.first_chunk::<N>(), theirs.first_chunk::<N>()) else { return false };
    let differ = ours.iter().zip(theirs).zip(mask).fold(0, |differ, ((a, b), mask)| differ | ((a ^ b) & mask));
    differ == 0
}

/// Hands on a single packet.
fn pass(packet: &[u8], headers: &Headers, partial: bool, out: &mut impl FnMut(&VnetHeader, &[IoSlice<'_>])) -> bool {
    let Some(header) = VnetHeader::single(packet, headers, partial) else { return false };
    out(&header, &[IoSlice::new(header.as_bytes()), IoSlice::new(packet)]);
    true
}

/// The place of a flow: who makes flows collide has them joined less, and no more.
fn slot(packet: &[u8], headers: &Headers) -> usize {
    let addresses = if headers.version == 4 { packet.get(12..20) } else { packet.get(8..40) };
    let ports = packet.get(usize::from(headers.transport)..usize::from(headers.transport) + 4);
    let words = [addresses, ports].into_iter().flatten().flat_map(|bytes| bytes.as_chunks::<4>().0);
    let sum = words.fold(0u32, |sum, word| sum.rotate_left(5) ^ u32::from_be_bytes(*word));
    (sum.wrapping_mul(0x9e37_79b1) >> 28) as usize
}
