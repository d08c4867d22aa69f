//! The resolved copy is the scenario, and no text makes the parsers panic.

use std::collections::BTreeMap;

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
};
use sidestep_inrpp::{AfterTimeout, Credit, InrppSettings, Notifications, Preset, Threshold};
use sidestep_net::{
    Bytes, Channel, InitialName, Link, LinkId, NamedPath, Node, NodeId, NodeKind, Queue, QueueLimit, Rate, Ratio, Span,
    Topology, srv6, topology_file,
};
use sidestep_paths::PathSettings;
use sidestep_policy::{Backoff, OnDead, PlbSettings, PolicyName, PolicySettings, RewardName, WeightsName};
use sidestep_proto::mptcp::{MptcpSettings, Scheduler, SourcePorts};
use sidestep_rcp::RcpSettings;
use sidestep_route_control::RouteControlSettings;
use sidestep_scenario::{
    BulkFlow, Change, Effect, Event, EventDirection, ExecFlow, Flow, Impairment, Periods, RoutingSettings, Scenario,
    SystemSpec, TcpSettings, Transport,
};
use sidestep_semper::SemperSettings;

use super::{INLINE, READY};

#[test]
fn the_resolved_copy_of_each_ready_scenario_is_that_scenario() {
    for (stem, text) in READY.into_iter().chain([("inline", INLINE)]) {
        let scenario = Scenario::parse(text, stem).expect("it is read");
        let copy = Scenario::parse(&scenario.to_toml(), "other").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(copy, scenario);
    }
}

