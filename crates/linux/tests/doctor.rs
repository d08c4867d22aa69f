//! What doctor reports about a site's egresses, in networks that have each of the faults that it knows.

use std::process::Command;

use sidestep_linux::{
    netlink,
    netns::{NetNs, set_sysctl},
    probe::{Egress, Finding, Trial, probe},
    testing::{cable, ip, root_or_skip},
};

/// `edge` = two transits = `world`; the world has the targets 10.3.0.1 and fd03::1.
struct Net {
    edge: NetNs,
    transit: [NetNs; 2],
    world: NetNs,
}

impl Net {
    fn new() -> Net {
        let node = || {
            let node = NetNs::create().unwrap();
            let prepare = || {
                for name in ["ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv6/conf/default/accept_dad"] {
                    set_sysctl(name, "0")?;
                }
                set_sysctl("ipv4/ip_forward", "1")?;
                set_sysctl("ipv6/conf/all/forwarding", "1")?;
                netlink::block_on(async |netlink| netlink.loopback_up().await)
            };
            node.run(prepare).unwrap();
            node
        };
        let net = Net { edge: node(), transit: [node(), node()], world: node() };
        for (number, transit) in net.transit.iter().enumerate() {
            let out = format!("p{number}");
            cable((&net.edge, &out), (transit, "south"), &format!("10.9.{number}"), &format!("fd09:0:0:{number}"));
            cable((transit, "north"), (&net.world, &out), &format!("10.8.{number}"), &format!("fd08:0:0:{number}"));
            ip(transit, &format!("route add 10.3.0.0/16 via 10.8.{number}.2"));
            ip(transit, &format!("-6 route add fd03::/16 via fd08:0:0:{number}::2"));
            ip(&net.world, &format!("route add 10.9.{number}.0/24 via 10.8.{number}.1"));
            ip(&net.world, &format!("-6 route add fd09:0:0:{number}::/64 via fd08:0:0:{number}::1"));
            ip(&net.edge, &format!("route add default via 10.9.{number}.2 metric {}", 100 + number));
            ip(&net.edge, &format!("-6 route add default via fd09:0:0:{number}::2 metric {}", 100 + number));
        }
        ip(&net.world, "addr add 10.3.0.1/32 dev lo");
        ip(&net.world, "-6 addr add fd03::1/128 dev lo");
        net
    }

    /// What doctor finds of a feature at the edge, whose egresses have these targets.
    fn finding(&self, id: &str, targets: &[&str]) -> Finding {
        let egress = |(number, name): (usize, &str)| Egress {
            name: name.into(),
            dev: format!("p{number}"),
            mark: Some(0x10 << number),
            targets: targets.iter().map(|target| target.parse().unwrap()).collect(),
        };
        let egresses: Vec<_> = ["first", "second"].into_iter().enumerate().map(egress).collect();
        let trial = || Trial { egresses: Ok(&egresses), ..Trial::default() };
        self.edge.run(|| Ok(probe(trial()).finding(id).unwrap().clone())).unwrap()
    }

    fn missing(&self, id: &str, targets: &[&str]) -> String {
        match self.finding(id, targets) {
            Finding::Missing(why) => why,
            other => panic!("{id} is {other:?}"),
        }
    }
}

