//! The clock that generators and sessions share.

use std::path::Path;

use crate::{error::LabError, traffic::Monotonic};

/// The clock that generators and the session share.
pub fn now() -> Result<Monotonic, LabError> {
    Monotonic::now().map_err(|error| LabError::file(Path::new("CLOCK_MONOTONIC"))(std::io::Error::other(error)))
}
