//! `sidestep bench`.

use serde::Serialize;
use sidestep_linux::wire::bench::{self, BenchReport, Load};

use super::print_json;
use crate::{
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
}

/// Runs `sidestep bench …`.
pub fn run(options: Bench) -> Outcome {
    let Bench::Wire { wires, seconds, json } = options;
    if !(1..=1000).contains(&wires) || !(0.1..=600.0).contains(&seconds) {
        return Err(Failure::usage("give 1 to 1000 wires and 0.1 to 600 seconds"));
    }
    let mut report = Report { schema: 1, bench: "wire", cases: Vec::new() };
    for (load, what) in [(Load::Discard, "received"), (Load::Forward, "forwarded by the kernel")] {
        let measured = bench::bench(wires, seconds, 1, load).map_err(failure)?;
        report.cases.extend(cases(wires, what, &measured));
    }
    if json {
        return print_json(&report);
    }
    for case in &report.cases {
        println!("{:<66} {:>9.0} {}", case.name, case.value, case.unit);
    }
    Ok(())
}

fn cases(wires: usize, what: &str, report: &BenchReport) -> [Case; 2] {
    let case = |name, value, unit| Case {
        name: format!("{wires} wires, 1 thread, frames {what}, {name}"),
        value,
        unit,
        cpu_s: report.cpu.as_secs_f64(),
        peak_rss_bytes: sidestep_linux::peak_rss_bytes(),
    };
    [
        case("of the thread's CPU time", report.frames_per_cpu_second(), "frames/CPU-s"),
        case("of time", report.frames_per_second(), "frames/s"),
    ]
}

fn failure(error: sidestep_linux::LinuxError) -> Failure {
    if error.is_environment() { Failure::environment(error) } else { Failure::run(error) }
}
