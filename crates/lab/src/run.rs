//! Runs a scenario in the lab, one system after the other, and leaves the results.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sidestep_linux::bpf::congestion_control::CongestionControl;
use sidestep_model::{
    Rate, Scenario, Span, Time,
    scenario::{Flow, SystemSpec, Transport},
};
use sidestep_results::{Recorder, Records, RunResult, SystemResult, Trace, Window, World, Writer};

use crate::{
    error::LabError,
    names::Names,
    session::Session,
    site::{self, Site},
    system,
};

/// What to run, and where to leave the results.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The experiment.
    pub scenario: Scenario,
    /// The systems, in order.
    pub systems: Vec<SystemSpec>,
    /// Directory of the results.
    pub out: PathBuf,
    /// The `sidestep` program, of which the lab's daemons are subcommands.
    pub program: PathBuf,
    /// The command line that does the same again.
    pub command: String,
    /// Set to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// Hears how a run goes.
pub trait Observer {
    /// A system's network is being built: the `index`-th (from 0) of `of`.
    fn begins(&mut self, system: &SystemSpec, index: usize, of: usize);
    /// The system runs; called with each sample.
    fn runs(&mut self, elapsed: Span, duration: Span, goodput: Rate);
    /// The system's results are there.
    fn ends(&mut self, system: &SystemSpec, result: &SystemResult);
}

/// Runs a scenario; whatever the outcome, nothing of the lab is left behind.
pub fn run(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunResult, LabError> {
    let scenario = &options.scenario;
    check(options)?;
    site::clean()?;
    let site = Site::create()?;
    // Before any connection; a namespace could only choose what the machine lists as allowed.
    let congestion_control = CongestionControl::attach(site.cgroup().path(), &scenario.tcp.congestion_control)?;
    let names = Names::new(&scenario.topology, scenario.paths)?;
    let mut writer = Writer::new(&options.out)?;
    let mut result = RunResult::new(&scenario.name, World::Lab, scenario.seed);
    let mut traces = Vec::new();
    for (index, system) in options.systems.iter().enumerate() {
        observer.begins(system, index, options.systems.len());
        let (measured, trace) = run_system(options, &site, &names, system, writer.records(), observer)?;
        match congestion_control.refused()? {
            0 => {}
            connections => {
                let name = scenario.tcp.congestion_control.clone();
                return Err(LabError::CongestionControlRefused { name, connections });
            }
        }
        observer.ends(system, &measured);
        result.systems.insert(system.to_string(), measured);
        traces.push(trace);
    }
    writer.finish(&result, &traces, &scenario.to_toml(), &options.command)?;
    Ok(result)
}

fn run_system(
    options: &RunOptions,
    site: &Site,
    names: &Names,
    system: &SystemSpec,
    writer: &mut Records,
    observer: &mut dyn Observer,
) -> Result<(SystemResult, Trace), LabError> {
    let scenario = &options.scenario;
    let window = Window { warmup: scenario.warmup, duration: scenario.duration };
    let paths = sidestep_results::reported_paths(&scenario.topology);
    let mut recorder = Recorder::new(system.to_string(), window, paths);
    let mut session = Session::start(options, site, system)?;
    session.drive(|elapsed, session| {
        let goodput = session.sample(Time::ZERO + elapsed, names, writer, &mut recorder)?;
        observer.runs(elapsed, scenario.duration, goodput);
        Ok(())
    })?;
    session.finish(names, writer, &mut recorder)?;
    Ok(recorder.finish())
}

/// Finds what would fail, before anything is built.
fn check(options: &RunOptions) -> Result<(), LabError> {
    let scenario = &options.scenario;
    for system in &options.systems {
        system::setup(scenario, system)?;
    }
    check_congestion_control(&scenario.tcp.congestion_control)?;
    if !scenario.impairments.is_empty() {
        return Err(LabError::Impairment);
    }
    for flow in &scenario.flows {
        if matches!(flow, Flow::ClosedLoop(_) | Flow::Cbr(_)) {
            return Err(LabError::SimulatorOnly(flow.name().into()));
        }
        if flow.transport().is_some_and(|transport| *transport != Transport::default()) {
            return Err(LabError::Transport(flow.name().into()));
        }
        let Flow::Exec(flow) = flow else { continue };
        let Some(program) = flow.command.first() else { continue };
        if !is_program(program) {
            return Err(LabError::NoProgram { flow: flow.name.clone(), program: program.clone() });
        }
    }
    Ok(())
}

fn check_congestion_control(name: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = std::fs::read_to_string(path).map_err(LabError::file(path))?;
    if available.split_whitespace().any(|other| other == name) {
        return Ok(());
    }
    Err(LabError::CongestionControl { name: name.into(), available: available.trim().into() })
}

fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

impl RunOptions {
    /// Whether the user wants the run to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
