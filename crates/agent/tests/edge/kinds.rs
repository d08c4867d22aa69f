//! Paths of every kind at edges.

use std::collections::BTreeSet;

use sidestep_linux::testing::root_or_skip;

use crate::net::{Ip, Net, ip};

#[test]
fn segment_lists_are_paths_too() {
    if !root_or_skip("SRv6 at an edge") {
        return;
    }
    let net = Net::new();
    // A SID of the far edge behind each of two paths; there packets are decapsulated.
    for (near, far, locator, last) in [(&net.e1, &net.e2, "fd0f:0:2", 2), (&net.e2, &net.e1, "fd0f:0:1", 1)] {
        for path in [1, 2] {
            ip(near, &format!("-6 route add {locator}:{path}::/64 via fd09:0:0:{path}::{last}"));
            ip(far, &format!("-6 route add {locator}:{path}:: encap seg6local action End.DT6 table 254 dev p{path}"));
        }
        for path in ["p1", "p2"] {
            ip(near, &format!("link set {path} mtu 1700"));
        }
        for path in ["all", "p1", "p2"] {
            far.run(|| sidestep_linux::netns::set_sysctl(&format!("ipv6/conf/{path}/seg6_enabled"), "1")).unwrap();
        }
    }
    let file = |site: &str, locator: &str| {
        let path = |path| format!("{{ name = \"sid-{path}\", segments = [\"{locator}:{path}::\"] }}");
        format!("[edge]\ninside = [\"in\"]\n[[destination]]\nprefix = \"{site}\"\npath = [{}, {}]\n", path(1), path(2))
    };
    let _e1 = net.edge(&net.e1, &file("fd02::/16", "fd0f:0:2"));
    let _e2 = net.edge(&net.e2, &file("fd01::/16", "fd0f:0:1"));
    let listener = net.listen(Ip::V6);
    let mut used = BTreeSet::new();
    for _ in 0..8 {
        let mut both = net.connect(Ip::V6, &listener);
        let before = [net.sent(&net.e1), net.sent(&net.e2)];
        net.talk(&mut both);
        let paths = [net.busiest(&net.e1, &before[0]), net.busiest(&net.e2, &before[1])];
        assert_eq!(paths[0], paths[1]);
        used.insert(paths[0]);
    }
    assert!(used.is_subset(&BTreeSet::from([1, 2])), "{used:?}");
}
