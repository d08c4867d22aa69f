//! What is asked of rtnetlink is what the kernel then has, read back through iproute2.

use std::{
    collections::BTreeMap,
    net::Ipv6Addr,
    os::fd::AsFd,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use nix::unistd::{read, write};
use sidestep_linux::{
    LinuxError, Result,
    marks::{FilterUse, MarkAction, MarkUses},
    netlink::{
        self, BindingSids, BoundSid, DefaultRoute, Family, LOCAL, LOOPBACK, LinkWatch, MAIN_TABLE, MarkRule, Netlink,
        NextHop, Route, RoutingChange, RoutingWatch, SidAction, Target,
    },
    netns::{NetNs, set_sysctl},
    nftables::{Draw, DrawTable, Share},
    tap::Tap,
    testing::root_or_skip,
};
use tokio::time::timeout;

const TABLE: u32 = 8301;

#[test]
fn a_route_leads_to_a_next_hop_with_an_mtu() {
    in_node("a plain route", async |netlink, interface| {
        let target = Target::Via(vec![hop("fe80::2", interface)]);
        netlink.add_route(&Route { mtu: Some(1420), ..route("fd00:a::/64", target) }).await?;
        assert_eq!(routes(TABLE), "fd00:a::/64 via fe80::2 dev eth proto 83 metric 1024 mtu 1420 pref medium");
        Ok(())
    });
}

#[test]
fn several_next_hops_share_a_route() {
    in_node("an ECMP route", async |netlink, interface| {
        let target = Target::Via(vec![hop("fe80::2", interface), hop("fe80::3", interface)]);
        netlink.add_route(&route("fd00:a::/64", target)).await?;
        assert_eq!(
            routes(TABLE),
            "fd00:a::/64 proto 83 metric 1024 pref medium nexthop via fe80::2 dev eth weight 1 \
             nexthop via fe80::3 dev eth weight 1"
        );
        Ok(())
    });
}

#[test]
fn a_segment_list_is_inserted_first_segment_first() {
    in_node("an SRv6 route", async |netlink, interface| {
        let target = Target::Segments(vec![ip("fd01::a"), ip("fd01::b")], hop("fe80::2", interface));
        netlink.add_route(&route("fd00:a::/64", target)).await?;
        let expected = "fd00:a::/64 encap seg6 mode inline segs 3 [ fd01::a fd01::b :: ] via fe80::2 dev eth";
        assert!(routes(TABLE).starts_with(expected), "{}", routes(TABLE));
        Ok(())
    });
}

#[test]
fn sids_do_what_their_actions_say() {
    in_node("SIDs", async |netlink, interface| {
        let list = vec![ip("fd01:0:2::e"), ip("fd01:0:3::e"), ip("fd01:0:4::d6")];
        for (action, expected) in [
            (SidAction::End, "action End"),
            (SidAction::EndX(ip("fd03::2")), "action End.X nh6 fd03::2"),
            (SidAction::EndDt6(MAIN_TABLE), "action End.DT6 table main"),
            (SidAction::EndB6Encaps(list), "action End.B6.Encaps segs 3 [ fd01:0:2::e fd01:0:3::e fd01:0:4::d6 ]"),
        ] {
            netlink.add_route(&route("fd01:0:1:e::/128", Target::Sid(action, interface))).await?;
            let expected = format!("fd01:0:1:e:: encap seg6local {expected} dev eth proto 83");
            assert!(routes(TABLE).starts_with(&expected), "{}\nis not\n{expected}", routes(TABLE));
        }
        Ok(())
    });
}

#[test]
fn a_binding_sid_on_the_loopback_interface_outlives_every_link_and_is_read_back() {
    in_node("binding SIDs", async |netlink, interface| {
        let (list, other) = (vec![ip("fd01:0:2::e"), ip("fd01:0:4::d6")], vec![ip("fd01:0:4::d6")]);
        let bound = |segments: &[Ipv6Addr], on_loopback| BoundSid { segments: segments.to_vec(), on_loopback };
        let sid = |list: &[Ipv6Addr], interface| {
            let target = Target::Sid(SidAction::EndB6Encaps(list.to_vec()), interface);
            Route { table: MAIN_TABLE, ..route("fd01:0:1:b::/128", target) }
        };
        let sids = BindingSids::open()?;
        assert_eq!(sids.read().await?, BTreeMap::new());
        // None of these is a binding SID of ours in the main table.
        netlink.loopback_up().await?;
        netlink.add_route(&Route { table: TABLE, ..sid(&list, interface) }).await?;
        let end = Target::Sid(SidAction::End, interface);
        netlink.add_route(&Route { table: MAIN_TABLE, ..route("fd01:0:1:e::/128", end) }).await?;
        ip_command("-6 route add fd01:0:1:b:1::/128 encap seg6local action End.B6.Encaps srh segs fd01::1 dev eth");
        assert_eq!(sids.read().await?, BTreeMap::new());
        // What an earlier release put on a link is replaced in place.
        netlink.add_route(&sid(&other, interface)).await?;
        assert_eq!(sids.read().await?, [(ip("fd01:0:1:b::"), bound(&other, false))].into());
        netlink.add_route(&sid(&list, LOOPBACK)).await?;
        let expected = [(ip("fd01:0:1:b::"), bound(&list, true))].into();
        assert_eq!(sids.read().await?, expected);
        ip_command("link set eth down");
        assert_eq!(sids.read().await?, expected);
        netlink.delete_route(MAIN_TABLE, "fd01:0:1:b::/128".parse().unwrap()).await?;
        assert_eq!(sids.read().await?, BTreeMap::new());
        Ok(())
    });
}

#[test]
fn a_packet_to_a_binding_sid_on_the_loopback_interface_is_encapsulated_and_forwarded() {
    if !root_or_skip("forwarding by a binding SID") {
        return;
    }
    const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    const ETHERNET: usize = 14;
    const IPV6: usize = 40;
    let (host, sid, list) = (ip("fd02:0:9::1"), ip("fd01:0:1:b::"), [ip("fd01:0:2:e::"), ip("fd01:0:4:d6::")]);
    // RFC 8200, section 3, and RFC 8754, section 2: no payload, and two segments of which one is left.
    let header = [&[0x60, 0, 0, 0, 0, 40, 43, 64], &ip("fd02:0:8::1").octets()[..], &sid.octets()].concat();
    let srh = [&[59, 4, 4, 1, 1, 0, 0, 0], &host.octets()[..], &sid.octets()].concat();
    let forward = || {
        for name in ["conf/all/forwarding", "conf/all/seg6_enabled", "conf/default/seg6_enabled"] {
            set_sysctl(&format!("ipv6/{name}"), "1")?;
        }
        set_sysctl("ipv6/conf/default/accept_dad", "0")?;
        let tap = Tap::create("eth", 10)?;
        netlink::block_on(async |netlink| {
            netlink.loopback_up().await?;
            let interface = netlink.index_of("eth").await?;
            netlink.bring_up(interface, 1500, MAC[0]).await?;
            netlink.add_neighbour(interface, ip("fe80::2"), MAC[1]).await?;
            let onward = Target::Via(vec![hop("fe80::2", interface)]);
            let bound = Target::Sid(SidAction::EndB6Encaps(list.to_vec()), LOOPBACK);
            for (destination, target) in [("fd01:0:2::/48", onward), ("fd01:0:1:b::/128", bound)] {
                netlink.add_route(&Route { table: MAIN_TABLE, ..route(destination, target) }).await?;
            }
            Ok(())
        })?;
        write(tap.as_fd(), &[&MAC[0][..], &MAC[1], &[0x86, 0xdd], &header, &srh].concat()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut frame = [0; 2048];
        while Instant::now() < deadline {
            match read(tap.as_fd(), &mut frame) {
                // Others are the kernel's own.
                Ok(length) if length > ETHERNET + IPV6 && frame[ETHERNET + 24..ETHERNET + IPV6] == list[0].octets() => {
                    return Ok(frame[ETHERNET..length].to_vec());
                }
                Ok(_) => {}
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        panic!("the router forwarded nothing");
    };
    let packet = NetNs::create().and_then(|router| router.run(forward)).unwrap();
    let (outer, inner) = packet.split_at(IPV6 + 8 + 16 * list.len());
    assert_eq!(outer[IPV6 + 8..IPV6 + 24], list[1].octets(), "the last segment comes first");
    assert_eq!(inner[24..IPV6], host.octets(), "the inner list has advanced");
}

#[test]
fn a_route_replaces_the_one_to_the_same_destination() {
    in_node("replacing routes", async |netlink, interface| {
        let several = Target::Via(vec![hop("fe80::2", interface), hop("fe80::3", interface)]);
        let inserted = Target::Segments(vec![ip("fd01::a")], hop("fe80::4", interface));
        let one = Target::Via(vec![hop("fe80::5", interface)]);
        for target in [one.clone(), several, inserted, one] {
            netlink.add_route(&route("fd00:a::/64", target)).await?;
        }
        assert_eq!(routes(TABLE), "fd00:a::/64 via fe80::5 dev eth proto 83 metric 1024 pref medium");
        Ok(())
    });
}

#[test]
fn a_lookup_goes_on_with_the_next_table_where_a_route_throws() {
    for (family, flag, destination, neighbours) in [
        (Family::V6, "-6", "fd00:a::/64", ["fe80::2", "fe80::3"]),
        (Family::V4, "-4", "10.9.0.0/16", ["10.0.0.2", "10.0.0.3"]),
    ] {
        in_node("a throw route", async |netlink, interface| {
            ip_command("address add 10.0.0.1/24 dev eth");
            let net: IpNet = destination.parse().unwrap();
            let via = |number: usize| Target::Via(vec![hop(neighbours[number], interface)]);
            let everything = if family == Family::V6 { "::/0" } else { "0.0.0.0/0" };
            netlink.add_route(&Route { table: MAIN_TABLE, ..route(destination, via(0)) }).await?;
            netlink.add_route(&route(everything, via(1))).await?;
            netlink.add_rule(MarkRule { family, mark: 0x100, mask: 0xff00, table: TABLE, priority: 830 }).await?;
            let taken = || ip_command(&format!("{flag} route get {} mark 0x100", net.hosts().next().unwrap()));
            assert!(taken().contains(neighbours[1]), "{}", taken());
            // In the place of another kind, and back.
            for target in [via(1), Target::Throw, Target::Throw, via(1), Target::Throw] {
                netlink.add_route(&route(destination, target.clone())).await?;
                let number = usize::from(target != Target::Throw);
                assert!(taken().contains(neighbours[number]), "{target:?}: {}", taken());
                let ours = netlink.own_routes().await?;
                assert_eq!(ours.iter().filter(|key| **key == (TABLE, net)).count(), 1, "{ours:?}");
            }
            netlink.delete_route(TABLE, net).await?;
            assert!(taken().contains(neighbours[1]), "{}", taken());
            Ok(())
        });
    }
}

#[test]
fn our_routes_are_distinguished_from_those_of_others_and_deleted_more_than_once() {
    in_node("listing and deleting routes", async |netlink, interface| {
        ip_command("-6 route add fd00:b::/64 via fe80::9 dev eth table 8301");
        let (ours, others): (IpNet, IpNet) = ("fd00:a::/64".parse().unwrap(), "fd00:b::/64".parse().unwrap());
        netlink.add_route(&route("fd00:a::/64", Target::Via(vec![hop("fe80::2", interface)]))).await?;
        assert_eq!(netlink.own_routes().await?, [(TABLE, ours)]);
        netlink.delete_route(TABLE, ours).await?;
        netlink.delete_route(TABLE, ours).await?;
        netlink.delete_route(TABLE, others).await?;
        netlink.delete_route(TABLE + 1, ours).await?;
        assert_eq!(netlink.own_routes().await?, []);
        assert!(routes(TABLE).starts_with("fd00:b::/64 via fe80::9"), "{}", routes(TABLE));
        Ok(())
    });
}

#[test]
fn the_way_to_a_destination_is_the_longest_match() {
    in_node("looking up a route", async |netlink, interface| {
        for (prefix, via) in [("fd00:a::/48", "fe80::2"), ("fd00:a:0:1::/64", "fe80::3")] {
            let target = Target::Via(vec![hop(via, interface)]);
            netlink.add_route(&Route { table: MAIN_TABLE, ..route(prefix, target) }).await?;
        }
        assert_eq!(netlink.route_to(ip("fd00:a::1")).await?, hop("fe80::2", interface));
        assert_eq!(netlink.route_to(ip("fd00:a:0:1::1")).await?, hop("fe80::3", interface));
        assert_eq!(netlink.route_to(ip("fd00:ee::7")).await?, NextHop { via: None, interface });
        let error = netlink.route_to(ip("fd00:b::1")).await.unwrap_err().to_string();
        assert_eq!(error, "looking up the route to fd00:b::1: Network is unreachable (os error 101)");
        Ok(())
    });
}

#[test]
fn routes_of_ipv4_lead_to_neighbours_of_either_family_and_into_srv6() {
    in_node("routes of IPv4", async |netlink, interface| {
        ip_command("address add 10.0.0.1/24 dev eth");
        let shown = || ip_command("-4 route show table 8301");
        let destination = "10.9.0.0/16";
        let net: IpNet = destination.parse().unwrap();
        let plain = Target::Via(vec![hop("10.0.0.2", interface)]);
        let by_ipv6 = Target::Via(vec![hop("fe80::2", interface)]);
        let several = Target::Via(vec![hop("10.0.0.2", interface), hop("fe80::2", interface)]);
        let encaps = Target::Encaps(vec![ip("fd01::a"), ip("fd01::b")], hop("fe80::2", interface));
        for (target, expected) in [
            (plain, "10.9.0.0/16 via 10.0.0.2 dev eth proto 83"),
            (by_ipv6, "10.9.0.0/16 via inet6 fe80::2 dev eth proto 83"),
            (
                several,
                "10.9.0.0/16 proto 83 nexthop via 10.0.0.2 dev eth weight 1 nexthop via inet6 fe80::2 dev eth weight 1",
            ),
            (encaps, "10.9.0.0/16 encap seg6 mode encap segs 2 [ fd01::a fd01::b ] dev eth proto 83"),
        ] {
            // Each in the place of the one before.
            netlink.add_route(&route(destination, target)).await?;
            assert_eq!(shown(), expected);
            assert_eq!(netlink.own_routes().await?, [(TABLE, net)]);
        }
        for _ in 0..2 {
            netlink.delete_route(TABLE, net).await?;
            assert_eq!(shown(), "");
        }
        Ok(())
    });
}

#[test]
fn rules_of_the_two_families_are_apart_and_deleted_together() {
    in_node("rules of IPv4", async |netlink, _| {
        let rules = || [ip_command("-4 rule show"), ip_command("-6 rule show")];
        let before = rules();
        let rule = |family| MarkRule { family, mark: 0x100, mask: 0xff00, table: 8301, priority: 830 };
        netlink.add_rule(rule(Family::V4)).await?;
        assert!(rules()[0].contains("830: from all fwmark 0x100/0xff00 iif lo lookup 8301"), "{}", rules()[0]);
        assert_eq!(rules()[1], before[1]);
        netlink.add_rule(rule(Family::V6)).await?;
        netlink.delete_rules(8301..=8316, 830).await?;
        assert_eq!(rules(), before);
        Ok(())
    });
}

#[test]
fn rules_for_marks_are_added_once_and_deleted_together() {
    in_node("rules", async |netlink, _| {
        let rule = |slot: u32| MarkRule {
            family: Family::V6,
            mark: slot << 8,
            mask: 0xff00,
            table: 8300 + slot,
            priority: 830,
        };
        let others = MarkRule { family: Family::V6, mark: 0x100, mask: 0xff00, table: 8301, priority: 831 };
        for rule in [rule(1), rule(2), rule(2), others] {
            netlink.add_rule(rule).await?;
        }
        let rules = || ip_command("-6 rule show");
        assert_eq!(
            rules(),
            "0: from all lookup local 830: from all fwmark 0x100/0xff00 iif lo lookup 8301 proto 83 \
             830: from all fwmark 0x200/0xff00 iif lo lookup 8302 proto 83 \
             831: from all fwmark 0x100/0xff00 iif lo lookup 8301 proto 83 \
             32766: from all lookup main"
        );
        for _ in 0..2 {
            netlink.delete_rules(8301..=8316, 830).await?;
            let left = "0: from all lookup local 831: from all fwmark 0x100/0xff00 iif lo lookup 8301 proto 83 \
                 32766: from all lookup main";
            assert_eq!(rules(), left);
        }
        Ok(())
    });
}

#[test]
fn a_rule_of_somebody_else_at_our_priority_stays() {
    in_node("rules of others", async |netlink, _| {
        for others in
            ["to fd00:a::/64 lookup 8301", "fwmark 0x300/0xff00 lookup 8301", "fwmark 0x300 lookup 8303 proto 98"]
        {
            ip_command(&format!("-6 rule add {others} priority 830"));
            netlink.delete_rules(8301..=8316, 830).await?;
            let left = ip_command("-6 rule show");
            assert!(left.contains(&format!("830: from all {others}")), "{left}");
        }
        // As version 0.1.0 made them.
        ip_command("-6 rule add fwmark 0x300/0xff00 lookup 8303 priority 830");
        netlink.delete_rules(8301..=8316, 830).await?;
        let left = ip_command("-6 rule show");
        assert!(!left.contains("lookup 8303 32766"), "{left}");
        Ok(())
    });
}

#[test]
fn packets_that_the_host_forwards_never_match_a_rule() {
    in_node("packets of others", async |netlink, interface| {
        for (family, flag, own, neighbour, network) in [
            (Family::V6, "-6", "fd00:ee::1", "fe80::2", "fd00:a::/64"),
            (Family::V4, "-4", "10.0.0.1", "10.0.0.2", "10.9.0.0/16"),
        ] {
            if family == Family::V4 {
                ip_command("address add 10.0.0.1/24 dev eth");
            }
            set_sysctl(if family == Family::V4 { "ipv4/ip_forward" } else { "ipv6/conf/all/forwarding" }, "1")?;
            ip_command(&format!("{flag} route add {network} via {neighbour}5 dev eth"));
            netlink.add_route(&route(network, Target::Via(vec![hop(neighbour, interface)]))).await?;
            netlink.add_rule(MarkRule { family, mark: 0x100, mask: 0xff00, table: TABLE, priority: 830 }).await?;
            let net: IpNet = network.parse().unwrap();
            let (to, stranger) = (net.hosts().nth(1).unwrap(), own.replace("::1", "::9").replace(".0.1", ".0.9"));
            let taken = |how: &str| ip_command(format!("{flag} route get {to} {how}").trim_end());
            let ours = format!("via {neighbour} ");
            assert!(!taken("").contains(&ours), "{}", taken(""));
            assert!(taken("mark 0x100").contains(&ours), "{}", taken("mark 0x100"));
            assert!(taken(&format!("mark 0x100 from {own}")).contains(&ours), "{own} is ours");
            let forwarded = taken(&format!("mark 0x100 from {stranger} iif eth"));
            assert!(forwarded.contains(&format!("via {neighbour}5 ")), "{forwarded}");
        }
        Ok(())
    });
}

#[test]
fn changes_of_rules_and_routes_are_reported_and_too_many_are_too() {
    in_node("reports of changes", async |netlink, interface| {
        let mut watch = RoutingWatch::open()?;
        let ours: IpNet = "fd00:a::/64".parse().unwrap();
        let made = route("fd00:a::/64", Target::Via(vec![hop("fe80::2", interface)]));
        netlink.add_route(&made).await?;
        let rule_made = MarkRule { family: Family::V6, mark: 0x100, mask: 0xff00, table: TABLE, priority: 830 };
        netlink.add_rule(rule_made).await?;
        ip_command("-6 route replace fd00:a::/64 via fe80::3 dev eth table 8301 proto 83");
        ip_command("-6 route del fd00:a::/64 table 8301");
        ip_command("-6 rule del priority 830");
        ip_command("-4 rule add priority 9 lookup 9");
        // Whether it is a route, is there now, and is as we made it.
        let seen = |change: &RoutingChange| match change {
            RoutingChange::Route { route, added } if route.destination() == ours => {
                Some((true, *added, route.is(&made)))
            }
            RoutingChange::Rule { rule, added } => Some((false, *added, rule.is(&rule_made.for_input(LOCAL)))),
            _ => None,
        };
        for expected in [
            (true, true, true),
            (false, true, true),
            (true, true, false),
            (true, false, false),
            (false, false, true),
            (false, true, false),
        ] {
            watch.changed(|change| seen(change) == Some(expected)).await;
        }

        // More than the socket's buffer holds.
        for number in 0..600_u32 {
            let destination = Ipv6Addr::from((0xfd00 << 112) + (0xb << 96) + (u128::from(number) << 64));
            let target = Target::Via(vec![hop("fe80::2", interface)]);
            netlink
                .add_route(&Route {
                    destination: IpNet::new(destination.into(), 64).unwrap(),
                    ..self::route("::/0", target)
                })
                .await?;
        }
        watch.changed(|change| *change == RoutingChange::Unknown).await;
        // It goes on.
        ip_command("-4 rule del priority 9");
        let is_gone = |change: &RoutingChange| matches!(change, RoutingChange::Rule { added: false, .. });
        watch.changed(is_gone).await;
        Ok(())
    });
}

#[test]
fn routes_that_are_gone_or_lead_elsewhere_are_missing() {
    in_node("missing routes", async |netlink, interface| {
        ip_command("address add 10.0.0.1/24 dev eth");
        netlink.loopback_up().await?;
        let list = vec![ip("fd01::a"), ip("fd01::b")];
        let sid = SidAction::EndB6Encaps(list.clone());
        let several = vec![hop("fe80::2", interface), hop("fe80::3", interface)];
        let installed: BTreeMap<_, _> = [
            route("fd00:1::/64", Target::Via(vec![hop("fe80::2", interface)])),
            route("fd00:2::/64", Target::Segments(list.clone(), hop("fe80::2", interface))),
            route("fd00:7::/64", Target::Segments(list.clone(), hop("fe80::2", interface))),
            route("fd00:8::/64", Target::Encaps(list.clone(), hop("fe80::2", interface))),
            route("fd00:9::/64", Target::Via(vec![hop("fe80::2", interface)])),
            Route { mtu: Some(1400), ..route("fd00:a::/64", Target::Via(vec![hop("fe80::2", interface)])) },
            Route { mtu: Some(1400), ..route("10.7.0.0/16", Target::Via(vec![hop("10.0.0.2", interface)])) },
            Route { table: MAIN_TABLE, ..route("fd01:0:1:b:0:1::/128", Target::Sid(sid, LOOPBACK)) },
            route("fd00:3::/64", Target::Throw),
            route("fd00:5::/64", Target::Unreachable),
            // No route leads to these next hops.
            route("fd00:6::/64", Target::OnLink(hop("fd77::2", interface))),
            route("10.6.0.0/16", Target::OnLink(hop("10.77.0.2", interface))),
            route("fd00:4::/64", Target::Via(several)),
            route("10.1.0.0/16", Target::Via(vec![hop("10.0.0.2", interface)])),
            route("10.2.0.0/16", Target::Via(vec![hop("fe80::2", interface)])),
            route("10.3.0.0/16", Target::Encaps(list, hop("fe80::2", interface))),
            route("10.4.0.0/16", Target::Throw),
            route("10.5.0.0/16", Target::Unreachable),
        ]
        .into_iter()
        .map(|route| ((route.table, route.destination), route))
        .collect();
        for route in installed.values() {
            netlink.add_route(route).await?;
        }
        assert_eq!(netlink.missing_routes(&installed).await?, []);
        let mut taken_away = Vec::new();
        let by = "via fe80::2 dev eth table 8301 proto 83";
        for (change, gone) in [
            ("-6 route replace fd00:1::/64 via fe80::9 dev eth table 8301 proto 83", "fd00:1::/64"),
            ("-6 route del fd00:2::/64 table 8301", "fd00:2::/64"),
            ("-6 route del throw fd00:3::/64 table 8301", "fd00:3::/64"),
            ("-6 route del fd00:4::/64 via fe80::3 dev eth table 8301", "fd00:4::/64"),
            ("-6 route del unreachable fd00:5::/64 table 8301", "fd00:5::/64"),
            ("-6 route replace fd00:6::/64 via fd77::3 dev eth onlink table 8301 proto 83", "fd00:6::/64"),
            ("-4 route replace throw 10.5.0.0/16 table 8301 proto 83", "10.5.0.0/16"),
            ("-4 route replace 10.1.0.0/16 via 10.0.0.9 dev eth table 8301 proto 83", "10.1.0.0/16"),
            ("-4 route del 10.3.0.0/16 table 8301", "10.3.0.0/16"),
            ("-4 route replace 10.4.0.0/16 via 10.0.0.9 dev eth table 8301", "10.4.0.0/16"),
            (&format!("-6 route replace fd00:7::/64 encap seg6 mode inline segs fd01::c {by}"), "fd00:7::/64"),
            (&format!("-6 route replace fd00:8::/64 encap seg6 mode encap segs fd01::b,fd01::a {by}"), "fd00:8::/64"),
            (&format!("-6 route replace fd00:9::/64 mtu 1300 {by}"), "fd00:9::/64"),
            (&format!("-6 route replace fd00:a::/64 {by}"), "fd00:a::/64"),
            ("-4 route replace 10.7.0.0/16 mtu 1450 via 10.0.0.2 dev eth table 8301 proto 83", "10.7.0.0/16"),
        ] {
            ip_command(change);
            taken_away.push((TABLE, gone.parse::<IpNet>().unwrap()));
            taken_away.sort();
            assert_eq!(netlink.missing_routes(&installed).await?, taken_away, "after {change}");
        }
        let end = "action End.B6.Encaps srh segs fd01::a dev lo table main proto 83";
        ip_command(&format!("-6 route replace local fd01:0:1:b:0:1::/128 encap seg6local {end}"));
        assert_eq!(netlink.missing_routes(&installed).await?.len(), taken_away.len() + 1, "another list of a SID");

        // Exactly one of several to a destination goes.
        ip_command(&format!("-6 route add fd00:3::/64 metric 5 {by}"));
        let others = netlink.present_routes().await?.into_iter().filter(|route| {
            route.destination() == "fd00:3::/64".parse().unwrap()
                && !route.is(&installed[&(TABLE, route.destination())])
        });
        for other in others {
            netlink.delete_present(&other).await?;
        }
        assert_eq!(ip_command("-6 route show table 8301").matches("metric 5 ").count(), 0);
        Ok(())
    });
}

#[test]
fn default_routes_are_read_with_all_of_their_next_hops_and_watched() {
    in_node("default routes", async |netlink, interface| {
        ip_command("address add 10.0.0.1/24 dev eth");
        ip_command("-4 route add default via inet6 fe80::2 dev eth metric 7");
        ip_command("route add default dev eth metric 8");
        ip_command("route add default via 10.0.0.9 dev eth table 99");
        ip_command("route add unreachable default metric 9");
        ip_command("-6 route add default metric 5 nexthop via fe80::3 dev eth nexthop via fe80::4 dev eth");
        let mut found = netlink.default_routes().await?;
        found.sort_by_key(|route| (route.family, route.metric, route.hop.via));
        let of = |family, metric, via: Option<&str>| {
            let via = via.map(|via| via.parse().unwrap());
            DefaultRoute { family, metric, hop: NextHop { via, interface } }
        };
        let expected = [
            of(Family::V4, 7, Some("fe80::2")),
            of(Family::V4, 8, None),
            of(Family::V6, 5, Some("fe80::3")),
            of(Family::V6, 5, Some("fe80::4")),
        ];
        assert_eq!(found, expected);

        let mut watch = LinkWatch::open()?;
        let wait = Duration::from_millis(200);
        // The interface's own address may still come.
        while timeout(wait, watch.changed()).await.is_ok() {}
        ip_command("-6 route add fd00:b::/64 via fe80::2 dev eth");
        ip_command("-6 route add default via fe80::2 dev eth table 8301 proto 83");
        assert!(timeout(wait, watch.changed()).await.is_err(), "other routes come and go all the time, and ours");
        ip_command("-6 route add default via fe80::2 dev eth table 98");
        assert!(timeout(wait * 20, watch.changed()).await.is_ok(), "a default route of a table of others");
        ip_command("route replace default via 10.0.0.2 dev eth metric 7");
        assert!(timeout(wait * 20, watch.changed()).await.is_ok(), "a default route");
        Ok(())
    });
}

#[test]
fn routes_within_prefixes_are_those_of_the_main_table_that_are_more_specific() {
    in_node("routes within prefixes", async |netlink, _| {
        ip_command("address add 10.0.0.1/24 dev eth");
        for route in ["-6 route add fd00:a::/48 via fe80::2 dev eth", "-4 route add unreachable 10.3.0.0/16"] {
            ip_command(route);
        }
        ip_command("-6 route add fd00:a:1::/64 via fe80::2 dev eth table 7");
        let within = async |prefixes: &[&str]| {
            let prefixes: Vec<IpNet> = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
            let found = netlink.inner_routes(&prefixes).await?;
            Ok::<_, LinuxError>(
                found.iter().map(|one| (one.destination.to_string(), one.connected)).collect::<Vec<_>>(),
            )
        };
        let six = [("fd00:a::/48".to_string(), false), ("fd00:ee::/64".into(), true), ("fe80::/64".into(), true)];
        assert_eq!(within(&["::/0"]).await?, six);
        assert_eq!(within(&["0.0.0.0/0"]).await?, [("10.0.0.0/24".into(), true), ("10.3.0.0/16".into(), false)]);
        assert_eq!(within(&["::/0", "fd00:a::/48"]).await?, six[1..], "it has paths by its name");
        assert_eq!(within(&["fd00:a::/48", "fd00:ee::/64", "fd00:ee::/65", "10.3.1.0/24"]).await?, []);
        Ok(())
    });
}

#[test]
fn marks_that_rules_of_others_look_at_or_change_are_read() {
    in_node("marks of others", async |netlink, _| {
        assert!(MarkUses::read(netlink).await?.rules.is_empty());
        ip_command("-4 rule add fwmark 0x200/0xf00 lookup 2004 priority 9");
        netlink
            .add_rule(MarkRule { family: Family::V6, mark: 0x100, mask: 0xff00, table: TABLE, priority: 830 })
            .await?;
        let share = |mark| Share { mark, weight: 1, sources: Vec::new(), unnamed: false };
        let draw = Draw { destination: "fd00:a::/64".parse().unwrap(), shares: vec![share(0x100), share(0x200)] };
        for name in ["foreign", "sidestep-8300"] {
            DrawTable::open(name, 0xff00)?.replace(std::slice::from_ref(&draw))?;
        }
        let uses = MarkUses::read(netlink).await?;
        assert_eq!(
            uses.rules.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["9: from all fwmark 0x200/0xf00 lookup 2004"]
        );
        let places: Vec<_> = uses.filters.iter().map(|filter| filter.place.as_str()).collect();
        assert!(!places.is_empty() && places.iter().all(|place| place.starts_with("inet foreign ")), "{places:?}");
        let changes = |filter: &FilterUse| matches!(filter.action, MarkAction::Changed(bits) if bits & 0xff00 != 0);
        assert!(uses.filters.iter().any(changes), "{:?}", uses.filters);
        let collisions = uses.collisions(0xff00, 63);
        assert_eq!(collisions.iter().filter(|collision| collision.misroutes).count(), 1, "{collisions:?}");
        assert!(collisions.iter().any(|collision| collision.with.contains("inet foreign")), "{collisions:?}");
        assert!(uses.collisions(0x3f00_0000, 63).iter().all(|collision| !collision.misroutes));
        Ok(())
    });
}

#[test]
fn rules_of_both_kinds_of_iptables_are_read_and_no_table_is_made() {
    let programs = ["iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft"];
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    if let Some(missing) = programs.iter().find(|program| !is_there(program)) {
        println!("skipped: there is no {missing} (Debian's package iptables)");
        return;
    }
    in_node("rules of iptables", async |netlink, _| {
        let tables = || {
            let of = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
            of("ip_tables_names") + &of("ip6_tables_names")
        };
        assert_eq!(MarkUses::read(netlink).await?.filters, []);
        assert_eq!(tables(), "", "nobody has asked for one");
        for program in programs {
            for rule in [
                "-A OUTPUT -p tcp -m mark --mark 0x1000000/0xff000000 -j MARK --set-xmark 0x2000000/0xf000000",
                "-N mine",
                "-A mine -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
                "-A mine -j CONNMARK --save-mark --nfmask 0xff00 --ctmask 0xff00",
            ] {
                let mut command = Command::new(program);
                let made = command.args(["-t", "mangle"]).args(rule.split(' ')).output().unwrap();
                assert!(made.status.success(), "{program} {rule}: {made:?}");
            }
        }
        assert_eq!(MarkUses::read(netlink).await?.masqueraded(), []);
        for (count, program) in programs.into_iter().enumerate() {
            let rule = "-t nat -A POSTROUTING -o eth7 -j MASQUERADE";
            let made = Command::new(program).args(rule.split(' ')).output().unwrap();
            assert!(made.status.success(), "{program} {rule}: {made:?}");
            assert_eq!(MarkUses::read(netlink).await?.masqueraded().len(), (count + 1).min(2), "{program}");
        }
        let mut uses = MarkUses::read(netlink).await?;
        assert_eq!(uses.unseen, [""; 0]);
        let masquerade = |filter: &FilterUse| filter.action == MarkAction::Masquerades;
        let found: Vec<_> =
            uses.filters.extract_if(.., |filter| masquerade(filter)).map(|one| one.to_string()).collect();
        let places = ["iptables in nat", "ip6tables in nat", "nf_tables in ip nat", "nf_tables in ip6 nat"];
        assert_eq!(found, places.map(|place| format!("a rule of {place} POSTROUTING, which masquerades")));
        let found: Vec<_> = uses.filters.iter().map(ToString::to_string).collect();
        let places = ["iptables in mangle", "ip6tables in mangle", "nf_tables in ip mangle", "nf_tables in ip6 mangle"];
        let expected = places.iter().flat_map(|place| {
            [
                format!("a rule of {place} OUTPUT, which looks for the mark 0x1000000/0xff000000"),
                format!("a rule of {place} OUTPUT, which changes the bits 0xf000000"),
                format!("a rule of {place} mine, which restores the bits 0xff from the connection's mark"),
            ]
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(uses.free_mask(), Some(0x00fc_0000));
        Ok(())
    });
}

#[test]
fn a_refusal_names_what_was_attempted_and_why() {
    in_node("refused requests", async |netlink, interface| {
        let error = async |netlink: &Netlink, route: Route| netlink.add_route(&route).await.unwrap_err();
        let nowhere = route("fd00:a::/64", Target::Via(vec![hop("fe80::2", interface + 999)]));
        let error_text = error(netlink, nowhere).await.to_string();
        assert_eq!(error_text, "adding a route to fd00:a::/64 in table 8301: No such device (os error 19)");
        let unreachable = route("fd00:a::/64", Target::Via(vec![hop("fd00:77::1", interface)]));
        let refusal = error(netlink, unreachable).await;
        assert!(matches!(refusal, LinuxError::Refused { .. }), "{refusal}");
        assert!(!refusal.is_environment());
        let missing = netlink.index_of("nosuch").await.unwrap_err().to_string();
        assert_eq!(missing, "looking up interface nosuch: No such device (os error 19)");
        Ok(())
    });
}

#[test]
fn without_the_privilege_the_error_says_which_is_needed() {
    if !root_or_skip("a thread without privileges") {
        return;
    }
    let attempt = NetNs::create().unwrap().run(|| {
        // SAFETY: a system call without pointers. It changes this thread only, which ends with `run`.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(dropped, 0);
        netlink::block_on(async |netlink| netlink.loopback_up().await)
    });
    let error = attempt.unwrap_err();
    assert!(matches!(error, LinuxError::Privilege { .. }) && error.is_environment(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "bringing the loopback interface up: not permitted: this process lacks CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; run as \
         root, or with these"
    );
}

/// Runs `test` in a namespace with one interface `eth`, which has the address `fd00:ee::1/64`.
fn in_node(what: &str, test: impl AsyncFnOnce(&Netlink, u32) -> Result<()> + Send) {
    if !root_or_skip(what) {
        return;
    }
    let inside = || {
        set_sysctl("ipv6/conf/default/accept_dad", "0")?;
        let _tap = Tap::create("eth", 10)?;
        netlink::block_on(async |netlink| {
            let interface = netlink.index_of("eth").await?;
            netlink.bring_up(interface, 1500, [2, 0, 0, 0, 0, 1]).await?;
            netlink.add_address(interface, ip("fd00:ee::1"), 64).await?;
            test(netlink, interface).await
        })
    };
    NetNs::create().unwrap().run(inside).unwrap();
}

fn route(destination: &str, target: Target) -> Route {
    Route { table: TABLE, destination: destination.parse().unwrap(), target, mtu: None }
}

fn hop(via: &str, interface: u32) -> NextHop {
    NextHop { via: Some(via.parse().unwrap()), interface }
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn routes(table: u32) -> String {
    ip_command(&format!("-6 route show table {table}"))
}

/// What iproute2 prints, in one line.
fn ip_command(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}
