//! What `sim run` leaves: the same files, byte for byte, wherever and however often it is run.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{BULK, Room, Row, TWO_PATHS, number};

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
fn headline_doubts_and_the_ceiling_are_in_the_terminal_on_the_page_and_in_the_file() {
    let room = Room::new();
    let one =
        "[topology]\ngenerator = \"parallel-paths\"\npaths = 1\nrate = \"5 Mbit/s\"\naccess_rate = \"1 Gbit/s\"\n";
    let file = room.write("one.toml", &format!("duration = \"2 s\"\n{one}{BULK}"));
    // Of which the two seeds draw enough for them to differ.
    let jitter = "tcp.send_jitter=\"2 ms\"";
    let run = [
        "sim",
        "run",
        &file,
        "--system",
        "tcp",
        "--system",
        "pathchanger",
        "--seeds",
        "2",
        "--set",
        jitter,
        "--out",
        "one",
    ];
    let table = room.run(&run);
    table.is_fine();
    let of = files(&room.path("one"));
    let result: serde_json::Value = serde_json::from_slice(&of["result.json"]).unwrap();
    let page = String::from_utf8_lossy(&of["index.html"]).into_owned();
    assert_eq!((&result["ceiling_mbps"], &result["seeds"]), (&5.0.into(), &2.into()), "{result:#}");
    let headline = result["headline"]["text"].as_str().unwrap();
    let doubt = &result["validity"][0];
    assert_eq!((&doubt["kind"], &doubt["system"]), (&"could-not-act".into(), &"pathchanger".into()), "{result:#}");
    let text = doubt["text"].as_str().unwrap();
    assert!(text.starts_with("from `c1` to `s1` there is one path only"), "{text}");
    for shown in [table.stdout.as_str(), page.as_str()] {
        assert!(shown.contains(headline) && shown.contains(&format!("pathchanger: {text}")), "{shown}");
        assert!(shown.contains("less tcp, seed by seed"), "{shown}");
    }
    assert_eq!(result["differences"][0]["baseline"], "tcp", "{result:#}");
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
    assert_eq!(list.error(2), "--set: `flow.connections`: `flow` is a list of 1; say flow[0] for its one entry");
    let soon = run("duration=soon");
    soon.complaint(2);
    assert!(soon.stderr.contains("duration = \"soon\""), "{soon:#?}");
}

#[test]
fn entries_of_lists_in_one_line_are_set_by_set_and_swept_by_over() {
    let room = Room::new();
    let flows = "flow = [{ kind = \"bulk\", from = \"c1\", to = \"s1\", size = \"1 MB\" }]\n";
    let file = room.write("inline.toml", &format!("duration = \"2 s\"\n{flows}{TWO_PATHS}"));
    let resolved = |out: &str| std::fs::read_to_string(room.path(out).join("scenario.resolved.toml")).unwrap();
    for (key, out) in [("flow[0].size", "brackets"), ("flow.0.size", "dots")] {
        room.run(&["sim", "run", &file, "--set", &format!("{key}=20 kB"), "--set", "systems[0]=plb", "--out", out])
            .is_fine();
        let resolved = resolved(out);
        assert!(resolved.contains("size = \"20 kB\"") && resolved.contains("\"plb\""), "{resolved}");
    }
    let over = ["--over", "flow[0].size=10 kB,20 kB", "--system", "tcp", "--out", "swept"];
    let sweep = room.run(&[&["sim", "sweep", &file][..], &over].concat());
    sweep.is_fine();
    assert!(sweep.stdout.contains("flow[0].size") && room.path("swept/point-0002").is_dir(), "{}", sweep.stdout);
    let beyond = room.run(&["sim", "run", &file, "--set", "flow[1].size=20 kB"]);
    let says = "--set: `flow[1].size`: there is no `flow[1]`; say flow[0] for its one entry";
    assert_eq!(beyond.error(2), says);
    let bad = room.run(&["sim", "sweep", &file, "--over", "flow[1].size=20 kB,30 kB"]);
    assert!(bad.complaint(2).contains(says), "{bad:#?}");
}

#[test]
fn a_scenario_in_which_no_traffic_begins_is_refused_with_what_to_add() {
    let room = Room::new();
    let none = room.write("none.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}"));
    let rare = "[[flow]]\nkind = \"poisson\"\nfrom = \"c1\"\nto = \"s1\"\nsize = \"1 kB\"\nrate = 0.001\n";
    let rare = room.write("rare.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{rare}"));
    let late = room.write("late.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{BULK}start = \"3 s\"\n"));
    let commands: [&[&str]; 5] = [
        &["sim", "run"],
        &["sim", "run", "--seeds", "2"],
        &["lab", "run"],
        &["compare"],
        &["sim", "sweep", "--over", "seed=1,2"],
    ];
    for command in commands {
        let refused = |file: &str| {
            let done = room.run(&[command, &[file, "--out", "refused"]].concat());
            assert!(!room.path("refused").exists(), "{command:?} runs nothing");
            done.complaint(2).to_owned()
        };
        let says = refused(&none);
        assert!(says.contains("no traffic") && says.contains("from = \"c1\" and to = \"s1\""), "{says}");
        let says = refused(&rare);
        assert!(says.contains("no transfer begins") && says.contains("raise the rate"), "{says}");
        assert!(refused(&late).contains("3 s is not before the end of the run"), "{command:?}");
    }
}

