//! The packet-level simulator: scenarios in virtual time.

pub mod bench;
pub mod engine;
pub mod routing;
pub mod steering;
