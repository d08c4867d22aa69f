//! Runs that differ in nothing that matters: all that happens later by a constant, other names, another order of links or flows,
//! all rates and sizes multiplied. What comes out must follow.

use std::{collections::BTreeMap, fs};

use sidestep_scenario::{
    Scenario,
    builder::{Part, ScenarioBuilder, bulk, cbr, load, part},
};
use sidestep_sim::{RunOptions, run};

/// Of a flow: whether it completed, how many nanoseconds it took, its bytes, retransmitted segments and moves.
type Outcome = (bool, u64, u64, u64, u64);

/// The outcome of each flow of a run, by its name and, where it has several transfers, its start after `begin` in nanoseconds.
fn outcomes(scenario: &Scenario, system: &str, begin: f64) -> BTreeMap<(String, u64), Outcome> {
    let out = tempfile::tempdir().unwrap();
    let mut options = RunOptions::once(sidestep_systems::simulator(), scenario.clone(), vec![system.parse().unwrap()]);
    options.out = Some(out.path().to_owned());
    run(&options, &()).unwrap();
    let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
    let flows = fs::read_to_string(out.path().join("flows.csv")).unwrap();
    let rows = flows.lines().skip(1).map(|row| {
        // The name of a system with several settings is quoted.
        let row: Vec<&str> = row.rsplit_once('"').map_or(row, |(_, rest)| rest).split(',').collect();
        let number = |column: usize| row[column].parse::<u64>().unwrap();
        let [start, end] = [6, 7].map(|column: usize| row[column].parse::<f64>().unwrap());
        let key = (row[2].to_owned(), nanos(start - begin));
        (key, (row[8] == "true", nanos(end - start), number(9), number(12), number(13)))
    });
    let found: BTreeMap<_, _> = rows.collect();
    assert!(!found.is_empty() && found.values().any(|(completed, ..)| *completed), "{system}: {found:?}");
    found
}

fn seconds(time: f64) -> String {
    format!("{time:.6} s")
}

/// Two paths between two routers, one of which loses packets and changes, with two hosts at either end. All begins at `begin`.
fn busy(begin: f64) -> ScenarioBuilder {
    let at = |after: f64| seconds(begin + after);
    let network = ScenarioBuilder::new(&at(6.0)).set("warmup", at(0.0)).parallel_paths(2).network("hops", 2);
    let network = network.network("rate", "10 Mbit/s").network("ecn", "20 packets").network("ecmp", true);
    let network = network.network("loss", "0.5 %").network("clients", 2).network("servers", 2);
    let event = |after: f64, action: &str| part([("at", &at(after)), ("action", action)]).path("path-1");
    let flows = [
        bulk("c1", "s1").with("size", "2 MB").with("start", at(0.0)),
        bulk("c2", "s2").with("size", "1 MB").with("start", at(0.1)),
        bulk("c1", "s2").with("start", at(0.3)),
        load("c*", "s*", "20 %", "10 Mbit/s").with("size", "20 kB").with("start", at(0.0)),
    ];
    let network = network
        .event(event(1.0, "rate").with("rate", "500 kbit/s"))
        .event(event(2.0, "rate").with("rate", "10 Mbit/s"))
        .event(event(2.5, "delay").with("delay", "40 ms"))
        .event(event(3.0, "loss").with("loss", "5 %"))
        .event(event(4.0, "blackhole"))
        .event(event(4.5, "up"));
    flows.into_iter().fold(network, ScenarioBuilder::flow)
}

/// As long as the coarsest timers of the kernel's clock that a run needs, and whole seconds.
const LATER: f64 = 256.0;

#[test]
fn a_run_that_begins_later_is_the_same() {
    // Not under `rcp` and `inrpp`, whose routers run, and measure, from the start of the run on.
    for system in ["tcp", "ecmp", "mptcp:subflows=2", "mptcp:subflows=2,scheduler=linux", "prr", "plb", "pathchanger"] {
        for (profile, control) in [("linux", "cubic"), ("linux", "dctcp"), ("rfc", "reno"), ("rfc", "cubic")] {
            // All for one system, for time's sake.
            if system != "tcp" && ["dctcp", "reno"].contains(&control) {
                continue;
            }
            let of = |begin: f64| {
                let scenario = busy(begin).set("tcp.profile", profile).set("tcp.congestion_control", control);
                outcomes(&scenario.build(), system, begin)
            };
            assert_eq!(of(LATER), of(0.0), "{system} {profile} {control}");
        }
    }
}

