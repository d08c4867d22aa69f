//! What `sim run` leaves: the same files, byte for byte, wherever and however often it is run.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{BULK, Room, TWO_PATHS};

/// The contents of all files below a directory, by their path in it.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    all
}

#[test]
fn two_runs_of_a_seed_leave_the_same_directory_byte_for_byte() {
    let room = Room::new();
    let file = room.write("two.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{BULK}"));
    let run = |out: &[&str]| {
        let options = ["sim", "run", &file, "--system", "tcp", "--system", "pathchanger", "--seeds", "2"];
        room.run(&[&options, out].concat()).is_fine();
    };
    run(&["--out", "first"]);
    run(&["--out=elsewhere/second"]);
    let (first, second) = (files(&room.path("first")), files(&room.path("elsewhere/second")));
    let names: Vec<&String> = first.keys().collect();
    assert_eq!(names, second.keys().collect::<Vec<_>>());
    for expected in ["flows.csv", "index.html", "plot.svg", "result.json", "scenario.resolved.toml", "series.csv"] {
        assert!(first.contains_key(expected), "no {expected} in {names:?}");
    }
    let differ: Vec<&String> = names.into_iter().filter(|name| first[*name] != second[*name]).collect();
    assert!(differ.is_empty(), "{differ:?} differ");
    let page = String::from_utf8_lossy(&first["index.html"]).into_owned();
    assert!(page.contains("sidestep sim run ") && !page.contains("--out"), "{page}");
}

#[test]
fn a_value_set_for_one_run_is_in_its_results_and_a_mistake_is_shown_in_its_line() {
    let room = Room::new();
    let file = room.write("two.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{BULK}"));
    let run = |set: &str| room.run(&["sim", "run", &file, "--system", "tcp", "--set", set, "--out", "set"]);
    run("flow.0.connections=3").is_fine();
    let resolved = std::fs::read_to_string(room.path("set").join("scenario.resolved.toml")).unwrap();
    assert!(resolved.lines().any(|line| line.trim() == "connections = 3"), "{resolved}");
    let list = run("flow.connections=3");
    assert_eq!(list.error(2), "--set: `flow.connections`: `flow` is a list of 1; say flow.0 for the first");
    let soon = run("duration=soon");
    soon.complaint(2);
    assert!(soon.stderr.contains("duration = \"soon\""), "{soon:#?}");
}
