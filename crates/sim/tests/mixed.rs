//! Flows of several systems in one run, links that are bad at random times, and paths that come and go.

use std::collections::BTreeMap;

use sidestep_results::{RunResult, SystemResult};
use sidestep_scenario::{
    Scenario,
    builder::{Part, ScenarioBuilder, bulk, cbr, closed_loop, down, impairment, part, up},
};
use sidestep_sim::{RunOptions, SimError, run};

/// Two hosts, two routers, so many paths of 10 Mbit/s; no traffic.
fn paths(count: u32) -> ScenarioBuilder {
    let paths = ScenarioBuilder::new("6 s").set("warmup", "1 s").parallel_paths(count).network("hops", 2);
    paths.network("rate", "10 Mbit/s").network("ecn", "20 packets")
}

/// One bottleneck of 20 Mbit/s.
fn bottleneck() -> ScenarioBuilder {
    ScenarioBuilder::new("20 s").set("warmup", "2 s").dumbbell(2).network("rate", "20 Mbit/s")
}

fn options(scenario: &Scenario, system: &str, seed: u64) -> RunOptions {
    RunOptions::once(
        sidestep_systems::simulator(),
        Scenario { seed, ..scenario.clone() },
        vec![system.parse().unwrap()],
    )
}

fn try_results(scenario: &Scenario, system: &str, seed: u64) -> Result<RunResult, SimError> {
    run(&options(scenario, system, seed), &()).map(|(result, _)| result)
}

fn results(scenario: &Scenario, system: &str) -> SystemResult {
    try_results(scenario, system, 1).unwrap().systems.get(system).unwrap().clone()
}

/// The rows of a CSV file that a run leaves, each by the names of its columns.
fn rows(scenario: &Scenario, system: &str, file: &str) -> Vec<BTreeMap<String, String>> {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(scenario, system, 1);
    options.out = Some(dir.path().to_owned());
    run(&options, &()).unwrap();
    let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| head.iter().zip(line.split(',')).map(|(name, cell)| ((*name).into(), cell.into())).collect();
    lines.map(row).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap()
}

#[test]
fn flows_of_two_systems_share_a_run() {
    let flow = |name: &str| bulk("c1", "s1").with("name", name).with("connections", 4);
    let scenario = paths(3).flow(flow("plain").with("system", "tcp")).flow(flow("changed")).build();
    let flows = rows(&scenario, "pathchanger", "flows.csv");
    let of = |name: &str, column: &str| -> f64 {
        let rows = flows.iter().filter(|row| row["flow"].starts_with(name));
        rows.map(|row| number(row, column)).sum()
    };
    assert_eq!((of("plain", "moves"), flows.len()), (0.0, 8));
    assert!(of("changed", "moves") > 3.0, "{}", of("changed", "moves"));
    // Plain TCP has its shortest path, which the others leave to it as far as they can.
    let (plain, changed) = (of("plain", "goodput_mbps"), of("changed", "goodput_mbps"));
    assert!(plain < 10.0 && changed > 1.2 * plain, "{plain} beside {changed}");
}

#[test]
fn each_flow_may_have_settings_of_tcp_of_its_own() {
    let flow = |host: u32, name: &str| bulk(&format!("l{host}"), &format!("r{host}")).with("name", name);
    let narrow = flow(2, "narrow").with_table("tcp", part([("receive_window", "120 kB")]));
    let wide = bottleneck().set("topology.rate", "100 Mbit/s").set("topology.delay", "20 ms").flow(flow(1, "wide"));
    let scenario = wide.flow(narrow).build();
    let flows = rows(&scenario, "tcp", "flows.csv");
    let goodput = |name: &str| {
        let row = flows.iter().find(|row| row["flow"].starts_with(name)).unwrap();
        number(row, "goodput_mbps")
    };
    // At most 120 kB in a round trip of at least 40 ms.
    let (wide, narrow) = (goodput("wide"), goodput("narrow"));
    assert!(narrow < 24.0 && narrow > 5.0 && wide > 2.0 * narrow, "{narrow} beside {wide}");
    let segments = bottleneck().flow(flow(1, "one").with_table("tcp", part([("congestion_control", "vegas")]))).build();
    let error = try_results(&segments, "tcp", 1).unwrap_err();
    assert!(error.to_string().contains("flow `one`") && error.to_string().contains("vegas"), "{error}");
}

