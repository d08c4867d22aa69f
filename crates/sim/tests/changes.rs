//! Links that events change while a run goes on: what they carry, and what shares of them are shares of.

use std::{fs, path::Path};

use sidestep_results::SystemResult;
use sidestep_scenario::{
    Scenario,
    builder::{Part, ScenarioBuilder, bulk, cbr, part},
};
use sidestep_sim::{RunOptions, run};

/// Two hosts at two routers, with a link of `rate` between these.
fn line(duration: &str, warmup: &str, rate: &str) -> ScenarioBuilder {
    let hosts = ScenarioBuilder::new(duration).set("warmup", warmup).host("c").host("s").router("A").router("B");
    hosts.link("c", "A", "10 Gbit/s", "100 us").link("A", "B", rate, "10 ms").link("B", "s", "10 Gbit/s", "100 us")
}

fn rate(at: &str, rate: &str) -> Part {
    part([("at", at), ("action", "rate"), ("rate", rate)]).link("A-B")
}

fn result(scenario: &Scenario, out: Option<&Path>) -> SystemResult {
    let options = RunOptions::once(sidestep_systems::simulator(), scenario.clone(), vec!["tcp".parse().unwrap()]);
    let options = RunOptions { out: out.map(Path::to_owned), ..options };
    run(&options, &()).unwrap().0.systems.get("tcp").unwrap().clone()
}

#[test]
fn a_link_whose_rate_recovers_carries_it_at_once_although_its_queue_is_full() {
    let scenario = line("11 s", "0 s", "50 Mbit/s").set("sample", "100 ms").flow(bulk("c", "s"));
    let scenario = scenario.event(rate("5 s", "200 kbit/s")).event(rate("10 s", "50 Mbit/s"));
    let out = tempfile::tempdir().unwrap();
    result(&scenario.build(), Some(out.path()));
    let series = fs::read_to_string(out.path().join("series.csv")).unwrap();
    let carried = |at: &str| -> f64 {
        let row = series.lines().map(|row| row.split(',').collect::<Vec<_>>());
        row.filter(|row| row[2] == at && row[4] == "A-B:A>B").map(|row| row[5].parse::<f64>().unwrap()).sum()
    };
    assert!((carried("9.9") - 0.2).abs() < 0.13, "{}", carried("9.9"));
    // A queue of 100 packets of 1500 bytes leaves within 24 ms: 12 Mbit/s on the mean of 100 ms, and more follows its ACKs.
    assert!(carried("10.1") > 11.9, "{}", carried("10.1"));
    assert!(carried("10.3") > 20.0, "{}", carried("10.3"));
}

#[test]
fn shares_of_a_link_are_shares_of_its_rate_of_the_moment() {
    let of = |first: &str, then: &str, sends: &str| {
        let scenario = line("3 s", "1 s", first).flow(cbr("c", "s", sends)).event(rate("1.5 s", then));
        let result = result(&scenario.build(), None);
        let (link, path) = (result.links["A-B:A>B"], *result.paths.get("A-B").unwrap());
        (link.utilisation.unwrap(), path.utilisation.unwrap(), path.capacity_mbps.unwrap())
    };
    for (first, then, sends, capacity) in
        [("100 Mbit/s", "10 Mbit/s", "200 Mbit/s", 32.5), ("2 Mbit/s", "200 Mbit/s", "400 Mbit/s", 150.5)]
    {
        let (link, path, found) = of(first, then, sends);
        assert!((link - 1.0).abs() < 0.002 && path == link, "{first} {then}: {link} {path}");
        assert_eq!(found, capacity);
    }
    // A fifth of one rate, and then a half of the other.
    let (link, ..) = of("50 Mbit/s", "20 Mbit/s", "10 Mbit/s");
    assert!((link - (0.2 * 0.5 + 0.5 * 1.5) / 2.0).abs() < 0.005, "{link}");
}
