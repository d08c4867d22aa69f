//! Nothing of a lab remains, however it ends, and labs leave each other alone.

use std::{thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::common::{BULK, Ended, Room, Running, TWO_PATHS, processes_in, root_or_skip, traces_of};

/// Starts a lab with all its daemons and a program that puts a daemon of its own where no process waits for it; returns
/// in mid-run.
fn lab_in_mid_run(room: &Room, name: &str) -> Running {
    let daemon = r#"
[[flow]]
kind = "exec"
node = "s1"
command = ["sh", "-c", "(setsid sh -c 'sleep 1000 & sleep 1000' &)"]
"#;
    let mut running = room.start_lab(name, &format!("duration = \"30 s\"\n{TWO_PATHS}{BULK}{daemon}"));
    room.wait_for_traffic(name, &mut running);
    let lab = running.lab().to_string();
    running.wait_until("daemonised program", || {
        processes_in(&lab).iter().filter(|(_, command)| command.starts_with("sleep 1000")).count() == 2
    });
    // That the search for traces finds them while they are there.
    assert!(traces_of(&lab).iter().any(|trace| trace.contains("/run/sidestep/")));
    assert!(processes_in(&lab).iter().any(|(_, command)| command.contains(" agent ")));
    running
}

/// Waits for the end, which must leave nothing.
fn end(running: Running) -> Ended {
    let lab = running.lab().to_string();
    // Dropping `running` would clean up; look before.
    running.wait_and(|| assert_eq!(traces_of(&lab), [""; 0]))
}

#[test]
fn an_interrupted_run_cleans_up_and_reports_it() {
    if !root_or_skip("a lab run") {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let room = Room::new();
        let running = lab_in_mid_run(&room, "out");
        running.signal(signal);
        let ended = end(running);
        assert_eq!(ended.error(1), "interrupted; everything was cleaned up");
        assert!(!room.path("out/result.json").exists(), "a result of half a run");
    }
}

#[test]
fn a_run_whose_program_fails_cleans_up_and_reports_which() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let fails = r#"
[[flow]]
kind = "exec"
name = "failing"
node = "c1"
start = "500 ms"
command = ["sh", "-c", "echo broken >&2; exit 1"]
"#;
    let ended = end(room.start_lab("out", &format!("duration = \"20 s\"\n{TWO_PATHS}{BULK}{fails}")));
    assert_eq!(ended.error(1), "failing failed; its last words: broken");
}

#[test]
fn a_run_whose_controller_is_killed_cleans_up_and_reports_it() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let running = lab_in_mid_run(&room, "out");
    let controller = processes_in(running.lab()).into_iter().find(|(_, command)| command.contains(" controller "));
    kill(Pid::from_raw(controller.unwrap().0), Signal::SIGKILL).unwrap();
    let ended = end(running);
    let error = ended.error(1);
    assert!(error.starts_with("controller ended during the run"), "{error}");
}

#[test]
fn what_a_killed_lab_left_is_removed_by_lab_clean_which_leaves_running_labs_alone() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let mut other = room.start_lab("other", &format!("duration = \"60 s\"\n{TWO_PATHS}{BULK}"));
    room.wait_for_traffic("other", &mut other);
    let killed = lab_in_mid_run(&room, "killed");
    let lab = killed.lab().to_string();
    killed.signal(Signal::SIGKILL);
    // By now the killed lab has begun to end. It still removes its interfaces, and its processes live on.
    thread::sleep(Duration::from_millis(100));

    let cleaned = room.run(&["lab", "clean", "--json"]);
    assert_eq!(traces_of(&lab), [""; 0]);
    cleaned.is_fine();
    let cleaned: Value = serde_json::from_str(&cleaned.stdout).unwrap();
    assert!(cleaned["running"].as_array().unwrap().contains(&other.lab().into()), "{cleaned:#}");
    assert!(!cleaned["removed"].as_array().unwrap().contains(&other.lab().into()), "{cleaned:#}");
    // If the other lab had lost anything, its error would show that.
    thread::sleep(Duration::from_millis(300));
    other.signal(Signal::SIGINT);
    assert_eq!(end(other).error(1), "interrupted; everything was cleaned up");
}

#[test]
fn two_labs_at_once_do_not_disturb_each_other() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let scenario = format!("duration = \"3 s\"\n{TWO_PATHS}{BULK}");
    let labs = ["one", "two"].map(|name| (name, room.start_lab(name, &scenario)));
    for (name, running) in labs {
        end(running).is_fine();
        let result = room.result_of(name, "pathchanger");
        let goodput = result["goodput_mbps"].as_f64().unwrap();
        // More than one of the two paths carries, and not more than both.
        assert!((9.0..19.0).contains(&goodput), "{result:#}");
        let flows = room.rows(name, "flows.csv");
        assert_eq!(flows.len(), 4, "each lab sees its own connections only: {flows:#?}");
    }
}
