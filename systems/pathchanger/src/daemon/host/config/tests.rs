//! What the file may say, and what is said of mistakes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sidestep_hostd::paths::PathRoute;
use sidestep_linux::netlink::{DefaultRoute, Family, NextHop};
use sidestep_policy::raw::MAX_PATHS;

use super::*;

const COLLIDING: [&str; 2] = ["fd01:ba67:bc81::2c89", "fd01:6dd:8bed::a400"];

const TWO_PROVIDERS: &str = r#"
        [pathchanger]
        gamma = 0.2
        [[destination]]
        prefix = "2001:db8::/32"
        path = [
            { name = "blue", via = "fe80::1", dev = "eth0", rate = "1 Gbit/s", rtt = "20 ms" },
            { segments = ["fd01:0:2:e::"], rate = "100 Mbit/s", rtt = "10 ms", mtu = 1400 },
            { plain = true, rate = "100 Mbit/s", rtt = "10 ms" },
        ]
    "#;

#[test]
fn a_path_is_a_next_hop_a_segment_list_or_the_hosts_own_route() {
    let config = HostConfig::parse(TWO_PROVIDERS).unwrap();
    let sets = config.resolve(&interfaces(&[("eth0", 7)], &[])).unwrap();
    assert_eq!(sets[0].paths[0].route, PathRoute::Via("fe80::1".parse().unwrap(), 7));
    assert_eq!(sets[0].paths[0].name, "blue");
    assert_eq!(sets[0].paths[1].route, PathRoute::Segments(vec!["fd01:0:2:e::".parse().unwrap()]));
    assert_eq!(sets[0].paths[2].route, PathRoute::Default);
    let missing = config.in_file("agent.toml").resolve(&Interfaces::default()).unwrap_err();
    assert_eq!(missing.to_string(), "agent.toml:7:53: there is no interface `eth0`; `ip link` lists those that exist");
}

/// Interfaces by name and index, with default routes by family, metric, next hop and interface.
fn interfaces(indices: &[(&str, u32)], routes: &[(Family, u32, Option<&str>, u32)]) -> Interfaces {
    let route = |(family, metric, via, interface): &(Family, u32, Option<&str>, u32)| DefaultRoute {
        family: *family,
        metric: *metric,
        hop: NextHop { via: via.map(|via| via.parse().unwrap()), interface: *interface },
    };
    let indices = indices.iter().map(|(name, index)| ((*name).to_string(), *index)).collect();
    Interfaces::new(indices, routes.iter().map(route))
}

