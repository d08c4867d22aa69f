//! `sidestep bench policies`: the tournament.

use std::path::Path;

use serde::Serialize;
use sidestep_model::{pattern, scenario::SystemSpec};
use sidestep_repro::Mode;
use sidestep_tournament::{Case, Class, Measure, Options, POLICIES, Set, Tournament, cases, page, play};

use crate::{
    failure::{Failure, Outcome},
    planning::{
        args::{PolicyArgs, Sets},
        command_line, print_json,
        progress::PolicyProgress,
        save, until_signalled,
    },
};

/// The seeds that the regret is of: the best of many assignments is sought for each scenario.
const REGRET_SEEDS: u32 = 5;

/// A scenario in the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    set: Set,
    class: Class,
    judged: &'static [Measure],
    purpose: &'static str,
}

/// Runs `sidestep bench policies`.
pub fn run(args: PolicyArgs) -> Outcome {
    let chosen: Vec<&'static Case> = cases().filter(|case| is_chosen(case, &args)).collect();
    if chosen.is_empty() {
        return Err(Failure::usage("--scenarios and --set leave no scenario; `--list` lists them"));
    }
    if args.list {
        return list(&chosen, args.json);
    }
    if let Some(directory) = &args.write {
        return write(&chosen, directory);
    }
    let policies: Result<Vec<SystemSpec>, _> = POLICIES.iter().map(|policy| policy.parse()).collect();
    let full = args.mode == Mode::Full;
    let options = Options {
        policies: if args.policies.is_empty() { policies.map_err(Failure::run)? } else { args.policies },
        cases: chosen,
        seeds: args.seeds.unwrap_or(if full { 20 } else { 5 }),
        regret: (full || args.regret).then_some(REGRET_SEEDS),
        command: command_line(),
        stop: until_signalled()?,
    };
    let tournament = play(&options, &PolicyProgress::new())?;
    make(&args.out)?;
    save(&args.out.join("index.html"), &page(&tournament))?;
    let json = serde_json::to_string_pretty(&tournament).map_err(Failure::run)?;
    save(&args.out.join("policies.json"), &(json + "\n"))?;
    if args.json { print_json(&tournament) } else { print(&tournament, &args.out) }
}

fn is_chosen(case: &Case, args: &PolicyArgs) -> bool {
    let named = args.scenarios.as_ref().is_none_or(|wanted| pattern::matches(wanted, case.name));
    named && (args.set == Sets::All || args.set == Sets::One(case.set))
}

fn list(chosen: &[&'static Case], json: bool) -> Outcome {
    let listed = |case: &&'static Case| {
        let Case { name, set, class, judged, purpose, .. } = **case;
        Listed { name, set, class, judged, purpose }
    };
    if json {
        return print_json(&chosen.iter().map(listed).collect::<Vec<_>>());
    }
    for case in chosen {
        println!("{:<24} {:<8} {:<8} {}", case.name, case.set.as_str(), case.class.as_str(), case.purpose);
    }
    Ok(())
}

fn write(chosen: &[&Case], directory: &Path) -> Outcome {
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
