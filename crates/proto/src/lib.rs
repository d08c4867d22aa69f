//! Protocol cores without I/O: they are told the time and what happened, and say what to do.
//!
//! The simulator drives them with virtual time, the lab and the daemons with the machine's clock.

pub mod link;
pub mod mptcp;
pub mod packet;
pub mod rcp;
pub mod tcp;
