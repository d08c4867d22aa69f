//! Paths and links that fail under running transfers, in the lab.

use serde_json::Value;

use crate::common::{Room, root_or_skip};

/// Three paths with so much room that nothing is lost but by failure.
const THREE_PATHS: &str = r#"
warmup = "1 s"

[agent]
congestion_backoff = { min = "100 ms", max = "1 s" }

[topology]
generator = "parallel-paths"
paths = 3
clients = 2
servers = 2
rate = "10 Mbit/s"
delay = "1 ms"
queue = "2000 packets"
ecn = "30 packets"
"#;

const FLOWS: &str = r#"
[[flow]]
kind = "bulk"
name = "bulk"
from = "c*"
to = "s*"
connections = 24
"#;

#[test]
fn connections_deliver_before_their_third_timeout_after_a_path_went_silent_both_ways() {
    if !root_or_skip("a lab run") {
        return;
    }
    let (room, plain) = (Room::new(), Room::new());
    let silence = "[[event]]\nat = \"4 s\"\npath = \"path-1\"\naction = \"blackhole\"\n";
    let tcp = format!("duration = \"9 s\"\nsystems = [\"tcp\"]\n{THREE_PATHS}{FLOWS}{silence}");
    // So few that their queue, which adds to the timeouts, is short.
    plain.run_lab("out", &tcp.replace("connections = 24", "connections = 4")).is_fine();
    let stalled = plain.result_of("out", "tcp")["recovery"]["stalled"].clone();
    assert_eq!(stalled.as_u64(), Some(8), "plain TCP knows path-1 only");

    room.run_lab("out", &tcp.replace("\"tcp\"", "\"pathchanger\"")).is_fine();
    let recovery = room.result_of("out", "pathchanger")["recovery"].clone();
    let count = |key: &str| recovery[key].as_u64().unwrap();
    println!("after the failure: {recovery}");
    // Of 48 connections five in nine have data or acknowledgements on the path that dies.
    assert!(count("delivered") >= 20, "{recovery}");
    assert_eq!(count("stalled"), 0, "{recovery}");
    assert_eq!(count("before_third_timeout"), count("delivered"), "{recovery}");
    let moves = room.result_of("out", "pathchanger")["moves"].clone();
    assert!(moves["ack_loss"].as_u64().is_some_and(|moves| moves > 0), "{moves}");
}

#[test]
fn connections_that_begin_while_a_path_is_silent_are_established() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let late = r#"
[[flow]]
kind = "bulk"
name = "late"
from = "c*"
to = "s*"
connections = 20
size = "20 kB"
start = "2 s"

[[event]]
at = "1 s"
path = "path-1"
direction = "forward"
action = "blackhole"
"#;
    let head = "duration = \"8 s\"\nsystems = [\"tcp\", \"pathchanger\"]\n";
    room.run_lab("out", &format!("{head}{THREE_PATHS}{late}")).is_fine();
    let completed = |system: &str| {
        let rows = room.rows("out", "flows.csv");
        rows.iter().filter(|row| row["system"] == system && row["completed"] == "true").count()
    };
    assert_eq!((completed("tcp"), completed("pathchanger")), (0, 40));
    let moves = room.result_of("out", "pathchanger")["moves"].clone();
    assert!(moves["syn_timeout"].as_u64().is_some_and(|moves| moves > 0), "{moves}");
}

#[test]
fn agents_hear_of_a_link_that_goes_down_and_of_one_that_comes_back() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let events = r#"
[[event]]
at = "3 s"
link = "A-m2"
action = "down"

[[event]]
at = "6 s"
link = "A-m2"
action = "up"
"#;
    let head = "duration = \"9 s\"\nsystems = [\"pathchanger\"]\n";
    room.run_lab("out", &format!("{head}{THREE_PATHS}{FLOWS}{events}")).is_fine();
    let system = room.result_of("out", "pathchanger");
    let updates = system["path_updates"].as_array().unwrap();
    let told = |update: &Value| (update["change"].as_str().unwrap().to_owned(), update["agents"].as_u64().unwrap());
    println!("{updates:?}");
    assert_eq!(updates.iter().map(told).collect::<Vec<_>>(), [("down".into(), 4), ("up".into(), 4)]);
    // On an idle machine some 10 ms.
    assert!(updates.iter().all(|update| update["last_s"].as_f64().is_some_and(|last| last < 2.0)), "{updates:?}");
    assert!(system["moves"]["paths_changed"].as_u64().is_some_and(|moves| moves > 0), "{}", system["moves"]);
    for flow in room.rows("out", "flows.csv") {
        assert!(flow["bytes"].parse::<u64>().unwrap() > 100_000, "{flow:#?}");
    }
}
