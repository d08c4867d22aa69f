//! What connections choose among, so that a run in which there is one only is doubted.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use sidestep_net::{NodeId, Topology};
use sidestep_paths::Igp;

/// What connections choose among.
#[derive(Clone)]
pub struct Choice {
    /// What it is, in the singular.
    pub what: &'static str,
    count: Arc<Count>,
}

/// How many there are from one host of a network to another; `None`: nothing is chosen there.
type Count = dyn Fn(&Topology, NodeId, NodeId) -> Option<usize> + Send + Sync;

impl Choice {
    /// Choices of this kind; `count` returns how many there are from one host of a network to another, `None` where nothing is
    /// chosen. It is called when a run has ended, always with the same network.
    pub fn new(
        what: &'static str,
        count: impl Fn(&Topology, NodeId, NodeId) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        Choice { what, count: Arc::new(count) }
    }

    /// Equal-cost paths.
    pub fn equal_cost() -> Self {
        let igp = OnceLock::new();
        Choice::new("equal-cost path", move |topology, from, to| {
            Some(equal_cost(topology, igp.get_or_init(|| Igp::new(topology)), from, to))
        })
    }

    /// How many there are from one host to another; `None`: nothing is chosen there.
    pub fn count(&self, topology: &Topology, from: NodeId, to: NodeId) -> Option<usize> {
        (self.count)(topology, from, to)
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Choice").field(&self.what).finish()
    }
}

/// One if there is a single shortest path, two if some router has a choice, none without a path.
pub fn equal_cost(topology: &Topology, igp: &Igp, from: NodeId, to: NodeId) -> usize {
    let mut here = from;
    while here != to {
        let mut next = igp.next_arcs(here, to);
        let Some(arc) = next.next() else { return 0 };
        if next.next().is_some() {
            return 2;
        }
        here = topology.head(arc);
    }
    1
}
