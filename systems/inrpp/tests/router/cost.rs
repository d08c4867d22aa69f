//! What the domain costs: `make bench-inrpp`.
//!
//! The kernel's forwarding and the routers take turns, and each number is the median of the rounds.

mod line;
mod load;

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::{
    line::{Line, Setup, cpu_of, cpu_of_all, memory_of, set_features},
    load::Arrived,
};
use crate::net::{Net, Over, Router, sent_again};

const TSO: [&str; 3] = ["tx-tcp6-segmentation", "tx-tcp-segmentation", "tx-generic-segmentation"];

/// A variant: how routers are, or none, and what interfaces cannot.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    setup: Option<Setup>,
    features: &'static [Feature],
    /// The rate of h1's stream, in bits per second.
    rate: Option<f64>,
}

/// A feature that is not as usual.
#[derive(Clone, Copy)]
enum Feature {
    /// h1 sends single packets.
    Single,
    /// r1 joins what comes from h1.
    Gro,
    /// The link between the routers does not cut UDP messages.
    NoUdpSegmentation,
    /// Both ends of the link join UDP datagrams.
    LinkGro,
}

/// Faster than anything here.
const FAST: Setup = Setup { over: Over::Udp, key: true, rate: "100 Gbit/s", more: "" };
const OPEN: Setup = Setup { key: false, ..FAST };
const KERNEL: Case = Case { name: "kernel", setup: None, features: &[], rate: None };
const USUAL: Case = Case { name: "udp", setup: Some(FAST), ..KERNEL };

const CASES: &[Case] = &[
    KERNEL,
    USUAL,
    Case { name: "udp, no key", setup: Some(OPEN), ..USUAL },
    Case { name: "ethernet", setup: Some(Setup { over: Over::Ethernet, ..FAST }), ..USUAL },
    Case { name: "tcp", setup: Some(Setup { over: Over::Tcp, ..FAST }), ..USUAL },
    Case { name: "udp, link without UDP segmentation", features: &[Feature::NoUdpSegmentation], ..USUAL },
    Case {
        name: "udp, link without UDP segmentation, GRO",
        features: &[Feature::NoUdpSegmentation, Feature::LinkGro],
        ..USUAL
    },
    Case { name: "kernel, single packets", features: &[Feature::Single], ..KERNEL },
    Case { name: "udp, single packets", features: &[Feature::Single], ..USUAL },
    Case { name: "udp, single packets, GRO", features: &[Feature::Single, Feature::Gro], ..USUAL },
    Case { name: "udp, queue at 2 Gbit/s", setup: Some(Setup { rate: "2 Gbit/s", ..FAST }), ..USUAL },
    Case { name: "udp, no key, queue at 2 Gbit/s", setup: Some(Setup { rate: "2 Gbit/s", ..OPEN }), ..USUAL },
    Case { name: "udp, queue at 1 Gbit/s", setup: Some(Setup { rate: "1 Gbit/s", ..FAST }), ..USUAL },
    Case {
        name: "ethernet, queue at 1 Gbit/s",
        setup: Some(Setup { over: Over::Ethernet, rate: "1 Gbit/s", ..FAST }),
        ..USUAL
    },
    Case { name: "udp, queue at 200 Mbit/s", setup: Some(Setup { rate: "200 Mbit/s", ..FAST }), ..USUAL },
    Case { name: "udp, queue at 50 Mbit/s", setup: Some(Setup { rate: "50 Mbit/s", ..FAST }), ..USUAL },
    Case { name: "udp, 1 of 2 Gbit/s", setup: Some(Setup { rate: "2 Gbit/s", ..FAST }), rate: Some(1e9), ..USUAL },
    Case {
        name: "udp, 1 of 2 Gbit/s, idle = \"pass\"",
        setup: Some(Setup { rate: "2 Gbit/s", more: "idle = \"pass\"", ..FAST }),
        rate: Some(1e9),
        ..USUAL
    },
];

/// What one run of a case has given, by name.
type Row = BTreeMap<&'static str, f64>;

