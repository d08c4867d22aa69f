//! What a scenario file may contain, and the errors for a bad one.

mod conditions;
mod demands;
mod errors;
mod round_trip;

use sidestep_net::{Bytes, LinkId, NodeId, ParseError, QueueLimit, Rate, SettingsTable, Span};
use sidestep_paths::PathSettings;
use sidestep_policy::{PlbSettings, PolicyName, PolicySettings, RewardName, WeightsName};
use sidestep_proto::mptcp::{MptcpSettings, Scheduler};
use sidestep_rcp::RcpSettings;
use sidestep_scenario::{
    Arrivals, Change, Event, EventDirection, Flow, Scenario, SystemError, SystemSpec, TcpSettings, Transport,
    workload::SizeDistribution,
};
use sidestep_systems::simulator;

/// The scenarios in `scenarios/`.
const READY: [(&str, &str); 16] = [
    ("six-paths", include_str!("../../../../scenarios/six-paths.toml")),
    ("six-paths-100", include_str!("../../../../scenarios/six-paths-100.toml")),
    ("unmodified", include_str!("../../../../scenarios/unmodified.toml")),
    ("smoke", include_str!("../../../../scenarios/smoke.toml")),
    ("dumbbell", include_str!("../../../../scenarios/dumbbell.toml")),
    ("short-flows", include_str!("../../../../scenarios/short-flows.toml")),
    ("requests", include_str!("../../../../scenarios/requests.toml")),
    ("content-provider", include_str!("../../../../scenarios/content-provider.toml")),
    ("enterprise-wan", include_str!("../../../../scenarios/enterprise-wan.toml")),
    ("blackhole", include_str!("../../../../scenarios/blackhole.toml")),
    ("blackhole-default", include_str!("../../../../scenarios/blackhole-default.toml")),
    ("blackhole-one-way", include_str!("../../../../scenarios/blackhole-one-way.toml")),
    ("link-down", include_str!("../../../../scenarios/link-down.toml")),
    ("asymmetric", include_str!("../../../../scenarios/asymmetric.toml")),
    ("slow-paths", include_str!("../../../../scenarios/slow-paths.toml")),
    ("inrpp", include_str!("../../../../scenarios/inrpp.toml")),
];

/// A network with every inline key, on which flows and events can be tried.
const INLINE: &str = r#"
duration = "10 s"
[topology]
node = [
  { name = "c1", kind = "host" },
  { name = "c2", kind = "host", prefix = "2001:db8:1::9/64" },
  { name = "s1", kind = "host" },
  { name = "A", locator = "fd77:0:1::/48" },
  { name = "B" },
]
link = [
  { ends = ["c1", "A"], rate = "1 Gbit/s", delay = "1 ms" },
  { ends = ["c2", "A"], rate = "1 Gbit/s", delay = "1 ms" },
  { ends = ["A", "B"], rate = "10 Mbit/s", delay = "5 ms", queue = "64 KiB", ecn = "30 packets", loss = "0.1 %", mtu = 1700 },
  { ends = ["A", "B"], rate = "10 Mbit/s", delay = "5 ms", ecn = "30 packets", weight = 20, reverse = { rate = "1 Mbit/s", ecn = "never" } },
  { ends = ["B", "s1"], name = "last", rate = "1 Gbit/s", delay = "1 ms" },
]
path = [{ name = "upper", links = ["A-B"] }]
"#;

/// The inline network and `more`.
fn inline(more: &str) -> Result<Scenario, ParseError> {
    Scenario::parse(&format!("{INLINE}{more}"), "inline")
}

/// Sender and receiver of each pair of the only flow, by name.
fn pairs(flow: &str) -> Vec<String> {
    let scenario = inline(flow).expect("the flow is fine");
    let [Flow::Bulk(flow)] = scenario.flows.as_slice() else { panic!("one bulk flow") };
    let name = |id: NodeId| &scenario.topology.node(id).name;
    flow.pairs.iter().map(|(from, to)| format!("{}>{}", name(*from), name(*to))).collect()
}

#[test]
fn the_ready_scenarios_are_read_under_the_names_of_their_files() {
    for (stem, text) in READY {
        let scenario = Scenario::parse(text, "other").unwrap_or_else(|error| panic!("{}", error.in_file(stem)));
        assert_eq!(scenario.name, stem);
    }
}

