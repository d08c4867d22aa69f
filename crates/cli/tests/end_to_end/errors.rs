//! An error is one clear line, with an exit code that scripts can rely on.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use sidestep_linux::netns::NetNs;

use crate::common::{BULK, Ended, PROGRAM, Room, TWO_PATHS, root_or_skip};

/// Runs the program in a network namespace of its own, where it can do no harm.
fn run_apart(room: &Room, arguments: &[&str]) -> Ended {
    let started = NetNs::create().and_then(|namespace| namespace.run(|| Ok(room.start(arguments))));
    started.unwrap().wait()
}

#[test]
fn a_mistake_in_a_scenario_is_shown_where_it_stands() {
    let room = Room::new();
    let file = room.write("wrong.toml", "duration = \"3 s\"\nwarmup = \"soon\"\n");
    let ended = room.run(&["lab", "run", &file]);
    let error = ended.complaint(2);
    assert!(error.starts_with(&format!("{file}:2:10: `soon` is not a time")), "{error}");
    assert!(ended.stderr.contains("2 | warmup = \"soon\""), "{}", ended.stderr);
    let none = room.run(&["lab", "run", "none.toml"]);
    assert!(none.error(2).starts_with("none.toml: "), "{none:?}");
}

#[test]
fn what_the_simulator_cannot_run_is_shown_where_it_stands() {
    let room = Room::new();
    let refused = |name: &str, text: &str, line: &str, message: &str| {
        let file = room.write(name, text);
        let ended = room.run(&["sim", "run", &file]);
        let error = ended.complaint(2);
        assert!(error.starts_with(&format!("{file}:{line}")) && error.contains(message), "{error}");
        assert!(!room.path("out").exists(), "refused before anything is written");
    };
    let apart = r#"duration = "3 s"
[topology]
node = [{ name = "a", kind = "host" }, { name = "b", kind = "host" }, { name = "A" }, { name = "B" }]
link = [
  { ends = ["a", "A"], rate = "1 Mbit/s", delay = "1 ms" },
  { ends = ["b", "B"], rate = "1 Mbit/s", delay = "1 ms" },
]
[[flow]]
kind = "bulk"
from = "a"
to = "b"
"#;
    refused("apart.toml", apart, "8:1: ", "there is no route from `a` to `b`");
    let text = format!("duration = \"3 s\"\n{TWO_PATHS}{BULK}");
    refused("mss.toml", &format!("{text}[tcp]\nmss = 1460\n"), "24:7: ", "segments of 1460 bytes");
    refused("bbr.toml", &format!("{text}[tcp]\ncongestion_control = \"bbr\"\n"), "24:22: ", "no congestion control");
    let program = "[[flow]]\nkind = \"exec\"\nnode = \"c1\"\ncommand = [\"true\"]\n";
    refused("program.toml", &format!("{text}{program}"), "23:1: ", "runs a program");
}

#[test]
fn a_system_that_does_not_exist_is_wrong_usage_and_so_is_one_that_the_lab_lacks() {
    let room = Room::new();
    let file = room.write("fine.toml", &format!("duration = \"3 s\"\n{TWO_PATHS}{BULK}"));
    let unknown = room.run(&["lab", "run", &file, "--system", "nonesuch"]);
    let error = unknown.complaint(2);
    assert!(error.contains("nonesuch") && error.contains("pathchanger"), "{error}");
    if root_or_skip("a system of the simulator only") {
        let lacking = room.run(&["lab", "run", &file, "--system", "rcp"]);
        let error = lacking.error(2);
        assert!(["rcp", "tcp", "ecmp", "random", "pathchanger"].iter().all(|name| error.contains(name)), "{error}");
    }
}

#[test]
fn a_program_or_a_congestion_control_that_is_missing_is_named() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let program = "[[flow]]\nkind = \"exec\"\nnode = \"c1\"\ncommand = [\"no-such-program\"]\n";
    let ended = room.run_lab("program", &format!("duration = \"3 s\"\n{TWO_PATHS}{program}"));
    assert!(ended.error(3).contains("`no-such-program`"), "{ended:?}");
    let control = "[tcp]\ncongestion_control = \"nonesuch\"\n";
    let ended = room.run_lab("control", &format!("duration = \"3 s\"\n{TWO_PATHS}{BULK}{control}"));
    assert!(ended.error(3).contains("`nonesuch`; it has: "), "{ended:?}");
}

