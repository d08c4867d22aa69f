//! The path changer with the policy `random`, which the table of systems fixes.

pub use super::pathchanger::build;
