//! The hash by which changes of paths are noticed.

/// The hash of Fowler, Noll and Vo (FNV-1a).
pub(super) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
