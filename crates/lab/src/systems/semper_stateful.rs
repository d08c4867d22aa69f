//! SEMPER's reference: edges that assign the subflows of a host to paths in turn, and remember.

use super::{Run, System, semper};
use crate::error::LabError;

/// Edges with a table.
pub fn build(run: &Run<'_>) -> Result<System, LabError> {
    semper::with_edges(run, true)
}
