//! The tables and figures of the papers, ours beside theirs.
//!
//! - An [`Experiment`] is one file under `experiments`; [`ALL`] lists them and [`find`] looks one up. [`run`] runs one in a
//!   [`World`] and writes its files. [`Worlds`] is implemented by the crates that can run scenarios.
//! - A [`Row`] is one quantity: what the paper says, what came out, and a [`Verdict`]. No verdict is given by hand.
//!   [`Row::new`] judges a mean by a [`Rule`]. [`Row::median`], [`Row::in_seeds`], [`Row::ordered`] and [`Row::equivalent`]
//!   judge [`Seeds`], the values of each seed: less data never makes them hold. What no paper states is a
//!   [`Row::self_check`] or an expectation [of our own](Row::of_our_own), and never `holds`.
//! - [`report()`] puts all results in a directory on one HTML page; [`curves()`] draws distribution functions.
//! - [`topologies`] and [`topology`] read published topologies; [`in_parallel`] spreads long work over processors.
//!
//! ```
//! use sidestep_repro::{Paper, Row, Seeds, Verdict};
//!
//! let seeds = |values: [f64; 6]| Seeds::new(values.map(Some));
//! let tcp = seeds([94.0, 93.0, 95.0, 94.0, 96.0, 93.0]);
//! let moved = seeds([510.0, 512.0, 509.0, 515.0, 508.0, 511.0]);
//! let paper = Paper::Text("more than TCP".into());
//! let row = Row::ordered("goodput", "Mbit/s", paper, &[("tcp", &tcp), ("path changer", &moved)], 100.0);
//! assert_eq!(row.verdict, Verdict::Holds);
//!
//! let alike = Row::equivalent("goodput", "Mbit/s", Paper::None, ("tcp", &tcp), &[("path changer", &moved)], 25.0);
//! assert_eq!(alike.verdict, Verdict::Differs);
//! ```

mod bars;
mod boxes;
mod curves;
mod data;
mod experiments;
mod report;
mod row;
mod seeds;
mod series;
#[cfg(test)]
mod testing;
mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidestep_results::{
    PlotError, Repeated, RunResult, World,
    lines::{Line, Panel, lines},
};
use sidestep_scenario::{Scenario, SystemSpec};
use thiserror::Error;

use bars::{Bar, bars};
use boxes::{Spread, boxes};
pub use curves::{Curve, curves};
pub use data::{DataError, Set, topologies, topology, topology_as, weighted};
pub use experiments::tpc_fig7::FlowWork;
pub use report::report;
pub use row::{Paper, Row, Rule, Verdict};
pub use seeds::{FEWEST, Seeds};
pub use sidestep_maxflow::{Unwatched, Watch, in_parallel};
pub use write::{Outcome, SCHEMA};

/// A table or figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The experiment's name on the command line, such as `tpc-fig5`.
    pub id: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The table or figure in it.
    pub figure: &'static str,
    /// One sentence that describes what the figure shows.
    pub title: &'static str,
    /// The worlds in which it can be run, the default first; empty if it is computed from topologies alone.
    pub worlds: &'static [World],
    /// The function that runs the experiment.
    pub run: fn(&mut Context<'_>) -> Result<Findings, ReproError>,
}

/// How thorough a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Few repetitions, enough to see whether a claim holds.
    #[default]
    Quick,
    /// As many repetitions as a paper would want.
    Full,
}

impl Mode {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Full => "full",
        }
    }
}

/// The outcome of an experiment, before it is written.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The quantities, ours beside the paper's.
    pub rows: Vec<Row>,
    /// Pictures: the file's name and its SVG text.
    pub pictures: Vec<(String, String)>,
    /// The data of the pictures: the file's name and its CSV text.
    pub tables: Vec<(String, String)>,
}

/// The settings and helpers that an experiment runs with.
pub struct Context<'a> {
    /// How thorough the run is.
    pub mode: Mode,
    /// The world to run scenarios in.
    pub world: World,
    /// Directory of the published topologies, if the user named one.
    pub data: Option<PathBuf>,
    /// Directory for the files of its runs.
    pub out: PathBuf,
    /// Runs the scenarios.
    pub worlds: &'a mut dyn Worlds,
    /// Observes the progress of long computations, and may end them.
    pub watch: &'a dyn Watch,
    /// What a reader must know of the data, in sentences.
    pub notes: Vec<String>,
}

