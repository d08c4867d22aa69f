//! MPTCP, each subflow hashed onto an equal-cost path.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_proto::mptcp::MptcpSettings;
use sidestep_scenario::SystemInfo;

/// MPTCP.
pub const MPTCP: SystemInfo =
    SystemInfo::with_settings::<MptcpSettings>("mptcp", "MPTCP, each subflow hashed onto an equal-cost path", "mptcp");
