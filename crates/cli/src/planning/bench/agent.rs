//! `sidestep bench agent`.

use sidestep_pathchanger::lab::bench::{self, BenchOptions};

use super::{Case, Report};
use crate::planning::{failure::Failure, progress::BenchProgress};

/// What the agent costs the traffic of a host.
pub fn overhead(rounds: usize, seconds: f64) -> Result<Report, Failure> {
    if !(1..=1000).contains(&rounds) || !(0.1..=600.0).contains(&seconds) {
        return Err(Failure::usage("give 1 to 1000 rounds and 0.1 to 600 seconds"));
    }
    let options = options(rounds, seconds)?;
    let progress = BenchProgress::new();
    let cost = bench::overhead(&options, &mut |what, step, of| progress.step(what, step, of))?;
    let mut cases = Vec::new();
    for (name, unit, compared) in [
        ("goodput", "bytes/s", cost.goodput),
        ("goodput by CPU time", "bytes/CPU-s", cost.goodput_per_cpu),
        ("connections", "connections/s", cost.connections),
        ("connections by CPU time", "connections/CPU-s", cost.connections_per_cpu),
    ] {
        cases.push(measure_of(format!("{name}, without the agent"), compared.without, unit));
        cases.push(measure_of(format!("{name}, with programs that do nothing"), compared.idle, unit));
        cases.push(measure_of(format!("{name}, with the agent's rules and tables only"), compared.routes, unit));
        let kernel = format!("{name}, with its rules and tables, and programs that do nothing");
        cases.push(measure_of(kernel, compared.kernel, unit));
        cases.push(measure_of(format!("{name}, with the agent"), compared.with, unit));
        let ratio = |what: &str| format!("{name}, {what} by without, median of {rounds} rounds");
        cases.push(measure_of(ratio("doing nothing"), compared.idle_ratio, "ratio"));
        cases.push(measure_of(ratio("rules and tables"), compared.routes_ratio, "ratio"));
        cases.push(measure_of(ratio("what the kernel alone takes"), compared.kernel_ratio, "ratio"));
        cases.push(measure_of(ratio("with"), compared.ratio, "ratio"));
    }
    for program in cost.programs.iter().filter(|program| program.runs > 0) {
        let nanos = program.time.as_nanos() as f64 / program.runs as f64;
        cases.push(measure_of(format!("{}, {} calls", program.name, program.runs), nanos, "ns/call"));
    }
    Ok(Report { schema: 1, bench: "agent", cases })
}

/// A host with many connections.
pub fn crowd(connections: u32) -> Result<Report, Failure> {
    if !(1..=bench::MAX_CONNECTIONS).contains(&connections) {
        return Err(Failure::usage(format!("give 1 to {} connections", bench::MAX_CONNECTIONS)));
    }
    let options = options(1, 1.0)?;
    let progress = BenchProgress::new();
    let crowd = bench::crowd(&options, connections, &mut |what, step, of| progress.step(what, step, of))?;
    let bytes = |name: &str, value: u64| measure_of(name.into(), value as f64, "bytes");
    let seconds = |name: &str, value: f64| measure_of(name.into(), value, "s");
    let cases = vec![
        bytes("memory of the agent, no connection", crowd.agent_before),
        bytes(&format!("memory of the agent, {} connections", crowd.connections), crowd.agent_after),
        bytes("memory of its maps, without connections' own", crowd.maps),
        bytes("stored with each connection", crowd.storage),
        measure_of("connections that moved".into(), crowd.moved as f64, "connections"),
        seconds("from the path's failure to the first move", crowd.first_move),
        seconds("from the path's failure to the last move", crowd.last_move),
        measure_of("moves, from the first to the last".into(), crowd.moves_per_second(), "moves/s"),
        seconds("from the path's failure until all was delivered", crowd.delivered),
        seconds("sidestep agent status --json", crowd.status),
    ];
    Ok(Report { schema: 1, bench: "agent", cases })
}

fn options(rounds: usize, seconds: f64) -> Result<BenchOptions, Failure> {
    if !sidestep_linux::is_root() {
        return Err(Failure::environment(
            "the benchmark makes network namespaces, for which it must run as root; use sudo",
        ));
    }
    Ok(BenchOptions { program: std::env::current_exe().map_err(Failure::run)?, rounds, seconds })
}

fn measure_of(name: String, value: f64, unit: &'static str) -> Case {
    let (cpu_s, peak_rss_bytes) = (sidestep_linux::cpu_seconds(), sidestep_linux::peak_rss_bytes());
    Case { name, value, unit, cpu_s, peak_rss_bytes, simulated: None }
}
