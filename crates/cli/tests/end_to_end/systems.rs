//! Linux's own systems for several paths, and several systems in one run, in the lab.

use std::{collections::BTreeSet, fs};

use crate::common::{Room, number, root_or_skip};

/// Two hosts with two interfaces each, over two routers.
const TWO_INTERFACES: &str = r#"
duration = "5 s"
warmup = "1500 ms"
[topology]
node = [{ name = "c", kind = "host" }, { name = "s", kind = "host" }, { name = "A" }, { name = "B" }]
link = [
  { ends = ["c", "A"], rate = "10 Mbit/s", delay = "1 ms" },
  { ends = ["c", "B"], rate = "10 Mbit/s", delay = "1 ms" },
  { ends = ["A", "s"], rate = "10 Mbit/s", delay = "1 ms" },
  { ends = ["B", "s"], rate = "10 Mbit/s", delay = "1 ms" },
  { ends = ["A", "B"], rate = "10 Mbit/s", delay = "1 ms" },
]
"#;

/// Six equal paths. Short queues make short timeouts.
const SIX_EQUAL_EMPTY: &str = r#"
[topology]
generator = "parallel-paths"
paths = 6
ecmp = true
rate = "20 Mbit/s"
queue = "60 packets"
"#;

/// Six equal paths. After a second, one of them drops everything in the forward direction. Short queues make short
/// timeouts.
const SIX_EQUAL: &str = r#"
[topology]
generator = "parallel-paths"
paths = 6
ecmp = true
rate = "20 Mbit/s"
queue = "60 packets"
[[flow]]
kind = "bulk"
name = "bulk"
from = "c1"
to = "s1"
connections = 60
[[event]]
at = "1 s"
path = "path-1"
direction = "forward"
action = "blackhole"
"#;

fn bulk(name: &str, hosts: [&str; 2], more: &str) -> String {
    let [from, to] = hosts;
    format!("[[flow]]\nkind = \"bulk\"\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{more}\n")
}

#[test]
fn mptcp_uses_all_interfaces_of_both_hosts() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let mptcp = "mptcp:path_manager=fullmesh";
    let flow = bulk("bulk", ["c", "s"], "");
    room.run_lab("out", &format!("systems = [\"tcp\", \"{mptcp}\"]\n{TWO_INTERFACES}{flow}")).is_fine();
    let goodput = |system| room.result_of("out", system)["goodput_mbps"].as_f64().unwrap();
    let (tcp, mesh) = (goodput("tcp"), goodput(mptcp));
    println!("goodput over two links of 10 Mbit/s: tcp {tcp} Mbit/s, mptcp {mesh} Mbit/s");
    assert!(tcp < 10.0 && mesh > 13.0, "{tcp} {mesh}");
    // A subflow between each pair of addresses: the further ones have the hosts' names, too.
    let rows = room.rows("out", "series.csv");
    let sampled = rows.iter().filter(|row| row["system"] == mptcp && row["kind"] == "connection");
    let name = |end: &str| end.split(':').next().unwrap_or_default().to_owned();
    let ends = sampled.map(|row| row["name"].split('-').map(name).collect::<Vec<_>>().join("-"));
    let ends: BTreeSet<String> = ends.collect();
    assert_eq!(ends, ["c-s", "c-s#2", "c#2-s", "c#2-s#2"].map(String::from).into());
}

#[test]
fn mptcp_between_two_addresses_uses_all_equal_cost_paths_by_a_path_manager_on_each_host() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let system = "mptcp:subflows=32";
    let flow = bulk("bulk", ["c1", "s1"], "");
    let head = format!("duration = \"4 s\"\nsystems = [\"tcp\", \"{system}\"]");
    room.run_lab("out", &format!("{head}\n{SIX_EQUAL_EMPTY}{flow}")).is_fine();
    let goodput = |system| room.result_of("out", system)["goodput_mbps"].as_f64().unwrap();
    println!("goodput over six paths: tcp {} Mbit/s, mptcp {} Mbit/s", goodput("tcp"), goodput(system));
    // 3.1 times as much on a machine with load 15.
    assert!(goodput(system) > 2.0 * goodput("tcp"));
    let rows = room.rows("out", "series.csv");
    let sampled = rows.iter().filter(|row| row["system"] == system && row["kind"] == "connection");
    let subflows: BTreeSet<&str> = sampled.map(|row| row["name"].as_str()).collect();
    assert_eq!(subflows.len(), 32, "{subflows:?}");
}

