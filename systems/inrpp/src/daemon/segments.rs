//! Super-packets: cut into segments, and joined again.
//!
//! The kernel hands many segments of a flow to a TUN device as one packet, with a header of virtio's before it, and takes such
//! packets from it. Between neighbours each segment travels alone, as a complete packet whose checksum may be partial.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod cut;
mod join;
#[cfg(test)]
mod tests;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::headers::Headers;

pub use cut::Cut;
pub use join::{Batch, Joiner};

/// The checksum is partial: from `csum_start` on the receiver has to add all up.
pub const NEEDS_CSUM: u8 = 1;
/// A single packet.
pub const GSO_NONE: u8 = 0;
/// Segments of TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// Segments of TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// Datagrams of UDP.
pub const GSO_UDP_L4: u8 = 5;
/// In addition: the first segment of TCP has the flag CWR.
pub const GSO_ECN: u8 = 0x80;

/// The bytes of a segment's headers, at most.
pub const MAX_HEADERS: usize = 256;

/// The header before each packet of a TUN device with `IFF_VNET_HDR` (`struct virtio_net_hdr`), of the machine's byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// [`GSO_NONE`] and its like.
    pub gso_type: u8,
    /// The bytes of all headers; from the kernel a hint only.
    pub hdr_len: u16,
    /// The payload of each segment but the last.
    pub gso_size: u16,
    /// Where TCP or UDP begins.
    pub csum_start: u16,
    /// Where its checksum lies, from there.
    pub csum_offset: u16,
}

const _: () = assert!(size_of::<VnetHeader>() == VnetHeader::LEN);

impl VnetHeader {
    /// Its bytes.
    pub const LEN: usize = 10;

    /// Splits what was read from a TUN device into header and packet.
    pub fn split(bytes: &[u8]) -> Option<(VnetHeader, &[u8])> {
        VnetHeader::read_from_prefix(bytes).ok()
    }

    /// The header of a single packet; `None`: its checksum is said to be partial, and there is none.
    pub fn single(packet: &[u8], headers: &Headers, partial: bool) -> Option<VnetHeader> {
        if !partial {
            return Some(VnetHeader::default());
        }
        headers.behind_extensions(packet).map(|headers| VnetHeader::partial(&headers))
    }

    fn partial(headers: &Headers) -> VnetHeader {
        let csum_offset = headers.checksum_offset() as u16;
        let (hdr_len, csum_start) = (headers.len, headers.transport);
        VnetHeader { flags: NEEDS_CSUM, gso_type: GSO_NONE, hdr_len, gso_size: 0, csum_start, csum_offset }
    }

    /// Whether the checksum is partial.
    pub fn is_partial(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }
}
