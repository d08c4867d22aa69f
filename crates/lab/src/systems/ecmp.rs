//! Plain TCP, each connection hashed onto one of the equal-cost paths.

use super::{Run, System};
use crate::{error::LabError, plan::Multipath};

/// Routers use all equal-cost paths, by a hash of addresses and ports.
pub fn build(_: &Run<'_>) -> Result<System, LabError> {
    Ok(System::new(Multipath::Ecmp))
}
