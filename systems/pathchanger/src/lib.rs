//! The path changer: a policy moves live connections among SRv6 paths.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_policy::AgentSettings;
use sidestep_scenario::SystemInfo;

/// The path changer.
pub const PATHCHANGER: SystemInfo =
    SystemInfo::with_settings::<AgentSettings>("pathchanger", "the path changer", "agent");

/// The path changer that draws by dice.
pub const RANDOM: SystemInfo =
    SystemInfo::with_settings::<AgentSettings>("random", "the path changer with the policy `random`", "agent")
        .fixing(&[("policy", "random")]);
