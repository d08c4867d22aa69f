//! The path changer: a policy moves live connections among SRv6 paths.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_policy::AgentKnobs;
use sidestep_scenario::SystemInfo;

/// The path changer.
pub const PATHCHANGER: SystemInfo = SystemInfo::with_settings::<AgentKnobs>("pathchanger", "the path changer", "agent");

/// The path changer that draws by dice.
pub const RANDOM: SystemInfo =
    SystemInfo::with_settings::<AgentKnobs>("random", "the path changer with the policy `random`", "agent")
        .fixing(&[("policy", "random")]);
