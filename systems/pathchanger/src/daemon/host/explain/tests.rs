use super::*;

fn path(name: &str, takes: bool, failed_s: Option<f64>) -> PathFacts {
    PathFacts { name: name.into(), takes, dead: failed_s.is_some(), failed_s, overridden: None }
}

/// A connection on `blue`, with these paths.
fn facts(paths: Vec<PathFacts>) -> ConnectionFacts {
    ConnectionFacts {
        local: "198.51.100.10:4711".parse().unwrap(),
        remote: "10.2.0.1:443".parse().unwrap(),
        passive: false,
        destination: "0.0.0.0/0".parse().unwrap(),
        path: Some(0),
        paths,
        signals: 0,
        moves: 0,
        last: None,
        timeouts: 0,
        dry_run: false,
    }
}

#[test]
fn the_explanation_of_a_connection_that_a_dead_path_holds_says_why_it_cannot_move_and_what_helps() {
    let mut facts = facts(vec![path("blue", true, Some(31.4)), path("green", false, None)]);
    (facts.signals, facts.timeouts) = (5, 6);
    facts.last = Some((Span::from_millis(2_300), Reason::Rto, Some(Stay::OnlyPath)));
    assert_eq!(
        facts.sentences(),
        [
            "The connection from 198.51.100.10:4711 to 10.2.0.1:443 is on blue, one of 2 paths to 0.0.0.0/0, the only one of \
             them that takes packets from its source address 198.51.100.10.",
            "5 signals came so far, 0 moves; the last was rto, 2.3 s ago, and left it there: it can use no other path; blue is \
             held for dead, as nothing was delivered on it for 31 s, and TCP has had 6 timeouts in a row without an answer.",
            "It can never move, as green (alive) does not take packets from 198.51.100.10: its application must connect anew \
             to use one of these, or on_dead = \"reset\" in [pathchanger] has it do so; only MPTCP, or an address that all paths \
             take, would let it live through that.",
        ]
    );
}

#[test]
fn what_leads_packets_elsewhere_is_named() {
    let mut blue = path("blue", true, None);
    blue.overridden = Some("the rule 8299 comes first".into());
    let facts = facts(vec![blue.clone(), path("green", true, None)]);
    let [place, ..] = facts.sentences();
    assert!(place.ends_with("which was drawn when it opened; but the rule 8299 comes first."), "{place}");
    let source = SourceFacts {
        address: facts.local.ip(),
        interface: "wan0".into(),
        destinations: vec![(facts.destination, vec![blue, path("green", false, None)])],
        connections: 0,
        waiting: 0,
        moves: 0,
    };
    assert_eq!(
        source.sentences()[0],
        "198.51.100.10 is an address of this host, on wan0; its packets are taken to 0.0.0.0/0 by blue (its packets are led \
         elsewhere) only; but others lead packets elsewhere: blue (the rule 8299 comes first)."
    );
}

#[test]
fn the_explanation_of_a_connection_that_has_moved_says_when_and_where_it_can_go_next() {
    let mut facts = facts(vec![path("blue", true, None), path("green", true, None), path("red", true, Some(4.0))]);
    (facts.signals, facts.moves) = (3, 1);
    facts.last = Some((Span::from_secs(75), Reason::Rto, None));
    assert_eq!(
        facts.sentences(),
        [
            "The connection from 198.51.100.10:4711 to 10.2.0.1:443 is on blue, one of 3 paths to 0.0.0.0/0, to which it moved \
             75 s ago (rto).",
            "3 signals came so far, 1 move; the last was rto, 75 s ago, and moved it; blue is not held for dead.",
            "It can move to green (alive) at its next signal that asks for it; red (dead: nothing was delivered there for \
             4.0 s) also take it, and are not drawn.",
        ]
    );
}

#[test]
fn what_can_happen_follows_from_which_paths_take_the_address_and_live() {
    let third = |paths: Vec<PathFacts>| facts(paths).sentences()[2].clone();
    let waits = third(vec![path("blue", true, Some(3.0)), path("green", true, Some(3.0))]);
    assert!(
        waits.starts_with("It stays until something is delivered on another path that takes 198.51.100.10"),
        "{waits}"
    );
    let alone = third(vec![path("blue", true, None)]);
    assert_eq!(alone, "It cannot move, as there is no other path: give the destination a second one.");
    let all_dead = third(vec![path("blue", true, Some(3.0)), path("green", false, Some(3.0))]);
    assert!(all_dead.contains("and as these do not live either, it waits"), "{all_dead}");
    let alive = third(vec![path("blue", true, None), path("green", false, None), path("red", false, None)]);
    assert!(
        alive.contains("green (alive) and red (alive) do not take") && alive.contains("should its path die"),
        "{alive}"
    );
}

