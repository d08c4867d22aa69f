//! The path changer's daemons, of hosts and of access routers. None forwards a packet.
//!
//! The host daemon loads the program that moves connections, and keeps its routes and maps up to date. If it dies,
//! connections go on along the paths that they are on. The router daemon installs the segment lists of Path IDs, and reports
//! the usage and the state of its links to the controller.
//!
//! [`run_host`] and [`run_router`] run a daemon until a future of the caller's completes; [`stop_host`] ends an agent from
//! outside. Both work in the loop that all daemons share (`sidestep-hostd`), and listen to the controller, to new
//! configurations, and to changes of interfaces, rules and routes. Their settings are
//! [`HostOptions`], [`HostConfig`] (the configuration file) and [`RouterOptions`]. [`EventRecord`] and [`PathsRecord`] are the
//! lines that the host daemon records.
//!
//! ```no_run
//! use sidestep_hostd::Shutdown;
//! use sidestep_pathchanger::daemon::{HostConfig, HostOptions, run_host};
//! use sidestep_api::HostIdentity;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = HostConfig::parse(
//!     r#"
//!     [[destination]]
//!     prefix = "2001:db8:5::/48"
//!     path = [
//!         { name = "blue", via = "fe80::1", dev = "eth0", rate = "1 Gbit/s", rtt = "20 ms" },
//!         { name = "red", via = "fe80::2", dev = "eth1", rate = "300 Mbit/s", rtt = "30 ms" },
//!     ]
//!     "#,
//! )?;
//! let options = HostOptions {
//!     controller: None,
//!     identity: HostIdentity::Node("h1".into()),
//!     config,
//!     cgroup: "/sys/fs/cgroup".into(),
//!     table_base: 8300,
//!     priority: 8300,
//!     pins: None,
//!     keep: false,
//!     dry_run: false,
//!     events: None,
//! };
//! // New configurations can be sent while the daemon works.
//! let (_reconfigure, configs) = tokio::sync::mpsc::unbounded_channel();
//! let shutdown = async {
//!     let _ = tokio::signal::ctrl_c().await;
//!     Shutdown::CleanUp
//! };
//! run_host(options, configs, || println!("connections move"), shutdown).await?;
//! # Ok(())
//! # }
//! ```

pub mod ecn_decap;
mod host;
pub mod needs;
pub mod parity;
pub mod program;
mod router;

pub use host::{
    ByPath, DoubtfulSources, EventLine, EventRecord, HOST_METRICS, HostConfig, HostOptions, PathQuality, PathRecord,
    PathsRecord, Prefixes, Reach, RecordFile, SetRecord, Sockets, cannot_reset, doubtful_sources, explain,
    host_overrides, masks_at_work, overrides_at_work, propose, reaches, reaches_now, run_host, stop_host,
};
pub use router::{ROUTER_METRICS, RouterOptions, run_router, stop_router};
