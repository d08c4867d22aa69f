//! Paths that keep their carrier and swallow packets: probes find them.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};
use sidestep_linux::{
    netns::{NetNs, set_sysctl},
    testing::root_or_skip,
};
use sidestep_route_control::reflector::{ReflectorConfig, ReflectorOptions, run_reflector};
use sidestep_semper::daemon::{EdgeAgreement, EdgeOptions, EdgeStatus};

use crate::{
    daemon::Daemon,
    net::{Edge, Ending, Ip, Net, PATHS, PATIENCE, config, eventually, ip, tuple},
    open_many,
};

/// A file of an edge that probes; `more` are further lines of `[probe]`.
fn probing(near: bool, edge: &str, more: &str) -> String {
    let (here, there) = if near { (1, 2) } else { (2, 1) };
    let probe = format!(
        "[probe]\nsource = [\"10.{here}.0.2\", \"fd0{here}:0:0:{here}::2\"]\ntarget = [\"10.{there}.0.2\", \"fd0{there}:0:0:{there}::2\"]\n"
    );
    format!("{}{probe}{more}\n", config(near, &format!("health = \"probe\"\n{edge}")))
}

/// Sends an edge's packets by a path to a neighbour that does not exist: the path swallows them, and keeps its carrier.
fn silence(edge: &NetNs, path: usize, last: u32) {
    for version in ["", "-6 "] {
        let via = if version.is_empty() { format!("10.9.{path}.{last}") } else { format!("fd09:0:0:{path}::{last}") };
        ip(edge, &format!("{version}neigh replace {via} lladdr 02:00:00:00:00:99 dev p{path} nud permanent"));
    }
}

fn unsilence(edge: &NetNs, path: usize, last: u32) {
    for version in ["", "-6 "] {
        let via = if version.is_empty() { format!("10.9.{path}.{last}") } else { format!("fd09:0:0:{path}::{last}") };
        ip(edge, &format!("{version}neigh del {via} dev p{path}"));
    }
}

/// Waits until exactly these paths are dead at an edge, to both destinations.
fn until_dead(net: &Net, edge: &NetNs, dead: &[usize]) -> EdgeStatus {
    eventually(&format!("{dead:?} dead"), || {
        let status = net.status(edge);
        let is_so = |set: &sidestep_semper::daemon::EdgeDestination| {
            set.paths.iter().enumerate().all(|(position, path)| path.live != dead.contains(&position))
        };
        status.destinations.iter().all(is_so).then_some(status)
    })
}

/// Waits until all paths are probed and answered.
fn until_answered(net: &Net, edge: &NetNs) {
    eventually("answers by all paths", || {
        let status = net.status(edge);
        let paths = || status.destinations.iter().flat_map(|set| &set.paths);
        paths().all(|path| path.probes.is_some_and(|probes| probes.answered > 3)).then_some(())
    });
}

fn start(net: &Net, edge: &str, more: &str) -> (Edge, Edge) {
    let edges = (net.edge(&net.e1, &probing(true, edge, more)), net.edge(&net.e2, &probing(false, edge, more)));
    [&net.e1, &net.e2].into_iter().for_each(|edge| until_answered(net, edge));
    edges
}

/// Where the flows of many ports are.
fn places(status: &EdgeStatus) -> Vec<usize> {
    let flow = |port| tuple("tcp", SocketAddr::new(Ip::V4.at_a(), port), SocketAddr::new(Ip::V4.at_b(), 443));
    (1..1000).map(|port| status.place(&flow(port)).unwrap().unwrap().position).collect()
}

