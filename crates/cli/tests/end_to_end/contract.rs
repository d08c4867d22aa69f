//! What scripts rely on: the files of a run, their keys, and what is printed (DESIGN, "Contracts").

use std::fs;

use serde_json::Value;
use sidestep_scenario::Scenario;

use crate::common::{BULK, Room, TWO_PATHS, number, root_or_skip, traces_of};

/// Asserts that `value` has all `keys`.
#[track_caller]
fn has(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "no `{key}` in {value:#}");
    }
}

/// If anything arrives under the path changer, a Path ID is a route to `End.B6.Encaps` at the access router, and hosts
/// accept the last segment (`seg6_enabled`): packets arrive with their header in place.
#[test]
fn a_run_leaves_every_file_and_key_of_the_contract_and_moving_beats_standing() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let file = room.write("smoke.toml", &format!("duration = \"4 s\"\n{TWO_PATHS}{BULK}"));
    let ended =
        room.run(&["lab", "run", &file, "--system", "tcp", "--system", "pathchanger", "--out", "out", "--json"]);
    ended.is_fine();

    let json: Value = serde_json::from_str(&fs::read_to_string(room.path("out/result.json")).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), json);
    assert_eq!((&json["schema"], &json["scenario"], &json["world"]), (&1.into(), &"smoke".into(), &"lab".into()));
    has(&json, &["seed", "systems"]);
    for name in ["tcp", "pathchanger"] {
        let system = &json["systems"][name];
        has(system, &["goodput_mbps", "afct_s", "fct_p50_s", "fct_p99_s", "fairness", "moves", "paths"]);
        for path in ["path-1", "path-2"] {
            has(&system["paths"][path], &["utilisation", "drops"]);
        }
    }

    let (tcp, pathchanger) = (&json["systems"]["tcp"], &json["systems"]["pathchanger"]);
    let share = |path: &str| pathchanger["paths"][path]["utilisation"].as_f64().unwrap();
    assert!(share("path-1") > 0.2 && share("path-2") > 0.2, "{pathchanger:#}");
    assert!(pathchanger["moves"]["ecn"].as_u64() > Some(0), "{pathchanger:#}");
    assert_eq!(tcp["moves"], serde_json::json!({}));
    assert!(pathchanger["goodput_mbps"].as_f64() > tcp["goodput_mbps"].as_f64(), "{json:#}");

    let flows = room.rows("out", "flows.csv");
    let of = |system: &str| flows.iter().filter(|row| row["system"] == system).collect::<Vec<_>>();
    assert_eq!((of("tcp").len(), of("pathchanger").len()), (4, 4));
    assert!(of("pathchanger").iter().any(|row| number(row, "moves") > 0.0));
    assert!(room.rows("out", "series.csv").iter().any(|row| row["kind"] == "connection" && row["path"] == "path-2"));
    for (file, beginning) in [("plot.svg", "<svg"), ("index.html", "<!doctype html>")] {
        let text = fs::read_to_string(room.path("out").join(file)).unwrap().to_lowercase();
        assert!(text.contains(beginning), "{file}");
    }
    let resolved = fs::read_to_string(room.path("out/scenario.resolved.toml")).unwrap();
    let scenario = Scenario::parse(&resolved, "other").unwrap();
    assert_eq!((scenario.name.as_str(), scenario.to_toml()), ("smoke", resolved));
}

#[test]
fn the_table_is_all_that_is_printed_and_nothing_is_left_though_a_program_went_to_the_background() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let daemon = r#"
[[flow]]
kind = "exec"
node = "c1"
command = ["sh", "-c", "(setsid sleep 1000 &)"]
"#;
    let running = room.start_lab("out", &format!("duration = \"1 s\"\n{TWO_PATHS}{BULK}{daemon}"));
    let lab = running.lab().to_string();
    let ended = running.wait_and(|| assert_eq!(traces_of(&lab), [""; 0]));
    ended.is_fine();
    // A machine that does not keep up is told so between headline and place.
    let lines: Vec<_> = ended.stdout.lines().filter(|line| !line.starts_with("doubt: ")).collect();
    let drawn = |line: &&str| line.starts_with(['┌', '│', '╞', '└', '├']);
    let [table @ .., headline, place] = lines.as_slice() else { panic!("{}", ended.stdout) };
    assert!(table.len() == 5 && table.iter().all(drawn), "{}", ended.stdout);
    assert!(headline.starts_with("pathchanger carried "), "{headline}");
    assert_eq!(*place, "Results, plot and page: out/index.html");
}
