//! `bench policies`: the tournament's list, its files, and a small one of two scenarios.

use std::fs;

use serde_json::Value;

use crate::common::Room;

#[test]
fn a_small_tournament_leaves_a_page_and_numbers_that_agree() {
    let room = Room::new();
    let play = ["bench", "policies", "--scenarios", "lossy-*", "--seeds", "2", "--policies", "pathchanger"];
    let ended = room.run(&[&play[..], &["--out", "out", "--json"]].concat());
    ended.is_fine();
    let json: Value = serde_json::from_str(&fs::read_to_string(room.path("out/policies.json")).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), json);
    assert_eq!((&json["schema"], &json["seeds"], &json["regret_seeds"]), (&1.into(), &2.into(), &Value::Null));
    let cases = json["cases"].as_array().unwrap();
    let named: Vec<_> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert!(named.contains(&"lossy-short") && named.contains(&"lossy-long"), "{named:?}");
    assert!(named.iter().all(|name| name.starts_with("lossy-")), "{named:?}");
    for case in cases {
        let policies = case["policies"].as_array().unwrap();
        let named: Vec<_> = policies.iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
        assert_eq!(named, ["pathchanger", "random", "tcp", "ecmp"]);
        for policy in policies {
            assert_eq!(policy["measures"]["goodput_mbps"]["each"].as_array().unwrap().len(), 2);
            assert!(policy["against"].as_array().unwrap().iter().all(|one| one["verdict"].is_string()), "{policy:#}");
        }
    }
    let page = fs::read_to_string(room.path("out/index.html")).unwrap();
    assert!(page.contains("lossy-long") && page.contains("sidestep bench policies ") && !page.contains("--out"));
    room.run(&[&play[..], &["--out", "again"]].concat()).is_fine();
    let again = fs::read_to_string(room.path("again/policies.json")).unwrap();
    let of = |json: &Value| json["cases"].clone();
    assert_eq!(of(&serde_json::from_str(&again).unwrap()), of(&json));
}

#[test]
fn scenarios_are_listed_by_set_and_written_as_files_that_run() {
    let room = Room::new();
    let list = |set: &str| -> Vec<Value> {
        let ended = room.run(&["bench", "policies", "--list", "--json", "--set", set]);
        ended.is_fine();
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let (tuning, judging, all) = (list("tuning"), list("judging"), list("all"));
    assert_eq!(tuning.len() + judging.len(), all.len());
    assert!(judging.iter().all(|case| case["set"] == "judging" && case["purpose"].is_string()));
    room.run(&["bench", "policies", "--write", "files"]).is_fine();
    assert_eq!(fs::read_dir(room.path("files")).unwrap().count(), all.len());
    room.run(&["sim", "run", "files/incast-32.toml", "--out", "run"]).is_fine();
    let wrong = room.run(&["bench", "policies", "--scenarios", "nowhere"]);
    assert!(wrong.error(2).contains("--list"), "{}", wrong.error(2));
}

#[test]
fn scenarios_are_drawn_by_a_seed_for_the_simulator_alone() {
    let room = Room::new();
    let list = |seed: &str, count: &str| -> Vec<Value> {
        let ended = room.run(&["bench", "policies", "--list", "--json", "--drawn", seed, "--count", count]);
        ended.is_fine();
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let (four, eight) = (list("7", "4"), list("7", "8"));
    assert_eq!((four.len(), eight.len()), (4, 8));
    assert_eq!(four, eight[..4]);
    assert_ne!(four[0]["purpose"], list("8", "1")[0]["purpose"]);
    let refused = room.run(&["bench", "policies", "--drawn", "7", "--world", "lab"]);
    assert!(refused.error(2).contains("--world lab"), "{}", refused.error(2));
    let refused = room.run(&["bench", "policies", "--count", "4"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--drawn"), "{refused:?}");
}

#[test]
fn the_lab_has_a_list_of_its_own_and_reports_that_it_needs_root() {
    let room = Room::new();
    let listed = room.run(&["bench", "policies", "--world", "lab", "--list", "--json"]);
    listed.is_fine();
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert!(listed.iter().all(|case| case["name"].as_str().unwrap().starts_with("lab-")) && listed.len() >= 8);
    if !nix::unistd::geteuid().is_root() {
        let refused = room.run(&["bench", "policies", "--world", "lab"]);
        assert!(refused.error(3).contains("root"), "{}", refused.error(3));
    }
}