#[test]
fn of_a_thousand_new_connections_none_fails_on_a_silent_path_and_flows_of_survivors_stay() {
    if !root_or_skip("probes of a silent path") {
        return;
    }
    let net = Net::new();
    let _edges = start(&net, "", "");
    let before = places(&net.status(&net.e1));
    let listener = net.listen(Ip::V6);
    let mut open: Vec<(TcpStream, TcpStream)> = Vec::new();
    let mut paths: Vec<usize> = Vec::new();
    while paths.len() < 8 || !(0..PATHS).all(|path| paths.contains(&path)) {
        open.push(net.connect(Ip::V6, &listener));
        paths.push(net.paths_of(open.last_mut().unwrap())[0]);
    }

    // One direction alone is silent. Both edges know without reports from each other: a probe goes and comes back by one path.
    let silent = Instant::now();
    silence(&net.e1, 2, 2);
    let status = until_dead(&net, &net.e1, &[2]);
    println!("the silent path was known after {:?}", silent.elapsed());
    until_dead(&net, &net.e2, &[2]);
    let path = &status.destinations[0].paths[2];
    assert_eq!(path.why.as_deref(), Some("its probes are not answered"));
    assert!(path.probes.is_some_and(|probes| probes.lost >= 3), "{path:?}");
    assert_eq!(status.destinations[0].answers, Some(true));

    let failed = open_many(&net, 1_000, PATIENCE);
    assert_eq!(failed, 0, "of 1,000 new connections, with probes");
    for (both, path) in open.iter_mut().zip(&paths) {
        let now = net.paths_of(both);
        assert!(now[0] == now[1] && if *path == 2 { now[0] != 2 } else { now[0] == *path }, "{path} is now {now:?}");
    }
    let during = places(&net.status(&net.e1));
    assert_eq!(during, places(&net.status(&net.e2)));
    assert!(before.iter().zip(&during).all(|(before, during)| if *before == 2 {
        *during != 2
    } else {
        before == during
    }));

    // It answers again: not at once, but after a run of answers it is as before.
    unsilence(&net.e1, 2, 2);
    let answered = Instant::now();
    until_dead(&net, &net.e1, &[]);
    let took = answered.elapsed();
    println!("the path was used again after {took:?}");
    assert!(took > Duration::from_secs(2), "{took:?}");
    assert_eq!(places(&net.status(&net.e1)), before);
    let rules = ip(&net.e1, "rule");
    assert!(rules.contains("iif lo lookup 8402"), "{rules}");
    drop(_edges);
    for edge in [&net.e1, &net.e2] {
        crate::assert_nothing_is_left(edge);
    }
}

#[test]
fn without_health_a_share_of_new_connections_hangs_on_a_silent_path_until_a_reload_turns_probes_on() {
    if !root_or_skip("a silent path without probes") {
        return;
    }
    let net = Net::new();
    let (e1, e2) = (net.edge(&net.e1, &config(true, "")), net.edge(&net.e2, &config(false, "")));
    silence(&net.e1, 2, 2);
    let hung = open_many(&net, 1_000, Duration::from_millis(700));
    println!("with a silent path {hung} of 1,000 new connections hang without probes");
    assert!((180..320).contains(&hung), "{hung}");
    e1.reload(&probing(true, "", ""));
    e2.reload(&probing(false, "", ""));
    until_dead(&net, &net.e1, &[2]);
    until_dead(&net, &net.e2, &[2]);
    assert_eq!(open_many(&net, 1_000, PATIENCE), 0);
    // And off again: the path counts as live, as nothing probes it.
    e1.reload(&config(true, ""));
    until_dead(&net, &net.e1, &[]);
    assert!(!ip(&net.e1, "rule").contains("iif lo"));
}

#[test]
fn a_target_that_answers_nowhere_kills_no_path_and_a_killed_edge_keeps_what_is_known() {
    if !root_or_skip("a target that is down") {
        return;
    }
    let net = Net::new();
    let e1 = net.edge(&net.e1, &probing(true, "", ""));
    // The other edge is not there yet.
    let down = |edge: &NetNs| {
        eventually("a silent target", || {
            let status = net.status(edge);
            status.destinations.iter().all(|set| set.answers == Some(false)).then_some(status)
        })
    };
    let status = down(&net.e1);
    assert!(status.destinations.iter().flat_map(|set| &set.paths).all(|path| path.live && path.why.is_none()));
    let e2 = net.edge(&net.e2, &probing(false, "", ""));
    until_answered(&net, &net.e1);
    silence(&net.e1, 1, 2);
    until_dead(&net, &net.e1, &[1]);
    until_dead(&net, &net.e2, &[1]);
    // The other edge goes: nothing answers, and what is known of the paths stays.
    e2.end(Ending::Killed).unwrap();
    down(&net.e1);
    until_dead(&net, &net.e1, &[1]);
    assert_eq!(open_many(&net, 200, PATIENCE), 0, "the killed edge's program knows the dead path, too");
    // All paths go, one after the other: all are used, and none is a black hole once it is back.
    let _e2 = net.edge(&net.e2, &probing(false, "", ""));
    until_dead(&net, &net.e2, &[1]);
    for path in [0, 2, 3] {
        silence(&net.e1, path, 2);
        thread::sleep(Duration::from_millis(800));
    }
    down(&net.e1);
    unsilence(&net.e1, 0, 2);
    until_dead(&net, &net.e1, &[1, 2, 3]);
    assert_eq!(open_many(&net, 200, PATIENCE), 0);
    drop(e1);
}

