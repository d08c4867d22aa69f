//! Runs a scenario in the simulator, and leaves the results that the lab leaves.

mod addressing;
mod agenda;
mod capture;
mod closing;
mod connections;
mod estimate;
mod flows;
mod links;
mod loops;
mod opening;
mod paths;
mod sampling;
mod simulation;
mod systems;

use std::{
    num::NonZero,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use sidestep_engine::{Balance, Lateness, MAX_ARCS, MAX_NANOS};
use sidestep_maxflow::Ceiling;
use sidestep_net::{LinkId, Span, Topology};
use sidestep_paths::Igp;
use sidestep_proto::tcp::Counters;
use sidestep_results::{
    Parts, Recorder, Records, Repeated, RunResult, Scene, SeedLog, SeedResult, SeedTrace, SystemResult, Trace, Window,
    World, WriteError, Writer,
};
use sidestep_scenario::{Catalogue, Flow, Place, Scenario, SystemError, SystemSpec};
use simulation::Simulation;
use thiserror::Error;

use crate::{routing::NoRoute, system::Registry};
pub use estimate::estimate;

/// What to run, and where to leave the results.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The experiment.
    pub scenario: Scenario,
    /// The systems that there are.
    pub registry: Registry,
    /// The systems that are run, in order.
    pub systems: Vec<SystemSpec>,
    /// How late programs, links and clocks are; by default nothing is late.
    pub lateness: Lateness,
    /// How many seeds, from the scenario's on; at least one.
    pub seeds: u32,
    /// Directory of the results; `None`: they are only returned.
    pub out: Option<PathBuf>,
    /// Whether `flows.csv`, `series.csv` and `subflows.csv` have the records of all seeds, and not of the first alone.
    pub all_records: bool,
    /// Links whose packets are written to `trace/SYSTEM/LINK.pcapng` below `out`, for the first seed.
    pub trace: Vec<LinkId>,
    /// The command line that does the same again.
    pub command: String,
    /// Set to end the run early; what there is is written.
    pub stop: Arc<AtomicBool>,
}

impl RunOptions {
    /// These systems under the scenario's seed alone; nothing is written.
    pub fn once(registry: Registry, scenario: Scenario, systems: Vec<SystemSpec>) -> RunOptions {
        let (out, trace, command, stop) = (None, Vec::new(), String::new(), Arc::default());
        RunOptions {
            scenario,
            registry,
            systems,
            lateness: Lateness::default(),
            seeds: 1,
            out,
            all_records: true,
            trace,
            command,
            stop,
        }
    }
}

/// The events of TCP that a run counts, by the kernel's names.
pub fn tcp_counters() -> Vec<&'static str> {
    Counters::default().named().map(|(name, _)| name).collect()
}

/// Observes how a run goes, from several threads at once.
pub trait Observer: Sync {
    /// So many simulations begin, each of `duration`.
    fn on_start(&self, simulations: usize, duration: Span);
    /// One of them has come on by so much, with so many packets carried over a link; now and then.
    fn on_progress(&self, elapsed: Span, traversals: u64);
    /// A system's results are there.
    fn on_finish(&self, system: &SystemSpec, result: &SystemResult);
}

/// Nobody listens.
impl Observer for () {
    fn on_start(&self, _: usize, _: Span) {}
    fn on_progress(&self, _: Span, _: u64) {}
    fn on_finish(&self, _: &SystemSpec, _: &SystemResult) {}
}

