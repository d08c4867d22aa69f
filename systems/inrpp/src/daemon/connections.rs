//! TCP connections that pass: window scales, sequence numbers, the last ACK.
