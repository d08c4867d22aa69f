//! What generators send: zeros.

/// The largest piece that is written at once.
pub const MAX_PIECE: u32 = 128 << 10;
/// As many zeros as are sent at once.
pub static ZEROS: [u8; MAX_PIECE as usize] = [0; MAX_PIECE as usize];