/// Runs scenarios in the simulator and in the lab, neither of which this crate knows.
pub trait Worlds {
    /// Runs a scenario under each system with `seeds` seeds each, and writes the run's files to `out`.
    fn run(
        &mut self,
        world: World,
        scenario: &Scenario,
        systems: &[SystemSpec],
        seeds: u32,
        out: &Path,
    ) -> Result<RunResult, String>;
}

/// Why an experiment could not be run or reported.
#[derive(Debug, Error)]
pub enum ReproError {
    /// No experiment has that name.
    #[error("there is no experiment `{id}`; there are: {}", known())]
    Unknown {
        /// The name.
        id: String,
    },
    /// The experiment cannot be run in that world.
    #[error("{id} cannot be run in the {}", world.as_str())]
    World {
        /// The experiment.
        id: &'static str,
        /// Where not.
        world: World,
    },
    /// A scenario of the experiment cannot be parsed, which is a bug in the experiment.
    #[error("{0}")]
    Scenario(String),
    /// A run failed.
    #[error("{0}")]
    Run(String),
    /// The user interrupted the experiment.
    #[error("interrupted; nothing of it is written")]
    Interrupted,
    /// Topologies are missing, or cannot be parsed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A topology cannot be analysed.
    #[error(transparent)]
    Net(#[from] sidestep_paths::analysis::NetError),
    /// Results lack what the experiment looks for.
    #[error("the results have no {0}")]
    Missing(String),
    /// A picture could not be drawn.
    #[error("cannot draw: {0}")]
    Picture(String),
    /// A file could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl From<PlotError> for ReproError {
    fn from(error: PlotError) -> Self {
        ReproError::Picture(error.to_string())
    }
}

/// All experiments.
pub const ALL: &[Experiment] = &[
    experiments::tpc_fig5::EXPERIMENT,
    experiments::tpc_fig6::ROUTERS,
    experiments::tpc_fig6::LINKS,
    experiments::tpc_fig6::DEGREES,
    experiments::tpc_fig7::A,
    experiments::tpc_fig7::B,
    experiments::tpc_fig8::ALGORITHMS,
    experiments::tpc_fig8::SEGMENTS,
    experiments::tpc_claims::STABILITY,
    experiments::tpc_claims::FULL_USE,
    experiments::tpc_claims::USE_CASES,
    experiments::inrpp_table1::EXPERIMENT,
    experiments::inrpp_dumbbell::EXPERIMENT,
    experiments::inrpp_fig1::EXPERIMENT,
    experiments::inrpp_fig11::EXPERIMENT,
    experiments::inrpp_multihomed::EXPERIMENT,
    experiments::inrpp_hierarchical::EXPERIMENT,
    experiments::inrpp_rocketfuel::EXPERIMENT,
    experiments::inrpp_cache::EXPERIMENT,
    experiments::inrpp_tcp::EXPERIMENT,
    experiments::irc_fig2::SHORT,
    experiments::irc_fig2::LONG,
    experiments::irc_fig3::EXPERIMENT,
    experiments::irc_fig4::EXPERIMENT,
    experiments::irc_fig5::IDEAL_OUTAGES,
    experiments::irc_fig5::IDEAL_LOSS,
    experiments::irc_fig5::STATIC_OUTAGES,
    experiments::irc_fig5::STATIC_LOSS,
    experiments::irc_fig7::EXPERIMENT,
    experiments::semper_fig3::EXPERIMENT,
    experiments::semper_fig4::EXPERIMENT,
    experiments::semper_fig5::EXPERIMENT,
    experiments::semper_coupling::EXPERIMENT,
];

/// The experiment of this name.
pub fn find(id: &str) -> Result<&'static Experiment, ReproError> {
    ALL.iter().find(|one| one.id == id).ok_or_else(|| ReproError::Unknown { id: id.into() })
}

/// Runs an experiment and writes `OUT/ID/result.json`, `rows.csv`, its pictures and tables. Returns what was written.
///
/// `data` is the directory of the published topologies, if the user named one; `watch` observes the progress and may end the run.
pub fn run(
    experiment: &Experiment,
    mode: Mode,
    world: Option<World>,
    out: &Path,
    data: Option<&Path>,
    worlds: &mut dyn Worlds,
    watch: &dyn Watch,
) -> Result<Outcome, ReproError> {
    if let Some(world) = world.filter(|world| !experiment.worlds.contains(world)) {
        return Err(ReproError::World { id: experiment.id, world });
    }
    let world = world.or(experiment.worlds.first().copied());
    let out = out.join(experiment.id);
    let data = data.map(Path::to_path_buf);
    let mut context =
        Context { mode, world: world.unwrap_or(World::Sim), data, out: out.clone(), worlds, watch, notes: Vec::new() };
    let findings = (experiment.run)(&mut context)?;
    write::write(experiment, mode, world, &findings, context.notes, &out)
}

