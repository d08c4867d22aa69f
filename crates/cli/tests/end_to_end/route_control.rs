//! `sidestep edge route-control`: what it reports about its file, about itself and about what is missing; and a
//! real process that is killed.

use std::{os::fd::AsFd, process::Command, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;
use sidestep_linux::{
    netlink,
    netns::{NetNs, set_sysctl},
};

use crate::{
    common::{Ended, PROGRAM, Room, Running, root_or_skip},
    doctor::{capabilities, copy},
};

const FILE: &str = r#"[route_control]
destinations = ["0.0.0.0/0"]
[control]
routing_period = "500 ms"
loss_timeout = "200 ms"
[[egress]]
name = "first"
dev = "p0"
via = ["10.9.0.2"]
[[egress]]
name = "second"
dev = "p1"
via = ["10.9.1.2"]
[[target]]
address = "10.3.0.1"
"#;

#[test]
fn the_route_controllers_file_is_checked_with_line_and_caret() {
    let room = Room::new();
    let example = room.write("example.toml", include_str!("../../../../packaging/route-control.toml"));
    let ended = room.run(&["edge", "route-control", "--check", "--config", &example]);
    ended.is_fine();
    assert_eq!(
        ended.stdout,
        "in order: 0.0.0.0/0 ::/0 by fibre, then lte\ntargets: 3, of which 2 must be reachable\n\
         decisions: every 1 s, by the probes of the last 800 ms, one each 66 ms\n"
    );
    let json = room.run(&["edge", "route-control", "--check", "--json", "--config", &example]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["schema"], &json["quorum"], &json["egresses"][1]["name"]), (&1.into(), &2.into(), &"lte".into()));
    let bad = room.write("bad.toml", &FILE.replace("\"p1\"", "\"p1\"\nmetred = true"));
    let ended = room.run(&["edge", "route-control", "--check", "--config", &bad]);
    assert!(ended.complaint(2).contains("bad.toml:13:1: unknown field `metred`"), "{ended:?}");
    assert!(ended.stderr.contains('^'), "{ended:?}");
    room.run(&["edge", "route-control"]).complaint(2);
    room.run(&["edge", "route-control", "--config", "/nonexistent/file"]).complaint(2);
}

