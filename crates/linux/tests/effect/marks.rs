//! Firewalls that restore marks of connections: which of them undo a change of a socket's mark, that these are found, and that what
//! the advice for them helps.

use std::{
    io::Write,
    net::{SocketAddr, UdpSocket},
    process::{Command, Stdio},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt::Mark};
use sidestep_linux::{
    Result,
    marks::{Hook, MarkUses},
    netlink::{Family, MarkRule, NextHop, Route, Target, block_on},
    netns::NetNs,
    testing::eventually,
};

use super::{MARK, MASK, TABLE, destination, in_host};

/// The mark of the second path, by wan1.
const OTHER: u32 = 0x200_0000;
const WHOLE: &str = "ct mark != 0 meta mark set ct mark\nct mark set meta mark\n";

/// Rules for packets of both marks.
fn install(host: &NetNs) -> Result<()> {
    let routes = async |netlink: &sidestep_linux::netlink::Netlink| {
        for family in Family::ALL {
            for (mark, number) in [(MARK, 0), (OTHER, 1)] {
                let table = TABLE + number;
                netlink.add_rule(MarkRule { family, mark, mask: MASK, table, priority: super::PRIORITY }).await?;
                let via =
                    if family == Family::V4 { format!("10.9.{number}.2") } else { format!("2001:db8:9{number}::2") };
                let interface = netlink.index_of(&format!("wan{number}")).await?;
                let target = Target::Via(vec![NextHop { via: via.parse().ok(), interface }]);
                let destination = destination(family).parse().unwrap();
                netlink.add_route(&Route { table, destination, target, mtu: None }).await?;
            }
        }
        Ok(())
    };
    host.run(|| block_on(routes))
}

fn nft(host: &NetNs, text: &str) {
    let run = || {
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft");
        nft.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "{text}");
        Ok(())
    };
    host.run(run).unwrap();
}

