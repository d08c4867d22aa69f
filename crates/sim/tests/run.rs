//! Scenarios in the simulator: results, refusals, and that the same run is the same.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
};

use pcap_file::pcapng::{Block, PcapNgReader};
use proptest::prelude::*;
use sidestep_engine::{Lateness, WireTimes};
use sidestep_net::Span;
use sidestep_results::{RunResult, SystemResult, World};
use sidestep_scenario::{
    Scenario, SystemSpec,
    builder::{Part, ScenarioBuilder, blackhole, bulk, cbr, closed_loop, down, exec, load, part, up},
};
use sidestep_sim::{Observer, RunOptions, SimError, resume, run};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)).unwrap()
}

fn options(scenario: &Scenario, systems: &[&str]) -> RunOptions {
    let systems = systems.iter().map(|system| system.parse().unwrap()).collect();
    RunOptions { command: "test".into(), ..RunOptions::once(sidestep_systems::simulator(), scenario.clone(), systems) }
}

fn results(scenario: &Scenario, systems: &[&str]) -> Result<RunResult, SimError> {
    run(&options(scenario, systems), &()).map(|(result, _)| result)
}

/// Two hosts, two routers, two paths of 10 Mbit/s of which one is shorter; no traffic.
fn idle(duration: &str, warmup: &str) -> ScenarioBuilder {
    let paths = ScenarioBuilder::new(duration).set("warmup", warmup).parallel_paths(2).network("hops", 2);
    paths.network("rate", "10 Mbit/s").network("ecn", "20 packets")
}

/// Four connections over two paths of 10 Mbit/s of which one is shorter.
fn small() -> ScenarioBuilder {
    idle("5 s", "1 s").flow(bulk("c1", "s1").with("connections", 4))
}

#[test]
fn the_path_changer_fills_six_paths_where_plain_tcp_fills_one() {
    let scenario = Scenario::parse(&file("six-paths.toml"), "six-paths").unwrap();
    let result = results(&scenario, &["tcp", "ecmp", "pathchanger"]).unwrap();
    assert_eq!(result.world, World::Sim);
    let tcp = &result.systems.get("tcp").unwrap();
    let moved = &result.systems.get("pathchanger").unwrap();
    assert!(tcp.goodput_mbps < 20.0 && tcp.total_moves() == 0);
    assert!(moved.goodput_mbps > 5.0 * tcp.goodput_mbps, "{} of {}", moved.goodput_mbps, tcp.goodput_mbps);
    assert!(moved.least_used_path().unwrap().1 > 0.7);
    assert!(moved.total_moves() > 20);
    // Routers that hash use all paths as well, but unevenly: some paths have more of the sixteen connections than others.
    let hashed = &result.systems.get("ecmp").unwrap();
    assert!(hashed.goodput_mbps > 4.0 * tcp.goodput_mbps && hashed.total_moves() == 0, "{}", hashed.goodput_mbps);
    // Which, is chance: one run shows nothing of the slowest.
    let scenarios = (1..=8).map(|seed| Scenario { seed, ..scenario.clone() });
    let runs: Vec<RunResult> = scenarios.map(|one| results(&one, &["ecmp", "pathchanger"]).unwrap()).collect();
    let slowest = ["ecmp", "pathchanger"].map(|system| {
        runs.iter().map(|run| run.systems.get(system).unwrap().goodput_mbps_min.unwrap()).sum::<f64>() / 8.0
    });
    assert!(1.15 * slowest[0] < slowest[1], "{slowest:?}");
}

#[test]
fn hosts_delays_follow_from_the_seed_and_seeds_without_anything_drawn_are_one_run() {
    let repeated = |scenario: ScenarioBuilder| {
        let options = RunOptions { seeds: 3, ..options(&scenario.build(), &["tcp"]) };
        let (result, _) = run(&options, &()).unwrap();
        let tcp = result.systems.get("tcp").unwrap().clone();
        (tcp.repeated.unwrap(), tcp.notes)
    };
    let (drawn, notes) = repeated(small().set("tcp.send_jitter", "1 ms"));
    assert!(!drawn.same && notes.is_empty() && drawn.each[0] != drawn.each[1] && drawn.each[1] != drawn.each[2]);
    let (equal, notes) = repeated(small().set("tcp.send_jitter", "0 s"));
    assert!(equal.same && notes[0].starts_with("the seeds make no difference here"), "{notes:?}");
    // When each of four opens is drawn, too.
    let late = bulk("c1", "s1").with("connections", 4).with("start_jitter", "1 s");
    let (late, _) = repeated(idle("5 s", "1 s").set("tcp.send_jitter", "0 s").flow(late));
    assert!(!late.same && late.each[0] != late.each[1]);
}

