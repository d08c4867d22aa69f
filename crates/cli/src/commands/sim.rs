//! `sidestep sim`.

use std::path::PathBuf;

use sidestep_model::Scenario;
use sidestep_results::table;
use sidestep_sim::{RunOptions, estimate, run as run_sim};

use super::{command_line, print_json, read_scenario, until_signalled};
use crate::{
    args::Sim,
    failure::{Failure, Outcome},
    progress::SimProgress,
};

/// Runs `sidestep sim …`.
pub fn run(sim: Sim) -> Outcome {
    let Sim::Run(args) = sim;
    let scenario = read_scenario(&args.scenario)?;
    if !args.force {
        check_memory(&scenario, args.seeds)?;
    }
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(format!("{}-sim", scenario.name)));
    let options = RunOptions {
        scenario,
        systems,
        seeds: args.seeds,
        out: Some(out.clone()),
        command: command_line(),
        stop: until_signalled()?,
    };
    let (result, interrupted) = run_sim(&options, &SimProgress::new())?;
    if args.json {
        print_json(&result)?;
    } else {
        println!("{}", table(&result));
        println!("Results, plot and page: {}", out.join("index.html").display());
    }
    if interrupted {
        return Err(Failure::run("interrupted; what there was is written"));
    }
    Ok(())
}

/// Refuses a run that is estimated to take more memory than there is.
fn check_memory(scenario: &Scenario, seeds: u32) -> Result<(), Failure> {
    let Some(available) = sidestep_linux::available_memory_bytes() else { return Ok(()) };
    let at_once = std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(u64::from(seeds));
    let needed = estimate(scenario).saturating_mul(at_once);
    if needed <= available {
        return Ok(());
    }
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    Err(Failure::usage(format!(
        "the run may take {:.1} GB of memory, and {:.1} GB are free; make it smaller, or give --force",
        gigabytes(needed),
        gigabytes(available)
    )))
}
