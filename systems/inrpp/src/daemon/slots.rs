//! Packets that wait.
