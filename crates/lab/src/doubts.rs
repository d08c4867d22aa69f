//! Reasons to doubt a run: systems that had nothing to choose from, or whose choice could not help.

use std::{collections::BTreeMap, sync::Arc};

use sidestep_control::Planner;
use sidestep_net::{NodeId, Topology};
use sidestep_paths::Igp;
use sidestep_proto::mptcp::PathManager;
use sidestep_results::{Doubt, ReturnPath, dead_returns, single_ways};
use sidestep_scenario::{Scenario, SystemSpec};

use crate::{
    control::Controlled,
    edges,
    systems::{Choice, System},
};

/// Why a run of `spec` that moved so often says less than it seems to; `sites` are the edges that control routes.
pub fn of(scenario: &Scenario, spec: &SystemSpec, sites: &[Controlled], moves: u64) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> =
        ways(scenario, spec).into_iter().filter_map(|(what, ways)| single_ways(&ways, what)).collect();
    let topology = &scenario.topology;
    let igp = Igp::new(topology);
    let name = |node: NodeId| topology.node(node).name.clone();
    let back = |site: &Controlled| {
        let arcs = igp.first_path(site.far, site.edge).unwrap_or_default();
        ReturnPath { site: name(site.edge), far: name(site.far), arcs, egresses: site.egresses.clone() }
    };
    let returns: Vec<ReturnPath> = sites.iter().map(back).collect();
    // There is no routing protocol that would go around a link without a carrier.
    doubts.extend(dead_returns(scenario, scenario.seed, &returns, false, moves));
    doubts
}

/// From which host, to which, and among how many ways a system chooses there.
type Ways = Vec<(String, String, usize)>;

/// By what flows' systems choose among: the ways of each pair of hosts.
fn ways(scenario: &Scenario, spec: &SystemSpec) -> BTreeMap<&'static str, Ways> {
    let topology = &scenario.topology;
    let igp = Igp::new(topology);
    let mut planner = None;
    let mut found: BTreeMap<&'static str, BTreeMap<(NodeId, NodeId), usize>> = BTreeMap::new();
    for flow in &scenario.flows {
        let Some(transport) = flow.transport() else { continue };
        let spec = transport.system.as_ref().unwrap_or(spec);
        for (from, to) in flow.pairs() {
            let choice = System::of(scenario, spec).map_or(Choice::Nothing, |system| system.choice);
            let chosen = match choice {
                Choice::Nothing => None,
                Choice::Paths => {
                    let fresh = || Planner::new(Arc::new(topology.clone()), scenario.paths).ok();
                    let planner = planner.get_or_insert_with(fresh);
                    planner.as_mut().map(|planner| ("path", planner.paths(*from, *to).len()))
                }
                Choice::Subflows(manager) => {
                    let interfaces = match manager {
                        PathManager::Ndiffports => 1,
                        PathManager::Fullmesh => topology.outgoing(*from).len().max(topology.outgoing(*to).len()),
                    };
                    Some(("path for all subflows", interfaces.max(equal_cost(topology, &igp, *from, *to))))
                }
                Choice::EdgeLinks => {
                    let ends = topology.access_router(*from).zip(topology.access_router(*to));
                    ends.filter(|(one, other)| one != other)
                        .map(|(one, other)| ("path between the edges", edges::links(topology, one, other).len()))
                }
                Choice::EqualCost => Some(("equal-cost path", equal_cost(topology, &igp, *from, *to))),
            };
            if let Some((what, count)) = chosen {
                found.entry(what).or_default().insert((*from, *to), count);
            }
        }
    }
    let name = |node: NodeId| topology.node(node).name.clone();
    let named = |ways: BTreeMap<(NodeId, NodeId), usize>| {
        ways.into_iter().map(|((from, to), count)| (name(from), name(to), count)).collect()
    };
    found.into_iter().map(|(what, ways)| (what, named(ways))).collect()
}

/// One if there is a single shortest path, two if some router has a choice, none without a path.
fn equal_cost(topology: &Topology, igp: &Igp, from: NodeId, to: NodeId) -> usize {
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

#[cfg(test)]
mod tests {
    use sidestep_scenario::builder::{ScenarioBuilder, bulk};

    use super::*;
    use crate::control::controlled;

    fn told(scenario: &Scenario, system: &str) -> Vec<String> {
        of(scenario, &system.parse().unwrap(), &[], 0).into_iter().map(|doubt| doubt.text).collect()
    }

    #[test]
    fn each_system_that_chooses_is_told_of_where_there_is_one_way_and_not_where_there_are_more() {
        let network = |paths: u32| {
            let paths = ScenarioBuilder::new("5 s").parallel_paths(paths).network("hops", 1).network("ecmp", true);
            paths.flow(bulk("c1", "s1")).build()
        };
        let (one, two) = (network(1), network(2));
        for system in ["pathchanger", "random", "mptcp", "semper", "semper-stateful", "ecmp", "prr"] {
            let found = told(&one, system);
            assert!(found.len() == 1 && found[0].contains("from `c1` to `s1` there is one "), "{system}: {found:?}");
            assert!(told(&two, system).is_empty(), "{system}: {:?}", told(&two, system));
        }
        assert!(told(&one, "tcp").is_empty() && told(&one, "pathchanger:policy=static").is_empty());
    }

    #[test]
    fn route_control_whose_answers_come_back_over_the_dead_provider_is_told_of() {
        let text = include_str!("../../../scenarios/route-control.toml");
        let dead = |direction: &str| {
            let event = format!(
                "[[event]]\nat = \"100 s\"\nlink = \"P-D\"\naction = \"blackhole\"\ndirection = \"{direction}\"\n"
            );
            let scenario = Scenario::parse(&format!("{text}{event}"), "test").unwrap();
            let sites = controlled(&scenario, &sidestep_route_control::IrcSettings::default()).unwrap();
            of(&scenario, &"irc".parse().unwrap(), &sites, 3)
        };
        let both = dead("both");
        assert_eq!(both.len(), 1, "{both:?}");
        assert!(
            both[0].text.contains("over `P-D` whatever egress `E` takes") && both[0].text.contains("dead for 200.0 s"),
            "{both:?}"
        );
        assert!(dead("forward").is_empty());
    }
}
