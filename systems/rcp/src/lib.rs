//! The Rate Control Protocol in every router.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_proto::rcp::RcpSettings;
use sidestep_scenario::SystemInfo;

/// RCP.
pub const RCP: SystemInfo =
    SystemInfo::with_settings::<RcpSettings>("rcp", "the Rate Control Protocol in every router", "rcp");
