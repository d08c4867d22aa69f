//! `sidestep lab`.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_lab::{RunOptions, clean, run as run_lab};
use sidestep_model::Scenario;
use sidestep_results::table;

use super::{print_json, read};
use crate::{
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
    let stem = args.scenario.file_stem().map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy().into_owned());
    let scenario = Scenario::parse(&read(&args.scenario)?, &stem)
        .map_err(|error| Failure::usage(error.in_file(args.scenario.display().to_string())))?;
    if !sidestep_linux::is_root() {
        return Err(Failure::environment("the lab makes network namespaces, for which it must run as root; use sudo"));
    }
    let systems = if args.systems.is_empty() { scenario.systems.clone() } else { args.systems };
    let out = args.out.unwrap_or_else(|| PathBuf::from("out").join(&scenario.name));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::run)?;
    }
    let options = RunOptions {
        scenario,
        systems,
        out: std::path::absolute(&out).map_err(Failure::run)?,
        program: std::env::current_exe().map_err(Failure::run)?,
        command: command_line(),
        stop,
    };
    let result = run_lab(&options, &mut LabProgress::new())?;
    if args.json {
        return print_json(&result);
    }
    println!("{}", table(&result));
    println!("Results, plot and page: {}", out.join("index.html").display());
    Ok(())
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

/// The command line as the user would type it again.
fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c));
        if plain && !word.is_empty() { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    std::iter::once("sidestep".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
