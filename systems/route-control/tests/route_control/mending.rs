//! Rules and routes that others remove, change or replace: they are as before at once, whichever number they carry.

use sidestep_linux::testing::{Damage, assert_mends, root_or_skip};

use crate::net::{Net, file};

#[test]
fn rules_and_routes_of_a_route_controller_that_another_program_replaces_under_our_number_are_back_within_a_second() {
    if !root_or_skip("rules that another program replaces") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    let damage = |what, commands| Damage { what, commands, counts: true };
    let uncounted = |what, commands| Damage { counts: false, ..damage(what, commands) };
    let elsewhere = "-6 rule add lookup 8502 priority 8502 protocol 83";
    assert_mends(
        &net.edge,
        || net.status().mended,
        &[
            damage("a route deleted", "-6 route del default table 8562"),
            // A default route of others is also a change of the network, after which nothing is counted.
            uncounted("a route changed", "-6 route replace default dev p1 table 8562"),
            damage("a route replaced", "-6 route replace default via fd09:0:0:1::2 dev p1 table 8562 proto 83"),
            damage("a route of IPv4 deleted", "route del default table 8562"),
            uncounted("a route of IPv4 changed", "route replace default dev p1 table 8562"),
            damage("a route of IPv4 replaced", "route replace default via 10.9.1.2 dev p1 table 8562 proto 83"),
            damage("a rule deleted", "-6 rule del priority 8502"),
            damage("a rule replaced", &format!("-6 rule del priority 8502; {elsewhere}")),
            uncounted("a rule added", elsewhere),
            uncounted("a route added", "route add 10.2.0.0/16 via 10.9.1.2 dev p1 table 8562 proto 83"),
        ],
    );
}
