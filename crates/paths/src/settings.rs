//! Settings of the path computation.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use serde::{Deserialize, Serialize};
use sidestep_net::{SettingError, settings::ensure};

/// How paths are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathSettings {
    /// Most SIDs in a segment list, the egress router's included; 1 allows only the shortest path.
    pub max_segments: usize,
    /// Most paths of a pair of access routers, at most 16.
    pub max_paths: usize,
    /// Whether lists may use adjacency segments (`End.X`).
    pub adjacency: bool,
}

impl Default for PathSettings {
    fn default() -> Self {
        PathSettings { max_segments: 4, max_paths: 8, adjacency: true }
    }
}

impl PathSettings {
    /// Checks that the limits are within what hosts and segment routing headers carry.
    pub fn check(&self) -> Result<(), SettingError> {
        ensure((1..=32).contains(&self.max_segments), "max_segments", "must be between 1 and 32")?;
        ensure((1..=16).contains(&self.max_paths), "max_paths", "must be between 1 and 16")
    }
}
