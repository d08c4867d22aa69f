//! The daemons: on hosts the path changer's keeper, on routers the keeper of Path IDs.
//!
//! Neither carries a packet. The host daemon loads the program that moves connections and keeps its routes and maps;
//! should it die, connections go on along the paths that they are on. The router daemon installs what a Path ID
//! stands for and reports how busy the links are.

mod config;
mod error;
mod events;
mod host;
mod metrics;
mod paths;
mod router;
mod router_metrics;
mod summary;

pub use config::{ConfigError, HostConfig, MetricsConfig, StaticDestination, StaticPath};
pub use error::AgentError;
pub use events::{EventLine, EventRecord, PathsRecord};
pub use host::{HostOptions, run_host, stop_host};
pub use metrics::HOST_METRICS;
pub use paths::{DestinationPaths, HostPath, PathRoute};
pub use router::{RouterOptions, run_router};
pub use router_metrics::ROUTER_METRICS;

/// What `sidestep agent` and `sidestep router` print on standard output when they do their work.
pub const READY: &str = "ready";
