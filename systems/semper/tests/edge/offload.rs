//! Edges whose next hops are the kernel's own multipath routes.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use sidestep_hostd::AgentError;
use sidestep_linux::{netns::NetNs, testing::root_or_skip};
use sidestep_semper::daemon::{EdgeConfig, EdgeOptions};

use crate::{
    assert_nothing_is_left,
    net::{Edge, Ending, Ip, Net, PATHS, PATIENCE, config, eventually, ip},
};

const SEED: &str = "/proc/sys/net/ipv4/fib_multipath_hash_seed";

/// Whether the test can run: as root, on a kernel that has the setting.
pub fn has_seed() -> bool {
    let has = root_or_skip("multipath routes of the kernel");
    if has && !fs::exists(SEED).unwrap() {
        println!("skipped: this kernel has no {SEED}");
        return false;
    }
    has
}

fn read_seed(node: &NetNs) -> String {
    node.run(|| Ok(fs::read_to_string(SEED).unwrap())).unwrap().trim().to_owned()
}

fn options(near: bool, seed: u32) -> EdgeOptions {
    let config = EdgeConfig::parse(&config(near, &format!("seed = {seed}"))).unwrap();
    EdgeOptions { config, table_base: 8400, priority: 8400, keep: false, offload: true, dry_run: false }
}

/// Starts an edge whose next hops are the kernel's own multipath routes.
pub fn offload(net: &Net, node: &NetNs, near: bool, seed: u32) -> Edge {
    let (edge, is_ready) = net.spawn_with(node, options(near, seed));
    if is_ready.recv_timeout(PATIENCE).is_err() {
        panic!("the edge is not ready: {:?}", edge.end(Ending::Killed));
    }
    edge
}

#[test]
fn the_kernels_own_multipath_routes_agree_with_the_same_seed_and_not_with_two() {
    if !has_seed() {
        return;
    }
    let net = Net::new();
    let before = read_seed(&net.e2);
    let mut used = BTreeSet::new();
    for (seeds, agrees) in [([77, 77], true), ([77, 78], false)] {
        let _edges = (offload(&net, &net.e1, true, seeds[0]), offload(&net, &net.e2, false, seeds[1]));
        assert_eq!(read_seed(&net.e2), seeds[1].to_string());
        let mut alike = 0;
        for version in [Ip::V4, Ip::V6] {
            let listener = net.listen(version);
            for _ in 0..12 {
                let mut both = net.connect(version, &listener);
                let paths = net.paths_of(&mut both);
                used.insert(paths[0]);
                alike += usize::from(paths[0] == paths[1]);
            }
        }
        println!("with the seeds {seeds:?}, forward is reverse for {alike} of 24 connections");
        assert_eq!(alike == 24, agrees);
    }
    assert_eq!(used.len(), PATHS);
    assert_eq!(read_seed(&net.e2), before, "settings are put back");
    for edge in [&net.e1, &net.e2] {
        assert_nothing_is_left(edge);
    }
}

/// The paths that both families' routes have as next hops, and whether these work.
fn hops(node: &NetNs) -> Option<Vec<usize>> {
    let of = |family: &str| {
        let routes = ip(node, &format!("-o {family} route show table 8401"));
        let is_hop = |path: &usize| routes.contains(&format!("dev p{path} "));
        (!routes.contains("dead")).then(|| (0..PATHS).filter(is_hop).collect::<Vec<_>>())
    };
    of("-4").filter(|_| of("-4") == of("-6"))
}

#[test]
fn a_link_that_is_down_takes_its_next_hop_alone_and_no_route_is_away_meanwhile() {
    if !has_seed() {
        return;
    }
    let net = Net::new();
    ip(&net.e1, "link set p1 down");
    let edge = offload(&net, &net.e1, true, 77);
    assert_eq!(hops(&net.e1), Some(vec![0, 2, 3]));
    let digest = net.status(&net.e1).destinations[0].digest.clone();

    let watch = || Ok(Command::new("ip").args(["-o", "monitor", "route"]).stdout(Stdio::piped()).spawn().unwrap());
    let watch = net.e1.run(watch).unwrap();
    thread::sleep(Duration::from_millis(100));
    for change in ["add x type veth peer name y", "set x up", "set y up"] {
        ip(&net.e1, &format!("link {change}"));
    }
    thread::sleep(Duration::from_millis(200));
    ip(&net.e1, "link set p2 down");
    eventually("routes without p2", || (hops(&net.e1) == Some(vec![0, 3])).then_some(()));
    for path in [1, 2] {
        ip(&net.e1, &format!("link set p{path} up"));
    }
    eventually("routes with all paths", || (hops(&net.e1) == Some(vec![0, 1, 2, 3])).then_some(()));
    let notes = end(watch);
    let ours: Vec<_> = notes.lines().filter(|line| line.contains("table 8401")).collect();
    assert!(ours.iter().all(|line| !line.contains("Deleted")), "{ours:#?}");
    let first = ours.iter().find(|line| !line.contains("linkdown")).unwrap();
    assert!(!first.contains("dev p2 "), "a link of others changes no route: {ours:#?}");

    // The seed stays what it is, and so does the digest that the status shows.
    edge.reload(&config(true, "seed = 78\ngeneration = 9"));
    let status = eventually("the file read again", || {
        let status = net.status(&net.e1);
        (status.generation == 9).then_some(status)
    });
    assert_eq!((status.seed, &status.destinations[0].digest), (77, &digest));
    assert_eq!(read_seed(&net.e1), "77");
}

/// What a program that is ended has printed.
fn end(mut program: std::process::Child) -> String {
    program.kill().unwrap();
    String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn settings_are_as_before_if_one_of_them_cannot_be_set() {
    if !has_seed() {
        return;
    }
    let net = Net::new();
    let before = read_seed(&net.e1);
    let start = || {
        // A view of the files of its own, in which the last of the settings is another file, which is read-only.
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let change = |from: Option<&str>, to: &str, flags| mount(from, to, None::<&str>, flags, None::<&str>).unwrap();
        change(None, "/", MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        let setting = "/proc/sys/net/ipv6/fib_multipath_hash_policy";
        change(Some("/proc/version"), setting, MsFlags::MS_BIND);
        change(None, setting, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
        let (_configs, configs) = tokio::sync::mpsc::unbounded_channel();
        let edge = sidestep_semper::daemon::run_edge(options(true, 77), configs, || (), std::future::pending());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Ok(runtime.block_on(edge).unwrap_err())
    };
    let error: AgentError = net.e1.run(start).unwrap();
    assert!(error.to_string().contains("fib_multipath_hash_policy"), "{error}");
    assert_eq!(read_seed(&net.e1), before);
}
