//! INRPP in the simulator: the dumbbell of the paper, bad settings, and networks at random.

mod limits;
mod options;
mod sweep;

use std::{collections::BTreeMap, fs, path::Path};

use proptest::{prelude::*, test_runner::RngSeed};
use sidestep_inrpp::{CacheMeasures, custody_margin};
use sidestep_net::{Bytes, Rate, Span};
use sidestep_results::{RunResult, SystemResult};
use sidestep_scenario::{
    Scenario,
    builder::{ScenarioBuilder, bulk, down, part, up},
};
use sidestep_sim::{RunOptions, SimError, run};

/// The ready scenario: three flows of 10 MB over two ways of 10 Mbit/s.
fn ready() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/inrpp.toml")).unwrap()
}

/// The ready scenario with notices in place of limits, as in the paper.
fn dumbbell() -> Scenario {
    let text =
        ready().replace("[inrpp]\n", "[inrpp]\nbackpressure = \"notices\"\nhigh = \"10 MB\"\nbuffer = \"50 ms\"\n");
    Scenario::parse(&text, "inrpp").unwrap()
}

/// With the sizes that the paper's text names; those of its figures are ten times as large.
const TEXT: &str = "inrpp:cache=1250 kB,high=1 MB,low=500 kB";

fn options(scenario: &Scenario, system: &str) -> RunOptions {
    RunOptions::once(sidestep_systems::simulator(), scenario.clone(), vec![system.parse().unwrap()])
}

fn try_results(scenario: &Scenario, system: &str) -> Result<RunResult, SimError> {
    run(&options(scenario, system), &()).map(|(result, _)| result)
}

fn results(scenario: &Scenario, system: &str) -> SystemResult {
    let result = try_results(scenario, system).unwrap();
    result.systems.values().next().unwrap().clone()
}

/// A run's results, and the rows of its `series.csv`, each by the names of its columns.
fn series(scenario: &Scenario, system: &str) -> (SystemResult, Vec<BTreeMap<String, String>>) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(scenario, system);
    options.out = Some(dir.path().to_owned());
    let (result, _) = run(&options, &()).unwrap();
    let text = fs::read_to_string(dir.path().join("series.csv")).unwrap();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| head.iter().zip(line.split(',')).map(|(name, cell)| ((*name).into(), cell.into())).collect();
    (result.systems.values().next().unwrap().clone(), lines.map(row).collect())
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap()
}

/// The mean completion time of three flows that share 20 Mbit/s evenly, as a fluid: 10 MB each in packets of 1488 bytes that
/// carry 1400, from 1 s, 2 s and 3 s on.
fn fluid_bound() -> f64 {
    let mut left = [10e6 * 1_488.0 / 1_400.0; 3];
    let mut ends = [0.0; 3];
    let (mut now, step) = (1.0, 1e-4);
    while ends.contains(&0.0) {
        let active: Vec<usize> = (0..3).filter(|at| now >= 1.0 + *at as f64 && left[*at] > 0.0).collect();
        now += step;
        for at in &active {
            left[*at] -= 2.5e6 * step / active.len() as f64;
            if left[*at] <= 0.0 {
                ends[*at] = now;
            }
        }
    }
    (ends[0] - 1.0 + ends[1] - 2.0 + ends[2] - 3.0) / 3.0
}

/// What the caches did.
fn caches(result: &SystemResult) -> Option<CacheMeasures> {
    result.own("caches")
}

/// Packets lost on links and in caches.
fn lost(result: &SystemResult) -> u64 {
    result.total_drops()
}

#[test]
fn the_dumbbell_fills_both_ways_and_loses_nothing() {
    let result = results(&dumbbell(), "inrpp");
    let (afct, bound) = (result.afct_s.unwrap(), fluid_bound());
    assert!(afct > bound && afct < 1.02 * bound, "{afct} s, {bound} s as a fluid");
    assert_eq!((lost(&result), result.retransmits, result.unfinished), (0, 0, None));
    let done = caches(&result).unwrap();
    assert!(done.detoured > 9_000 && done.slow_downs > 1_000 && done.forged == 0, "{done:?}");
}

