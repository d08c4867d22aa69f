//! The host agent at work: real connections over a network of namespaces, moved by the program in the kernel.
//!
//! Everything runs in this process. Sockets count as those of a control group because a short-lived child makes them
//! there (`support/sockets.rs`); wires fail by command; what the agent left in the kernel is read back.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

mod attachment;
mod congestion_control;
mod controller;
mod directions;
mod dry_run;
mod exceptions;
mod faults;
mod ipv4;
mod mending;
mod metrics;
mod mptcp;
mod one_path;
mod own_addresses;
mod partition;
mod placement;
mod providers;
mod replies;
mod router;
mod segments;
mod slots;
mod soak;
mod stuck;
mod support;
mod takeover;
mod together;
mod untouched;
mod upgrade;
