//! The route controller's file: defaults that suit its targets, and mistakes where they stand.

use proptest::prelude::*;
use sidestep_route_control::daemon::RouteControlConfig;

use sidestep_net::Span;

const FILE: &str = r#"[route_control]
destinations = ["0.0.0.0/0", "::/0"]
[[egress]]
name = "fibre"
dev = "eth1"
via = ["10.0.1.1", "fe80::1"]
capacity = "1 Gbit/s"
[[egress]]
name = "lte"
dev = "eth2"
via = ["10.0.2.1", "fe80::2"]
metered = true
[[target]]
address = "192.0.2.1"
[[target]]
address = "198.51.100.1"
[[target]]
address = "2001:db8::1"
"#;

fn error(text: &str) -> String {
    RouteControlConfig::parse(text).unwrap_err().to_string()
}

#[test]
fn targets_of_others_are_probed_slowly_and_ones_own_reflector_fast() {
    let config = RouteControlConfig::parse(FILE).unwrap();
    let (targets, settings) = (config.targets(), &config.control);
    assert_eq!((targets.quorum, targets.of), (2, vec![vec![0, 1, 2]; 2]));
    let millis = |span: Span| span.as_nanos() / 1_000_000;
    assert_eq!((millis(settings.measurement_period), millis(settings.probe_interval)), (800, 66));
    let own = FILE.replace("address = ", "own = true\nkind = \"stamp\"\naddress = ");
    let settings = RouteControlConfig::parse(&own).unwrap().control;
    assert_eq!((millis(settings.measurement_period), millis(settings.probe_interval)), (400, 10));
    let one = FILE.split("[[target]]\naddress = \"198").next().unwrap();
    let one = RouteControlConfig::parse(one).unwrap();
    assert_eq!((one.targets().quorum, millis(one.control.probe_interval)), (1, 200));
    let by = FILE.replace("address = \"192.0.2.1\"", "address = \"192.0.2.1\"\nby = [\"lte\"]");
    assert_eq!(RouteControlConfig::parse(&by).unwrap().targets().of, [vec![1, 2], vec![0, 1, 2]]);
    let one_family = FILE.replace(", \"fe80::2\"", "").replace(", \"::/0\"", "");
    assert_eq!(RouteControlConfig::parse(&one_family).unwrap().targets().of, [vec![0, 1, 2], vec![0, 1]]);
}

#[test]
fn mistakes_are_reported_where_they_stand() {
    let with = |from: &str, to: &str| error(&FILE.replacen(from, to, 1));
    let all = "destinations = [\"0.0.0.0/0\", \"::/0\"]";
    let more = |line: &str| error(&FILE.replacen(all, &format!("{all}\n{line}"), 1));
    for (found, expected) in [
        (error(""), "this needs `[route_control]`"),
        (with(all, "destinations = []"), "2:16: name the prefixes"),
        (with("\"::/0\"", "\"0.0.0.0/0\""), "2:30: 0.0.0.0/0 is here a second time"),
        (with("[[egress]]\nname = \"lte\"", "[[target]]\nname = \"lte\""), "unknown field"),
        (error(FILE.split("[[egress]]\nname = \"lte\"").next().unwrap()), "give at least two [[egress]]"),
        (with("\"lte\"", "\"fibre\""), "9:8: two egresses of the name `fibre`"),
        (with("\"eth2\"", "\"a b\""), "10:7: this is no name that an interface can have"),
        (
            error(&FILE.replacen("\"10.0.1.1\", ", "", 1).replacen("\"10.0.2.1\", ", "", 1)),
            "destinations are of IPv4, and no egress has a next hop of IPv4",
        ),
        (with("\"fe80::2\"", "\"10.0.2.2\""), "`lte` has two next hops of IPv4"),
        (
            with("eth2\"\nvia = [\"10.0.2.1\", \"fe80::2\"]", "eth1\"\nvia = [\"10.0.1.1\", \"fe80::1\"]"),
            "of another egress",
        ),
        (with("metered = true", "source = [\"::/0\"]"), "a provider's prefix is not everything"),
        (with("address = \"192.0.2.1\"", "address = \"224.0.0.1\""), "is no host behind an egress"),
        (with("\"198.51.100.1\"", "\"192.0.2.1\""), "192.0.2.1 is here a second time"),
        (with("address = \"192.0.2.1\"", "address = \"192.0.2.1\"\nport = 7"), "ICMP has no ports"),
        (with("address = \"192.0.2.1\"", "address = \"192.0.2.1\"\nown = true"), "only one's own reflector"),
        (with("address = \"192.0.2.1\"", "address = \"192.0.2.1\"\nrate = 50"), "at most 10 probes a second"),
        (with("address = \"192.0.2.1\"", "address = \"192.0.2.1\"\nby = [\"dsl\"]"), "there is no egress `dsl`"),
        (more("quorum = 4"), "3:10: quorum must be between 1 and the 3 targets of `fibre`"),
        (more("mark_mask = 0x5"), "must be bits side by side"),
        (more("mark_mask = 0x1"), "has room for 1 egresses"),
        (more("fail_back = \"maybe\""), "unknown variant `maybe`"),
        (more("[control]\nmode = \"ideal\""), "an edge decides by `practical` or `predictive`"),
        (more("[control]\nprobe_interval = \"10 ms\""), "192.0.2.1 would get"),
        (more("[control]\nedges = [\"a\"]"), "is for the simulator"),
        (more("[control]\nloss_timeout = \"5 s\""), "must fit the routing period"),
        (more("[control]\nload = \"80 %\""), "4:8: `load` uses no egress that is metered, and needs two that are not"),
        (
            error(&FILE.replacen("metered = true", "", 1).replacen(
                all,
                &format!("{all}\n[control]\nload = \"80 %\""),
                1,
            )),
            "`load` needs the rate of `lte`: give its `capacity`",
        ),
        (more("[control]\nload = \"80 %\"\nload_end = \"90 %\""), "load_end must be above 0 % and below load"),
        (more("[damping]\nhalf_life = \"1 ms\""), "half_life must be at least 1 s"),
        (more("[damping]\nreuse = 5000.0"), "suppress must be between reuse"),
        (more("[damping]\nlongest = \"60 s\""), "no penalty ever reaches `suppress`"),
    ] {
        assert!(found.contains(expected), "{found}\nis not: {expected}");
    }
    let two = FILE.replacen("capacity", "source = [\"2001:db8::/32\"]\ncapacity", 1).replacen(
        "metered",
        "source = [\"2001:db8:b::/48\"]\nmetered",
        1,
    );
    assert!(error(&two).contains("2001:db8:b::/48 meets a source of `fibre`"), "{}", error(&two));
}

/// What the fuzz target `route_control` asserts.
fn is_read_or_refused(text: &str) {
    match RouteControlConfig::parse(text) {
        Ok(config) => {
            let targets = config.targets();
            assert_eq!(targets.of.len(), config.egresses.len());
            assert!(targets.of.iter().all(|of| of.len() >= targets.quorum as usize && targets.quorum > 0));
            drop((config.stability(), config.families(), config.is_passive()));
        }
        Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}", from in 0..FILE.len(), length in 0..40_usize) {
        is_read_or_refused(&text);
        is_read_or_refused(&FILE.replacen("fibre", &text, 1));
        // A file of which a part is another text.
        let to = (from + length).min(FILE.len());
        is_read_or_refused(&format!("{}{text}{}", &FILE[..from], &FILE[to..]));
        is_read_or_refused(&format!("{}{}", &FILE[..from], &FILE[to..]));
    }
}
