//! `sidestep repro`.

use sidestep_repro::{ALL, Outcome, Paper, Verdict, find, report, run as run_experiment};
use sidestep_results::World;

use super::{NEEDS_ROOT, print_json, save, until_signalled, worlds::Real};
use crate::{
    failure::{Failure, Outcome as Done},
    planning::{args::Repro, progress::StepProgress},
};

/// Runs `sidestep repro …`.
pub fn run(repro: Repro) -> Done {
    match repro {
        Repro::List { json } => list(json),
        Repro::Run { ids, mode, world, out, data, json } => {
            let experiments: Result<Vec<_>, _> = ids.iter().map(|id| find(id)).collect();
            let experiments = experiments?;
            if world == Some(World::Lab) && !sidestep_linux::is_root() {
                return Err(Failure::environment(NEEDS_ROOT));
            }
            let mut worlds = Real::new()?;
            let watch = StepProgress::new(until_signalled()?);
            let mut outcomes = Vec::new();
            for experiment in experiments {
                let data = data.data.as_deref();
                let outcome = run_experiment(experiment, mode, world, &out, data, &mut worlds, &watch)?;
                if !json {
                    print(&outcome);
                    println!("Results: {}", out.join(experiment.id).display());
                }
                outcomes.push(outcome);
            }
            if json { print_json(&outcomes) } else { Ok(()) }
        }
        Repro::Report { dir } => {
            let path = dir.join("index.html");
            save(&path, &report(&dir)?)?;
            println!("{}", path.display());
            Ok(())
        }
    }
}

fn list(json: bool) -> Done {
    if json {
        let entry = |one: &sidestep_repro::Experiment| {
            let worlds: Vec<&str> = one.worlds.iter().map(|world| world.as_str()).collect();
            serde_json::json!({
                "id": one.id, "paper": one.paper, "figure": one.figure, "title": one.title, "worlds": worlds,
            })
        };
        return print_json(&ALL.iter().map(entry).collect::<Vec<_>>());
    }
    for one in ALL {
        println!("{:<14} {}, {}: {}", one.id, one.paper, one.figure, one.title);
    }
    Ok(())
}

fn print(outcome: &Outcome) {
    println!("{}: {}, {}", outcome.id, outcome.paper, outcome.figure);
    for row in &outcome.rows {
        let paper = match &row.paper {
            Paper::Number(number) => number.to_string(),
            Paper::Text(text) => text.clone(),
            Paper::None => "–".into(),
        };
        let verdict = if row.verdict == Verdict::NoPaperValue { "–" } else { row.verdict.as_str() };
        let decimals = if row.ours.abs() < 10.0 && row.ours.fract() != 0.0 { 3 } else { 1 };
        let half = row.ci95.map_or(String::new(), |[low, high]| format!(" ± {:.decimals$}", (high - low) / 2.0));
        let ours = format!("{:.decimals$}{half}", row.ours);
        println!("  {:<58} paper: {paper:<26} ours: {ours:<14} {verdict}", row.quantity);
    }
}
