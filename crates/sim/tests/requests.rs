//! Requests and answers: what the packets are, how long they take, and that both ends are moved.

use std::{fs, path::Path};

use pcap_file::pcapng::{Block, PcapNgReader};
use sidestep_engine::Lateness;
use sidestep_net::Span;
use sidestep_results::{RunResult, SystemResult};
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, blackhole, part, poisson},
};
use sidestep_sim::{RunOptions, SimError, run};

fn options(scenario: &Scenario, system: &str) -> RunOptions {
    RunOptions::once(sidestep_systems::simulator(), scenario.clone(), vec![system.parse().unwrap()])
}

fn results(scenario: &Scenario, system: &str) -> Result<RunResult, SimError> {
    run(&options(scenario, system), &()).map(|(result, _)| result)
}

fn result(scenario: &Scenario, system: &str) -> SystemResult {
    results(scenario, system).unwrap().systems.get(system).unwrap().clone()
}

/// A client and a server with a router in between: 5 ms to either, at 10 Mbit/s. No host's packet is late.
fn line(duration: &str) -> ScenarioBuilder {
    let ends = ScenarioBuilder::new(duration).set("warmup", "0 s").set("tcp.send_jitter", "0 s").host("c").host("s");
    ends.router("A").link("c", "A", "10 Mbit/s", "5 ms").link("A", "s", "10 Mbit/s", "5 ms")
}

/// Two clients and two servers, two paths of 20 Mbit/s, and 100 requests a second.
fn site(size: &str) -> ScenarioBuilder {
    let paths = ScenarioBuilder::new("5 s").set("warmup", "1 s").parallel_paths(2).network("clients", 2);
    let paths = paths.network("servers", 2).network("rate", "20 Mbit/s").network("ecn", "20 packets");
    paths.flow(poisson("c*", "s*", 100.0).with("request", "300 B").with("size", size))
}

#[test]
fn a_request_on_an_empty_line_takes_as_long_as_its_packets() {
    let asks = poisson("c", "s", 2.0).with("request", "300 B").with("size", "3 kB");
    for profile in ["linux", "rfc"] {
        let scenario = line("4 s").flow(asks.clone()).set("tcp.profile", profile).build();
        let result = result(&scenario, "tcp");
        // SYN and SYN-ACK of 80 bytes over two links each: 64 µs and 5 ms a link. Then the ACK of 72 bytes, behind it the
        // request of 372: 57.6 and 297.6 µs. Then an ACK; 1500, 1500 and 216 bytes; and a FIN of 72 behind them.
        let us = |bytes: f64| bytes * 0.8;
        let handshake = 4.0 * (us(80.0) + 5_000.0);
        let request = us(72.0) + 2.0 * (us(372.0) + 5_000.0);
        // On the second link the packet in front is longer each time, so that the second is never idle.
        let answer = us(72.0) + us(1500.0) + 5_000.0 + us(1500.0 + 1500.0 + 216.0 + 72.0) + 5_000.0;
        let expected = (handshake + request + answer) / 1e6;
        let taken = [result.fct_p50_s, result.fct_p99_s, result.afct_s].map(Option::unwrap);
        assert!(taken.iter().all(|one| (one - expected).abs() < 1e-8), "{profile}: {taken:?} and {expected}");
        assert_eq!((result.unfinished, result.retransmits, result.flows_with_timeout), (None, 0, 0));
        // Goodput is the answers'.
        let carried = result.goodput_mbps * 4e6 / 8.0;
        assert!((carried - 3_000.0 * result.flows as f64).abs() < 1.0, "{carried} of {} flows", result.flows);
    }
}

#[test]
fn an_answer_takes_three_wakeups_of_programs_longer_where_these_are_late() {
    let asks = poisson("c", "s", 20.0).with("request", "300 B").with("size", "3 kB");
    for profile in ["linux", "rfc"] {
        let scenario = line("4 s").flow(asks.clone()).set("tcp.profile", profile).build();
        let result = |late_wakeups: Vec<(Span, Span)>| {
            let lateness = Lateness { late_wakeups, ..Lateness::default() };
            let (result, _) = run(&RunOptions { lateness, ..options(&scenario, "tcp") }, &()).unwrap();
            result.systems.get("tcp").unwrap().clone()
        };
        let median = |late: Vec<(Span, Span)>| result(late).fct_p50_s.unwrap();
        let in_time = median(Vec::new());
        // Less what a request and an answer waited behind ACKs.
        let longer = median(vec![(Span::ZERO, Span::from_millis(2))]) - in_time;
        assert!((5.8e-3..6e-3).contains(&longer), "{profile}: {longer}");
        let millis = Span::from_millis;
        let late: Vec<_> = (0..2_000).map(|number| (millis(2 * number), millis(number % 5))).collect();
        let drawn = result(late.clone());
        assert!((drawn.afct_s.unwrap() - in_time - 6e-3).abs() < 1e-3, "{profile}: {:?}", drawn.afct_s);
        assert!(drawn.fct_p99_s.unwrap() - drawn.fct_p50_s.unwrap() > 3e-3);
        assert_eq!(drawn, result(late));
        assert_eq!((drawn.retransmits, drawn.flows_with_timeout), (0, 0));
    }
}

