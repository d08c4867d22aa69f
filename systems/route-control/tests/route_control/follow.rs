//! Egresses follow the network: leases, prefixes, interfaces that come back, and networks that are not there yet.

use std::{
    thread,
    time::{Duration, Instant},
};

use sidestep_linux::testing::root_or_skip;
use sidestep_route_control::daemon::EgressStatus;

use super::net::{Net, eventually, file, ip, nft, try_ip};

/// From a change of the network until the daemon goes by it.
const SOON: Duration = Duration::from_secs(1);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(3);

/// Both egresses follow the default routes of their interfaces.
fn auto() -> String {
    let text = file("").replace("via = [\"10.9.0.2\", \"fd09::2\"]", "via = \"auto\"");
    text.replace("via = [\"10.9.1.2\", \"fd09:0:0:1::2\"]", "via = [\"auto\"]")
}

/// The network, where both providers have given default routes, the second in a table of its own, as NetworkManager has it.
fn net() -> Net {
    let net = Net::new();
    ip(&net.edge, "route add default via 10.9.1.2 dev p1 table 1001");
    ip(&net.edge, "-6 route add default via fd09:0:0:1::2 dev p1 metric 2048");
    net
}

fn egress(net: &Net, number: usize) -> EgressStatus {
    net.status().egresses[number].clone()
}

fn healths(net: &Net) -> Vec<String> {
    net.status().egresses.iter().map(|one| one.seen.health.clone()).collect()
}

/// The next hop of IPv4.
fn via(net: &Net, number: usize) -> Option<String> {
    egress(net, number).ways[0].via.map(|via| via.to_string())
}

/// A provider gives another address by another gateway; the old ones are gone.
fn renew(net: &Net, number: usize, old: u32, part: u32) {
    let transit = &net.transit[number];
    ip(transit, &format!("addr del 10.9.{old}.2/24 dev site"));
    ip(transit, &format!("addr add 10.9.{part}.2/24 dev site"));
    ip(transit, &format!("route replace 10.1.0.0/16 via 10.9.{part}.1"));
    ip(&net.world, &format!("route replace 10.9.{part}.0/24 via 10.8.{number}.1"));
    ip(&net.edge, &format!("-4 addr flush dev p{number} scope global"));
    ip(&net.edge, &format!("addr add 10.9.{part}.1/24 dev p{number}"));
    let table = if number == 0 { "" } else { " table 1001" };
    ip(&net.edge, &format!("route replace default via 10.9.{part}.2 dev p{number}{table}"));
}

fn expect_via(net: &Net, number: usize, expected: &str) {
    let began = Instant::now();
    eventually(expected, || (via(net, number).as_deref() == Some(expected)).then_some(()));
    assert!(began.elapsed() < SOON + SLACK, "{:?}", began.elapsed());
}

#[test]
fn another_lease_by_another_gateway_is_followed_without_a_move_and_the_death_of_the_egress_is_seen_after_it() {
    if !root_or_skip("route control") {
        return;
    }
    let net = net();
    let _control = net.control(&auto());
    net.until_fine();
    assert_eq!((via(&net, 0).as_deref(), via(&net, 1).as_deref()), (Some("10.9.0.2"), Some("10.9.1.2")));
    renew(&net, 0, 0, 7);
    expect_via(&net, 0, "10.9.7.2");
    thread::sleep(Duration::from_millis(1_500));
    let status = net.status();
    assert_eq!((status.active.as_str(), healths(&net)), ("first", vec!["fine".to_string(); 2]), "{status:?}");
    assert_eq!(status.moved.values().sum::<u64>(), 0, "{status:?}");
    assert!(ip(&net.edge, "route show table 8562").contains("default via 10.9.7.2 dev p0"));
    assert!(ip(&net.edge, "route show table 8501").contains("10.3.0.1 via 10.9.7.2 dev p0"));
    assert_eq!(egress(&net, 0).ways[0].from, "10.9.7.1".parse().ok());
    // The backup gets another address while it is the backup, and both do at once; each death is seen.
    renew(&net, 1, 1, 8);
    renew(&net, 0, 7, 0);
    expect_via(&net, 1, "10.9.8.2");
    expect_via(&net, 0, "10.9.0.2");
    net.until_fine();
    net.cut(1, true);
    eventually("the death of the backup", || (healths(&net) == ["fine", "dead"]).then_some(()));
    net.cut(1, false);
    net.until_fine();
    net.cut(0, true);
    net.until_active("second");
}

