//! In-Network Resource Pooling in every router.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_proto::inrpp::InrppKnobs;
use sidestep_scenario::SystemInfo;

/// INRPP.
pub const INRPP: SystemInfo =
    SystemInfo::with_settings::<InrppKnobs>("inrpp", "In-Network Resource Pooling in every router", "inrpp");
