//! MPTCP hosts behind edge routers that spread subflows over paths.

use std::path::Path;

use sidestep_results::SystemResult;
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk, down, part, up},
};
use sidestep_sim::{RunOptions, run};

/// Two hosts with a server, so many links of 10 Mbit/s between their edges.
fn branch(links: u32) -> ScenarioBuilder {
    let branch = ScenarioBuilder::new("20 s").set("warmup", "5 s").parallel_paths(links).network("hops", 1);
    let branch = branch.network("clients", 2).network("servers", 1).network("rate", "10 Mbit/s");
    let branch = branch.network("access_rate", "1 Gbit/s").network("queue", "200 packets");
    branch.set("semper.subflows", 16).flow(bulk("c*", "s1"))
}

fn results(scenario: &Scenario, systems: &[&str]) -> Vec<SystemResult> {
    let specs = systems.iter().map(|system| system.parse().unwrap()).collect();
    let (result, _) = run(&RunOptions::once(sidestep_systems::simulator(), scenario.clone(), specs), &()).unwrap();
    systems.iter().map(|system| result.systems.get(system).unwrap().clone()).collect()
}

const EDGES: [&str; 4] = ["semper", "semper:mode=rendezvous", "semper:mode=weighted", "semper-stateful"];

#[test]
fn edges_fill_four_links_of_which_plain_tcp_and_mptcp_fill_one() {
    let scenario = branch(4).build();
    for (system, result) in ["tcp", "mptcp"].iter().zip(results(&scenario, &["tcp", "mptcp"])) {
        assert!(result.goodput_mbps < 10.0, "{system}: {}", result.goodput_mbps);
    }
    for (system, result) in EDGES.iter().zip(results(&scenario, &EDGES)) {
        assert!(result.goodput_mbps > 34.0, "{system}: {}", result.goodput_mbps);
        assert!(result.fairness.is_some_and(|fairness| fairness > 0.9), "{system}: {:?}", result.fairness);
    }
}

#[test]
fn a_stateful_edge_uses_all_links_with_as_many_subflows_and_a_stateless_one_does_not() {
    let scenario = branch(6).network("clients", 1).build();
    let of = results(&scenario, &["semper:subflows=6", "semper-stateful:subflows=6"]);
    // In turn they have a link each, at random they have four of the six on average.
    assert!(of[1].goodput_mbps > 52.0 && of[0].goodput_mbps < 50.0, "{} {}", of[0].goodput_mbps, of[1].goodput_mbps);
}

/// So many hosts with a server, and links of 5, 10 and 20 Mbit/s between their edges.
fn unequal_links(hosts: u32) -> ScenarioBuilder {
    let fast = || part([("rate", "1 Gbit/s"), ("delay", "1 ms"), ("queue", "1000 packets")]);
    let slow = |rate| part([("rate", rate), ("delay", "5 ms"), ("queue", "200 packets")]);
    let mut branch = ScenarioBuilder::new("40 s").set("warmup", "10 s").router("A").router("B");
    branch = branch.host("s1").link_with("B", "s1", fast());
    for host in 1..=hosts {
        let name = format!("c{host}");
        branch = branch.host(&name).link_with(&name, "A", fast());
    }
    for (router, rate) in [("R1", "5 Mbit/s"), ("R2", "10 Mbit/s"), ("R3", "20 Mbit/s")] {
        branch = branch.router(router).link_with("A", router, slow(rate)).link_with(router, "B", slow(rate));
    }
    branch.flow(bulk("c*", "s1"))
}

#[test]
fn weighted_edges_put_subflows_on_unequal_links_by_their_capacity_and_modulo_puts_as_many_on_each() {
    // Many hosts with one subflow each: what a host gets is its link's capacity by the number of hosts there.
    let systems = ["semper:subflows=1,mode=modulo", "semper:subflows=1,mode=weighted"];
    let of = results(&unequal_links(42).build(), &systems);
    let fairness = [0, 1].map(|system| of[system].fairness.unwrap());
    // With a third of the hosts on each link, Jain's index is 35²/(3 (5² + 10² + 20²)) = 0.78.
    assert!((0.65..0.87).contains(&fairness[0]) && fairness[1] > 0.9, "{fairness:?}");
    // MPTCP evens out what the hash does: both fill the links.
    for (system, result) in EDGES.iter().zip(results(&unequal_links(2).set("semper.subflows", 16).build(), &EDGES)) {
        assert!(result.goodput_mbps > 29.0, "{system}: {}", result.goodput_mbps);
    }
}

#[test]
fn blind_edges_lose_what_a_dead_link_carried_and_aware_ones_go_on_with_three_quarters() {
    let scenario = branch(4).event(down("6 s").path("path-3")).event(up("19 s").path("path-3")).build();
    let systems = ["semper", "semper:aware=false", "semper-stateful", "semper-stateful:aware=false"];
    for (system, result) in systems.iter().zip(results(&scenario, &systems)) {
        // Of 15 s the link is up for 2.
        assert!((24.0..34.0).contains(&result.goodput_mbps), "{system}: {}", result.goodput_mbps);
    }
}

#[test]
fn the_ready_scenario_runs_and_the_same_seed_gives_the_same_result() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/semper.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let short =
        text.replace("30 s", "6 s").replace("at = \"20 s\"", "at = \"3 s\"").replace("at = \"25 s\"", "at = \"5 s\"");
    let short = short.replace("warmup = \"5 s\"", "warmup = \"1 s\"");
    let scenario = Scenario::parse(&short, "semper").unwrap();
    let systems: Vec<String> = scenario.systems.iter().map(ToString::to_string).collect();
    let systems: Vec<&str> = systems.iter().map(String::as_str).collect();
    let once = results(&scenario, &systems);
    assert!(once[1..].iter().all(|result| result.goodput_mbps > 2.5 * once[0].goodput_mbps), "{once:?}");
    assert_eq!(format!("{once:?}"), format!("{:?}", results(&scenario, &systems)));
}
