//! `sidestep bench policies`: the tournament.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_lab::RunOptions;
use sidestep_net::pattern;
use sidestep_repro::Mode;
use sidestep_results::World;
use sidestep_scenario::{Scenario, SystemSpec};
use sidestep_tournament::{
    BASELINES, Case, Options, POLICIES, Played, Stage, Tournament, cases, drawn, lab_cases, page, play, play_in_lab,
};

use crate::planning::{
    NEEDS_ROOT,
    args::{PolicyArgs, Sets},
    command_line,
    failure::{Failure, Outcome},
    print_json,
    progress::{LabProgress, PolicyProgress},
    save, until_signalled,
};

/// The seeds that the regret is of: the best of many assignments is sought for each scenario.
const REGRET_SEEDS: u32 = 5;

/// Runs `sidestep bench policies`.
pub fn run(args: PolicyArgs) -> Outcome {
    let in_lab = args.world == World::Lab;
    let all: Vec<Case> = match (args.drawn, in_lab) {
        (Some(_), true) => return Err(Failure::usage("--drawn is for the simulator: leave out --world lab")),
        (Some(seed), false) => drawn(seed, args.count),
        (None, true) => lab_cases().cloned().collect(),
        (None, false) => cases().cloned().collect(),
    };
    let chosen: Vec<Case> = all.into_iter().filter(|case| is_chosen(case, &args)).collect();
    if chosen.is_empty() {
        return Err(Failure::usage("--scenarios and --set leave no scenario; `--list` lists them"));
    }
    if args.list {
        return list(&chosen, args.json);
    }
    if let Some(directory) = &args.write {
        return write(&chosen, directory);
    }
    if in_lab && !sidestep_linux::is_root() {
        return Err(Failure::environment(NEEDS_ROOT));
    }
    // A run of the lab lasts as long as its scenario: there the default and the baselines play.
    let usual: Vec<&str> =
        if in_lab { POLICIES.iter().take(1).chain(&BASELINES).copied().collect() } else { POLICIES.to_vec() };
    let policies: Result<Vec<SystemSpec>, _> = usual.iter().map(|policy| policy.parse()).collect();
    let full = args.mode == Mode::Full;
    let seeds = match (in_lab, full) {
        (false, false) => 5,
        (false, true) => 20,
        (true, false) => 1,
        (true, true) => 5,
    };
    let options = Options {
        policies: if args.policies.is_empty() { policies.map_err(Failure::run)? } else { args.policies },
        cases: chosen,
        seeds: args.seeds.unwrap_or(seeds),
        regret: (full || args.regret).then_some(REGRET_SEEDS),
        profile: args.profile,
        command: command_line(),
        stop: until_signalled()?,
    };
    let tournament = if in_lab {
        let program = std::env::current_exe().map_err(Failure::run)?;
        let out = std::path::absolute(args.out.join("runs")).map_err(Failure::run)?;
        play_in_lab(&options, &Lab { program, out, stop: options.stop.clone() }, &())?
    } else {
        play(&options, &PolicyProgress::new())?
    };
    make(&args.out)?;
    save(&args.out.join("index.html"), &page(&tournament))?;
    let json = serde_json::to_string_pretty(&tournament).map_err(Failure::run)?;
    save(&args.out.join("policies.json"), &(json + "\n"))?;
    if args.json { print_json(&tournament) } else { print(&tournament, &args.out) }
}

/// The lab. It leaves the results of each run in a directory of its own, `SCENARIO/SEED`.
struct Lab {
    program: PathBuf,
    out: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Stage for Lab {
    fn play(&self, scenario: &Scenario, systems: &[SystemSpec], seeds: u32) -> Result<Played, String> {
        let mut played = Played::new();
        for seed in 1..=seeds {
            let options = RunOptions {
                registry: sidestep_systems::lab(),
                scenario: Scenario { seed: seed.into(), ..scenario.clone() },
                systems: systems.to_vec(),
                out: self.out.join(&scenario.name).join(seed.to_string()),
                program: self.program.clone(),
                command: command_line(),
                stop: self.stop.clone(),
            };
            let result = sidestep_lab::run(&options, &mut LabProgress::new()).map_err(|error| error.to_string())?;
            for (name, of) in result.systems {
                played.entry(name).or_default().push(of);
            }
        }
        Ok(played)
    }
}

fn is_chosen(case: &Case, args: &PolicyArgs) -> bool {
    let named = args.scenarios.as_ref().is_none_or(|wanted| pattern::matches(wanted, &case.name));
    named && (args.set == Sets::All || args.set == Sets::One(case.set))
}

fn list(chosen: &[Case], json: bool) -> Outcome {
    if json {
        return print_json(&chosen);
    }
    for case in chosen {
        println!("{:<24} {:<8} {:<8} {}", case.name, case.set.as_str(), case.class.as_str(), case.purpose);
    }
    Ok(())
}

fn write(chosen: &[Case], directory: &Path) -> Outcome {
    make(directory)?;
    for case in chosen {
        save(&directory.join(format!("{}.toml", case.name)), &case.text())?;
    }
    println!("{} scenarios: {}", chosen.len(), directory.display());
    Ok(())
}

fn make(directory: &Path) -> Outcome {
    std::fs::create_dir_all(directory).map_err(|error| Failure::run(format!("{}: {error}", directory.display())))
}

fn print(tournament: &Tournament, out: &Path) -> Outcome {
    for summary in &tournament.summaries {
        println!("{} {}.", summary.policy, summary.words());
    }
    println!("\nTable, page and all measures: {}", out.join("index.html").display());
    Ok(())
}