#[test]
fn an_address_that_changes_behind_a_gateway_of_the_file_closes_no_egress() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    for (egress, old, new) in [(1, 1, 77), (0, 1, 77), (0, 77, 78)] {
        ip(&net.edge, &format!("addr add 10.9.{egress}.{new}/24 dev p{egress}"));
        ip(&net.edge, &format!("addr del 10.9.{egress}.{old}/24 dev p{egress}"));
        // With the first address of a subnet the kernel removes the others.
        let _ = try_ip(&net.edge, &format!("addr add 10.9.{egress}.{new}/24 dev p{egress}"));
        let from = || self::egress(&net, egress).ways[0].from.map(|from| from.to_string());
        eventually("the new source", || (from() == Some(format!("10.9.{egress}.{new}"))).then_some(()));
        let decided = net.status().decided;
        eventually("decisions", || (net.status().decided > decided + 2).then_some(()));
        assert_eq!((healths(&net), net.status().active.as_str()), (vec!["fine".to_string(); 2], "first"));
    }
    // The same address is flushed, and given again.
    let moves = net.status().moved;
    ip(&net.edge, "-4 addr flush dev p0 scope global");
    ip(&net.edge, "addr add 10.9.0.1/24 dev p0");
    let decided = net.status().decided;
    eventually("decisions", || (net.status().decided > decided + 2).then_some(()));
    assert_eq!((net.status().moved, healths(&net)), (moves, vec!["fine".to_string(); 2]));
    for number in [1, 0] {
        net.cut(number, true);
        eventually("a death", || (healths(&net)[number] == "dead").then_some(()));
        net.cut(number, false);
        net.until_fine();
    }
}

#[test]
fn a_daemon_that_starts_before_the_leases_says_what_it_waits_for_and_works_when_they_are_there() {
    if !root_or_skip("route control") {
        return;
    }
    let net = net();
    for number in [0, 1] {
        ip(&net.edge, &format!("addr flush dev p{number} scope global"));
    }
    // Those of IPv6 stay when their address goes.
    ip(&net.edge, "-6 route flush exact default");
    ip(&net.edge, "link set p1 down");
    ip(&net.edge, "link set p1 name later");
    let control = net.control(&auto());
    let unusable = |number: usize| egress(&net, number).unusable.unwrap_or_default();
    assert_eq!(unusable(0), "p0 has no default route of IPv4; p0 has no default route of IPv6");
    assert_eq!(unusable(1), "there is no interface p1");
    eventually("a decision", || (net.status().decided > 0).then_some(()));
    assert_eq!(healths(&net), ["unprobed", "unprobed"], "and not dead");
    // The address is there before the route.
    ip(&net.edge, "addr add 10.9.0.1/24 dev p0");
    ip(&net.edge, "route add default via 10.9.0.2 dev p0");
    let began = Instant::now();
    eventually("the first egress", || (healths(&net)[0] == "fine").then_some(()));
    assert!(began.elapsed() < Duration::from_millis(1_400) + SLACK, "{:?}", began.elapsed());
    let six = &egress(&net, 0).ways[1];
    assert_eq!(six.missing.as_deref(), Some("p0 has no default route of IPv6"), "{six:?}");
    ip(&net.edge, "link set later name p1");
    eventually("the link", || (unusable(1) == "p1 is down or has no carrier").then_some(()));
    ip(&net.edge, "link set p1 up");
    ip(&net.edge, "addr add 10.9.1.1/24 dev p1");
    eventually("no route", || unusable(1).contains("p1 has no default route of IPv4").then_some(()));
    ip(&net.edge, "route add default via 10.9.1.2 dev p1 metric 500");
    net.until_fine();
    assert_eq!(net.status().active, "first");
    let flow = net.flow("10.2.0.1".parse().unwrap());
    net.cut(0, true);
    net.until_active("second");
    flow.goes_on();
    flow.end();
    drop(control);
}