#[test]
fn semper_spreads_subflows_over_all_paths_and_uses_a_link_again_when_it_is_back() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let network = "[topology]\ngenerator = \"parallel-paths\"\npaths = 4\nhops = 1\nclients = 2\nrate = \"10 Mbit/s\"\n\
                   access_rate = \"1 Gbit/s\"\nqueue = \"100 packets\"\n";
    let events = [("down", "2 s"), ("up", "3 s")];
    let events =
        events.map(|(action, at)| format!("[[event]]\nat = \"{at}\"\npath = \"path-2\"\naction = \"{action}\"\n"));
    let systems = ["semper", "semper-stateful"];
    let flow = bulk("bulk", ["c*", "s1"], "");
    let text = format!("duration = \"5 s\"\nsystems = {systems:?}\n{network}{flow}{}", events.concat());
    room.run_lab("out", &text).is_fine();
    let rows = room.rows("out", "series.csv");
    for system in systems {
        let of = |kind: &'static str| rows.iter().filter(move |row| row["system"] == system && row["kind"] == kind);
        let subflows: BTreeSet<&str> = of("connection").map(|row| row["name"].as_str()).collect();
        // Of 64. On a busy machine Linux's scheduler gives some less than the 10 kB from which on they are seen.
        assert!(subflows.len() >= 56, "{system}: {}, {subflows:?}", subflows.len());
        let most = |path: &str, from: f64, to: f64| {
            let rows = of("path").filter(|row| row["name"] == path);
            let inside = rows.filter(|row| (from..to).contains(&row["time_s"].parse().unwrap()));
            inside.map(|row| row["utilisation"].parse::<f64>().unwrap()).fold(0.0, f64::max)
        };
        for path in ["path-1", "path-2", "path-3", "path-4"] {
            let used = [most(path, 0.0, 2.0), most(path, 2.3, 3.0), most(path, 3.2, 6.0)];
            println!("{system}: {path} carried at most {used:?} before, during and after");
            assert!(used[0] > 0.3 && used[2] > 0.3, "{system}, {path}: {used:?}");
            assert!((used[1] > 0.3) != (path == "path-2"), "{system}, {path}: {used:?}");
        }
    }
}

#[test]
fn a_transfer_over_mptcp_completes_with_exactly_its_bytes_beside_one_of_tcp() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let many = bulk("many", ["c", "s"], "system = \"mptcp:path_manager=fullmesh\"\nsize = \"3 MB\"");
    let one = bulk("one", ["c", "s"], "size = \"1 MB\"");
    room.run_lab("out", &format!("systems = [\"tcp\"]\n{TWO_INTERFACES}{many}{one}")).is_fine();
    let rows = room.rows("out", "flows.csv");
    let of = |name: &str| rows.iter().find(|row| row["flow"] == name).unwrap();
    for (name, bytes) in [("many-0-0", 3e6), ("one-0-0", 1e6)] {
        let row = of(name);
        assert!(row["completed"] == "true" && number(row, "bytes") == bytes, "{row:?}");
    }
    let notes = room.result_of("out", "tcp")["notes"].to_string();
    assert!(notes.contains("routers use all equal-cost paths for some flows"), "{notes}");
}

#[test]
fn a_new_flow_label_leads_connections_off_a_path_where_everything_vanishes() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    for (system, seconds) in [("ecmp", 4), ("prr", 8)] {
        let head = format!("duration = \"{seconds} s\"\nsystems = [\"{system}\"]");
        room.run_lab(system, &format!("{head}\n{SIX_EQUAL}")).is_fine();
    }
    let of = |system| room.result_of(system, system)["recovery"].clone();
    let count = |system, key: &str| of(system)[key].as_u64().unwrap_or(0);
    println!("ecmp {} prr {}", of("ecmp"), of("prr"));
    // A sixth of 60 connections by the mean; how many the hash of their ports puts there varies.
    assert!(count("ecmp", "stalled") >= 2, "{}", of("ecmp"));
    assert!(count("prr", "stalled") <= 1 && count("prr", "delivered") >= 3, "{}", of("prr"));
}

#[test]
fn plb_runs_where_the_kernel_has_dctcp_and_reports_where_not() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let scenario =
        format!("duration = \"4 s\"\nsystems = [\"plb\"]\n{SIX_EQUAL}[tcp]\ncongestion_control = \"dctcp\"\n");
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if available.split_whitespace().any(|name| name == "dctcp") {
        room.run_lab("out", &scenario).is_fine();
        let ended = room.run_lab("cubic", &scenario.replace("\"dctcp\"", "\"cubic\""));
        assert!(ended.error(2).contains("set [tcp] congestion_control"), "{ended:#?}");
    } else {
        let ended = room.run_lab("out", &scenario.replace("\"dctcp\"", "\"cubic\""));
        assert!(ended.error(3).contains("only dctcp calls PLB, and this kernel does not have it"), "{ended:#?}");
    }
}

