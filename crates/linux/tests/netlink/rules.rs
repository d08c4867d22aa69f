//! Rules: added once, deleted together, and beside those of others.

use ipnet::IpNet;
use sidestep_linux::{
    netlink::{Family, MarkRule, Target},
    netns::set_sysctl,
};

use crate::support::{TABLE, hop, in_node, ip_command, route};

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
fn a_rule_of_another_program_at_our_priority_stays() {
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