#[test]
fn the_access_rates_that_generators_compute_are_read_again() {
    for (generator, rate) in [("parallel-paths", "9007199254740991 bit/s"), ("dumbbell", "9000000 Tbit/s")] {
        let text = format!("duration = '1 s'\n[topology]\ngenerator = '{generator}'\nrate = '{rate}'");
        let scenario = Scenario::parse(&text, "fast").expect("it is read");
        assert_eq!(Scenario::parse(&scenario.to_toml(), "fast"), Ok(scenario));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_resolved_copy_reads_as_the_same_scenario(scenario in scenarios()) {
        let text = scenario.to_toml();
        let copy = Scenario::parse(&text, "other").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(copy, scenario);
    }

    #[test]
    fn a_printed_topology_reads_as_the_same_topology(topology in topologies()) {
        prop_assert_eq!(topology_file::parse(&topology_file::print(&topology)), Ok(topology));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC*") {
        let _ = (Scenario::parse(&text, &text), topology_file::parse(&text), text.parse::<SystemSpec>());
    }

    #[test]
    fn no_damage_to_a_good_file_makes_the_parser_panic(
        which in any::<Index>(), resolved in any::<bool>(), cuts in vec((any::<Index>(), 0usize..20, "\\PC{0,6}|[0-9\\[\\]{}\"=,.]{1,3}"), 1..4),
    ) {
        let mut text = which.get(&READY).1.to_owned();
        if resolved {
            text = Scenario::parse(&text, "good").expect("it is read").to_toml();
        }
        for (at, length, instead) in cuts {
            let chars: Vec<char> = text.chars().collect();
            let from = at.index(chars.len().max(1)).min(chars.len());
            let to = (from + length).min(chars.len());
            text = chars[..from].iter().copied().chain(instead.chars()).chain(chars[to..].iter().copied()).collect();
        }
        if let Err(error) = Scenario::parse(&text, "damaged") {
            prop_assert!((1..=text.lines().count() + 1).contains(&error.line), "{}", error);
        }
    }
}

const NAMES: [&str; 5] = ["tcp", "mptcp", "semper-stateful", "own-system", "route-control"];

/// Settings as a scenario has them.
fn table(key: &str, settings: &impl serde::Serialize) -> (String, toml::Table) {
    (key.into(), toml::Table::try_from(settings).expect("it is a table"))
}

prop_compose! {
    fn scenarios()(topology in topologies())(
        // The flows and events name hosts and links of the topology.
        flows in vec(flows(topology.clone()), 0..4),
        events in vec(events(topology.clone()), 0..4),
        impairments in vec(impairments(topology.clone()), 0..3),
        topology in Just(topology),
        name in "[a-zA-Z0-9._-]{1,64}",
        seed in any::<u64>(),
        repetition in 0u32..3,
        warmup in 0u64..1_000_000_000,
        sample in 1_000_000u64..1_000_000_000,
        systems in Just(NAMES).prop_shuffle().prop_flat_map(|all| (1..all.len()).prop_map(move |n| all[..n].to_vec())),
        gamma in 0.001f64..1.0,
        tcp in ("[a-z]{1,15}", any::<bool>()),
        paths in (1usize..=32, 1usize..=16, any::<bool>()),
        agent in agents(),
    ) -> Scenario {
        let mut systems: Vec<_> = systems.into_iter().map(SystemSpec::plain).collect();
        let mut flows: Vec<Flow> = flows;
        for (index, flow) in flows.iter_mut().enumerate() {
            match flow {
                Flow::Bulk(flow) => flow.name = format!("flow-{index}"),
                Flow::Exec(flow) => flow.name = format!("flow-{index}"),
                _ => {}
            }
        }
        let mut events: Vec<Event> = events;
        events.sort_by_key(|event| event.at);
        systems.push(SystemSpec { name: "pathchanger".into(), params: vec![("gamma".into(), gamma.to_string())] });
        Scenario {
            name, seed, repetition, duration: Span::from_secs(10), warmup: Span::from_nanos(warmup), sample: Span::from_nanos(sample),
            systems, topology, tcp: TcpSettings { congestion_control: tcp.0, ecn: tcp.1, mss: Some(1000), ..TcpSettings::default() },
            tables: BTreeMap::from([
                table("mptcp", &MptcpSettings {
                    subflows: 3,
                    scheduler: Scheduler::RoundRobin,
                    source_ports: SourcePorts::Linux,
                    join_interval: Span::from_millis(3),
                    ..MptcpSettings::default()
                }),
                table("semper", &SemperSettings { aware: false, table: 77, ..SemperSettings::default() }),
                table("route-control", &RouteControlSettings { edges: vec!["e".into()], guards: false, ..RouteControlSettings::default() }),
                table("rcp", &RcpSettings { gamma: 0.9, ..RcpSettings::default() }),
                table("inrpp", &InrppSettings {
                    high: Threshold::At(Bytes::new(1_234_567)),
                    credit: Credit::RoundRobin,
                    detours: false,
                    borders: vec!["a-*".into()],
                    notifications: Notifications::Data,
                    rto: AfterTimeout::Text,
                    preset: Preset::Ns3,
                    ..InrppSettings::default()
                }),
                table("plb", &PlbSettings { rehash_rounds: 7, ..PlbSettings::default() }),
                table("pathchanger", &agent),
            ]),
            routing: RoutingSettings { convergence: Span::from_millis(7) },
            paths: PathSettings { max_segments: paths.0, max_paths: paths.1, adjacency: paths.2 },
            flows, events, impairments,
        }
    }
}

prop_compose! {
    fn agents()(
        policy in select(&PolicyName::ALL[..]),
        gamma in prop_oneof![1e-9f64..1.0, Just(1.0)],
        ce_share in 1u32..=1_000_000_000,
        ce_rounds in 1u32..=64,
        ce_window in 1u32..=64,
        retransmit_burst in any::<u32>(),
        (jitter, quiet) in (0u32..=1_000_000_000, 0u32..=1_000_000_000),
        congestion in backoffs(),
        silence in backoffs(),
        reward in select(&RewardName::ALL[..]),
        weights in (select(&WeightsName::ALL[..]), select(&InitialName::ALL[..]), any::<u32>()),
        next in (1u32..=100, 0u32..=64, any::<bool>()),
        plb in (any::<u32>(), any::<u32>()),
        spans in (0u64..1 << 50, 0u64..1 << 50),
        mark_mask in (0u32..24).prop_map(|shift| 0xff << shift),
    ) -> PolicySettings {
        PolicySettings {
            policy, gamma, ce_share: Ratio::from_ppb(ce_share), ce_rounds, ce_window, retransmit_burst,
            jitter: Ratio::from_ppb(jitter), congestion_backoff: congestion, silence_backoff: silence, reward,
            weights: weights.0, initial: weights.1, queue_rounds: weights.2,
            next_rtos: next.0, ack_quiet: Ratio::from_ppb(quiet), settle_rounds: next.1, reorder_guard: next.2, gain_guard: !next.2, plb_idle_rounds: plb.0, plb_rounds: plb.1,
            rtt_guard: Span::from_nanos(spans.0), plb_pause: Span::from_nanos(spans.1), mark_mask,
            on_dead: if next.2 { OnDead::Reset } else { OnDead::Keep },
            reset_after: Span::from_millis(1_000 + spans.0 % 599_000),
        }
    }
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    (1u64..1 << 40, 0u64..1 << 40)
        .prop_map(|(min, more)| Backoff { min: Span::from_nanos(min), max: Span::from_nanos(min + more) })
}

fn limits() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (1u32..).prop_map(QueueLimit::Packets),
        (65_000u64..1 << 50).prop_map(|n| QueueLimit::Bytes(Bytes::new(n)))
    ]
}

