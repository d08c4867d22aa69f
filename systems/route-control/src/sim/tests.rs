use std::collections::BTreeMap;

use sidestep_results::{RunResult, SystemResult};
use sidestep_scenario::{
    Scenario,
    builder::{Part, ScenarioBuilder, blackhole, bulk, down, part, up},
};

use sidestep_sim::{RunOptions, SimError, run, system::Registry};

use super::RouteControl;

/// A site `E` with two paths to `D`: 8 Mbit/s over `P`, which is shorter, and 5 Mbit/s over `B`; 40 ms in both directions.
fn site(duration: &str) -> ScenarioBuilder {
    let thin = |rate: &str, weight: i64| part([("rate", rate), ("delay", "20 ms")]).with("weight", weight);
    ScenarioBuilder::new(duration)
        .host("h")
        .host("s")
        .router("E")
        .router("P")
        .router("B")
        .router("D")
        .link("h", "E", "1 Gbit/s", "10 us")
        .link("s", "D", "1 Gbit/s", "10 us")
        .link("E", "P", "1 Gbit/s", "10 us")
        .link("E", "B", "1 Gbit/s", "10 us")
        .link_with("P", "D", thin("8 Mbit/s", 10))
        .link_with("B", "D", thin("5 Mbit/s", 20))
        .path("primary", ["P-D"])
        .path("backup", ["B-D"])
        .set("tcp.congestion_control", "reno")
        // Four of them fill neither queue.
        .set("tcp.receive_window", "30 kB")
        .flow(bulk("h", "s").with("connections", 4))
}

/// What leaves the site over `link` is lost in this time.
fn lost_between(scenario: ScenarioBuilder, link: &str, from: &str, to: &str) -> ScenarioBuilder {
    let event = |event: Part| event.link(link).with("direction", "forward");
    scenario.event(event(blackhole(from))).event(event(up(to)))
}

fn results(scenario: &Scenario, systems: &[&str]) -> Result<RunResult, SimError> {
    let systems = systems.iter().map(|system| system.parse().unwrap()).collect();
    run(
        &RunOptions::once(Registry::new().with(sidestep_tcp::sim::Tcp).with(RouteControl), scenario.clone(), systems),
        &(),
    )
    .map(|(result, _)| result)
}

fn of<'r>(result: &'r RunResult, system: &str) -> &'r SystemResult {
    result.systems.get(system).unwrap()
}

fn moves(result: &RunResult, system: &str) -> Vec<(String, u64)> {
    of(result, system).moves.clone().into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn counted(moves: &[(&str, u64)]) -> Vec<(String, u64)> {
    moves.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
}

#[test]
fn an_outage_of_the_primary_is_left_and_the_backup_too_when_it_is_over() {
    let (none, practical) = ("route-control:mode=none", "route-control:guards=false");
    let (ideal, predictive) = ("route-control:mode=ideal", "route-control:mode=predictive");
    let scenario = lost_between(site("40 s"), "E-P", "5 s", "15 s").build();
    let result = results(&scenario, &["tcp", none, ideal, practical, "route-control", predictive]).unwrap();
    // Without control nothing is probed, and nothing differs from plain TCP.
    assert_eq!(of(&result, none).goodput_mbps, of(&result, "tcp").goodput_mbps);
    assert_eq!(moves(&result, none), []);
    assert_eq!(moves(&result, ideal), counted(&[("told", 2)]));
    for system in [practical, "route-control"] {
        assert_eq!(moves(&result, system), counted(&[("dead", 1), ("recovered", 1)]), "{system}");
    }
    // It may return by a prediction before it is sure that the primary has recovered.
    assert_eq!(of(&result, predictive).total_moves(), 2);
    for system in [practical, "route-control", predictive] {
        let goodput = |system| of(&result, system).goodput_mbps;
        assert!(goodput(none) < goodput(system) && goodput(system) < goodput(ideal), "{system}: {}", goodput(system));
    }
    // To spare TCP packets that are overtaken the return would wait for ten periods, which costs most of what control gains.
    let waits = "route-control:reordering=3";
    let waiting = results(&scenario, &[waits]).unwrap();
    assert_eq!(moves(&waiting, waits), counted(&[("dead", 1), ("recovered", 1)]));
    let gain = |goodput: f64| goodput - of(&result, none).goodput_mbps;
    let (with, without) = (gain(of(&waiting, waits).goodput_mbps), gain(of(&result, "route-control").goodput_mbps));
    assert!(with < without / 2.0, "{with} with the wait, {without} without");
    // Full for 10 s of 40 s, less a second and a half to notice the outage and a second until timers fire.
    let backup = of(&result, practical).paths.get("backup").unwrap().utilisation.unwrap();
    assert!((0.19..0.25).contains(&backup), "{backup}");
}

#[test]
fn probes_take_the_egress_that_they_measure_and_are_answered_over_the_path_back() {
    // The backup is dead all the time; the primary is fine.
    let scenario = lost_between(site("10 s"), "B-D", "0 s", "9 s").build();
    let result = results(&scenario, &["route-control:guards=false"]).unwrap();
    assert_eq!(moves(&result, "route-control:guards=false"), []);
    // Both dead: it stays.
    let scenario = lost_between(lost_between(site("10 s"), "B-D", "2 s", "9 s"), "P-D", "4 s", "9 s").build();
    let result = results(&scenario, &["route-control:guards=false"]).unwrap();
    assert_eq!(moves(&result, "route-control:guards=false"), []);
    // 40 probes of 64 bytes a second over the backup.
    let result = results(&site("10 s").set("sample", "10 s").build(), &["route-control:guards=false"]).unwrap();
    let sent = of(&result, "route-control:guards=false").paths.get("backup").unwrap().utilisation.unwrap();
    assert!((sent - 40.0 * 64.0 * 8.0 / 5e6).abs() < 0.001, "{sent}");
}

#[test]
fn a_link_without_carrier_is_left_at_once() {
    let both = |event: Part| event.link("E-P");
    let scenario = site("12 s").event(both(down("5.3 s"))).event(both(up("8 s"))).build();
    let result = results(&scenario, &["route-control"]).unwrap();
    assert_eq!(moves(&result, "route-control"), counted(&[("carrier", 1), ("recovered", 1)]));
}

#[test]
fn a_clean_and_thin_backup_is_no_match_for_a_fast_primary_that_loses_little() {
    let scenario =
        site("60 s").event(part([("at", "10 s"), ("action", "loss"), ("loss", "0.2 %")]).link("E-P")).build();
    let result = results(&scenario, &["route-control:guards=false", "route-control:mode=predictive"]).unwrap();
    assert!(of(&result, "route-control:guards=false").total_moves() > 1);
    assert_eq!(moves(&result, "route-control:mode=predictive"), []);
}

#[test]
fn edges_that_have_nothing_to_choose_are_refused_with_one_line() {
    let refused = |edge: &str| {
        let scenario = site("1 s").set("route-control.edges", vec![edge]).build();
        results(&scenario, &["route-control"]).unwrap_err().to_string()
    };
    let problem = "is not a router with hosts and at least two links to other routers";
    assert_eq!(refused("P"), format!("system `route-control`: edges: `P` {problem}"));
    assert!(refused("X").starts_with("system `route-control`: edges: "), "{}", refused("X"));
    assert!(results(&site("1 s").set("route-control.edges", vec!["E"]).build(), &["route-control"]).is_ok());
}

#[test]
fn in_the_ready_scenario_guards_save_most_moves_and_lose_nothing() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/route-control.toml");
    let scenario = Scenario::parse(&std::fs::read_to_string(file).unwrap(), "route-control").unwrap();
    let systems = [
        "route-control:mode=none",
        "route-control:guards=false",
        "route-control:mode=predictive",
        "route-control:mode=ideal",
    ];
    let result = results(&scenario, &systems).unwrap();
    let [none, paper, predictive, ideal] = systems.map(|system| of(&result, system));
    let goodputs = [none, paper, predictive, ideal].map(|of| of.goodput_mbps);
    assert!(goodputs.is_sorted() && goodputs[1] > 1.5 * goodputs[0], "{goodputs:?}");
    assert!(predictive.total_moves() * 5 < paper.total_moves(), "{:?}", predictive.moves);
}