#[test]
#[ignore = "a benchmark: make bench-inrpp"]
fn what_the_domain_costs() {
    let (rounds, seconds) = (number("ROUNDS", 5.0) as usize, number("SECONDS", 2.0));
    let only = std::env::var("ONLY").unwrap_or_default();
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.name.contains(&only) || case.setup.is_none()).collect();
    let mut runs: Vec<Vec<Row>> = vec![Vec::new(); cases.len()];
    for round in 0..rounds {
        for (at, case) in cases.iter().enumerate() {
            let row = run(case, Duration::from_secs_f64(seconds));
            eprintln!("{round} {}: {row:.2?}", case.name);
            runs[at].push(row);
        }
    }
    let named = cases.iter().zip(&runs).map(|(case, rows)| table_row(case.name, rows)).collect();
    let all = |name| only.is_empty() || only == name;
    let datagrams = if all("datagrams") { datagrams(rounds) } else { vec![] };
    let flows = if all("flows") { vec![flows("kernel"), flows("1 Gbit/s"), flows("2 Gbit/s")] } else { vec![] };
    let order = if all("order") { order(rounds, Duration::from_secs_f64(seconds)) } else { vec![] };
    let result = json!({
        "rounds": rounds, "seconds": seconds,
        "cases": Value::Array(named), "datagrams": datagrams, "flows": flows, "order": order,
    });
    let text = serde_json::to_string_pretty(&result).unwrap();
    match std::env::var_os("OUTPUT") {
        Some(file) => fs::write(file, text).unwrap(),
        None => println!("\n{text}"),
    }
}

/// Pings at rest, then sends as fast as the case lets it.
fn run(case: &Case, time: Duration) -> Row {
    let line = Line::new();
    for feature in case.features {
        match feature {
            Feature::Single => set_features(&line.h1, "out", &TSO, false),
            Feature::Gro => set_features(&line.r1, "h1", &["rx-gro"], true),
            Feature::NoUdpSegmentation => {
                set_features(&line.r1, "to-r2", &["tx-udp-segmentation"], false);
                set_features(&line.r2, "to-r1", &["tx-udp-segmentation"], false);
            }
            Feature::LinkGro => {
                set_features(&line.r1, "to-r2", &["rx-gro"], true);
                set_features(&line.r2, "to-r1", &["rx-gro"], true);
            }
        }
    }
    let routers = case.setup.map(|setup| line.routers(setup));
    let memory = routers.as_ref().map_or(0, |routers| memory_of(&routers[0]));
    let ping = load::ping(&line, 300);
    let warm = Duration::from_millis(500);
    load::stream(&line, warm, case.rate);
    let (before, again) = (cpu(&routers), sent_again(&line.h1));
    let arrived = load::stream(&line, time, case.rate);
    let mut row = costs(&arrived, before, cpu(&routers));
    row.insert("sent_again", (sent_again(&line.h1) - again) as f64);
    row.insert("ping_p50_us", ping[ping.len() / 2]);
    row.insert("ping_p99_us", ping[ping.len() * 99 / 100]);
    if let Some(routers) = &routers {
        let status = line.status(&line.r1).unwrap();
        row.insert("memory_start_mb", memory as f64 / 1e6);
        row.insert("memory_mb", memory_of(&routers[0]) as f64 / 1e6);
        row.insert("cached_mb", status.ports[0].peak_bytes as f64 / 1e6);
        row.insert("stored", status.ports.iter().map(|port| port.stored).sum::<u64>() as f64);
        row.insert("dropped", status.ports.iter().map(|port| port.dropped).sum::<u64>() as f64);
    }
    row
}

/// The processor time of both routers, and of the whole machine, in seconds.
fn cpu(routers: &Option<[Router; 2]>) -> [f64; 3] {
    let of = |at: usize| routers.as_ref().map_or(Duration::ZERO, |routers| cpu_of(&routers[at])).as_secs_f64();
    [of(0), of(1), cpu_of_all().as_secs_f64()]
}

fn costs(arrived: &Arrived, before: [f64; 3], after: [f64; 3]) -> Row {
    let [r1, r2, all] = [0, 1, 2].map(|at| after[at] - before[at]);
    let (packets, seconds) = (arrived.packets(), arrived.time.as_secs_f64());
    let mut row = Row::from([
        ("gbit_s", arrived.bytes as f64 * 8.0 / seconds / 1e9),
        ("packets_per_cpu_s_of_all", packets / all),
    ]);
    if r1 + r2 > 0.0 {
        row.insert("packets_per_cpu_s_and_hop", 2.0 * packets / (r1 + r2));
        row.insert("packets_per_cpu_s_r1", packets / r1);
        row.insert("packets_per_cpu_s_r2", packets / r2);
        row.insert("cpu_r1_percent", 100.0 * r1 / seconds);
        row.insert("cpu_r2_percent", 100.0 * r2 / seconds);
    }
    row
}

