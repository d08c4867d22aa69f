//! Path sets that change under live connections: what stays is left alone, and no packet leaves by another path than its
//! connection's.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddrV6,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use sidestep_hostd::{StaticDestination, StaticPath};
use sidestep_linux::testing::root_or_skip;
use sidestep_policy::{PolicyName, PolicySettings};

use crate::{
    support::{
        Agent, Flow, Lab, PORT, SOME, TWO_PROVIDERS, Trace, connect, eventually, settings, slot, socket_in, via,
    },
    takeover::Kept,
};

/// A host with three providers, and a server.
const THREE_PROVIDERS: &[(&str, &str, u32)] =
    &[("h", "R1", 1), ("h", "R2", 1), ("h", "R3", 1), ("R1", "Z", 1), ("R2", "Z", 1), ("R3", "Z", 1), ("Z", "s", 1)];

/// Draws any path; nothing but a change of the set moves a connection.
fn any_path() -> PolicySettings {
    PolicySettings { policy: PolicyName::Fixed, ..settings() }
}

fn destination(prefix: &str, lab: &Lab, providers: &[&str]) -> StaticDestination {
    let paths: Vec<StaticPath> = providers.iter().map(|by| via(lab, "h", by, "1 Gbit/s")).collect();
    StaticDestination { prefix: prefix.parse().unwrap(), paths }
}

/// At least `count` connections, of which some are on each of `paths` paths.
fn connections(lab: &Lab, count: usize, paths: usize) -> Vec<Flow> {
    let listener = lab.serve("s");
    let open = || {
        let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
        let client = connect(socket, SocketAddrV6::new(lab.address("s"), PORT, 0, 0)).unwrap();
        Flow::start((client, listener.accept().unwrap().0))
    };
    let mut flows: Vec<_> = (0..count).map(|_| open()).collect();
    let is_on = |flow: &Flow, path| slot(&flow.sender) == path;
    // What the first ones measure may keep the next ones off a path for a while.
    while !(1..=paths).all(|path| flows.iter().any(|flow| is_on(flow, path))) {
        assert!(flows.len() < 64, "a path stays unused");
        flows.push(open());
    }
    flows
}

fn slots(flows: &[Flow]) -> Vec<usize> {
    flows.iter().map(|flow| slot(&flow.sender)).collect()
}

#[test]
fn providers_that_are_swapped_in_the_file_keep_their_connections() {
    if !root_or_skip("a path set in another order") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let to = lab.prefix("s").to_string();
    let start = |providers: &[&str]| {
        let paths = destination(&to, &lab, providers).paths;
        Agent::start_with(&lab, "h", any_path(), &to, paths, Some(kept.pins(false)))
    };
    let agent = start(&["R1", "R2"]);
    let flows = connections(&lab, 16, 2);
    let (before, ids) = (slots(&flows), agent.ids());

    agent.reconfigure_all(any_path(), vec![destination(&to, &lab, &["R2", "R1"])]);
    agent.reconfigure_all(
        any_path(),
        vec![destination(&to, &lab, &["R2", "R1"]), destination("2001:db8::/32", &lab, &["R1"])],
    );
    eventually("both destinations", || (agent.destinations() == 2).then_some(()));
    assert_eq!(slots(&flows), before, "0 of 16 move");
    assert_eq!((agent.ids(), agent.events().iter().filter(|event| event.kind != "opened").count()), (ids.clone(), 0));
    // The marks lead where they led.
    let trace = Trace::start(&lab, "h");
    let (on_first, on_second): (Vec<_>, Vec<_>) = flows.into_iter().partition(|flow| slot(&flow.sender) == 1);
    for flow in on_first.iter().chain(&on_second) {
        flow.pass(SOME);
    }
    let traced = trace.interfaces();
    for (flows, provider) in [(&on_first, "R1"), (&on_second, "R2")] {
        for flow in flows {
            let port = flow.sender.local_addr().unwrap().port();
            assert_eq!(BTreeSet::from_iter(traced[&port].clone()), [lab.interface("h", provider)].into());
        }
    }
    drop(on_second);

    // An agent that begins with another order, and with a destination before, finds the same paths.
    agent.kill();
    let paths = destination(&to, &lab, &["R2", "R1"]).paths;
    let next = Agent::start_with(&lab, "h", any_path(), &to, paths, Some(kept.pins(false)));
    assert!(slots(&on_first).iter().all(|slot| *slot == 1));
    assert_eq!(next.ids(), ids);
    next.stop();
}

