//! Rules and routes that others remove, change or replace: they are as before at once, whichever number they carry.

use sidestep_linux::{
    netns::NetNs,
    testing::{Damage, assert_mends, root_or_skip},
};

use crate::{
    net::{Net, config, ip},
    offload::{has_seed, offload},
};

const fn damage<'a>(what: &'a str, commands: &'a str) -> Damage<'a> {
    Damage { what, commands, counts: true }
}

/// Damages both kinds of routes in the first table, and the rule to it, in each way.
fn assert_all_is_mended(net: &Net, edge: &NetNs) {
    let line = |family: &str| {
        let rules = ip(edge, &format!("{family} rule show priority 8400"));
        let rule = rules.lines().find(|line| line.contains("lookup 8401")).expect("a rule to the first table");
        rule.split_once("\t").unwrap().1.trim().to_string()
    };
    let rules = ["-4", "-6"].map(line);
    let away = rules.each_ref().map(|rule| format!("{} priority 8400", rule.replace("8401", "8402")));
    let replaced = [0, 1].map(|of| {
        let family = ["-4", "-6"][of];
        format!("{family} rule del priority 8400 table 8401; {family} rule add {}", away[of])
    });
    let added = format!("-6 rule add {}", away[1]);
    let surplus = |what, commands| Damage { counts: false, ..damage(what, commands) };
    assert_mends(
        edge,
        || net.status(edge).mended,
        &[
            damage("a route deleted", "-6 route del fd02::/16 table 8401"),
            damage("a route changed", "-6 route replace fd02::/16 dev p1 table 8401"),
            damage("a route replaced", "-6 route replace fd02::/16 via fd09:0:0:1::2 dev p1 table 8401 proto 83"),
            damage("a route of IPv4 deleted", "route del 10.2.0.0/16 table 8401"),
            damage("a route of IPv4 changed", "route replace 10.2.0.0/16 dev p1 table 8401"),
            damage("a route of IPv4 replaced", "route replace 10.2.0.0/16 via 10.9.1.2 dev p1 table 8401 proto 83"),
            damage("a rule deleted", "-6 rule del priority 8400 table 8401"),
            damage("a rule replaced", &replaced[1]),
            damage("a rule of IPv4 replaced", &replaced[0]),
            surplus("a rule added", &added),
            surplus("a route added", "-6 route add fd02:0:0:2::/64 dev p1 table 8401 proto 83"),
            surplus("a better route added", "-6 route add fd02::/16 dev p1 table 8401 metric 5 proto 83"),
        ],
    );
}

#[test]
fn rules_and_routes_of_a_balancer_that_another_program_replaces_under_our_number_are_back_within_a_second() {
    if !root_or_skip("rules that another program replaces") {
        return;
    }
    let net = Net::new();
    let _edge = net.edge(&net.e1, &config(true, ""));
    assert_all_is_mended(&net, &net.e1);
}

#[test]
fn rules_and_routes_of_an_offload_that_another_program_replaces_under_our_number_are_back_within_a_second() {
    if !has_seed() {
        return;
    }
    let net = Net::new();
    let _edge = offload(&net, &net.e1, true, 77);
    assert_all_is_mended(&net, &net.e1);
}