#[test]
fn a_path_without_carrier_is_not_there_while_another_has_one() {
    let path = |dev: &str| format!("{{ name = \"{dev}\", via = \"192.0.2.1\", dev = \"{dev}\" }}");
    let text = format!("[[destination]]\nprefix = \"0.0.0.0/0\"\npath = [{}, {}]", path("eth0"), path("eth1"));
    let config = HostConfig::parse(&text).unwrap();
    let names = |down: &[u32]| {
        let down = down.iter().copied().collect();
        let sets = config.resolve_present(&Interfaces { down, ..interfaces(&[("eth0", 7), ("eth1", 8)], &[]) });
        sets[0].paths.iter().map(|path| path.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["eth0", "eth1"]);
    assert_eq!(names(&[7]), ["eth1"]);
    assert_eq!(names(&[7, 8]), ["eth0", "eth1"], "each is as good as before");
}

#[test]
fn an_automatic_next_hop_is_that_of_the_first_default_route_of_its_family() {
    let path = |dev: &str| format!("{{ via = \"auto\", dev = \"{dev}\" }}");
    let both = format!("path = [{}, {}]", path("eth0"), path("tun0"));
    let text = format!("[[destination]]\nprefix = \"::/0\"\n{both}\n[[destination]]\nprefix = \"0.0.0.0/0\"\n{both}");
    let config = HostConfig::parse(&text).unwrap();
    let mut routes = vec![
        (Family::V6, 100, Some("fe80::1"), 7),
        (Family::V6, 1024, Some("fe80::9"), 7),
        (Family::V4, 0, Some("10.0.0.1"), 7),
        (Family::V4, 0, None, 8),
    ];
    let found = |routes: &[_]| {
        let sets = config.resolve_present(&interfaces(&[("eth0", 7), ("tun0", 8)], routes));
        sets.into_iter().map(|set| set.paths.into_iter().map(|path| path.route).collect()).collect::<Vec<Vec<_>>>()
    };
    let via = |address: &str| PathRoute::Via(address.parse().unwrap(), 7);
    assert_eq!(found(&routes), [vec![via("fe80::1")], vec![via("10.0.0.1"), PathRoute::OnLink(8)]]);
    routes[0].2 = Some("fe80::2");
    assert_eq!(found(&routes)[0], [via("fe80::2")], "another router has taken over");
    let error = config.resolve(&interfaces(&[("eth0", 7), ("tun0", 8)], &routes)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3:63: the interface `tun0` has no default route for IPv6, so `via = \"auto\"` leads nowhere"
    );
}

/// The ids of the paths in a file, by name.
fn ids_of(text: &str) -> BTreeMap<String, u32> {
    let config = HostConfig::parse(text).unwrap();
    let sets = config.resolve(&interfaces(&[("eth0", 7)], &[])).unwrap();
    sets.into_iter().flat_map(|set| set.paths).map(|path| (path.name, path.id)).collect()
}

#[test]
fn a_paths_id_follows_from_what_it_is_and_not_from_its_place() {
    let ids = ids_of(TWO_PROVIDERS);
    assert_eq!(ids.keys().map(String::as_str).collect::<Vec<_>>(), ["blue", "fd01:0:2:e::", "plain"]);
    assert_eq!(ids["blue"], 0xb98c_b594, "it never changes between releases");
    let (head, list) = TWO_PROVIDERS.split_once("path = [\n").unwrap();
    let mut lines: Vec<_> = list.lines().filter(|line| line.contains('{')).collect();
    lines.reverse();
    let before = format!("{head}path = [{{ plain = true, rate = \"1 Mbit/s\", rtt = \"1 ms\" }}]\n[[destination]]\n");
    let before = before.replace("2001:db8::/32", "2001:db9::/32");
    let swapped = format!("{before}prefix = \"2001:db8::/32\"\npath = [{}]", lines.join("\n"));
    assert_eq!(ids_of(&swapped), ids, "another order, after another destination");
    let other = TWO_PROVIDERS.replace("blue", "green").replace("20 ms", "9 ms").replace("1 Gbit/s", "2 Gbit/s");
    assert_eq!(ids_of(&other)["green"], ids["blue"], "another name, rate and round trip");
    for (from, to) in [("fe80::1", "fe80::2"), ("[\"fd01:0:2:e::\"]", "[\"fd01:0:3:e::\"]")] {
        let changed = ids_of(&TWO_PROVIDERS.replace(from, to));
        assert_eq!(changed.values().filter(|id| !ids.values().any(|old| old == *id)).count(), 1, "{from} {to}");
    }
}

#[test]
fn paths_whose_hashes_collide_get_different_ids_in_any_order() {
    // Found by search: 32-bit FNV-1a of the keys of both is the same.
    let sids = COLLIDING.map(|sid| format!("{{ path_id = \"{sid}\", rate = \"1 Mbit/s\", rtt = \"1 ms\" }}"));
    let file = |first: usize, second: usize| {
        format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{}, {}]", sids[first], sids[second])
    };
    let alone = |which: usize| {
        let text = format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [{}]", sids[which]);
        ids_of(&text).into_values().next()
    };
    assert_eq!(alone(0), alone(1), "they collide");
    let ids = ids_of(&file(0, 1));
    assert_eq!(ids.values().collect::<std::collections::BTreeSet<_>>().len(), 2);
    assert_eq!(ids_of(&file(1, 0)), ids);
}

/// What is said of this file, with the caret.
fn complaint(text: &str) -> String {
    HostConfig::parse(text).map(|_| ()).unwrap_err().in_file("agent.toml").to_string()
}

/// A file with one destination, and a path that holds `path` in addition to rate and round-trip time.
fn one_path(prefix: &str, path: &str) -> String {
    format!(
        "[[destination]]\nprefix = \"{prefix}\"\n[[destination.path]]\nrate = \"1 Mbit/s\"\nrtt = \"1 ms\"\n{path}\n"
    )
}

/// What is said of that path, and below which text the caret is.
#[track_caller]
fn of_path(prefix: &str, path: &str) -> (String, String) {
    let error = HostConfig::parse(&one_path(prefix, path)).map(|_| ()).unwrap_err();
    let place = error.source_line.chars().skip(error.column - 1 - error.skipped).collect();
    (error.message, place)
}

