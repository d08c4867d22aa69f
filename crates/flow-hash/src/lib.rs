//! A flow's key and its hash (`include/policy/flow_hash.h`), by which routers and edges choose among equal paths.
//!
//! The hash is MurmurHash3 (x86, 32 bits) of the key's words. Its values are frozen, as two edges that run different
//! versions must agree on them.
//!
//! ```
//! use sidestep_flow_hash::{FlowKey, Symmetry, hash, pick};
//!
//! let there = FlowKey {
//!     source: "2001:db8::1".parse()?,
//!     destination: "2001:db8::2".parse()?,
//!     source_port: 40_000,
//!     destination_port: 443,
//!     protocol: 6,
//!     flow_label: 0,
//! };
//! assert_eq!(hash(&there, 0, Symmetry::Directed), 0xc2fc_421b);
//! let both_directions = |key| pick(hash(key, 0, Symmetry::Symmetric), 8);
//! assert_eq!(both_directions(&there), both_directions(&there.reversed()));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

pub mod flow_key;

use std::net::Ipv6Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What routers and edges see of a flow; IPv4 addresses are mapped (`::ffff:a.b.c.d`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Address of the sender.
    pub source: Ipv6Addr,
    /// Address of the receiver.
    pub destination: Ipv6Addr,
    /// The sender's port; 0 where the protocol has none.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// IANA's number of the protocol.
    pub protocol: u8,
    /// IPv6 flow label, of which 20 bits count; 0 to leave it out.
    pub flow_label: u32,
}

/// Whether both directions of a connection have the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// Each direction has a hash of its own.
    Directed,
    /// Both directions have the same hash, if their flow labels are the same.
    Symmetric,
}

/// `struct flow_hash_key`: a [`FlowKey`] as C takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct RawKey {
    /// Most significant word first.
    pub source: [u32; 4],
    /// Most significant word first.
    pub destination: [u32; 4],
    /// 16 bits.
    pub source_port: u32,
    /// 16 bits.
    pub destination_port: u32,
    /// IANA's number.
    pub protocol: u32,
    /// 20 bits.
    pub flow_label: u32,
}

/// `struct flow_hash_ctx` of `policy_parity.bpf.c`: one hash and one choice, computed by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct FlowHashCall {
    /// The flow.
    pub key: RawKey,
    /// The hash's seed.
    pub seed: u32,
    /// 1 for [`Symmetry::Symmetric`].
    pub symmetric: u32,
    /// Number of choices.
    pub choices: u32,
    /// The hash, written by the kernel.
    pub hash: u32,
    /// The choice, written by the kernel.
    pub picked: u32,
    /// Zero.
    pub unused: u32,
}

/// The hash of a flow. A router that forwards by it takes a seed of its own, so that its choice does not depend on the
/// previous router's.
#[inline]
pub fn hash(key: &FlowKey, seed: u32, symmetry: Symmetry) -> u32 {
    // SAFETY: the pointer comes from a reference to the struct that C reads.
    unsafe { native_flow_hash(&key.to_raw(), seed, symmetry.to_raw()) }
}

/// One of `choices`, in `0..choices`, as the remainder of the hash; 0 if there are no choices.
#[inline]
pub fn pick(hash: u32, choices: u32) -> u32 {
    // SAFETY: a function of integers.
    unsafe { native_flow_hash_pick(hash, choices) }
}

impl FlowKey {
    /// The key of the other direction, with the same flow label.
    #[inline]
    pub fn reversed(&self) -> Self {
        FlowKey {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }

    /// The key of the connection, whichever end sends: the end with the lower address and port comes first.
    pub fn canonical(&self) -> Self {
        let ends = |key: &FlowKey| (key.source, key.source_port);
        let reversed = self.reversed();
        if ends(self) > ends(&reversed) { reversed } else { *self }
    }

    /// The key as C takes it.
    #[inline]
    pub fn to_raw(&self) -> RawKey {
        RawKey {
            source: words(self.source),
            destination: words(self.destination),
            source_port: self.source_port.into(),
            destination_port: self.destination_port.into(),
            protocol: self.protocol.into(),
            flow_label: self.flow_label & 0xf_ffff,
        }
    }
}

impl Symmetry {
    /// The flag as C takes it.
    #[inline]
    pub fn to_raw(self) -> u32 {
        (self == Symmetry::Symmetric).into()
    }
}

/// An address as four numbers, the most significant first.
#[inline]
fn words(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

const _: () = assert!(size_of::<RawKey>() == 48 && size_of::<FlowHashCall>() == 72, "differs from the C struct");

unsafe extern "C" {
    fn native_flow_hash(key: *const RawKey, seed: u32, symmetric: u32) -> u32;
    fn native_flow_hash_pick(hash: u32, n: u32) -> u32;
}
