//! `sidestep sim sweep`.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use serde::Serialize;
use sidestep_formats::Reading;
use sidestep_results::{RunResult, Swept, SweptPoint};
use sidestep_scenario::{
    Scenario, SystemSpec,
    overrides::{Override, Sweep},
};
use sidestep_sim::RunOptions;

use super::{
    args::SimSweep,
    command_line, print_json, read_scenario,
    refusals::{check_memory, located},
    save, until_signalled,
};
use crate::planning::{
    failure::{Failure, Outcome},
    progress::BenchProgress,
};

/// The most runs of one call: more are a mistake in the values.
const MAX: usize = 10_000;

/// The results of all values, and how the networks that they are of were read; for JSON.
#[derive(Serialize)]
struct WithReadings<'a> {
    #[serde(flatten)]
    results: &'a Swept,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    readings: Vec<Reading>,
}

/// One value of each key.
struct Point {
    values: Vec<String>,
    set: Vec<Override>,
    scenario: Scenario,
}

/// Runs a scenario with each value of a key, or of several keys each with each.
pub fn run(args: SimSweep) -> Outcome {
    let (points, readings) = points(&args)?;
    let systems = |scenario: &Scenario| -> Vec<SystemSpec> {
        if args.systems.is_empty() { scenario.systems.clone() } else { args.systems.clone() }
    };
    let largest = points.iter().map(|point| u64::from(args.seeds) * systems(&point.scenario).len() as u64).max();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // A run uses a processor for each system and seed.
    let at_once = (processors / (largest.unwrap_or(1) as usize).clamp(1, processors)).max(1);
    if !args.force {
        let simulations = largest.unwrap_or(1).saturating_mul(points.len() as u64);
        points.iter().try_for_each(|point| check_memory(&point.scenario, simulations))?;
    }
    let name = points.first().map_or("", |point| point.scenario.name.as_str());
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out").join(format!("{name}-sweep")));
    std::fs::create_dir_all(&out).map_err(|error| Failure::run(format!("{}: {error}", out.display())))?;
    let stop = until_signalled()?;
    let runs = Runs { done: Mutex::new(Vec::new()), next: AtomicUsize::new(0), stop: &stop, out: &out };
    let progress = BenchProgress::new();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| runs.work(&args, &points, &systems, &progress));
        }
    });
    drop(progress);
    let whole = runs.whole()?;
    let interrupted = whole.len() < points.len();
    let swept = Swept::new(name, args.over.iter().map(Sweep::key).collect(), of_points(&points, whole));
    save(&out.join("sweep.json"), &(serde_json::to_string_pretty(&swept).map_err(Failure::run)? + "\n"))?;
    save(&out.join("sweep.svg"), &swept.picture().map_err(Failure::run)?)?;
    save(&out.join("index.html"), &swept.page(&command_line()).map_err(Failure::run)?)?;
    if args.json {
        print_json(&WithReadings { results: &swept, readings })?;
    } else {
        println!("{}", swept.table());
        println!("Table and picture: {}", out.join("index.html").display());
    }
    if interrupted {
        return Err(Failure::run("interrupted; the values that ran to the end are written"));
    }
    Ok(())
}

/// Every combination of the values, the last key's changing fastest; and how networks were read, once each.
fn points(args: &SimSweep) -> Result<(Vec<Point>, Vec<Reading>), Failure> {
    let number = args.over.iter().map(|sweep| sweep.values().len()).try_fold(1_usize, usize::checked_mul);
    let Some(number) = number.filter(|number| *number <= MAX) else {
        return Err(Failure::usage(format!("--over: these are more than {MAX} runs; give fewer values")));
    };
    let mut readings = Vec::new();
    let point = |number: usize| {
        let mut rest = number;
        let mut set = Vec::new();
        for sweep in args.over.iter().rev() {
            set.extend(sweep.values().get(rest % sweep.values().len()).cloned());
            rest /= sweep.values().len();
        }
        set.reverse();
        let values: Vec<String> = set.iter().map(Override::value).collect();
        let set: Vec<Override> = args.laid.all().into_iter().chain(set).collect();
        let (scenario, reading) =
            read_scenario(&args.scenario, &set, args.seeds).map_err(|error| error.within(&values.join(", ")))?;
        readings.extend(reading.filter(|reading| !readings.contains(reading)));
        Ok(Point { values, set, scenario })
    };
    let points: Result<_, Failure> = (0..number).map(point).collect();
    Ok((points?, readings))
}

/// The results of those points that ran to the end, in the order of the points.
fn of_points(points: &[Point], whole: Vec<(usize, RunResult)>) -> Vec<SweptPoint> {
    let mut done: Vec<SweptPoint> = Vec::new();
    for (number, run) in whole {
        let values = points.get(number).map(|point| point.values.clone()).unwrap_or_default();
        done.push(SweptPoint { values, directory: directory(number), run });
    }
    done
}

/// Name of the directory of a point's own results.
fn directory(number: usize) -> String {
    format!("point-{:04}", number + 1)
}

/// The points that threads take one after the other.
struct Runs<'a> {
    done: Mutex<Vec<(usize, Result<RunResult, Failure>)>>,
    next: AtomicUsize,
    stop: &'a Arc<AtomicBool>,
    out: &'a Path,
}

impl Runs<'_> {
    fn work(
        &self,
        args: &SimSweep,
        points: &[Point],
        systems: &(impl Fn(&Scenario) -> Vec<SystemSpec> + Sync),
        progress: &BenchProgress,
    ) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = points.get(number) else { return };
            progress.step(&point.values.join(", "), number, points.len());
            let options = RunOptions {
                registry: sidestep_systems::simulator(),
                lateness: sidestep_engine::Lateness::default(),
                scenario: point.scenario.clone(),
                systems: systems(&point.scenario),
                seeds: args.seeds,
                out: Some(self.out.join(directory(number))),
                all_records: true,
                trace: Vec::new(),
                command: command_line(),
                stop: self.stop.clone(),
            };
            let result = match sidestep_sim::run(&options, &()) {
                Ok((_, true)) => return,
                Ok((result, false)) => Ok(result),
                Err(error) => {
                    // The other values would fail likewise, or be of no use without this one.
                    self.next.store(points.len(), Ordering::Relaxed);
                    Err(located(&args.scenario, &point.set, error).within(&point.values.join(", ")))
                }
            };
            self.done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    }

    /// The results, in the order of the points; the first error instead, if there is one.
    fn whole(self) -> Result<Vec<(usize, RunResult)>, Failure> {
        let mut done = self.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().map(|(number, result)| Ok((number, result?))).collect()
    }
}
