//! Reasons to doubt a run: systems that had nothing to choose from, or whose choice could not help.

use std::collections::BTreeMap;

use sidestep_net::NodeId;
use sidestep_results::{Doubt, dead_returns, single_ways};
use sidestep_scenario::{Scenario, SystemSpec};

use crate::{LabError, mix::RunPlan, system::Registry};

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
            if let Some(count) = choice.count(topology, *from, *to) {
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
