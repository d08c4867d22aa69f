//! The daemons of hosts and routers. None forwards a packet.
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
//! use sidestep_agent::{HostConfig, HostOptions, Shutdown, run_host};
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

mod audit;
mod edge;
mod effect;
mod error;
mod firewall;
mod host;
mod inputs;
mod mptcp;
mod paths;
mod reflector;
mod router;
mod routing;

pub use edge::{
    DampingKnobs, DecisionRecord, EgressConfig, EgressInput, EgressSource, EgressStatus, FamilyEgress, FamilyStatus,
    MAX_EGRESSES, Moves, PUBLIC_TARGETS, PassedInput, PredictionErrors, ProbeKind, ROUTE_CONTROL_METRICS, Return,
    RouteControlConfig, RouteControlKnobs, RouteControlOptions, RouteControlStatus, TargetConfig, TargetStatus,
    WayStatus, propose_route_control, route_control_status, run_route_control, stop_route_control,
};
pub use edge::{
    EDGE_METRICS, EdgeAgreement, EdgeConfig, EdgeDestination, EdgeKnobs, EdgeOptions, EdgePath, EdgePlace,
    EdgeProbeKnobs, EdgeProbes, EdgeStatus, HashDoubt, Health, MAX_FLOWS, PlacedBy, SeedOrigin, SlotUsed, Tuple,
    edge_place, edge_status, run_edge, stop_edge,
};
pub use effect::Overridden;
pub use error::AgentError;
pub use firewall::{RestoredMarks, restored_marks};
pub use host::explain;
pub use host::{
    ByPath, DoubtfulSources, EventLine, EventRecord, HOST_METRICS, HostConfig, HostOptions, MetricsConfig, PathQuality,
    PathRecord, PathsRecord, Prefixes, Proposal, Reach, RecordFile, SetRecord, Sockets, cannot_reset, doubtful_sources,
    host_overrides, masks_at_work, overrides_at_work, propose, reaches, reaches_now, run_host, stop_host,
};
pub use mptcp::{
    AddressStatus as MptcpAddressStatus, AddressesConfig, ConnectionStatus, DEFAULT_COUNT, LimitsConfig,
    MPTCP_PM_METRICS, MetricsTable, MptcpMode, MptcpPmConfig, MptcpPmOptions, MptcpPmStatus, PathsOf, PortChoice,
    PortsConfig, PrefixRule, WatchConfig, Wish, mptcp_pm_status, run_mptcp_pm, stop_mptcp_pm, subflow_hash,
};
pub use paths::{
    Captured, ConfigError, DestinationPaths, HostPath, Interfaces, PathRoute, Place, Places, StaticDestination,
    StaticPath, Via, captured,
};
pub use reflector::{REFLECTOR_METRICS, ReflectorConfig, ReflectorOptions, StampClock, run_reflector};
pub use router::{ROUTER_METRICS, RouterOptions, run_router, stop_router};
pub use sidestep_hostd::Shutdown;

/// What `sidestep agent` and `sidestep router` print on standard output when they do their work.
pub const READY: &str = "ready";