#[test]
fn caches_lose_packets_only_where_the_margin_is_too_small() {
    // What 1 Gbit/s sends in the round trip of the link before the cache, and between two ACKs.
    let input = (Rate::from_mbits(1_000), Span::from_millis(5), Span::from_micros(600));
    let needed = custody_margin(&[input], Rate::from_mbits(20));
    assert!(needed < Bytes::new(2_500_000) && needed > Bytes::new(250_000), "{needed}");
    assert_eq!(lost(&results(&dumbbell(), "inrpp")), 0);
    let small = results(&dumbbell(), TEXT);
    assert!(lost(&small) > 0, "{small:?}");
}

#[test]
fn a_run_says_whether_its_caches_cover_what_arrives() {
    let of = |system: &str| caches(&results(&dumbbell(), system)).unwrap();
    // Routers 4 and 0 press back, and hold what comes until those before have slowed down.
    let large = of("inrpp").custody.unwrap();
    assert!(large.pressed >= 2 && large.holds() && large.dropped == 0, "{large:?}");
    assert!((300_000..2_500_000).contains(&large.needed_bytes), "{large:?}");
    // With the sizes of the text they do not, and what they drop does not count against the condition.
    let small = of(TEXT);
    let custody = small.custody.unwrap();
    assert!(!custody.holds() && custody.dropped == 0 && small.dropped > 0, "{small:?}");
    let said =
        |system: &str, start: &str| results(&dumbbell(), system).notes.iter().any(|note| note.starts_with(start));
    let start = "2 of 2 caches that press back have less room above `high` than may come";
    assert!(said(TEXT, start) && said(TEXT, "caches dropped ") && !said("inrpp", start));
    let limits = |high: &str| said(&format!("inrpp:backpressure=limits,high={high},low=auto"), "`high` leaves less");
    assert!(limits("12450 kB") && !limits("12 MB") && !limits("auto"));
    // Where ACKs release nothing, or hosts open again at once, it says nothing.
    for system in ["inrpp:notifications=data", "inrpp:rto=text", "inrpp:obedient=false", "inrpp:ack_processing=printed"]
    {
        assert_eq!(of(system).custody, None, "{system}");
    }
}

#[test]
fn flows_share_evenly_while_caches_fill_and_press_back() {
    let (result, rows) = series(&dumbbell(), "inrpp");
    // Of 20 Mbit/s one flow gets all, two a half and three a third; 1400 bytes of 1488 are goodput.
    let goodput = |flow: u32, from: f64, until: f64| {
        let host = format!("s{flow}:");
        let of_flow = |row: &&BTreeMap<String, String>| {
            let time = number(row, "time_s");
            row["kind"] == "connection" && row["name"].starts_with(&host) && time > from && time <= until
        };
        let rates: Vec<f64> = rows.iter().filter(of_flow).map(|row| number(row, "mbps")).collect();
        rates.iter().sum::<f64>() / rates.len() as f64 * 1_488.0 / 1_400.0
    };
    for (flow, from, until, plateau) in
        [(1, 1.3, 2.0, 20.0), (1, 2.3, 3.0, 10.0), (2, 2.3, 3.0, 10.0), (1, 4.0, 10.0, 6.67), (3, 4.0, 10.0, 6.67)]
    {
        let mean = goodput(flow, from, until);
        assert!((mean / plateau - 1.0).abs() < 0.03, "flow {flow} from {from} s: {mean} of {plateau} Mbit/s");
    }
    let cache =
        |name: &str| rows.iter().filter(|row| row["kind"] == "cache" && row["name"] == name).collect::<Vec<_>>();
    let begins = |name: &str| {
        let pressing = cache(name).into_iter().find(|row| row["path"] == "backpressure");
        pressing.map(|row| number(row, "time_s"))
    };
    // The paper has Backpressure at 3.04 s in node 0 and at about 5 s in node 4.
    assert!(begins("0>2").is_some_and(|at| (3.0..=3.2).contains(&at)), "{:?}", begins("0>2"));
    assert!(begins("4>0").is_some_and(|at| (4.6..=5.2).contains(&at)), "{:?}", begins("4>0"));
    // What it holds of each flow adds up to what it holds; the flows fill it alike.
    let of_flows = |time: &str| {
        let stored = rows.iter().filter(|row| row["kind"] == "stored" && row["time_s"] == time);
        let stored = stored.filter(|row| row["name"].starts_with("0>2 s"));
        stored.map(|row| number(row, "queue_bytes")).collect::<Vec<_>>()
    };
    let (held, all) = (of_flows("5.0"), cache("0>2").into_iter().find(|row| row["time_s"] == "5.0").unwrap());
    assert_eq!((held.len(), held.iter().sum::<f64>()), (3, number(all, "queue_bytes")));
    // Pooled credit keeps the occupancy at its upper bound as long as node 4 has something to send.
    let held = cache("0>2").into_iter().filter(|row| (3.5..=9.0).contains(&number(row, "time_s")));
    let held: Vec<f64> = held.map(|row| number(row, "queue_bytes") / 1e6).collect();
    assert!(held.iter().all(|held| (10.0..11.0).contains(held)), "{held:?}");
    assert!(caches(&result).unwrap().peak_bytes < 12_500_000);
}