/// Why a scenario could not be simulated.
#[derive(Debug, Error)]
pub enum SimError {
    /// A system that the simulator does not have.
    #[error(transparent)]
    UnknownSystem(SystemError),
    /// A parameter that does not fit.
    #[error("system `{system}`: {problem}")]
    Parameter {
        /// The system.
        system: SystemSpec,
        /// What is wrong.
        problem: SystemError,
    },
    /// A flow's own system or settings do not fit.
    #[error("flow `{flow}`: {problem}")]
    Flow {
        /// Its number in the scenario.
        number: usize,
        /// Its name.
        flow: String,
        /// What is wrong.
        problem: Box<SimError>,
    },
    /// Two systems that both want to decide at routers.
    #[error(
        "in the run of `{0}` two systems both want to decide at routers; give the flows of one of them a run of their own"
    )]
    TwoBehaviours(SystemSpec),
    /// The system cannot be had in this scenario.
    #[error("system `{system}`: {problem}")]
    Refused {
        /// The system.
        system: SystemSpec,
        /// Why not.
        problem: String,
    },
    /// Settings of paths that do not fit.
    #[error(transparent)]
    Paths(#[from] sidestep_net::SettingError),
    /// A congestion control that the simulator does not have.
    #[error("the simulator has no congestion control `{0}`; it has reno, cubic and dctcp")]
    CongestionControl(String),
    /// A program cannot be run in virtual time.
    #[error("flow `{flow}` runs a program, which only the lab can; use `sidestep lab run`")]
    Exec {
        /// Its number in the scenario.
        number: usize,
        /// Its name.
        flow: String,
    },
    /// Requests over another transport than TCP.
    #[error(
        "flow `{flow}` asks and is answered (`request`), for which the simulator has TCP only, and not what `{system}` speaks"
    )]
    Request {
        /// Its number in the scenario.
        number: usize,
        /// Its name.
        flow: String,
        /// The system that it has.
        system: SystemSpec,
    },
    /// Two hosts that are not connected.
    #[error("flow `{flow}`: {problem}")]
    NoRoute {
        /// Its number in the scenario.
        number: usize,
        /// The flow.
        flow: String,
        /// Between whom.
        problem: NoRoute,
    },
    /// Segments that do not fit.
    #[error(
        "flow `{flow}`: segments of {mss} bytes and their headers do not fit the {mtu} bytes that its route carries"
    )]
    Mss {
        /// The flow's number in the scenario.
        number: usize,
        /// The flow.
        flow: String,
        /// Payload of a segment.
        mss: u32,
        /// The route's largest packet.
        mtu: u32,
        /// Whether the scenario wishes for such segments; else they are the smallest that there are.
        wished: bool,
    },
    /// A run that the simulator has no room for.
    #[error("{0}")]
    TooLarge(String),
    /// Packets that the simulator has lost count of: a defect of it.
    #[error(
        "a defect of the simulator: the packets of `{system}` do not add up ({balance:?}); please report the scenario"
    )]
    Unbalanced {
        /// The system.
        system: SystemSpec,
        /// The counts.
        balance: Balance,
    },
    /// Results cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl SimError {
    /// Whether the scenario or the command line is wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            SimError::Write(error) => matches!(error, WriteError::OtherRun { .. }),
            SimError::Unbalanced { .. } => false,
            _ => true,
        }
    }

    /// Where in the scenario file the mistake is, if it is one of the file's.
    pub fn place(&self) -> Option<Place> {
        match self {
            SimError::CongestionControl(_) => Some(Place::Key("tcp", "congestion_control")),
            SimError::Mss { wished: true, .. } => Some(Place::Key("tcp", "mss")),
            SimError::Exec { number, .. }
            | SimError::Flow { number, .. }
            | SimError::Request { number, .. }
            | SimError::NoRoute { number, .. }
            | SimError::Mss { number, .. } => Some(Place::Flow(*number)),
            _ => None,
        }
    }
}

/// Runs a scenario under each system and seed, in parallel on the processors. Returns the results, and whether the run
/// was ended early.
///
/// Each seed of a system leaves its records, or the first alone if that is asked for.
pub fn run(options: &RunOptions, observer: &dyn Observer) -> Result<(RunResult, bool), SimError> {
    run_from(options, false, observer)
}

/// Goes on with a run that was interrupted: seeds that `seeds.jsonl` in the run's directory has are not run again, but
/// for the first, whose records are in the other files.
pub fn resume(options: &RunOptions, observer: &dyn Observer) -> Result<(RunResult, bool), SimError> {
    run_from(options, true, observer)
}

