//! `sidestep demo`: what moving connections is worth, and when which policy does, shown on this machine in a few minutes.

mod compared;
mod machine;
mod names;
mod page;
mod words;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use serde::Serialize;
use sidestep_lab::LabError;
use sidestep_results::{RunResult, World, table};
use sidestep_scenario::Scenario;

use self::{
    compared::Transfers,
    machine::{Machine, Meter},
    words::Verdict,
};
use super::{NEEDS_ROOT, args::DemoArgs, print_json, save, until_signalled};
use crate::planning::{
    failure::{Failure, Outcome},
    progress::{LabProgress, SimProgress},
};

/// Version of `demo.json`.
const SCHEMA: u32 = 1;

/// A part: a scenario, and where its results go.
struct Part {
    name: &'static str,
    title: &'static str,
    file: &'static str,
    text: &'static str,
    /// How many seeds the simulator runs it under: who shares a path with whom is chance.
    seeds: u32,
}

/// Paths that are alike, where dice do as well as learning.
const EQUAL: Part = Part {
    name: "equal",
    title: "Six equal paths, and connections that send all the time",
    file: "six-paths.toml",
    text: include_str!("../../../../scenarios/six-paths.toml"),
    seeds: 8,
};
/// Paths that differ, of which one dies.
const UNLIKE: Part = Part {
    name: "unlike",
    title: "Four unlike paths, of which the best dies silently half-way, and short transfers",
    file: "unlike-paths.toml",
    text: include_str!("../../../../scenarios/unlike-paths.toml"),
    seeds: 1,
};
/// Programs that know nothing of paths.
const PROGRAMS: Part = Part {
    name: "unmodified",
    title: "Unmodified programs: nginx, curl and iperf3",
    file: "unmodified.toml",
    text: include_str!("../../../../scenarios/unmodified.toml"),
    seeds: 1,
};

/// The report on the demonstration, which `demo.json` contains.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Where it ran.
    world: World,
    /// Why it ran in the simulator, if it did.
    simulated: Option<String>,
    /// When one needs which, by what was measured.
    lesson: String,
    /// What the first two parts show about the systems.
    verdicts: Vec<Verdict>,
    /// Whether the machine kept up.
    trusted: bool,
    /// Why it did not.
    doubts: Vec<String>,
    machine: Machine,
    parts: Vec<Notified>,
}

/// The report on a part.
#[derive(Debug, Serialize)]
struct Notified {
    name: &'static str,
    title: &'static str,
    /// What was measured, in a sentence; empty where nothing is compared.
    told: String,
    /// Why it was left out.
    left_out: Option<String>,
    /// Its results, without the lists that `result.json` in its directory has.
    #[serde(skip)]
    run: Option<RunResult>,
    /// Its own page, below the directory of the demonstration.
    page: Option<String>,
    /// More pictures than its own page has, as SVG.
    #[serde(skip)]
    pictures: Vec<String>,
}

/// Runs `sidestep demo`.
pub fn run(args: DemoArgs) -> Outcome {
    let stop = until_signalled()?;
    let meter = Meter::start();
    let mut stage = Stage::new(&args, stop);
    let equal = stage.part(&EQUAL)?;
    let unlike = stage.part(&UNLIKE)?;
    let programs = stage.programs();
    let (Some(equal_run), Some(unlike_run)) = (&equal.run, &unlike.run) else {
        return Err(Failure::run("the demonstration has no results"));
    };
    let transfers = Transfers::read(&args.out.join(UNLIKE.name).join("flows.csv"), &stage.scenario(&UNLIKE)?)?;
    let verdicts = words::verdicts(equal_run, unlike_run, &transfers);
    let machine = meter.stop();
    let runs = [&equal, &unlike, &programs].into_iter().filter_map(|part| Some((part.title, part.run.as_ref()?)));
    let doubts = machine.doubts(stage.world, runs);
    let mut report = Report {
        schema: SCHEMA,
        world: stage.world,
        simulated: stage.simulated,
        lesson: words::lesson(&verdicts),
        trusted: doubts.is_empty(),
        doubts,
        machine,
        parts: vec![equal, unlike, programs],
        verdicts,
    };
    for (part, told) in report.parts.iter_mut().zip(words::parts(&report.verdicts)) {
        part.told = told;
    }
    report.parts[1].pictures.push(transfers.picture().map_err(Failure::run)?);
    let out = &args.out;
    save(&out.join("index.html"), &page::page(&report, out))?;
    save(&out.join("demo.json"), &(serde_json::to_string_pretty(&report).map_err(Failure::run)? + "\n"))?;
    save(&out.join("unlike-times.svg"), &report.parts[1].pictures[0])?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&report, &out.join("index.html"));
    }
    report.complete()
}

/// Where the parts run: in the lab, or in the simulator from the first part on that the lab refuses.
struct Stage<'a> {
    args: &'a DemoArgs,
    stop: Arc<AtomicBool>,
    world: World,
    simulated: Option<String>,
}