/// A packet: whether it is the client's, its flags, and its sequence and acknowledgment numbers, payload and mark of ECN.
type Seen = (bool, String, u32, u32, u32, u8);

fn packets(path: &Path) -> Vec<Seen> {
    let mut reader = PcapNgReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(block) = block.unwrap() else { continue };
        let headers = etherparse::LaxPacketHeaders::from_ip(&block.data).unwrap();
        let Some(etherparse::NetHeaders::Ipv6(ip, _)) = &headers.net else { panic!("{headers:?}") };
        let Some(etherparse::TransportHeader::Tcp(tcp)) = &headers.transport else { panic!("{headers:?}") };
        let flags = [(tcp.syn, 'S'), (tcp.fin, 'F'), (tcp.psh, 'P'), (tcp.ack, 'A')];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        let payload = block.original_len - 40 - u32::from(tcp.header_len_u16());
        let (number, acknowledged) = (tcp.sequence_number, tcp.acknowledgment_number);
        seen.push((tcp.destination_port == 7000, flags, number, acknowledged, payload, ip.traffic_class & 3));
    }
    seen
}

#[test]
fn the_packets_of_a_request_are_those_that_linux_sends() {
    let dir = tempfile::tempdir().unwrap();
    let asks = poisson("c", "s", 1.0).with("request", "300 B").with("size", "3 kB").with("stop", "1 s");
    let scenario = line("3 s").set("seed", 3).flow(asks).build();
    let mut options = options(&scenario, "tcp");
    options.out = Some(dir.path().to_owned());
    options.trace = vec![scenario.topology.find_link("A-s").unwrap()];
    let flows = run(&options, &()).unwrap().0.systems.get("tcp").unwrap().flows;
    let seen = packets(&dir.path().join("trace/tcp/A-s.pcapng"));
    let packet = |client, flags: &str, number, acknowledged, payload, ecn| {
        (client, flags.to_owned(), number, acknowledged, payload, ecn)
    };
    let expected = [
        packet(true, "S", 0, 0, 0, 0),
        packet(false, "SA", 0, 1, 0, 0),
        packet(true, "A", 1, 1, 0, 0),
        packet(true, "PA", 1, 1, 300, 2),
        // The server acknowledges the request at once, answers, and closes: nothing is left for the FIN to go with.
        packet(false, "A", 1, 301, 0, 0),
        packet(false, "PA", 1, 301, 1428, 2),
        packet(false, "PA", 1429, 301, 1428, 2),
        packet(false, "PA", 2857, 301, 144, 2),
        packet(false, "FPA", 3001, 301, 0, 0),
        packet(true, "A", 301, 1429, 0, 0),
        packet(true, "A", 301, 2857, 0, 0),
        packet(true, "A", 301, 3001, 0, 0),
        // The client closes as soon as it has read the end: its FIN acknowledges the server's.
        packet(true, "FPA", 301, 3002, 0, 0),
        packet(false, "A", 3002, 302, 0, 0),
    ];
    assert_eq!(seen[..expected.len()], expected);
    // And nothing after that: not when timers fire that were set before it was over.
    assert_eq!(seen.len(), expected.len() * flows as usize);
}

#[test]
fn the_same_requests_are_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = site("20 kB").network("ecmp", true).event(blackhole("2 s").path("path-1")).build();
    for system in ["tcp", "pathchanger", "prr", "plb", "random", "ecmp"] {
        let read = |name: &str| {
            let mut options = options(&scenario, system);
            options.out = Some(dir.path().join(name));
            run(&options, &()).unwrap();
            ["result.json", "flows.csv", "series.csv"].map(|file| fs::read(dir.path().join(name).join(file)).unwrap())
        };
        assert!(read("one") == read("two"), "two runs of {system} differ");
    }
}

#[test]
fn series_of_answers_are_the_servers_and_flows_the_clients() {
    let dir = tempfile::tempdir().unwrap();
    let asks = poisson("c", "s", 1.0).with("request", "300 B").with("size", "1 MB");
    let mut options = options(&line("3 s").set("sample", "50 ms").flow(asks).build(), "tcp");
    options.out = Some(dir.path().to_owned());
    run(&options, &()).unwrap();
    let rows = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    let (flows, series) = (rows("flows.csv"), rows("series.csv"));
    assert!(flows.lines().skip(1).all(|row| row.contains(",c,s,c:32")), "{flows}");
    let of_connection = |row: &&str| row.contains("s:7000-c:32");
    assert!(series.lines().any(|row| of_connection(&row)) && !series.contains("c:32768-s"), "{series}");
}

