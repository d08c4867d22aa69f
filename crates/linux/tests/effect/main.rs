//! Rules and routes of others that come before ours are found by their effect, and named.

mod marks;

use std::time::Duration;

use sidestep_linux::{
    Result,
    effect::{Checker, Expected, Override},
    netlink::{Family, MarkRule, Netlink, NextHop, Route, Target, block_on},
    netns::NetNs,
    testing::{cable, eventually, ip, root_or_skip, try_ip},
};

const TABLE: u32 = 8301;
const PRIORITY: u32 = 8300;
const MARK: u32 = 0x100_0000;
const MASK: u32 = 0x3f00_0000;

/// Runs `work` in a host with the interfaces wan0 (10.9.0.0/24, 2001:db8:90::/64), wan1, tun and site, at which nothing answers.
fn in_host(what: &str, work: impl FnOnce(&NetNs) -> Result<()>) {
    if !root_or_skip(what) {
        return;
    }
    let (host, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    for name in ["lo", "all", "default"] {
        let conf = |text: &str| format!("/proc/sys/net/{text}");
        host.run(|| {
            std::fs::write(conf(&format!("ipv4/conf/{name}/rp_filter")), "0").unwrap();
            std::fs::write(conf(&format!("ipv6/conf/{name}/forwarding")), "1").ok();
            std::fs::write(conf("ipv4/ip_forward"), "1").unwrap();
            Ok(())
        })
        .unwrap();
    }
    ip(&host, "link set lo up");
    for (number, name) in ["wan0", "wan1", "tun", "site"].into_iter().enumerate() {
        let (v4, v6) = (format!("10.9.{number}"), format!("2001:db8:9{number}"));
        cable((&host, name), (&far, &format!("far{number}")), &v4, &v6);
    }
    // An interface without carrier has no routes yet.
    eventually("wan1 is up", Duration::from_secs(10), || try_ip(&host, "-6 route get 2001:db8:91::7 oif wan1"));
    for route in ["route add default via 10.9.1.2", "-6 route add default via 2001:db8:91::2"] {
        ip(&host, route);
    }
    work(&host).unwrap();
}

fn destination(family: Family) -> &'static str {
    if family == Family::V4 { "10.2.0.0/16" } else { "2001:db8:2::/48" }
}

fn via(family: Family) -> &'static str {
    if family == Family::V4 { "10.9.0.2" } else { "2001:db8:90::2" }
}

/// Our rule and our route by wan0, of one family.
async fn install(netlink: &Netlink, family: Family) -> Result<Expected> {
    let (destination, via) = (destination(family).parse().unwrap(), via(family).parse().unwrap());
    let hop = NextHop { via: Some(via), interface: netlink.index_of("wan0").await? };
    netlink.add_rule(MarkRule { family, mark: MARK, mask: MASK, table: TABLE, priority: PRIORITY }).await?;
    netlink.add_route(&Route { table: TABLE, destination, target: Target::Via(vec![hop]), mtu: None }).await?;
    let address = if family == Family::V4 { "10.9.0.1/32" } else { "2001:db8:90::1/128" };
    Ok(Expected {
        destination,
        except: Vec::new(),
        sources: vec![address.parse().unwrap()],
        mark: MARK,
        input: None,
        output: None,
        protocol: 6,
        hops: vec![hop],
        by_table_only: false,
        table: TABLE,
        priority: PRIORITY,
    })
}

fn check(host: &NetNs, expected: &Expected) -> Result<Option<Override>> {
    host.run(|| block_on(async |netlink| Checker::new(netlink).await?.check(expected).await))
}