#[test]
fn addresses_for_documentation_in_a_file_are_warned_of() {
    let room = Room::new();
    let file = room.write("rc.toml", &FILE.replace("10.3.0.1", "192.0.2.1"));
    let ended = room.run(&["edge", "route-control", "--check", "--config", &file]);
    ended.is_fine();
    assert!(ended.stdout.contains("warning: the target 192.0.2.1 is an address for documentation"), "{ended:?}");
    let json = room.run(&["edge", "route-control", "--check", "--json", "--config", &file]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["doubts"].as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn init_writes_a_file_that_follows_default_routes_and_has_translated_flows_stay() {
    if !root_or_skip("route control") {
        return;
    }
    let (room, (edge, _world)) = (Room::new(), network());
    let init = |more: &[&str]| run(&room, &edge, &[&["init"], more].concat());
    assert!(init(&[]).error(1).contains("there is no default route"));
    ip(&edge, "route add default via 10.9.0.2 dev p0 metric 100");
    ip(&edge, "route add default via 10.9.1.2 dev p1 table 1001");
    let translate = "add table ip n; add chain ip n p { type nat hook postrouting priority 100; }; \
                     add rule ip n p oifname p1 snat to 10.9.1.1";
    let nft = || Ok(Command::new("nft").arg(translate).output().unwrap());
    assert!(edge.run(nft).unwrap().status.success());
    let file = room.path("proposed.toml").display().to_string();
    let ended = init(&["--output", &file, "--target", "9.9.9.9", "--target", "1.1.1.1"]);
    ended.is_fine();
    assert!(ended.stdout.contains("sources of IPv4 are translated"), "{ended:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nmoves = \"new-connections\"") && text.matches("\nvia = \"auto\"").count() == 2, "{text}");
    room.run(&["edge", "route-control", "--check", "--config", &file]).is_fine();
    init(&["--output", &file]).complaint(2);
}

#[test]
fn a_route_controller_that_was_stopped_makes_up_for_no_probes_and_sees_no_outage_in_that_time() {
    if !root_or_skip("route control") {
        return;
    }
    let (room, (edge, world)) = (Room::new(), network());
    let config = room.write("rc.toml", FILE);
    let mut running = start(&room, &edge, &["--config", &config]);
    running.wait_until_ready();
    let is_fine = || {
        let status = status(&room, &edge);
        status["egresses"].as_array().is_some_and(|all| all.iter().all(|one| one["health"] == "fine"))
    };
    running.wait_until("both egresses being fine", is_fine);
    let nft = |text: &str| {
        let run = || Ok(Command::new("nft").args(text.split(' ')).output().unwrap());
        let output = world.run(run).unwrap();
        assert!(output.status.success(), "{text}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    nft(
        "add table ip f { counter pings { } ; chain c { type filter hook input priority 0 ; icmp type echo-request counter name pings ; } ; }",
    );
    let count = || {
        let text = nft("list counter ip f pings");
        let packets = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        packets.and_then(|packets| packets.parse::<u32>().ok()).unwrap()
    };
    let moves = || status(&room, &edge)["moved"].clone();
    for seconds in [3, 8] {
        running.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_secs(seconds));
        let before = count();
        running.signal(Signal::SIGCONT);
        std::thread::sleep(Duration::from_secs(1));
        // Two probes of each egress in each half second, of which the first may have begun.
        let sent = count() - before;
        assert!(sent <= 12, "{sent} probes in the first second after {seconds} s");
        assert!(is_fine() && moves() == serde_json::json!({}), "{}", status(&room, &edge));
    }
    // What has happened meanwhile is seen.
    running.signal(Signal::SIGSTOP);
    nft("add chain ip f d { type filter hook input priority 1 ; iifname p0 drop ; }");
    std::thread::sleep(Duration::from_secs(3));
    running.signal(Signal::SIGCONT);
    running.wait_until("the other egress", || status(&room, &edge)["active"] == "second");
}

/// A command in a namespace.
fn start(room: &Room, namespace: &NetNs, arguments: &[&str]) -> Running {
    let inside = || {
        let mut command = Command::new(PROGRAM);
        command.args(["edge", "route-control"]).args(arguments);
        Ok(room.start_command(command))
    };
    namespace.run(inside).unwrap()
}

fn run(room: &Room, namespace: &NetNs, arguments: &[&str]) -> Ended {
    start(room, namespace, arguments).wait()
}

fn ip(namespace: &NetNs, arguments: &str) -> String {
    let run = || Ok(Command::new("ip").args(arguments.split(' ')).output().unwrap());
    let output = namespace.run(run).unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An edge with two links to the world, which has a target.
fn network() -> (NetNs, NetNs) {
    let (edge, world) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    for node in [&edge, &world] {
        let prepare = || {
            for name in ["ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter"] {
                set_sysctl(name, "0")?;
            }
            set_sysctl("ipv4/ip_forward", "1")?;
            netlink::block_on(async |netlink| netlink.loopback_up().await)
        };
        node.run(prepare).unwrap();
    }
    for number in 0..2 {
        let name = format!("p{number}");
        let connect = || {
            netlink::block_on(async |netlink| {
                netlink.add_veth(&name, "far").await?;
                netlink.move_to(netlink.index_of("far").await?, &name, world.as_fd()).await
            })
        };
        edge.run(connect).unwrap();
        for (node, last) in [(&edge, 1), (&world, 2)] {
            ip(node, &format!("addr add 10.9.{number}.{last}/24 dev {name}"));
            ip(node, &format!("link set {name} up"));
        }
    }
    ip(&world, "addr add 10.3.0.1/32 dev lo");
    (edge, world)
}

fn status(room: &Room, edge: &NetNs) -> Value {
    serde_json::from_str(&run(room, edge, &["status", "--json"]).stdout).unwrap()
}

#[test]
fn a_route_controller_that_is_killed_leaves_routing_and_the_next_takes_over() {
    if !root_or_skip("route control") {
        return;
    }
    let (room, (edge, _world)) = (Room::new(), network());
    assert!(run(&room, &edge, &["status"]).error(1).contains("no route controller works"));
    let config = room.write("rc.toml", FILE);
    let before = ip(&edge, "rule");
    let mut running = start(&room, &edge, &["--config", &config]);
    running.wait_until_ready();
    running.wait_until("both egresses being fine", || {
        let status = status(&room, &edge);
        status["egresses"].as_array().is_some_and(|all| all.iter().all(|one| one["health"] == "fine"))
    });
    let told = status(&room, &edge);
    assert_eq!((&told["schema"], &told["active"]), (&1.into(), &"first".into()));
    let text = run(&room, &edge, &["status"]).stdout;
    assert!(text.starts_with("0.0.0.0/0 take first since") && text.contains("10.3.0.1"), "{text}");
    let edge_status = edge.run(|| Ok(room.run(&["edge", "status"]))).unwrap();
    assert!(edge_status.stdout.starts_with("0.0.0.0/0 take first"), "{edge_status:?}");
    let mut top = start(&room, &edge, &["top", "--json", "--interval", "100 ms"]);
    let seen = top.wait_until_printed(2);
    assert!(seen.iter().all(|line| serde_json::from_str::<Value>(line).unwrap()["active"] == "first"), "{seen:?}");
    top.signal(Signal::SIGTERM);
    top.wait().is_fine();
    assert!(run(&room, &edge, &["--config", &config]).error(1).contains("another edge route-control daemon works"));
    ip(&edge, "link set p0 down");
    running.wait_until("the other egress", || status(&room, &edge)["active"] == "second");
    ip(&edge, "link set p0 up");
    let kept = || (ip(&edge, "rule"), ip(&edge, "route show table 8562"));
    for _ in 0..3 {
        // It follows the link that came back.
        running.wait_until("the routes of both links", || kept().1.matches("throw 10.9.").count() == 2);
        let left = kept();
        running.kill();
        assert_eq!(kept(), left, "a killed daemon leaves everything");
        running = start(&room, &edge, &["--config", &config, "--keep"]);
        running.wait_until_ready();
    }
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code, Some(0));
    assert!(ip(&edge, "rule").contains("8502"), "it was told to keep everything");
    let stopped = run(&room, &edge, &["stop", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&stopped.stdout).unwrap()["stopped"], true);
    assert_eq!(ip(&edge, "rule"), before);
    assert_eq!(ip(&edge, "route show table all proto 83"), "");
    assert!(run(&room, &edge, &["stop"]).stdout.contains("there is nothing"));
}

#[test]
fn doctor_looks_at_the_egresses_of_a_file_of_the_default_routes_and_of_the_daemon_at_work() {
    if !root_or_skip("doctor and route control") {
        return;
    }
    let (room, (edge, _world)) = (Room::new(), network());
    ip(&edge, "link set p1 mtu 1400");
    let config = room.write("rc.toml", FILE);
    let doctor = |arguments: &[&str]| edge.run(|| Ok(room.run(arguments))).unwrap();
    let finding = |arguments: &[&str]| {
        let report: Value = serde_json::from_str(&doctor(arguments).stdout).unwrap();
        assert_eq!(report["ready"]["route-control"], true, "{report:#}");
        let features = report["features"].as_array().unwrap();
        let found = features.iter().find(|feature| feature["id"] == "path-mtu").unwrap();
        assert_eq!(found["useful_to"], serde_json::json!(["route-control"]));
        (found["state"].as_str().unwrap().to_string(), found["detail"].as_str().unwrap().to_string())
    };
    let (state, why) = finding(&["doctor", "--json"]);
    assert!(state == "not tried" && why.contains("--config FILE"), "{why}");
    let differ = "the MTU of p1 is 1400, that of p0 1500: what moves from there depends on path MTU discovery; \
                  clamp the MSS of TCP to 1360 (IPv6: 1340)";
    let expected = ("missing".to_string(), differ.to_string());
    assert_eq!(finding(&["doctor", "--json", "--config", &config]), expected);
    let page = doctor(&["doctor", "--config", &config]);
    page.is_fine();
    assert!(page.stdout.contains(differ) && page.stdout.contains("\nroute-control can work here\n"), "{}", page.stdout);
    for number in 0..2 {
        ip(&edge, &format!("route add default via 10.9.{number}.2 metric {}", 100 + number));
    }
    assert_eq!(finding(&["doctor", "--json"]), expected);
    for number in 0..2 {
        ip(&edge, &format!("route del default via 10.9.{number}.2 metric {}", 100 + number));
    }
    let mut running = start(&room, &edge, &["--config", &config]);
    running.wait_until_ready();
    assert_eq!(finding(&["doctor", "--json"]), expected);
    running.signal(Signal::SIGTERM);
    let ended = running.wait();
    assert!(
        ended.code == Some(0) && ended.stderr.contains("after a move flows depend on path MTU discovery"),
        "{ended:?}"
    );
    let bad = room.write("bad.toml", &FILE.replace("\"p1\"", "\"p1\"\nmetred = true"));
    assert!(doctor(&["doctor", "--config", &bad]).complaint(2).contains("bad.toml:13:1: unknown field `metred`"));
}

#[test]
fn what_is_missing_is_said_in_one_line_and_the_capabilities_of_the_unit_are_enough() {
    if !root_or_skip("route control without privileges") {
        return;
    }
    let (room, (edge, _world)) = (Room::new(), network());
    // All that the unit gives is needed to measure passing traffic as well.
    let config = room.write("rc.toml", &FILE.replace("[route_control]", "[route_control]\npassive = true"));
    let program = copy(&room);
    let given = capabilities(include_str!("../../../../packaging/sidestep-route-control.service"));
    let with = |capabilities: &[&str]| {
        let mut command = Command::new("setpriv");
        let added: String = capabilities.iter().map(|name| format!(",+{}", name.to_lowercase())).collect();
        let set = format!("-all{added}");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]);
        command.args(["--inh-caps", &set, "--ambient-caps", &set, "--bounding-set", &set]);
        command.arg(&program).args(["edge", "route-control", "--config", &config]);
        edge.run(|| Ok(room.start_command(command))).unwrap()
    };
    let mut running = with(&given);
    running.wait_until_ready();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code, Some(0));
    for one in &given {
        let others: Vec<_> = given.iter().filter(|other| *other != one).copied().collect();
        with(&others).wait().error(3);
    }
    assert!(!ip(&edge, "rule").contains("lookup 85"), "nothing is left");
    // An interface that is not there is no reason not to start: it may come.
    let absent = room.write("absent.toml", &FILE.replace("\"p1\"", "\"wan7\""));
    let mut running = start(&room, &edge, &["--config", &absent]);
    running.wait_until_ready();
    assert_eq!(status(&room, &edge)["egresses"][1]["unusable"], "there is no interface wan7");
    running.signal(Signal::SIGTERM);
    let ended = running.wait();
    let warnings: Vec<_> = ended.stderr.lines().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!((ended.code, warnings.len()), (Some(0), 1), "{ended:?}");
    assert!(warnings[0].contains("there is no interface wan7"), "{ended:?}");
}
