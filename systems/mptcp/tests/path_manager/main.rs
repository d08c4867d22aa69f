//! The path manager at work: real connections of MPTCP between two network namespaces.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

mod congestion;
mod coupled_cost;
mod coupled_growth;
#[path = "../../../../crates/hostd/tests/support/daemon.rs"]
#[expect(dead_code, reason = "the tests of edges use the rest")]
mod daemon;
mod silent_path;
#[path = "../../../pathchanger/tests/agent/support/sockets.rs"]
#[expect(dead_code, reason = "the tests of the agent use the rest")]
mod sockets;
mod support;
mod two_providers;

use std::time::{Duration, Instant};

use sidestep_linux::{
    mptcp::SubflowRequests,
    netns::{NetNsId, set_sysctl},
    testing::root_or_skip,
};
use sidestep_mptcp::daemon::MptcpMode;
use support::{PathManager, Transfer, accepting, config, pair};

/// Longer than anything should take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long joins may take.
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_connection_gets_31_further_subflows_within_a_second_and_the_sysctl_is_put_back() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let before = pair.client.setting();
    let (client, _server) = (PathManager::start(&pair.client, config("")), accepting(&pair.server));
    assert!(before != pair.client.setting() && pair.client.setting().is_for_programs());
    let connections = ["fd42::2", "10.42.0.2"].map(|address| (address, pair.connect(address)));
    for (address, connection) in &connections {
        connection.exchange();
        let began = Instant::now();
        pair.client.eventually("32 subflows", || pair.client.subflows(connection).len() == 32);
        let took = began.elapsed();
        println!("31 of 31 joins to {address} in {took:?}");
        assert!(took < SECOND);
        assert!(pair.client.subflows(connection).iter().all(|ends| ends.subflow.unwrap().opened_here));
    }
    let status = client.status();
    assert_eq!((status.connections.len(), status.subflows), (2, 64));
    client.stop();
    assert_eq!(before, pair.client.setting());
}

#[test]
fn joins_that_a_server_refuses_are_not_repeated_at_once() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let client = PathManager::start(&pair.client, config(""));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    // The kernel's path manager there accepts two (`ip mptcp limits`), and resets the others.
    pair.client.eventually("three subflows", || pair.client.subflows(&connection).len() == 3);
    std::thread::sleep(SECOND * 5 / 2);
    assert_eq!(pair.client.subflows(&connection).len(), 3);
    let begun = client.counter("sidestep_mptcp_subflows_begun_total");
    assert!((31.0..=34.0).contains(&begun), "{begun}");
    connection.exchange();
}

#[test]
fn a_server_that_denies_further_subflows_to_its_address_gets_none() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    pair.server.run(|| set_sysctl("mptcp/allow_join_initial_addr_port", "0").unwrap());
    let (client, _server) = (PathManager::start(&pair.client, config("")), accepting(&pair.server));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    pair.client.eventually("news of it", || client.status().connections.len() == 1);
    std::thread::sleep(SECOND / 5);
    assert_eq!(pair.client.subflows(&connection).len(), 1);
    assert_eq!(client.status().connections[0].waits_for.as_deref(), Some("an announced address"));
    // The next path manager does not learn it again.
    let state = client.kill();
    let client = PathManager::start_with(&pair.client, config(""), state, |_| {});
    std::thread::sleep(SECOND / 5);
    assert_eq!(pair.client.subflows(&connection).len(), 1);
    assert_eq!(client.status().connections[0].waits_for.as_deref(), Some("an announced address"));
}

#[test]
fn a_subflow_that_is_killed_is_restored() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let (_client, _server) = (PathManager::start(&pair.client, config("count = 8")), accepting(&pair.server));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    pair.client.eventually("8 subflows", || pair.client.subflows(&connection).len() == 8);
    let before = pair.client.subflows(&connection);
    let victim = pair.server.joined_of(&pair.client.joined(&before)[0]);
    pair.server.run(|| SubflowRequests::open().unwrap().destroy(victim.0, &victim.1).unwrap());
    let is_gone = || !pair.client.subflows(&connection).iter().any(|ends| ends.ends.local == victim.1.remote);
    pair.client.eventually("the end of the subflow", is_gone);
    pair.client.eventually("8 subflows again", || pair.client.subflows(&connection).len() == 8);
    connection.exchange();
}

