//! What `doctor` reports about this machine is true, with and without privilege, and nothing stays.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::Command,
};

use serde_json::Value;
use sidestep_linux::{cgroup, netns::NetNs};

use crate::common::{Ended, PROGRAM, Room, root_or_skip};

#[test]
fn as_root_all_is_there_and_nothing_is_left() {
    if !root_or_skip("doctor") {
        return;
    }
    let room = Room::new();
    let ended = run_as_root(&room, "exec \"$0\" doctor --json");
    ended.is_fine();
    let report = parsed(&ended);
    assert_eq!(report["schema"], 1);
    for part in ["agent", "router", "lab", "mptcp-pm", "inrpp"] {
        assert_eq!(report["ready"][part], true, "{report:#}");
    }
    for feature in report["features"].as_array().unwrap() {
        let required = !feature["required_by"].as_array().unwrap().is_empty();
        assert!(!required || feature["state"] == "present", "{feature:#}");
        assert_ne!(feature["without"], "");
    }
    assert_eq!(room.run(&["doctor"]).code, Some(0));
}

#[test]
fn without_privilege_it_reports_what_it_could_not_try() {
    let room = Room::new();
    let ended = room.start_command(unprivileged(&room, &["doctor", "--json"])).wait();
    assert!(ended.error(3).starts_with("the agent cannot be seen to work here for want of: CAP_BPF"), "{ended:?}");
    let report = parsed(&ended);
    assert_eq!(report["ready"]["agent"], false);
    assert_eq!(state(&report, "capabilities"), "missing");
    for id in ["sock-ops", "path-changer", "cgroup-attach", "tc-bpf"] {
        assert_eq!(state(&report, id), "not tried", "{report:#}");
    }
    // Networks can be tried by any user where user namespaces are allowed.
    let networks = if state(&report, "user-namespaces") == "present" { "present" } else { "not tried" };
    for id in ["network-namespaces", "policy-routing", "ecn", "sock-diag"] {
        assert_eq!(state(&report, id), networks, "{report:#}");
    }
    assert_eq!(state(&report, "mptcp-pm"), networks, "{report:#}");
    let page = room.start_command(unprivileged(&room, &["doctor"])).wait();
    assert_eq!(page.code, Some(3));
    assert!(page.stdout.contains("\nnot tried: sock_ops programs"), "{}", page.stdout);
}

#[test]
fn what_is_taken_away_is_found_missing_and_nothing_else() {
    if !root_or_skip("doctor without features") {
        return;
    }
    let room = Room::new();
    let whole = missing(&parsed(&run_as_root(&room, "exec \"$0\" doctor --json")));
    let without = |take_away: &str, code: i32, ids: &[&str]| {
        let ended = run_as_root(&room, &format!("{take_away} && exec \"$0\" doctor --json"));
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let mut expected = whole.clone();
        expected.extend(ids.iter().map(ToString::to_string));
        assert_eq!(missing(&parsed(&ended)), expected, "after {take_away}");
    };
    without("mount -t tmpfs none /dev", 0, &["tap", "tun"]);
    without(
        "mount -t tmpfs none /sys/kernel",
        3,
        &["balancer", "btf", "cgroup-attach", "coupled", "divert", "path-changer", "tc-bpf"],
    );
    let groups = format!("umount -l {}", cgroup::mount_point().unwrap().display());
    // Root reaches them nevertheless: through the init process, or by a mount of its own.
    without(&groups, 0, &[]);
    let reached = parsed(&run_as_root(&room, &format!("{groups} && exec \"$0\" doctor --json")));
    let detail = feature(&reached, "cgroup2")["detail"].as_str().unwrap();
    assert!(detail.starts_with("at /proc/1/root/") || detail.starts_with("mounted nowhere here: "), "{detail}");
    let neither = "exec setpriv --bounding-set -sys_admin,-sys_ptrace \"$0\" doctor --json";
    let unreached = run_as_root(&room, &format!("{groups} && {neither}"));
    assert_eq!((unreached.code, state(&parsed(&unreached), "cgroup2")), (Some(3), "missing".into()), "{unreached:?}");
}