impl<'a> Stage<'a> {
    fn new(args: &'a DemoArgs, stop: Arc<AtomicBool>) -> Self {
        let simulated = match (args.sim, sidestep_linux::is_root()) {
            (true, _) => Some("--sim asks for it".to_owned()),
            (false, false) => Some(NEEDS_ROOT.to_owned()),
            (false, true) => None,
        };
        let world = if simulated.is_some() { World::Sim } else { World::Lab };
        Stage { args, stop, world, simulated }
    }

    fn scenario(&self, part: &Part) -> Result<Scenario, Failure> {
        Scenario::parse(part.text, part.name).map_err(|error| Failure::run(error.in_file(part.file)))
    }

    /// Runs a part, in the simulator if the lab cannot.
    fn part(&mut self, part: &Part) -> Result<Notified, Failure> {
        self.announce(part);
        if self.world == World::Lab {
            match self.in_lab(part) {
                Err(error) if error.is_environment() => {
                    self.simulated = Some(error.to_string());
                    self.world = World::Sim;
                    eprintln!("The lab cannot run here: {error}. The simulator runs the same scenarios.");
                }
                run => return Ok(Notified::of(part, run?)),
            }
        }
        Ok(Notified::of(part, self.in_simulator(part)?))
    }

    /// Runs the programs, which only the lab can.
    fn programs(&self) -> Notified {
        let left_out = |why: String| Notified { left_out: Some(why), ..Notified::without(&PROGRAMS) };
        if self.world == World::Sim {
            return left_out("programs run in the lab only".into());
        }
        self.announce(&PROGRAMS);
        match self.in_lab(&PROGRAMS) {
            Ok(run) => Notified::of(&PROGRAMS, run),
            Err(error) => left_out(error.to_string()),
        }
    }

    fn announce(&self, part: &Part) {
        if !self.args.json {
            println!("{}: {} ({})", part.name, part.title, self.world.as_str());
        }
    }

    fn in_lab(&self, part: &Part) -> Result<RunResult, LabError> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|source| file(path, source));
        let scenario = Scenario::parse(part.text, part.name)
            .map_err(|error| file(Path::new(part.file), std::io::Error::other(error.to_string())))?;
        let options = sidestep_lab::RunOptions {
            registry: sidestep_systems::lab(),
            systems: scenario.systems.clone(),
            scenario,
            out: absolute(&self.args.out.join(part.name))?,
            program: std::env::current_exe().map_err(|source| file(Path::new("sidestep"), source))?,
            command: format!("sidestep lab run scenarios/{}", part.file),
            stop: self.stop.clone(),
        };
        sidestep_lab::run(&options, &mut LabProgress::new())
    }

    fn in_simulator(&self, part: &Part) -> Result<RunResult, Failure> {
        let scenario = self.scenario(part)?;
        let options = sidestep_sim::RunOptions {
            registry: sidestep_systems::simulator(),
            lateness: sidestep_engine::Lateness::default(),
            systems: scenario.systems.clone(),
            scenario,
            seeds: part.seeds,
            out: Some(self.args.out.join(part.name)),
            all_records: false,
            trace: Vec::new(),
            command: format!("sidestep sim run scenarios/{} --seeds {}", part.file, part.seeds),
            stop: self.stop.clone(),
        };
        match sidestep_sim::run(&options, &SimProgress::new())? {
            (_, true) => Err(Failure::run("interrupted")),
            (run, false) => Ok(run),
        }
    }
}

fn file(path: &Path, source: std::io::Error) -> LabError {
    LabError::File { path: path.into(), source }
}

impl Notified {
    fn without(part: &Part) -> Self {
        let (name, title) = (part.name, part.title);
        Notified { name, title, told: String::new(), left_out: None, run: None, page: None, pictures: Vec::new() }
    }

    fn of(part: &Part, run: RunResult) -> Self {
        Notified { page: Some(format!("{}/index.html", part.name)), run: Some(run), ..Notified::without(part) }
    }
}

impl Report {
    /// The last line: whether to trust the numbers.
    fn trust(&self) -> String {
        match (&self.doubts[..], self.world) {
            ([], World::Sim) => "Simulated in virtual time: how busy the machine was changes nothing.".into(),
            ([], World::Lab) => format!("The machine kept up: {}.", self.machine),
            (doubts, _) => format!("Do not trust these numbers: {}.", doubts.join("; ")),
        }
    }

    /// Fails where a part lacks something, although all is written.
    fn complete(&self) -> Outcome {
        let lines: Vec<String> =
            self.parts.iter().filter_map(|part| part.run.as_ref()).flat_map(RunResult::incomplete).collect();
        if lines.is_empty() {
            return Ok(());
        }
        Err(Failure::run(format!("the results are incomplete: {}", lines.join("; "))))
    }
}

fn print(report: &Report, page: &Path) {
    for part in &report.parts {
        println!("\n{}", part.title);
        if let Some(run) = &part.run {
            println!("{}", table(run));
        }
        if let Some(why) = &part.left_out {
            println!("left out: {why}");
        }
        if !part.told.is_empty() {
            println!("{}", part.told);
        }
    }
    println!("\n{}", report.lesson);
    if let Some(why) = &report.simulated {
        println!("The simulator ran it: {why}.");
    }
    println!("All parts on one page: {}", page.display());
    println!("{}", report.trust());
}
