//! Which system each flow of a run has, and reasons to doubt what it says of them: systems that had nothing to choose from, or
//! whose choice could not help.

use std::{collections::BTreeMap, sync::Arc};

use sidestep_engine::{Network, RouteId};
use sidestep_net::{NodeId, Topology};
use sidestep_policy::{PolicyName, PolicySettings};
use sidestep_results::{Doubt, Recorder, dead_returns, single_ways};
use sidestep_scenario::{Flow, Scenario, SystemSpec, TcpSettings};

use super::{Shared, SimError};
use crate::{
    routing::EcmpPaths,
    system::{MakeBehaviour, Setup, Steerer, Transport},
};

/// The systems of a run.
pub(super) struct Systems {
    /// That of flows that have none of their own.
    whole_run: Arc<Setup>,
    /// By flow of the scenario: the system that it has.
    each: Vec<Arc<Setup>>,
    /// By what systems choose among, and between whom: the most ways that a connection had when it was opened.
    ways: BTreeMap<(&'static str, NodeId, NodeId), usize>,
}

impl Systems {
    /// The system of the whole run, and that of each flow of the scenario.
    pub(super) fn of(scenario: &Scenario, spec: &SystemSpec, shared: &Shared) -> Result<Self, SimError> {
        let setup = |spec: &SystemSpec, tcp: &TcpSettings| {
            shared.registry.setup(&shared.catalogue, scenario, spec, tcp, &shared.lateness)
        };
        let whole_run = Arc::new(setup(spec, &scenario.tcp)?);
        let of = |(number, flow): (usize, &Flow)| -> Result<Arc<Setup>, SimError> {
            let Some(transport) = flow.transport() else { return Ok(whole_run.clone()) };
            if transport.system.is_none() && transport.tcp.is_none() {
                return Ok(whole_run.clone());
            }
            let (own, tcp) =
                (transport.system.as_ref().unwrap_or(spec), transport.tcp.as_ref().unwrap_or(&scenario.tcp));
            let wrong = |problem| SimError::Flow { number, flow: flow.name().to_owned(), problem: Box::new(problem) };
            Ok(Arc::new(setup(own, tcp).map_err(wrong)?))
        };
        let each = scenario.flows.iter().enumerate().map(of).collect::<Result<_, _>>()?;
        Ok(Systems { whole_run, each, ways: BTreeMap::new() })
    }

    /// The system of the whole run.
    pub(super) fn whole_run(&self) -> &Setup {
        &self.whole_run
    }

    /// The system of the flow of this number in the scenario.
    pub(super) fn of_flow(&self, number: usize) -> &Arc<Setup> {
        &self.each[number]
    }

    /// Whether agents move some flows by a policy.
    pub(super) fn have_agents(&self) -> bool {
        self.each.iter().any(|system| matches!(system.mover, Steerer::Policy(_)))
    }

    /// Gives nodes the behaviour that a system of the run has for them.
    pub(super) fn install(
        &self,
        topology: &Topology,
        network: &mut Network,
        spec: &SystemSpec,
    ) -> Result<(), SimError> {
        let mut behaviours: Vec<(&MakeBehaviour, &str)> = Vec::new();
        for system in std::iter::once(&self.whole_run).chain(&self.each) {
            let is_same = |other: &(&MakeBehaviour, &str), own: &MakeBehaviour| {
                Arc::ptr_eq(&other.0.0, &own.0) || !other.1.is_empty() && other.1 == system.routers
            };
            if let Some(behaviour) = &system.behaviour
                && !behaviours.iter().any(|other| is_same(other, behaviour))
            {
                behaviours.push((behaviour, &system.routers));
            }
        }
        match behaviours[..] {
            [] => {}
            [(behaviour, _)] => {
                for node in topology.node_ids() {
                    if let Some(behaviour) = (behaviour.0)(topology, node) {
                        network.set_behaviour(topology, node, behaviour);
                    }
                }
            }
            _ => return Err(SimError::TwoBehaviours(spec.clone())),
        }
        Ok(())
    }

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
    pub(super) fn take_doubts(&self, scenario: &Scenario, seed: u64, recorder: &mut Recorder) {
        let mut doubts: Vec<Doubt> = Vec::new();
        let mut kinds: Vec<&str> = self.ways.keys().map(|(what, ..)| *what).collect();
        kinds.dedup();
        let name = |node: NodeId| scenario.topology.node(node).name.clone();
        for kind in kinds {
            let of_kind = self.ways.iter().filter(|((what, ..), _)| *what == kind);
            let ways: Vec<_> = of_kind.map(|((_, from, to), count)| (name(*from), name(*to), *count)).collect();
            doubts.extend(single_ways(&ways, kind));
        }
        for system in std::iter::once(&self.whole_run).chain(&self.each) {
            doubts.extend(system.doubts.iter().cloned());
            doubts.extend(dead_returns(scenario, seed, &system.returns, true, recorder.moves()));
        }
        let mut reported: Vec<Doubt> = Vec::new();
        for doubt in doubts {
            if !reported.contains(&doubt) {
                recorder.doubt(doubt.kind, doubt.text.clone());
                reported.push(doubt);
            }
        }
    }

    /// Reports the remarks of the system of the whole run.
    pub(super) fn take_notes(&self, recorder: &mut Recorder) {
        self.whole_run.notes.iter().for_each(|note| recorder.note(note.clone()));
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
        (None, Transport::Tcp, Steerer::Policy(PolicySettings { policy: PolicyName::Static, .. })) => None,
        (None, Transport::Tcp, Steerer::Policy(_)) => Some(("path", paths)),
        (None, Transport::Tcp, Steerer::Label(_)) => Some(("equal-cost path", forward.routes.len())),
        (None, Transport::Tcp, Steerer::None) if system.ecmp => Some(("equal-cost path", forward.routes.len())),
        _ => None,
    }
}