#[test]
fn the_mask_and_the_sources_of_a_configuration_are_tried() {
    if !root_or_skip("doctor beside rules of others") {
        return;
    }
    let room = Room::new();
    let config = |mask: &str| {
        let path = r#"path = [{ name = "a", via = "fe80::1", dev = "lo", sources = ["2001:db8:a::/48"] }]"#;
        format!("[pathchanger]\nmark_mask = {mask}\n[[destination]]\nprefix = \"2001:db8::/32\"\n{path}\n")
    };
    let (file, other) = (room.write("agent.toml", &config("0xff00")), room.write("other.toml", &config("0xff000000")));
    let rule = "ip link set lo up; ip rule add fwmark 0x200/0xf00 lookup 2004";
    let doctor = |of: &str, code: i32| {
        let ended = run_as_root(&room, &format!("{rule}; exec \"$0\" doctor --json{of}"));
        assert_eq!(ended.code, Some(code), "{ended:?}");
        parsed(&ended)
    };
    assert_eq!(state(&doctor("", 0), "marks"), "present", "the default meets nothing");
    let report = doctor(&format!(" --config {other}"), 0);
    let warning = report["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("no address of this host is among the `sources` of the path a"), "{report:#}");
    let report = doctor(&format!(" --config {file}"), 3);
    let detail = feature(&report, "marks")["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("mark_mask 0xff00, of {file}, meets the rule `")), "{detail}");
}

#[test]
fn the_capabilities_of_the_units_are_enough_and_none_is_too_many() {
    if !root_or_skip("capabilities") {
        return;
    }
    let room = Room::new();
    let agent = capabilities(include_str!("../../../../packaging/sidestep-agent.service"));
    let router = capabilities(include_str!("../../../../packaging/sidestep-router.service"));
    let ready = |part: &str, capabilities: &[&str]| {
        let report = parsed(&run_with(&room, capabilities));
        report["ready"][part].as_bool().unwrap_or_else(|| panic!("{report:#}"))
    };
    for (part, needed) in [("agent", &agent), ("router", &router)] {
        assert!(ready(part, needed), "{part} with {needed:?}");
        for one in needed {
            let others: Vec<_> = needed.iter().filter(|other| *other != one).copied().collect();
            assert!(!ready(part, &others), "{part} with {others:?}");
        }
    }
    // Without congestion control the path manager needs only the first.
    let path_manager = capabilities(include_str!("../../../../packaging/sidestep-mptcp-pm.service"));
    assert!(ready("mptcp-pm", &["NET_ADMIN"]) && !ready("mptcp-pm", &["BPF", "PERFMON"]));
    let coupled = |capabilities: &[&str]| state(&parsed(&run_with(&room, capabilities)), "coupled");
    assert_eq!(coupled(&path_manager), "present");
    for one in &path_manager {
        let others: Vec<_> = path_manager.iter().filter(|other| *other != one).copied().collect();
        assert_ne!(coupled(&others), "present", "with {others:?}");
    }
    let verdict = run_with(&room, &router);
    assert!(verdict.error(3).contains("CAP_PERFMON"), "{verdict:?}");
}

/// The capabilities that a unit gives, as setpriv names them.
pub fn capabilities(unit: &str) -> Vec<&str> {
    let of = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    assert_eq!(of("CapabilityBoundingSet="), of("AmbientCapabilities="));
    of("AmbientCapabilities=").split(' ').map(|name| name.strip_prefix("CAP_").unwrap()).collect()
}

/// Runs `doctor --json` as a user who has these capabilities and can get no others.
fn run_with(room: &Room, capabilities: &[&str]) -> Ended {
    let mut command = Command::new("setpriv");
    let added: String = capabilities.iter().map(|name| format!(",+{}", name.to_lowercase())).collect();
    let set = format!("-all{added}");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]);
    command.args(["--inh-caps", &set, "--ambient-caps", &set, "--bounding-set", &set]);
    command.arg(copy(room)).args(["doctor", "--json"]);
    room.start_command(command).wait()
}

/// Runs a shell line, in which `$0` is the program, as root in mounts and a network of its own; checks that no control
/// group stays.
fn run_as_root(room: &Room, line: &str) -> Ended {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", line, PROGRAM]);
    let running = NetNs::create().and_then(|namespace| namespace.run(|| Ok(room.start_command(command)))).unwrap();
    let ended = running.wait();
    let groups = fs::read_dir(cgroup::mount_point().unwrap()).unwrap().flatten();
    let ours: Vec<_> = groups
        .filter_map(|group| group.file_name().to_str()?.strip_prefix("sidestep-doctor.")?.parse::<u32>().ok())
        .filter(|owner| !fs::exists(format!("/proc/{owner}")).unwrap())
        .collect();
    assert!(ours.is_empty(), "control groups of {ours:?} are left");
    ended
}

/// The program as a user without rights; without root already, as it is.
fn unprivileged(room: &Room, arguments: &[&str]) -> Command {
    let mut command = Command::new(copy(room));
    command.args(arguments);
    if nix::unistd::geteuid().is_root() {
        // Also leaves all supplementary groups.
        command.uid(65_534).gid(65_534);
    }
    command
}

/// The program where any user can run it.
pub fn copy(room: &Room) -> PathBuf {
    let copy = room.path("sidestep");
    if !copy.exists() {
        fs::copy(PROGRAM, &copy).unwrap();
        fs::set_permissions(room.path("."), Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

fn parsed(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:#?}"))
}

fn feature<'a>(report: &'a Value, id: &str) -> &'a Value {
    let features = report["features"].as_array().unwrap();
    features.iter().find(|feature| feature["id"] == id).unwrap_or_else(|| panic!("no {id}"))
}

fn state(report: &Value, id: &str) -> String {
    feature(report, id)["state"].as_str().unwrap().into()
}

/// The ids of what does not work.
fn missing(report: &Value) -> BTreeSet<String> {
    let features = report["features"].as_array().unwrap();
    let broken = features.iter().filter(|feature| feature["state"] != "present");
    broken.map(|feature| feature["id"].as_str().unwrap().to_string()).collect()
}