#[test]
fn the_same_scenario_and_seed_give_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str| {
        let mut options = options(&small().build(), &["pathchanger", "plb", "mptcp:subflows=3"]);
        options.out = Some(dir.path().join(name));
        run(&options, &()).unwrap();
        let out = dir.path().join(name);
        ["result.json", "flows.csv", "series.csv", "plot.svg", "index.html"]
            .map(|file| fs::read(out.join(file)).unwrap())
    };
    assert!(read("one") == read("two"), "two runs differ");
}

#[test]
fn seeds_change_the_outcome_and_are_summed_up_in_any_order() {
    let repeated = |seeds| {
        let options = RunOptions { seeds, ..options(&small().build(), &["random"]) };
        run(&options, &()).unwrap().0.systems.get("random").unwrap().clone()
    };
    let (five, again) = (repeated(5), repeated(5));
    assert_eq!(five, again);
    let estimate = five.repeated.unwrap().goodput_mbps;
    assert!(estimate.ci95[0] < estimate.mean && estimate.mean < estimate.ci95[1], "{estimate:?}");
    assert_eq!(repeated(1).repeated, None);
}

/// Ends the run when so many simulated stretches are over.
struct Impatient<'a> {
    stop: &'a AtomicBool,
    left: AtomicI32,
}

impl Observer for Impatient<'_> {
    fn on_start(&self, _: usize, _: Span) {}
    fn on_progress(&self, _: Span, _: u64) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
    fn on_finish(&self, _: &SystemSpec, _: &SystemResult) {}
}

#[test]
fn an_interrupted_run_keeps_the_seeds_that_are_whole_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = small().build();
    let with = |folder: &str| {
        let out = Some(dir.path().join(folder));
        RunOptions { seeds: 6, out, stop: Arc::default(), ..options(&scenario, &["tcp", "random"]) }
    };
    let (direct, _) = run(&with("direct"), &()).unwrap();
    let read = |folder: &str, file: &str| fs::read_to_string(dir.path().join(folder).join(file)).unwrap();

    // A run has 50 stretches: of 12 runs some are over, some under way, and some have not begun. Which, is chance.
    let short = with("short");
    let (part, interrupted) = run(&short, &Impatient { stop: &short.stop, left: AtomicI32::new(430) }).unwrap();
    assert!(interrupted);
    for (name, system) in part.systems.iter() {
        let of_all = &direct.systems.get(name).unwrap().repeated.as_ref().unwrap().each;
        let own = system.repeated.as_ref().map_or(&[][..], |repeated| &repeated.each);
        assert!(own.len() < 6 && own.iter().all(|one| of_all.contains(one)), "whole runs only");
        let counted: usize = system.incomplete[0].split(' ').next().unwrap().parse().unwrap();
        assert!(counted == own.len() || own.is_empty(), "{:?}", system.incomplete);
    }
    let counts: Vec<_> = part.systems.values().map(|system| &system.incomplete).collect();
    assert!(counts.windows(2).all(|two| two[0] == two[1]), "the same seeds of each: {counts:?}");

    let (whole, interrupted) = resume(&with("short"), &()).unwrap();
    assert!(!interrupted && whole == direct);
    for file in ["result.json", "flows.csv", "series.csv", "plot.svg"] {
        assert!(read("short", file) == read("direct", file), "{file}");
    }
    assert_eq!(read("short", "seeds.jsonl"), read("direct", "seeds.jsonl"));
    let other = RunOptions { scenario: idle("5 s", "1 s").build(), ..with("short") };
    assert!(resume(&other, &()).is_err_and(|error| error.is_usage()));
}