#[test]
fn hosts_that_would_each_send_to_themselves_are_said_to_need_a_pairing() {
    let room = Room::new();
    let flow = |from: &str| format!("[[flow]]\nkind = \"bulk\"\nfrom = \"{from}\"\nto = \"{from}\"\n");
    let run = |from: &str| {
        let file = room.write("own.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{}", flow(from)));
        room.run(&["sim", "run", &file, "--out", "none"])
    };
    let many = run("*1");
    assert!(many.complaint(2).contains("set `pairing`, such as to \"permutation\" or \"all\""), "{many:#?}");
    let one = run("c1");
    assert!(one.complaint(2).ends_with("no pair of two different hosts is left"), "{one:#?}");
}

#[test]
fn a_sweep_runs_each_value_with_each_and_ends_in_one_table_one_picture_and_one_page() {
    let room = Room::new();
    let file = room.write("two.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{BULK}"));
    let over = ["--over", "flow.0.connections=1,3", "--over", "tcp.congestion_control=reno,cubic"];
    let sweep = room.run(&[&["sim", "sweep", &file, "--system", "tcp", "--out", "swept"][..], &over].concat());
    sweep.is_fine();
    assert!(sweep.stdout.contains("flow.0.connections") && sweep.stdout.contains("goodput Mbit/s"), "{}", sweep.stdout);
    let of = files(&room.path("swept"));
    let swept: serde_json::Value = serde_json::from_slice(&of["sweep.json"]).unwrap();
    let values: Vec<&serde_json::Value> =
        swept["points"].as_array().unwrap().iter().map(|point| &point["values"]).collect();
    assert_eq!(
        serde_json::json!(values),
        serde_json::json!([["1", "reno"], ["1", "cubic"], ["3", "reno"], ["3", "cubic"]])
    );
    let page = String::from_utf8_lossy(&of["index.html"]).into_owned();
    assert!(page.contains("tcp, congestion_control = cubic") && page.contains("point-0004/index.html"), "{page}");
    // A point is the run that the value alone would be.
    let alone = ["sim", "run", &file, "--system", "tcp", "--out", "alone", "--set", "flow.0.connections=3"];
    room.run(&[&alone[..], &["--set", "tcp.congestion_control=cubic"]].concat()).is_fine();
    assert_eq!(of["point-0004/result.json"], files(&room.path("alone"))["result.json"]);
}

#[test]
fn a_sweep_that_cannot_be_run_reports_which_value_it_is() {
    let room = Room::new();
    let file = room.write("two.toml", &format!("duration = \"2 s\"\n{TWO_PATHS}{BULK}"));
    let run = |over: &str| room.run(&["sim", "sweep", &file, "--system", "tcp", "--over", over, "--out", "swept"]);
    let soon = run("duration=1 s,soon");
    assert!(soon.complaint(2).starts_with("soon: "), "{soon:#?}");
    let missing = run("duration");
    assert!(missing.stderr.contains("is not KEY=VALUE,VALUE,"), "{missing:#?}");
    assert!(!room.path("swept").exists(), "nothing runs before all values are read");
    let control = run("tcp.congestion_control=reno,vegas");
    assert!(control.complaint(2).contains("vegas: "), "{control:#?}");
}

