//! The lab's registry: each system builds or names what is missing, and a run where nothing can be chosen is doubted.

use sidestep_lab::doubts;
use sidestep_scenario::{
    Scenario, SystemSpec,
    builder::{ScenarioBuilder, bulk},
};
use sidestep_systems::lab;

#[test]
fn every_system_of_the_lab_builds_or_says_what_is_missing_and_others_are_refused() {
    let text = "duration = \"1 s\"\n[topology]\ngenerator = \"dumbbell\"\n[mptcp]\npath_manager = \"fullmesh\"\n";
    let scenario = Scenario::parse(text, "test").unwrap();
    for info in lab().infos() {
        if let Err(error) = lab().setup(&scenario, &SystemSpec::plain(info.name)) {
            assert!(info.name == "plb", "{error}");
        }
    }
    let refused = lab().setup(&scenario, &SystemSpec::plain("rcp")).unwrap_err().to_string();
    assert!(refused.starts_with("there is no system `rcp`; known systems: tcp, ecmp, random"), "{refused}");
}

/// What is doubted of a run that moved so often.
fn texts(scenario: &Scenario, system: &str, moves: u64) -> Vec<String> {
    let found = doubts(&lab(), scenario, &system.parse().unwrap(), moves).unwrap();
    found.into_iter().map(|doubt| doubt.text).collect()
}

#[test]
fn a_run_is_doubted_where_a_system_that_chooses_has_one_way_and_not_where_it_has_more() {
    let network = |paths: u32| {
        let paths = ScenarioBuilder::new("5 s").parallel_paths(paths).network("hops", 1).network("ecmp", true);
        paths.flow(bulk("c1", "s1")).build()
    };
    let (one, two) = (network(1), network(2));
    for system in ["pathchanger", "random", "mptcp", "semper", "semper-stateful", "ecmp", "prr"] {
        let found = texts(&one, system, 0);
        assert!(found.len() == 1 && found[0].contains("from `c1` to `s1` there is one "), "{system}: {found:?}");
        assert!(texts(&two, system, 0).is_empty(), "{system}: {:?}", texts(&two, system, 0));
    }
    assert!(texts(&one, "tcp", 0).is_empty() && texts(&one, "pathchanger:policy=static", 0).is_empty());
}

#[test]
fn a_run_of_route_control_whose_answers_come_back_over_the_dead_provider_is_doubted() {
    let text = include_str!("../../scenarios/route-control.toml");
    let dead = |direction: &str| {
        let event =
            format!("[[event]]\nat = \"100 s\"\nlink = \"P-D\"\naction = \"blackhole\"\ndirection = \"{direction}\"\n");
        texts(&Scenario::parse(&format!("{text}{event}"), "test").unwrap(), "route-control", 3)
    };
    let both = dead("both");
    assert_eq!(both.len(), 1, "{both:?}");
    assert!(
        both[0].contains("over `P-D` whatever egress `E` takes") && both[0].contains("dead for 200.0 s"),
        "{both:?}"
    );
    assert!(dead("forward").is_empty());
}