#[test]
fn every_seed_leaves_the_rows_that_it_leaves_alone_and_more_seeds_go_on_from_fewer() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = small().build();
    let leave = |folder: &str, seeds: u32, first: u64, go_on: bool| {
        let out = Some(dir.path().join(folder));
        let own = Scenario { seed: first, ..scenario.clone() };
        let options = RunOptions { seeds, out, ..options(&own, &["tcp", "random"]) };
        if go_on { resume(&options, &()) } else { run(&options, &()) }.unwrap().0
    };
    let read = |folder: &str, file: &str| fs::read_to_string(dir.path().join(folder).join(file)).unwrap();
    let whole = leave("three", 3, scenario.seed, false);
    for number in 0..3 {
        let seed = scenario.seed + number;
        leave("alone", 1, seed, false);
        for file in ["flows.csv", "series.csv"] {
            let cell = format!(",{seed},");
            let of_seed = |text: String| -> Vec<String> {
                let own = text.lines().filter(|line| line.find(',').is_some_and(|at| line[at..].starts_with(&cell)));
                own.map(str::to_owned).collect()
            };
            let (all, alone) = (of_seed(read("three", file)), of_seed(read("alone", file)));
            assert!(all == alone && !all.is_empty(), "{file} of seed {seed}");
        }
    }
    assert!(!dir.path().join("three/.seeds").exists());
    let [difference] = &whole.differences[..] else { panic!("{:?}", whole.differences) };
    assert_eq!((difference.system.as_str(), difference.baseline.as_str(), difference.seeds), ("random", "tcp", 3));
    assert_eq!((whole.seeds, whole.ceiling_mbps.is_some()), (3, true));
    assert!(read("three", "plot.svg").contains("band: 5 % to 95 % of 3 seeds"));
    // What was put together comes apart again.
    leave("three", 5, scenario.seed, true);
    leave("five", 5, scenario.seed, false);
    for file in ["result.json", "flows.csv", "series.csv", "plot.svg", "seeds.jsonl"] {
        assert!(read("three", file) == read("five", file), "{file}");
    }
}

#[test]
fn a_sized_flow_completes_and_one_that_is_stopped_does_not() {
    let (sized, stopped) = (bulk("c1", "s1").with("size", "1 MB"), bulk("c1", "s1").with("stop", "2 s"));
    let result = results(&idle("5 s", "1 s").flow(sized).flow(stopped).build(), &["tcp"]).unwrap();
    let tcp = result.systems.get("tcp").unwrap();
    assert!(tcp.afct_s.is_some_and(|seconds| (0.8..4.0).contains(&seconds)), "{:?}", tcp.afct_s);
    assert_eq!(tcp.connections, 2);
}

#[test]
fn a_run_goes_on_to_its_end_where_a_flow_completes_in_the_last_interval() {
    let flow = |start: &str| bulk("c1", "s1").with("size", "3 kB").with("start", start);
    let network = idle("1 s", "0 s").set("sample", "250 ms").flow(flow("760 ms")).flow(flow("770 ms"));
    let result = results(&network.build(), &["tcp"]).unwrap();
    let tcp = result.systems.get("tcp").unwrap();
    assert_eq!((tcp.connections, tcp.unfinished), (2, None));
}

#[test]
fn tcp_survives_a_link_that_goes_down_because_the_igp_goes_around_it() {
    let result = results(&small().event(down("2 s").link("A-m1")).build(), &["tcp"]).unwrap();
    let second = result.systems.get("tcp").unwrap().paths.get("path-2").unwrap();
    assert!(second.utilisation_second_half.unwrap() > 0.8, "{second:?}");
}

#[test]
fn a_path_that_fails_without_a_sign_is_left_by_the_path_changer_and_by_prr_and_not_by_tcp() {
    let scenario = small().network("ecmp", true).event(blackhole("2 s").path("path-1")).build();
    let goodput = |system| {
        let result = results(&scenario, &[system]).unwrap();
        let second = *result.systems.get(system).unwrap().paths.get("path-2").unwrap();
        (result.systems.get(system).unwrap().goodput_mbps, second.utilisation_second_half.unwrap())
    };
    let [tcp, prr, pathchanger] = ["tcp", "prr", "pathchanger"].map(goodput);
    assert!(prr.1 > 0.9 && pathchanger.1 > 0.9, "{prr:?} {pathchanger:?}");
    assert!(pathchanger.0 > 2.0 * tcp.0, "{pathchanger:?} {tcp:?}");
}

