//! Runs a scenario in the simulator, and leaves the results that the lab leaves.

mod capture;
mod estimate;
mod flows;
mod loops;
mod opening;
mod paths;
mod simulation;

use std::{
    num::NonZero,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use sidestep_model::{
    LinkId, Scenario, Span, Topology,
    scenario::{Flow, Place, SystemError, SystemSpec},
};
use sidestep_paths::Igp;
use sidestep_results::{
    Recorder, Records, Repeated, RunResult, SystemResult, Trace, Window, World, WriteError, Writer,
};
use thiserror::Error;

use crate::{
    engine::{Balance, MAX_ARCS, MAX_NANOS},
    routing::NoRoute,
};

pub use estimate::estimate;
use simulation::Simulation;

/// What to run, and where to leave the results.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The experiment.
    pub scenario: Scenario,
    /// The systems, in order.
    pub systems: Vec<SystemSpec>,
    /// How many seeds, from the scenario's on; at least one.
    pub seeds: u32,
    /// Directory of the results; `None`: they are only returned.
    pub out: Option<PathBuf>,
    /// Links whose packets are written to `trace/SYSTEM/LINK.pcapng` below `out`, for the first seed.
    pub trace: Vec<LinkId>,
    /// The command line that does the same again.
    pub command: String,
    /// Set to end the run early; what there is is written.
    pub stop: Arc<AtomicBool>,
}

/// Observes how a run goes, from several threads at once.
pub trait Observer: Sync {
    /// So many simulations begin, each of `duration`.
    fn begins(&self, simulations: usize, duration: Span);
    /// One of them has come on by so much, with so many packets carried over a link; now and then.
    fn runs(&self, elapsed: Span, traversals: u64);
    /// A system's results are there.
    fn ends(&self, system: &SystemSpec, result: &SystemResult);
}

