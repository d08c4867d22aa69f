//! `sidestep edge`: what needs no network is refused or answered before anything is touched.

use std::process::Command;

use sidestep_linux::netns::NetNs;

use crate::common::{PROGRAM, Room, root_or_skip};

const FILE: &str = r#"[edge]
inside = ["eth0"]
generation = 7
[[destination]]
prefix = "10.2.0.0/16"
path = [
    { name = "blue", via = "10.0.1.1", dev = "eth1" },
    { name = "green", via = "10.0.2.1", dev = "eth2" },
]
"#;

#[test]
fn a_configuration_is_checked_and_its_mistakes_are_shown_with_a_caret() {
    let room = Room::new();
    let right = room.write("edge.toml", FILE);
    let ended = room.run(&["edge", "balance", "--check", "--config", &right]);
    ended.is_fine();
    assert!(ended.stdout.starts_with("in order: generation 7\n10.2.0.0/16: 2 paths, digest "), "{ended:?}");
    let twice = room.write("twice.toml", &FILE.replace("green", "blue"));
    let refused = room.run(&["edge", "balance", "--check", "--config", &twice]);
    let message = refused.complaint(2);
    assert!(message.contains("twice.toml:8:14: 10.2.0.0/16 has two paths of the name `blue`"), "{message}");
    assert!(refused.stderr.contains('^'), "{refused:?}");
    let ended = room.run(&["edge", "balance", "--offload", "nexthops", "--check", "--config", &right]);
    assert!(ended.error(2).contains("set the same `seed` at both edges"), "{ended:?}");
}

#[test]
fn a_file_sets_where_a_flow_goes_and_both_directions_go_alike() {
    let room = Room::new();
    let file = room.write("edge.toml", FILE);
    let place = |from: &str, to: &str| {
        let ended = room.run(&["edge", "where", "--json", "--config", &file, "tcp", from, to]);
        ended.is_fine();
        serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()
    };
    let [there, back] = [place("10.1.0.5:40000", "10.2.0.9:443"), place("10.2.0.9:443", "10.1.0.5:40000")];
    assert_eq!(there, back);
    assert_eq!((&there["generation"], &there["prefix"]), (&7.into(), &"10.2.0.0/16".into()));
    let elsewhere = room.run(&["edge", "where", "--config", &file, "tcp", "10.1.0.5:1", "10.3.0.9:2"]);
    assert!(elsewhere.error(1).contains("takes the router's own route"), "{elsewhere:?}");
    let wrong = room.run(&["edge", "where", "--config", &file, "tcp 10.1.0.5:x 10.2.0.9:1"]);
    assert!(wrong.error(2).contains("`10.1.0.5:x` is no address"), "{wrong:?}");
    let silent = room.run(&["edge", "status"]);
    assert!(silent.error(1).contains("no edge daemon works"), "{silent:?}");
}

#[test]
fn a_kernel_that_lacks_the_seed_of_its_hash_ends_an_offload_with_3_and_no_setting_is_changed() {
    if !root_or_skip("an edge on a kernel that lacks a setting") {
        return;
    }
    let room = Room::new();
    let file = room.write("edge.toml", &FILE.replace("generation", "seed = 4711\ngeneration"));
    // In a view of the files that has none of the settings of IPv4; the policy of IPv6 could still be set.
    let line = "mount -t tmpfs none /proc/sys/net/ipv4 && \
                { \"$0\" edge balance --offload nexthops --config \"$1\"; code=$?; \
                cat /proc/sys/net/ipv6/fib_multipath_hash_policy; exit $code; }";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", line, PROGRAM, &file]);
    let running = NetNs::create().and_then(|namespace| namespace.run(|| Ok(room.start_command(command)))).unwrap();
    let ended = running.wait();
    let message = ended.error(3);
    assert!(message.contains("net.ipv4.fib_multipath_hash_seed=4711") && message.contains("6.11"), "{ended:?}");
    assert_eq!(ended.stdout.trim(), "0", "{ended:?}");
}