#[test]
fn load_fills_both_egresses_of_a_site_and_two_sites_do_not_chase_each_other() {
    let read = |text: &str| Scenario::parse(text, "load").unwrap();
    let (load, unguarded) = ("route-control:load=80%", "route-control:load=80%,guards=false");
    let alone = read(include_str!("../../../../scenarios/edge-load.toml"));
    let result = results(&alone, &["route-control", "route-control:mode=predictive", load]).unwrap();
    for blind in ["route-control", "route-control:mode=predictive"] {
        assert!(of(&result, blind).goodput_mbps < 5.0, "{blind}: {}", of(&result, blind).goodput_mbps);
    }
    assert!(of(&result, load).goodput_mbps > 19.0, "{}", of(&result, load).goodput_mbps);
    assert!(of(&result, load).total_moves() <= 10, "{:?}", of(&result, load).moves);
    let both = read(include_str!("../../../../scenarios/edge-load-neighbours.toml"));
    let result = results(&both, &[load, unguarded]).unwrap();
    assert!(of(&result, load).goodput_mbps > 25.0, "{}", of(&result, load).goodput_mbps);
    assert!(of(&result, load).total_moves() <= 10, "{:?}", of(&result, load).moves);
    assert!(of(&result, unguarded).total_moves() > 50, "{:?}", of(&result, unguarded).moves);
}

#[test]
fn flows_that_load_has_spread_leave_an_egress_that_dies() {
    // Eight flows fill 8 Mbit/s; from 30 s on the backup loses all.
    let endless = site("60 s").set("tcp.receive_window", "1 MB").flow(bulk("h", "s").with("connections", 4));
    let scenario = lost_between(endless, "E-B", "30 s", "55 s").build();
    let result = results(&scenario, &["route-control:load=80%"]).unwrap();
    let moves = &of(&result, "route-control:load=80%").moves;
    assert_eq!(moves.get("dead"), Some(&1), "{moves:?}");
    assert!(moves.get("load").is_some_and(|count| *count >= 1), "{moves:?}");
}

#[test]
fn settings_of_load_that_cannot_hold_are_refused() {
    let refused = |system: &str| results(&site("1 s").build(), &[system]).unwrap_err().to_string();
    for (setting, problem) in [
        ("load=40%", "load_end must be above 0 % and below load"),
        ("load=80%,load_end=0%", "load_end must be above 0 % and below load"),
        ("load=80%,load_step=0%", "load_step must be above 0 %"),
        ("load=80%,load_wait=2h", "load_wait"),
        ("load=80%,mode=ideal", "load needs mode practical or predictive"),
    ] {
        let refused = refused(&format!("route-control:{setting}"));
        assert!(refused.contains(problem), "{refused}");
    }
}
