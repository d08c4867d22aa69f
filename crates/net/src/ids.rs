//! Dense typed indices into a [`Topology`](crate::Topology).

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

/// Index of a node in its topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Index of a link (both directions) in its topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// Index of one direction of a link: `2 * link` from `a` to `b`, `2 * link + 1` from `b` to `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArcId(pub u32);

/// One of the two directions of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Direction {
    /// From the link's `a` end to its `b` end.
    AToB,
    /// From the link's `b` end to its `a` end.
    BToA,
}

/// The id of a path between two access routers: never zero, and unchanged as long as the path is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PathId(NonZeroU32);

impl PathId {
    /// The id with this number; `None` for zero, which is no path.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(PathId)
    }

    /// The id as a number, as it stands in the binding SID.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathId({self})")
    }
}

impl NodeId {
    /// The id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The arc of this link in `direction`.
    pub fn arc(self, direction: Direction) -> ArcId {
        ArcId(self.0 * 2 + u32::from(direction == Direction::BToA))
    }
}

impl ArcId {
    /// The id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The link that this arc is a direction of.
    pub fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }

    /// The direction of this arc on its link.
    pub fn direction(self) -> Direction {
        if self.0.is_multiple_of(2) { Direction::AToB } else { Direction::BToA }
    }

    /// The other direction of the same link.
    pub fn reversed(self) -> ArcId {
        ArcId(self.0 ^ 1)
    }
}
