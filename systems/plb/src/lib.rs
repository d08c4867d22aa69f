//! Protective Load Balancing: a new flow label after congested rounds, as Linux has it.

#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

mod rounds;

use sidestep_policy::PlbSettings;
use sidestep_scenario::SystemInfo;

pub use rounds::Rounds;

/// Protective Load Balancing.
pub const PLB: SystemInfo = SystemInfo::with_settings::<PlbSettings>(
    "plb",
    "Protective Load Balancing: a new flow label after congested rounds",
    "plb",
);
