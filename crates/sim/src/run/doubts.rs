//! Reasons to doubt a run: systems that had nothing to choose from, or whose choice could not help.

use sidestep_net::NodeId;
use sidestep_policy::{AgentSettings, PolicyName};
use sidestep_results::{Doubt, Recorder, dead_returns, single_ways};

use super::simulation::Simulation;
use crate::{
    routing::EcmpPaths,
    system::{Setup, Steerer, Transport},
};
use sidestep_engine::RouteId;

impl Simulation<'_> {
    /// Keeps among how many ways a connection could choose when it was opened, if its system is one that chooses.
    pub(super) fn note_ways(
        &mut self,
        system: &Setup,
        (from, to): (NodeId, NodeId),
        paths: usize,
        forward: &EcmpPaths,
        subflows: &[RouteId],
    ) {
        let Some((what, count)) = ways(system, (from, to), paths, forward, subflows) else { return };
        let most = self.ways.entry((what, from, to)).or_default();
        *most = (*most).max(count);
    }

    /// Reports why the run says less of the systems than it seems to.
    pub(super) fn take_doubts(&self, recorder: &mut Recorder) {
        let mut doubts: Vec<Doubt> = Vec::new();
        let mut kinds: Vec<&str> = self.ways.keys().map(|(what, ..)| *what).collect();
        kinds.dedup();
        let name = |node: NodeId| self.scenario.topology.node(node).name.clone();
        for kind in kinds {
            let of_kind = self.ways.iter().filter(|((what, ..), _)| *what == kind);
            let ways: Vec<_> = of_kind.map(|((_, from, to), count)| (name(*from), name(*to), *count)).collect();
            doubts.extend(single_ways(&ways, kind));
        }
        for system in std::iter::once(&self.whole_run).chain(&self.systems) {
            doubts.extend(system.doubts.iter().cloned());
            doubts.extend(dead_returns(self.scenario, self.seed, &system.returns, true, recorder.moves()));
        }
        let mut told: Vec<Doubt> = Vec::new();
        for doubt in doubts {
            if !told.contains(&doubt) {
                recorder.doubt(doubt.kind, doubt.text.clone());
                told.push(doubt);
            }
        }
    }
}

/// What a system's connection chooses among, and how many of these there are.
fn ways(
    system: &Setup,
    (from, to): (NodeId, NodeId),
    paths: usize,
    forward: &EcmpPaths,
    subflows: &[RouteId],
) -> Option<(&'static str, usize)> {
    match (&system.edges, &system.transport, &system.mover) {
        (Some(edges), ..) => Some(("path between the edges", edges.count(from, to))),
        (None, Transport::Mptcp(..), _) => {
            let mut routes: Vec<RouteId> = subflows.to_vec();
            routes.sort_unstable();
            routes.dedup();
            Some(("path for all subflows", routes.len()))
        }
        (None, Transport::Tcp, Steerer::Policy(AgentSettings { policy: PolicyName::Static, .. })) => None,
        (None, Transport::Tcp, Steerer::Policy(_)) => Some(("path", paths)),
        (None, Transport::Tcp, Steerer::Label(_)) => Some(("equal-cost path", forward.routes.len())),
        (None, Transport::Tcp, Steerer::None) if system.ecmp => Some(("equal-cost path", forward.routes.len())),
        _ => None,
    }
}