fn run(node: &NetNs, program: &str, arguments: &[&str]) {
    let output = node.run(|| Ok(Command::new(program).args(arguments).output().unwrap())).unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

const TARGETS: [&str; 2] = ["10.3.0.1", "fd03::1"];

#[test]
fn egresses_that_carry_the_same_are_found_so_by_packets_to_their_targets() {
    if !root_or_skip("doctor and path MTUs") {
        return;
    }
    let net = Net::new();
    let all =
        "1500 by first to 10.3.0.1; 1500 by first to fd03::1; 1500 by second to 10.3.0.1; 1500 by second to fd03::1";
    assert_eq!(net.finding("path-mtu", &TARGETS), Finding::Present(all.into()));
    let silent = "1500 by the interface of first, behind which nobody answered; \
                  1500 by the interface of second, behind which nobody answered";
    assert_eq!(net.finding("path-mtu", &["10.3.0.77"]), Finding::Present(silent.into()));
    let none = net.edge.run(|| Ok(probe(Trial::default()))).unwrap();
    for id in ["path-mtu", "vrf"] {
        assert!(matches!(none.finding(id), Some(Finding::Untried(_))), "{id} without egresses");
    }
}

#[test]
fn egresses_of_different_mtus_are_named_with_the_mss_that_fits_both() {
    if !root_or_skip("doctor and path MTUs") {
        return;
    }
    let net = Net::new();
    ip(&net.edge, "link set p1 mtu 1400");
    assert_eq!(
        net.missing("path-mtu", &TARGETS),
        "the MTU of p1 is 1400, that of p0 1500: what moves from there depends on path MTU discovery; \
         clamp the MSS of TCP to 1360 (IPv6: 1340)"
    );
}

#[test]
fn a_path_that_carries_less_than_its_interface_is_named_with_the_router_that_reports_it() {
    if !root_or_skip("doctor and path MTUs") {
        return;
    }
    let net = Net::new();
    ip(&net.transit[1], "link set north mtu 1300");
    let found = net.missing("path-mtu", &TARGETS);
    for (target, router) in [("10.3.0.1", "10.9.1.2"), ("fd03::1", "fd09:0:0:1::2")] {
        let text = format!("of second's 1500 bytes 1300 get to {target}; {router} says so by ICMP");
        assert!(found.contains(&text), "{found}");
    }
    assert!(found.contains("clamp the MSS of TCP to 1260 (IPv6: 1240)") && !found.contains("first"), "{found}");
}

#[test]
fn a_path_that_swallows_large_packets_in_silence_is_found_a_black_hole() {
    if !root_or_skip("doctor and path MTUs") {
        return;
    }
    let net = Net::new();
    ip(&net.transit[1], "link set north mtu 1300");
    let mute = "add table inet mute; add chain inet mute out { type filter hook output priority 0; }; \
                add rule inet mute out icmp type destination-unreachable drop; \
                add rule inet mute out icmpv6 type packet-too-big drop";
    run(&net.transit[1], "nft", &[mute]);
    for target in TARGETS {
        let found = net.missing("path-mtu", &[target]);
        let rest = found.strip_prefix("of second's 1500 bytes ").unwrap_or_else(|| panic!("{found}"));
        let (bytes, rest) = rest.split_once(' ').unwrap();
        assert!((1292..=1300).contains(&bytes.parse::<u32>().unwrap()), "{found}");
        assert!(rest.starts_with(&format!("get to {target}, and no ICMP says so: a black hole")), "{found}");
    }
}

#[test]
fn an_egress_in_a_vrf_is_named_with_the_table_that_decides() {
    if !root_or_skip("doctor and VRFs") {
        return;
    }
    let net = Net::new();
    let make = || Ok(Command::new("ip").args("link add blue type vrf table 10".split(' ')).output().unwrap());
    let has_vrfs = net.edge.run(make).unwrap().status.success();
    let text = if has_vrfs { "no egress is in one; this kernel has VRFs" } else { "this kernel has no VRFs" };
    assert_eq!(net.finding("vrf", &[]), Finding::Present(text.into()));
    if !has_vrfs {
        return;
    }
    ip(&net.edge, "link set p1 master blue");
    let expected = "p1 is in the VRF blue, so table 10 decides: `ip link set dev p1 nomaster`";
    assert_eq!(net.missing("vrf", &[]), expected);
}

#[test]
fn a_strict_filter_of_an_egress_is_named_with_its_setting() {
    if !root_or_skip("doctor and rp_filter") {
        return;
    }
    let net = Net::new();
    let set = |name: &str, value: &str| net.edge.run(|| set_sysctl(name, value)).unwrap();
    assert_eq!(net.finding("reverse-path", &[]), Finding::Present(String::new()));
    set("ipv4/conf/p1/rp_filter", "1");
    assert_eq!(net.missing("reverse-path", &[]), "strict on p1: net.ipv4.conf.p1.rp_filter=1");
    set("ipv4/conf/p1/rp_filter", "0");
    set("ipv4/conf/all/rp_filter", "1");
    let strict = ["p0", "p1"].map(|dev| format!("strict on {dev}: net.ipv4.conf.all.rp_filter=1"));
    assert!(net.missing("reverse-path", &[]).ends_with(&strict.join("; ")));
    for dev in ["p0", "p1"] {
        set(&format!("ipv4/conf/{dev}/rp_filter"), "2");
    }
    assert!(
        !matches!(net.finding("reverse-path", &[]), Finding::Missing(why) if why.contains("on p")),
        "its 2 is greater"
    );
}