#[test]
fn lost_packets_delay_requests_and_nothing_else() {
    for profile in ["linux", "rfc"] {
        for system in ["tcp", "pathchanger", "plb"] {
            let scenario = site("20 kB").set("duration", "60 s").network("loss", "2 %").network("ecmp", true);
            let asks = poisson("c*", "s*", 20.0).with("request", "5 kB").with("size", "20 kB").with("stop", "20 s");
            let scenario = scenario.flow(asks.with("name", "more")).set("tcp.profile", profile);
            let mut scenario = scenario.build();
            scenario.flows.remove(0);
            let result = result(&scenario, system);
            assert_eq!(result.unfinished, None, "{profile} {system}");
            let (median, worst) = (result.fct_p50_s.unwrap(), result.fct_p99_s.unwrap());
            assert!(result.retransmits > 10 && median < 0.2 && worst > 0.2, "{profile} {system}: {median} {worst}");
        }
    }
}

#[test]
fn a_dead_path_is_left_in_both_directions_by_the_path_changer() {
    // What the servers send is lost, what the clients send is not: the servers' programs must move.
    let dead = blackhole("2 s").path("path-1").with("direction", "reverse");
    let scenario = site("20 kB").event(dead).build();
    let (tcp, moved) = (result(&scenario, "tcp"), result(&scenario, "pathchanger"));
    let unfinished = |result: &SystemResult| result.unfinished.as_ref().map_or(0, |of| of.flows);
    assert!(unfinished(&tcp) > 200, "{:?}", tcp.unfinished);
    assert!(unfinished(&moved) < 40 && moved.total_moves() > 5, "{:?} {:?}", moved.unfinished, moved.moves);
}

#[test]
fn servers_give_their_answers_another_label_after_timeouts() {
    let dead = blackhole("2 s").path("path-1").with("direction", "reverse");
    let scenario = site("20 kB").network("ecmp", true).set("duration", "15 s");
    let asks = poisson("c*", "s*", 100.0).with("request", "300 B").with("size", "20 kB").with("stop", "5 s");
    let mut scenario = scenario.flow(asks.with("name", "early")).event(dead).build();
    scenario.flows.remove(0);
    let unfinished = |system: &str| result(&scenario, system).unfinished.map_or(0, |of| of.flows);
    let (ecmp, prr) = (unfinished("ecmp"), unfinished("prr"));
    // After each timeout half of the labels lead to the dead path, and the third is seven seconds later than the first.
    assert!(ecmp > 80 && prr < ecmp / 8, "of 300 begun on two paths, {ecmp} and {prr}");
}

#[test]
fn answers_take_both_paths_where_each_end_draws_its_own() {
    let scenario = site("20 kB").build();
    let both = result(&scenario, "pathchanger");
    let carried = |path: &str| both.paths.get(path).unwrap().utilisation.unwrap();
    assert!(carried("path-1") > 0.2 && carried("path-2") > 0.2, "{:?}", both.paths);
}

#[test]
fn requests_over_what_is_not_tcp_are_refused_with_the_flow_and_the_system() {
    let scenario = site("20 kB").build();
    for system in sidestep_systems::simulator().infos().map(|info| info.name) {
        match results(&scenario, system) {
            Ok(result) => assert!(result.systems.get(system).unwrap().flows > 100, "{system}"),
            Err(error @ SimError::Request { .. }) => {
                assert!(error.is_usage() && error.place().is_some());
                let text = error.to_string();
                assert!(text.contains("`poisson-1`") && text.contains(&format!("`{system}`")), "{text}");
                assert!(["mptcp", "semper", "semper-stateful", "rcp", "inrpp"].contains(&system), "{system}");
            }
            Err(error) => panic!("{system}: {error}"),
        }
    }
}

#[test]
fn a_flows_own_system_decides_whether_it_may_ask() {
    let asks = |system: &str| {
        let flow = poisson("c*", "s*", 10.0).with("request", "300 B").with("size", "1 kB").with("system", system);
        ScenarioBuilder::new("1 s").parallel_paths(2).flow(flow).build()
    };
    assert!(matches!(results(&asks("mptcp"), "tcp"), Err(SimError::Request { .. })));
    assert!(results(&asks("tcp"), "mptcp").is_ok());
    // Its TCP is its own as well.
    let reno = poisson("c*", "s*", 10.0).with("request", "300 B").with("size", "1 kB");
    let reno = reno.with_table("tcp", part([("congestion_control", "reno")]));
    assert!(results(&ScenarioBuilder::new("1 s").parallel_paths(2).flow(reno).build(), "tcp").is_ok());
}
