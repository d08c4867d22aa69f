//! The gRPC interface between the controller and its agents.
//!
//! What arrives is checked once, on its way from the generated types of [`proto`] to the typed ones here; nobody
//! behind that sees a malformed address or an oversized list. The client half ([`watch_paths`], [`watch_bindings`],
//! [`Reporter`]) reconnects on its own.

mod client;
mod convert;
mod endpoint;
mod types;

/// The generated messages, client and server of `sidestep.proto`.
pub mod proto {
    #![expect(clippy::allow_attributes_without_reason, reason = "generated code")]
    tonic::include_proto!("sidestep.v1");
}

pub use client::{ClientError, Connection, Latest, Reporter, Watcher, watch_bindings, watch_paths};
pub use convert::{WireError, router_name};
pub use endpoint::{EndpointError, Listener, chain, connect, listen};
pub use types::{
    Binding, BindingUpdate, HostIdentity, LinkCounter, MAX_ITEMS, MAX_MESSAGE_BYTES, MAX_PATHS, MAX_SEGMENTS, Path,
    PathId, PathSet, PathUpdate, UsageReport,
};
