//! `sidestep repro`.

use sidestep_repro::{ALL, Outcome, Paper, Row, Verdict, find, report, run as run_experiment};
use sidestep_results::World;

use super::{NEEDS_ROOT, print_json, save, until_signalled, worlds::Real};
use crate::planning::{
    args::Repro,
    failure::{Failure, Outcome as Done},
    progress::StepProgress,
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
    outcome.notes.iter().for_each(|note| println!("  note: {note}."));
    for row in &outcome.rows {
        let paper = match &row.paper {
            Paper::Number(number) => number.to_string(),
            Paper::Text(text) => text.clone(),
            Paper::None => "–".into(),
        };
        let verdict = if row.verdict == Verdict::NoPaperValue { "–" } else { row.verdict.as_str() };
        println!("  {:<58} paper: {paper:<26} ours: {:<32} {verdict}", row.quantity, ours(row));
    }
}

/// What came out, its interval, and the unit. The interval has two ends: that of a median is rarely around its middle.
fn ours(row: &Row) -> String {
    let decimals = if row.ours.abs() < 10.0 && row.ours.fract() != 0.0 { 3 } else { 1 };
    let interval = row.ci95.filter(|[low, high]| high > low);
    let interval = interval.map_or(String::new(), |[low, high]| format!(" ({low:.decimals$} to {high:.decimals$})"));
    format!("{:.decimals$}{interval} {}", row.ours, row.unit).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_printed_by_its_ends_with_the_unit() {
        let row = |ours: f64, ci95, unit: &str| Row {
            quantity: "q".into(),
            unit: unit.into(),
            paper: Paper::None,
            ours,
            ci95,
            verdict: Verdict::NoPaperValue,
            why: String::new(),
        };
        assert_eq!(ours(&row(93.6, Some([77.0, 100.0]), "%")), "93.6 (77.0 to 100.0) %");
        assert_eq!(ours(&row(0.0, Some([0.0, 1552.0]), "packets")), "0.0 (0.0 to 1552.0) packets");
        assert_eq!(ours(&row(1.5, Some([1.25, 1.625]), "")), "1.500 (1.250 to 1.625)");
        assert_eq!([ours(&row(12.0, None, "s")), ours(&row(12.0, Some([12.0; 2]), "s"))], ["12.0 s", "12.0 s"]);
    }
}
