//! In-Network Resource Pooling in every router.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_proto::inrpp::InrppSettings;
use sidestep_scenario::SystemInfo;

/// INRPP.
pub const INRPP: SystemInfo =
    SystemInfo::with_settings::<InrppSettings>("inrpp", "In-Network Resource Pooling in every router", "inrpp");