prop_compose! {
    fn channels()(rate in 0u64..1 << 50, delay in 0u64..1 << 50, limit in limits(), ecn in option::of(limits()),
                  loss in 0u32..=1_000_000_000, weight in 1u64..1 << 47) -> Channel {
        Channel {
            rate: Rate::from_bits_per_sec(rate), delay: Span::from_nanos(delay),
            queue: Queue { limit, ecn_threshold: ecn, red: None }, loss: Ratio::from_ppb(loss), burst_loss: None, weight,
        }
    }
}

prop_compose! {
    /// Two hosts or more, one router or more, addresses assigned.
    pub(super) fn topologies()(
        kinds in vec(any::<bool>(), 0..6),
        links in vec((any::<Index>(), any::<Index>(), channels(), option::of(channels()), 1280u32..=65_000), 1..8),
        paths in vec(vec(any::<Index>(), 1..4), 0..3),
        own in any::<bool>(),
    ) -> Topology {
        let mut topology = Topology::new();
        for (index, host) in [true, true, false].into_iter().chain(kinds).enumerate() {
            let kind = if host { NodeKind::Host } else { NodeKind::Router };
            let prefix = (own && host).then(|| format!("2001:db8:{index}::/{}", 48 + index).parse().expect("a prefix"));
            topology.add_node(Node { name: format!("n{index}"), kind, prefix, locator: None }).expect("a new name");
        }
        srv6::assign_addresses(&mut topology);
        let count = topology.nodes().len();
        for (index, (a, b, ab, ba, mtu)) in links.into_iter().enumerate() {
            let a = a.index(count);
            let b = (a + 1 + b.index(count - 1)) % count;
            let (a, b) = (NodeId(a as u32), NodeId(b as u32));
            topology.add_link(Link { name: format!("l{index}"), a, b, ab, ba: ba.unwrap_or(ab), mtu }).expect("it fits");
        }
        let count = topology.links().len();
        for (index, links) in paths.into_iter().enumerate() {
            let links = links.iter().map(|link| LinkId(link.index(count) as u32)).collect();
            topology.add_path(NamedPath { name: format!("p{index}"), links }).expect("a new name");
        }
        topology
    }
}

fn transports() -> impl Strategy<Value = Transport> {
    let systems = select(vec!["tcp", "rcp:gamma=0.5", "pathchanger:gamma=0.2,silence_min=20 ms"]);
    let system = option::of(systems.prop_map(|system| system.parse::<SystemSpec>().expect("it is read")));
    // The scenario's segments have a size of their own, which a flow can change and not take back.
    let tcp = ("[a-z]{1,15}", any::<bool>(), 64u16..60_000).prop_map(|(congestion_control, ecn, mss)| TcpSettings {
        congestion_control,
        ecn,
        mss: Some(mss),
        ..TcpSettings::default()
    });
    (system, option::of(tcp)).prop_map(|(system, tcp)| Transport { system, tcp })
}

