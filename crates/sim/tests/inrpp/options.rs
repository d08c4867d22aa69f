//! INRPP's options in the simulator, and those who do not do as INRPP says.

use sidestep_results::SystemResult;
use sidestep_scenario::builder::{Part, ScenarioBuilder, bulk, cbr, part};

use crate::{caches, lost, results, try_results};

fn link(rate: &str) -> Part {
    part([("rate", rate), ("delay", "5 ms"), ("queue", "75 kB")])
}

/// Hosts `s1…` at `a` send to `r1…` at `b`, over a link of 10 Mbit/s with a detour over `c`.
fn triangle(hosts: u32) -> ScenarioBuilder {
    let mut network = ScenarioBuilder::new("20 s").router("a").router("b").router("c");
    for (from, to) in [("a", "b"), ("a", "c"), ("c", "b")] {
        network = network.link_with(from, to, link("10 Mbit/s"));
    }
    for number in 1..=hosts {
        let (from, to) = (format!("s{number}"), format!("r{number}"));
        network = network.host(&from).host(&to);
        network = network.link(&from, "a", "40 Mbit/s", "5 ms").link("b", &to, "40 Mbit/s", "5 ms");
    }
    let network = network.set("inrpp.cache", "4 MB").set("inrpp.high", "2 MB").set("sample", "1 s");
    network.set("tcp.ack_every", 1).set("tcp.receive_window", "100 MB")
}

/// Goodput of the links to each receiver, in Mbit/s with headers.
fn received(result: &SystemResult, hosts: u32) -> Vec<f64> {
    (1..=hosts).map(|host| result.links[&format!("b-r{host}:b>r{host}")].utilisation.unwrap() * 40.0).collect()
}

#[test]
fn a_host_that_ignores_routers_takes_nothing_from_the_others() {
    let all = |greedy: bool| {
        let mut network = triangle(3).set("inrpp.detours", false).set("warmup", "5 s");
        network = network.set("inrpp.backpressure", "notices");
        for number in 1..=3 {
            let flow = bulk(&format!("s{number}"), &format!("r{number}"));
            let flow = if greedy && number == 1 { flow.with("system", "inrpp:obedient=false") } else { flow };
            network = network.flow(flow);
        }
        results(&network.build(), "inrpp")
    };
    let obedient = all(false);
    let greedy = all(true);
    assert_eq!(lost(&obedient), 0);
    // It only fills the cache with packets of its own queue, and loses some itself.
    assert!(caches(&greedy).unwrap().dropped > 0, "{:?}", caches(&greedy));
    let (before, after) = (received(&obedient, 3), received(&greedy, 3));
    for host in [1, 2] {
        assert!(after[host] > 0.9 * before[host], "{before:?}, and beside the greedy host {after:?}");
    }
}

#[test]
fn tcp_beside_inrpp_keeps_its_share_of_the_link_and_inrpp_has_the_detour_besides() {
    let network = triangle(2).set("warmup", "5 s").flow(bulk("s1", "r1"));
    let result = results(&network.flow(bulk("s2", "r2").with("system", "tcp")).build(), "inrpp");
    let [inrpp, tcp] = received(&result, 2)[..] else { panic!() };
    assert!((4.0..5.3).contains(&tcp) && (14.0..16.0).contains(&inrpp), "{inrpp} and {tcp} Mbit/s");
    assert_eq!(caches(&result).unwrap().dropped, 0, "what TCP loses, its own part has lost");
}

#[test]
fn other_traffic_on_a_detour_keeps_what_it_has_and_loses_nothing() {
    for ((backpressure, buffer), background) in
        [("notices", "50 ms"), ("limits", "5 ms")].into_iter().flat_map(|mode| [0.0, 4.0, 7.0].map(|mbps| (mode, mbps)))
    {
        let mut network = triangle(1).set("warmup", "5 s").set("duration", "15 s").flow(bulk("s1", "r1"));
        network = network.set("inrpp.backpressure", backpressure).set("inrpp.buffer", buffer);
        network = network.host("x").link("x", "c", "40 Mbit/s", "5 ms").host("y").link("b", "y", "40 Mbit/s", "5 ms");
        if background > 0.0 {
            network = network.flow(cbr("x", "y", &format!("{background} Mbit/s")));
        }
        let result = results(&network.build(), "inrpp");
        let carried = result.links["b-y:b>y"].utilisation.unwrap() * 40.0;
        assert!((carried - background).abs() < 0.02, "{carried} of {background} Mbit/s");
        let detour = result.links["a-c:a>c"].utilisation.unwrap() * 10.0;
        let left = 10.0 - background;
        assert!((detour / left - 1.0).abs() < 0.02, "{backpressure}: {detour} of {left} Mbit/s are left");
        assert_eq!(lost(&result), 0);
    }
}