fn run_from(options: &RunOptions, resumed: bool, observer: &dyn Observer) -> Result<(RunResult, bool), SimError> {
    let mut resolved = options.clone();
    options.registry.catalogue().resolve(&mut resolved.scenario, &options.systems).map_err(SimError::UnknownSystem)?;
    let options = &resolved;
    let scenario = &options.scenario;
    let shared = Shared::new(options);
    check(options, &shared)?;
    let (version, text) = (env!("CARGO_PKG_VERSION"), scenario.to_toml());
    let mut known = Vec::new();
    let mut keeper = None;
    match &options.out {
        Some(out) if options.seeds > 1 && resumed => {
            let (log, done) = SeedLog::resume(out, version, &text)?;
            let names = done.iter().map(|one| (one.system.clone(), one.seed)).collect();
            let parts = Parts::resume(out, &names)?;
            known = done;
            if options.all_records {
                known.retain(|one| parts.has(&one.system, one.seed));
            }
            keeper = Some(Keeper { log: Mutex::new(log), parts });
        }
        Some(out) if options.seeds > 1 => {
            let (log, parts) = (SeedLog::create(out, version, &text)?, Parts::create(out)?);
            keeper = Some(Keeper { log: Mutex::new(log), parts });
        }
        Some(out) => SeedLog::remove(out)?,
        None => {}
    }
    let mut writer = options.out.as_ref().map(|out| Writer::new(out, scenario.seed)).transpose()?;
    let grid = Grid::run(options, &shared, (writer.as_ref(), keeper.as_ref()), known, observer)?;
    let whole = whole_seeds(&grid);
    if let Some(writer) = &mut writer {
        put_together(options, writer, keeper, &grid)?;
    }
    let mut ceiling = Ceiling::of(scenario);
    let scene = Scene::of(scenario, options.seeds, &mut |rates| ceiling.as_mut()?.mbps(rates));
    let mut result = RunResult::new(&scenario.name, World::Sim, scenario.seed);
    result.ceiling_mbps = scene.ceiling_mbps();
    let mut traces = Vec::new();
    let mut interrupted = options.stop.load(Ordering::Relaxed);
    for (system, done) in options.systems.iter().zip(grid) {
        let mut done = done.into_iter();
        let Some(Some(first)) = done.next() else { break };
        interrupted |= first.ended;
        if let (Some(writer), Some(records)) = (&mut writer, first.records) {
            writer.append(records)?;
        }
        let others = done.zip(&whole[1..]).filter(|(_, whole)| **whole).filter_map(|(other, _)| other);
        let mut all = vec![first.result];
        let mut seeds = Vec::new();
        for other in others {
            all.push(other.result);
            seeds.push(other.seen);
        }
        let repeated = if all.len() > 1 && whole[0] { Repeated::of(&all) } else { None };
        if repeated.is_none() {
            seeds.clear();
        }
        let mut measured = SystemResult { repeated, ..all.swap_remove(0) };
        if interrupted && options.seeds > 1 {
            let count = whole.iter().filter(|whole| **whole).count();
            let lacks =
                if whole[0] { "" } else { ", the first not; the numbers are of that one, as far as it was run" };
            // How far a first seed came is a remark: what the results lack are seeds.
            measured.notes.append(&mut measured.incomplete);
            measured.incomplete.push(format!("{count} of {} seeds were run under all systems{lacks}", options.seeds));
        }
        observer.on_finish(system, &measured);
        result.systems.insert(system.to_string(), measured);
        traces.extend(first.trace.map(|trace| trace.with_seeds(&seeds)));
    }
    result.conclude(&shared.catalogue);
    if let Some(writer) = writer {
        writer.finish(&result, &traces, &scene, &text, &options.command)?;
    }
    Ok((result, interrupted))
}

/// What a run of several seeds keeps of each while it goes on.
struct Keeper {
    log: Mutex<SeedLog>,
    parts: Parts,
}

/// Puts the records of all seeds into the files of the run, seed by seed and in the order of the systems: of those that ran to the
/// end, and of the first as far as it came.
fn put_together(
    options: &RunOptions,
    writer: &mut Writer,
    keeper: Option<Keeper>,
    grid: &[Vec<Option<SeedRun>>],
) -> Result<(), SimError> {
    let Some(Keeper { log, parts }) = keeper else { return Ok(()) };
    log.into_inner().unwrap_or_else(PoisonError::into_inner).finish(&seed_results(options, grid))?;
    for index in 0..options.seeds as usize {
        let seed = options.scenario.seed.wrapping_add(index as u64);
        for (system, row) in options.systems.iter().zip(grid) {
            let done = row.get(index).and_then(Option::as_ref);
            let name = system.to_string();
            if done.is_some_and(|done| !done.ended || index == 0) && parts.has(&name, seed) {
                writer.append_part(&parts, &name, seed)?;
            }
        }
    }
    Ok(parts.clear()?)
}

