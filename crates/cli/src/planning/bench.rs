//! `sidestep bench`.

mod agent;
mod paths;
mod policies;

use serde::Serialize;
use sidestep_linux::wire::bench::{self, BenchReport, Load};
use sidestep_net::Span;
use sidestep_sim::bench::{Case as SimCase, Tcp};

use super::print_json;
use crate::planning::{
    args::Bench,
    failure::{Failure, Outcome},
};

/// The measures of a benchmark.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    bench: &'static str,
    cases: Vec<Case>,
}

/// One measure.
#[derive(Debug, Serialize)]
struct Case {
    name: String,
    value: f64,
    unit: &'static str,
    /// User and system time of what was measured, in seconds.
    cpu_s: f64,
    peak_rss_bytes: u64,
    /// What the simulator did.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    simulated: Option<Simulated>,
}

/// What a benchmark of the simulator did; it is equal on every machine.
#[derive(Debug, Serialize)]
struct Simulated {
    traversals: u64,
    goodput_mbps: f64,
    mean_queue_bytes: f64,
    drops: u64,
    fairness: f64,
}

/// Runs `sidestep bench …`.
pub fn run(options: Bench) -> Outcome {
    match options {
        Bench::Wire { wires, seconds, json } => print(&wire(wires, seconds)?, json),
        Bench::Agent { rounds, seconds, connections: None, json } => print(&agent::overhead(rounds, seconds)?, json),
        Bench::Agent { connections: Some(connections), json, .. } => print(&agent::crowd(connections)?, json),
        Bench::Paths { case, data, json } => print(&paths::run(case.as_deref(), data.data.as_deref())?, json),
        Bench::Policies(args) => policies::run(args),
        Bench::Sim { case, seed, describe: true, .. } => describe(case.as_deref(), seed),
        Bench::Sim { case, seconds, seed, tcp, json, .. } => print(&sim(case.as_deref(), seconds, seed, tcp)?, json),
    }
}

fn print(report: &Report, json: bool) -> Outcome {
    if json {
        return print_json(report);
    }
    for case in &report.cases {
        // Shares and times want digits that counts do not.
        let digits = if case.value.abs() < 100.0 { 3 } else { 0 };
        print!("{:<66} {:>11.digits$} {}", case.name, case.value, case.unit);
        match &case.simulated {
            Some(_) => println!("   {:.2} CPU-s, at most {} MB", case.cpu_s, case.peak_rss_bytes >> 20),
            None if report.bench == "paths" => {
                println!("   {:.4} CPU-s, at most {} MB", case.cpu_s, case.peak_rss_bytes >> 20);
            }
            None => println!(),
        }
    }
    Ok(())
}

fn wire(wires: usize, seconds: f64) -> Result<Report, Failure> {
    if !(1..=1000).contains(&wires) || !(0.1..=600.0).contains(&seconds) {
        return Err(Failure::usage("give 1 to 1000 wires and 0.1 to 600 seconds"));
    }
    let mut report = Report { schema: 1, bench: "wire", cases: Vec::new() };
    for (load, what) in [(Load::Discard, "received"), (Load::Forward, "forwarded by the kernel")] {
        let measured = bench::bench(wires, seconds, 1, load)?;
        report.cases.extend(cases(wires, what, &measured));
    }
    Ok(report)
}

/// The cases with this name, or all of them.
fn sim_cases(name: Option<&str>) -> Result<Vec<SimCase>, Failure> {
    let cases: Vec<_> = SimCase::ALL.into_iter().filter(|case| name.is_none_or(|name| case.name() == name)).collect();
    if cases.is_empty() {
        let (name, known) = (name.unwrap_or_default(), SimCase::ALL.map(SimCase::name).join(", "));
        return Err(Failure::usage(format!("there is no case `{name}`; there are {known}")));
    }
    Ok(cases)
}

fn describe(name: Option<&str>, seed: u64) -> Outcome {
    for case in sim_cases(name)? {
        print!("{}", case.describe(seed).map_err(Failure::run)?);
    }
    Ok(())
}

fn sim(name: Option<&str>, seconds: Option<f64>, seed: u64, tcp: Tcp) -> Result<Report, Failure> {
    let cases = sim_cases(name)?;
    if seconds.is_some_and(|seconds| !(0.001..=10_000.0).contains(&seconds)) {
        return Err(Failure::usage("give 0.001 to 10000 seconds"));
    }
    let mut report = Report { schema: 1, bench: "sim", cases: Vec::new() };
    for case in cases {
        let duration = seconds.map_or(case.duration(), |seconds| Span::from_nanos((seconds * 1e9) as u64));
        let prepared = case.prepare(seed, tcp).map_err(Failure::run)?;
        let before = sidestep_linux::cpu_seconds();
        let outcome = prepared.run(duration);
        let cpu_s = sidestep_linux::cpu_seconds() - before;
        report.cases.push(Case {
            name: case.name().into(),
            value: outcome.traversals as f64 / cpu_s.max(1e-9),
            unit: "packet-hops/CPU-s",
            cpu_s,
            peak_rss_bytes: sidestep_linux::peak_rss_bytes(),
            simulated: Some(Simulated {
                traversals: outcome.traversals,
                goodput_mbps: outcome.goodput_mbps,
                mean_queue_bytes: outcome.mean_queue_bytes,
                drops: outcome.drops,
                fairness: outcome.fairness,
            }),
        });
    }
    Ok(report)
}

fn cases(wires: usize, what: &str, report: &BenchReport) -> [Case; 2] {
    let case = |name, value, unit| Case {
        name: format!("{wires} wires, 1 thread, frames {what}, {name}"),
        value,
        unit,
        cpu_s: report.cpu.as_secs_f64(),
        peak_rss_bytes: sidestep_linux::peak_rss_bytes(),
        simulated: None,
    };
    [
        case("of the thread's CPU time", report.frames_per_cpu_second(), "frames/CPU-s"),
        case("of time", report.frames_per_second(), "frames/s"),
    ]
}
