//! An agent from its first configuration on: written from the machine's routes, and followed when these change.

use std::{
    fs,
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use sidestep_linux::{cgroup::Cgroup, netns::NetNs};

use crate::common::{PROGRAM, Room, root_or_skip};

/// Runs `ip` in the namespace, and returns what it prints.
fn ip(namespace: &NetNs, arguments: &str) -> String {
    let ended = namespace.run(|| Ok(Command::new("ip").args(arguments.split(' ')).output().unwrap())).unwrap();
    assert!(ended.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// A namespace with the interfaces `blue` and `red`, and a default route through each for IPv6.
fn two_providers() -> NetNs {
    let namespace = NetNs::create().unwrap();
    for (name, router, metric) in [("blue", "fe80::b", 100), ("red", "fe80::e", 200)] {
        ip(&namespace, &format!("link add {name} type veth peer name to-{name}"));
        ip(&namespace, &format!("link set {name} up"));
        ip(&namespace, &format!("link set to-{name} up"));
        ip(&namespace, &format!("-6 route add default via {router} dev {name} metric {metric}"));
    }
    namespace
}

#[test]
fn a_configuration_is_written_from_the_machines_routes_and_follows_them() {
    if !root_or_skip("a configuration from routes") {
        return;
    }
    let (room, namespace) = (Room::new(), two_providers());
    let run = |arguments: &[&str]| namespace.run(|| Ok(room.start(arguments))).unwrap().wait();
    let file = room.path("agent.toml").display().to_string();
    let written = run(&["agent", "init", "--output", &file]);
    written.is_fine();
    for found in ["IPv6 by fe80::b through blue", "IPv6 by fe80::e through red", "IPv4 has no default route"] {
        assert!(written.stdout.contains(found), "{}", written.stdout);
    }
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.clone() + "# mine\n").unwrap();
    let refused = run(&["agent", "init", "--output", &file]);
    assert!(refused.complaint(2).contains("exists; --force writes over it"), "{refused:?}");
    assert!(fs::read_to_string(&file).unwrap().ends_with("# mine\n"), "it is as it was");
    run(&["agent", "init", "--output", &file, "--force"]).is_fine();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(run(&["agent", "init"]).stdout, text, "the same on standard output");
    run(&["agent", "--check", "--config", &file]).is_fine();

    // As `ip netns exec` starts it: with a /sys of its own, in which no control group is mounted.
    let group = Cgroup::create(&format!("sidestep-init-{}", std::process::id())).unwrap();
    let name = group.path().file_name().unwrap().to_str().unwrap();
    let own_sys = "umount -l /sys && mount -t sysfs none /sys && mount -t bpf none /sys/fs/bpf && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", own_sys, PROGRAM, "agent", "--config", &file, "--cgroup", name]);
    let mut agent = namespace.run(|| Ok(room.start_command(command))).unwrap();
    agent.wait_until_ready();
    let tables = || {
        let routes = ip(&namespace, "-6 route show table all proto 83");
        routes.lines().map(|line| line.split_whitespace().take(5).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let mut before = tables();
    before.retain(|route| route.starts_with("default"));
    before.sort();
    assert_eq!(before, ["default via fe80::b dev blue", "default via fe80::e dev red"]);
    // The machine's own subnets are left alone, once its interfaces have their addresses.
    let thrown = |net: &str| tables().iter().filter(|route| route.starts_with(&format!("throw {net} "))).count();
    let all = ["fe80::/10", "ff00::/8", "::1", "::"];
    agent.wait_until("what is link-local in both tables", || thrown("fe80::/10") == before.len());
    for route in tables().iter().filter(|route| !before.contains(route)) {
        assert!(all.iter().any(|net| route.starts_with(&format!("throw {net} "))), "and nothing else: {route}");
    }
    // Operators see names.
    let target = agent.id().to_string();
    let status = ["--mount", "--net", "--target", &target, PROGRAM, "agent", "status", "--json"];
    let status = Command::new("nsenter").args(status).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_else(|error| panic!("{error}: {status:?}"));
    let names: Vec<_> = (0..2).map(|path| &status["learnt"][0]["paths"][path]["name"]).collect();
    assert_eq!(names, ["blue", "red"], "{status}");
    // `top` ends with its terminal.
    let inside =
        ["--mount", "--net", "--target", &target, "script", "-qec", &format!("exec {PROGRAM} top"), "/dev/null"];
    let mut terminal =
        Command::new("nsenter").args(inside).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    terminal.stdout.take().unwrap().read_exact(&mut [0; 100]).expect("a first picture");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", terminal.id())).unwrap();
    let drawing = PathBuf::from(format!("/proc/{}", children.trim()));
    assert!(drawing.exists(), "{children}");
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    agent.wait_until("the end of top", || !drawing.exists());
    // Another router takes over, as after a router advertisement.
    ip(&namespace, "-6 route replace default via fe80::bb dev blue metric 100");
    agent.wait_until("the new next hop", || tables().contains(&"default via fe80::bb dev blue".to_string()));
    assert!(!tables().contains(&"default via fe80::b dev blue".to_string()));
    agent.signal(Signal::SIGTERM);
    agent.wait().is_fine();
    assert_eq!(tables(), Vec::<String>::new());
    group.destroy().unwrap();
}

#[test]
fn a_control_group_that_is_none_is_wrong_usage_and_the_right_place_is_named() {
    if !root_or_skip("a control group that is none") {
        return;
    }
    let (room, namespace) = (Room::new(), two_providers());
    let config = "[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{ via = \"auto\", dev = \"blue\" }]\n";
    let config = room.write("agent.toml", config);
    let arguments = ["agent", "--no-state", "--config", &config, "--cgroup", "/tmp"];
    let ended = namespace.run(|| Ok(room.start(&arguments))).unwrap().wait();
    assert!(ended.complaint(2).starts_with("using /tmp: it is no control group of version 2"), "{ended:?}");
}

#[test]
fn the_benchmark_of_many_connections_has_all_of_them_moved() {
    if !root_or_skip("a benchmark of the agent") {
        return;
    }
    let ended = Room::new().run(&["bench", "agent", "--connections", "30", "--json"]);
    ended.is_fine();
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let moved =
        report["cases"].as_array().unwrap().iter().find(|case| case["name"] == "connections that moved").unwrap();
    assert_eq!(moved["value"], 30.0, "{report}");
}