#[test]
fn a_flow_of_plain_tcp_is_left_alone_beside_flows_that_agents_move() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let moved = bulk("moved", ["c1", "s1"], "connections = 3");
    let plain = bulk("plain", ["c1", "s1"], "connections = 3\nsystem = \"tcp\"");
    let head = "duration = \"4 s\"\n[pathchanger]\ncongestion_backoff = { min = \"50 ms\", max = \"500 ms\" }\n[topology]\n\
                generator = \"parallel-paths\"\nrate = \"10 Mbit/s\"\necn = \"15 packets\"\nqueue = \"1000 packets\"\n";
    room.run_lab("out", &format!("systems = [\"pathchanger\"]\n{head}{moved}{plain}")).is_fine();
    let rows = room.rows("out", "flows.csv");
    let moves = |flow: &str| -> f64 {
        rows.iter().filter(|row| row["flow"].starts_with(flow)).map(|row| number(row, "moves")).sum()
    };
    assert!(moves("moved-") > 0.0 && moves("plain-") == 0.0, "{} {}", moves("moved-"), moves("plain-"));

    let other = bulk("other", ["c1", "s1"], "system = \"pathchanger:gamma=0.5\"");
    let ended = room.run_lab("two", &format!("systems = [\"pathchanger\"]\n{head}{moved}{other}"));
    let complaint = ended.complaint(2);
    assert!(
        complaint.contains("flow `other`: `pathchanger:gamma=0.5` needs a daemon `agent` with settings of its own"),
        "{ended:#?}"
    );
}

#[test]
fn the_lab_reports_what_linux_does_not_have_of_mptcp() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let scenario = format!("{TWO_INTERFACES}{}", bulk("bulk", ["c", "s"], ""));
    let ended = room.run_lab("out", &format!("systems = [\"mptcp:scheduler=redundant\"]\n{scenario}"));
    assert!(ended.error(2).contains("`min-rtt` alone"), "{ended:#?}");
}

/// Two hosts, and two paths between their routers, of one hop and of two.
const DETOUR: &str = r#"
duration = "6 s"
[tcp]
mss = 1300
[topology]
node = [{ name = "h1", kind = "host" }, { name = "h2", kind = "host" }, { name = "A" }, { name = "B" }, { name = "C" }]
link = [
  { ends = ["h1", "A"], rate = "100 Mbit/s", delay = "1 ms" },
  { ends = ["A", "B"], rate = "10 Mbit/s", delay = "5 ms", weight = DIRECT },
  { ends = ["A", "C"], rate = "10 Mbit/s", delay = "5 ms", weight = 10 },
  { ends = ["C", "B"], rate = "10 Mbit/s", delay = "5 ms", weight = 10 },
  { ends = ["B", "h2"], rate = "100 Mbit/s", delay = "1 ms" },
]
"#;

#[test]
fn inrpp_uses_the_detour_drops_nothing_and_takes_as_long_as_in_the_simulator() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    let flows: String = (1..=2).map(|at| bulk(&format!("flow-{at}"), ["h1", "h2"], "size = \"2 MB\"")).collect();
    // Where the path has two hops, the detour around the first leads over the last router, and back from there.
    for direct in ["1", "100"] {
        let file = room.write(&format!("{direct}.toml"), &format!("{}{flows}", DETOUR.replace("DIRECT", direct)));
        let (lab, sim) = (format!("lab-{direct}"), format!("sim-{direct}"));
        room.run(&["lab", "run", &file, "--system", "inrpp", "--out", &lab]).is_fine();
        room.run(&["sim", "run", &file, "--system", "inrpp:hosts=unmodified,shim=86B", "--out", &sim]).is_fine();
        let mean = |world: &str| {
            let rows = room.rows(world, "flows.csv");
            let took: Vec<f64> = rows.iter().map(|row| number(row, "fct_s")).collect();
            assert_eq!(took.len(), 2, "{rows:?}");
            took.iter().sum::<f64>() / 2.0
        };
        let result = fs::read_to_string(room.path(&format!("{lab}/result.json"))).unwrap();
        let result: serde_json::Value = serde_json::from_str(&result).unwrap();
        let (caches, drops) = (&result["systems"]["inrpp"]["caches"], &result["systems"]["inrpp"]["drops"]);
        println!("weight {direct}: {:.2} s in the lab, {:.2} s in the simulator, {caches}", mean(&lab), mean(&sim));
        assert!(caches["detoured"].as_u64() > Some(100) && caches["dropped"] == 0, "{caches}");
        assert!(drops.as_object().is_none_or(|drops| drops.is_empty()), "{drops}");
        // One link would take 3.4 s.
        assert!(direct != "1" || mean(&lab) < 2.8, "{}", mean(&lab));
        assert!((mean(&lab) / mean(&sim) - 1.0).abs() < 0.25, "{} {}", mean(&lab), mean(&sim));
    }
}
