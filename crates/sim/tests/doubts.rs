//! What a run says of systems that could not act: they had one way only, or answers came back over the dead one.

use sidestep_results::DoubtKind;
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk},
};
use sidestep_sim::{RunOptions, run};

/// What there is to doubt in a run of a system.
fn told(scenario: &Scenario, system: &str) -> Vec<String> {
    let (result, _) =
        run(&RunOptions::once(sidestep_systems::simulator(), scenario.clone(), vec![system.parse().unwrap()]), &())
            .unwrap();
    assert!(result.validity.iter().all(|doubt| doubt.system == system && doubt.kind == DoubtKind::CouldNotAct));
    result.validity.into_iter().map(|doubt| doubt.text).collect()
}

#[test]
fn a_system_with_one_way_is_told_of_and_with_two_it_is_not() {
    let network = |paths: u32| {
        let paths = ScenarioBuilder::new("500 ms").parallel_paths(paths).network("hops", 1).network("ecmp", true);
        paths.network("rate", "5 Mbit/s").flow(bulk("c1", "s1")).build()
    };
    let (one, two) = (network(1), network(2));
    for system in ["pathchanger", "random", "mptcp", "semper", "semper-stateful", "ecmp", "prr", "plb"] {
        let found = told(&one, system);
        assert!(found.len() == 1 && found[0].starts_with("from `c1` to `s1` there is one "), "{system}: {found:?}");
        assert!(found[0].ends_with("it could not act"), "{found:?}");
        assert!(told(&two, system).is_empty(), "{system}: {:?}", told(&two, system));
    }
    assert!(told(&one, "tcp").is_empty() && told(&one, "pathchanger:policy=static").is_empty());
}

#[test]
fn mptcp_whose_hosts_have_two_interfaces_can_act_and_with_one_each_it_cannot() {
    let host = |links: &[(&str, &str)]| {
        let start = ScenarioBuilder::new("500 ms").host("c").host("s").router("A").router("B");
        let all = links.iter().fold(start, |network, (a, b)| network.link(a, b, "5 Mbit/s", "1 ms"));
        all.flow(bulk("c", "s")).build()
    };
    let (one, two) =
        (host(&[("c", "A"), ("A", "B"), ("B", "s")]), host(&[("c", "A"), ("c", "B"), ("A", "s"), ("B", "s")]));
    let mesh = "mptcp:path_manager=fullmesh";
    assert_eq!(told(&one, mesh), ["from `c` to `s` there is one path for all subflows only: it could not act"]);
    assert!(told(&two, mesh).is_empty(), "{:?}", told(&two, mesh));
}

#[test]
fn route_control_whose_answers_come_back_over_the_dead_provider_is_told_of() {
    let text =
        include_str!("../../../scenarios/route-control.toml").replace("duration = \"300 s\"", "duration = \"40 s\"");
    let dead = |direction: &str| {
        let event =
            format!("[[event]]\nat = \"20 s\"\nlink = \"P-D\"\naction = \"blackhole\"\ndirection = \"{direction}\"\n");
        Scenario::parse(&format!("{text}{event}"), "test").unwrap()
    };
    let found = told(&dead("both"), "route-control");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("answers from `D` come back to `E` over `P-D` whatever egress `E` takes"),
        "{found:?}"
    );
    assert!(found[0].contains("dead for 20.0 s while another egress was fine: "), "{found:?}");
    assert!(told(&dead("forward"), "route-control").is_empty());
    assert!(told(&dead("both"), "route-control:mode=none").is_empty(), "what never acts cannot fail to");
}