#[test]
fn a_destination_before_the_others_moves_no_connection() {
    if !root_or_skip("another destination") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let to = lab.prefix("s").to_string();
    let agent = Agent::start(&lab, "h", any_path(), &to, destination(&to, &lab, &["R1", "R2"]).paths);
    let flows = connections(&lab, 16, 2);
    let before = slots(&flows);
    let other = destination("2001:db8::/32", &lab, &["R2", "R1"]);
    agent.reconfigure_all(any_path(), vec![other, destination(&to, &lab, &["R1", "R2"])]);
    eventually("both destinations", || (agent.destinations() == 2).then_some(()));
    assert_eq!(slots(&flows), before, "0 of 16 move");
    // A narrower destination has the same two paths and another one: the same marks lead along the same paths.
    let narrow = format!("{}/128", lab.address("s"));
    let sets = vec![destination(&narrow, &lab, &["R2", "R1"]), destination(&to, &lab, &["R1", "R2"])];
    agent.reconfigure_all(any_path(), sets);
    eventually("the narrower one", || agent.has_destination(&narrow).then_some(()));
    assert_eq!(slots(&flows), before, "0 of 16 move");
    assert!(agent.events().iter().all(|event| event.kind == "opened"), "{:?}", agent.events());
    agent.stop();
}

#[test]
fn no_packet_leaves_by_another_path_than_its_connections_while_sets_change() {
    if !root_or_skip("path sets that change under traffic") {
        return;
    }
    let changes = std::env::var("SIDESTEP_SET_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let lab = Lab::new(THREE_PROVIDERS);
    let (to, narrow) = (lab.prefix("s").to_string(), format!("{}/128", lab.address("s")));
    let sets: Vec<Vec<StaticDestination>> = vec![
        vec![destination(&to, &lab, &["R2", "R1"])],
        vec![destination(&to, &lab, &["R3", "R2"])],
        vec![destination(&narrow, &lab, &["R1", "R3"]), destination(&to, &lab, &["R2", "R3"])],
        vec![destination(&to, &lab, &["R3", "R1", "R2"])],
        vec![destination("2001:db8::/32", &lab, &["R3"]), destination(&narrow, &lab, &["R2", "R1", "R3"])],
        vec![destination(&to, &lab, &["R1"]), destination(&narrow, &lab, &["R2"])],
        vec![destination(&to, &lab, &["R1", "R2", "R3"])],
    ];
    let agent = Agent::start(&lab, "h", any_path(), &to, destination(&to, &lab, &["R1", "R2", "R3"]).paths);
    let trace = Trace::start(&lab, "h");
    let done = AtomicBool::new(false);
    let (traced, opened) = thread::scope(|scope| {
        let reading = scope.spawn(|| trace.read_until(&done));
        // The reader ends also when a step fails.
        let ends = Ends(&done);
        let flows = connections(&lab, 8, 1);
        for change in 0..changes {
            let before = agent.changes();
            agent.reconfigure_all(any_path(), sets[change % sets.len()].clone());
            eventually("the change", || (agent.changes() > before).then_some(()));
        }
        for flow in &flows {
            flow.pass(SOME);
        }
        drop(ends);
        (reading.join().unwrap(), flows.len())
    });
    // Records come a little later than moves.
    let moves = eventually("a record of each move", || {
        let mut moves: BTreeMap<u16, usize> = BTreeMap::new();
        for event in agent.events().iter().filter(|event| event.from != event.to && event.kind == "moved") {
            *moves.entry(event.local.port()).or_default() += 1;
        }
        // Each time that the interface changes there was a move; a path that is not the connection's would be two changes more.
        let changes = |interfaces: &[i32]| interfaces.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let is_explained = |port: &u16, of: &[i32]| moves.get(port).is_some_and(|moves| changes(of) <= *moves);
        traced.iter().all(|(port, interfaces)| is_explained(port, interfaces)).then_some(moves)
    });
    let packets: usize = traced.values().map(Vec::len).sum();
    println!("{changes} changes, {} moves, {packets} packets", moves.values().sum::<usize>());
    assert!(traced.len() == opened && moves.len() == opened, "{} of {opened} {moves:?}", traced.len());
    agent.stop();
}

/// Notes that all is done when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_prefix_with_host_bits_is_the_network_that_it_lies_in() {
    if !root_or_skip("a prefix with host bits") {
        return;
    }
    let (lab, kept) = (Lab::new(TWO_PROVIDERS), Kept::new());
    let with_host_bits = format!("{}/{}", lab.address("s"), lab.prefix("s").prefix_len());
    assert_ne!(with_host_bits.parse::<ipnet::IpNet>().unwrap(), lab.prefix("s").into());
    let routes = || lab.ip("h", "-6 route show table all proto 83");
    let paths = || destination("::/0", &lab, &["R1", "R2"]).paths;
    let start = || Agent::start_with(&lab, "h", any_path(), &with_host_bits, paths(), Some(kept.pins(false)));
    let agent = start();
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let (used, before) = (slot(&flow.sender), routes());
    assert!(used > 0 && before.contains(&lab.prefix("s").to_string()), "{before}");
    agent.kill();
    let next = start();
    assert_eq!((slot(&flow.sender), routes()), (used, before), "the tables are as full as before");
    assert_ne!(slot(&lab.connect("h", "s").0), 0);
    assert_eq!(next.destinations(), 1);
    next.stop();
}
