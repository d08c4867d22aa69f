//! Super-packets: cut into segments, and joined again.
