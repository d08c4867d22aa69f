//! Destinations within those that have paths, which are left alone; and rules of other programs beside the agent's.

use std::{process::Command, thread, time::Duration};

use sidestep_hostd::{AgentError, StaticDestination, StaticPath};
use sidestep_linux::{netlink, testing::root_or_skip};
use sidestep_net::Span;
use sidestep_policy::{PolicyName, PolicySettings};

use crate::{
    metrics::{LISTEN, scrape, value},
    support::{Agent, Flow, LITTLE, Lab, SOME, TWO_PROVIDERS, eventually, mark, settings, slot, tail, via},
    takeover::in_host,
};

/// Both paths lead to a black hole, but for packets that R1's own routes take to the server.
fn everything(lab: &Lab) -> Agent {
    let mut paths = ["R1", "R2"].map(|by| via(lab, "h", by, "1 Gbit/s")).to_vec();
    // One must be measured, which happens again and again.
    paths[1].rtt = Span::ZERO;
    Agent::start(lab, "h", settings(), "::/0", paths)
}

#[test]
fn connected_subnets_and_more_specific_routes_win_over_a_prefix_that_covers_them() {
    if !root_or_skip("a prefix that covers everything") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    // The main table has routes to the server's prefix: replaced by the default alone, that prefix has paths.
    lab.ip("h", &format!("-6 route del {}", lab.prefix("s")));
    let agent = everything(&lab);
    let route = || lab.ip("h", "-6 route show table 8301");
    assert!(route().contains("throw fe80::/10"), "{}", route());
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_ne!(slot(&flow.sender), 0, "by the default route of ::/0");

    // A VPN comes up: its route wins at once, for connections that exist, too.
    let vpn = format!("-6 route add {} via {} dev R2", lab.prefix("s"), tail(&lab, "R2", "h"));
    lab.ip("h", &vpn);
    eventually("the connection to be left alone", || (mark(&flow.sender) == 0).then_some(()));
    lab.wait_until_over(&flow, "R2", "Z");
    assert_eq!(mark(&lab.connect("h", "s").0), 0);
    // What is measured each five seconds concerns paths, and not what is left alone.
    thread::sleep(Duration::from_millis(5500));
    assert_eq!(mark(&lab.connect("h", "s").0), 0, "after a measurement");
    assert!(route().contains(&format!("throw {}", lab.prefix("s"))), "another program sets the mark: {}", route());
    lab.ip("h", &format!("-6 route del {}", lab.prefix("s")));
    eventually("paths again", || (slot(&lab.connect("h", "s").0) != 0).then_some(()));

    // The same by name.
    let paths = ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
    let destinations = vec![
        StaticDestination { prefix: "::/0".parse().unwrap(), paths },
        StaticDestination { prefix: lab.prefix("s").into(), paths: Vec::new() },
    ];
    agent.reconfigure_all(settings(), destinations);
    eventually("the prefix to be left alone", || (mark(&lab.connect("h", "s").0) == 0).then_some(()));
    agent.stop();
    assert_eq!(route(), "");
}

/// The rules that other programs make; each leaves the server reachable without the agent.
fn neighbours(lab: &Lab) {
    for rule in [
        "fwmark 0x200/0xf00 lookup 2004 priority 9",     // Cilium, to its proxy
        "fwmark 0xa00/0xf00 lookup 2005 priority 10",    // Cilium, from its proxy
        "not fwmark 0xca6c lookup 51820 priority 32764", // WireGuard (wg-quick)
        "lookup main suppress_prefixlength 0 priority 32763",
        "fwmark 0x80000/0xff0000 lookup main priority 5210", // Tailscale
        "fwmark 0x4000/0x4000 lookup 100 priority 1000",     // by kube-proxy's mark
        "to 172.17.0.0/16 lookup main priority 999 proto 4", // for Docker's bridge, by systemd-networkd
    ] {
        let family = if rule.contains("172.") { "-4" } else { "-6" };
        lab.ip("h", &format!("{family} rule add {rule}"));
    }
    for table in [2004, 2005, 100] {
        lab.ip("h", &format!("-6 route add blackhole default table {table}"));
    }
}