#[test]
fn a_mistake_is_shown_with_its_line_and_a_caret() {
    assert_eq!(
        complaint("[pathchanger]\ngama = 0.2\n").lines().map(str::trim_end).collect::<Vec<_>>()[1..],
        ["  |", "2 | gama = 0.2", "  | ^"]
    );
    assert!(
        complaint("[pathchanger]\ngama = 0.2\n").starts_with("agent.toml:2:1: unknown field `gama`, expected one of ")
    );
    assert_eq!(
        complaint("[pathchanger]\npolicy = \"exp3\"\ngamma = 3.0\n"),
        "agent.toml:3:9: gamma must be above 0 and at most 1\n  |\n3 | gamma = 3.0\n  |         ^"
    );
    assert_eq!(
        complaint("[pathchanger]\nsilence_backoff = { min = \"2 s\", max = \"1 s\" }\n").lines().next(),
        Some("agent.toml:2:19: silence_backoff must have a `min` that is not above its `max`")
    );
    assert!(complaint("[pathchanger]\nrtt_guard = \"soon\"\n").starts_with("agent.toml:2:13: "), "an interval");
    assert!(complaint("pathchanger = 3").starts_with("agent.toml:1:15: "), "a table that is none");
    assert!(complaint("[pathchanger\n").starts_with("agent.toml:1:13: "), "not TOML");
    assert!(complaint("[metrics]\nlisten = \"9435\"").starts_with("agent.toml:2:10: `9435` is not an address"));
    assert!(complaint("[metrics]\nlisten = 1\n").starts_with("agent.toml:2:10: "));
    assert!(complaint("[[destinations]]\n").starts_with("agent.toml:1:3: unknown field `destinations`"));
}

