//! Intelligent route control: a multihomed edge switches its egress by measurement.

#[cfg(feature = "sim")]
pub mod sim;

use sidestep_proto::irc::IrcSettings;
use sidestep_scenario::SystemInfo;

/// Route control.
pub const ROUTE_CONTROL: SystemInfo =
    SystemInfo::with_settings::<IrcSettings>("irc", "Intelligent Route Control at a multihomed edge", "irc");
