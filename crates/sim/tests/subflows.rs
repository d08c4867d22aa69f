//! MPTCP in scenarios: the ports of subflows, when they are opened, and what their rows say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk},
};
use sidestep_sim::{RunOptions, run};

/// Four hosts with 32 subflows each as Linux has them, over two links of 10 Mbit/s: 64 subflows a link, whose shortest windows
/// fill the queue.
#[test]
fn subflows_of_linux_that_crowd_a_link_send_each_piece_of_data_mostly_once() {
    let settings = [("semper.scheduler", "linux"), ("semper.congestion_control", "cubic")];
    let paths = ScenarioBuilder::new("14 s").set("warmup", "6 s").parallel_paths(2);
    let paths = paths.network("rate", "10 Mbit/s").network("queue", "150 packets").network("clients", 4);
    let scenario = settings.iter().fold(paths, |paths, (key, value)| paths.set(key, *value));
    let (rows, in_window) = subflows(&scenario.flow(bulk("c*", "s1")).build(), "semper:subflows=32", 1);
    assert_eq!(rows.len(), 128);
    let seconds = 8.0;
    let goodput = in_window.iter().sum::<u64>() as f64 * 8.0 / 1e6 / seconds;
    // Headers leave 18.7 of 20 Mbit/s.
    assert!(goodput > 15.0, "{goodput}");
}

/// What `subflows.csv` says of a subflow.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    connection: String,
    port: u16,
    bytes: u64,
    in_window: u64,
    opened: f64,
}

/// Two hosts with so many connections over four equal paths of 20 Mbit/s.
fn four_paths(connections: i64) -> Scenario {
    let paths = ScenarioBuilder::new("4 s").set("warmup", "2 s").parallel_paths(4).network("rate", "20 Mbit/s");
    paths.network("ecmp", true).flow(bulk("c1", "s1").with("connections", connections)).build()
}

/// The rows of subflows, and of each connection the bytes that it carried after the warm-up.
fn subflows(scenario: &Scenario, system: &str, seed: u64) -> (Vec<Row>, Vec<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let once = RunOptions::once(
        sidestep_systems::simulator(),
        Scenario { seed, ..scenario.clone() },
        vec![system.parse().unwrap()],
    );
    let options = RunOptions { out: Some(dir.path().to_owned()), ..once };
    run(&options, &()).unwrap();
    let subflows = rows(&dir.path().join("subflows.csv")).into_iter().map(|row| Row {
        connection: row["connection"].clone(),
        port: row["local"].rsplit_once(':').unwrap().1.parse().unwrap(),
        bytes: row["bytes"].parse().unwrap(),
        in_window: row["bytes_in_window"].parse().unwrap(),
        opened: row["opened_s"].parse().unwrap(),
    });
    let flows = rows(&dir.path().join("flows.csv"));
    (subflows.collect(), flows.iter().map(|row| row["bytes_in_window"].parse().unwrap()).collect())
}

/// The rows of a file by column. Only the first cell, the system's name, may have commas in it, so that cells count from the
/// end.
fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.rsplit(',').map(str::to_owned));
    let columns: Vec<String> = lines.next().unwrap().collect();
    lines.map(|cells| columns.iter().cloned().zip(cells).collect()).collect()
}

/// The ports of each connection, in the order in which its subflows were opened.
fn ports(rows: &[Row]) -> Vec<Vec<u16>> {
    rows.chunk_by(|a, b| a.connection == b.connection).map(|rows| rows.iter().map(|row| row.port).collect()).collect()
}

#[test]
fn source_ports_are_as_the_host_draws_them_and_follow_from_the_seed() {
    let scenario = four_paths(3);
    for kind in ["random", "consecutive", "linux"] {
        let system = format!("mptcp:subflows=16,source_ports={kind}");
        let drawn = ports(&subflows(&scenario, &system, 7).0);
        assert_eq!(drawn.iter().map(Vec::len).collect::<Vec<_>>(), [16; 3]);
        assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), 48, "{kind}: all different");
        assert_eq!(drawn, ports(&subflows(&scenario, &system, 7).0), "{kind}: the same from the same seed");
        assert_ne!(drawn, ports(&subflows(&scenario, &system, 8).0), "{kind}: others from another");
        for ports in &drawn {
            let even = ports.iter().filter(|port| *port % 2 == 0).count();
            match kind {
                "linux" => assert!(ports[0] % 2 == 0 && even == 1, "{ports:?}"),
                "consecutive" => assert!(ports.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ports:?}"),
                _ => assert!((2..=14).contains(&even), "{ports:?}"),
            }
        }
    }
}

#[test]
fn subflows_are_opened_in_turn_and_their_rows_count_the_measured_part() {
    let scenario = four_paths(1);
    let (rows, window) = subflows(&scenario, "mptcp:subflows=8,join_delay=0.5 s,join_interval=100 ms", 1);
    let opened: Vec<f64> = rows.iter().map(|row| row.opened).collect();
    // Each SYN leaves 100 ms after the one before. The two round trips of a join's handshake may meet full queues.
    assert!(opened[0] < 0.05, "{opened:?}");
    for (index, at) in (0..).zip(&opened[1..]) {
        let sent = 0.5 + 0.1 * f64::from(index);
        assert!((sent..sent + 0.35).contains(at), "{opened:?}");
    }
    // What waits for earlier data is acknowledged by the subflow, and not yet by the connection.
    let carried: u64 = rows.iter().map(|row| row.in_window).sum();
    let ratio = carried as f64 / window[0] as f64;
    assert!((0.9..1.1).contains(&ratio), "{carried} on subflows, {} on the connection", window[0]);
    assert!(rows.iter().all(|row| row.in_window < row.bytes));
}

#[test]
fn a_transfer_that_ends_leaves_what_its_subflows_carried() {
    let mut scenario = four_paths(1);
    let transfer = bulk("c1", "s1").with("size", "5 MB");
    scenario.flows = ScenarioBuilder::new("4 s").parallel_paths(4).flow(transfer).build().flows;
    let (rows, _) = subflows(&scenario, "mptcp:subflows=4", 1);
    let carried: u64 = rows.iter().map(|row| row.bytes).sum();
    assert!(carried >= 4_990_000, "{rows:?}");
}
