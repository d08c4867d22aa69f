//! What leads packets elsewhere than decided is named, and firewalls that restore whole marks are.

use std::process::Command;

use sidestep_linux::testing::root_or_skip;

use super::net::{Net, eventually, file, ip};

#[test]
fn rules_that_come_before_the_decision_are_named_while_they_do() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    assert_eq!(net.status().overridden, []);
    ip(&net.edge, "link add vpn0 type veth peer name vpn1");
    for command in ["link set vpn0 up", "link set vpn1 up"] {
        ip(&net.edge, command);
    }
    // A VPN's rules, without a priority, as those of wg-quick.
    for family in ["-4", "-6"] {
        ip(&net.edge, &format!("{family} route add default dev vpn0 table 51820"));
        ip(&net.edge, &format!("{family} rule add not fwmark 51820 table 51820"));
    }
    let all = || {
        let found = net.status().overridden;
        let of = |what: &str| found.iter().any(|one| one.what == what && one.leaves_by.as_deref() == Some("vpn0"));
        (of("the site to 0.0.0.0/0") && of("the site to ::/0")).then_some(found)
    };
    let found = eventually("the VPN's rules are named", all);
    assert!(
        found.iter().all(|one| one.rule.as_deref() == Some("8499: not from all fwmark 0xca6c lookup 51820")),
        "{found:?}"
    );
    assert!(found.iter().all(|one| !one.what.starts_with("probes")), "probes are bound to their interface: {found:?}");
    for family in ["-4", "-6"] {
        ip(&net.edge, &format!("{family} rule del not fwmark 51820 table 51820"));
    }
    eventually("they are gone", || net.status().overridden.is_empty().then_some(()));
    // Nothing reports it, but for the route itself: the table is looked in before ours.
    ip(&net.edge, "rule add pref 9 lookup 100");
    ip(&net.edge, "route add 10.2.0.0/16 dev vpn0 table 100");
    let part =
        || net.status().overridden.into_iter().find(|one| one.what.starts_with("the site")).and_then(|one| one.part);
    assert_eq!(eventually("a part is named", part), "to 10.2.0.0/16");
    ip(&net.edge, "rule del pref 9 lookup 100");
    ip(&net.edge, "rule add pref 9 oif p1 prohibit");
    let probes = || net.status().overridden.into_iter().find(|one| one.what == "probes of second");
    let found = eventually("stolen probes are named", probes);
    assert!(found.why.contains("oif p1 prohibit"), "{found:?}");
}

#[test]
fn a_firewall_that_restores_whole_marks_is_named_until_it_spares_ours() {
    if !root_or_skip("route control") {
        return;
    }
    let net = Net::new();
    let _control = net.control(&file(""));
    net.until_fine();
    let nft = |hook: &str, rules: &[String]| {
        let rules = rules.iter().map(|rule| format!("add rule inet fw c {rule}; ")).collect::<String>();
        let text = format!(
            "add table inet fw; delete table inet fw; add table inet fw; add chain inet fw c {{ type {hook} priority mangle; }}; {rules}"
        );
        let run = || Ok(Command::new("nft").arg(text).output().expect("nft is installed"));
        let output = net.edge.run(run).unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let whole = ["ct mark != 0 meta mark set ct mark".to_string(), "ct mark set meta mark".to_string()];
    nft("route hook output", &whole);
    let found = eventually("a restored mark", || net.status().restored.into_iter().next());
    assert!(found.rule.contains("inet fw c"), "{found:?}");
    nft("route hook output", &found.instead);
    eventually("the advice was followed", || net.status().restored.is_empty().then_some(()));
    nft("filter hook prerouting", &whole);
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert_eq!(net.status().restored, [], "packets of the site have no marks of ours");
}