#[test]
fn no_connection_is_forgotten_when_events_are_lost() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let tiny = config("count = 8\n[watch]\nevent_buffer = \"4096 B\"\ninterval = \"60 min\"");
    let (client, _server) = (PathManager::start(&pair.client, tiny), accepting(&pair.server));
    let connections: Vec<_> = (0..30).map(|_| pair.connect("fd42::2")).collect();
    connections.iter().for_each(|connection| connection.exchange());
    let complete = || connections.iter().all(|connection| pair.client.subflows(connection).len() == 8);
    pair.client.eventually("8 subflows of each", complete);
    assert!(client.counter("sidestep_mptcp_event_overflows_total") > 0.0);
}

#[test]
fn ports_are_not_used_up_and_the_limit_is_counted() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    pair.client.run(|| set_sysctl("ipv4/ip_local_port_range", "40000 40099").unwrap());
    let (client, _server) = (PathManager::start(&pair.client, config("")), accepting(&pair.server));
    let connections: Vec<_> = (0..6).map(|_| pair.connect("fd42::2")).collect();
    connections.iter().for_each(|connection| connection.exchange());
    let total = || connections.iter().map(|connection| pair.client.subflows(connection).len()).sum::<usize>();
    pair.client.eventually("the limit", || total() == 90);
    std::thread::sleep(SECOND * 3 / 2);
    assert_eq!(total(), 90);
    let status = client.status();
    // The first of them may have got all of theirs before the others opened.
    let limited = status.limits_reached.get("ports").copied().unwrap_or_default();
    assert!((3..=6).contains(&limited), "{status:?}");
    assert!(status.refusals.is_empty(), "{status:?}");
    pair.connect("fd42::2").exchange();
}

#[test]
fn a_lazy_connection_gets_subflows_when_it_has_carried_enough() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let lazy = config("count = 4\nafter = \"100 kB\"\n[watch]\ninterval = \"100 ms\"");
    let (_client, _server) = (PathManager::start(&pair.client, lazy), accepting(&pair.server));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    std::thread::sleep(SECOND / 3);
    assert_eq!(pair.client.subflows(&connection).len(), 1);
    connection.send(200_000);
    pair.client.eventually("4 subflows", || pair.client.subflows(&connection).len() == 4);
}

#[test]
fn fullmesh_uses_each_address_of_the_host() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    pair.client.ip("address add fd42::11/64 dev veth nodad");
    let mesh = support::with_mode(config(""), MptcpMode::Fullmesh);
    let (_client, _server) = (PathManager::start(&pair.client, mesh), accepting(&pair.server));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    let addresses = || {
        let mut addresses: Vec<_> =
            pair.client.subflows(&connection).iter().map(|ends| ends.ends.local.ip().to_string()).collect();
        addresses.sort();
        addresses
    };
    pair.client.eventually("two subflows", || addresses() == ["fd42::1", "fd42::11"]);
    // An address that comes later is used as well.
    pair.client.ip("address add fd42::12/64 dev veth nodad");
    pair.client.eventually("three subflows", || addresses() == ["fd42::1", "fd42::11", "fd42::12"]);
}

#[test]
fn fullmesh_joins_each_address_that_the_other_end_announces() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    pair.client.ip("address add fd42::11/64 dev veth nodad");
    // The kernel's path manager announces there, and takes what comes.
    pair.server.ip("address add fd42::22/64 dev veth nodad");
    pair.server.ip("mptcp limits set subflows 8 add_addr_accepted 8");
    pair.server.ip("mptcp endpoint add fd42::22 dev veth signal");
    let mesh = support::with_mode(config(""), MptcpMode::Fullmesh);
    let client = PathManager::start(&pair.client, mesh);
    let connection = pair.connect("fd42::2");
    connection.exchange();
    let ends = || {
        let ends = pair.client.subflows(&connection);
        let mut ends: Vec<_> =
            ends.iter().map(|ends| format!("{} {}", ends.ends.local.ip(), ends.ends.remote.ip())).collect();
        ends.sort();
        ends
    };
    let all = ["fd42::1 fd42::2", "fd42::1 fd42::22", "fd42::11 fd42::2", "fd42::11 fd42::22"];
    pair.client.eventually("four subflows", || ends() == all);
    connection.exchange();
    std::thread::sleep(SECOND / 2);
    assert_eq!(ends(), all, "and no more: {:?}", client.status());
}