/// Of each seed, whether it ran to the end under every system: only such seeds can be compared.
fn whole_seeds(grid: &[Vec<Option<SeedRun>>]) -> Vec<bool> {
    let seeds = grid.first().map_or(0, Vec::len);
    let is_whole = |done: &Option<SeedRun>| done.as_ref().is_some_and(|done| !done.ended);
    (0..seeds).map(|seed| grid.iter().all(|row| row.get(seed).is_some_and(is_whole))).collect()
}

/// What ran to the end, seed by seed.
fn seed_results(options: &RunOptions, grid: &[Vec<Option<SeedRun>>]) -> Vec<SeedResult> {
    let mut results = Vec::new();
    for index in 0..options.seeds as usize {
        for (system, row) in options.systems.iter().zip(grid) {
            if let Some(done) = row.get(index).and_then(Option::as_ref).filter(|done| !done.ended) {
                results.push(done.to_log(system, options.scenario.seed.wrapping_add(index as u64)));
            }
        }
    }
    results
}

/// What all simulations of a run share: computed once.
struct Shared {
    topology: Arc<Topology>,
    igp: Arc<Igp>,
    lateness: Lateness,
    registry: Registry,
    catalogue: Catalogue,
}

impl Shared {
    fn new(options: &RunOptions) -> Self {
        let topology = &options.scenario.topology;
        let (igp, lateness) = (Arc::new(Igp::new(topology)), options.lateness.clone());
        let (registry, catalogue) = (options.registry.clone(), options.registry.catalogue());
        Shared { topology: Arc::new(topology.clone()), igp, lateness, registry, catalogue }
    }
}

/// What a simulation leaves.
struct SeedRun {
    result: SystemResult,
    /// What pictures of all seeds show of it.
    seen: SeedTrace,
    /// Of the first seed.
    trace: Option<Trace>,
    /// Of a run of one seed.
    records: Option<Records>,
    /// Whether it was ended before its time.
    ended: bool,
}

impl SeedRun {
    fn to_log(&self, system: &SystemSpec, seed: u64) -> SeedResult {
        SeedResult { system: system.to_string(), seed, result: self.result.clone(), trace: self.seen.clone() }
    }
}

/// The simulations of a run: a row for each system, a column for each seed.
struct Grid<'a> {
    options: &'a RunOptions,
    shared: &'a Shared,
    /// What is left to run: the index of the system and the number of the seed, seed by seed.
    jobs: Vec<(usize, usize)>,
    next: AtomicUsize,
    done: Mutex<Vec<Vec<Option<SeedRun>>>>,
    keeper: Option<&'a Keeper>,
    failed: Mutex<Option<SimError>>,
}

