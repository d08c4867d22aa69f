//! What connections choose among, so that a run in which there is one only is doubted.

use std::{fmt, sync::Arc};

use sidestep_net::{NodeId, Topology};
use sidestep_paths::Igp;
use sidestep_scenario::Scenario;

/// What connections choose among.
#[derive(Clone)]
pub struct Choice {
    /// What it is, in the singular.
    pub what: &'static str,
    /// How many there are from one host to another; `None`: nothing is chosen there.
    count: Arc<dyn Fn(NodeId, NodeId) -> Option<usize> + Send + Sync>,
}

impl Choice {
    /// Choices of this kind; `count` returns how many there are from one host to another, `None` where nothing is chosen.
    pub fn new(what: &'static str, count: impl Fn(NodeId, NodeId) -> Option<usize> + Send + Sync + 'static) -> Self {
        Choice { what, count: Arc::new(count) }
    }

    /// How many there are from one host to another; `None`: nothing is chosen there.
    pub fn count(&self, from: NodeId, to: NodeId) -> Option<usize> {
        (self.count)(from, to)
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Choice").field(&self.what).finish()
    }
}

impl Choice {
    /// Equal-cost paths.
    pub fn equal_cost(scenario: &Scenario) -> Self {
        let (topology, igp) = (scenario.topology.clone(), Igp::new(&scenario.topology));
        Choice::new("equal-cost path", move |from, to| Some(equal_cost(&topology, &igp, from, to)))
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