fn run(host: &NetNs, program: &str, rule: &str) {
    let run = || Ok(Command::new(program).args(rule.split_whitespace()).output().expect("iptables"));
    let output = host.run(run).unwrap();
    assert!(output.status.success(), "{program} {rule}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The bytes that left by wan0 and by wan1.
fn sent(host: &NetNs) -> [u64; 2] {
    let read = async |netlink: &sidestep_linux::netlink::Netlink| {
        let all = netlink.interfaces().await?;
        Ok(["wan0", "wan1"].map(|name| all.iter().find(|one| one.name == name).map_or(0, |one| one.tx_bytes)))
    };
    host.run(|| block_on(read)).unwrap()
}

/// Whether a flow of each family leaves by the path of its mark, and by the other one once it has that one's mark.
fn moves(host: &NetNs) -> [bool; 2] {
    Family::ALL.map(|family| {
        let (source, target) = match family {
            Family::V4 => ("10.9.0.1:0", "10.2.0.1:9"),
            Family::V6 => ("[2001:db8:90::1]:0", "[2001:db8:2::1]:9"),
        };
        let socket = host.run(|| Ok(UdpSocket::bind(source).unwrap())).unwrap();
        let target: SocketAddr = target.parse().unwrap();
        let send = |mark| {
            setsockopt(&socket, Mark, &mark).unwrap();
            let before = sent(host);
            for _ in 0..5 {
                socket.send_to(&[0; 1000], target).unwrap();
            }
            // The first ones wait until the neighbour is found.
            eventually("packets leave", Duration::from_secs(10), || {
                let after = sent(host);
                let by = [0, 1].map(|number| after[number] - before[number] > 4_000);
                by.contains(&true).then_some(by)
            })
        };
        // Without any mark it would take the second path from the start.
        send(MARK) == [true, false] && send(OTHER) == [false, true]
    })
}

/// The rules that are found to restore marks of packets of the host, and what to put in their place.
fn found(host: &NetNs) -> (Vec<String>, Vec<Vec<String>>) {
    let read = || {
        let mut uses = MarkUses::default();
        uses.read_filters();
        assert_eq!(uses.unseen, [""; 0]);
        let met: Vec<_> = uses.collisions(MASK, 63).into_iter().map(|one| one.with).collect();
        assert_eq!(met, [""; 0], "nothing else is said of them");
        let all = uses.restorers(MASK, &[Hook::Rerouted]);
        Ok((all.iter().map(ToString::to_string).collect(), all.iter().map(|one| one.replacement(MASK)).collect()))
    };
    host.run(read).unwrap()
}

fn chain(kind: &str, rules: &str) -> String {
    format!("flush ruleset\ntable inet fw {{\n chain other {{ }}\n chain c {{\n type {kind}\n{rules}\n }}\n}}\n")
}

const ROUTE: &str = "route hook output priority mangle";

#[test]
fn what_nf_tables_restores_is_found_where_it_undoes_a_move_and_the_advice_helps() {
    in_host("marks that nf_tables restores", |host| {
        install(host)?;
        assert_eq!((moves(host), found(host).0.len()), ([true; 2], 0));
        nft(host, &chain(ROUTE, WHOLE));
        assert_eq!(moves(host), [false; 2], "all of its bits are restored");
        let (rules, advice) = found(host);
        assert_eq!(
            rules,
            ["a rule of nf_tables in inet fw c, which restores the bits 0xffffffff from the connection's mark"]
        );
        nft(host, &chain(ROUTE, &advice[0].join("\n")));
        assert_eq!((moves(host), found(host).0.len()), ([true; 2], 0), "as it is told to be");
        // What the firewall itself marks is restored as before.
        let marked = format!("udp dport 9 ct mark set 0x5\n{}\nmeta mark and 0x5 == 0x5 counter", advice[0].join("\n"));
        nft(host, &chain(ROUTE, &marked));
        assert_eq!(moves(host), [true; 2]);
        let listed = host.run(|| Ok(Command::new("nft").args(["list", "ruleset"]).output().unwrap())).unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains("counter packets 20 "), "each packet has the mark of its connection: {listed}");
        Ok(())
    });
}

#[test]
fn only_what_undoes_a_move_is_found() {
    in_host("rules that restore marks, and some that do not", |host| {
        install(host)?;
        let quarters =
            "ct mark and 0xff != 0 meta mark set meta mark and 0xffffff00 or 0x7\nct mark set meta mark and 0xc0ffffff";
        for (text, undoes) in [
            (chain(ROUTE, "meta mark set ct mark\nct mark set meta mark"), true),
            (chain(ROUTE, "jump other").replace("other { }", &format!("other {{ {WHOLE} }}")), true),
            (
                chain(ROUTE, "meta l4proto vmap { udp : jump other }")
                    .replace("other { }", &format!("other {{ {WHOLE} }}")),
                true,
            ),
            (chain("filter hook prerouting priority mangle", WHOLE), false),
            (chain("filter hook output priority mangle", WHOLE), false),
            (chain("filter hook postrouting priority mangle", WHOLE), false),
            (chain(ROUTE, "counter").replace("other { }", &format!("other {{ {WHOLE} }}")), false),
            (chain(ROUTE, quarters), false),
            (chain(ROUTE, &format!("meta mark and 0x3f000000 != 0 return\n{WHOLE}")), false),
            (
                chain(ROUTE, "meta mark and 0x3f000000 == 0 ct mark != 0 meta mark set ct mark\nct mark set meta mark"),
                false,
            ),
            (
                chain(ROUTE, "meta mark and 0x3f000000 == 0 jump other")
                    .replace("other { }", &format!("other {{ {WHOLE} }}")),
                false,
            ),
        ] {
            nft(host, &text);
            assert_eq!(moves(host), [!undoes; 2], "{text}");
            assert_eq!(found(host).0.len(), usize::from(undoes), "{text}: {:?}", found(host));
        }
        Ok(())
    });
}

#[test]
fn what_iptables_restores_is_found_where_it_undoes_a_move_and_the_advice_helps() {
    let kinds = [("iptables-legacy", "ip6tables-legacy"), ("iptables-nft", "ip6tables-nft")];
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if let Some((missing, _)) = kinds.iter().find(|(program, other)| !is_there(program) || !is_there(other)) {
        println!("skipped: there is no {missing} (Debian's package iptables)");
        return;
    }
    for (four, six) in kinds {
        in_host("marks that iptables restores", |host| {
            install(host)?;
            let both = |rule: &str| [four, six].iter().for_each(|program| run(host, program, rule));
            for (begin, undoes) in [
                ("-t mangle -A OUTPUT -j CONNMARK --restore-mark; -t mangle -A OUTPUT -j CONNMARK --save-mark", true),
                (
                    "-t mangle -N mine; -t mangle -A mine -j CONNMARK --restore-mark; -t mangle -A mine -j CONNMARK --save-mark; -t mangle -A OUTPUT -j mine",
                    true,
                ),
                (
                    "-t mangle -A PREROUTING -j CONNMARK --restore-mark; -t mangle -A POSTROUTING -j CONNMARK --save-mark",
                    false,
                ),
                (
                    "-t mangle -A OUTPUT -m mark ! --mark 0/0x3f000000 -j RETURN; -t mangle -A OUTPUT -j CONNMARK --restore-mark; -t mangle -A OUTPUT -j CONNMARK --save-mark",
                    false,
                ),
                (
                    "-t mangle -A OUTPUT -m mark --mark 0/0x3f000000 -j CONNMARK --restore-mark; -t mangle -A OUTPUT -j CONNMARK --save-mark",
                    false,
                ),
            ] {
                begin.split("; ").for_each(both);
                assert_eq!(moves(host), [!undoes; 2], "{four}: {begin}");
                let (rules, advice) = found(host);
                assert_eq!(rules.len(), if undoes { 2 } else { 0 }, "{four}: {begin}: {rules:?}");
                both("-t mangle -F");
                both("-t mangle -X");
                if let Some(advice) = advice.first() {
                    advice.iter().for_each(|rule| both(&format!("-t mangle -A OUTPUT {rule}")));
                    assert_eq!((moves(host), found(host).0.len()), ([true; 2], 0), "{four}: {advice:?}");
                    both("-t mangle -F");
                }
            }
            Ok(())
        });
    }
}
