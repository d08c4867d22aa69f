//! Rules and routes that others remove while the agent is at work, and first segments whose routes change.

use std::time::{Duration, Instant};

use sidestep_linux::testing::{Damage, assert_mends, root_or_skip};
use sidestep_net::srv6;
use sidestep_pathchanger::daemon::program::HostProgram;

use crate::{
    support::{Agent, Flow, Lab, SOME, TWO_PROVIDERS, eventually, segments, settings, slot, tail, via},
    takeover::Kept,
};

#[test]
fn rules_and_routes_that_another_program_removed_are_back_before_a_timeout_and_counted() {
    if !root_or_skip("rules that another program removed") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let kept = Kept::new();
    let paths = [("R1", "1 kbit/s"), ("R2", "1 Tbit/s")].map(|(by, rate)| via(&lab, "h", by, rate)).to_vec();
    let pins = Some(kept.pins(false));
    let agent = Agent::start_with(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, pins);
    let mended = || HostProgram::look(&kept.pins(false)).unwrap().unwrap().config().unwrap().unwrap().mended;
    let rules = || lab.ip("h", "-6 rule show priority 830");
    let routes = || ["8301", "8302"].map(|table| lab.ip("h", &format!("-6 route show table {table}")));
    let (rules_before, routes_before) = (rules(), routes());
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_eq!((slot(&flow.sender), mended()), (2, 0));

    // As systemd-networkd removes the rules and routes that its files do not name.
    lab.ip("h", "-6 rule del priority 830");
    let start = Instant::now();
    lab.ip("h", "-6 rule del priority 830");
    eventually("the rules", || (rules() == rules_before).then_some(()));
    println!("the rules were back {:?} after the second was gone", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(10), "before the next comparison by the clock, each 30 s");
    eventually("the count of rules", || (mended() == 2).then_some(()));

    lab.ip("h", "-6 route flush table 8302");
    lab.ip("h", &format!("-6 route replace {} dev R1 table 8301", lab.prefix("s")));
    let start = Instant::now();
    eventually("the routes", || (routes() == routes_before).then_some(()));
    println!("the routes were back {:?} after", start.elapsed());
    eventually("the count of routes", || (mended() == 4).then_some(()));
    lab.wait_until_over(&flow, "R2", "Z");
    assert!(agent.events().iter().all(|event| event.kind != "moved"), "and never left it: {:?}", agent.events());

    // What the kernel removes with an interface was removed by no program, and what we remove is not put back.
    lab.ip("h", "link set R1 down");
    eventually("the route to leave", || routes()[0].is_empty().then_some(()));
    lab.ip("h", "link set R1 up");
    eventually("the route to return", || (routes() == routes_before).then_some(()));
    assert_eq!(mended(), 4);
    agent.stop();
    assert_eq!((rules(), routes()), (String::new(), [String::new(), String::new()]));
}

#[test]
fn rules_and_routes_that_another_program_replaces_under_our_number_are_back_within_a_second() {
    if !root_or_skip("rules that somebody replaces") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let kept = Kept::new();
    let paths = ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
    let (net, pins) = (lab.prefix("s").to_string(), Some(kept.pins(false)));
    let agent = Agent::start_with(&lab, "h", settings(), &net, paths, pins);
    let mended = || HostProgram::look(&kept.pins(false)).unwrap().unwrap().config().unwrap().unwrap().mended.into();
    let damage = |what, commands| Damage { what, commands, counts: true };
    let by_r2 = format!("via {} dev R2", tail(&lab, "R2", "h"));
    let rule = lab.ip("h", "-6 rule show priority 830 table 8301").replace("830:", "").replace("8301", "8302");
    let elsewhere = format!("-6 rule add {} priority 830", rule.trim());
    assert_mends(
        lab.network.node(lab.id("h")),
        mended,
        &[
            damage("a route deleted", &format!("-6 route del {net} table 8301")),
            damage("a route changed", &format!("-6 route replace {net} {by_r2} table 8301")),
            damage("a route replaced", &format!("-6 route replace {net} {by_r2} table 8301 proto 83")),
            damage("a rule deleted", "-6 rule del priority 830 table 8301"),
            damage("a rule replaced", &format!("-6 rule del priority 830 table 8301; {elsewhere}")),
            Damage { what: "a rule added", commands: &elsewhere, counts: false },
        ],
    );
    agent.stop();
}

#[test]
fn nothing_is_learnt_while_another_program_removes_rules_again_and_again() {
    if !root_or_skip("rules that go again and again") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let kept = Kept::new();
    let paths = ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
    let pins = Some(kept.pins(false));
    let agent = Agent::start_with(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, pins);
    let config = || HostProgram::look(&kept.pins(false)).unwrap().unwrap().config().unwrap().unwrap();
    for loss in 1..=5 {
        assert_eq!(config().policy.shared, 1, "before loss {loss}");
        lab.ip("h", "-6 rule del priority 830");
        eventually("the rule", || (config().mended == loss).then_some(()));
        eventually("both rules", || {
            (lab.ip("h", "-6 rule show priority 830").matches("fwmark").count() == 2).then_some(())
        });
    }
    eventually("learning to stop", || (config().policy.shared == 0).then_some(()));
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_ne!(slot(&flow.sender), 0, "connections have paths all the same");
    agent.stop();
}

#[test]
fn a_path_follows_the_route_to_its_first_segment() {
    if !root_or_skip("a first segment whose route changes") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let first = srv6::end_sid(lab.locator("Z"));
    let by_z = segments(&[first], "1 Gbit/s");
    let _agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), vec![by_z]);
    let route = || lab.ip("h", "-6 route show table 8301");
    assert!(route().contains("dev R1"), "{}", route());
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);

    lab.ip("h", &format!("-6 route add {first} via {} dev R2", tail(&lab, "R2", "h")));
    let start = Instant::now();
    eventually("the path to follow", || route().contains("dev R2").then_some(()));
    println!("the path followed after {:?}", start.elapsed());
    lab.wait_until_over(&flow, "R2", "Z");

    lab.ip("h", &format!("-6 route add unreachable {first} metric 1"));
    eventually("the path to be left out", || route().is_empty().then_some(()));
    assert_eq!(slot(&flow.sender), 0, "a path that leads nowhere has no connections");
    lab.ip("h", &format!("-6 route del unreachable {first} metric 1"));
    eventually("the path to be there again", || route().contains("dev R2").then_some(()));
    assert_eq!(slot(&lab.connect("h", "s").0), 1);
}