impl Context<'_> {
    /// Notes something of the data, once.
    pub(crate) fn note(&mut self, note: Option<&str>) {
        let new = note.filter(|note| !self.notes.iter().any(|noted| noted == note));
        self.notes.extend(new.map(str::to_owned));
    }

    /// Runs a scenario under these systems, and writes its files to the directory `name` below [`out`](Self::out).
    pub fn simulate(
        &mut self,
        name: &str,
        scenario: &Scenario,
        systems: &[&str],
        seeds: u32,
    ) -> Result<RunResult, ReproError> {
        let systems: Result<Vec<SystemSpec>, _> = systems.iter().map(|system| system.parse()).collect();
        let systems =
            systems.map_err(|error: sidestep_scenario::SystemError| ReproError::Scenario(error.to_string()))?;
        let out = self.out.join(name);
        if self.world == World::Sim || seeds < 2 {
            return self.worlds.run(self.world, scenario, &systems, seeds, &out).map_err(ReproError::Run);
        }
        // A lab runs one seed at a time.
        let mut runs = Vec::new();
        for number in 0..seeds {
            let scenario = Scenario { seed: scenario.seed.wrapping_add(number.into()), ..scenario.clone() };
            let out = out.join(Self::seed_directory(number));
            runs.push(self.worlds.run(self.world, &scenario, &systems, 1, &out).map_err(ReproError::Run)?);
        }
        Ok(together(runs))
    }

    /// Where a lab's run under one of several seeds leaves its files: the name of a directory.
    pub(crate) fn seed_directory(number: u32) -> String {
        format!("seed-{}", number + 1)
    }
}

/// Runs under several seeds as one, with the results of each.
fn together(runs: Vec<RunResult>) -> RunResult {
    let mut runs = runs.into_iter();
    let Some(mut first) = runs.next() else { return RunResult::new("", World::Lab, 0) };
    let others: Vec<RunResult> = runs.collect();
    let names: Vec<String> = first.systems.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let each = std::iter::once(&first).chain(&others).filter_map(|run| run.systems.get(&name)).cloned();
        let repeated = Repeated::of(&each.collect::<Vec<_>>());
        if let Some(result) = first.systems.get_mut(&name) {
            result.repeated = repeated;
        }
    }
    first
}

