//! The configuration of the edge daemons: routers with hosts, and the links that join two of them.

use std::fmt::Write;

use sidestep_lab::plan::NodePlan;
use sidestep_net::{ArcId, NodeId, Topology};

use crate::{SemperSettings, daemon::MAX_FLOWS};

/// The edges of a network: routers that have hosts.
pub fn edges(topology: &Topology) -> Vec<NodeId> {
    topology.node_ids().filter(|node| topology.host_arcs(*node).next().is_some()).collect()
}

/// Returns why the lab cannot balance over this network.
pub fn check(topology: &Topology) -> Result<(), String> {
    let edges = edges(topology);
    let apart = edges.iter().flat_map(|from| edges.iter().map(move |to| (*from, *to)));
    match apart.into_iter().find(|(from, to)| from < to && links(topology, *from, *to).is_empty()) {
        None => Ok(()),
        Some((from, to)) => {
            let name = |node| topology.node(node).name.clone();
            Err(format!(
                "the lab's edges balance over links that join them, and there is none between {} and {}",
                name(from),
                name(to)
            ))
        }
    }
}

/// The arcs from one edge to another, in the order of their links: the same at both.
pub fn links(topology: &Topology, from: NodeId, to: NodeId) -> Vec<ArcId> {
    let mut arcs: Vec<_> = topology.outgoing(from).iter().copied().filter(|arc| topology.head(*arc) == to).collect();
    arcs.sort_by_key(|arc| arc.link());
    arcs
}

/// The file of the edge daemon on a router. Paths are known by the names of their links.
pub fn config(topology: &Topology, plan: &NodePlan, settings: &SemperSettings, stateful: bool, seed: u64) -> String {
    let name_of = |arc: &ArcId| plan.interfaces.iter().find(|interface| interface.arc == *arc);
    let inside = topology.host_arcs(plan.node).filter_map(|arc| Some(format!("\"{}\"", name_of(&arc)?.name)));
    let inside: Vec<_> = inside.collect();
    let health = if settings.aware { "carrier" } else { "off" };
    let mut text = format!(
        "[edge]\ninside = [{}]\nmode = \"{}\"\nhealth = \"{health}\"\nstateful = {stateful}\nflows = {}\nseed = {}\n\
         symmetric = true\n",
        inside.join(", "),
        settings.mode.as_str(),
        settings.table.min(MAX_FLOWS),
        seed as u32 & 0x7fff_ffff,
    );
    for other in edges(topology).into_iter().filter(|other| *other != plan.node) {
        let mut paths = String::new();
        for arc in links(topology, plan.node, other) {
            let Some(interface) = name_of(&arc) else { continue };
            let Some((_, via)) = interface.addresses.first() else { continue };
            let link = topology.link(arc.link());
            let rate = topology.channel(arc).rate;
            let weight = match settings.mode {
                sidestep_balance::BalanceMode::Weighted => format!(", rate = \"{} bit/s\"", rate.bits_per_sec().max(1)),
                _ => String::new(),
            };
            let _ = writeln!(
                paths,
                "    {{ name = \"{}\", via = \"{via}\", dev = \"{}\"{weight} }},",
                link.name, interface.name
            );
        }
        for arc in topology.host_arcs(other) {
            let Some(prefix) = topology.node(topology.head(arc)).prefix else { continue };
            let _ = write!(text, "\n[[destination]]\nprefix = \"{prefix}\"\npath = [\n{paths}]\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::daemon::EdgeConfig;
    use sidestep_paths::Igp;
    use sidestep_scenario::Scenario;

    use super::*;
    use sidestep_lab::plan::{Multipath, plan};

    #[test]
    fn both_edges_of_a_network_have_sets_with_the_same_digest() {
        let text = "duration = \"1 s\"\n[topology]\ngenerator = \"parallel-paths\"\npaths = 4\nhops = 1\nclients = 3\n";
        let scenario = Scenario::parse(text, "test").unwrap();
        let topology = &scenario.topology;
        assert_eq!(check(topology), Ok(()));
        let plans = plan(topology, &Igp::new(topology), Multipath::Single).unwrap();
        for mode in sidestep_balance::BalanceMode::ALL {
            let settings = SemperSettings { mode, ..SemperSettings::default() };
            let mut digests = std::collections::BTreeSet::new();
            for node in edges(topology) {
                let plan = plans.iter().find(|plan| plan.node == node).unwrap();
                let config = EdgeConfig::parse(&config(topology, plan, &settings, false, 7)).unwrap();
                for destination in &config.destinations {
                    assert_eq!(destination.paths.len(), 4);
                    digests.insert(config.set_of(destination).unwrap().version().digest);
                }
            }
            assert_eq!(digests.len(), 1, "{mode:?}");
        }
        let far = text.replace("hops = 1", "hops = 3");
        assert!(check(&Scenario::parse(&far, "test").unwrap().topology).unwrap_err().contains("there is none between"));
    }
}