#[test]
fn stratified_ports_work_at_the_kernel() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let stratified = config("[ports]\nchoice = \"stratified\"");
    let (client, _server) = (PathManager::start(&pair.client, stratified), accepting(&pair.server));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    pair.client.eventually("32 subflows", || pair.client.subflows(&connection).len() == 32);
    let ends = pair.client.subflows(&connection);
    let paths: std::collections::BTreeSet<u32> =
        ends.iter().map(|ends| sidestep_mptcp::daemon::subflow_hash(&ends.ends, 0) % 8).collect();
    assert_eq!(paths.len(), 8);
    assert!(client.status().refusals.values().sum::<u64>() < 8, "{:?}", client.status());
}

#[test]
fn a_kill_loses_no_byte_and_the_next_path_manager_takes_over() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let before = pair.client.setting();
    let (client, server) = (PathManager::start(&pair.client, config("count = 8")), accepting(&pair.server));
    let connection = pair.connect("fd42::2");
    connection.exchange();
    pair.client.eventually("8 subflows", || pair.client.subflows(&connection).len() == 8);
    let transfer = Transfer::start(connection);
    let (state, server_state) = (client.kill(), server.kill());
    transfer.pass(4 << 20);
    assert_eq!(pair.client.subflows(transfer.connection()).len(), 8);

    let _server = PathManager::start_with(&pair.server, support::accept_only(), server_state, |_| {});
    let client = PathManager::start_with(&pair.client, config("count = 12"), state, |_| {});
    pair.client.eventually("12 subflows", || pair.client.subflows(transfer.connection()).len() == 12);
    transfer.pass(4 << 20);
    transfer.finish();
    client.stop();
    assert_eq!(before, pair.client.setting(), "what the one that was killed had found is put back");
}

#[test]
fn a_path_manager_that_cannot_work_leaves_the_sysctl_alone() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    let before = pair.client.setting();
    assert!(!before.is_for_programs());
    // What was before must be written down first: else it could not be put back after a kill.
    let state = support::state();
    let namespace = pair.client.run(|| NetNsId::current().unwrap().cookie);
    std::fs::create_dir(state.path().join(format!("{namespace}.new"))).unwrap();
    let error = PathManager::start_in_vain(&pair.client, config(""), state, |_| {});
    assert!(error.contains("state"), "{error}");
    assert_eq!(before, pair.client.setting());
    // It takes connections from the kernel's path manager last, when all that may fail has been done.
    let taken = pair.client.run(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let listen = taken.local_addr().unwrap();
    PathManager::start_in_vain(&pair.client, config(""), support::state(), |options| {
        options.config.metrics.listen = Some(listen);
    });
    assert_eq!(before, pair.client.setting());
    PathManager::start(&pair.client, config("")).stop();
}

#[test]
fn a_dry_run_changes_nothing() {
    if !root_or_skip("the path manager") {
        return;
    }
    let pair = pair();
    pair.client.run(|| pair.client.setting().for_programs().set().unwrap());
    let client = PathManager::start_with(&pair.client, config("count = 8"), support::state(), |options| {
        options.dry_run = true;
    });
    let _server = accepting(&pair.server);
    let connection = pair.connect("fd42::2");
    connection.exchange();
    pair.client.eventually("decisions", || client.counter("sidestep_mptcp_subflows_begun_total") == 7.0);
    assert_eq!(pair.client.subflows(&connection).len(), 1);
}

