//! `sidestep repro`.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_model::{Scenario, scenario::SystemSpec};
use sidestep_repro::{ALL, Mode, Outcome, Paper, Verdict, Worlds, find, report, run as run_experiment};
use sidestep_results::{RunResult, World};

use super::{command_line, print_json, until_signalled};
use crate::{
    args::Repro,
    failure::{Failure, Outcome as Done},
    progress::{LabProgress, SimProgress},
};

/// Runs `sidestep repro …`.
pub fn run(repro: Repro) -> Done {
    match repro {
        Repro::List { json } => list(json),
        Repro::Run { ids, mode, world, out, json } => {
            let experiments: Result<Vec<_>, _> = ids.iter().map(|id| find(id)).collect();
            let mode = if mode == "full" { Mode::Full } else { Mode::Quick };
            let world = world.map(|world| if world == "lab" { World::Lab } else { World::Sim });
            let mut worlds = Real { stop: until_signalled()? };
            let mut outcomes = Vec::new();
            for experiment in experiments? {
                let outcome = run_experiment(experiment, mode, world, &out, &mut worlds)?;
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
            std::fs::write(&path, report(&dir)?)
                .map_err(|error| Failure::run(format!("{}: {error}", path.display())))?;
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
        let half = row.ci95.map_or(String::new(), |[low, high]| format!(" ± {:.1}", (high - low) / 2.0));
        let verdict = match row.verdict {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::NoPaperValue => "–",
        };
        let ours = format!("{:.1}{half}", row.ours);
        println!("  {:<48} paper: {paper:<26} ours: {ours:<14} {verdict}", row.quantity);
    }
}

/// The simulator and the lab.
struct Real {
    stop: Arc<AtomicBool>,
}

impl Worlds for Real {
    fn run(
        &mut self,
        world: World,
        scenario: &Scenario,
        systems: &[SystemSpec],
        seeds: u32,
        out: &Path,
    ) -> Result<RunResult, String> {
        let (scenario, systems) = (scenario.clone(), systems.to_vec());
        let (command, stop) = (command_line(), self.stop.clone());
        match world {
            World::Sim => {
                let out = Some(out.to_path_buf());
                let options = sidestep_sim::RunOptions { scenario, systems, seeds, out, command, stop };
                match sidestep_sim::run(&options, &SimProgress::new()) {
                    Ok((_, true)) => Err("interrupted".into()),
                    Ok((result, false)) => Ok(result),
                    Err(error) => Err(error.to_string()),
                }
            }
            World::Lab => {
                if !sidestep_linux::is_root() {
                    return Err("the lab makes network namespaces, for which it must run as root; use sudo".into());
                }
                let out = std::path::absolute(out).map_err(|error| error.to_string())?;
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                let options = sidestep_lab::RunOptions { scenario, systems, out, program, command, stop };
                sidestep_lab::run(&options, &mut LabProgress::new()).map_err(|error| error.to_string())
            }
        }
    }
}
