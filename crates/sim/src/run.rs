//! Runs a scenario in the simulator, and leaves the results that the lab leaves.

mod estimate;
mod flows;
mod loops;
mod setup;
mod simulation;

use std::{
    num::NonZero,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use sidestep_model::{
    Rate, Scenario, Span,
    scenario::{Flow, SystemError, SystemSpec},
};
use sidestep_results::{Recorder, Repeated, RunResult, SystemResult, Trace, Window, World, WriteError, Writer};
use thiserror::Error;

use crate::{
    engine::{MAX_ARCS, MAX_NANOS},
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
    /// The command line that does the same again.
    pub command: String,
    /// Set to end the run early; what there is is written.
    pub stop: Arc<AtomicBool>,
}

/// Hears how a run goes; from several threads at once.
pub trait Observer: Sync {
    /// A system begins: the `index`-th (from 0) of `of`.
    fn begins(&self, system: &SystemSpec, index: usize, of: usize);
    /// The first seed has come so far, with so many packets carried over a link; now and then.
    fn runs(&self, elapsed: Span, duration: Span, goodput: Rate, traversals: u64);
    /// So many seeds of a system are done.
    fn repeats(&self, done: u32, seeds: u32);
    /// The system's results are there.
    fn ends(&self, system: &SystemSpec, result: &SystemResult);
}

/// Nobody listens.
impl Observer for () {
    fn begins(&self, _: &SystemSpec, _: usize, _: usize) {}
    fn runs(&self, _: Span, _: Span, _: Rate, _: u64) {}
    fn repeats(&self, _: u32, _: u32) {}
    fn ends(&self, _: &SystemSpec, _: &SystemResult) {}
}

/// Why a scenario could not be simulated.
#[derive(Debug, Error)]
pub enum SimError {
    /// A system that the simulator does not have.
    #[error(
        "the simulator cannot run the system `{0}` yet; it has tcp, ecmp, random, prr, plb, pathchanger, mptcp and rcp"
    )]
    UnknownSystem(SystemSpec),
    /// A parameter that does not fit.
    #[error("system `{system}`: {problem}")]
    Parameter {
        /// The system.
        system: SystemSpec,
        /// What is wrong.
        problem: SystemError,
    },
    /// The path changer's settings do not fit.
    #[error("system `{system}`: {problem}")]
    Policy {
        /// The system.
        system: SystemSpec,
        /// What is wrong.
        problem: sidestep_policy::PolicyError,
    },
    /// A congestion control that the simulator does not have.
    #[error("the simulator has no congestion control `{0}`; it has reno, cubic and dctcp")]
    CongestionControl(String),
    /// A program cannot be run in virtual time.
    #[error("flow `{0}` runs a program, which only the lab can; use `sidestep lab run`")]
    Exec(String),
    /// Two hosts that are not connected.
    #[error("flow `{flow}`: {problem}")]
    NoRoute {
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
        /// The flow.
        flow: String,
        /// Payload of a segment.
        mss: u32,
        /// The route's largest packet.
        mtu: u32,
    },
    /// A run that the simulator has no room for.
    #[error("{0}")]
    TooLarge(String),
    /// Results cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl SimError {
    /// Whether the scenario or the command line is wrong.
    pub fn is_usage(&self) -> bool {
        !matches!(self, SimError::Write(_))
    }
}

/// Runs a scenario under each system and seed. Returns the results, and whether the run was ended early.
pub fn run(options: &RunOptions, observer: &dyn Observer) -> Result<(RunResult, bool), SimError> {
    let scenario = &options.scenario;
    check(options)?;
    let mut writer = options.out.as_ref().map(Writer::new).transpose()?;
    let mut result = RunResult::new(&scenario.name, World::Sim, scenario.seed);
    let mut traces = Vec::new();
    let mut interrupted = false;
    for (index, system) in options.systems.iter().enumerate() {
        observer.begins(system, index, options.systems.len());
        let (measured, trace, ended) = run_system(options, system, writer.as_mut(), observer)?;
        observer.ends(system, &measured);
        result.systems.insert(system.to_string(), measured);
        traces.push(trace);
        interrupted |= ended;
        if interrupted {
            break;
        }
    }
    if let Some(writer) = writer {
        writer.finish(&result, &traces, &scenario.to_toml(), &options.command)?;
    }
    Ok((result, interrupted))
}

/// Runs the first seed with all its records, and the others beside it on the other processors.
fn run_system(
    options: &RunOptions,
    system: &SystemSpec,
    writer: Option<&mut Writer>,
    observer: &dyn Observer,
) -> Result<(SystemResult, Trace, bool), SimError> {
    let seeds = options.seeds.max(1);
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (next, done) = (AtomicU32::new(1), AtomicU32::new(0));
    let others: Mutex<Vec<(u32, Result<SystemResult, SimError>)>> = Mutex::new(Vec::new());
    let repeat = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || options.stop.load(Ordering::Relaxed) {
                return;
            }
            let result = run_seed(options, system, seed, None, None).map(|(result, _, _)| result);
            others.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((seed, result));
            observer.repeats(done.fetch_add(1, Ordering::Relaxed) + 1, seeds);
        }
    };
    let first = std::thread::scope(|scope| {
        for _ in 1..processors.min(seeds as usize) {
            scope.spawn(repeat);
        }
        let first = run_seed(options, system, 0, writer, Some(observer));
        if first.is_ok() {
            observer.repeats(done.fetch_add(1, Ordering::Relaxed) + 1, seeds);
            repeat();
        } else {
            next.store(seeds, Ordering::Relaxed);
        }
        first
    });
    let (mut result, trace, ended) = first?;
    let mut others = others.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // In the order of the seeds, whichever was done first: sums of numbers depend on their order.
    others.sort_by_key(|(seed, _)| *seed);
    let mut all = vec![result.clone()];
    for (_, other) in others {
        all.push(other?);
    }
    if seeds > 1 {
        result.repeated = Repeated::of(&all);
    }
    Ok((result, trace, ended))
}

fn run_seed(
    options: &RunOptions,
    system: &SystemSpec,
    seed: u32,
    writer: Option<&mut Writer>,
    observer: Option<&dyn Observer>,
) -> Result<(SystemResult, Trace, bool), SimError> {
    let scenario = &options.scenario;
    let window = Window { warmup: scenario.warmup, duration: scenario.duration };
    let paths = sidestep_results::reported_paths(&scenario.topology);
    let mut recorder = Recorder::new(system.to_string(), window, paths);
    let seed = scenario.seed.wrapping_add(u64::from(seed));
    let mut simulation = Simulation::new(scenario, system, seed)?;
    let ended = simulation.run(&options.stop, writer, &mut recorder, observer)?;
    let (result, trace) = recorder.finish();
    Ok((result, trace, ended))
}

/// Finds what would fail, before anything is run.
fn check(options: &RunOptions) -> Result<(), SimError> {
    let scenario = &options.scenario;
    let arcs = scenario.topology.arc_count();
    if arcs > MAX_ARCS {
        return Err(SimError::TooLarge(format!("{} links are more than the {} that fit", arcs / 2, MAX_ARCS / 2)));
    }
    if scenario.duration.as_nanos() > MAX_NANOS {
        let most = Span::from_nanos(MAX_NANOS);
        return Err(SimError::TooLarge(format!("a run of {} is longer than the {most} possible", scenario.duration)));
    }
    for flow in &scenario.flows {
        if let Flow::Exec(flow) = flow {
            return Err(SimError::Exec(flow.name.clone()));
        }
    }
    for system in &options.systems {
        setup::setup(scenario, system)?;
    }
    Ok(())
}
