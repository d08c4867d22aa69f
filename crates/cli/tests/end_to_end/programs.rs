//! Programs that know nothing of paths.

use std::{fs, path::Path};

use crate::common::{Room, number, root_or_skip};

/// The scenario that users are given, made shorter.
fn shortened() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/unmodified.toml");
    let mut text = fs::read_to_string(file).unwrap();
    for (long, short) in [
        ("duration = \"20 s\"", "duration = \"7 s\""),
        ("truncate -s 40M", "truncate -s 4M"),
        ("\"--time\", \"10\"", "\"--time\", \"4\""),
        ("rate = \"50 Mbit/s\"", "rate = \"10 Mbit/s\""),
        ("ecn = \"40 packets\"", "ecn = \"15 packets\""),
        ("queue = \"100 packets\"", "queue = \"1000 packets\""),
    ] {
        assert!(text.contains(long), "the scenario has no {long} any more");
        text = text.replace(long, short);
    }
    text
}

fn all_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = ["iperf3", "nginx", "curl"]
        .into_iter()
        .find(|program| !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()));
    let Some(program) = missing else { return true };
    let required = std::env::var_os("SIDESTEP_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "{program} is not installed, and SIDESTEP_REQUIRE_ROOT=1 allows no skipping");
    println!("skipped: needs {program}");
    false
}

#[test]
fn connections_of_iperf3_nginx_and_curl_move_and_the_programs_never_know() {
    if !root_or_skip("a lab run") || !all_installed() {
        return;
    }
    let room = Room::new();
    let file = room.write("unmodified.toml", &shortened());
    room.run(&["lab", "run", &file, "--system", "pathchanger", "--out", "out"]).is_fine();
    let log = |name: &str| fs::read_to_string(room.path("out/logs/pathchanger").join(name)).unwrap();
    assert!(log("download.out").starts_with("4194304 bytes at "), "{}", log("download.out"));
    assert!(log("iperf3-client.out").contains("iperf Done."), "{}", log("iperf3-client.out"));
    let flows = room.rows("out", "flows.csv");
    let moves_of = |sender: &str, end: &str| {
        let of = flows.iter().filter(|row| row["from"] == sender && row["connection"].contains(end));
        of.map(|row| number(row, "moves")).sum::<f64>()
    };
    assert!(moves_of("c2", "-s2:5201") > 0.0, "iperf3's stayed: {flows:#?}");
    assert!(moves_of("s1", "s1:80-c1") > 0.0, "nginx's stayed: {flows:#?}");
}
