//! TUN devices with super-packets.
