//! MPTCP, each subflow hashed onto an equal-cost path.

#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

#[cfg(feature = "scenario")]
use sidestep_proto::mptcp::MptcpSettings;
#[cfg(feature = "scenario")]
use sidestep_scenario::{Standing, SystemInfo};

/// MPTCP.
#[cfg(feature = "scenario")]
pub const MPTCP: SystemInfo =
    SystemInfo::with_settings::<MptcpSettings>("mptcp", "MPTCP, each subflow hashed onto an equal-cost path", "mptcp")
        .with_standing(Standing::recommended(5));
