//! Scenarios that differ from a case's in their network.

use sidestep_net::{ParseError, generate::DEFAULT_WEIGHT};
use sidestep_scenario::{Scenario, SystemSpec};
use toml::{Table, Value};

/// Systems that have only the paths onto which routers hash flows.
const HASHED: [&str; 3] = ["ecmp", "prr", "plb"];

/// Whether a system plays on [`equal_cost`] networks.
pub(crate) fn is_hashed(system: &SystemSpec) -> bool {
    HASHED.contains(&system.name.as_str())
}

/// The scenario with one weight for all links, so that its paths are of equal cost and routers hash flows over all of them.
///
/// An operator who wants ECMP sets weights so; by the case's own, one path alone is the shortest. Rates, delays and losses
/// stay, of which hashing knows nothing. Routing reacts as in the case: flows of a link that goes down are hashed onto the
/// others after the convergence time of `[routing]`, and a silent loss goes unnoticed. The name differs, as the results of both
/// are kept.
pub(crate) fn equal_cost(scenario: &Scenario) -> Result<Scenario, ParseError> {
    edited(scenario, |file| {
        file.insert("name".into(), format!("{}-equal-cost", scenario.name).into());
        let links = file.get_mut("topology").and_then(|network| network.get_mut("link")).and_then(Value::as_array_mut);
        for link in links.into_iter().flatten().filter_map(Value::as_table_mut) {
            weigh(link);
            if let Some(Value::Table(reverse)) = link.get_mut("reverse") {
                weigh(reverse);
            }
        }
    })
}

/// The scenario whose resolved file is edited so.
pub(crate) fn edited(scenario: &Scenario, edit: impl FnOnce(&mut Table)) -> Result<Scenario, ParseError> {
    // What has been resolved is valid TOML; an error would show when it is parsed as a scenario.
    let mut file: Table = scenario.to_toml().parse().unwrap_or_default();
    edit(&mut file);
    Scenario::parse(&toml::to_string(&file).unwrap_or_default(), &scenario.name)
}

fn weigh(channel: &mut Table) {
    channel.insert("weight".into(), (DEFAULT_WEIGHT as i64).into());
}

#[cfg(test)]
mod tests {
    use sidestep_net::Link;

    use super::*;
    use crate::{cases, lab_cases};

    #[test]
    fn all_paths_of_every_case_are_of_equal_cost_and_nothing_else_changes() {
        for case in cases().chain(lab_cases()) {
            let own = case.scenario();
            let mut hashed = equal_cost(&own).unwrap();
            let links = hashed.topology.links();
            let is_usual = |link: &Link| link.ab.weight == DEFAULT_WEIGHT && link.ba.weight == DEFAULT_WEIGHT;
            assert!(links.iter().all(is_usual), "{}", case.name);
            // Of one length, one path costs what another does.
            let lengths: Vec<usize> = hashed.topology.paths().iter().map(|path| path.links.len()).collect();
            assert!(lengths.iter().all(|length| *length == lengths[0]), "{}: {lengths:?}", case.name);
            let rates = |of: &Scenario| -> Vec<_> {
                let channels = of.topology.links().iter().flat_map(|link| [&link.ab, &link.ba]);
                channels.map(|channel| (channel.rate, channel.delay, channel.loss, channel.queue)).collect()
            };
            assert_eq!(rates(&hashed), rates(&own), "{}", case.name);
            assert_ne!(hashed.name, own.name);
            (hashed.name, hashed.topology) = (own.name.clone(), own.topology.clone());
            assert_eq!(hashed, own);
        }
    }

    #[test]
    fn the_baseline_that_routers_hash_plays_there_and_others_do_not() {
        let is_hashed = |name: &str| super::is_hashed(&name.parse().unwrap());
        assert!(is_hashed("ecmp") && !is_hashed("tcp") && !is_hashed("random") && !is_hashed("pathchanger:policy=plb"));
    }
}
