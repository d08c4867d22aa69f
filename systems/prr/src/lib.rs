//! Protective ReRoute: each timeout draws a new flow label.

#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

use sidestep_scenario::SystemInfo;

/// Protective ReRoute.
pub const PRR: SystemInfo = SystemInfo::plain("prr", "Protective ReRoute: each timeout draws a new flow label");