#[test]
fn a_sender_without_caches_on_its_way_is_slowed_down_itself() {
    // The first router after the hosts is the one before the bottleneck.
    let scenario = ScenarioBuilder::new("20 s").dumbbell(2).network("rate", "10 Mbit/s").network("delay", "5 ms");
    let scenario = scenario.network("access_rate", "100 Mbit/s").network("queue", "80 kB");
    let scenario = scenario
        .set("inrpp.backpressure", "notices")
        .set("inrpp.cache", "1 MB")
        .set("inrpp.high", "500 kB")
        .set("inrpp.low", "250 kB");
    let scenario = scenario
        .set("tcp.ack_every", 1)
        .flow(bulk("l1", "r1").with("size", "8 MB"))
        .flow(bulk("l2", "r2").with("size", "8 MB"));
    for system in ["inrpp", "inrpp:credit=own", "inrpp:ack_processing=printed"] {
        let result = results(&scenario.clone().build(), system);
        assert_eq!((lost(&result), result.unfinished), (0, None), "{system}");
        assert!(result.fairness.unwrap() > 0.999, "{system}: {result:?}");
        // 16 MB in packets of 1500 bytes that carry 1412 take 13.6 s. As printed, the cache drains without a cancel, and senders
        // wait until notifications have expired.
        let afct = result.afct_s.unwrap();
        assert_eq!(afct < 13.9, !system.contains("printed"), "{system}: {afct} s");
        assert!(caches(&result).unwrap().peak_bytes < 1_000_000, "{system}");
    }
}

#[test]
fn the_same_scenario_and_seed_give_the_same_results() {
    assert_eq!(results(&dumbbell(), TEXT), results(&dumbbell(), TEXT));
}

#[test]
fn settings_that_cannot_be_are_refused_in_one_line() {
    let refusal = |system: &str| try_results(&dumbbell(), system).unwrap_err().to_string();
    for (parameters, problem) in [
        ("cache=1 kB", "cache must be between 1500 B and 1 TB"),
        ("high=20 MB", "high must be at most `cache`"),
        ("low=10 MB", "low must be below `high`"),
        ("alpha=0.6", "alpha must be above 0 and below 0.555 (π/(4√2))"),
        ("decision_interval=20 ms", "decision_interval must be at least five times `probe_interval`"),
    ] {
        let system = format!("inrpp:{parameters}");
        assert_eq!(refusal(&system), format!("system `{system}`: {problem}"));
    }
    // What only notices have.
    for parameter in
        ["obedient=false", "notifications=data", "credit=own", "rto=text", "ack_processing=printed", "preset=ns3"]
    {
        let system = format!("inrpp:backpressure=limits,{parameter}");
        let name = parameter.split('=').next().unwrap();
        assert_eq!(refusal(&system), format!("system `{system}`: {name} needs `backpressure = \"notices\"`"));
    }
    // Half of the cache is the high threshold, as in a round trip of 20 ms a link of 10 Mbit/s carries more than all of it.
    let small = ScenarioBuilder::new("1 s").dumbbell(1).network("rate", "10 Mbit/s").network("delay", "5 ms");
    let small = small.set("inrpp.backpressure", "notices").set("inrpp.low", "15 kB");
    let small = small.set("inrpp.cache", "20 kB").flow(bulk("l1", "r1")).build();
    let problem = try_results(&small, "inrpp").unwrap_err().to_string();
    assert!(problem.starts_with("system `inrpp`: router `L`, interface 0: the low threshold (15 kB)"), "{problem}");
    assert!(!problem.contains('\n'));
}