#[test]
fn six_paths_are_sixteen_connections_over_six_disjoint_paths() {
    let scenario = Scenario::parse(READY[0].1, "x").expect("it is read");
    let names: Vec<_> = scenario.systems.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["tcp", "ecmp", "random", "pathchanger"]);
    let [Flow::Bulk(flow)] = scenario.flows.as_slice() else { panic!("one bulk flow") };
    assert_eq!((flow.pairs.len(), flow.connections, flow.name.as_str()), (4, 4, "bulk-1"));
    let topology = &scenario.topology;
    assert_eq!(topology.paths().len(), 6);
    let mut links: Vec<LinkId> = topology.paths().iter().flat_map(|path| path.links.clone()).collect();
    links.sort();
    links.dedup();
    assert_eq!(links.len(), 12);
    // Routers have something to hash over.
    assert!(links.iter().all(|link| topology.link(*link).ab.weight == 10));
    let queue = topology.link(links[0]).ab.queue;
    assert_eq!((queue.limit, queue.ecn_threshold), (QueueLimit::Packets(100), Some(QueueLimit::Packets(40))));
}

#[test]
fn what_is_not_said_has_defaults() {
    let scenario = inline("").expect("it is read");
    assert_eq!((scenario.name.as_str(), scenario.seed), ("inline", 1));
    assert_eq!((scenario.warmup, scenario.sample), (Span::ZERO, Span::from_millis(100)));
    assert_eq!(scenario.systems, [SystemSpec::plain("tcp")]);
    assert_eq!(scenario.tcp, TcpSettings { congestion_control: "cubic".into(), ecn: true, ..TcpSettings::default() });
    assert_eq!(scenario.paths, PathSettings { max_segments: 4, max_paths: 8, adjacency: true });
    assert_eq!(scenario.tables.len(), 0);
    let name = Scenario::parse(INLINE, "my run (2)").expect("it is read").name;
    assert_eq!(name, "my-run--2-");
}

#[test]
fn an_inline_network_keeps_what_was_said_of_each_direction() {
    let topology = inline("").expect("it is read").topology;
    let names: Vec<_> = topology.links().iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["c1-A", "c2-A", "A-B", "A-B.2", "last"]);
    let link = topology.link(LinkId(3));
    assert_eq!((link.ab.rate, link.ba.rate), (Rate::from_mbits(10), Rate::from_mbits(1)));
    assert_eq!((link.ab.queue.ecn_threshold, link.ba.queue.ecn_threshold), (Some(QueueLimit::Packets(30)), None));
    assert_eq!((link.ab.weight, link.ba.weight, link.mtu), (20, 20, 1500));
    assert_eq!(topology.node(NodeId(1)).prefix.map(|net| net.to_string()), Some("2001:db8:1::/64".into()));
    assert_eq!(topology.node(NodeId(3)).locator.map(|net| net.to_string()), Some("fd77:0:1::/48".into()));
    assert!(topology.node(NodeId(4)).locator.is_some());
}

#[test]
fn patterns_pair_hosts_one_by_one_or_each_with_each() {
    assert_eq!(pairs("[[flow]]\nkind = 'bulk'\nfrom = 'c*'\nto = 's*'"), ["c1>s1", "c2>s1"]);
    assert_eq!(pairs("[[flow]]\nkind = 'bulk'\nfrom = ['s1', 'c1']\nto = ['c2']"), ["s1>c2", "c1>c2"]);
    let all = pairs("[[flow]]\nkind = 'bulk'\nfrom = 'c?'\nto = '*'\npairing = 'all'");
    assert_eq!(all, ["c1>c2", "c1>s1", "c2>c1", "c2>s1"]);
    assert_eq!(pairs("[[flow]]\nkind = 'bulk'\npairs = [['s1', 'c2'], ['c1', 'c2']]"), ["s1>c2", "c1>c2"]);
}

#[test]
fn events_are_sorted_by_time_and_name_links_or_a_path() {
    let scenario = inline(
        "[[event]]\nat = '5 s'\nlink = 'A-B*'\naction = 'rate'\nrate = '1 Mbit/s'\n\
         [[event]]\nat = '2 s'\npath = 'upper'\ndirection = 'forward'\naction = 'blackhole'",
    );
    let events = scenario.expect("it is read").events;
    let first = Event {
        at: Span::from_secs(2),
        links: vec![LinkId(2)],
        direction: EventDirection::Forward,
        change: Change::Blackhole,
    };
    assert_eq!(events[0], first);
    assert_eq!((&events[1].links, events[1].change), (&vec![LinkId(2), LinkId(3)], Change::Rate(Rate::from_mbits(1))));
}

