//! The INRPP router's daemon: stores, sends around and presses back, for hosts that know nothing of it.
//!
//! The kernel routes, the process queues. What the kernel routes out of a managed interface is diverted at tc egress into a TUN
//! device of the process. From there a packet goes to the neighbour's process, which hands it to its own kernel.

mod config;
mod connections;
mod divert;
mod forwarder;
mod headers;
mod link;
mod message;
mod metrics;
mod resequence;
mod segments;
mod session;
mod shim;
mod slots;
mod status;
mod tun;
pub mod needs;