/// PPP that comes back has another interface.
#[test]
fn an_interface_that_comes_back_with_another_index_and_address_is_followed() {
    if !root_or_skip("route control") {
        return;
    }
    let net = net();
    let _control = net.control(&auto());
    net.until_fine();
    ip(&net.edge, "link del p0");
    net.until_active("second");
    assert_eq!(healths(&net)[0], "unprobed");
    sidestep_linux::testing::cable((&net.edge, "p0"), (&net.transit[0], "site"), "10.9.5", "fd09:0:0:5");
    ip(&net.transit[0], "route replace 10.1.0.0/16 via 10.9.5.1");
    ip(&net.transit[0], "-6 route replace fd01::/16 via fd09:0:0:5::1");
    ip(&net.world, "route add 10.9.5.0/24 via 10.8.0.1");
    ip(&net.edge, "route add default via 10.9.5.2 dev p0");
    ip(&net.edge, "-6 route add default via fd09:0:0:5::2 dev p0");
    net.until_active("first");
    assert_eq!(via(&net, 0).as_deref(), Some("10.9.5.2"));
}

#[test]
fn rules_follow_a_prefix_that_is_deprecated_and_replaced_and_one_that_is_delegated() {
    if !root_or_skip("route control") {
        return;
    }
    let net = net();
    let _control = net.control(&auto().replace("dev = \"p0\"", "dev = \"p0\"\nsource = [\"auto\", \"10.66.0.0/16\"]"));
    net.until_fine();
    let sources = || egress(&net, 0).sources.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(sources(), ["10.9.0.0/24", "10.66.0.0/16", "fd09::/64"]);
    let rules = || ip(&net.edge, "-6 rule");
    let by = |from: &str| try_ip(&net.edge, &format!("-6 route get fd02::1 from {from} iif site"));
    assert!(rules().contains("from fd09::/64 lookup 8501"), "{}", rules());
    // The old prefix is deprecated, and the new one is there: probes take it, and packets with either leave by this egress.
    ip(&net.edge, "-6 addr change fd09::1/64 dev p0 preferred_lft 0");
    ip(&net.edge, "-6 addr add fd0a::1/64 dev p0 nodad");
    eventually("both prefixes", || (sources().len() == 4).then_some(()));
    assert_eq!(egress(&net, 0).ways[1].from, "fd0a::1".parse().ok());
    ip(&net.edge, "-6 addr del fd09::1/64 dev p0");
    eventually("the new prefix", || (sources() == ["10.9.0.0/24", "10.66.0.0/16", "fd0a::/64"]).then_some(()));
    eventually("its rule", || {
        (rules().contains("from fd0a::/64") && !rules().contains("from fd09::/64")).then_some(())
    });
    // Delegated: by a route that is for its packets alone, as OpenWrt has it.
    ip(&net.edge, "-6 route add unreachable 2001:db8:100::/56");
    ip(&net.edge, "-6 route add default from 2001:db8:100::/56 via fd0a::2 dev p0");
    eventually("the delegated prefix", || sources().contains(&"2001:db8:100::/56".to_string()).then_some(()));
    eventually("by it", || by("2001:db8:100:7::1").is_some_and(|text| text.contains("dev p0")).then_some(()));
    net.cut(0, true);
    net.until_active("second");
    assert!(by("2001:db8:100:7::1").unwrap().contains("dev p0"), "never by another provider");
}

#[test]
fn a_firewall_that_drops_probes_makes_an_egress_unknown_and_not_dead() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    nft(
        &net.edge,
        "add table inet wall; add chain inet wall out { type filter hook output priority 0; }; \
         add rule inet wall out oifname p0 icmp type echo-request drop",
    );
    eventually("unprobed", || (healths(&net) == ["unprobed", "fine"]).then_some(()));
    let decided = net.status().decided;
    eventually("decisions", || (net.status().decided > decided + 3).then_some(()));
    let status = net.status();
    assert_eq!((status.active.as_str(), healths(&net)[0].as_str()), ("first", "unprobed"), "{status:?}");
    let why = status.egresses[0].ways[0].unprobed.clone().unwrap();
    assert!(why.contains("a firewall of this host"), "{why}");
    assert_eq!(status.egresses[0].seen.lost, 0.0);
    nft(&net.edge, "delete table inet wall");
    net.until_fine();
    assert_eq!(net.status().moved.len(), 0);
}
