//! The path changer with the policy `random`, which the table of systems fixes.

pub(super) use super::pathchanger::system;
