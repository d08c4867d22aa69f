//! What is read of routes, and watched.

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use ipnet::IpNet;
use sidestep_linux::{
    LinuxError,
    netlink::{
        DefaultRoute, Family, LOCAL, LOOPBACK, LinkWatch, MAIN_TABLE, MarkRule, NextHop, Route, RoutingChange,
        RoutingWatch, SidAction, Target,
    },
};
use tokio::time::timeout;

use crate::support::{TABLE, hop, in_node, ip, ip_command, route};

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
