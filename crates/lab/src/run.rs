//! Runs a scenario in the lab, one system after the other, and leaves the results.

use std::path::Path;

use sidestep_maxflow::Ceiling;
use sidestep_net::{NodeId, Rate, Span, Time};
use sidestep_results::{Recorder, Records, RunResult, Scene, SystemResult, Trace, Window, World, Writer};
use sidestep_scenario::{CbrFlow, Flow, Scenario, SystemSpec};

use crate::{
    congestion::{self, Congestion},
    error::LabError,
    interfaces,
    mix::RunPlan,
    names::Names,
    options::RunOptions,
    session::Session,
    site::{self, LabDir},
    traffic::CBR_HEADERS,
};

/// Observes the progress of a run.
pub trait Observer {
    /// A system's network is being built: the `index`-th (from 0) of `of`.
    fn on_start(&mut self, system: &SystemSpec, index: usize, of: usize);
    /// The system runs; called with each sample.
    fn on_progress(&mut self, elapsed: Span, duration: Span, goodput: Rate);
    /// The run of a system has ended, with these results.
    fn on_finish(&mut self, system: &SystemSpec, result: &SystemResult);
}

/// Runs a scenario; whatever the outcome, nothing of the lab is left behind.
pub fn run(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunResult, LabError> {
    let scenario = &options.scenario;
    check(options)?;
    site::clean()?;
    let site = LabDir::create()?;
    let names = Names::new(&scenario.topology);
    let mut writer = Writer::new(&options.out, scenario.seed)?;
    let mut ceiling = Ceiling::of(scenario);
    let scene = Scene::of(scenario, 1, &mut |rates| ceiling.as_mut()?.mbps(rates));
    let mut result = RunResult::new(&scenario.name, World::Lab, scenario.seed);
    result.ceiling_mbps = scene.ceiling_mbps();
    let mut traces = Vec::new();
    for (index, system) in options.systems.iter().enumerate() {
        observer.on_start(system, index, options.systems.len());
        let (measured, trace) = run_system(options, &site, &names, system, writer.records(), observer)?;
        observer.on_finish(system, &measured);
        result.systems.insert(system.to_string(), measured);
        traces.push(trace);
    }
    result.conclude(&options.registry.catalogue());
    writer.finish(&result, &traces, &scene, &scenario.to_toml(), &options.command)?;
    Ok(result)
}

fn run_system(
    options: &RunOptions,
    site: &LabDir,
    names: &Names,
    system: &SystemSpec,
    writer: &mut Records,
    observer: &mut dyn Observer,
) -> Result<(SystemResult, Trace), LabError> {
    let scenario = &options.scenario;
    let window = Window { warmup: scenario.warmup, duration: scenario.duration, sample: scenario.sample };
    let paths = sidestep_results::reported_paths(scenario);
    let mut recorder = Recorder::new(system.to_string(), window, paths);
    let mix = RunPlan::of(&options.registry, scenario, system)?;
    // Attached before any connection opens. A namespace could only choose what the machine lists as allowed.
    let tcp = &scenario.tcp.congestion_control;
    let congestion = Congestion::attach(site.cgroup().path(), tcp, mix.coupling)?;
    let mut session = Session::start(options, site, system, mix)?;
    session.drive(|elapsed, session| {
        let goodput = session.sample(Time::ZERO + elapsed, names, writer, &mut recorder)?;
        observer.on_progress(elapsed, scenario.duration, goodput);
        Ok(())
    })?;
    session.finish(names, writer, &mut recorder)?;
    congestion.check()?;
    Ok(recorder.finish())
}

/// Checks the options before anything is built.
fn check(options: &RunOptions) -> Result<(), LabError> {
    let scenario = &options.scenario;
    congestion::check(&scenario.tcp.congestion_control)?;
    for system in &options.systems {
        interfaces::mptcp_hosts(scenario, &RunPlan::of(&options.registry, scenario, system)?)?;
    }
    for (number, flow) in scenario.flows.iter().enumerate() {
        match flow {
            Flow::Cbr(flow) => check_packets(scenario, number, flow)?,
            Flow::Exec(flow) => {
                if let Some(program) = flow.command.first().filter(|program| !is_program(program)) {
                    return Err(LabError::NoProgram { flow: flow.name.clone(), program: program.clone() });
                }
            }
            Flow::Bulk(_) | Flow::OpenLoop(_) | Flow::ClosedLoop(_) => {}
        }
    }
    Ok(())
}

/// Checks that packets have room for their headers, and fit the link that they leave by.
fn check_packets(scenario: &Scenario, number: usize, flow: &CbrFlow) -> Result<(), LabError> {
    let topology = &scenario.topology;
    let mtu = |(from, _): &(NodeId, NodeId)| topology.outgoing(*from).first().map(|arc| topology.link(arc.link()).mtu);
    let most = flow.pairs.iter().filter_map(mtu).min().unwrap_or(u32::MAX);
    if (u32::from(CBR_HEADERS)..=most).contains(&u32::from(flow.packet)) {
        return Ok(());
    }
    let problem = format!("a packet of UDP over IPv6 has {CBR_HEADERS} B to the link's {most} B, not {}", flow.packet);
    Err(LabError::Flow { number, flow: flow.name.clone(), problem })
}

fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
