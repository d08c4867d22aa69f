//! Reasons to doubt a run: systems that had nothing to choose from, or whose choice could not help.

use std::collections::BTreeMap;

use sidestep_net::{NodeId, Topology};
use sidestep_paths::Igp;
use sidestep_results::{Doubt, dead_returns, single_ways};
use sidestep_scenario::{Scenario, SystemSpec};

use crate::{
    LabError,
    mix::RunPlan,
    system::{Choice, Registry},
};

/// Why a run of `spec` with this number of `moves` shows less than it seems to.
pub fn doubts(registry: &Registry, scenario: &Scenario, spec: &SystemSpec, moves: u64) -> Result<Vec<Doubt>, LabError> {
    Ok(of(scenario, &RunPlan::of(registry, scenario, spec)?, moves))
}

/// As [`doubts`], of a run whose parts are known.
pub(crate) fn of(scenario: &Scenario, mix: &RunPlan, moves: u64) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> =
        ways(scenario, mix).into_iter().filter_map(|(what, ways)| single_ways(&ways, what)).collect();
    // There is no routing protocol that would go around a link without a carrier.
    doubts.extend(dead_returns(scenario, scenario.seed, &mix.returns, false, moves));
    doubts
}

/// From which host, to which, and among how many paths or egresses a system chooses there.
type Ways = Vec<(String, String, usize)>;

/// By what flows' systems choose among: the number of choices of each pair of hosts.
fn ways(scenario: &Scenario, mix: &RunPlan) -> BTreeMap<&'static str, Ways> {
    let topology = &scenario.topology;
    let mut found: BTreeMap<&'static str, BTreeMap<(NodeId, NodeId), usize>> = BTreeMap::new();
    for (number, flow) in scenario.flows.iter().enumerate().filter(|(_, flow)| flow.transport().is_some()) {
        let Some(choice) = mix.choice(number) else { continue };
        for (from, to) in flow.pairs() {
            if let Some(count) = choice.count(*from, *to) {
                found.entry(choice.what).or_default().insert((*from, *to), count);
            }
        }
    }
    let name = |node: NodeId| topology.node(node).name.clone();
    let named = |ways: BTreeMap<(NodeId, NodeId), usize>| {
        ways.into_iter().map(|((from, to), count)| (name(from), name(to), count)).collect()
    };
    found.into_iter().map(|(what, ways)| (what, named(ways))).collect()
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
