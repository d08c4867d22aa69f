//! A host with two providers, whose paths are next hops.

use std::{collections::BTreeSet, time::Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use sidestep_hostd::StaticPath;
use sidestep_linux::testing::root_or_skip;
use sidestep_policy::{PolicyName, PolicySettings};

use crate::support::{
    Agent, Flow, LITTLE, Lab, MASK, PORT, SOME, TWO_PROVIDERS, connect, eventually, mark, plain, settings, slot,
    socket_in, tail, via,
};

const PROVIDERS: [&str; 2] = ["R1", "R2"];

/// The host's paths through its providers, of these bandwidths.
fn providers(lab: &Lab, rates: [&str; 2]) -> Vec<StaticPath> {
    PROVIDERS.into_iter().zip(rates).map(|(provider, rate)| via(lab, "h", provider, rate)).collect()
}

/// Rates with which every draw gives the first path, until that path fails.
const FIRST: [&str; 2] = ["1 Tbit/s", "1 kbit/s"];
const ALIKE: [&str; 2] = ["1 Gbit/s", "1 Gbit/s"];

fn start(lab: &Lab, settings: PolicySettings, rates: [&str; 2]) -> Agent {
    Agent::start(lab, "h", settings, &lab.prefix("s").to_string(), providers(lab, rates))
}

/// How often the kernel sends the SYN of a socket again before it gives up.
#[derive(Clone, Copy)]
struct SynRetries;
nix::getsockopt_impl!(SynRetries, libc::IPPROTO_TCP, libc::TCP_SYNCNT, i32, sockopt::GetStruct<i32>);
nix::setsockopt_impl!(SynRetries, libc::IPPROTO_TCP, libc::TCP_SYNCNT, i32, sockopt::SetStruct<'_, i32>);

#[test]
fn a_connection_moves_to_the_other_provider_when_its_path_fails() {
    if !root_or_skip("moving a connection") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let agent = start(&lab, settings(), ALIKE);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let used = slot(&flow.sender);
    let (dead, alive) = (PROVIDERS[used - 1], PROVIDERS[2 - used]);
    assert!(lab.carried(lab.arc(dead, "Z")) >= SOME, "the connection is on the path that its mark names");
    assert!(lab.carried(lab.arc(alive, "Z")) < LITTLE);

    lab.swallow(dead, "Z", true);
    let outage = flow.pass(SOME);
    println!("bytes flowed again, and the rest of the wait was over, after {outage:?}");
    assert!(outage.as_secs_f64() < 4.0, "{outage:?}");
    lab.wait_until_over(&flow, alive, "Z");

    let event = agent.moved("rto");
    assert_eq!((event.from as usize, event.to as usize, event.passive), (used, 3 - used, false));
    assert_eq!((event.local.ip(), event.remote), (lab.address("h").into(), (lab.address("s"), PORT).into()));
    let opened = &agent.events()[0];
    assert_eq!((opened.kind.as_str(), opened.from, opened.to as usize), ("opened", 0, used));
}

#[test]
fn a_syn_that_meets_a_black_hole_establishes_by_the_other_path() {
    if !root_or_skip("a SYN in a black hole") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let agent = start(&lab, settings(), FIRST);
    lab.swallow("R1", "Z", true);
    let start = Instant::now();
    let flow = Flow::start(lab.connect("h", "s"));
    let took = start.elapsed();
    assert!(took.as_secs_f64() > 0.9, "one timeout of a SYN is a second, not {took:?}");
    flow.pass(SOME);
    let event = agent.moved("syn_timeout");
    assert_eq!((event.from, event.to), (1, 2));
    assert_eq!(slot(&flow.sender), 2);
}

#[test]
fn a_lost_syn_is_sent_again_soon_where_the_round_trip_is_known_and_no_connection_is_given_up_sooner() {
    if !root_or_skip("a SYN's timeout") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let agent = start(&lab, settings(), FIRST);
    let first = lab.connect("h", "s").0;
    let usual = getsockopt(&first, SynRetries).unwrap();
    // On a busy machine a handshake may take long; the lowest and the mean of some do not.
    let measured: Vec<_> = (0..8).map(|_| lab.connect("h", "s")).collect();
    assert!(measured.iter().all(|(client, _)| slot(client) == 1));
    lab.swallow("R1", "Z", true);
    let start = Instant::now();
    let (client, _) = lab.connect("h", "s");
    let took = start.elapsed();
    // 67 ms, two round trips, and a tick; a second is what TCP waits for.
    assert!((0.06..0.95).contains(&took.as_secs_f64()), "{took:?}");
    assert_eq!((slot(&client), agent.moved("syn_timeout").to), (2, 2));
    // The longer the timeout, the fewer.
    let retries = getsockopt(&client, SynRetries).unwrap();
    assert!((usual + 1..=usual + 4).contains(&retries), "{usual}, and then {retries}");
    // An application that sets how often its SYNs are sent knows what it wants.
    lab.swallow("R1", "Z", false);
    let listener = lab.serve("s");
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    setsockopt(&socket, SynRetries, &3).unwrap();
    let client = connect(socket, std::net::SocketAddrV6::new(lab.address("s"), PORT, 0, 0)).unwrap();
    drop(listener);
    assert_eq!(getsockopt(&client, SynRetries).unwrap(), 3);
}

#[test]
fn bits_of_the_mark_outside_the_mask_survive_opening_and_moving() {
    if !root_or_skip("an application with a mark of its own") {
        return;
    }
    const OWN: u32 = 0x00ab_0007;
    let lab = Lab::new(TWO_PROVIDERS);
    let agent = start(&lab, settings(), FIRST);
    let listener = lab.serve("s");
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    // Bits within the mask that the application set are the agent's all the same.
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Mark, &(OWN | 0x1500_0000)).unwrap();
    let client = connect(socket, std::net::SocketAddrV6::new(lab.address("s"), PORT, 0, 0)).unwrap();
    assert_eq!(mark(&client), OWN | 0x0100_0000);
    let flow = Flow::start((client, listener.accept().unwrap().0));
    flow.pass(SOME);
    lab.swallow("R1", "Z", true);
    agent.moved("rto");
    flow.pass(SOME);
    assert_eq!(mark(&flow.sender), OWN | 0x0200_0000);
    assert_eq!(OWN & MASK, 0);
}

#[test]
fn when_the_agent_stops_its_rules_and_routes_are_gone_and_connections_go_on() {
    if !root_or_skip("stopping the agent") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let rules = || lab.ip("h", "-6 rule show");
    let routes = || lab.ip("h", "-6 route show table all proto 83");
    let (rules_before, routes_before) = (rules(), routes());
    let agent = start(&lab, settings(), ["1 kbit/s", "1 Tbit/s"]);
    assert!(rules().contains("830: from all fwmark 0x2000000/0x3f000000 iif lo lookup 8302"), "{}", rules());
    assert!(routes().contains("table 8302"), "{}", routes());
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 2);

    agent.stop();
    assert_eq!((rules(), routes()), (rules_before, routes_before));
    // The default route is by the first provider: the second is no longer needed.
    lab.wait_until_over(&flow, "R1", "Z");
    let (later, _) = lab.connect("h", "s");
    assert_eq!(mark(&later), 0, "the program is gone too");
}

