//! Plain TCP: on the shortest path, or each connection hashed onto one of the equal-cost paths.

use super::{Run, System};
use crate::{error::LabError, plan::Multipath};

/// Routers use one of several equal-cost paths.
pub fn single(_: &Run<'_>) -> Result<System, LabError> {
    Ok(System::new(Multipath::Single))
}

/// Routers use all equal-cost paths, by a hash of addresses and ports.
pub fn equal_cost(_: &Run<'_>) -> Result<System, LabError> {
    Ok(System::new(Multipath::Ecmp))
}
