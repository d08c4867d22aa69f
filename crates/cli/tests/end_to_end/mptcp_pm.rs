//! `sidestep mptcp-pm`: what it reports about its file, about itself, and about a machine that is not for it.

use std::{fs, process::Command};

use nix::sys::signal::Signal;
use serde_json::Value;
use sidestep_linux::{mptcp::ManagerSetting, netns::NetNs};

use crate::common::{Ended, PROGRAM, Room, Running, root_or_skip};

#[test]
fn the_path_managers_file_is_checked_with_line_and_caret() {
    let room = Room::new();
    let good = room.write("good.toml", include_str!("../../../../packaging/mptcp-pm.toml"));
    assert_eq!(
        room.run(&["mptcp-pm", "--check", "--config", &good]).stdout,
        "in order: 32 subflows (ndiffports), 0 rules, congestion off\n"
    );
    let json = room.run(&["mptcp-pm", "--check", "--json", "--subflows", "8", "--config", &good]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["schema"], &json["subflows"], &json["mode"]), (&1.into(), &8.into(), &"ndiffports".into()));
    let coupled = room.run(&["mptcp-pm", "--check", "--json", "--congestion", "olia", "--config", &good]);
    assert_eq!(serde_json::from_str::<Value>(&coupled.stdout).unwrap()["congestion"], "olia");
    let bad = room.write("bad.toml", "[subflows]\ncount = 0\n");
    let ended = room.run(&["mptcp-pm", "--check", "--config", &bad]);
    assert!(ended.complaint(2).contains("bad.toml:2:9: it must be from 1 to 128"), "{ended:?}");
    assert!(ended.stderr.contains('^'), "{ended:?}");
    room.run(&["mptcp-pm", "--mode", "backup"]).complaint(2);
    room.run(&["mptcp-pm", "--congestion", "vegas"]).complaint(2);
    room.run(&["mptcp-pm", "--subflows", "200"]).complaint(2);
}

/// The program in a namespace.
fn start(room: &Room, namespace: &NetNs, arguments: &[&str]) -> Running {
    let inside = || {
        let mut command = Command::new(PROGRAM);
        command.arg("mptcp-pm").args(arguments);
        Ok(room.start_command(command))
    };
    namespace.run(inside).unwrap()
}

fn run(room: &Room, namespace: &NetNs, arguments: &[&str]) -> Ended {
    start(room, namespace, arguments).wait()
}

#[test]
fn a_path_manager_is_asked_and_ended_from_outside_and_puts_the_sysctl_back() {
    if !root_or_skip("the path manager") {
        return;
    }
    let (room, namespace) = (Room::new(), NetNs::create().unwrap());
    let state = room.path("state").display().to_string();
    let setting = || namespace.run(ManagerSetting::current).unwrap();
    let before = setting();
    assert!(run(&room, &namespace, &["status"]).error(1).contains("no path manager works"));
    let config = room.write("pm.toml", "[subflows]\ncount = 4\n");
    let mut running = start(&room, &namespace, &["--config", &config, "--state", &state]);
    running.wait_until_ready();
    assert!(setting().is_for_programs());
    let status = run(&room, &namespace, &["status", "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!((&status["schema"], &status["subflows"]), (&1.into(), &0.into()));
    let text = run(&room, &namespace, &["status"]);
    assert!(text.stdout.starts_with("0 connections with 0 subflows; net.mptcp."), "{text:?}");
    assert!(run(&room, &namespace, &["--state", &state]).error(1).contains("another mptcp-pm daemon works"));
    // A mistake in the file leaves it at work.
    fs::write(room.path("pm.toml"), "wrong").unwrap();
    running.signal(Signal::SIGHUP);
    running.kill();
    assert!(setting().is_for_programs());
    let stopped = run(&room, &namespace, &["stop", "--state", &state]);
    assert!(stopped.stdout.contains("the sysctl is what it was"), "{stopped:?}");
    assert_eq!(setting(), before);

    let mut running = start(&room, &namespace, &["--state", &state]);
    running.wait_until_ready();
    let stopped = run(&room, &namespace, &["stop", "--state", &state, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&stopped.stdout).unwrap()["stopped"], true);
    running.wait().is_fine();
    assert_eq!(setting(), before);
    let again = run(&room, &namespace, &["stop", "--state", &state]);
    assert!(again.stdout.contains("there is nothing"), "{again:?}");
}
