//! Routes: to next hops, by segments, and by SIDs; in both families.

use std::{
    collections::BTreeMap,
    net::Ipv6Addr,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use nix::unistd::{read, write};
use sidestep_linux::{
    netlink::{self, BindingSids, BoundSid, Family, LOOPBACK, MAIN_TABLE, MarkRule, NextHop, Route, SidAction, Target},
    netns::{NetNs, set_sysctl},
    tap::Tap,
    testing::root_or_skip,
};

use crate::support::{TABLE, hop, in_node, ip, ip_command, route, routes};

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