#[test]
fn a_program_that_does_not_end_in_time_leaves_the_results_marked_incomplete() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    // In the first system only: programs start in its directory of logs.
    let command = "[\"sh\", \"-c\", \"! mkdir ../first 2>/dev/null || sleep 100\"]";
    let program = format!("[[flow]]\nkind = \"exec\"\nname = \"hangs\"\nnode = \"c1\"\ncommand = {command}\n");
    let scenario = format!("duration = \"1 s\"\n{}{BULK}{program}", TWO_PATHS.replace("[\"pathc", "[\"tcp\", \"pathc"));
    let ended = room.run_lab("late", &scenario);
    let error = ended.error(1);
    assert!(error.contains("tcp: flow `hangs` still ran 5 s after the end"), "{error}");
    let [tcp, other] = ["tcp", "pathchanger"].map(|system| room.result_of("late", system));
    assert!([&tcp, &other].iter().all(|one| one["goodput_mbps"].as_f64().unwrap() > 1.0), "{tcp} {other}");
    assert!(tcp["incomplete"][0].as_str().unwrap().contains("`hangs`"), "{tcp}");
    assert!(other["incomplete"].is_null(), "{other}");
    assert!(ended.stdout.contains("incomplete: tcp: flow `hangs`"), "{ended:?}");
    let page = fs::read_to_string(room.path("late/index.html")).unwrap();
    assert!(page.contains("Incomplete: ") && page.contains("tcp: flow `hangs`"), "{page}");
}

/// Without root already, the program runs as it is.
#[test]
fn without_privilege_a_lab_and_an_agent_report_that_they_need_it() {
    let room = Room::new();
    let file = room.write("fine.toml", &format!("duration = \"3 s\"\n{TWO_PATHS}{BULK}"));
    let config = room.write("agent.toml", ONE_PATH);
    let copy = room.path("sidestep");
    fs::copy(PROGRAM, &copy).unwrap();
    fs::set_permissions(room.path("."), Permissions::from_mode(0o755)).unwrap();
    for arguments in [vec!["lab", "run", &file], vec!["compare", &file], vec!["agent", "--config", &config]] {
        let mut command = Command::new(&copy);
        command.args(&arguments);
        if nix::unistd::geteuid().is_root() {
            // Also leaves all supplementary groups.
            command.uid(65_534).gid(65_534);
        }
        let ended = room.start_command(command).wait();
        assert!(ended.error(3).contains("root"), "{ended:?}");
    }
}

/// A path that leads nowhere, so that an agent needs no controller.
const ONE_PATH: &str = r#"
[[destination]]
prefix = "2001:db8::/64"
path = [{ segments = ["fd01:0:1:e::"], rate = "1 Mbit/s", rtt = "1 ms" }]
"#;

#[test]
fn a_controller_without_a_network_is_wrong_usage() {
    let room = Room::new();
    let none = room.run(&["controller", "--topology", "none.toml"]);
    assert!(none.error(2).starts_with("none.toml: "), "{none:?}");
    let file = room.write("wrong.toml", "[topology]\ngenerator = \"ring\"\n");
    let wrong = room.run(&["controller", "--topology", &file]);
    assert!(wrong.complaint(2).starts_with(&format!("{file}:2:13: ")), "{wrong:?}");
}

#[test]
fn agents_that_cannot_work_report_why() {
    if !root_or_skip("agents") {
        return;
    }
    let room = Room::new();
    let idle = run_apart(&room, &["agent"]);
    assert!(idle.error(2).starts_with("there is nothing to do: "), "{idle:?}");

    let nowhere = run_apart(&room, &["agent", "--controller", "somewhere"]);
    assert!(nowhere.error(2).starts_with("`somewhere` is not an endpoint: "), "{nowhere:?}");

    let config = room.write("agent.toml", ONE_PATH);
    let outside = run_apart(&room, &["agent", "--config", &config, "--cgroup", "/nonexistent"]);
    assert!(outside.complaint(2).starts_with("using /nonexistent: it is no control group"), "{outside:?}");
}

#[test]
fn routers_that_cannot_work_report_why() {
    if !root_or_skip("a router") {
        return;
    }
    let room = Room::new();
    let nowhere = ["router", "--controller", "somewhere", "--node", "A", "--link", "A-B=lo"];
    let nowhere = run_apart(&room, &nowhere);
    assert!(nowhere.error(2).starts_with("`somewhere` is not an endpoint: "), "{nowhere:?}");
}