#[test]
fn a_mistake_of_a_destination_is_shown_where_it_stands() {
    let at = |text: &str| complaint(text).lines().next().unwrap_or_default().to_string();
    assert!(at("[[destination]]\nprefix = \"2001:db8::/132\"\npath = []").starts_with("agent.toml:2:10: "));
    assert!(at("[[destination]]\nprefix = \"::/0\"\n").starts_with("agent.toml:1:1: missing field `path`"));
    let excluded = HostConfig::parse("[[destination]]\nprefix = \"2001:db8::/32\"\npath = []").unwrap();
    assert_eq!(excluded.destinations[0].paths.len(), 0, "its connections are left alone");
    assert_eq!(
        at(&one_path("::ffff:10.9.0.0/112", r#"via = "fe80::1""#)),
        "agent.toml:2:10: ::ffff:10.9.0.0/112 never matches: its connections are IPv4; write it as `10.0.0.0/8`"
    );
    let path =
        |n| format!("[[destination.path]]\nvia = \"fe80::{n}\"\ndev = \"a\"\nrate = \"1 Mbit/s\"\nrtt = \"1 ms\"\n");
    let paths = |n: usize| (1..=n).map(path).collect::<String>();
    let crowd = format!("[[destination]]\nprefix = \"2001:db8::/32\"\n{}", paths(MAX_PATHS + 1));
    assert_eq!(at(&crowd), "agent.toml:83:1: 2001:db8::/32 has 17 paths; 16 are the most");
    let narrow = format!("[pathchanger]\nmark_mask = 1\n[[destination]]\nprefix = \"::/0\"\n{}", paths(2));
    assert_eq!(at(&narrow), "agent.toml:2:13: mark_mask has fewer values than there may be paths");
}

#[test]
fn a_mistake_of_a_path_is_shown_at_the_value_that_has_to_change() {
    let to = "2001:db8::/32";
    let exactly_one = format!("a path to {to} needs exactly one of `segments`, `path_id`, `via` and `plain`");
    assert_eq!(of_path(to, r#"name = "blue""#), (exactly_one.clone(), "[[destination.path]]".into()));
    let (message, place) = of_path(to, "via = \"fe80::1\"\ndev = \"a\"\npath_id = \"::1\"");
    assert_eq!((message, place), (exactly_one, "\"fe80::1\"".into()));
    for (path, what, place) in [
        ("via = \"fe80::1\"", "needs the interface: `dev", "\"fe80::1\""),
        ("via = \"10.0.0.1\"\ndev = \"a\"", "needs a next hop with an address of IPv6", "\"10.0.0.1\""),
        ("segments = []", "must have 1 to 16 segments", "[]"),
        ("segments = [\"2001:db8::e\"]", "lies in 2001:db8::/32, whose route", "\"2001:db8::e\"]"),
        ("path_id = \"2001:db8::b\"", "lies in 2001:db8::/32, whose route", "\"2001:db8::b\""),
        ("path_id = \"::1\"\nmtu = 600", "must be between 1280 and 65000", "600"),
        ("plain = true\nmtu = 1400", "has the mtu of the host's own route", "1400"),
        ("plain = true\nvia = \"::1\"", "needs exactly one of", "true"),
        ("path_id = \"::1\"\nencap = true", "has `encap` only beside `segments`", "true"),
        ("plain = false", "needs exactly one of", "[[destination.path]]"),
        ("path_id = \"::1\"\nwrong = 1", "unknown field `wrong`", "wrong = 1"),
        ("path_id = \"one\"", "invalid IPv6 address", "\"one\""),
        ("plain = true\ndev = \"a\"", "has `dev` only beside `via`", "\"a\""),
        ("via = \"gateway\"\ndev = \"a\"", "`gateway` is neither an IP address nor `auto`", "\"gateway\""),
        ("via = \"ff02::1\"\ndev = \"a\"", "ff02::1 is no address of a machine", "\"ff02::1\""),
        ("segments = [\"fd01::e\", \"::\"]", ":: is no address of a machine", "\"::\"]"),
        ("path_id = \"::\"", ":: is no address of a machine", "\"::\""),
        ("plain = true\nname = \"\"", "the name of a path has 1 to 63 bytes", "\"\""),
        (
            "via = \"fe80::1\"\ndev = \"abcdefghijklmnopqrstuvwxyz\"",
            "the name of an interface has 1 to 15",
            "\"abcdefghijklmnopqrstuvwxyz\"",
        ),
        ("via = \"fe80::1\"\ndev = \"a/b\"", "the name of an interface has 1 to 15", "\"a/b\""),
    ] {
        let found = of_path(to, path);
        assert!(found.0.contains(what) && found.1 == place, "{path}: {found:?}");
    }
    // The items of an inline list are placed as well.
    let inline = format!("[[destination]]\nprefix = \"{to}\"\npath = [\n{{ rtt = \"1 ms\", rate = \"fast\" }}]\n");
    assert!(complaint(&inline).starts_with("agent.toml:4:24: "), "{}", complaint(&inline));
}

#[test]
fn what_is_there_twice_is_refused_at_the_second() {
    let quantities = "rate = \"1 Mbit/s\", rtt = \"1 ms\"";
    let two = |first: &str, second: &str| {
        let paths = [first, second].map(|path| format!("  {{ {path}, {quantities} }},\n")).concat();
        complaint(&format!("[[destination]]\nprefix = \"2001:db8::/32\"\npath = [\n{paths}]\n"))
    };
    for (first, second, error) in [
        ("plain = true", "plain = true", "5:13: 2001:db8::/32 has this path twice: both lead the same way"),
        ("path_id = \"fd01::b\"", "path_id = \"fd01:0::b\"", "5:15: 2001:db8::/32 has this path twice"),
        ("segments = [\"fd01::e\"]", "segments = [\"fd01::e\"]", "5:16: 2001:db8::/32 has this path twice"),
        ("via = \"auto\", dev = \"a\"", "name = \"x\", via = \"auto\", dev = \"a\"", "5:23: 2001:db8::/32 has this"),
        (
            "plain = true, name = \"x\"",
            "path_id = \"fd01::b\", name = \"x\"",
            "5:33: 2001:db8::/32 has two paths of the name `x`",
        ),
    ] {
        let found = two(first, second);
        assert!(found.starts_with(&format!("agent.toml:{error}")), "{found}");
    }
    let set = |prefix: &str| format!("[[destination]]\nprefix = \"{prefix}\"\npath = [{{ plain = true }}]\n");
    let twice = complaint(&(set("10.9.0.0/16") + &set("10.9.1.0/16")));
    assert!(twice.starts_with("agent.toml:5:10: 10.9.0.0/16 is here a second time"), "{twice}");
}

#[test]
fn an_empty_file_is_refused_and_one_that_asks_for_the_defaults_is_not() {
    for empty in ["", "\n", "# nothing\n"] {
        assert!(complaint(empty).starts_with("agent.toml:1:1: the file says nothing"), "{}", complaint(empty));
    }
    assert!(HostConfig::parse("[pathchanger]\n").is_ok());
}

#[test]
fn a_path_may_leave_out_what_is_not_known_but_not_say_that_it_is_zero() {
    let text = |path: &str| format!("[[destination]]\nprefix = \"::/0\"\npath = [{{ plain = true{path} }}]\n");
    let config = HostConfig::parse(&text("")).unwrap();
    assert_eq!((config.destinations[0].paths[0].rate, config.destinations[0].paths[0].rtt), Default::default());
    for (path, error) in
        [(", rate = \"0\"", "3:32: the rate of a path"), (", rtt = \"0 ms\"", "3:31: the rtt of a path")]
    {
        assert!(complaint(&text(path)).starts_with(&format!("agent.toml:{error}")), "{}", complaint(&text(path)));
    }
}

#[test]
fn a_mistake_in_a_long_line_has_a_caret_too() {
    let many =
        (1..=14).map(|n| format!("{{ path_id = \"fd01::b:{n}\", name = \"number {n}\" }}, ")).collect::<String>();
    let text = format!("[[destination]]\nprefix = \"::/0\"\npath = [{many}{{ plain = 3 }}]\n");
    let error = HostConfig::parse(&text).map(|_| ()).unwrap_err();
    assert!(error.column > 200, "{error}");
    let shown = error.to_string();
    let lines: Vec<_> = shown.lines().collect();
    let caret = lines[3].find('^').unwrap();
    assert!(lines[2][caret..].starts_with("3 }"), "{shown}");
}

#[test]
fn a_prefix_with_host_bits_is_read_without_them_and_noted_with_its_line() {
    let text = one_path("2001:db8:5::1/48", "plain = true");
    let config = HostConfig::parse(&text).unwrap();
    assert_eq!(config.destinations[0].prefix.to_string(), "2001:db8:5::/48");
    let notes: Vec<_> =
        HostConfig::notes(&text).into_iter().map(|note| note.in_file("agent.toml").to_string()).collect();
    let expected = "agent.toml:2:10: 2001:db8:5::1/48 has host bits; it is read as 2001:db8:5::/48\n  |\n";
    assert!(notes.len() == 1 && notes[0].starts_with(expected), "{notes:?}");
    assert!(HostConfig::notes(TWO_PROVIDERS).is_empty() && HostConfig::notes("[").is_empty());
}

#[test]
fn what_ipv4_cannot_have_is_named() {
    for good in
        ["via = \"10.0.0.1\"\ndev = \"a\"", "via = \"fe80::1\"\ndev = \"a\"", "segments = [\"fd01::e\", \"fd01::d4\"]"]
    {
        assert!(HostConfig::parse(&one_path("10.9.0.0/16", good)).is_ok(), "{good}");
    }
    let (message, place) = of_path("10.9.0.0/16", "path_id = \"fd01::b\"");
    assert!(message.starts_with("a path to 10.9.0.0/16 cannot be a `path_id` alone"), "{message}");
    assert_eq!(place, "\"fd01::b\"");
    assert!(HostConfig::parse(&one_path("::/0", "via = \"fe80::1\"\ndev = \"a\"")).is_ok());
}

#[test]
fn a_first_segment_must_not_lie_within_any_destination() {
    let path = r#"rate = "1 Mbit/s", rtt = "1 ms""#;
    let text = format!(
        "[[destination]]\nprefix = \"10.9.0.0/16\"\npath = [{{ segments = [\"fd01::e\", \"fd01::d4\"], {path} }}]\n\
         [[destination]]\nprefix = \"fd00::/8\"\npath = [{{ via = \"fe80::1\", dev = \"a\", {path} }}]"
    );
    let caught = complaint(&text);
    let what = "the segment fd01::e of a path to 10.9.0.0/16 lies in fd00::/8, whose route would catch it";
    assert!(caught.starts_with(&format!("agent.toml:3:23: {what}")), "{caught}");
    assert!(caught.contains("or leave the segment alone: a destination fd01::e/128 with path = []"), "{caught}");
    let alone = "\n[[destination]]\nprefix = \"fd01::e/128\"\npath = []\n";
    assert!(
        HostConfig::parse(&format!("{text}{alone}")).is_ok(),
        "its packets are thrown back to the host's own routes"
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = HostConfig::parse(&text);
    }
}
