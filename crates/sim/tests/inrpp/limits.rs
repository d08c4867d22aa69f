//! Limits with default settings: shares, losses of links, and routes of the same length.

use std::collections::BTreeMap;

use sidestep_results::measures::jain;
use sidestep_scenario::builder::{Part, ScenarioBuilder, bulk, part};

use crate::{caches, lost, number, results, series, try_results};

fn link(rate: &str, delay: &str) -> Part {
    part([("rate", rate), ("delay", delay), ("queue", "200 packets")])
}

/// Hosts `l1…` send to `r1…` over 100 Mbit/s; each pair's links have the delay of its place in `access`, in milliseconds.
fn dumbbell(duration: &str, access: &[f64], inner: Part) -> ScenarioBuilder {
    let mut network = ScenarioBuilder::new(duration).set("sample", "10 s").router("L").router("R");
    network = network.link_with("L", "R", inner);
    for (at, delay) in access.iter().enumerate() {
        let (from, to) = (format!("l{at}"), format!("r{at}"));
        let outer = || link("1 Gbit/s", &format!("{delay} ms"));
        network = network.host(&from).host(&to).link_with(&from, "L", outer()).link_with("R", &to, outer());
    }
    network
}

/// Jain's index of the flows of hosts up to each of these, in windows of 10 s that end at these times.
fn shares(network: ScenarioBuilder, windows: &[(f64, usize)]) -> Vec<f64> {
    let (_, rows) = series(&network.build(), "inrpp");
    let window = |(end, hosts): &(f64, usize)| {
        let in_window = |row: &&BTreeMap<String, String>| row["kind"] == "connection" && number(row, "time_s") == *end;
        let rates: Vec<f64> = rows.iter().filter(in_window).map(|row| number(row, "mbps")).collect();
        assert_eq!(rates.len(), *hosts);
        jain(&rates).unwrap()
    };
    windows.iter().map(window).collect()
}

/// The INRPP paper's section V-B, and Table 5: 0.9972 with these round trips.
#[test]
fn flows_with_round_trips_of_50_100_and_200_ms_have_equal_shares() {
    let mut network = dumbbell("30 s", &[10.0, 22.5, 47.5], link("100 Mbit/s", "5 ms"));
    for at in 0..3 {
        network = network.flow(bulk(&format!("l{at}"), &format!("r{at}")));
    }
    let indices = shares(network, &[(20.0, 3), (30.0, 3)]);
    assert!(indices.iter().all(|index| *index > 0.99), "{indices:?}");
}

#[test]
fn late_comers_have_their_share_within_five_seconds() {
    let mut network = dumbbell("50 s", &[5.0; 8], link("100 Mbit/s", "5 ms"));
    for at in 0..8 {
        let start = [0, 0, 15, 15, 35, 35, 35, 35][at];
        network = network.flow(bulk(&format!("l{at}"), &format!("r{at}")).with("start", format!("{start} s")));
    }
    let indices = shares(network, &[(10.0, 2), (30.0, 4), (50.0, 8)]);
    assert!(indices.iter().all(|index| *index > 0.99), "{indices:?}");
}

#[test]
fn links_that_lose_packets_stay_full() {
    for loss in ["0.1 %", "1 %"] {
        let inner = link("100 Mbit/s", "5 ms").with("loss", loss);
        let mut network = dumbbell("30 s", &[5.0; 4], inner).set("warmup", "5 s");
        for at in 0..4 {
            network = network.flow(bulk(&format!("l{at}"), &format!("r{at}")));
        }
        let scenario = network.build();
        let (tcp, inrpp) = (results(&scenario, "tcp"), results(&scenario, "inrpp"));
        // All but headers and what is lost; a segment is sent again once for each that is lost.
        assert!(inrpp.goodput_mbps > 93.5 && inrpp.goodput_mbps >= tcp.goodput_mbps, "{loss}: {}", inrpp.goodput_mbps);
        let (again, lost) = (inrpp.retransmits as f64, lost(&inrpp) as f64);
        assert!(again <= 1.02 * lost && caches(&inrpp).unwrap().dropped == 0, "{loss}: {again} for {lost}");
    }
}

/// By their weights ACKs would go back over `c`, where no router knows how far their flow may come.
#[test]
fn acks_go_back_over_the_links_of_the_data() {
    let mut network = ScenarioBuilder::new("30 s").router("a").router("b").router("c");
    let direct = link("10 Mbit/s", "5 ms").with_table("reverse", part([]).with("weight", 100));
    network = network.link_with("a", "b", direct).link_with("a", "c", link("100 Mbit/s", "5 ms"));
    network = network.link_with("c", "b", link("100 Mbit/s", "5 ms").with("weight", 20));
    network = network.host("s").host("r").link("s", "a", "100 Mbit/s", "5 ms").link("b", "r", "100 Mbit/s", "5 ms");
    network = network.set("inrpp.cache", "500 kB").set("inrpp.detours", false);
    let result = results(&network.flow(bulk("s", "r").with("size", "10 MB")).build(), "inrpp");
    assert_eq!((lost(&result), result.retransmits, result.unfinished), (0, 0, None));
    let carries = |arc: &str| result.links[arc].utilisation.unwrap() > 0.0;
    assert!(carries("a-b:b>a") && !carries("c-b:b>c"));
}

#[test]
fn flows_that_have_ended_leave_their_parts_at_once() {
    let mut network = dumbbell("1500 ms", &[5.0; 41], link("100 Mbit/s", "5 ms")).set("inrpp.cache", "400 kB");
    for at in 1..41 {
        network = network.flow(bulk(&format!("l{at}"), &format!("r{at}")).with("size", "15 kB"));
    }
    network = network.flow(bulk("l0", "r0").with("start", "400 ms")).set("warmup", "500 ms").set("sample", "100 ms");
    let result = results(&network.build(), "inrpp");
    assert!(result.goodput_mbps > 60.0, "{}", result.goodput_mbps);
}

#[test]
fn tcp_as_it_is_loses_nothing_and_has_equal_shares_where_routers_limit_its_window() {
    let mut network = dumbbell("30 s", &[5.0; 8], link("100 Mbit/s", "5 ms")).set("warmup", "10 s");
    for at in 0..8 {
        network = network.flow(bulk(&format!("l{at}"), &format!("r{at}")));
    }
    let scenario = network.build();
    let (plain, limited) = (results(&scenario, "tcp"), results(&scenario, "inrpp:hosts=unmodified"));
    assert!(limited.goodput_mbps > 0.99 * plain.goodput_mbps && limited.fairness.unwrap() > 0.99, "{limited:?}");
    assert!(lost(&plain) > 100 && lost(&limited) == 0, "{} and {}", lost(&plain), lost(&limited));
    // Bursts that no host paces, and a cache of less than a bandwidth-delay product: routers tell of room between ACKs.
    let mut network = dumbbell("30 s", &[50.0; 30], link("100 Mbit/s", "5 ms")).set("warmup", "10 s");
    for at in 0..30 {
        let start = format!("{} ms", at * 150);
        network = network.flow(bulk(&format!("l{at}"), &format!("r{at}")).with("start", start));
    }
    let small = results(&network.set("inrpp.cache", "2 MB").build(), "inrpp:hosts=unmodified");
    assert!(small.goodput_mbps > 92.0 && lost(&small) == 0, "{small:?}");
    let refused = try_results(&scenario, "inrpp:hosts=unmodified,backpressure=notices").unwrap_err().to_string();
    assert!(refused.ends_with(": hosts needs `backpressure = \"limits\"`"), "{refused}");
}