#[test]
fn connections_that_a_table_has_on_a_silent_path_go_on_by_others() {
    if !root_or_skip("probes and a table") {
        return;
    }
    let net = Net::new();
    let _edges = start(&net, "stateful = true", "");
    let listener = net.listen(Ip::V4);
    let mut open: Vec<_> = (0..PATHS).map(|_| net.connect(Ip::V4, &listener)).collect();
    let paths: Vec<_> = open.iter_mut().map(|both| net.paths_of(both)[0]).collect();
    assert_eq!(BTreeSet::from_iter(paths.iter().copied()).len(), PATHS, "in turn: {paths:?}");
    silence(&net.e1, 2, 2);
    [&net.e1, &net.e2].into_iter().for_each(|edge| drop(until_dead(&net, edge, &[2])));
    for (both, path) in open.iter_mut().zip(&paths) {
        let now = net.paths_of(both);
        assert!(now[0] == now[1] && if *path == 2 { now[0] != 2 } else { now[0] == *path }, "{path} is now {now:?}");
    }
    drop(listener);
    assert_eq!(open_many(&net, 200, PATIENCE), 0);
    unsilence(&net.e1, 2, 2);
    [&net.e1, &net.e2].into_iter().for_each(|edge| drop(until_dead(&net, edge, &[])));
    let back: Vec<_> = open.iter_mut().map(|both| net.paths_of(both)).collect();
    assert!(back.iter().zip(&paths).all(|(now, path)| *now == [*path; 2]), "{back:?}, before {paths:?}");
}

/// `cargo test -p sidestep-semper --features daemon --test edge -- --ignored --nocapture processor_time`.
#[test]
#[ignore = "a measurement"]
fn processor_time_of_probes() {
    let net = Net::new();
    let cpu = || Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap());
    for (what, file) in [("carrier", config as fn(bool, &str) -> String), ("probes", |near, _| probing(near, "", ""))] {
        let _edges = (net.edge(&net.e1, &file(true, "")), net.edge(&net.e2, &file(false, "")));
        thread::sleep(Duration::from_secs(2));
        let (start, before) = (Instant::now(), cpu());
        thread::sleep(Duration::from_secs(10));
        let used = (cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64();
        println!("{what}: two edges with two destinations of {PATHS} paths take {:.2} % of a processor", used * 100.0);
    }
}