#[test]
fn a_first_segment_that_is_lost_costs_the_same_whenever_the_flow_begins() {
    // A round trip of 44 ms. What is sent between 40 and 50 ms, the first segment alone, is lost.
    let of = |begin: f64, delay: &str, cut: [f64; 2]| {
        let event = |at: f64, action: &str| part([("at", &*seconds(begin + at)), ("action", action)]).link("A-B");
        let network = ScenarioBuilder::new(&seconds(begin + 20.0)).host("c").host("s").router("A").router("B");
        let network = network.link("c", "A", "1 Gbit/s", "1 ms").link("A", "B", "100 Mbit/s", delay);
        let scenario = network.link("B", "s", "1 Gbit/s", "1 ms").set("tcp.hz", 0);
        let scenario = scenario.event(event(cut[0], "blackhole")).event(event(cut[1], "up"));
        let scenario = scenario.flow(bulk("c", "s").with("size", "1 kB").with("start", seconds(begin)));
        outcomes(&scenario.build(), "tcp", begin).into_values().next().unwrap()
    };
    let at_0 = of(0.0, "20 ms", [0.04, 0.05]);
    assert!((at_0.1 as f64 * 1e-9 - 0.435).abs() < 0.06, "{at_0:?}");
    for begin in [0.001, 0.5, 1.0, 256.0] {
        assert_eq!(of(begin, "20 ms", [0.04, 0.05]), at_0, "{begin}");
    }
    // A round trip of 1.1 s: the SYN goes again before its answer comes.
    let at_0 = of(0.0, "548 ms", [1.09, 1.2]);
    for begin in [0.001, 1.0] {
        assert_eq!(of(begin, "548 ms", [1.09, 1.2]), at_0, "{begin}");
    }
}

/// A link: its ends, and the rest.
type Ends = (&'static str, &'static str, Part);

/// The links and flows of a network without equal paths and without chance, in which nothing happens at the same time.
fn unlike() -> (ScenarioBuilder, Vec<Ends>, Vec<Part>) {
    let network = ScenarioBuilder::new("8 s").set("tcp.send_jitter", "0 s").set("tcp.hz", 0);
    let link = |a, b, rate: &str, delay: &str, weight: i64| {
        (a, b, part([("rate", rate), ("delay", delay)]).with("weight", weight))
    };
    let links = vec![
        link("c1", "A", "911 Mbit/s", "101 us", 10),
        link("c2", "A", "877 Mbit/s", "113 us", 10),
        link("c3", "A", "853 Mbit/s", "127 us", 10),
        link("A", "B", "19 Mbit/s", "3011 us", 3),
        link("B", "C", "13 Mbit/s", "5003 us", 4),
        link("A", "C", "7 Mbit/s", "2003 us", 11),
        link("C", "s1", "797 Mbit/s", "131 us", 10),
        link("C", "s2", "773 Mbit/s", "137 us", 10),
        link("B", "s3", "751 Mbit/s", "139 us", 10),
    ];
    let flow = |name: &str, from: &str, to: &str, size: &str, start: &str| {
        bulk(from, to).with("name", name).with("size", size).with("start", start)
    };
    let flows = vec![
        flow("x", "c1", "s1", "3 MB", "0 s"),
        flow("y", "c2", "s2", "2 MB", "131071 us"),
        flow("z", "c3", "s3", "4 MB", "262147 us"),
        cbr("c2", "s3", "1 Mbit/s").with("name", "w").with("start", "524287 us").with("stop", "4 s"),
    ];
    (network, links, flows)
}

fn built(names: impl Fn(&str) -> String, order: &[usize], turn: &[usize]) -> Scenario {
    let (network, links, flows) = unlike();
    let hosts = ["c1", "c2", "c3", "s1", "s2", "s3"].iter().fold(network, |all, name| all.host(&names(name)));
    let nodes = ["A", "B", "C"].iter().fold(hosts, |all, name| all.router(&names(name)));
    let linked = order
        .iter()
        .map(|at| &links[*at])
        .fold(nodes, |all, (a, b, link)| all.link_with(&names(a), &names(b), link.clone()));
    let named = turn.iter().map(|at| &flows[*at]).fold(linked, |all, flow| all.flow(flow.clone()));
    let mut text = named.text();
    // Ends of flows.
    for name in ["c1", "c2", "c3", "s1", "s2", "s3"] {
        for key in ["from", "to"] {
            text = text.replace(&format!("{key} = \"{name}\""), &format!("{key} = \"{}\"", names(name)));
        }
    }
    Scenario::parse(&text, "built").unwrap()
}

