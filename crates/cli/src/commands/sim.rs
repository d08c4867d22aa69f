//! `sidestep sim`.

use std::path::PathBuf;

use sidestep_results::table;
use sidestep_sim::{RunOptions, run as run_sim};

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