impl Grid<'_> {
    /// Runs them all but those that are `known`, as many at once as there are processors; those not begun when the run is
    /// ended are `None`.
    fn run(
        options: &RunOptions,
        shared: &Shared,
        (writer, keeper): (Option<&Writer>, Option<&Keeper>),
        known: Vec<SeedResult>,
        observer: &dyn Observer,
    ) -> Result<Vec<Vec<Option<SeedRun>>>, SimError> {
        let seeds = options.seeds.max(1) as usize;
        let row = || (0..seeds).map(|_| None).collect();
        let mut done: Vec<Vec<Option<SeedRun>>> = options.systems.iter().map(|_| row()).collect();
        for SeedResult { system, seed, result, trace: seen } in known {
            let of_system = options.systems.iter().position(|own| own.to_string() == system);
            // The plot shows more of the first seed than is kept.
            let index = usize::try_from(seed.wrapping_sub(options.scenario.seed)).ok().filter(|index| *index > 0);
            let row = of_system.and_then(|index| done.get_mut(index));
            if let Some(cell) = row.zip(index).and_then(|(row, index)| row.get_mut(index)) {
                *cell = Some(SeedRun { result, seen, trace: None, records: None, ended: false });
            }
        }
        let all = (0..seeds).flat_map(|seed| (0..options.systems.len()).map(move |system| (system, seed)));
        let jobs: Vec<_> = all.filter(|(system, seed)| done[*system][*seed].is_none()).collect();
        let count = jobs.len();
        let grid = Grid {
            options,
            shared,
            jobs,
            next: AtomicUsize::new(0),
            done: Mutex::new(done),
            keeper,
            failed: Mutex::new(None),
        };
        observer.on_start(count, options.scenario.duration);
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            for _ in 1..processors.min(count) {
                scope.spawn(|| grid.work(writer, observer));
            }
            grid.work(writer, observer);
        });
        match grid.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(grid.done.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn work(&self, writer: Option<&Writer>, observer: &dyn Observer) {
        while !self.options.stop.load(Ordering::Relaxed) {
            let Some(&(system, seed)) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            let done = self.records(system, seed, writer).and_then(|records| {
                let system = &self.options.systems[system];
                simulate((self.options, self.shared), system, seed as u64, records, observer)
            });
            match done.and_then(|mut done| self.keep(system, seed, &mut done).map(|()| done)) {
                Ok(done) => self.done.lock().unwrap_or_else(PoisonError::into_inner)[system][seed] = Some(done),
                Err(error) => {
                    self.next.store(self.jobs.len(), Ordering::Relaxed);
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    }

    /// Where the records of a simulation go.
    fn records(&self, system: usize, seed: usize, writer: Option<&Writer>) -> Result<Option<Records>, SimError> {
        if seed > 0 && !self.options.all_records {
            return Ok(None);
        }
        let own_seed = self.options.scenario.seed.wrapping_add(seed as u64);
        Ok(match (self.keeper, writer) {
            (Some(keeper), _) => Some(keeper.parts.begin(&self.options.systems[system].to_string(), own_seed)?),
            (None, Some(writer)) => Some(writer.set_aside()?),
            (None, None) => None,
        })
    }

    /// Completes the records of a simulation, and adds what ran to the end to the file of seeds, if there is one.
    fn keep(&self, system: usize, seed: usize, done: &mut SeedRun) -> Result<(), SimError> {
        let Some(keeper) = self.keeper else { return Ok(()) };
        done.records.take().map(Records::close).transpose()?;
        if done.ended {
            return Ok(());
        }
        let own_seed = self.options.scenario.seed.wrapping_add(seed as u64);
        let mut log = keeper.log.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(log.add(&done.to_log(&self.options.systems[system], own_seed))?)
    }
}

fn simulate(
    (options, shared): (&RunOptions, &Shared),
    system: &SystemSpec,
    seed: u64,
    mut records: Option<Records>,
    observer: &dyn Observer,
) -> Result<SeedRun, SimError> {
    let scenario = &options.scenario;
    let window = Window { warmup: scenario.warmup, duration: scenario.duration, sample: scenario.sample };
    let paths = sidestep_results::reported_paths(scenario);
    let mut recorder = Recorder::new(system.to_string(), window, paths);
    let traced = options.out.as_ref().filter(|_| seed == 0 && !options.trace.is_empty());
    let directory = traced.map(|out| out.join("trace").join(system.to_string()));
    let watch = directory.as_deref().map(|directory| (directory, &options.trace[..]));
    let own_seed = scenario.seed.wrapping_add(seed);
    let mut simulation = Simulation::watched(scenario, shared, system, own_seed, watch)?;
    let ended = simulation.run(&options.stop, records.as_mut(), &mut recorder, observer)?;
    let balance = simulation.world.network.balance();
    if !balance.is_even() {
        return Err(SimError::Unbalanced { system: system.clone(), balance });
    }
    let (result, trace) = recorder.finish();
    let seen = trace.of_seed();
    Ok(SeedRun { result, seen, trace: (seed == 0).then_some(trace), records, ended })
}

/// Finds what would fail, before anything is run.
fn check(options: &RunOptions, shared: &Shared) -> Result<(), SimError> {
    let scenario = &options.scenario;
    let arcs = scenario.topology.arc_count();
    if arcs > MAX_ARCS {
        return Err(SimError::TooLarge(format!("{} links are more than the {} that fit", arcs / 2, MAX_ARCS / 2)));
    }
    if scenario.duration.as_nanos() > MAX_NANOS {
        let most = Span::from_nanos(MAX_NANOS);
        return Err(SimError::TooLarge(format!("a run of {} is longer than the {most} possible", scenario.duration)));
    }
    for (number, flow) in scenario.flows.iter().enumerate() {
        if let Flow::Exec(flow) = flow {
            return Err(SimError::Exec { number, flow: flow.name.clone() });
        }
    }
    for system in &options.systems {
        Simulation::new(scenario, shared, system, scenario.seed)?;
    }
    Ok(())
}
