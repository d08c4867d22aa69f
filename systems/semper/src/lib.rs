//! SEMPER: edge routers hash MPTCP subflows onto paths, without state.

#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "daemon")]
#[expect(clippy::disallowed_methods, reason = "a daemon has a clock")]
pub mod daemon;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

mod settings;
pub mod table;

#[cfg(feature = "scenario")]
use sidestep_scenario::{Standing, SystemInfo};

pub use settings::SemperSettings;

/// SEMPER.
#[cfg(feature = "scenario")]
pub const SEMPER: SystemInfo = SystemInfo::with_settings::<SemperSettings>(
    "semper",
    "MPTCP subflows hashed onto paths by a stateless edge router",
    "semper",
)
.with_standing(Standing::recommended(3));

/// SEMPER's reference, whose edges remember.
#[cfg(feature = "scenario")]
pub const SEMPER_STATEFUL: SystemInfo = SystemInfo::with_settings::<SemperSettings>(
    "semper-stateful",
    "`semper` with a table of subflows at the edge",
    "semper",
);