#[test]
fn where_it_is_says_who_opened_it_whether_it_is_real_and_whether_the_path_is_gone() {
    let two = || vec![path("blue", true, None), path("green", true, None)];
    let first = |change: &dyn Fn(&mut ConnectionFacts)| {
        let mut facts = facts(two());
        change(&mut facts);
        facts.sentences()[0].clone()
    };
    assert!(first(&|_| {}).ends_with("which was drawn when it opened."));
    assert!(first(&|facts| facts.passive = true).ends_with("drawn when the other end had opened it."));
    assert!(first(&|facts| facts.dry_run = true).contains(" would be on blue,"));
    assert!(first(&|facts| facts.path = None).contains("that is gone, and is about to get another"));
    assert!(first(&|facts| facts.paths.truncate(1)).ends_with("is on blue, the only path to 0.0.0.0/0."));
}

#[test]
fn an_address_is_explained_by_the_paths_to_it_and_by_the_hosts_addresses() {
    let facts = DestinationFacts {
        address: "10.2.0.1".parse().unwrap(),
        destination: "0.0.0.0/0".parse().unwrap(),
        paths: vec![path("blue", true, Some(31.0)), path("green", true, None)],
        sources: vec![
            ("198.51.100.10".parse().unwrap(), vec![true, false]),
            ("203.0.113.5".parse().unwrap(), vec![false, true]),
            ("192.0.2.9".parse().unwrap(), vec![false, false]),
        ],
        connections: vec![4, 1],
        moves: 2,
    };
    assert_eq!(
        facts.sentences(),
        [
            "10.2.0.1 belongs to the destination 0.0.0.0/0, whose paths are blue (dead: nothing was delivered there for 31 s) \
             and green (alive).",
            "5 connections go there now, 4 on blue and 1 on green, with 2 moves.",
            "New connections begin on green; of the paths, connections can use from 198.51.100.10 blue only (they can never \
             move), from 203.0.113.5 green only (they can never move) and from 192.0.2.9 none (they are left alone).",
        ]
    );
    let free = DestinationFacts { sources: Vec::new(), connections: vec![0, 0], ..facts };
    assert_eq!(
        free.sentences()[1..],
        [
            "No connection of this host goes there now that has a path.",
            "New connections begin on green, and can move to each of them."
        ]
    );
}

#[test]
fn an_address_of_the_host_is_explained_by_what_takes_it() {
    let facts = SourceFacts {
        address: "198.51.100.10".parse().unwrap(),
        interface: "wan0".into(),
        destinations: vec![
            ("0.0.0.0/0".parse().unwrap(), vec![path("blue", true, None), path("green", false, None)]),
            ("10.2.0.0/16".parse().unwrap(), vec![path("blue", true, None), path("green", true, None)]),
        ],
        connections: 5,
        waiting: 4,
        moves: 0,
    };
    assert_eq!(
        facts.sentences(),
        [
            "198.51.100.10 is an address of this host, on wan0; its packets are taken to 0.0.0.0/0 by blue (alive) only and to \
             10.2.0.0/16 by blue (alive) and green (alive).",
            "5 connections begin at it now, 4 of them on a dead path, with 0 moves.",
            "Its connections to 0.0.0.0/0 can never move: when their path dies, new ones begin at another address, and on_dead \
             = \"reset\" in [pathchanger], MPTCP, or an address that all paths take would help those that are open.",
        ]
    );
}

#[test]
fn each_rule_that_leaves_a_connection_alone_is_named_with_what_to_do() {
    let prefix: IpNet = "10.0.0.0/8".parse().unwrap();
    let rules = [
        (LeftAlone::Own, "this host's own"),
        (LeftAlone::LinkLocal, "link-local"),
        (LeftAlone::Multicast, "a group's"),
        (LeftAlone::NoDestination, "no destination of the agent"),
        (LeftAlone::WithoutPaths { prefix }, "the destination 10.0.0.0/8 has no paths"),
        (LeftAlone::Device { interface: "wg0".into() }, "bound to wg0"),
        (LeftAlone::NoSource { destination: prefix, paths: vec!["blue".into()] }, "no path to 10.0.0.0/8 takes"),
        (LeftAlone::Mark { mark: 0x100_0000, mask: 0x3f00_0000 }, "mark 0x1000000, within the agent's bits 0x3f000000"),
        (
            LeftAlone::Group { group: "/g/a".into(), of_agent: "/g/b".into() },
            "control group /g/a, and the agent's is /g/b",
        ),
        (LeftAlone::Before, "began before the agent"),
    ];
    for (why, expected) in rules {
        let facts = LeftAloneFacts { subject: "The connection from a to b".into(), why, mark: Some(0x51) };
        let [first, second, third] = facts.sentences();
        assert!(first.starts_with("The connection from a to b is left alone: ") && first.contains(expected), "{first}");
        assert!(second.contains("the mark 0x51"), "{second}");
        assert!(third.ends_with('.') && third.len() > 20, "{third}");
    }
}