#[test]
fn a_scenario_may_name_a_published_network_or_a_file_beside_it() {
    let room = Room::new();
    let rest = "[[flow]]\nkind = \"bulk\"\nfrom = \"h-*\"\nto = \"h-*\"\npairing = \"permutation\"\n";
    let head = "duration = \"200 ms\"\nsystems = [\"tcp\", \"ecmp\"]\n";
    let named = room.write("named.toml", &format!("{head}topology = \"zoo/Abilene\"\n{rest}"));
    room.run(&["sim", "run", &named, "--set", "topology.rate=20Mbit/s", "--out", "short"]).is_fine();
    let table =
        room.write("table.toml", &format!("{head}[topology]\nnetwork = \"zoo/Abilene\"\nrate = \"20 Mbit/s\"\n{rest}"));
    let run = room.run(&["sim", "run", &table, "--out", "published", "--json"]);
    run.is_fine();
    let run: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&run["world"], &run["reading"]["taken"][0]["kind"]), (&"sim".into(), &"names".into()));
    let resolved = fs::read_to_string(room.path("published").join("scenario.resolved.toml")).unwrap();
    let short = fs::read_to_string(room.path("short").join("scenario.resolved.toml")).unwrap();
    assert_eq!(
        short.replace("name = \"named\"", "name = \"table\""),
        resolved,
        "a name with a key is a table with both"
    );
    assert_eq!((resolved.matches("kind = \"router\"").count(), resolved.matches("kind = \"host\"").count()), (11, 11));
    // A file beside the scenario comes first.
    let little = "[topology]\nnode = [{ name = \"a\" }, { name = \"b\" }]\nlink = [{ ends = [\"a\", \"b\"], rate = \"5 Mbit/s\", delay = \"1 ms\" }]\n";
    room.write("little.toml", little);
    let beside = room.write("beside.toml", &format!("{head}topology = \"little.toml\"\n{rest}"));
    room.run(&["sim", "run", &beside, "--out", "beside"]).is_fine();
    let resolved = fs::read_to_string(room.path("beside").join("scenario.resolved.toml")).unwrap();
    assert!(resolved.contains("name = \"h-a\"") && resolved.contains("name = \"h-b\""), "{resolved}");
    let unknown = room.write("unknown.toml", &format!("{head}[topology]\nnetwork = \"Nowhere\"\n{rest}"));
    let unknown = room.run(&["sim", "run", &unknown, "--out", "no"]);
    assert!(unknown.complaint(2).contains("Nowhere") && unknown.stderr.contains("unknown.toml:4"), "{unknown:#?}");
}

/// A run with this warm-up, interrupted when it has run for a while; returns what it printed and what it left.
fn interrupted(room: &Room, warmup: &str) -> (String, serde_json::Value) {
    let file = room.write("long.toml", &format!("duration = \"70000 s\"\n{TWO_PATHS}{BULK}"));
    let systems = ["--system", "tcp", "--system", "random"];
    let run = ["sim", "run", &file, "--out", "cut", "--set", "sample=100 ms", "--set", &format!("warmup={warmup}")];
    let mut running = room.start(&[&run[..], &systems].concat());
    running.wait_until("a directory", || room.path("cut").join("series.csv").exists());
    std::thread::sleep(std::time::Duration::from_millis(600));
    running.signal(nix::sys::signal::Signal::SIGINT);
    let ended = running.wait();
    assert_eq!(ended.error(1), "interrupted; what there was is written");
    (ended.stdout, serde_json::from_slice(&fs::read(room.path("cut").join("result.json")).unwrap()).unwrap())
}

#[test]
fn an_interrupted_run_has_the_goodput_of_the_time_that_it_ran_in_all_its_files() {
    let room = Room::new();
    let (table, result) = interrupted(&room, "500 ms");
    let (flows, samples) = (room.rows("cut", "flows.csv"), room.rows("cut", "series.csv"));
    for (name, system) in result["systems"].as_object().unwrap() {
        let of = |rows: &[Row], column: &str| -> f64 {
            let own = rows
                .iter()
                .filter(|row| row["system"] == *name && row.get("kind").is_none_or(|kind| kind == "connection"));
            own.map(|row| number(row, column)).sum()
        };
        let (goodput, ran) = (system["goodput_mbps"].as_f64().unwrap(), system["duration_s"].as_f64().unwrap());
        let measured = of(&flows, "bytes_in_window") * 8e-6 / (ran - 0.5);
        assert!((goodput / measured - 1.0).abs() < 1e-9 && goodput > 8.0, "{name}: {goodput} {measured} in {ran} s");
        let (carried, sampled) = (of(&flows, "bytes") * 8e-6, of(&samples, "mbps") * 0.1);
        assert!((sampled / carried - 1.0).abs() < 1e-4, "{name}: {sampled} of {carried} Mbit");
        let says = system["incomplete"][0].as_str().unwrap();
        assert!(
            says.starts_with("interrupted after ") && table.contains(&format!("incomplete: {name}: {says}")),
            "{table}"
        );
        assert_eq!(system["planned_s"], 7e4);
    }
    assert!(!table.contains(" 1.00 "), "no multiple of plain TCP: {table}");
}

#[test]
fn a_run_that_is_interrupted_in_its_warm_up_has_no_goodput() {
    let room = Room::new();
    let (table, result) = interrupted(&room, "60000 s");
    assert!(table.contains("incomplete"), "{table}");
    assert!(result["systems"]["tcp"]["goodput_mbps"].is_null(), "{result:#}");
    let page = fs::read_to_string(room.path("cut").join("index.html")).unwrap();
    assert!(page.contains("within the warm-up, so that nothing was measured") && !page.contains("NaN"), "{page}");
}
