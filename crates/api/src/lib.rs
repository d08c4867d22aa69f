//! The gRPC interface between the controller and its agents.
//!
//! Messages are checked once, when the generated types of [`proto`] become the typed ones here. No code behind that sees a
//! malformed address or an oversized list.
//!
//! - The client half is for daemons: [`watch_paths`] and [`watch_bindings`] follow the controller, and a [`Reporter`] sends
//!   it the state of links. They reconnect on their own.
//! - The server half is for the controller: [`listen`] opens an endpoint, a [`Listener`] serves it.
//! - The messages are plain types: a [`PathUpdate`] for hosts, a [`BindingUpdate`] and a [`UsageReport`] for routers.
//!
//! ```no_run
//! use sidestep_api::{Connection, HostIdentity, watch_paths};
//!
//! # async fn example() -> Result<(), sidestep_api::ClientError> {
//! let host = HostIdentity::Node("h1".into());
//! let mut watcher = watch_paths("unix:/run/sidestep/controller/socket", host, true).await?;
//! while let Some(latest) = watcher.changed().await {
//!     match (latest.connection, latest.update) {
//!         (Connection::Lost { reason }, _) => println!("the controller is away: {reason}"),
//!         (_, Some(update)) => println!("paths to {} destinations", update.sets.len()),
//!         (_, None) => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

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
