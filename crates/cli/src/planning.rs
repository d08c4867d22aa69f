//! What is done before anything is deployed, or instead: rehearse, compute what a network offers, measure.
//!
//! It needs the simulator, the lab, the plots and a solver. A build without the feature `planning` leaves it out, and is
//! the program of the daemons alone.

mod advise;
pub mod args;
mod bench;
mod between;
mod command_line;
mod compare;
mod demands;
mod demo;
mod equivalence;
mod failure;
mod flows;
mod lab;
mod maxflow;
mod paths;
mod progress;
mod refusals;
mod repro;
mod sim;
mod sweep;
mod topo;
mod traffic;
mod worlds;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Mutex,
};

use serde::Serialize;
use sidestep_command::{read, until_signalled};
use sidestep_formats::{Mapping, Reading};
use sidestep_net::{Files, Graph, ListedTransfer, ParseError, TrafficMatrix};
use sidestep_scenario::{
    Catalogue, Scenario, World,
    overrides::{self, Override, OverrideError},
};

pub use self::args::Command;
use self::{
    command_line::command_line,
    failure::{Failure, Outcome},
};

/// The most that is read of a file that a scenario names, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The variable that names the directory of the published topologies.
const DATA: &str = "SIDESTEP_DATA";

/// Why the lab does not start for an ordinary user.
const NEEDS_ROOT: &str = "the lab makes network namespaces, for which it must run as root; use sudo";

/// Runs one of these commands.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Lab(lab) => lab::run(lab),
        Command::Sim(sim) => sim::run(sim),
        Command::Compare(options) => compare::run(options),
        Command::Demo(options) => demo::run(options),
        Command::Repro(repro) => repro::run(repro),
        Command::Topo(topo) => topo::run(topo),
        Command::Paths(paths) => paths::run(paths),
        Command::Advise(options) => advise::run(options),
        Command::Maxflow(options) => maxflow::run(options),
        Command::Bench(bench) => bench::run(bench),
        Command::Traffic(traffic) => traffic::run(traffic),
    }
}

/// Results, and how the network that they are of was read; for JSON.
#[derive(Serialize)]
struct WithReading<'a, T> {
    #[serde(flatten)]
    results: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    reading: Option<Reading>,
}

/// Prints a value as JSON.
fn print_json(value: &impl Serialize) -> Outcome {
    Ok(sidestep_command::print_json(value)?)
}

/// Writes a file where the user wants it.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::run(format!("{}: {error}", path.display())))
}

/// A scenario file as text, with what the user has set laid over it.
fn scenario_text(path: &Path, set: &[Override]) -> Result<String, Failure> {
    let text = read(path)?;
    match overrides::apply(&text, set) {
        // The scenario's reader reports what is wrong with it, and where.
        Err(OverrideError::File(_)) => Ok(text),
        set => set.map_err(|error| Failure::usage(format!("--set: {error}"))),
    }
}

/// Reads a scenario file, which its stem names if it does not name itself, for runs under this many seeds; and how the network
/// was read that it names, if it does.
///
/// Refuses one in which no traffic begins under any of them.
fn read_scenario(path: &Path, set: &[Override], seeds: u32) -> Result<(Scenario, Option<Reading>), Failure> {
    let stem = path.file_stem().map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy().into_owned());
    let text = scenario_text(path, set)?;
    let in_file = |error: ParseError| Failure::usage(error.in_file(path.display().to_string()));
    let files = Beside { scenario: path, reading: RefCell::default() };
    let mut scenario = Scenario::parse_with_files(&text, &stem, &files).map_err(in_file)?;
    catalogue().resolve_read(&mut scenario, &text).map_err(in_file)?;
    let idle = scenario.idle((0..seeds).map(|number| scenario.seed.wrapping_add(number.into())));
    match idle {
        Some((place, message)) => Err(in_file(Scenario::error_at(&text, place, &message))),
        None => Ok((scenario, files.reading.into_inner())),
    }
}

/// The systems of both worlds.
fn catalogue() -> Catalogue {
    let mut catalogue = sidestep_systems::simulator().catalogue();
    catalogue.add(World::Lab, sidestep_systems::lab().infos());
    catalogue
}

/// What a scenario file names: other files beside it, and networks beside it or published.
struct Beside<'a> {
    scenario: &'a Path,
    /// How the last network was read.
    reading: RefCell<Option<Reading>>,
}

impl Files for Beside<'_> {
    fn text(&self, name: &str) -> Result<String, String> {
        let file = self.scenario.with_file_name(name);
        let mut text = String::new();
        let read = File::open(&file).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
        match read {
            Ok(length) if length as u64 > MAX_FILE => Err(format!("{} has more than 4 MiB", file.display())),
            Ok(_) => Ok(text),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    }

    fn network(&self, name: &str, map: &BTreeMap<String, String>) -> Result<Graph, String> {
        let beside = self.scenario.with_file_name(name);
        let name = if beside.is_file() { beside.to_string_lossy() } else { name.into() };
        let data = std::env::var_os(DATA).map(PathBuf::from);
        let mut mapping = Mapping::default();
        for (key, meaning) in map {
            mapping.add(key, meaning).map_err(|error| format!("map: {error}"))?;
        }
        let read = sidestep_repro::topology_as(data.as_deref(), &name, &mapping);
        let (graph, reading) = read.map_err(|error| error.to_string())?;
        say_reading(&graph, &reading);
        self.reading.replace(Some(reading));
        Ok(graph)
    }

    fn demands(&self, name: &str, unit: Option<&str>, graph: &Graph, seed: u64) -> Result<TrafficMatrix, String> {
        demands::load_one(&self.scenario.with_file_name(name), name, unit, graph, seed)
    }

    fn transfers(&self, name: &str, graph: &Graph) -> Result<Vec<ListedTransfer>, String> {
        demands::load_transfers(&self.scenario.with_file_name(name), graph)
    }
}

/// Prints how a network was read.
fn say_reading(graph: &Graph, reading: &Reading) {
    reading.lines().iter().for_each(|line| say_once(&format!("{}: {line}", graph.name)));
}

/// Prints how a file was read, once: a sweep reads it again for each value.
fn say_once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().is_ok_and(|mut said| said.insert(line.to_owned())) {
        eprintln!("{}", line.replace(char::is_control, "\u{fffd}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_table_of_systems() {
        let (document, table) = (include_str!("../../../docs/scenario.md"), catalogue().markdown());
        assert!(document.contains(&table), "docs/scenario.md must have this table:\n{table}");
    }

    #[test]
    fn a_world_refuses_what_it_cannot_run_and_lists_what_it_can() {
        let refused = catalogue().require(World::Lab, "rcp").unwrap_err().to_string();
        let known = "tcp, ecmp, random, prr, plb, pathchanger, mptcp, semper, semper-stateful, route-control and inrpp";
        assert_eq!(refused, format!("the lab cannot run the system `rcp` yet; it has {known}"));
        let unknown = catalogue().require(World::Sim, "quic").unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no system `quic`; known systems: tcp, ecmp, random, prr, plb"),
            "{unknown}"
        );
    }
}
