//! The path changer: a policy moves live connections among SRv6 paths.

#[cfg(feature = "command")]
#[expect(clippy::disallowed_methods, reason = "a command that looks again and again has a clock")]
pub mod command;
#[cfg(feature = "daemon")]
#[expect(clippy::disallowed_methods, reason = "a daemon has a clock")]
pub mod daemon;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

#[cfg(feature = "scenario")]
use sidestep_policy::PolicySettings;
#[cfg(feature = "scenario")]
use sidestep_scenario::{Standing, SystemInfo};

/// The path changer.
#[cfg(feature = "scenario")]
pub const PATHCHANGER: SystemInfo =
    SystemInfo::with_settings::<PolicySettings>("pathchanger", "the path changer", "pathchanger")
        .with_standing(Standing::recommended(1))
        .with_standing_when(&[("policy", "random", Standing::REFERENCE), ("policy", "static", Standing::REFERENCE)]);

/// The path changer that draws by dice.
#[cfg(feature = "scenario")]
pub const RANDOM: SystemInfo =
    SystemInfo::with_settings::<PolicySettings>("random", "the path changer with the policy `random`", "pathchanger")
        .fixing(&[("policy", "random")])
        .with_standing(Standing::REFERENCE);