const LINKS: [usize; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const FLOWS: [usize; 4] = [0, 1, 2, 3];

#[test]
fn names_of_nodes_mean_nothing() {
    let other = |name: &str| match name {
        "A" => "zebra".to_owned(),
        "B" => "aardvark".to_owned(),
        name => format!("{}-of-{}", 9 - name.len(), name.chars().rev().collect::<String>()),
    };
    for system in ["tcp", "ecmp", "mptcp:subflows=2", "pathchanger", "inrpp"] {
        let [plain, renamed] = [built(str::to_owned, &LINKS, &FLOWS), built(other, &LINKS, &FLOWS)];
        assert_eq!(outcomes(&plain, system, 0.0), outcomes(&renamed, system, 0.0), "{system}");
    }
}

#[test]
fn the_order_of_links_and_of_flows_means_nothing() {
    for (profile, control) in [("linux", "cubic"), ("rfc", "reno")] {
        let of = |order: &[usize], turn: &[usize]| {
            let mut scenario = built(str::to_owned, order, turn);
            let set = format!(
                "[tcp]\nprofile = \"{profile}\"\ncongestion_control = \"{control}\"\nsend_jitter = \"0 s\"\nhz = 0\n"
            );
            let other =
                Scenario::parse(&format!("duration = \"1 s\"\n{set}[topology]\ngenerator = \"dumbbell\"\n"), "tcp")
                    .unwrap();
            scenario.tcp = other.tcp;
            outcomes(&scenario, "tcp", 0.0)
        };
        let plain = of(&LINKS, &FLOWS);
        assert_eq!(of(&[8, 3, 0, 7, 5, 1, 4, 6, 2], &FLOWS), plain, "links, {profile}");
        assert_eq!(of(&LINKS, &[2, 3, 1, 0]), plain, "flows, {profile}");
    }
}

#[test]
fn rates_and_sizes_multiplied_leave_the_times_as_they_are() {
    // Exact where packets are multiplied too.
    let packets = |times: u64| {
        let network = ScenarioBuilder::new("3 s").dumbbell(2).network("rate", format!("{} Mbit/s", times));
        let network = network.network("access_rate", format!("{} Mbit/s", 10 * times)).network("queue", "20 packets");
        let flow = |host: usize, kbits: u64| {
            let flow = cbr(&format!("l{host}"), &format!("r{host}"), &format!("{} kbit/s", kbits * times));
            flow.with("packet", 150 * times as i64)
        };
        let scenario = network.flow(flow(1, 900)).flow(flow(2, 400)).build();
        let options = RunOptions::once(sidestep_systems::simulator(), scenario, vec!["tcp".parse().unwrap()]);
        let link = run(&options, &()).unwrap().0.systems.get("tcp").unwrap().links["L-R:L>R"];
        (link.utilisation, link.drops, link.queue_bytes / times as f64)
    };
    let (one, eight) = (packets(1), packets(8));
    assert!(one.1 > 50 && (one.0.unwrap() - eight.0.unwrap()).abs() < 1e-3 && one.1 == eight.1, "{one:?} {eight:?}");
    assert!((one.2 - eight.2).abs() < 30.0, "{one:?} {eight:?}");
    // TCP's packets stay as long as they are: its goodput follows the rate, if the queue does.
    let goodput = |times: u64, control: &str| {
        let network =
            ScenarioBuilder::new("20 s").set("warmup", "5 s").dumbbell(1).set("tcp.congestion_control", control);
        let network = network
            .network("rate", format!("{} Mbit/s", 20 * times))
            .network("queue", format!("{} packets", 60 * times));
        let scenario = network.flow(bulk("l1", "r1")).build();
        let options = RunOptions::once(sidestep_systems::simulator(), scenario, vec!["tcp".parse().unwrap()]);
        run(&options, &()).unwrap().0.systems.get("tcp").unwrap().goodput_mbps
    };
    for control in ["reno", "cubic"] {
        let ratio = goodput(3, control) / goodput(1, control);
        assert!((ratio / 3.0 - 1.0).abs() < 0.04, "{control}: {ratio}");
    }
}