/// Nobody listens.
impl Observer for () {
    fn begins(&self, _: usize, _: Span) {}
    fn runs(&self, _: Span, _: u64) {}
    fn ends(&self, _: &SystemSpec, _: &SystemResult) {}
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
    /// The path changer's settings do not fit.
    #[error("system `{system}`: {problem}")]
    Policy {
        /// The system.
        system: SystemSpec,
        /// What is wrong.
        problem: sidestep_policy::PolicyError,
    },
    /// Settings of paths that do not fit.
    #[error(transparent)]
    Paths(#[from] sidestep_model::scenario::KnobError),
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
    /// Requests, which only the lab's hosts answer.
    #[error("flow `{flow}` asks and is answered (`request`), which only the lab can; use `sidestep lab run`")]
    Request {
        /// Its number in the scenario.
        number: usize,
        /// Its name.
        flow: String,
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
        !matches!(self, SimError::Write(_) | SimError::Unbalanced { .. })
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
/// The first seed of a system leaves all its records; of the others there are only means.
pub fn run(options: &RunOptions, observer: &dyn Observer) -> Result<(RunResult, bool), SimError> {
    let scenario = &options.scenario;
    let ground = Ground::new(&scenario.topology);
    check(options, &ground)?;
    let mut writer = options.out.as_ref().map(Writer::new).transpose()?;
    let grid = Grid::run(options, &ground, writer.as_ref(), observer)?;
    let mut result = RunResult::new(&scenario.name, World::Sim, scenario.seed);
    let mut traces = Vec::new();
    let mut interrupted = options.stop.load(Ordering::Relaxed);
    for (system, done) in options.systems.iter().zip(grid) {
        let mut done = done.into_iter();
        let Some(Some(first)) = done.next() else { break };
        interrupted |= first.ended;
        if let (Some(writer), Some(records)) = (&mut writer, first.records) {
            writer.append(records)?;
        }
        let mut all = vec![first.result];
        all.extend(done.flatten().map(|other| other.result));
        let repeated = if all.len() > 1 { Repeated::of(&all) } else { None };
        let measured = SystemResult { repeated, ..all.swap_remove(0) };
        observer.ends(system, &measured);
        result.systems.insert(system.to_string(), measured);
        traces.push(first.trace);
    }
    if let Some(writer) = writer {
        writer.finish(&result, &traces, &scenario.to_toml(), &options.command)?;
    }
    Ok((result, interrupted))
}

/// What all simulations of a run share of the network: computed once, as far as they ask for it.
struct Ground {
    topology: Arc<Topology>,
    igp: Arc<Igp>,
}

impl Ground {
    fn new(topology: &Topology) -> Self {
        Ground { topology: Arc::new(topology.clone()), igp: Arc::new(Igp::new(topology)) }
    }
}

/// What a simulation leaves.
struct Done {
    result: SystemResult,
    trace: Trace,
    records: Option<Records>,
    /// Whether it was ended before its time.
    ended: bool,
}

/// The simulations of a run: a row for each system, a column for each seed.
struct Grid<'a> {
    options: &'a RunOptions,
    ground: &'a Ground,
    seeds: usize,
    next: AtomicUsize,
    done: Mutex<Vec<Vec<Option<Done>>>>,
    failed: Mutex<Option<SimError>>,
}

impl Grid<'_> {
    /// Runs them all, as many at once as there are processors; those not begun when the run is ended are `None`.
    fn run(
        options: &RunOptions,
        ground: &Ground,
        writer: Option<&Writer>,
        observer: &dyn Observer,
    ) -> Result<Vec<Vec<Option<Done>>>, SimError> {
        let seeds = options.seeds.max(1) as usize;
        let row = || (0..seeds).map(|_| None).collect();
        let grid = Grid {
            options,
            ground,
            seeds,
            next: AtomicUsize::new(0),
            done: Mutex::new(options.systems.iter().map(|_| row()).collect()),
            failed: Mutex::new(None),
        };
        let count = seeds * options.systems.len();
        observer.begins(count, options.scenario.duration);
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            for _ in 1..processors.min(count) {
                scope.spawn(|| grid.work(count, writer, observer));
            }
            grid.work(count, writer, observer);
        });
        match grid.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(grid.done.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn work(&self, count: usize, writer: Option<&Writer>, observer: &dyn Observer) {
        loop {
            let job = self.next.fetch_add(1, Ordering::Relaxed);
            if job >= count || self.options.stop.load(Ordering::Relaxed) {
                return;
            }
            let (system, seed) = (job / self.seeds, job % self.seeds);
            let writer = writer.filter(|_| seed == 0);
            match simulate(self.options, self.ground, &self.options.systems[system], seed as u64, writer, observer) {
                Ok(done) => self.done.lock().unwrap_or_else(PoisonError::into_inner)[system][seed] = Some(done),
                Err(error) => {
                    self.next.store(count, Ordering::Relaxed);
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    }
}

fn simulate(
    options: &RunOptions,
    ground: &Ground,
    system: &SystemSpec,
    seed: u64,
    writer: Option<&Writer>,
    observer: &dyn Observer,
) -> Result<Done, SimError> {
    let scenario = &options.scenario;
    let window = Window { warmup: scenario.warmup, duration: scenario.duration, sample: scenario.sample };
    let paths = sidestep_results::reported_paths(&scenario.topology);
    let mut recorder = Recorder::new(system.to_string(), window, paths);
    let mut records = writer.map(Writer::set_aside).transpose()?;
    let traced = options.out.as_ref().filter(|_| seed == 0 && !options.trace.is_empty());
    let directory = traced.map(|out| out.join("trace").join(system.to_string()));
    let watch = directory.as_deref().map(|directory| (directory, &options.trace[..]));
    let mut simulation = Simulation::watched(scenario, ground, system, scenario.seed.wrapping_add(seed), watch)?;
    let ended = simulation.run(&options.stop, records.as_mut(), &mut recorder, observer)?;
    let balance = simulation.world.network.balance();
    if !balance.is_even() {
        return Err(SimError::Unbalanced { system: system.clone(), balance });
    }
    let (result, trace) = recorder.finish();
    Ok(Done { result, trace, records, ended })
}

/// Finds what would fail, before anything is run.
fn check(options: &RunOptions, ground: &Ground) -> Result<(), SimError> {
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
        match flow {
            Flow::Exec(flow) => return Err(SimError::Exec { number, flow: flow.name.clone() }),
            Flow::Poisson(flow) if flow.request.is_some() => {
                return Err(SimError::Request { number, flow: flow.name.clone() });
            }
            _ => {}
        }
    }
    for system in &options.systems {
        Simulation::new(scenario, ground, system, scenario.seed)?;
    }
    Ok(())
}
