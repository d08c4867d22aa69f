//! Paths of every kind at edges.

use std::collections::BTreeSet;

use sidestep_linux::{netns::set_sysctl, testing::root_or_skip};

use crate::net::{Ip, Net, PATHS, eventually, ip, tuple};

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
            far.run(|| set_sysctl(&format!("ipv6/conf/{path}/seg6_enabled"), "1")).unwrap();
        }
    }
    let file = |site: &str, locator: &str| {
        let path = |path| format!("{{ name = \"sid-{path}\", segments = [\"{locator}:{path}::\"] }}");
        format!(
            "[edge]\ninside = [\"in\"]\nsymmetric = true\n[[destination]]\nprefix = \"{site}\"\npath = [{}, {}]\n",
            path(1),
            path(2)
        )
    };
    let _e1 = net.edge(&net.e1, &file("fd02::/16", "fd0f:0:2"));
    let _e2 = net.edge(&net.e2, &file("fd01::/16", "fd0f:0:1"));
    let listener = net.listen(Ip::V6);
    let mut used = BTreeSet::new();
    for _ in 0..8 {
        let mut both = net.connect(Ip::V6, &listener);
        let paths = net.paths_of(&mut both);
        assert_eq!(paths[0], paths[1]);
        used.insert(paths[0]);
    }
    assert!(used.is_subset(&BTreeSet::from([1, 2])), "{used:?}");
}

#[test]
fn a_path_id_a_list_a_next_hop_and_the_own_route_are_paths_to_one_site() {
    if !root_or_skip("paths of each kind at an edge") {
        return;
    }
    let net = Net::new();
    for host in [&net.a, &net.b] {
        // The list of a Path ID comes with the packet, used up.
        for interface in ["all", "in"] {
            host.run(|| set_sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")).unwrap();
        }
    }
    // The other edge is also the access router that has the binding SIDs, and the end of what they stand for.
    for (near, far, locator, last) in [(&net.e1, &net.e2, "fd0f:0:2", 2), (&net.e2, &net.e1, "fd0f:0:1", 1)] {
        for interface in ["all", "p1", "p2"] {
            far.run(|| set_sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")).unwrap();
        }
        for path in [1, 2] {
            ip(near, &format!("link set p{path} mtu 1700"));
            ip(near, &format!("-6 route add {locator}:b{path}:: via fd09:0:0:{path}::{last}"));
            let binding = "encap seg6local action End.B6.Encaps srh segs";
            ip(far, &format!("-6 route add {locator}:b{path}:: {binding} {locator}:d:: dev p{path}"));
        }
        ip(far, &format!("-6 route add {locator}:d:: encap seg6local action End.DT6 table 254 dev p1"));
    }
    let file = |site: &str, locator: &str, last: u32| {
        format!(
            "[edge]\ninside = [\"in\"]\nsymmetric = true\n[[destination]]\nprefix = \"{site}\"\npath = [
                {{ name = \"own\", plain = true }},
                {{ name = \"id\", path_id = \"{locator}:b1::\" }},
                {{ name = \"list\", segments = [\"{locator}:b2::\", \"{locator}:d::\"] }},
                {{ name = \"hop\", via = \"fd09:0:0:3::{last}\", dev = \"p3\" }},
            ]\n"
        )
    };
    let _e1 = net.edge(&net.e1, &file("fd02::/16", "fd0f:0:2", 2));
    let _e2 = net.edge(&net.e2, &file("fd01::/16", "fd0f:0:1", 1));
    let status = net.status(&net.e1);
    assert_eq!(status.destinations[0].digest, net.status(&net.e2).destinations[0].digest);
    let listener = net.listen(Ip::V6);
    let mut used = BTreeSet::new();
    for _ in 0..48 {
        let mut both = net.connect(Ip::V6, &listener);
        let flow = tuple("tcp", both.0.local_addr().unwrap(), both.0.peer_addr().unwrap());
        let named = status.place(&flow).unwrap().unwrap().position;
        let before = [net.sent(&net.e1), net.sent(&net.e2)];
        net.talk(&mut both);
        assert_eq!([net.busiest(&net.e1, &before[0]), net.busiest(&net.e2, &before[1])], [named; 2]);
        used.insert(named);
    }
    assert_eq!(used.len(), PATHS);

    // A Path ID to which no route leads is no black hole.
    ip(&net.e1, "-6 route del fd0f:0:2:b1::");
    let status = eventually("a dead Path ID", || {
        let status = net.status(&net.e1);
        (!status.destinations[0].paths[1].live).then_some(status)
    });
    assert_eq!(
        status.destinations[0].paths[1].why.as_deref(),
        Some("its interface or a route to its first segment is missing")
    );
    for _ in 0..8 {
        net.talk(&mut net.connect(Ip::V6, &listener));
    }
}
