//! Programs that know nothing of paths.

use std::{fs, path::Path};

use sidestep_scenario::builder::replace_once;

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
        text = replace_once(&text, long, short);
    }
    text
}

fn all_installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absent = programs
        .iter()
        .find(|program| !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()));
    let Some(program) = absent else { return true };
    missing(program);
    false
}

/// Prints that a test is skipped for want of a program.
fn missing(program: &str) {
    let required = std::env::var_os("SIDESTEP_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "{program} is not installed, and SIDESTEP_REQUIRE_ROOT=1 allows no skipping");
    println!("skipped: needs {program}");
}

#[test]
fn connections_of_iperf3_nginx_and_curl_move_and_the_programs_never_know() {
    if !root_or_skip("a lab run") || !all_installed(&["iperf3", "nginx", "curl"]) {
        return;
    }
    let room = Room::new();
    let file = room.write("unmodified.toml", &shortened());
    // At each signal: by default a connection stays on a path that gives it as much as others would.
    let signals = ["--set", "pathchanger.gain_guard=false"];
    room.run(&[&["lab", "run", &file, "--system", "pathchanger", "--out", "out"], &signals[..]].concat()).is_fine();
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

/// rsync over ssh from s1 to c1, while bulk traffic fills the links.
fn ssh(directory: &str) -> String {
    format!(
        r#"
name = "ssh"
seed = 1
duration = "12 s"
warmup = "1 s"
systems = ["random"]           # moves at each signal; the default may stay on a path that serves it well

[topology]
generator = "parallel-paths"
paths = 3
hops = 2
clients = 2
servers = 2
rate = "10 Mbit/s"
delay = "2 ms"
queue = "1000 packets"
ecn = "15 packets"

[[flow]]
kind = "bulk"
name = "cross"
from = "s2"
to = "c2"
connections = 4

[[flow]]
kind = "exec"
name = "sshd"
node = "s1"
command = ["sh", "-c", '''
[ -d /run/sshd ] || {{ mkdir /run/sshd; made=1; }}
trap 'kill $server; wait $server; [ -z "$made" ] || rmdir /run/sshd' TERM INT
/usr/sbin/sshd -D -e -f {directory}/sshd_config & server=$!
wait $server
''']
wait = false

[[flow]]
kind = "exec"
name = "rsync"
node = "c1"
start = "1 s"
command = ["rsync", "--rsh", "ssh -F none -i {directory}/id -o ConnectionAttempts=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null", "root@[{{s1}}]:{directory}/sent", "{directory}/received"]
"#
    )
}

#[test]
fn rsync_over_ssh_moves_and_what_arrives_is_what_was_sent() {
    if !root_or_skip("a lab run") || !all_installed(&["ssh", "ssh-keygen", "rsync"]) {
        return;
    }
    if !Path::new("/usr/sbin/sshd").exists() {
        return missing("sshd");
    }
    let room = Room::new();
    let directory = room.path("").display().to_string();
    let directory = directory.trim_end_matches('/');
    for key in ["host", "id"] {
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &format!("{directory}/{key}")])
            .status();
        assert!(made.unwrap().success());
    }
    let config = format!(
        "ListenAddress ::\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/id.pub\nStrictModes no\n\
         PidFile none\nUsePAM no\nPermitRootLogin yes\n"
    );
    room.write("sshd_config", &config);
    // Numbers of a fixed sequence: nothing that compresses, or that a repeated block would hide.
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let sent: Vec<u8> = std::iter::repeat_with(next).take(3_000_000).collect();
    fs::write(room.path("sent"), &sent).unwrap();
    let file = room.write("ssh.toml", &ssh(directory));
    room.run(&["lab", "run", &file, "--out", "out"]).is_fine();
    assert!(fs::read(room.path("received")).unwrap() == sent, "what arrived is something else");
    let flows = room.rows("out", "flows.csv");
    let ours = flows.iter().filter(|row| row["from"] == "s1" && row["connection"].contains("s1:22-c1"));
    assert!(ours.map(|row| number(row, "moves")).sum::<f64>() > 0.0, "ssh's stayed: {flows:#?}");
}