#[test]
fn notifications_on_data_slow_senders_down_where_acks_take_another_way() {
    // ACKs go back over `c`, as the link from `b` to `a` weighs more in that direction.
    let network = |asymmetric: bool| {
        let mut network = ScenarioBuilder::new("30 s").router("a").router("b").router("c");
        let direct =
            link("10 Mbit/s").with_table("reverse", part([]).with("weight", if asymmetric { 100 } else { 10 }));
        network = network.link_with("a", "b", direct).link_with("a", "c", link("100 Mbit/s"));
        network = network.link_with("c", "b", link("100 Mbit/s").with("weight", 20));
        network = network.host("s").host("r").link("s", "a", "40 Mbit/s", "5 ms").link("b", "r", "40 Mbit/s", "5 ms");
        network = network.set("inrpp.cache", "2 MB").set("inrpp.high", "1 MB").set("inrpp.detours", false);
        network = network.set("tcp.ack_every", 1).set("tcp.receive_window", "100 MB");
        network = network.set("inrpp.backpressure", "notices");
        network.flow(bulk("s", "r").with("size", "10 MB")).build()
    };
    for (asymmetric, system, holds) in
        [(true, "inrpp:notifications=data", true), (false, "inrpp:notifications=data", true), (true, "inrpp", false)]
    {
        let result = results(&network(asymmetric), system);
        assert_eq!(lost(&result) == 0, holds, "{system}, asymmetric {asymmetric}: {:?}", caches(&result));
        // As a fluid 8.5 s. Without notifications that arrive each hole takes a timeout.
        let time = result.afct_s.unwrap_or(f64::INFINITY);
        assert_eq!(time < 9.0, holds, "{system}: {time} s");
    }
}

#[test]
fn no_detour_leads_over_a_border() {
    let flow = bulk("s1", "r1").with("size", "5 MB");
    let detoured = |network: ScenarioBuilder| caches(&results(&network.build(), "inrpp")).unwrap().detoured;
    assert!(detoured(triangle(1).flow(flow.clone())) > 1_000);
    for border in ["a-b", "a-c", "c-?"] {
        assert_eq!(detoured(triangle(1).flow(flow.clone()).set("inrpp.borders", vec![border])), 0, "{border}");
    }
    let wrong = triangle(1).flow(flow).set("inrpp.borders", vec!["a-b", "a-d"]).build();
    let problem = try_results(&wrong, "inrpp").unwrap_err().to_string();
    assert_eq!(problem, "system `inrpp`: borders: there is no link `a-d`");
}

#[test]
fn probes_that_take_too_long_are_a_remark_and_no_error() {
    let network = triangle(1).flow(bulk("s1", "r1").with("size", "1 MB")).build();
    let notes = |system: &str| results(&network, system).notes;
    let note = "T_p (10 ms) should exceed the round trip of a probe; on 6 of 6 links that are probed it does not (c to b takes 10 ms)";
    let found = notes("inrpp");
    assert!(found.len() == 1 && found[0].starts_with(&note[..note.len() - 25]), "{found:?}");
    assert!(notes("inrpp:probe_interval=12 ms,decision_interval=60 ms").is_empty());
}

#[test]
fn the_rules_of_the_text_and_of_the_ns3_code_complete_the_same_flows() {
    let flows = |network: ScenarioBuilder| {
        network.flow(bulk("s1", "r1").with("size", "8 MB")).flow(bulk("s2", "r2").with("size", "8 MB"))
    };
    let network = flows(triangle(2).set("inrpp.backpressure", "notices")).build();
    for system in
        ["inrpp:backpressure=limits", "inrpp", "inrpp:preset=ns3", "inrpp:rto=text", "inrpp:credit=round-robin"]
    {
        let result = results(&network, system);
        assert_eq!((lost(&result), result.unfinished), (0, None), "{system}");
        // 16 MB as a fluid over both ways take 6.8 s.
        assert!(result.afct_s.unwrap() < 7.2, "{system}: {:?}", result.afct_s);
    }
}