#[test]
fn connections_are_moved_beside_the_rules_of_other_programs_and_none_is_lost() {
    if !root_or_skip("rules of other programs") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    neighbours(&lab);
    let paths = ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
    // What connections measure does not keep the next ones off a path.
    let settings = PolicySettings { policy: PolicyName::Random, ..settings() };
    let agent = Agent::start(&lab, "h", settings, &lab.prefix("s").to_string(), paths);
    let slots: Vec<_> = (0..20).map(|_| slot(&lab.connect("h", "s").0)).collect();
    assert!(slots.contains(&1) && slots.contains(&2), "{slots:?}");
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let idle = ["R1", "R2"][2 - slot(&flow.sender)];
    let before = lab.carried(lab.arc(idle, "Z"));
    flow.pass(SOME);
    assert!(lab.carried(lab.arc(idle, "Z")) - before < LITTLE, "it takes the path that its mark names");
    agent.stop();
}

#[test]
fn a_connection_that_the_host_masquerades_moves_to_the_other_provider_and_goes_on() {
    if !root_or_skip("connections that are masqueraded") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    // An address of the second provider's, which all others answer.
    lab.ip("h", "-6 address add fd0b::5/64 dev R2 nodad");
    lab.ip("Z", &format!("-6 route add fd0b::/64 via {} dev R2", tail(&lab, "R2", "Z")));
    lab.ip("R2", &format!("-6 route add fd0b::/64 via {} dev h", tail(&lab, "h", "R2")));
    let rule = "add table ip6 nat { chain out { type nat hook postrouting priority srcnat; masquerade; }; }";
    let made = in_host(&lab, || Command::new("nft").arg(rule).output().unwrap());
    assert!(made.status.success(), "{made:?}");
    let path = |by, rate| StaticPath { sources: vec!["::/0".parse().unwrap()], ..via(&lab, "h", by, rate) };
    let paths = vec![path("R1", "1 kbit/s"), path("R2", "1 Tbit/s")];
    let agent = Agent::start(&lab, "h", settings(), &lab.prefix("s").to_string(), paths);
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 2);
    lab.swallow("R2", "Z", true);
    agent.moved("rto");
    lab.wait_until_over(&flow, "R1", "Z");
    agent.stop();
}

#[test]
fn a_mask_whose_bits_are_another_programs_is_refused_with_one_that_is_free() {
    if !root_or_skip("marks that collide") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    neighbours(&lab);
    let start = |mark_mask| {
        let paths = ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
        let settings = PolicySettings { mark_mask, ..settings() };
        Agent::try_start_as(&lab, "h", settings, &lab.prefix("s").to_string(), paths, |_| {})
    };
    let refused = start(0xff00).err().unwrap().unwrap_err();
    assert!(matches!(refused, AgentError::MarkCollision { .. }), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("the rule `9: from all fwmark 0x200/0xf00 lookup 2004`"), "{said}");
    assert!(said.contains("set `mark_mask = 0x3f000000` in [pathchanger]"), "{said}");
    assert!(!lab.ip("h", "-6 rule show").contains("proto 83"), "nothing was made");
    start(0x3f00_0000).unwrap().stop();
}

#[test]
fn rules_that_appear_while_the_agent_works_and_meet_its_marks_are_counted_and_no_connection_is_let_go() {
    if !root_or_skip("marks that collide later") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    lab.network.node(lab.id("h")).run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let paths = ["R1", "R2"].map(|by| via(&lab, "h", by, "1 Gbit/s")).to_vec();
    let agent = Agent::start_as(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, |options| {
        options.config.metrics.listen = Some(LISTEN.parse().unwrap());
    });
    let met = || value(&scrape(&lab), "sidestep_agent_mark_collisions").unwrap();
    assert_eq!(met(), 0.0);
    // A fixed policy's, for all marks with one of our bits; it is looked at after all others.
    let rule = "fwmark 0x1000000/0x1000000 lookup 2004 priority 32000";
    lab.ip("h", &format!("-6 rule add {rule}"));
    eventually("the rule to be counted", || (met() == 1.0).then_some(()));
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_ne!(slot(&flow.sender), 0);
    lab.ip("h", &format!("-6 rule del {rule}"));
    eventually("the rule to be forgotten", || (met() == 0.0).then_some(()));
    agent.stop();
}