#[test]
fn placeholders_in_commands_become_addresses() {
    let text = "[[flow]]\nkind = 'exec'\nnode = 'c1'\ncommand = ['curl', 'http://[{c2}]/']\nenv = { HOST = '{s1}' }";
    let scenario = inline(text).expect("it is read");
    let [Flow::Exec(flow)] = scenario.flows.as_slice() else { panic!("one exec flow") };
    assert!(flow.wait);
    let resolved = flow.resolved(&scenario.topology).expect("the names were checked");
    assert_eq!(resolved.command[1], "http://[2001:db8:1::1]/");
    assert_eq!(resolved.env["HOST"], "fd02:0:3::1");
}

/// The path changer's settings of a system in the inline network with `more`.
fn agent_of(more: &str, system: &str) -> Result<PolicySettings, SystemError> {
    let scenario = inline(more).expect("it is read");
    let (catalogue, spec) = (simulator().catalogue(), system.parse()?);
    catalogue.check(&scenario, &spec)?;
    catalogue.settings(&scenario, &spec)
}

#[test]
fn a_systems_parameters_override_the_agents() {
    let spec: SystemSpec = "pathchanger:policy=random, gamma=0.2,silence_min=20 ms".parse().expect("it is read");
    assert_eq!(spec.to_string(), "pathchanger:policy=random,gamma=0.2,silence_min=20 ms");
    let base = "[pathchanger]\nce_rounds = 3\nmark_mask = 0xff\npolicy = 'next'";
    let settings = agent_of(base, &spec.to_string()).expect("they fit");
    assert_eq!((settings.policy, settings.gamma, settings.ce_rounds), (PolicyName::Random, 0.2, 3));
    assert_eq!((settings.silence_backoff.min, settings.mark_mask), (Span::from_millis(20), 0xff));
    assert_eq!(
        agent_of(base, "random:gamma=1").map(|settings| (settings.policy, settings.gamma)),
        Ok((PolicyName::Random, 1.0))
    );
    for policy in PolicyName::ALL {
        assert_eq!(agent_of("", &format!("pathchanger:policy={policy}")).map(|settings| settings.policy), Ok(policy));
    }
    let guards = "pathchanger:policy=next,next_rtos=2,reward=rtt,rtt_guard=30 ms,reorder_guard=true,plb_pause=5 s,weights=prefix";
    let settings = agent_of("", guards).expect("they fit");
    assert_eq!((settings.next_rtos, settings.reward, settings.reorder_guard), (2, RewardName::Rtt, true));
    assert_eq!(settings.weights, WeightsName::Prefix);
    assert_eq!((settings.rtt_guard, settings.plb_pause), (Span::from_millis(30), Span::from_secs(5)));
}