#[test]
fn the_static_policy_never_moves() {
    if !root_or_skip("the static policy") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let agent = start(&lab, PolicySettings { policy: PolicyName::Static, ..settings() }, ["1 kbit/s", "1 Tbit/s"]);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    lab.swallow("R1", "Z", true);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let stuck = flow.received();
    lab.swallow("R1", "Z", false);
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 1, "the first path, however little it carries");
    let events = agent.events();
    assert_eq!(events.iter().map(|event| (event.kind.as_str(), event.to)).collect::<Vec<_>>(), [("opened", 1)]);
    assert!(stuck < 20 * SOME, "{stuck}");
}

#[test]
fn the_random_policy_uses_every_path_whatever_it_weighs() {
    if !root_or_skip("the random policy") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let agent = start(&lab, PolicySettings { policy: PolicyName::Random, ..settings() }, FIRST);
    let slots: Vec<_> = (0..24).map(|_| slot(&lab.connect("h", "s").0)).collect();
    assert_eq!(slots.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]), "{slots:?}");
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let used = slot(&flow.sender);
    lab.swallow(PROVIDERS[used - 1], "Z", true);
    flow.pass(SOME);
    assert_eq!(agent.moved("rto").from as usize, used);
}

#[test]
fn a_plain_path_follows_the_hosts_own_routes_wherever_these_lead() {
    if !root_or_skip("a plain path") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let routes = || lab.ip("h", "-6 route show table all proto 83");
    let agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), vec![plain("1 Gbit/s")]);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 1);
    assert!(lab.carried(lab.arc("R1", "Z")) >= SOME && lab.carried(lab.arc("R2", "Z")) < LITTLE);
    assert!(lab.ip("h", "-6 route show table 8301").starts_with(&format!("throw {}", lab.prefix("s"))));

    let gateway = tail(&lab, "R2", "h");
    lab.ip("h", &format!("-6 route replace {} via {gateway} dev R2", lab.prefix("s")));
    lab.wait_until_over(&flow, "R2", "Z");
    agent.reconfigure(settings(), &lab.prefix("s").to_string(), vec![via(&lab, "h", "R1", "1 Gbit/s")]);
    eventually("the other path, in a slot of its own", || (slot(&flow.sender) == 2).then_some(()));
    eventually("an end of the plain path", || (!routes().contains("table 8301")).then_some(()));
    assert!(routes().contains("via") && routes().contains("table 8302"), "{}", routes());
    agent.stop();
    assert!(!routes().contains("table 83"), "{}", routes());
}
