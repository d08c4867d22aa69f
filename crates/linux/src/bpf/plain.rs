//! Values that cross into BPF maps as bytes.

/// A type whose every byte is initialised and meaningful to the kernel half.
///
/// # Safety
/// `repr(C)`, without padding, without pointers.
pub(super) unsafe trait Plain: Copy {}

/// The bytes of `value`.
pub(super) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` promises that all `size_of::<T>()` bytes are initialised; the lifetime is the reference's.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