#[test]
fn rcp_and_tcp_share_a_bottleneck_in_one_run_and_two_kinds_of_routers_do_not() {
    let flow = |host: u32| bulk(&format!("l{host}"), &format!("r{host}"));
    let scenario = bottleneck().flow(flow(1)).flow(flow(2).with("system", "tcp")).build();
    let measured = results(&scenario, "rcp");
    assert_eq!(measured.connections, 2);
    assert!((15.0..20.0).contains(&measured.goodput_mbps), "{}", measured.goodput_mbps);
    let two = bottleneck().flow(flow(1)).flow(flow(2).with("system", "rcp:alpha=0.2")).build();
    let error = try_results(&two, "rcp", 1).unwrap_err().to_string();
    assert!(error.contains("decide at routers"), "{error}");
}

#[test]
fn a_flow_whose_congestion_control_the_simulator_lacks_is_refused_with_its_name() {
    let tcp = part([("congestion_control", "bbr")]);
    let scenario = paths(2).flow(bulk("c1", "s1").with("name", "edge").with_table("tcp", tcp)).build();
    let error = try_results(&scenario, "tcp", 1).unwrap_err();
    assert!(error.to_string().contains("flow `edge`") && error.to_string().contains("bbr"), "{error}");
    assert!(error.is_usage() && error.place().is_some());
}

#[test]
fn an_impairment_is_the_same_for_each_system_and_another_for_each_seed() {
    let loss = impairment("200 ms", "100 ms", "loss").link("A-m1").with("loss", "20 %");
    let stream = || cbr("c1", "s1", "5 Mbit/s").with("packet", 500);
    let scenario = paths(2).flow(stream()).impairment(loss).build();
    let drops = |system: &str, seed: u64| {
        let result = try_results(&scenario, system, seed).unwrap();
        let links = &result.systems.get(system).unwrap().links;
        links.values().map(|link| link.drops).sum::<u64>()
    };
    let (tcp, rcp, other) = (drops("tcp", 1), drops("rcp", 1), drops("tcp", 2));
    // A third of the time, a fifth of 1,250 packets a second for six seconds.
    assert!((250..800).contains(&tcp) && tcp == rcp && other != tcp, "{tcp}, {rcp}, {other}");
}

#[test]
fn an_outage_that_routing_does_not_notice_swallows_packets_and_ends() {
    let outage = |system| {
        let bad = impairment("1 s", "500 ms", "outage").link("A-m1").with("distribution", "fixed");
        results(&paths(1).flow(bulk("c1", "s1").with("connections", 2)).impairment(bad).build(), system)
    };
    let plain = results(&paths(1).flow(bulk("c1", "s1").with("connections", 2)).build(), "tcp");
    let measured = outage("tcp");
    assert!(measured.goodput_mbps < 0.8 * plain.goodput_mbps && measured.goodput_mbps > 0.2 * plain.goodput_mbps);
}

/// The path changer over three paths of which the second is away from 2 s to 4 s.
fn away() -> Scenario {
    let event = |event: Part| event.with("path", "path-2");
    let flows = paths(3).flow(bulk("c1", "s1").with("connections", 6));
    flows.event(event(down("2 s"))).event(event(up("4 s"))).build()
}

#[test]
fn path_sets_are_computed_anew_when_a_link_fails_and_when_it_is_back() {
    let measured = results(&away(), "random");
    let moves = measured.moves.get("paths_changed").copied().unwrap_or(0);
    assert!(
        (1..=6).contains(&moves),
        "those that were on the path leave it when the controller says so: {:?}",
        measured.moves
    );
    let samples = rows(&away(), "random", "series.csv");
    let on = |from: f64, to: f64| {
        let within = samples.iter().filter(|row| (from..to).contains(&number(row, "time_s")));
        within.filter(|row| row["kind"] == "connection").map(|row| row["path"].clone()).collect::<Vec<_>>()
    };
    let convergence = away().routing.convergence.as_secs_f64();
    let (during, after) = (on(2.1 + convergence, 4.0), on(4.2 + convergence, 6.0));
    assert!(!during.is_empty() && during.iter().all(|path| path == "path-1" || path == "path-3"), "{during:?}");
    assert!(after.iter().any(|path| path == "path-2"), "it is drawn again");
}

