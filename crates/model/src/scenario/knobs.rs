//! Settings of the path computation, and how settings are checked.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How paths are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathKnobs {
    /// Most SIDs in a segment list, the egress router's included; 1 allows only the shortest path.
    pub max_segments: usize,
    /// Most paths of a pair of access routers, at most 16.
    pub max_paths: usize,
    /// Whether lists may use adjacency segments (`End.X`).
    pub adjacency: bool,
}

/// A setting outside its range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{knob} {problem}")]
pub struct KnobError {
    /// The setting's key in the scenario file.
    pub knob: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Default for PathKnobs {
    fn default() -> Self {
        PathKnobs { max_segments: 4, max_paths: 8, adjacency: true }
    }
}

impl PathKnobs {
    /// Checks that the limits are within what hosts and segment routing headers carry.
    pub fn check(&self) -> Result<(), KnobError> {
        ensure((1..=32).contains(&self.max_segments), "max_segments", "must be between 1 and 32")?;
        ensure((1..=16).contains(&self.max_paths), "max_paths", "must be between 1 and 16")
    }
}

pub(super) fn ensure(fine: bool, knob: &'static str, problem: &'static str) -> Result<(), KnobError> {
    if fine { Ok(()) } else { Err(KnobError { knob, problem }) }
}
