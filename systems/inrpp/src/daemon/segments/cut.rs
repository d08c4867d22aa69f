//! A super-packet as its segments.

use super::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, MAX_HEADERS, VnetHeader};
use crate::daemon::headers::{CWR, FIN, Headers, IPV4_HEADER, IPV6_HEADER, PSH, TCP, UDP, checksum};

/// Segments of a super-packet, at most.
const MAX_SEGMENTS: usize = 1_024;

/// A packet of a TUN device, ready to be cut into segments.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    packet: &'a [u8],
    /// Where the headers lie behind which it is cut: those of TCP or UDP, also behind extension headers.
    inner: Headers,
    segments: usize,
    /// The payload of each but the last.
    size: usize,
    partial: bool,
    /// The sum of the IPv4 header without length, identification and checksum.
    ip: u64,
    /// The partial checksum without the length.
    transport: u64,
}

impl<'a> Cut<'a> {
    /// A packet with its virtio header; `None`: it is malformed, or none that a TUN device with the offloads that we ask for
    /// hands over.
    pub fn new(header: &VnetHeader, packet: &'a [u8]) -> Option<Cut<'a>> {
        let headers = Headers::parse(packet)?;
        let kind = header.gso_type & !GSO_ECN;
        let partial = header.is_partial();
        let inner = if partial || kind != GSO_NONE { headers.behind_extensions(packet)? } else { headers };
        let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
        if partial && (start, offset) != (usize::from(inner.transport), inner.checksum_offset()) {
            return None;
        }
        let (len, payload) = (usize::from(inner.len), inner.payload() as usize);
        let size = if kind == GSO_NONE { payload } else { usize::from(header.gso_size) };
        let is_known = match kind {
            GSO_NONE => true,
            GSO_TCPV4 => (inner.version, inner.protocol) == (4, TCP),
            GSO_TCPV6 => (inner.version, inner.protocol) == (6, TCP),
            GSO_UDP_L4 => inner.protocol == UDP,
            _ => false,
        };
        if !is_known || kind != GSO_NONE && size == 0 || len > MAX_HEADERS {
            return None;
        }
        let segments = payload.div_ceil(size.max(1)).max(1);
        let mut cut = Cut { packet, inner, segments, size, partial, ip: 0, transport: 0 };
        if segments == 1 {
            return (packet.len() <= usize::from(u16::MAX)).then_some(cut);
        }
        if !partial || segments > MAX_SEGMENTS || len + size > usize::from(u16::MAX) {
            return None;
        }
        cut.prepare()?;
        Some(cut)
    }

    /// Sums of what is the same in all segments.
    fn prepare(&mut self) -> Option<()> {
        let at = usize::from(self.inner.transport);
        if self.inner.version == 4 {
            let header = self.packet.get(..at)?;
            self.ip =
                checksum::sum(header.get(..2)?) + checksum::sum(header.get(6..10)?) + checksum::sum(header.get(12..)?);
        }
        let at = at + self.inner.checksum_offset();
        let sum = u16::from_be_bytes(*self.packet.get(at..)?.first_chunk()?);
        let len = checksum::fold(u64::from(self.inner.total - u32::from(self.inner.transport)));
        self.transport = u64::from(sum) + u64::from(!len);
        Some(())
    }

    /// How many segments it has; one: a single packet.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Whether the checksum of each segment is partial.
    pub fn partial(&self) -> bool {
        self.partial
    }

    /// The bytes of payload before a segment, which its sequence number is ahead of the packet's.
    pub fn payload_before(&self, at: usize) -> u32 {
        (at * self.size) as u32
    }

    /// The length of a segment with its headers; zero: there is none.
    #[cfg(test)]
    pub fn segment_len(&self, at: usize) -> usize {
        self.payload(at).map_or(0, |payload| usize::from(self.inner.len) + payload.len())
    }

    fn payload(&self, at: usize) -> Option<&'a [u8]> {
        let payload = self.packet.get(usize::from(self.inner.len)..)?;
        let behind = payload.get(at.checked_mul(self.size)?..).filter(|_| at < self.segments)?;
        Some(behind.get(..self.size).unwrap_or(behind))
    }

    /// Writes the headers of a segment; returns their length, and its payload. Together they are a complete IP packet.
    pub fn segment(&self, at: usize, out: &mut [u8; MAX_HEADERS]) -> (usize, &'a [u8]) {
        let len = usize::from(self.inner.len);
        let (Some(headers), Some(payload)) = (self.packet.get(..len), self.payload(at)) else { return (0, &[]) };
        let Some(out) = out.get_mut(..len) else { return (0, &[]) };
        out.copy_from_slice(headers);
        if self.segments > 1 {
            self.write_ip(at, payload.len(), out);
            self.write_transport(at, payload.len(), out);
        }
        (len, payload)
    }

    fn write_ip(&self, at: usize, payload: usize, out: &mut [u8]) {
        let len = out.len() + payload;
        if self.inner.version == 6 {
            if let Some(out) = out.first_chunk_mut::<IPV6_HEADER>() {
                out[4..6].copy_from_slice(&((len - IPV6_HEADER) as u16).to_be_bytes());
            }
        } else if let Some(out) = out.first_chunk_mut::<IPV4_HEADER>() {
            let id = u16::from_be_bytes([out[4], out[5]]).wrapping_add(at as u16);
            let sum = !checksum::fold(self.ip + len as u64 + u64::from(id));
            out[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            out[4..6].copy_from_slice(&id.to_be_bytes());
            out[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn write_transport(&self, at: usize, payload: usize, out: &mut [u8]) {
        let out = out.get_mut(usize::from(self.inner.transport)..).unwrap_or_default();
        let len = out.len() + payload;
        let sum = checksum::fold(self.transport + len as u64).to_be_bytes();
        if self.inner.protocol == UDP {
            if let Some(out) = out.first_chunk_mut::<8>() {
                out[4..6].copy_from_slice(&(len as u16).to_be_bytes());
                out[6..8].copy_from_slice(&sum);
            }
        } else if let Some(out) = out.first_chunk_mut::<18>() {
            let sequence = u32::from_be_bytes([out[4], out[5], out[6], out[7]]);
            out[4..8].copy_from_slice(&sequence.wrapping_add(self.payload_before(at)).to_be_bytes());
            if at + 1 < self.segments {
                out[13] &= !(FIN | PSH);
            }
            if at > 0 {
                out[13] &= !CWR;
            }
            out[16..18].copy_from_slice(&sum);
        }
    }
}