/// 1,000 connections of 8 subflows, three times: `cargo test -p sidestep-mptcp --features daemon --test path_manager -- --ignored --nocapture`.
#[test]
#[ignore = "takes half a minute; `make bench-mptcp-pm` runs it"]
fn a_thousand_connections_get_8_subflows_each_in_bounded_time_and_leave_nothing() {
    if !root_or_skip("the path manager") {
        return;
    }
    support::allow_files(20_000);
    let pair = pair();
    let (client, server) = (PathManager::start(&pair.client, config("count = 8")), accepting(&pair.server));
    let mut memory = Vec::new();
    for round in 0..3 {
        let began = Instant::now();
        let connections: Vec<_> = (0..1_000).map(|_| pair.connect("fd42::2")).collect();
        connections.iter().for_each(|connection| connection.exchange());
        let opened = began.elapsed();
        let all = || pair.client.all_subflows() == 8_000;
        pair.client.eventually("8,000 subflows", all);
        let took = began.elapsed();
        let connections_done = client.counter("sidestep_mptcp_connections_completed_total");
        let mean = client.counter("sidestep_mptcp_completion_seconds_total") / connections_done;
        let longest = client.counter("sidestep_mptcp_completion_longest_seconds");
        println!(
            "round {round}: opened in {opened:?}, all subflows after {took:?}; from establishment to the 8th subflow: \
             mean {:.1} ms, longest {:.1} ms; list {:.1} ms",
            mean * 1e3,
            longest * 1e3,
            client.counter("sidestep_mptcp_list_seconds") * 1e3,
        );
        assert!(longest < 5.0, "{longest} s");
        drop(connections);
        println!("events were lost {} times", client.status().overflows);
        pair.client.eventually("the end of all", || client.status().connections.is_empty());
        pair.client.eventually("the end of all there", || server.status().connections.is_empty());
        assert_eq!((client.status().subflows, server.status().subflows), (0, 0));
        memory.push(support::resident_bytes());
        println!("resident: {} MB", memory[round] >> 20);
    }
    assert!(memory[2] < memory[0] + (16 << 20), "{memory:?}");
}

/// 1,000 connections want 31,000 ports more, and one address has 28,232.
#[test]
#[ignore = "takes a minute; `make bench-mptcp-pm` runs it"]
fn a_thousand_connections_of_32_subflows_stop_at_the_ports_of_an_address_without_an_error_loop() {
    if !root_or_skip("the path manager") {
        return;
    }
    support::allow_files(20_000);
    let pair = pair();
    let (client, _server) = (PathManager::start(&pair.client, config("")), accepting(&pair.server));
    let began = Instant::now();
    let connections: Vec<_> = (0..1_000).map(|_| pair.connect("fd42::2")).collect();
    connections.iter().for_each(|connection| connection.exchange());
    let (low, high) = (32_768, 60_999);
    let share = (high - low + 1) * 9 / 10;
    let patience = SECOND * 120;
    pair.client.within(patience, "the limit", || {
        std::thread::sleep(SECOND);
        pair.client.all_subflows() >= share
    });
    println!("{} subflows after {:?}", pair.client.all_subflows(), began.elapsed());
    std::thread::sleep(SECOND * 3);
    let (begun, cpu) = (client.counter("sidestep_mptcp_subflows_begun_total"), support::cpu_time());
    std::thread::sleep(SECOND * 10);
    let (after, used) = (client.counter("sidestep_mptcp_subflows_begun_total"), support::cpu_time() - cpu);
    let (status, total) = (client.status(), pair.client.all_subflows());
    println!("{total} subflows; {} begun in 10 s more, in {used:?} of CPU", after - begun);
    println!("limits {:?}, refusals {:?}", status.limits_reached, status.refusals);
    assert!((share..=share + 1_000).contains(&total), "{total}, not {share}");
    assert_eq!(after, begun, "nothing that fails is tried");
    assert!(status.limits_reached.get("ports").is_some_and(|limited| *limited >= 100), "{status:?}");
    assert!(status.refusals.is_empty() && used < SECOND * 5, "{status:?}, {used:?}");
    // There are ports for new connections, and those that end make room.
    pair.connect("fd42::2").exchange();
    drop(connections);
    pair.client.within(patience, "the end of all", || client.status().connections.is_empty());
    let connection = pair.connect("fd42::2");
    connection.exchange();
    pair.client.eventually("32 subflows", || pair.client.subflows(&connection).len() == 32);
}