/// What is reported of each change, which is undone afterwards. A change is several commands of `ip`, as `V4` and `V6` need them.
fn said(host: &NetNs, family: Family, expected: &Expected, commands: &str) -> String {
    let four = family == Family::V4;
    let flag = if four { "-4" } else { "-6" };
    let words = |command: &str| {
        let command = command
            .trim()
            .replace("DST", destination(family))
            .replace("PART", if four { "10.2.3.0/24" } else { "2001:db8:2:3::/64" });
        let command = command.replace("FAR", if four { "10.9.2.2" } else { "2001:db8:92::2" });
        let command =
            command.replace("SRC", if four { "10.9.0.1" } else { "2001:db8:90::1" }).replace("VIA", via(family));
        format!("{flag} {command}")
    };
    for command in commands.split(';') {
        ip(host, &words(command));
    }
    let said = check(host, expected).unwrap().map_or_else(|| "nothing".into(), |found| found.to_string());
    for command in commands.split(';').rev() {
        ip(host, &words(command).replacen(" add ", " del ", 1));
    }
    said
}

const WG_QUICK: &str = "route add default dev tun table 51820; rule add not fwmark 51820 table 51820; \
                        rule add table main suppress_prefixlength 0";

#[test]
fn a_rule_or_route_that_comes_before_ours_is_named_with_what_it_does() {
    in_host("rules before ours", |host| {
        for family in Family::ALL {
            let expected = host.run(|| block_on(async |netlink| install(netlink, family).await))?;
            let said = |commands| said(host, family, &expected, commands);
            assert_eq!(check(host, &expected)?, None);
            for (commands, words) in [
                (
                    WG_QUICK,
                    "leave by tun: the rule `8299: not from all fwmark 0xca6c lookup 51820`, such as wg-quick makes, comes before ours at 8300, and leads by the route `default dev tun",
                ),
                (
                    "route add default via FAR table 100; rule add pref 9 lookup 100",
                    "leave by tun: the rule `9: from all lookup 100` comes before ours",
                ),
                (
                    "route add default via FAR table 100; rule add pref 9 fwmark 0x1000000/0x1000000 iif lo lookup 100",
                    "the rule `9: from all fwmark 0x1000000/0x1000000 iif lo lookup 100`",
                ),
                (
                    "route add default via FAR table 100; rule add pref 9 uidrange 1000-1999 lookup 100",
                    "(those of the users 1000 to 1999) leave by tun: the rule `9: from all uidrange 1000-1999 lookup 100`",
                ),
                (
                    "route add default via FAR table 100; rule add pref 9 ipproto tcp dport 443 lookup 100",
                    "of protocol 6 of the ports 443 to 443) leave by tun: the rule `9:",
                ),
                ("route add default via FAR table 100; rule add pref 9 from SRC lookup 100", "from "),
                (
                    "route add default via FAR table 100; rule add pref 9 to PART lookup 100",
                    " leave by tun: the rule `9: from all to ",
                ),
                (
                    "route add PART via FAR table 100; rule add pref 9 lookup 100",
                    " leave by tun: the rule `9: from all lookup 100`",
                ),
                (
                    "rule add pref 9 fwmark 0x1000000/0x3f000000 goto 9000; rule add pref 9000 nop",
                    "leave by wan1: the rule `9: from all fwmark 0x1000000/0x3f000000 goto 9000` comes before ours",
                ),
                (
                    "rule add pref 9 unreachable",
                    "are refused (unreachable): the rule `9: from all unreachable` comes before ours at 8300",
                ),
                ("rule add pref 9 prohibit", "are refused (prohibit): the rule `9: from all prohibit`"),
                (
                    "route add prohibit DST table 100; rule add pref 9 lookup 100",
                    "are refused (prohibit): the rule `9: from all lookup 100` comes before ours at 8300, and leads by the route `prohibit ",
                ),
                ("route add PART via FAR table 8301", "leave by tun: the route `"),
                (
                    "route add DST via FAR table local",
                    "leave by tun: the rule `0: from all lookup local` comes before ours",
                ),
                (
                    "route add default via FAR table 100; rule add pref 9 lookup 100 suppress_prefixlength 0; rule add pref 10 lookup 100",
                    "the rule `10: from all lookup 100`",
                ),
            ] {
                let said = said(commands);
                assert!(said.contains(words), "{family}, {commands}: {said}");
            }
            if family == Family::V6 {
                // Of IPv4 there cannot be one: ours has no metric.
                let said = said("route add DST via FAR table 8301 metric 1");
                assert!(said.contains("metric 1` of table 8301, which is not ours, is preferred to ours"), "{said}");
            }
        }
        // What is asked about lies in the first half: that is not all.
        let expected = host.run(|| block_on(async |netlink| install(netlink, Family::V4).await))?;
        let half = said(host, Family::V4, &expected, "rule add pref 9 to 10.2.0.0/17 prohibit");
        assert!(half.starts_with("(those to 10.2.0.0/17) are refused"), "{half}");
        Ok(())
    });
}