#[test]
fn parameters_that_do_not_fit_are_errors_that_show_which_and_why() {
    let refused = |system: &str| agent_of("", system).unwrap_err().to_string();
    let all = [
        refused("pathchanger:next_rtos=0"),
        refused("pathchanger:gamma=nan"),
        refused("pathchanger:gamma=much"),
        refused("pathchanger:ce_rounds=1.5"),
        refused("pathchanger:ce_rounds=-1"),
        refused("pathchanger:reorder_guard=maybe"),
        refused("pathchanger:policy=best"),
        refused("pathchanger:silence_min=3"),
        refused("pathchanger:silence_min=2 min"),
        refused("pathchanger:gamma=0.1,gamma=0.2"),
        refused("pathchanger:gamma"),
        refused("pathchanger:mark_mask=255"),
        refused("mptcp:scheduler=best"),
        refused("mptcp:subflows=0"),
        refused("mptcp:source_ports=odd"),
        refused("mptcp:join_interval=3"),
        refused("mptcp:stale_after=16"),
        refused("rcp:gamma=2"),
        refused("rcp:slot=3 m"),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    next_rtos must be between 1 and 100
    gamma must be above 0 and at most 1
    gamma: `much` is not a number
    ce_rounds: `1.5` is not a whole number
    ce_rounds: invalid value: integer `-1`, expected u32
    reorder_guard: `maybe` is neither `true` nor `false`
    policy: unknown variant `best`, expected one of `static`, `random`, `exp3`, `next`, `lowest-rtt`, `plb`, `exp3-ix`, `fixed`, `delay-weighted`, `paper`
    silence_min: `3` is not a time; write a number and a unit, such as `50 ms`
    silence_backoff must have a `min` that is not above its `max`
    parameter `gamma` is given twice
    `gamma` is not a parameter; write `name=value`, with commas between several
    `pathchanger` has no parameter `mark_mask`; it has ack_quiet, ce_rounds, ce_share, ce_window, congestion_max, congestion_min, gain_guard, gamma, initial, jitter, next_rtos, plb_idle_rounds, plb_pause, plb_rounds, policy, queue_rounds, reorder_guard, retransmit_burst, reward, rtt_guard, settle_rounds, silence_max, silence_min, weights
    scheduler: unknown variant `best`, expected one of `min-rtt`, `round-robin`, `roundrobin`, `redundant`, `linux`
    subflows must be between 1 and 64
    source_ports: unknown variant `odd`, expected one of `random`, `consecutive`, `linux`
    join_interval: `3` is not a time; write a number and a unit, such as `50 ms`
    stale_after must be between 1 and 15
    gamma must be above 0 and at most 1
    slot: `m` is not a unit of time; known units: ns, us, µs, ms, s, min
    ");
}

#[test]
fn a_parameter_may_only_fit_the_settings_of_its_file() {
    // The default's longest interval is 10 s.
    let base = "[pathchanger]\nsilence_backoff = { min = '1 s', max = '60 s' }";
    assert_eq!(
        agent_of(base, "pathchanger:silence_min=30 s").map(|settings| settings.silence_backoff.min),
        Ok(Span::from_secs(30))
    );
}

#[test]
fn each_system_has_the_settings_of_its_table() {
    let scenario = inline("[mptcp]\nsubflows = 3\n[rcp]\nbeta = 0.5\n[plb]\nrehash_rounds = 5").expect("it is read");
    fn settings<T: SettingsTable>(scenario: &Scenario, system: &str) -> Result<T, SystemError> {
        simulator().catalogue().settings(scenario, &system.parse()?)
    }
    let mptcp = MptcpSettings { subflows: 3, scheduler: Scheduler::RoundRobin, ..MptcpSettings::default() };
    assert_eq!(settings(&scenario, "mptcp:scheduler=round-robin"), Ok(mptcp));
    assert_eq!(settings(&scenario, "rcp:alpha=1"), Ok(RcpSettings { alpha: 1.0, beta: 0.5, ..RcpSettings::default() }));
    let plb = PlbSettings { rehash_rounds: 5, idle_rehash_rounds: 1, ..PlbSettings::default() };
    assert_eq!(settings(&scenario, "plb:idle_rehash_rounds=1"), Ok(plb));
}

#[test]
fn flows_may_have_a_system_and_settings_of_tcp_of_their_own() {
    let text = "[tcp]\nmss = 1000\necn = false\n\
                [[flow]]\nkind = 'bulk'\nfrom = 'c1'\nto = 's1'\nsystem = 'pathchanger:gamma=0.2'\n\
                [[flow]]\nkind = 'bulk'\nfrom = 'c1'\nto = 's1'\ntcp = { congestion_control = 'reno', mss = 500 }\n\
                [[flow]]\nkind = 'exec'\nnode = 'c1'\ncommand = ['true']";
    let scenario = inline(text).expect("it is read");
    let of = |index: usize| scenario.flows[index].transport();
    let system = "pathchanger:gamma=0.2".parse().expect("it is read");
    assert_eq!(of(0), Some(&Transport { system: Some(system), tcp: None }));
    let tcp = TcpSettings { congestion_control: "reno".into(), mss: Some(500), ecn: false, ..TcpSettings::default() };
    assert_eq!(of(1), Some(&Transport { system: None, tcp: Some(tcp) }));
    assert_eq!(of(2), None);
    assert_eq!(Scenario::parse(&scenario.to_toml(), "inline").unwrap(), scenario);
}

#[test]
fn a_mark_mask_must_be_contiguous_and_wide_enough() {
    let mask = |mark_mask| {
        let settings = PolicySettings { mark_mask, ..PolicySettings::default() };
        settings.check().and(settings.check_max_paths(8)).is_ok()
    };
    assert!(mask(0xff00) && mask(0xf) && mask(u32::MAX) && mask(0xf000_0000));
    assert!(!mask(0) && !mask(0x7) && !mask(0xf0f0) && !mask(0x8000_0000) && !mask(0xff01));
}

#[test]
fn workloads_read_as_they_print() {
    let text = r#"
[[flow]]
kind = "poisson"
from = "c*"
to = "s1"
load = "50 %"
load_of = "10 Mbit/s"
size = { distribution = "exponential", mean = "50 kB" }
stop = "5 s"
[[flow]]
kind = "closed-loop"
from = "c1"
to = "s1"
users = 3
think = "500 ms"
size = { distribution = "web-search" }
[[flow]]
kind = "cbr"
from = ["c1", "c2"]
to = ["c2", "c1"]
pairing = "permutation"
rate = "1 Mbit/s"
on = "1 s"
off = "2 s"
random = true
[[flow]]
kind = "bulk"
from = ["c1", "c2", "s1"]
to = ["s1", "c1"]
pairing = "incast"
"#;
    let scenario = inline(text).unwrap();
    assert_eq!(Scenario::parse(&scenario.to_toml(), "inline").unwrap(), scenario);
    let queues = inline("").unwrap().to_toml();
    let red = "loss = \"0 %\", red = { min = \"5 kB\", max = \"15 kB\" }, burst_loss = { to_bad = \"1 %\", to_good = \"20 %\" }";
    let (before, after) = queues.split_once("loss = \"0.1 %\"").expect("the third link loses packets");
    let queues = format!("{before}{red}{after}");
    let queues = Scenario::parse(&queues, "inline").unwrap();
    let channel = queues.topology.link(LinkId(2)).ab;
    assert!(channel.queue.red.is_some_and(|red| red.gentle) && channel.burst_loss.is_some());
    assert_eq!(Scenario::parse(&queues.to_toml(), "inline").unwrap(), queues);
    let Flow::OpenLoop(poisson) = &scenario.flows[0] else { panic!("{:?}", scenario.flows[0]) };
    // Half of 10 Mbit/s is 12.5 transfers of 50 kB a second.
    let Arrivals::Poisson { rate, shares, .. } = &poisson.arrivals else { panic!("{poisson:?}") };
    assert_eq!((*rate, poisson.pairs.len(), shares.len()), (12.5, 2, 0));
    let Flow::Cbr(cbr) = &scenario.flows[2] else { panic!("{:?}", scenario.flows[2]) };
    assert_eq!(cbr.pairs.iter().map(|(from, to)| (from.0, to.0)).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
    let Flow::Bulk(incast) = &scenario.flows[3] else { panic!("{:?}", scenario.flows[3]) };
    assert_eq!(incast.pairs.iter().map(|(from, to)| (from.0, to.0)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
}

#[test]
fn requests_and_sizes_in_a_file_are_read_and_resolved() {
    let asking = |request: &str, size: &str| {
        format!(
            "{INLINE}[[flow]]\nkind = \"poisson\"\nfrom = \"c1\"\nto = \"s1\"\nrate = 10.0\nrequest = \"{request}\"\n\
             size = {size}\n"
        )
    };
    let file = "{ distribution = \"empirical\", cdf = \"web.csv\" }";
    let text = asking("300 B", file);
    let read = |csv: Result<&str, &str>| {
        let files = |name: &str| {
            assert_eq!(name, "web.csv");
            csv.map(String::from).map_err(String::from)
        };
        Scenario::parse_with_files(&text, "inline", &files)
    };
    let scenario = read(Ok("bytes,p\n1460,0.5\n10 kB,1\n")).unwrap();
    let Flow::OpenLoop(flow) = &scenario.flows[0] else { panic!("{:?}", scenario.flows[0]) };
    assert_eq!(flow.request, Some(Bytes::new(300)));
    let Arrivals::Poisson { size, .. } = &flow.arrivals else { panic!("{flow:?}") };
    assert_eq!(*size, SizeDistribution::Empirical(vec![(Bytes::new(1_460), 0.5), (Bytes::new(10_000), 1.0)]));
    // What is resolved needs no file.
    assert_eq!(Scenario::parse(&scenario.to_toml(), "inline").unwrap(), scenario);
    let refused = |csv| read(csv).unwrap_err().message;
    assert_eq!(
        refused(Ok("1460,0.5\n")),
        "web.csv, line 1: the last size must have the probability 1, or 100 if all are percents"
    );
    assert_eq!(refused(Err("web.csv: No such file")), "web.csv: No such file");
    let unread = Scenario::parse(&text, "inline").unwrap_err().message;
    assert_eq!(unread, "`web.csv`: files that a scenario names cannot be read here");
    let short = |size| Scenario::parse(&asking("15 B", size), "inline").unwrap_err().message;
    assert_eq!(short(file), "`web.csv`: files that a scenario names cannot be read here");
    assert_eq!(short("\"1 kB\""), "must be at least 16 B");
}
