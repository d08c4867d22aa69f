//! The path changer: a policy moves live connections among SRv6 paths.

#[cfg(feature = "daemon")]
#[expect(clippy::disallowed_methods, reason = "a daemon has a clock")]
pub mod daemon;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "sim")]
pub mod sim;

#[cfg(feature = "scenario")]
use sidestep_policy::PathchangerSettings;
#[cfg(feature = "scenario")]
use sidestep_scenario::SystemInfo;

/// The path changer.
#[cfg(feature = "scenario")]
pub const PATHCHANGER: SystemInfo =
    SystemInfo::with_settings::<PathchangerSettings>("pathchanger", "the path changer", "pathchanger");

/// The path changer that draws by dice.
#[cfg(feature = "scenario")]
pub const RANDOM: SystemInfo = SystemInfo::with_settings::<PathchangerSettings>(
    "random",
    "the path changer with the policy `random`",
    "pathchanger",
)
.fixing(&[("policy", "random")]);