#[test]
fn rules_that_change_nothing_for_our_packets_are_not_blamed() {
    in_host("harmless rules", |host| {
        for family in Family::ALL {
            let expected = host.run(|| block_on(async |netlink| install(netlink, family).await))?;
            for commands in [
                "route add default via FAR table 100; rule add pref 9000 lookup 100",
                "rule add pref 9 lookup main suppress_prefixlength 0",
                "route add default via FAR table 100; rule add pref 9 fwmark 5 lookup 100",
                "route add default via FAR table 100; rule add pref 9 fwmark 0x2000000/0x3f000000 lookup 100",
                "route add default via FAR table 100; rule add pref 9 iif site lookup 100",
                "route add default via FAR table 100; rule add pref 9 oif tun lookup 100",
                "route add default via FAR table 100; rule add pref 9 ipproto udp lookup 100",
                "route add DST via VIA dev wan0 table 100; rule add pref 9 lookup 100",
                "route add throw default table 100; rule add pref 9 lookup 100",
                "rule add pref 9 lookup 101; rule add pref 10 nop; rule add pref 11 goto 8300",
                "route add default via FAR table 100; rule add pref 9 not fwmark 0x1000000/0x3f000000 lookup 100",
            ] {
                assert_eq!(said(host, family, &expected, commands), "nothing", "{family}: {commands}");
            }
        }
        Ok(())
    });
}

#[test]
fn packets_that_are_forwarded_and_probes_that_are_bound_are_asked_about_as_they_are() {
    in_host("forwarded packets and probes", |host| {
        for family in Family::ALL {
            let (site, wan) = host.run(|| {
                block_on(async |netlink| Ok((netlink.index_of("site").await?, netlink.index_of("wan0").await?)))
            })?;
            let own = host.run(|| block_on(async |netlink| install(netlink, family).await))?;
            let subnet = if family == Family::V4 { "10.9.3.0/24" } else { "2001:db8:93::/64" };
            let forwarded =
                Expected { input: Some(site), sources: vec![subnet.parse().unwrap()], protocol: 0, ..own.clone() };
            let bound = Expected { output: Some(wan), sources: Vec::new(), ..own.clone() };
            // Ours is for packets of this host: for those that come in there has to be another.
            host.run(|| {
                block_on(async |netlink| {
                    let rule = MarkRule { family, mark: MARK, mask: MASK, table: TABLE, priority: PRIORITY };
                    netlink.add_route_rule(&rule.for_input("site")).await
                })
            })?;
            assert_eq!((check(host, &forwarded)?, check(host, &bound)?), (None, None), "{family}");
            let of = |expected, commands| said(host, family, expected, commands);
            assert!(of(&forwarded, WG_QUICK).contains("not from all fwmark 0xca6c lookup 51820"));
            assert_eq!(of(&bound, WG_QUICK), "nothing", "its table has no route by wan0");
            let by_input = "route add default via FAR table 100; rule add pref 9 iif site lookup 100";
            assert!(of(&forwarded, by_input).contains("leave by tun: the rule `9: from all iif site lookup 100`"));
            let by_source = format!("route add default via FAR table 100; rule add pref 9 from {subnet} lookup 100");
            assert!(of(&forwarded, &by_source).contains("lookup 100` comes before ours"));
            let by_output = "rule add pref 9 oif wan0 prohibit";
            assert!(of(&bound, by_output).contains("the rule `9: from all oif wan0 prohibit`"));
            assert_eq!(of(&forwarded, "rule add pref 9 uidrange 1000-1999 prohibit"), "nothing", "none is a user's");
        }
        Ok(())
    });
}
