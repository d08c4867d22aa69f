//! Standard output and error that no process reads, that are full, or that are no terminal.

use std::{
    fs::File,
    process::{Command, Output, Stdio},
};

use crate::common::{PROGRAM, Room};

/// Two hosts, and a link of this MTU between their routers.
fn topology(mtu: u32) -> String {
    format!(
        r#"
[topology]
node = [{{ name = "c", kind = "host", prefix = "2001:db8:1::/64" }}, {{ name = "s", kind = "host", prefix = "2001:db8:2::/64" }},
        {{ name = "A" }}, {{ name = "B" }}]
link = [{{ ends = ["c", "A"], rate = "1 Gbit/s", delay = "0 ms" }}, {{ ends = ["B", "s"], rate = "1 Gbit/s", delay = "0 ms" }},
        {{ ends = ["A", "B"], rate = "1 Gbit/s", delay = "0 ms", mtu = {mtu} }}]
"#
    )
}

/// The writing end of a pipe that no process will ever read.
fn unread() -> Stdio {
    let (reading, writing) = nix::unistd::pipe().unwrap();
    drop(reading);
    writing.into()
}

fn run(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("SIDESTEP_LOG").stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// Commands that print something and need no privilege.
fn commands(room: &Room) -> Vec<Vec<String>> {
    let topology = room.write("net.toml", &topology(1700));
    let config = room.write("agent.toml", include_str!("../../../../packaging/agent.toml"));
    let commands = [
        format!("controller --topology {topology} --show"),
        format!("controller --topology {topology} --show --json"),
        format!("agent --check --controller unix:/none --config {config}"),
        "completions bash".into(),
        "repro list".into(),
        "repro list --json".into(),
        "--help".into(),
    ];
    commands.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

#[test]
fn no_command_fails_when_no_process_reads_what_it_prints() {
    let room = Room::new();
    for arguments in commands(&room) {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let read = run(&arguments, Stdio::piped(), Stdio::piped());
        assert!(read.status.success() && !read.stdout.is_empty(), "{arguments:?}: {read:?}");
        let ended = run(&arguments, unread(), Stdio::piped());
        assert_eq!((ended.status.code(), ended.stderr.len()), (Some(0), 0), "{arguments:?}: {ended:?}");
    }
    let ended = run(&["agent", "--check", "--config", "/none"], Stdio::null(), unread());
    assert_eq!(ended.status.code(), Some(2), "an error is one even if no process reads it");
}

#[test]
fn what_cannot_be_written_for_another_reason_is_an_error() {
    let room = Room::new();
    let mut commands = commands(&room);
    // That one is clap's own.
    commands.retain(|arguments| arguments != &["--help"]);
    for arguments in commands {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = run(&arguments, full.into(), Stdio::piped());
        let message = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {message}");
        assert!(message.starts_with("error: standard output: No space left"), "{arguments:?}: {message}");
    }
}

#[test]
fn top_draws_on_terminals_only_and_prints_what_to_do_elsewhere() {
    let ended = Room::new().run(&["top"]);
    assert!(ended.error(2).contains("`sidestep top --json`"), "{ended:?}");
    for wrong in [&["top", "--interval", "1 ms"][..], &["top", "--interval", "soon"], &["top", "--reason", "none"]] {
        Room::new().run(wrong).complaint(2);
    }
    let ended = Room::new().run(&["top", "--json", "--state", "/nowhere"]);
    assert!(ended.error(1).contains("/nowhere"), "{ended:?}");
}

#[test]
fn logs_are_lines_for_people_or_json() {
    let room = Room::new();
    let narrow = room.write("narrow.toml", &topology(1280));
    let arguments = ["controller", "--topology", &narrow, "--show"];
    let text = room.run(&arguments);
    assert!(text.stderr.contains(" WARN "), "{text:?}");
    let json = room.run(&[&arguments[..], &["--log-format", "json"]].concat());
    assert!(!json.stderr.is_empty());
    for line in json.stderr.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(entry["level"], "WARN", "{line}");
        assert!(entry["message"].is_string() && entry["timestamp"].is_string(), "{line}");
    }
    room.run(&[&arguments[..], &["--log-format", "xml"]].concat()).complaint(2);
}

#[test]
fn an_address_for_metrics_has_a_port() {
    let room = Room::new();
    let ended = room.run(&["agent", "--metrics", "9435"]);
    ended.complaint(2);
    assert!(ended.stderr.contains("127.0.0.1:9435"), "{ended:?}");
    let wrong = room.write("wrong.toml", "[metrics]\nlisten = \"localhost\"\n");
    let ended = room.run(&["agent", "--check", "--config", &wrong]);
    assert!(ended.complaint(2).contains(":2:10: `localhost` is not an address"), "{ended:?}");
}
