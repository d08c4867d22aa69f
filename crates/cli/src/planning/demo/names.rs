//! What the demonstration calls systems.

/// What people call a system.
pub fn spoken(system: &str) -> &str {
    match system {
        "tcp" => "plain TCP",
        "ecmp" => "ECMP",
        "random" => "dice",
        "pathchanger" => "path changer",
        other => other,
    }
}
