//! What paths weigh before anything is known of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a path weighs before anything is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialName {
    /// All paths the same.
    Even,
    /// The path's capacity.
    Capacity,
    /// The capacity less what was in use when it was last reported.
    Available,
}

impl InitialName {
    /// All of them.
    pub const ALL: [InitialName; 3] = [InitialName::Even, InitialName::Capacity, InitialName::Available];
}

impl fmt::Display for InitialName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InitialName::Even => "even",
            InitialName::Capacity => "capacity",
            InitialName::Available => "available",
        })
    }
}