/// A network of routers in a ring with chords, a host at each, and flows between them.
#[derive(Clone, Debug)]
struct Wild {
    routers: u32,
    chords: Vec<(u32, u32)>,
    /// Which hosts, and how many kB.
    flows: Vec<(u32, u32, u32)>,
    /// Which link of the ring goes down, when, and for how long, in ms.
    failures: Vec<(u32, u32, u32)>,
    loss_percent: u32,
    ack_every: u32,
    cache_kb: u32,
    high_kb: u32,
    /// Rate of the hosts' links in Mbit/s.
    access: u32,
    /// Whether ACKs take the way of the data, back: weights then leave one shortest path.
    symmetric: bool,
    /// Whether routers set limits, or send notices.
    limits: bool,
    seed: u32,
}

/// Networks whose caches cover what arrives: ACKs pass the caches, nothing fails, nothing is lost on links, and there is an ACK for each segment.
fn covered() -> impl Strategy<Value = Wild> {
    wild().prop_map(|wild| {
        // Each host goes on for a round trip, after the first of its flow's packets has passed the buffers of three routers
        // and eight flows at each; routers for a round trip of a link, and until all flows' ACKs have passed.
        let ack = Span::from_millis(250);
        let hosts = wild.flows.iter().map(|_| (Rate::from_mbits(10), Span::from_millis(15), ack));
        let routers = (0..wild.routers).map(|_| (Rate::from_mbits(5), Span::from_millis(3), ack));
        let margin = custody_margin(&hosts.chain(routers).collect::<Vec<_>>(), Rate::from_mbits(5));
        let high_kb = 300;
        let flows = wild.flows.into_iter().map(|(from, step, kb)| (from, step, kb * 12)).collect();
        let cache_kb = high_kb + u32::try_from(margin.get() / 1_000).unwrap();
        Wild {
            failures: Vec::new(),
            loss_percent: 0,
            ack_every: 1,
            access: 10,
            symmetric: true,
            limits: false,
            flows,
            cache_kb,
            high_kb,
            ..wild
        }
    })
}

fn wild() -> impl Strategy<Value = Wild> {
    (3..7u32).prop_flat_map(|routers| {
        let chord = (0..routers, 0..routers);
        let flow = (0..routers, 1..routers, 1..400u32);
        let failure = (0..routers, 0..4_000u32, 50..3_000u32);
        (
            proptest::collection::vec(chord, 0..4),
            proptest::collection::vec(flow, 1..8),
            proptest::collection::vec(failure, 0..3),
            0..3u32,
            1..3u32,
            prop_oneof![Just(30u32), Just(100), Just(2_000)],
            any::<(bool, u16)>(),
        )
            .prop_map(move |(chords, flows, failures, loss_percent, ack_every, cache_kb, (limits, seed))| {
                Wild {
                    routers,
                    chords,
                    flows,
                    failures,
                    loss_percent,
                    ack_every,
                    cache_kb,
                    high_kb: cache_kb / 2,
                    access: 50,
                    symmetric: false,
                    limits,
                    seed: seed.into(),
                }
            })
    })
}

