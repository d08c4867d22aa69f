//! The thread that moves packets.
