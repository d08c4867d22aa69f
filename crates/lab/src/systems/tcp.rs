//! Plain TCP on the shortest path.

use super::{Run, System};
use crate::{error::LabError, plan::Multipath};

/// Routers use one of several equal-cost paths.
pub fn build(_: &Run<'_>) -> Result<System, LabError> {
    Ok(System::new(Multipath::Single))
}
