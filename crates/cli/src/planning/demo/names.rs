//! What the demonstration calls systems.

use crate::planning::catalogue;

/// What people call a system.
pub fn spoken(system: &str) -> &str {
    match system {
        "random" => "dice",
        "pathchanger" => "path changer",
        other => catalogue().spoken(other),
    }
}
