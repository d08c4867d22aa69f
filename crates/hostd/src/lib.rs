//! What all daemons share: the loop, the sockets for requests and metrics, and the service manager.
//!
//! A daemon implements [`Daemon`], with a handler for each kind of input. [`run`] waits for the inputs and calls one
//! handler at a time, so a handler never runs beside another. Handlers note what the daemon wants;
//! [`Daemon::reconcile`] makes the world have it. When a [`Shutdown`] comes, the handler at work is dropped at its next
//! `await`; a daemon therefore notes each thing that it makes before it is made.
//!
//! **Fail static.** An error ends a daemon only before it is at work. Later errors are logged, counted and tried again;
//! meanwhile all stays as it is.
//!
//! **Supervised.** The loop owns a [`Supervisor`], which notifies the service manager by the protocol of `sd_notify(3)`. It
//! reports when the daemon is [`ready`](Supervisor::ready), in one line [what matters](Supervisor::status) now, and that it is
//! [`stopping`](Supervisor::stopping). Whenever a ping is [`due`](Supervisor::due), the loop [`ping`](Supervisor::ping)s
//! from where handlers are called: a daemon of which one hangs is started again. Without a service manager all of that does
//! nothing.
//!
//! ```
//! use sidestep_hostd::Supervisor;
//!
//! let mut supervisor = Supervisor::from_env();
//! supervisor.ready();
//! supervisor.status("2 of 2 Path IDs installed");
//! ```
//!
//! **PendingRequest.** At a [`ControlSocket`] a daemon is asked for its status, which is JSON, and to stop. It is the only one of its
//! kind in its network namespace as long as it holds the socket.
//!
//! **Measured.** A daemon lists its [`Metric`]s as constants and answers each [`Scrape`] with a [`Page`]. So it counts nothing
//! twice, and reads nothing unless asked. [`Metric::counter`] and [`Metric::gauge`] describe a measure; [`Page::one`] and
//! [`Page::each`] add values to a page; [`Scrapes`] listens at a port and waits for readers.
//!
//! ```
//! use sidestep_hostd::{Metric, Page};
//!
//! const MOVES: Metric = Metric::counter("moves", "Moves of connections, by the signal");
//!
//! let mut page = Page::default();
//! page.each(MOVES, [(vec![("reason", "rto".to_string())], 2.0)]);
//! assert!(page.into_text()?.contains("moves_total{reason=\"rto\"} 2.0\n"));
//! # Ok::<(), std::fmt::Error>(())
//! ```

pub mod audit;
pub mod control;
mod daemon;
pub mod effect;
mod endpoint;
mod error;
pub mod firewall;
mod init;
pub mod inputs;
pub mod metrics;
mod others;
mod page;
pub mod paths;
pub mod routing;
pub mod status;
mod supervisor;
mod tenure;

pub use control::{ControlError, ControlSocket};
pub use daemon::{Daemon, End, Fault, Handled, Listeners, Shutdown, run};
pub use effect::Overridden;
pub use endpoint::{ListenError, Scrape, Scrapes, read_address};
pub use error::AgentError;
pub use firewall::{RestoredMarks, restored_marks};
pub use init::{Proposal, speed};
pub use metrics::MetricsConfig;
pub use others::Others;
pub use page::{Labels, Metric, Page};
pub use paths::{
    Captured, ConfigError, DestinationPaths, HostPath, Interfaces, PathRoute, Place, Places, StaticDestination,
    StaticPath, Via, captured,
};
pub use supervisor::Supervisor;
pub use tenure::Tenure;

/// What a daemon prints on standard output when it is at work, for programs that start it.
pub const READY: &str = "ready";
