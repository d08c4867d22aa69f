//! The worlds that scenarios run in, behind one face.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use sidestep_engine::Lateness;
use sidestep_repro::Worlds;
use sidestep_results::{RunResult, World};
use sidestep_scenario::{Scenario, SystemSpec};

use super::{NEEDS_ROOT, command_line, until_signalled};
use crate::planning::{
    failure::Failure,
    progress::{LabProgress, SimProgress},
};

/// The simulator and the lab; an interruption ends whatever runs.
#[derive(Debug)]
pub struct Real {
    stop: Arc<AtomicBool>,
}

impl Real {
    /// Both worlds.
    pub fn new() -> Result<Self, Failure> {
        Ok(Real { stop: until_signalled()? })
    }
}

/// Worlds whose simulator can be as late as the lab was.
pub trait LateWorlds: Worlds {
    /// Simulates a scenario under one system, as late as that.
    fn run_late(
        &mut self,
        scenario: &Scenario,
        system: &SystemSpec,
        lateness: &Lateness,
        out: &Path,
    ) -> Result<RunResult, String>;
}

impl Worlds for Real {
    fn run(
        &mut self,
        world: World,
        scenario: &Scenario,
        systems: &[SystemSpec],
        seeds: u32,
        out: &Path,
    ) -> Result<RunResult, String> {
        let (scenario, systems) = (scenario.clone(), systems.to_vec());
        let (command, stop) = (command_line(), self.stop.clone());
        match world {
            World::Sim => self.simulate(scenario, systems, seeds, Lateness::default(), out),
            World::Lab => {
                if !sidestep_linux::is_root() {
                    return Err(NEEDS_ROOT.into());
                }
                let out = std::path::absolute(out).map_err(|error| error.to_string())?;
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                let registry = sidestep_systems::lab();
                let options = sidestep_lab::RunOptions { scenario, registry, systems, out, program, command, stop };
                let result = sidestep_lab::run(&options, &mut LabProgress::new()).map_err(|error| error.to_string())?;
                match result.incomplete() {
                    lines if lines.is_empty() => Ok(result),
                    lines => Err(format!("the results are incomplete: {}", lines.join("; "))),
                }
            }
        }
    }
}

impl LateWorlds for Real {
    fn run_late(
        &mut self,
        scenario: &Scenario,
        system: &SystemSpec,
        lateness: &Lateness,
        out: &Path,
    ) -> Result<RunResult, String> {
        self.simulate(scenario.clone(), vec![system.clone()], 1, lateness.clone(), out)
    }
}

impl Real {
    fn simulate(
        &self,
        scenario: Scenario,
        systems: Vec<SystemSpec>,
        seeds: u32,
        lateness: Lateness,
        out: &Path,
    ) -> Result<RunResult, String> {
        let (out, command, stop) = (Some(out.to_path_buf()), command_line(), self.stop.clone());
        // What reads these files wants one seed of each; those of all would fill a disk.
        let (all_records, trace, registry) = (false, Vec::new(), sidestep_systems::simulator());
        let options = sidestep_sim::RunOptions {
            scenario,
            registry,
            systems,
            lateness,
            seeds,
            out,
            all_records,
            trace,
            command,
            stop,
        };
        match sidestep_sim::run(&options, &SimProgress::new()) {
            Ok((_, true)) => Err("interrupted".into()),
            Ok((result, false)) => Ok(result),
            Err(error) => Err(error.to_string()),
        }
    }
}