fn flows(topology: Topology) -> impl Strategy<Value = Flow> {
    let count = topology.nodes().len();
    let times = || (0u64..9_000_000_000, option::of(9_000_000_000u64..=10_000_000_000));
    let at = |(start, stop): (u64, Option<u64>)| (Span::from_nanos(start), stop.map(Span::from_nanos));
    let hosts: Vec<NodeId> = topology.node_ids().filter(|id| !topology.is_router(*id)).collect();
    let hosts_of_pair = vec((any::<Index>(), any::<Index>()), 1..5);
    let bulk = (hosts_of_pair, 1u32..100, times(), option::of(1u64..1 << 50), option::of(1u16..), transports())
        .prop_map(move |(pairs, connections, times, size, port, transport)| {
            let (start, stop) = at(times);
            let pair = |(a, b): (Index, Index)| {
                let a = a.index(hosts.len());
                (hosts[a], hosts[(a + 1 + b.index(hosts.len() - 1)) % hosts.len()])
            };
            let pairs = pairs.into_iter().map(pair).collect();
            Flow::Bulk(BulkFlow {
                name: String::new(),
                pairs,
                connections,
                start,
                start_jitter: stop.map_or(Span::ZERO, |stop| Span::from_nanos((stop - start).as_nanos() / 2)),
                stop,
                size: size.map(Bytes::new),
                port,
                transport,
            })
        });
    // Anything a shell may be given but braces around a name that no node has.
    let word = "[^\\x00{}]{0,12}|\\{n0\\}|\\{\\}|\"\"\"|'''|\\\\\n\t";
    let env = prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,5}", word, 0..3);
    let exec = (any::<Index>(), ("[a-z]{1,8}", vec(word, 0..4)), env, times(), any::<bool>()).prop_map(
        move |(node, (program, words), env, times, wait): (_, _, BTreeMap<_, _>, _, _)| {
            let (start, stop) = at(times);
            let command = std::iter::once(program).chain(words).collect();
            let node = NodeId(node.index(count) as u32);
            Flow::Exec(ExecFlow { name: String::new(), node, command, env, start, stop, wait })
        },
    );
    prop_oneof![bulk, exec]
}

pub(super) fn impairments(topology: Topology) -> impl Strategy<Value = Impairment> {
    let count = topology.links().len();
    let effect =
        prop_oneof![Just(Effect::Outage), (0u32..=1_000_000_000).prop_map(|loss| Effect::Loss(Ratio::from_ppb(loss)))];
    let direction = select(vec![EventDirection::Both, EventDirection::Forward, EventDirection::Reverse]);
    let distribution = select(vec![Periods::Exponential, Periods::Fixed]);
    let means = (1_000_000u64..1 << 33, 1_000_000u64..1 << 33);
    let times = (0u64..9_000_000_000, option::of(9_000_000_000u64..=10_000_000_000));
    (vec(any::<Index>(), 1..3), direction, distribution, effect, means, times).prop_map(
        move |(links, direction, distribution, effect, (good, bad), (start, stop))| Impairment {
            links: links.iter().map(|link| LinkId(link.index(count) as u32)).collect(),
            direction,
            good: Span::from_nanos(good),
            bad: Span::from_nanos(bad),
            distribution,
            effect,
            start: Span::from_nanos(start),
            stop: stop.map(Span::from_nanos),
        },
    )
}

pub(super) fn events(topology: Topology) -> impl Strategy<Value = Event> {
    let count = topology.links().len();
    let change = prop_oneof![
        Just(Change::Down),
        Just(Change::Up),
        Just(Change::Blackhole),
        (0u64..1 << 50).prop_map(|rate| Change::Rate(Rate::from_bits_per_sec(rate))),
        (0u64..1 << 50).prop_map(|delay| Change::Delay(Span::from_nanos(delay))),
        (0u32..=1_000_000_000).prop_map(|loss| Change::Loss(Ratio::from_ppb(loss))),
    ];
    let direction =
        prop_oneof![Just(EventDirection::Both), Just(EventDirection::Forward), Just(EventDirection::Reverse)];
    (0u64..10_000_000_000, vec(any::<Index>(), 1..4), direction, change).prop_map(
        move |(at, links, direction, change)| {
            let links = links.iter().map(|link| LinkId(link.index(count) as u32)).collect();
            Event { at: Span::from_nanos(at), links, direction, change }
        },
    )
}