#[test]
fn the_series_carries_as_much_as_the_flows() {
    // Most transfers begin and end between two samples, and the last interval is shorter than the others.
    let scenario = ScenarioBuilder::new("5 s").parallel_paths(2).network("rate", "10 Mbit/s").set("sample", "300 ms");
    let scenario = scenario.flow(closed_loop("c1", "s1", 5, "50 ms", "20 kB")).flow(bulk("c1", "s1")).build();
    for system in ["pathchanger", "mptcp:subflows=2"] {
        let flows = rows(&scenario, system, "flows.csv");
        let megabits: f64 = flows.iter().map(|row| number(row, "bytes") * 8e-6).sum();
        let seconds = |row: &BTreeMap<String, String>| if number(row, "time_s") == 5.0 { 0.2 } else { 0.3 };
        let samples = rows(&scenario, system, "series.csv");
        let connections = samples.iter().filter(|row| row["kind"] == "connection");
        let in_series: f64 = connections.map(|row| number(row, "mbps") * seconds(row)).sum();
        assert!(
            flows.len() > 50 && (in_series / megabits - 1.0).abs() < 1e-4,
            "{system}: {in_series} of {megabits} Mbit"
        );
    }
}

#[test]
fn a_path_keeps_its_name_in_the_series_while_another_is_away() {
    let samples = rows(&away(), "random", "series.csv");
    // While path-2 is away, what connections say to be on path-3 is what path-3's link carries.
    let within = |row: &&BTreeMap<String, String>| (2.6..3.9).contains(&number(row, "time_s"));
    let claimed: f64 = samples
        .iter()
        .filter(within)
        .filter(|row| row["kind"] == "connection" && row["path"] == "path-3")
        .map(|row| number(row, "mbps"))
        .sum();
    let topology = away().topology;
    let third = topology.paths().iter().find(|path| path.name == "path-3").unwrap();
    let name = &topology.link(third.links[0]).name;
    let towards = |row: &&BTreeMap<String, String>| row["name"].starts_with(&format!("{name}:A>"));
    let link = samples.iter().filter(within).filter(|row| row["kind"] == "link").filter(towards);
    let carried: f64 = link.map(|row| row["mbps"].parse::<f64>().unwrap_or(0.0)).fold(0.0, |sum, rate| sum + rate);
    assert!(claimed > 0.0 && carried > 0.0, "{claimed} claimed, {carried} carried");
    assert!((0.75..1.1).contains(&(claimed / carried)), "{claimed} claimed, {carried} carried");
}

#[test]
fn subflows_have_rows_of_their_own() {
    let mut scenario = paths(2).network("ecmp", true).flow(bulk("c1", "s1")).build();
    scenario.systems.clear();
    let system = "mptcp:subflows=8";
    let subflows = rows(&scenario, system, "subflows.csv");
    assert_eq!(subflows.len(), 8);
    let bytes: f64 = subflows.iter().map(|row| number(row, "bytes")).sum();
    let whole = number(&rows(&scenario, system, "flows.csv")[0], "bytes");
    // What came over two subflows, or not in order yet, is not the connection's.
    assert!(bytes >= 0.95 * whole && bytes < 1.2 * whole, "{bytes} of {whole}");
    let ports: std::collections::BTreeSet<&String> = subflows.iter().map(|row| &row["local"]).collect();
    assert_eq!(ports.len(), 8, "each has a port of its own");
}

#[test]
fn a_connection_that_stays_on_the_shortest_path_is_plain_tcp_to_the_byte() {
    let scenario = paths(3).flow(bulk("c1", "s1").with("connections", 4)).build();
    let goodput = |system: &str| results(&scenario, system).goodput_mbps;
    assert_eq!(goodput("pathchanger:policy=static"), goodput("tcp"));
}

#[test]
fn everybody_connects_while_the_default_path_is_dead_in_either_direction_or_both() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/blackhole-default.toml");
    let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap(), "blackhole-default").unwrap();
    for system in ["tcp", "pathchanger"] {
        let rows = rows(&scenario, system, "flows.csv");
        for failure in ["both", "there", "back"] {
            let of: Vec<_> = rows.iter().filter(|row| row["flow"].starts_with(failure)).collect();
            let took = |row: &&BTreeMap<String, String>| number(row, "end_s") - number(row, "start_s");
            let late = |limit: f64| of.iter().filter(|row| took(row) >= limit).count() as f64 / of.len() as f64;
            assert!(of.len() > 400, "{}", of.len());
            if system == "tcp" {
                // Nobody gets through before the path is back, up to six seconds after the connection began.
                assert!(late(0.9) == 1.0, "{failure}: {}", late(0.9));
            } else {
                assert!(of.iter().all(|row| row["completed"] == "true"), "{failure}");
                assert!(late(0.9) < 0.15 && late(4.0) < 0.01, "{failure}: {} {}", late(0.9), late(4.0));
            }
        }
    }
}