/// 100,000 small datagrams a second.
fn datagrams(rounds: usize) -> Vec<Value> {
    let cases = [KERNEL, USUAL, Case { name: "udp, idle = \"pass\"", setup: Some(PASS), ..KERNEL }];
    const PASS: Setup = Setup { more: "idle = \"pass\"", ..FAST };
    let mut runs: Vec<Vec<Row>> = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (case, runs) in cases.iter().zip(&mut runs) {
            let line = Line::new();
            let routers = case.setup.map(|setup| line.routers(setup));
            load::ping(&line, 50);
            load::datagrams(&line, 100_000, Duration::from_millis(500));
            let before = cpu(&routers);
            let (sent, came) = load::datagrams(&line, 100_000, Duration::from_secs(2));
            let after = cpu(&routers);
            let mut row = Row::from([
                ("sent_per_s", sent as f64 / 2.0),
                ("lost_percent", 100.0 - 100.0 * came as f64 / sent as f64),
            ]);
            row.insert("packets_per_cpu_s_of_all", came as f64 / (after[2] - before[2]));
            let hops = after[0] + after[1] - before[0] - before[1];
            if hops > 0.0 {
                row.insert("packets_per_cpu_s_and_hop", 2.0 * came as f64 / hops);
            }
            eprintln!("datagrams, {}: {row:.2?}", case.name);
            runs.push(row);
        }
    }
    cases.iter().zip(&runs).map(|(case, rows)| table_row(case.name, rows)).collect()
}

/// One connection over a link and a detour around it, with and without order restored at the edge.
fn order(rounds: usize, time: Duration) -> Vec<Value> {
    let cases = [("20 ms", ""), ("off", "resequence = \"off\"")];
    let mut runs: [Vec<Row>; 2] = Default::default();
    for _ in 0..rounds {
        for ((name, more), runs) in cases.iter().zip(&mut runs) {
            let net = Net::new(50);
            let _routers = net.routers(Over::Udp, more);
            let (before, began, stream) = (net.sent_again(), Instant::now(), net.stream(true, 1_000));
            thread::sleep(time);
            let (bytes, _) = stream.end_with_bytes();
            let row = Row::from([
                ("mbit_s", bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6),
                ("sent_again", (net.sent_again() - before) as f64),
                ("restored", net.status(&net.b).unwrap().resequence.restored as f64),
                ("detoured", net.status(&net.a).unwrap().ports[0].detoured as f64),
            ]);
            eprintln!("order {name}: {row:.2?}");
            runs.push(row);
        }
    }
    cases.iter().zip(&runs).map(|((name, _), runs)| table_row(name, runs)).collect()
}

/// 10,000 connections that all want more than their part.
fn flows(rate: &'static str) -> Value {
    let line = Line::new();
    let setup = Setup { rate, more: "cache = \"100 MB\"", ..FAST };
    let routers = (rate != "kernel").then(|| line.routers(setup));
    let start = routers.as_ref().map_or(0, |routers| memory_of(&routers[0]));
    let (mut before, mut after) = ([0.0; 3], [0.0; 3]);
    let (warm, time) = (Duration::from_secs(5), Duration::from_secs_f64(number("FLOW_SECONDS", 10.0)));
    let mut full = 0;
    let (shares, mss) = load::many(&line, 10_000, warm, || {
        before = cpu(&routers);
        thread::sleep(time);
        after = cpu(&routers);
        full = routers.as_ref().map_or(0, |routers| memory_of(&routers[0]));
    });
    let arrived = Arrived { bytes: shares.iter().sum(), time, mss };
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| {
        let share = *share as f64;
        (sum + share, squares + share * share)
    });
    let mut row = costs(&arrived, before, after);
    row.insert("sent_again", sent_again(&line.h1) as f64);
    row.insert("jain", sum * sum / squares / shares.len() as f64);
    row.insert("without_a_byte", shares.iter().filter(|share| **share == 0).count() as f64);
    if let Some(status) = line.status(&line.r1) {
        row.insert("connections", status.connections.tracked as f64);
        row.insert("memory_start_mb", start as f64 / 1e6);
        row.insert("memory_mb", full as f64 / 1e6);
        row.insert("cached_mb", status.ports[0].peak_bytes as f64 / 1e6);
        row.insert("dropped", status.ports.iter().map(|port| port.dropped).sum::<u64>() as f64);
        row.insert("lost", status.ports.iter().map(|port| port.lost).sum::<u64>() as f64);
    }
    eprintln!("10,000 flows, {rate}: {row:.2?}");
    table_row(rate, &[row])
}

/// Medians of the rounds.
fn table_row(name: &str, rows: &[Row]) -> Value {
    let mut object = serde_json::Map::from_iter([("name".to_string(), json!(name))]);
    for key in rows[0].keys() {
        let mut values: Vec<f64> = rows.iter().filter_map(|row| row.get(key).copied()).collect();
        values.sort_by(f64::total_cmp);
        object.insert((*key).to_string(), json!(values[values.len() / 2]));
    }
    Value::Object(object)
}

fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
