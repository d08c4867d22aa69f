//! The daemons: on hosts the path changer's keeper, on routers the keeper of Path IDs.
//!
//! Neither carries a packet. The host daemon loads the program that moves connections and keeps its routes and maps;
//! should it die, connections go on along the paths that they are on. The router daemon installs what a Path ID
//! stands for and reports how busy the links are.

mod daemon;
mod error;
mod host;
mod router;

pub use daemon::Shutdown;
pub use error::AgentError;
pub use host::{
    ConfigError, DestinationPaths, EventLine, EventRecord, HOST_METRICS, HostConfig, HostOptions, HostPath,
    MetricsConfig, PathRoute, PathsRecord, StaticDestination, StaticPath, run_host, stop_host,
};
pub use router::{ROUTER_METRICS, RouterOptions, run_router};

/// What `sidestep agent` and `sidestep router` print on standard output when they do their work.
pub const READY: &str = "ready";