fn known() -> String {
    ALL.iter().map(|one| one.id).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use sidestep_results::{Named, PathResult, SystemResult};

    use super::*;

    /// Answers every run at once: TCP carries what one path does, all else what six do.
    struct Pretended {
        runs: Vec<(World, Vec<String>, u32)>,
    }

    impl Worlds for Pretended {
        fn run(
            &mut self,
            world: World,
            scenario: &Scenario,
            systems: &[SystemSpec],
            seeds: u32,
            out: &Path,
        ) -> Result<RunResult, String> {
            std::fs::create_dir_all(out).unwrap();
            let line = "tcp,1.0,connection,c,94.0,,,,\n";
            let series = format!("system,time_s,kind,name,mbps,queue_bytes,drops,cwnd_bytes,path\n{line}");
            std::fs::write(out.join("series.csv"), series).unwrap();
            self.runs.push((world, systems.iter().map(ToString::to_string).collect(), seeds));
            let mut result = RunResult::new(&scenario.name, world, 1);
            for system in systems {
                let goodput_mbps = match system.to_string().as_str() {
                    "tcp" => 94.0,
                    "ecmp" => 569.0,
                    _ => 510.0,
                };
                // Headers take a twentieth.
                let utilisation = Some(goodput_mbps * 1.05 / 600.0);
                let six = PathResult { capacity_mbps: Some(600.0), utilisation, ..PathResult::default() };
                let mut paths = Named::default();
                paths.insert("six", six);
                let mut measured = SystemResult { goodput_mbps, paths, ..SystemResult::default() };
                let seed =
                    |seed: u32| SystemResult { goodput_mbps: goodput_mbps + f64::from(seed % 2), ..measured.clone() };
                measured.repeated = Repeated::of(&(0..seeds).map(seed).collect::<Vec<_>>());
                result.systems.insert(system.to_string(), measured);
            }
            Ok(result)
        }
    }

    #[test]
    fn figure_5_asks_for_what_the_paper_compares_and_writes_its_verdicts() {
        let dir = tempfile::tempdir().unwrap();
        let mut worlds = Pretended { runs: Vec::new() };
        let outcome =
            run(find("tpc-fig5").unwrap(), Mode::Full, None, dir.path(), None, &mut worlds, &Unwatched).unwrap();
        assert_eq!(worlds.runs.len(), 2);
        assert!(worlds.runs.iter().all(|(world, _, seeds)| (*world, *seeds) == (World::Sim, 30)));
        assert_eq!(worlds.runs[0].1.iter().filter(|name| name.contains("gamma")).count(), 5 + 2);
        let judged = outcome.rows.iter().filter(|row| row.paper != Paper::None && row.verdict != Verdict::NoVerdict);
        let verdicts: Vec<Verdict> = judged.map(|row| row.verdict).collect();
        // TCP, each γ, and all γ against each other.
        assert_eq!(verdicts, [Verdict::Holds; 7], "{:#?}", outcome.rows);
        // The paper leaves open how its policy does beside ECMP; that it does worse is not hidden.
        let beside = outcome.rows.iter().find(|row| row.quantity.contains("above ecmp")).unwrap();
        assert_eq!((beside.ours, beside.verdict, &beside.paper), (-59.0, Verdict::Differs, &Paper::None));
        assert!(beside.quantity.contains("policy=paper") && beside.why.contains("NOT met"), "{beside:?}");
        let written = std::fs::read_to_string(dir.path().join("tpc-fig5/result.json")).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&written).unwrap(), outcome);
        assert!(std::fs::read_to_string(dir.path().join("tpc-fig5/over-time.svg")).unwrap().contains("tcp"));
        assert!(dir.path().join("tpc-fig5/goodput.svg").is_file() && dir.path().join("tpc-fig5/rows.csv").is_file());
        assert!(report(dir.path()).unwrap().contains("&lt;svg"));
    }

    #[test]
    fn the_lab_runs_each_seed_by_itself_and_is_not_judged_where_its_rows_are_scaled() {
        let dir = tempfile::tempdir().unwrap();
        let mut worlds = Pretended { runs: Vec::new() };
        let (fig5, lab) = (find("tpc-fig5").unwrap(), Some(World::Lab));
        let outcome = run(fig5, Mode::Full, lab, dir.path(), None, &mut worlds, &Unwatched).unwrap();
        assert!(
            worlds.runs.len() == 6 && worlds.runs.iter().all(|(world, _, seeds)| (*world, *seeds) == (World::Lab, 1))
        );
        let judged: Vec<&Row> = outcome.rows.iter().filter(|row| row.paper != Paper::None).collect();
        assert!(judged.iter().all(|row| row.verdict == Verdict::NoVerdict), "{judged:#?}");
        assert!(judged[0].ci95.is_some() && judged[0].why.contains("scaled"));
        assert!(dir.path().join("tpc-fig5/ecmp-off/seed-6/series.csv").is_file());
    }

    /// The cells of INRPP's Table 1 that the published maps do not give; the parts of Sprintlink's row add up to 144.9 %.
    const TABLE_1_DIFFERS: [&str; 4] = [
        "Telstra: of these with 2 detours",
        "Telstra: of these with 5 detours or more",
        "Sprintlink: of these with 5 detours or more",
        "Verio: of these with 5 detours or more",
    ];

    /// Without the published topologies it runs on small ones, for which the paper's values do not hold.
    #[test]
    fn every_experiment_on_topologies_leaves_results_and_holds_on_the_published_ones() {
        let dir = tempfile::tempdir().unwrap();
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
        let named = std::env::var_os("SIDESTEP_DATA").map(PathBuf::from);
        let published = named.clone().unwrap_or(beside);
        let at_hand = published.is_dir();
        if !at_hand {
            assert_eq!(named, None, "SIDESTEP_DATA names a directory that is not there");
            println!(
                "skipped: the published topologies in {}; set SIDESTEP_DATA to where they are",
                published.display()
            );
            small_data(dir.path());
        }
        let data = if at_hand { published } else { dir.path().to_path_buf() };
        let mut worlds = Pretended { runs: Vec::new() };
        let mut held = 0;
        // Figure 7 takes minutes, and has a value that differs.
        for experiment in ALL.iter().filter(|one| one.worlds.is_empty() && !one.id.starts_with("tpc-fig7")) {
            let outcome = run(experiment, Mode::Quick, None, dir.path(), Some(&data), &mut worlds, &Unwatched).unwrap();
            assert!(!outcome.rows.is_empty() && !outcome.pictures.is_empty() && outcome.world.is_none());
            if at_hand {
                let differs = outcome.rows.iter().filter(|row| row.verdict == Verdict::Differs);
                let differs: Vec<&str> = differs.map(|row| row.quantity.as_str()).collect();
                let known: &[&str] = if experiment.id == "inrpp-table1" { &TABLE_1_DIFFERS } else { &[] };
                assert_eq!(differs, known);
                held += outcome.rows.iter().filter(|row| row.verdict == Verdict::Holds).count();
            }
        }
        assert!(!at_hand || held >= 60, "{held}");
        assert!(report(dir.path()).unwrap().contains("Computed, quick mode"));
    }

    /// A ring of five routers and a tree in REPETITA's format, and a triangle with a stub as each of the nine ISPs.
    fn small_data(dir: &Path) {
        let links = |ends: &[(usize, usize)]| {
            let edges: String = ends
                .iter()
                .flat_map(|(a, b)| [(a, b), (b, a)])
                .map(|(a, b)| format!("e {a} {b} 1 1000 10\n"))
                .collect();
            let nodes: String = (0..5).map(|node| format!("n{node} 0 0\n")).collect();
            format!("NODES 5\nlabel x y\n{nodes}\nEDGES {}\nlabel src dest weight bw delay\n{edges}", 2 * ends.len())
        };
        std::fs::create_dir_all(dir.join("repetita")).unwrap();
        std::fs::create_dir_all(dir.join("rocketfuel")).unwrap();
        std::fs::write(dir.join("repetita/Ring.graph"), links(&[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])).unwrap();
        std::fs::write(dir.join("repetita/Tree.graph"), links(&[(0, 1), (0, 2), (0, 3), (3, 4)])).unwrap();
        let map = "1 @a (3) -> <2> <3> <4> =a r0\n2 @a (2) -> <1> <3> =b r0\n3 @a (2) -> <1> <2> =c r0\n4 @a (1) -> <1> =d r0\n";
        for isp in ["1221", "1239", "1755", "2914", "3257", "3356", "3967", "4755", "7018"] {
            std::fs::write(dir.join(format!("rocketfuel/{isp}.r0.cch")), map).unwrap();
        }
    }

    #[test]
    fn experiments_on_topologies_compute_what_a_small_network_must_give_and_note_that_the_paper_has_another() {
        let dir = tempfile::tempdir().unwrap();
        small_data(dir.path());
        let mut worlds = Pretended { runs: Vec::new() };
        let mut ours = |id: &str, quantity: &str| {
            let experiment = find(id).unwrap();
            let out = dir.path().join("out");
            let outcome = run(experiment, Mode::Quick, None, &out, Some(dir.path()), &mut worlds, &Unwatched).unwrap();
            let row = outcome.rows.iter().find(|row| row.quantity == quantity);
            row.map(|row| (row.ours, row.verdict)).ok_or(outcome.rows.clone()).unwrap()
        };
        assert_eq!(ours("tpc-fig6a", "topologies after pruning"), (1.0, Verdict::Differs));
        assert_eq!(ours("tpc-fig6b", "links, median"), (5.0, Verdict::NoPaperValue));
        assert_eq!(ours("tpc-fig6c", "routers of degree 2, median"), (100.0, Verdict::NoPaperValue));
        assert_eq!(ours("tpc-fig8a", "topologies where iterated Dijkstra finds as many"), (100.0, Verdict::Differs));
        assert_eq!(
            ours("tpc-fig8b", "disjoint paths, at most 10 segments, mean over topologies"),
            (2.0, Verdict::NoPaperValue)
        );
        assert_eq!(ours("inrpp-table1", "Telstra: links with 1-hop detours"), (75.0, Verdict::Differs));
        let work = FlowWork::measure(Some(dir.path()), 1, || 0.0).unwrap();
        assert!(
            work.networks == 1 && work.programs > 0 && work.programs.is_multiple_of(4) && work.gap <= 1e-6,
            "{work:?}"
        );
    }

    #[test]
    fn an_experiment_that_does_not_exist_is_answered_with_those_that_do() {
        let message = find("tpc-fig99").unwrap_err().to_string();
        assert!(message.starts_with("there is no experiment `tpc-fig99`; there are: tpc-fig5, tpc-fig6a"), "{message}");
    }
}
