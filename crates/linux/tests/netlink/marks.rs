//! Marks that rules of others look at or change.

use std::process::Command;

use sidestep_linux::{
    marks::{FilterUse, MarkAction, MarkUses},
    netlink::{Family, MarkRule},
    nftables::{Draw, DrawTable, Share},
};

use crate::support::{TABLE, in_node, ip_command};

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
        assert_eq!(tables(), "", "no program has asked for one");
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