#[test]
fn mptcp_over_equal_paths_uses_them_together() {
    let scenario = idle("5 s", "1 s").network("ecmp", true).flow(bulk("c1", "s1")).build();
    let result = results(&scenario, &["tcp", "mptcp:subflows=8"]).unwrap();
    let goodput = |system| result.systems.get(system).unwrap().goodput_mbps;
    assert!(goodput("mptcp:subflows=8") > 1.6 * goodput("tcp"));
}

#[test]
fn the_packets_of_a_link_are_written_as_they_would_be() {
    let dir = tempfile::tempdir().unwrap();
    for system in ["tcp", "mptcp:subflows=2", "pathchanger"] {
        let mut options = options(&small().build(), &[system]);
        options.out = Some(dir.path().to_owned());
        let topology = &options.scenario.topology;
        options.trace = topology.link_ids().filter(|id| topology.link(*id).name.starts_with("A-")).collect();
        let names: Vec<_> = options.trace.iter().map(|id| topology.link(*id).name.clone()).collect();
        assert_eq!(names.len(), 2);
        let result = run(&options, &()).unwrap().0;
        for name in names {
            let [forward, _] = trace(&dir.path().join(format!("trace/{system}/{name}.pcapng")));
            let (_, far) = name.split_once('-').unwrap();
            let link = &result.systems.get(system).unwrap().links[&format!("{name}:A>{far}")];
            // Of 10 Mbit/s for 4 seconds; what is still on the link in the end is not in the trace.
            let utilisation = forward.bytes as f64 * 8.0 / 40e6;
            assert!((utilisation - link.utilisation.unwrap()).abs() < 0.01, "{system} {name} {utilisation} {link:?}");
            assert!(forward.marks <= link.marks && forward.marks + 50 >= link.marks, "{} {link:?}", forward.marks);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Direction {
    /// After the first second.
    bytes: u64,
    marks: u64,
}

/// Reads a trace, each of whose packets must be one.
fn trace(path: &Path) -> [Direction; 2] {
    let mut reader = PcapNgReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut directions = [Direction::default(); 2];
    let mut last = std::time::Duration::ZERO;
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(block) = block.unwrap() else { continue };
        assert!(block.timestamp >= last);
        last = block.timestamp;
        let headers = etherparse::LaxPacketHeaders::from_ip(&block.data).unwrap();
        let Some(etherparse::NetHeaders::Ipv6(ip, _)) = &headers.net else { panic!("{headers:?}") };
        let Some(etherparse::TransportHeader::Tcp(tcp)) = &headers.transport else { panic!("{headers:?}") };
        assert!(block.original_len >= u32::from(ip.payload_length) + 40);
        assert!(ip.payload_length >= tcp.header_len_u16());
        assert!(tcp.options_iterator().all(|option| option.is_ok() || tcp.options.contains(&30)), "{tcp:?}");
        let direction = &mut directions[block.interface_id as usize];
        if last.as_secs_f64() >= 1.0 {
            direction.bytes += u64::from(block.original_len);
        }
        direction.marks += u64::from(ip.traffic_class & 3 == 3);
    }
    directions
}

#[test]
fn connections_that_begin_while_there_is_no_way_wait_for_one() {
    let scenario = idle("5 s", "0 s").network("paths", 1).set("routing.convergence", "100 ms");
    let scenario = scenario.flow(bulk("c1", "s1").with("start", "2 s"));
    let scenario = scenario.event(down("1 s").path("path-1")).event(up("2500 ms").path("path-1"));
    let result = results(&scenario.build(), &["tcp"]).unwrap();
    // The SYN of 2 s is lost, that of 3 s is not.
    let goodput = result.systems.get("tcp").unwrap().goodput_mbps;
    assert!(goodput > 3.0 && goodput < 4.0, "{goodput}");
}

#[test]
fn fullmesh_has_a_subflow_through_each_pair_of_interfaces() {
    // Two hosts with two interfaces each; the links to B weigh less, so that all shortest routes lead through B.
    let link = || part([("rate", "10 Mbit/s"), ("delay", "1 ms")]);
    let scenario = ScenarioBuilder::new("5 s")
        .set("warmup", "2 s")
        .host("c")
        .host("s")
        .router("A")
        .router("B")
        .link_with("c", "A", link())
        .link_with("c", "B", link().with("weight", 5))
        .link_with("A", "s", link())
        .link_with("B", "s", link().with("weight", 5))
        .link_with("A", "B", link())
        .flow(bulk("c", "s"))
        .build();
    let result = results(&scenario, &["mptcp:path_manager=fullmesh", "mptcp:subflows=4"]).unwrap();
    let goodput = |system| result.systems.get(system).unwrap().goodput_mbps;
    let (mesh, ports) = (goodput("mptcp:path_manager=fullmesh"), goodput("mptcp:subflows=4"));
    assert!(mesh > 16.0 && ports < 10.0, "{mesh} {ports}");
}

#[test]
fn rcp_gives_all_the_same_rate_and_loses_nothing() {
    let scenario = idle("10 s", "5 s").flow(bulk("c1", "s1").with("connections", 4)).build();
    let result = results(&scenario, &["rcp", "rcp:gamma=0.5"]).unwrap();
    let [rcp, half] = ["rcp", "rcp:gamma=0.5"].map(|system| result.systems.get(system).unwrap());
    // 1416 of 1500 bytes are payload.
    let share = |gamma: f64| gamma * 10.0 * 1416.0 / 1500.0;
    assert!((rcp.goodput_mbps / share(0.95) - 1.0).abs() < 0.02, "{}", rcp.goodput_mbps);
    assert!((half.goodput_mbps / share(0.5) - 1.0).abs() < 0.02, "{}", half.goodput_mbps);
    assert!(rcp.fairness.unwrap() > 0.999);
    assert_eq!((rcp.retransmits, rcp.links.values().map(|link| link.drops).sum::<u64>()), (0, 0));
    assert_eq!(
        results(&scenario, &["rcp:gamma=2"]).unwrap_err().to_string(),
        "system `rcp:gamma=2`: gamma must be above 0 and at most 1"
    );
}

#[test]
fn what_cannot_run_is_refused_before_the_run() {
    let refusal =
        |scenario: &ScenarioBuilder, system: &str| results(&scenario.build(), &[system]).unwrap_err().to_string();
    assert_eq!(
        refusal(&small().set("tcp.congestion_control", "bbr"), "tcp"),
        "the simulator has no congestion control `bbr`; it has reno, cubic and dctcp"
    );
    assert_eq!(
        refusal(&small().set("tcp.mss", 1460), "tcp"),
        "flow `bulk-1`: segments of 1460 bytes and their headers do not fit the 1500 bytes that its route carries"
    );
    let exec = idle("5 s", "1 s").flow(exec("c1", ["true"]));
    assert_eq!(refusal(&exec, "tcp"), "flow `exec-1` runs a program, which only the lab can; use `sidestep lab run`");
    let apart = ScenarioBuilder::new("1 s")
        .host("a")
        .host("b")
        .router("A")
        .router("B")
        .link("a", "A", "1 Mbit/s", "1 ms")
        .link("b", "B", "1 Mbit/s", "1 ms")
        .flow(bulk("a", "b"));
    assert_eq!(refusal(&apart, "tcp"), "flow `bulk-1`: there is no route from `a` to `b`");
}

/// Routers in a ring of one direction: data takes one link of 10 ms from `A` to `B`, and ACKs the other two.
fn ring() -> ScenarioBuilder {
    let link = || part([("rate", "10 Mbit/s"), ("delay", "10 ms")]).with("one_way", true);
    let ring = ScenarioBuilder::new("3 s").host("c").host("s").router("A").router("B").router("C");
    let ring = ring.link("c", "A", "100 Mbit/s", "1 ms").link("s", "B", "100 Mbit/s", "1 ms");
    ring.link_with("A", "B", link()).link_with("B", "C", link()).link_with("C", "A", link())
}

#[test]
fn nothing_is_sent_over_the_missing_direction_of_a_link() {
    let scenario = ring().flow(closed_loop("c", "s", 1, "100 ms", "1 kB")).build();
    let result = results(&scenario, &["tcp"]).unwrap();
    let median = result.systems.get("tcp").unwrap().fct_p50_s;
    // Two round trips of 12 ms there and 22 ms back; were the links two-way, they would take 48 ms.
    assert!(median.is_some_and(|median| (0.068..0.075).contains(&median)), "{median:?}");
    let refused = results(&scenario, &["semper"]).unwrap_err().to_string();
    assert!(refused.contains("link `A-B` has one direction only"), "{refused}");
    let refused = results(&scenario, &["inrpp"]).unwrap_err().to_string();
    assert!(refused.contains("link `A-B` has one direction only"), "{refused}");
}

#[test]
fn short_flows_arrive_and_complete() {
    let sizes = part([("distribution", "exponential"), ("mean", "20 kB")]);
    let short = load("c1", "s1", "50 %", "10 Mbit/s").with_table("size", sizes);
    let result = results(&idle("60 s", "1 s").flow(short).build(), &["tcp"]).unwrap();
    let tcp = result.systems.get("tcp").unwrap();
    // 31.25 a second.
    assert!((1_700..2_050).contains(&tcp.connections), "{}", tcp.connections);
    assert!((4.5..5.5).contains(&tcp.goodput_mbps), "{}", tcp.goodput_mbps);
    // Two round trips of 8 ms and 16 ms of transmission, and some waiting.
    assert!(tcp.fct_p50_s.is_some_and(|median| (0.016..0.1).contains(&median)), "{:?}", tcp.fct_p50_s);
}

#[test]
fn users_think_between_transfers() {
    let users = closed_loop("c1", "s1", 20, "1 s", "1 kB");
    let result = results(&idle("50 s", "1 s").flow(users).build(), &["tcp"]).unwrap();
    // Twenty users, each a transfer of 17 ms and a second of thought: about 980 in 50 s.
    let transfers = result.systems.get("tcp").unwrap().connections;
    assert!((880..1_080).contains(&transfers), "{transfers}");
}

#[test]
fn cross_traffic_takes_its_rate_and_pauses() {
    let stream = || cbr("c1", "s1", "4 Mbit/s");
    let beside = |stream: Part| {
        let scenario = idle("41 s", "1 s").flow(stream).flow(bulk("c1", "s1")).build();
        results(&scenario, &["tcp"]).unwrap().systems.get("tcp").unwrap().goodput_mbps
    };
    let in_bursts = || stream().with("on", "100 ms").with("off", "100 ms");
    // Of 10 Mbit/s the cross-traffic leaves 6, of which 95 % are the application's.
    let (always, half) = (beside(stream()), beside(in_bursts()));
    assert!((5.0..5.75).contains(&always), "{always}");
    assert!((6.7..7.7).contains(&half), "{half}");
    let random = beside(in_bursts().with("random", true));
    assert!((6.3..8.0).contains(&random) && random != half, "{random}");
}

#[test]
fn the_estimate_grows_with_flows_and_with_what_queues_hold() {
    let estimate = |scenario: ScenarioBuilder| sidestep_sim::estimate(&scenario.build());
    let few = estimate(small());
    let many = estimate(idle("5 s", "1 s").flow(bulk("c1", "s1").with("connections", 90_000)));
    let deep = estimate(small().network("queue", "100 GB").set("tcp.receive_window", "100 GB"));
    assert!(few < 10_000_000, "{few}");
    assert!(many > 90_000 * 1_000 && deep > 10_000_000_000, "{many} {deep}");
}

/// A scenario out of parts that may not fit together: whatever the simulator says of it, it must not panic.
fn any_scenario() -> impl Strategy<Value = (String, String)> {
    let topology = prop_oneof![
        (1u32..4, 1u32..4, 1u32..3, any::<bool>()).prop_map(|(paths, hops, hosts, ecmp)| format!(
            "generator = \"parallel-paths\"\npaths = {paths}\nhops = {hops}\nclients = {hosts}\nservers = {hosts}\necmp = {ecmp}\n"
        )),
        (1u32..4).prop_map(|hosts| format!("generator = \"dumbbell\"\nhosts = {hosts}\n")),
        Just("generator = \"fat-tree\"\nk = 2\n".to_owned()),
    ];
    let link = (
        prop::sample::select(vec!["0 bit/s", "1 bit/s", "9 kbit/s", "1 Mbit/s", "3 Gbit/s", "100 Tbit/s"]),
        prop::sample::select(vec!["0 s", "1 ns", "1 ms", "70 ms", "90 s"]),
        prop::sample::select(vec!["1 packets", "7 packets", "100 packets", "1700 B", "1 GB"]),
        prop::sample::select(vec!["never", "1 packets", "0 B", "20 packets"]),
        prop::sample::select(vec!["0 %", "3 %", "60 %", "100 %"]),
    )
        .prop_map(|(rate, delay, queue, ecn, loss)| {
            format!("rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"{queue}\"\necn = \"{ecn}\"\nloss = \"{loss}\"\n")
        });
    let tcp = (
        prop::sample::select(vec!["reno", "cubic", "dctcp"]),
        any::<[bool; 4]>(),
        prop::sample::select(vec![1u32, 2, 10, 10_000]),
        prop::sample::select(vec![1u8, 2, 255]),
        prop::sample::select(vec!["0 s", "1 ms", "200 ms", "100 s"]),
        prop::sample::select(vec!["120 kB", "6 MB", "100 GB"]),
    )
        .prop_map(|(control, [ecn, sack, limited, idle], window, every, rto, receive)| {
            format!(
                "[tcp]\ncongestion_control = \"{control}\"\necn = {ecn}\nsack = {sack}\nlimited_transmit = {limited}\nidle_restart = {idle}\n\
                 initial_window = {window}\nack_every = {every}\nmin_rto = \"{rto}\"\ndelayed_ack = \"{rto}\"\nreceive_window = \"{receive}\"\n"
            )
        });
    // Larger transfers take hours of our time where links take none of theirs.
    let flow = prop_oneof![
        (1u32..4, prop::sample::select(vec!["1 B", "1400 B", "100 kB", "20 MB"]))
            .prop_map(|(n, size)| format!("kind = \"bulk\"\nconnections = {n}\nsize = \"{size}\"\n")),
        (1u32..300).prop_map(|rate| format!(
            "kind = \"poisson\"\nrate = {rate}.0\nsize = {{ distribution = \"data-mining\" }}\n"
        )),
        Just("kind = \"closed-loop\"\nusers = 3\nthink = \"1 ms\"\nsize = \"2 kB\"\n".to_owned()),
        prop::sample::select(vec!["16 B", "300 B", "1 MB"]).prop_map(|request| format!(
            "kind = \"poisson\"\nrate = 100.0\nrequest = \"{request}\"\nsize = {{ distribution = \"pareto\", shape = 1.2, mean = \"9 kB\" }}\n"
        )),
        Just("kind = \"cbr\"\nrate = \"2 Mbit/s\"\npacket = 60000\n".to_owned()),
    ];
    let event = prop::sample::select(vec!["down", "up", "blackhole"]);
    let mut systems: Vec<&str> = sidestep_systems::simulator().infos().map(|info| info.name).collect();
    systems.extend([
        "mptcp:subflows=3",
        "mptcp:scheduler=redundant",
        "mptcp:congestion_control=balia",
        "mptcp:congestion_control=olia,scheduler=round-robin",
        "mptcp:congestion_control=cubic,scheduler=linux,source_ports=linux,stale_after=4",
        "mptcp:opportunistic_retransmission=true,penalisation=true,source_ports=consecutive",
        "mptcp:path_manager=fullmesh",
    ]);
    let system = prop::sample::select(systems);
    (topology, link, tcp, prop::collection::vec(flow, 1..3), prop::collection::vec((event, 0u32..200), 0..3), system)
        .prop_map(|(topology, link, tcp, flows, events, system)| {
            let mut text = format!("duration = \"200 ms\"\nsample = \"50 ms\"\n{tcp}[topology]\n{topology}{link}");
            for flow in flows {
                text += &format!("[[flow]]\n{flow}from = \"*\"\nto = \"*\"\npairing = \"permutation\"\n");
            }
            for (action, at) in events {
                text += &format!("[[event]]\nat = \"{} ms\"\nlink = \"*\"\naction = \"{action}\"\n", at.min(199));
            }
            (text, system.to_owned())
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_scenario_makes_the_simulator_panic((text, system) in any_scenario()) {
        // Some cannot be: a queue of bytes below the mtu, say. Those are refused with a line.
        if let Ok(scenario) = Scenario::parse(&text, "any") {
            let systems = vec![system.parse().unwrap()];
            let options = RunOptions::once(sidestep_systems::simulator(), scenario, systems);
            // A run that begins ends, and its packets add up: an error of any other kind would be a defect.
            match run(&options, &()) {
                Ok((result, interrupted)) => {
                    prop_assert!(!interrupted);
                    let (name, measured) = result.systems.iter().next().ok_or("no result").map_err(TestCaseError::fail)?;
                    prop_assert_eq!(name, &system);
                    prop_assert!(measured.goodput_mbps.is_finite() && measured.goodput_mbps >= 0.0);
                    prop_assert!(measured.fairness.is_none_or(|fairness| (0.0..=1.000_001).contains(&fairness)));
                }
                Err(error) => prop_assert!(error.is_usage(), "{}", error),
            }
        }
    }
}

#[test]
fn a_flow_whose_syn_was_lost_counts_among_those_with_a_timeout() {
    let lost =
        idle("4 s", "0 s").flow(bulk("c1", "s1").with("size", "10 kB")).flow(bulk("c1", "s1").with("start", "2 s"));
    for profile in ["linux", "rfc"] {
        let scenario = lost.clone().set("tcp.profile", profile);
        let scenario = scenario.event(blackhole("0 s").path("path-1")).event(up("500 ms").path("path-1")).build();
        let result = results(&scenario, &["tcp"]).unwrap();
        let tcp = result.systems.get("tcp").unwrap();
        assert_eq!((tcp.flows, tcp.flows_with_timeout), (2, 1), "{profile}");
    }
}

#[test]
fn hosts_notice_late_what_threads_serve_late_and_links_stay_in_order() {
    let mut scenario = idle("4 s", "0 s").flow(bulk("c1", "s1").with("size", "10 kB")).build();
    let tcp = |scenario: &Scenario, wires: Option<WireTimes>| {
        let lateness = Lateness { wires, ..Lateness::default() };
        let (result, _) = run(&RunOptions { lateness, ..options(scenario, &["tcp"]) }, &()).unwrap();
        result.systems.get("tcp").unwrap().clone()
    };
    let in_time = tcp(&scenario, None).afct_s.unwrap();
    let millis = |millis: u64| (Span::from_millis(millis), 1);
    let writes = vec![(Span::from_micros(100), 1)];
    let late = Some(WireTimes { threads: 1, writes, ..WireTimes::default() });
    // The client notices late the SYN-ACK and the end. Were it each of the twelve links there and back, it would be 1.2 ms.
    let longer = (tcp(&scenario, late.clone()).afct_s.unwrap() - in_time) * 1e3;
    assert!((0.15..0.5).contains(&longer), "{longer} ms");
    // Whatever is drawn, a link does not reorder: nothing is sent again.
    let wakes =
        (0..200).map(|number| (0, Span::from_millis(20 * number), Span::from_millis(number * 7 % 50))).collect();
    let writes = (0..5).map(millis).collect();
    let late = Some(WireTimes { threads: 1, wakes, writes, ..WireTimes::default() });
    let result = tcp(&scenario, late.clone());
    // But a probe, if an answer is later than that waits.
    let probes = result.tcp.get("TCPLossProbes").copied().unwrap_or_default();
    assert!(result.retransmits <= probes && result.flows_with_timeout == 0, "{:?}", result.tcp);
    assert_eq!(result, tcp(&scenario, late.clone()));
    scenario.repetition = 1;
    assert_ne!(result.afct_s, tcp(&scenario, late.clone()).afct_s);
    // All wait for the end of a stall, and no longer; the round trip to connect is over by then.
    let stalls = vec![(0, Span::ZERO, Span::from_millis(700))];
    let late = Some(WireTimes { threads: 1, stalls, ..WireTimes::default() });
    let stalled = tcp(&scenario, late.clone()).afct_s.unwrap();
    assert!(stalled > 0.7 && stalled < 0.7 + in_time, "{stalled} s, {in_time} s in time");
}

#[test]
fn programs_that_are_late_prolong_a_transfer_by_three_wakeups_under_linuxs_profile() {
    let flow = bulk("c1", "s1").with("size", "10 kB");
    for (profile, system, wakeups) in [("linux", "tcp", 3.0), ("rfc", "tcp", 0.0), ("linux", "mptcp", 0.0)] {
        let scenario = idle("4 s", "0 s").flow(flow.clone()).set("tcp.profile", profile).build();
        let taken = |late_wakeups: Vec<(Span, Span)>| {
            let lateness = Lateness { late_wakeups, ..Lateness::default() };
            let (result, _) = run(&RunOptions { lateness, ..options(&scenario, &[system]) }, &()).unwrap();
            result.systems.get(system).unwrap().afct_s.unwrap() * 1e3
        };
        let late = (taken(vec![(Span::ZERO, Span::from_millis(10))]) - taken(Vec::new())) / 10.0;
        assert!((late - wakeups).abs() < 0.02, "{profile} {system}: {late}");
    }
}
