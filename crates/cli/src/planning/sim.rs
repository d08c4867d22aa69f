//! `sidestep sim`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use sidestep_engine::Lateness;
use sidestep_net::{LinkId, Span, pattern};
use sidestep_results::{RunResult, table};
use sidestep_scenario::{Flow, Scenario, SystemSpec};
use sidestep_sim::{RunOptions, resume, run as run_sim};

use super::{
    WithReading, command_line, print_json, read_scenario,
    refusals::{check_memory, located},
    sweep, until_signalled,
};
use crate::planning::{
    args::{Sim, SimRun},
    failure::{Failure, Outcome},
    progress::SimProgress,
};

/// Runs `sidestep sim …`.
pub fn run(sim: Sim) -> Outcome {
    match sim {
        Sim::Run(args) => run_one(args),
        Sim::Sweep(args) => sweep::run(args),
    }
}

fn run_one(args: SimRun) -> Outcome {
    let (scenario, reading) = read_scenario(&args.scenario, &args.laid.all(), args.seeds)?;
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    if !args.force {
        check_memory(&scenario, u64::from(args.seeds) * systems.len() as u64)?;
    }
    let trace = find_links(&scenario, &args.trace)?;
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(format!("{}-sim", scenario.name)));
    let lateness = args.lateness.as_deref().map(|file| read_lateness(file, &systems)).transpose()?.unwrap_or_default();
    let options = RunOptions {
        scenario,
        registry: sidestep_systems::simulator(),
        systems,
        lateness,
        seeds: args.seeds,
        out: Some(out.clone()),
        all_records: true,
        trace,
        command: command_line(),
        stop: until_signalled()?,
    };
    if args.resume && args.seeds < 2 {
        return Err(Failure::usage("--resume goes on with a run of several seeds; give --seeds as that run had it"));
    }
    let simulate = if args.resume { resume } else { run_sim };
    let done = simulate(&options, &SimProgress::new());
    let (result, interrupted) = done.map_err(|error| located(&args.scenario, &args.laid.all(), error))?;
    if args.json {
        print_json(&WithReading { results: &result, reading })?;
    } else {
        println!("{}", table(&result));
        if let Some(hint) = in_step(&options.scenario, args.seeds) {
            println!("hint: {hint}");
        }
        println!("Results, plot and page: {}", out.join("index.html").display());
    }
    if interrupted {
        let go_on = if args.seeds > 1 { "; the same command with --resume goes on" } else { "" };
        return Err(Failure::run(format!("interrupted; what there was is written{go_on}")));
    }
    Ok(())
}

/// How late the lab was in the run of the one system, out of the run's `result.json`.
fn read_lateness(file: &Path, systems: &[SystemSpec]) -> Result<Lateness, Failure> {
    let wrong = |problem: String| Failure::usage(format!("--lateness {}: {problem}", file.display()));
    let [system] = systems else {
        return Err(wrong("each system of a lab run was late in its own way; give one --system".into()));
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let result: RunResult = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(of_lab) = result.systems.get(&system.to_string()) else {
        let known: Vec<&str> = result.systems.iter().map(|(name, _)| name).collect();
        return Err(wrong(format!("it has no system `{system}`; it has {}", known.join(", "))));
    };
    of_lab.late.check().map_err(|error| wrong(error.to_string()))?;
    Ok(of_lab.late.clone())
}

/// The links of these names and patterns.
fn find_links(scenario: &Scenario, names: &[String]) -> Result<Vec<LinkId>, Failure> {
    let topology = &scenario.topology;
    let mut found = std::collections::BTreeSet::new();
    for name in names {
        let before = found.len();
        found.extend(topology.link_ids().filter(|id| pattern::matches(name, &topology.link(*id).name)));
        if found.len() == before && !topology.link_ids().any(|id| pattern::matches(name, &topology.link(id).name)) {
            let some: Vec<_> = topology.links().iter().take(8).map(|link| link.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "--trace: there is no link `{name}`; there are {}, …",
                some.join(", ")
            )));
        }
    }
    Ok(found.into_iter().collect())
}

/// What to add where bulk connections open together under all of several seeds: who gets most may be a matter of phases then.
fn in_step(scenario: &Scenario, seeds: u32) -> Option<String> {
    let mut together = BTreeMap::new();
    for flow in &scenario.flows {
        if let Flow::Bulk(flow) = flow
            && flow.size.is_none()
            && flow.start_jitter == Span::ZERO
        {
            *together.entry(flow.start).or_insert(0) += flow.pairs.len() as u64 * u64::from(flow.connections);
        }
    }
    let count = together.into_values().max().filter(|count| seeds > 1 && *count > 1)?;
    Some(format!(
        "{count} bulk connections open together, under every seed; `start_jitter = \"100 ms\"` in their [[flow]] draws when"
    ))
}