#[test]
fn segment_lists_are_probed_as_packets_take_them() {
    if !root_or_skip("probes of SRv6 paths") {
        return;
    }
    let net = Net::new();
    for (near, far, locator, last) in [(&net.e1, &net.e2, "fd0f:0:2", 2), (&net.e2, &net.e1, "fd0f:0:1", 1)] {
        // What End.DT6 looks up in the main table would miss the router's own addresses: they are in the table `local`.
        ip(far, "link set lo up");
        ip(far, &format!("-6 route add local fd0{last}:0:0:{last}::2 dev lo table main"));
        for path in ["all", "p1", "p2"] {
            far.run(|| set_sysctl(&format!("ipv6/conf/{path}/seg6_enabled"), "1")).unwrap();
        }
        for path in [1, 2] {
            ip(near, &format!("link set p{path} mtu 1700"));
            ip(near, &format!("-6 route add {locator}:{path}::/64 via fd09:0:0:{path}::{last}"));
            ip(far, &format!("-6 route add {locator}:{path}:: encap seg6local action End.DT6 table 254 dev p{path}"));
        }
    }
    let file = |near: bool| {
        let (here, there) = if near { (1, 2) } else { (2, 1) };
        let path = |path| format!("{{ name = \"sid-{path}\", segments = [\"fd0f:0:{there}:{path}::\"] }}");
        format!(
            "[edge]\ninside = [\"in\"]\nhealth = \"probe\"\n[probe]\nsource = [\"fd0{here}:0:0:{here}::2\"]\n\
             target = [\"fd0{there}:0:0:{there}::2\"]\n[[destination]]\nprefix = \"fd0{there}::/16\"\npath = [{}, {}]\n",
            path(1),
            path(2)
        )
    };
    let _edges = (net.edge(&net.e1, &file(true)), net.edge(&net.e2, &file(false)));
    [&net.e1, &net.e2].into_iter().for_each(|edge| until_answered(&net, edge));
    // The routers' own route between them is the first path, which no list takes.
    silence(&net.e1, 2, 2);
    let dead = |edge: &NetNs, dead: usize| {
        eventually("a dead list", || {
            let live: Vec<_> = net.status(edge).destinations[0].paths.iter().map(|path| path.live).collect();
            (0..2).all(|path| live[path] != (path == dead)).then_some(())
        });
    };
    dead(&net.e1, 1);
    dead(&net.e2, 1);
    let listener = net.listen(Ip::V6);
    let used: BTreeSet<_> = (0..12).flat_map(|_| net.paths_of(&mut net.connect(Ip::V6, &listener))).collect();
    assert_eq!(used, BTreeSet::from([1]));
}

#[test]
fn an_edge_tells_the_other_what_its_probes_say_and_a_dry_run_sends_none() {
    if !root_or_skip("probes of one edge") {
        return;
    }
    let net = Net::new();
    let compared = |listen, peer| format!("listen = \"10.9.0.{listen}:8400\"\npeer = \"10.9.0.{peer}:8400\"");
    let e1 = net.edge(&net.e1, &probing(true, &compared(1, 2), ""));
    // This edge looks at carriers alone, and so answers no probes. What it receives it heeds.
    let _e2 = net.edge(&net.e2, &config(false, &compared(2, 1)));
    eventually("agreement", || (net.status(&net.e1).peer == Some(EdgeAgreement::Agrees)).then_some(()));
    let status = eventually("a silent target", || {
        let status = net.status(&net.e1);
        (status.destinations[0].answers == Some(false)).then_some(status)
    });
    assert!(status.destinations[0].paths.iter().all(|path| path.live));

    // Any reflector of STAMP will do; its answers take the router's own route.
    let reflector = ReflectorOptions {
        listen: vec!["10.2.0.2:8401".parse().unwrap(), "[fd02:0:0:2::2]:8401".parse().unwrap()],
        config: ReflectorConfig::default(),
        metrics: None,
    };
    let (_reflector, listens) =
        Daemon::<()>::spawn(&net.e2, |_, ready, stopped| run_reflector(reflector, ready, stopped));
    listens.recv_timeout(PATIENCE).unwrap();
    until_answered(&net, &net.e1);
    silence(&net.e1, 2, 2);
    until_dead(&net, &net.e1, &[2]);
    let status = until_dead(&net, &net.e2, &[2]);
    assert_eq!(status.destinations[0].paths[2].why.as_deref(), Some("it is dead at the other edge"));
    drop(e1);

    let options = EdgeOptions {
        config: sidestep_semper::daemon::EdgeConfig::parse(&probing(true, "", "")).unwrap(),
        table_base: 8400,
        priority: 8400,
        keep: false,
        offload: false,
        dry_run: true,
    };
    let (_dry, is_ready) = net.spawn_with(&net.e1, options);
    is_ready.recv_timeout(PATIENCE).unwrap();
    let status = net.status(&net.e1);
    assert!(status.destinations[0].paths.iter().all(|path| path.live && path.probes.is_none()));
    assert!(!ip(&net.e1, "rule").contains("8400"));
}
