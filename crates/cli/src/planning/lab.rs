//! `sidestep lab`.

use std::path::{Path, PathBuf};

use sidestep_lab::{LabError, RunOptions, clean, run as run_lab};
use sidestep_results::{RunResult, table};
use sidestep_scenario::{Scenario, overrides::Override};

use super::{NEEDS_ROOT, WithReading, command_line, print_json, read_scenario, scenario_text, until_signalled};
use crate::planning::{
    args::{Lab, LabRun},
    failure::{Failure, Outcome},
    progress::LabProgress,
};

/// Runs `sidestep lab …`.
pub fn run(lab: Lab) -> Outcome {
    match lab {
        Lab::Run(options) => run_scenario(options),
        Lab::Clean { json } => clean_up(json),
    }
}

fn run_scenario(args: LabRun) -> Outcome {
    let (scenario, reading) = read_scenario(&args.scenario, &args.laid.all(), 1)?;
    if !sidestep_linux::is_root() {
        return Err(Failure::environment(NEEDS_ROOT));
    }
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(&scenario.name));
    let options = RunOptions {
        registry: sidestep_systems::lab(),
        scenario,
        systems,
        out: std::path::absolute(&out).map_err(Failure::run)?,
        program: std::env::current_exe().map_err(Failure::run)?,
        command: command_line(),
        stop: until_signalled()?,
    };
    let result =
        run_lab(&options, &mut LabProgress::new()).map_err(|error| located(&args.scenario, &args.laid.all(), error))?;
    if args.json {
        print_json(&WithReading { results: &result, reading })?;
    } else {
        println!("{}", table(&result));
        println!("Results, plot and page: {}", out.join("index.html").display());
    }
    complete(&result)
}

/// Fails where the results lack something, although they are written.
fn complete(result: &RunResult) -> Outcome {
    match result.incomplete() {
        lines if lines.is_empty() => Ok(()),
        lines => Err(Failure::run(format!("the results are incomplete: {}", lines.join("; ")))),
    }
}

/// An error with the line of the scenario file that it is about.
fn located(path: &Path, set: &[Override], error: LabError) -> Failure {
    match (error.place(), scenario_text(path, set)) {
        (Some(place), Ok(text)) => {
            let error = Scenario::error_at(&text, place, &error.to_string());
            Failure::usage(error.in_file(path.display().to_string()))
        }
        _ => error.into(),
    }
}

fn clean_up(json: bool) -> Outcome {
    let cleaned = clean()?;
    if json {
        return print_json(&cleaned);
    }
    for lab in &cleaned.removed {
        println!("removed {lab}");
    }
    for lab in &cleaned.running {
        println!("left alone {lab}, which runs");
    }
    if cleaned.removed.is_empty() {
        println!("nothing to clean");
    }
    Ok(())
}