impl Wild {
    fn scenario(&self) -> Scenario {
        let mut network = ScenarioBuilder::new("300 s").set("seed", self.seed).set("sample", "10 s");
        let high = self.high_kb;
        network = network.set("inrpp.cache", format!("{} kB", self.cache_kb)).set("inrpp.high", format!("{high} kB"));
        network = network.set("tcp.ack_every", self.ack_every).set("inrpp.expiry", "300 ms");
        network = network.set("inrpp.backpressure", if self.limits { "limits" } else { "notices" });
        network = network.set("inrpp.buffer", "50 ms");
        for router in 0..self.routers {
            network = network.router(&format!("R{router}")).host(&format!("h{router}"));
        }
        let mut pairs: Vec<(u32, u32)> = (0..self.routers).map(|at| (at, (at + 1) % self.routers)).collect();
        for (a, b) in &self.chords {
            if a != b && !pairs.contains(&(*a, *b)) && !pairs.contains(&(*b, *a)) {
                pairs.push((*a, *b));
            }
        }
        for (place, (a, b)) in pairs.iter().enumerate() {
            let weight = if self.symmetric { 1_000 + (1 << place) } else { 10 };
            let link = part([("rate", "5 Mbit/s"), ("delay", "3 ms"), ("queue", "40 kB")]);
            let link = link.with("loss", format!("{} %", self.loss_percent)).with("weight", weight);
            network = network.link_with(&format!("R{a}"), &format!("R{b}"), link);
        }
        for router in 0..self.routers {
            let (host, router) = (format!("h{router}"), format!("R{router}"));
            network = network.link(&host, &router, &format!("{} Mbit/s", self.access), "1 ms");
        }
        for (from, step, size) in &self.flows {
            let to = (from + step) % self.routers;
            network = network.flow(bulk(&format!("h{from}"), &format!("h{to}")).with("size", format!("{size} kB")));
        }
        let mut failed = Vec::new();
        for (at, when, lasts) in &self.failures {
            if failed.contains(at) {
                continue;
            }
            failed.push(*at);
            let link = format!("R{at}-R{}", (at + 1) % self.routers);
            network = network.event(down(&format!("{when} ms")).with("link", link.clone()));
            network = network.event(up(&format!("{} ms", when + lasts)).with("link", link));
        }
        network.build()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Packets and notifications get lost, links fail and come back, routes change, caches overflow and ACKs are delayed:
    /// no flow is wedged, and no packet is missing. A run whose packets do not add up is an error.
    #[test]
    fn every_flow_completes_whatever_happens_to_the_network(wild in wild()) {
        let result = results(&wild.scenario(), "inrpp");
        prop_assert_eq!(result.unfinished, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Wherever the margin covers what arrives until those before have slowed down, no cache drops anything. The queues of
    /// links, which ACKs share, are not theirs.
    #[test]
    fn nothing_is_lost_where_caches_cover_what_arrives(wild in covered()) {
        let result = results(&wild.scenario(), "inrpp");
        prop_assert_eq!((caches(&result).unwrap().dropped, result.unfinished), (0, None));
    }
}

/// How many networks are drawn: 30, or as many as `SIDESTEP_NETWORKS` says.
fn networks() -> u32 {
    std::env::var("SIDESTEP_NETWORKS").ok().and_then(|count| count.parse().ok()).unwrap_or(30)
}

/// Networks without losses on links, whose caches may cover what arrives or not.
fn lossless() -> impl Strategy<Value = Wild> {
    let sizes = prop_oneof![Just((100u32, 50u32)), Just((400, 100)), Just((1_500, 200)), Just((4_000, 300))];
    let access = prop_oneof![Just(10u32), Just(50)];
    (wild(), sizes, access, any::<bool>()).prop_map(|(wild, (cache_kb, high_kb), access, symmetric)| {
        let flows = wild.flows.into_iter().map(|(from, step, kb)| (from, step, kb * 8)).collect();
        let limits = false;
        Wild { failures: Vec::new(), loss_percent: 0, flows, cache_kb, high_kb, access, symmetric, limits, ..wild }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: networks(), rng_seed: RngSeed::Fixed(16), ..ProptestConfig::default() })]

    /// A cache whose margin covers what can arrive, as the run has it, drops nothing.
    #[test]
    fn no_cache_drops_anything_where_the_run_says_that_its_margin_covers_what_arrives(wild in lossless()) {
        let done = caches(&results(&wild.scenario(), "inrpp")).unwrap();
        prop_assert_eq!(done.custody.map_or(0, |custody| custody.dropped), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: networks(), ..ProptestConfig::default() })]

    /// With limits no cache drops anything, whatever its size and the delays are, as long as ACKs take the way of the data.
    #[test]
    fn with_limits_no_cache_drops_anything(wild in lossless()) {
        let wild = Wild { limits: true, symmetric: true, ..wild };
        for system in ["inrpp", "inrpp:hosts=unmodified"] {
            let result = results(&wild.scenario(), system);
            prop_assert_eq!((caches(&result).unwrap().dropped, result.unfinished), (0, None), "{}", system);
        }
    }
}

/// Of the networks that are drawn the 3,266th, made smaller: ACKs wait behind data for 50 ms on the way to the host that sends,
/// but the first that says *slow down* does not.
#[test]
fn a_margin_must_cover_what_arrives_while_acks_wait_behind_data() {
    let wild = Wild {
        routers: 4,
        chords: vec![(2, 0)],
        flows: vec![(2, 2, 248), (3, 1, 144), (0, 1, 56), (0, 1, 296)],
        failures: Vec::new(),
        loss_percent: 0,
        ack_every: 2,
        cache_kb: 100,
        high_kb: 50,
        access: 10,
        symmetric: true,
        limits: false,
        seed: 0,
    };
    let of = |wild: &Wild| caches(&results(&wild.scenario(), "inrpp")).unwrap();
    let small = of(&wild);
    let custody = small.custody.unwrap();
    assert!(small.dropped > 0 && custody.pressed == 1 && custody.covered == 0, "{small:?}");
    // What was missing is what 10 Mbit/s bring in that time.
    assert!(custody.needed_bytes > 50_000 + 30_000, "{custody:?}");
    let large = of(&Wild { cache_kb: 200, ..wild });
    assert!(large.dropped == 0 && large.custody.unwrap().holds(), "{large:?}");
}

/// Of the networks that are drawn the 3,336th, made smaller: a router stores what comes over a slow link to the next one, which
/// stores nothing. What is stored there names no nonce, and passes the next router until there is no more.
#[test]
fn a_margin_must_cover_what_is_stored_two_routers_before() {
    let wild = Wild {
        routers: 6,
        chords: Vec::new(),
        flows: vec![(0, 4, 64), (1, 4, 1_288), (3, 3, 912), (1, 5, 120), (0, 1, 872)],
        failures: Vec::new(),
        loss_percent: 0,
        ack_every: 1,
        cache_kb: 1_500,
        high_kb: 200,
        access: 50,
        symmetric: false,
        limits: false,
        seed: 0,
    };
    let of = |wild: &Wild| caches(&results(&wild.scenario(), "inrpp")).unwrap();
    let small = of(&wild);
    let custody = small.custody.unwrap();
    assert!(small.dropped > 0 && custody.covered < custody.pressed && custody.dropped == 0, "{small:?}");
    let large = of(&Wild { cache_kb: 4_000, ..wild });
    assert!(large.dropped == 0 && large.custody.unwrap().holds(), "{large:?}");
}

#[test]
fn caches_that_cover_what_arrives_do_press_back() {
    let (routers, high_kb) = (3, 300);
    let wild = Wild {
        routers,
        chords: Vec::new(),
        flows: vec![(0, 1, 4_000), (0, 1, 4_000), (2, 2, 3_000)],
        failures: Vec::new(),
        loss_percent: 0,
        ack_every: 1,
        cache_kb: 2_000,
        high_kb,
        access: 10,
        symmetric: true,
        limits: false,
        seed: 1,
    };
    let result = results(&wild.scenario(), "inrpp");
    let done = caches(&result).unwrap();
    assert!(lost(&result) == 0 && done.slow_downs > 100, "{done:?}");
    let custody = done.custody.unwrap();
    assert!(custody.pressed > 0 && custody.holds(), "{custody:?}");
}
