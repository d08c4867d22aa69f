//! Plain TCP: on the shortest path, or each connection hashed onto one of the equal-cost paths.

#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

use sidestep_scenario::{Standing, SystemInfo};

/// TCP on the shortest path.
pub const TCP: SystemInfo =
    SystemInfo::plain("tcp", "plain TCP on the shortest path").with_standing(Standing::baseline(1, "plain TCP"));

/// TCP over equal-cost paths.
pub const ECMP: SystemInfo = SystemInfo::plain("ecmp", "each connection hashed onto one of the equal-cost paths")
    .with_standing(Standing::baseline(3, "ECMP"));
