//! Paths and interfaces that are not there.

use sidestep_linux::testing::root_or_skip;

use crate::net::{Ip, Net, config, eventually, ip};

#[test]
fn a_path_by_an_interface_that_never_was_is_no_black_hole_with_health_or_without() {
    if !root_or_skip("a path that is not there") {
        return;
    }
    let net = Net::new();
    for health in ["carrier", "off"] {
        let more = format!("health = \"{health}\"");
        let file = config(true, &more).replace("dev = \"p3\"", "dev = \"nowhere\"");
        let (_e1, _e2) = (net.edge(&net.e1, &file), net.edge(&net.e2, &config(false, &more)));
        let path = net.status(&net.e1).destinations[0].paths[3].clone();
        assert_eq!((path.slot, path.live), (0, health == "off"), "{path:?}");
        assert_eq!(path.why.as_deref(), Some("its interface or a route to its first segment is missing"));
        for version in [Ip::V4, Ip::V6] {
            let listener = net.listen(version);
            for _ in 0..24 {
                net.talk(&mut net.connect(version, &listener));
            }
        }
        // Without health its packets take the router's own route, and are counted.
        let packets = net.status(&net.e1).packets;
        assert_eq!(packets["unrouted"] > 0, health == "off", "{packets:?}");
    }
}

#[test]
fn an_interface_of_the_site_that_vanishes_is_taken_again_when_it_is_back() {
    if !root_or_skip("an interface of the site that vanishes") {
        return;
    }
    let net = Net::new();
    let add = || ip(&net.e1, "link add site type veth peer name host");
    add();
    let _e1 = net.edge(&net.e1, &config(true, "").replace("[\"in\"]", "[\"in\", \"site\"]"));
    let _e2 = net.edge(&net.e2, &config(false, ""));
    let is_on = || net.status(&net.e1).inside["site"];
    assert!(is_on());
    ip(&net.e1, "link del site");
    eventually("an interface that is gone", || (!is_on()).then_some(()));
    let listener = net.listen(Ip::V4);
    net.talk(&mut net.connect(Ip::V4, &listener));
    add();
    eventually("an interface that is back", || is_on().then_some(()));
    assert!(ip(&net.e1, "tc filter show dev site ingress").contains("0x5354"));
    let rules = ip(&net.e1, "rule");
    assert_eq!((rules.matches("iif site lookup 84").count(), rules.contains("detached")), (4, false), "{rules}");
}
